#include "aten/op_traits.h"

#include <algorithm>
#include <string_view>
#include <unordered_set>

namespace glowplug::aten {

namespace {

using Names = std::unordered_set<std::string_view>;

// Composite operators that draw although neither a tag nor a generator argument says so.
const Names kDrawing = {"aten::dropout",
                        "aten::dropout_",
                        "aten::feature_dropout",
                        "aten::feature_dropout_",
                        "aten::alpha_dropout",
                        "aten::alpha_dropout_",
                        "aten::feature_alpha_dropout",
                        "aten::feature_alpha_dropout_",
                        "aten::native_dropout",
                        "aten::_fused_dropout",
                        "aten::scaled_dot_product_attention",
                        "aten::_scaled_dot_product_attention_math",
                        "aten::_scaled_dot_product_flash_attention_for_cpu",
                        "aten::lstm",
                        "aten::gru",
                        "aten::rnn_tanh",
                        "aten::rnn_relu",
                        "aten::rrelu",
                        "aten::rrelu_",
                        "aten::rrelu_with_noise",
                        "aten::rrelu_with_noise_",
                        "aten::multinomial",
                        "aten::bernoulli",
                        "aten::bernoulli_",
                        "aten::normal",
                        "aten::normal_",
                        "aten::poisson",
                        "aten::binomial",
                        "aten::_standard_gamma",
                        "aten::_sample_dirichlet",
                        "aten::rand",
                        "aten::rand_like",
                        "aten::randn",
                        "aten::randn_like",
                        "aten::randint",
                        "aten::randint_like",
                        "aten::randperm",
                        "aten::random_",
                        "aten::uniform_",
                        "aten::exponential_",
                        "aten::cauchy_",
                        "aten::geometric_",
                        "aten::log_normal_",
                        "aten::random",
                        "aten::uniform",
                        "glowplug::rng_state",
                        "glowplug::set_rng_state",
                        "glowplug::seed",
                        "aten::pca_lowrank",
                        "aten::svd_lowrank",
                        "aten::_efficientzerotensor_rand"};

// Composite operators whose result sizes come from data (leaves have Tag::dynamic_output_shape).
const Names kDataSized = {"aten::argwhere",
                          "aten::nonzero",
                          "aten::nonzero_numpy",
                          "aten::masked_select",
                          "aten::unique_dim",
                          "aten::_unique",
                          "aten::_unique2",
                          "aten::unique_consecutive",
                          "aten::unique_dim_consecutive",
                          "aten::combinations",
                          "aten::bincount",
                          "aten::one_hot",
                          "aten::_pad_packed_sequence",
                          "aten::_pack_padded_sequence",
                          "aten::linalg_lstsq",
                          "aten::tensor_split.tensor_indices_or_sections",
                          "aten::repeat_interleave.Tensor",
                          "aten::repeat_interleave.self_Tensor",
                          "aten::lstm.data",
                          "aten::gru.data",
                          "aten::rnn_tanh.data",
                          "aten::rnn_relu.data",
                          "aten::where",
                          "aten::coalesce",
                          "aten::_coalesce",
                          "aten::to_sparse",
                          "aten::to_padded_tensor",
                          "aten::_nested_tensor_from_mask",
                          "aten::from_file",
                          "aten::set_",
                          "aten::masked_select_backward",
                          "aten::to_dense_backward",
                          "aten::_ctc_loss",
                          "aten::histogramdd",
                          "aten::_histogramdd_bin_edges",
                          "aten::item",
                          "aten::_local_scalar_dense"};

const Names kMaskReading = {"aten::index", "aten::_unsafe_index"};

// Batch norms write their running statistics; the schema does not say so.
const Names kRunningStatistics = {"aten::batch_norm",
                                  "aten::_batch_norm_impl_index",
                                  "aten::native_batch_norm",
                                  "aten::cudnn_batch_norm",
                                  "aten::miopen_batch_norm",
                                  "aten::instance_norm",
                                  "aten::batch_norm_update_stats",
                                  "aten::batch_norm_gather_stats",
                                  "aten::batch_norm_gather_stats_with_counts",
                                  "aten::quantized_batch_norm"};

const Names kResizing = {"aten::resize_",        "aten::resize_as_",
                         "aten::set_",           "aten::squeeze_",
                         "aten::set_data",       "aten::resize_as_sparse_",
                         "aten::sparse_resize_", "aten::sparse_resize_and_clear_",
                         "aten::swapdims_",      "aten::unsqueeze_",
                         "aten::transpose_",     "aten::t_",
                         "aten::as_strided_",    "aten::swapaxes_"};

const Names kSizeKeeping = {"aten::index_put",      "aten::_index_put_impl", "aten::masked_fill",
                            "aten::masked_scatter", "aten::scatter",         "aten::index_add",
                            "aten::index_copy",     "aten::index_fill",      "aten::scatter_add",
                            "aten::clone",          "aten::contiguous",      "aten::detach",
                            "aten::alias"};

// With no dimension given, these reduce to a single number.
const Names kReducing = {"aten::sum",           "aten::mean",      "aten::prod",
                         "aten::all",           "aten::any",       "aten::max",
                         "aten::min",           "aten::std",       "aten::var",
                         "aten::median",        "aten::nanmedian", "aten::nansum",
                         "aten::nanmean",       "aten::argmax",    "aten::argmin",
                         "aten::count_nonzero", "aten::norm",      "aten::linalg_vector_norm",
                         "aten::amax",          "aten::amin",      "aten::dot",
                         "aten::vdot",          "aten::trace"};

const Names kLosses = {"aten::cross_entropy_loss",
                       "aten::nll_loss",
                       "aten::nll_loss_nd",
                       "aten::mse_loss",
                       "aten::l1_loss",
                       "aten::smooth_l1_loss",
                       "aten::huber_loss",
                       "aten::binary_cross_entropy",
                       "aten::binary_cross_entropy_with_logits",
                       "aten::kl_div",
                       "aten::soft_margin_loss",
                       "aten::hinge_embedding_loss",
                       "aten::cosine_embedding_loss",
                       "aten::margin_ranking_loss",
                       "aten::triplet_margin_loss",
                       "aten::poisson_nll_loss",
                       "aten::ctc_loss"};

const Names kMetadataQueries = {"aten::is_same_size",
                                "aten::result_type",
                                "aten::can_cast",
                                "aten::promote_types",
                                "aten::is_floating_point",
                                "aten::is_complex",
                                "aten::is_signed",
                                "aten::is_inference",
                                "aten::is_neg",
                                "aten::is_conj",
                                "aten::size",
                                "aten::stride",
                                "aten::sym_size",
                                "aten::sym_stride",
                                "aten::sym_numel",
                                "aten::sym_storage_offset",
                                "aten::is_pinned",
                                "aten::dim",
                                "aten::_nested_tensor_size",
                                "aten::is_vulkan_available",
                                "aten::_has_same_storage_numel",
                                "aten::cudnn_is_acceptable",
                                "aten::_use_cudnn_ctc_loss",
                                "aten::_cufft_get_plan_cache_size"};

const Names kFactories = {"aten::empty",         "aten::zeros",
                          "aten::ones",          "aten::full",
                          "aten::arange",        "aten::range",
                          "aten::eye",           "aten::linspace",
                          "aten::logspace",      "aten::rand",
                          "aten::randn",         "aten::randint",
                          "aten::randperm",      "aten::scalar_tensor",
                          "aten::empty_strided", "aten::tril_indices",
                          "aten::triu_indices",  "aten::new_empty",
                          "aten::new_zeros",     "aten::new_ones",
                          "aten::new_full",      "aten::new_empty_strided"};

bool isForeign(const std::string& name) {
  return name.rfind("aten::", 0) != 0 && name.rfind("prim::", 0) != 0 &&
         name.rfind("prims::", 0) != 0 && name.rfind("quantized::", 0) != 0 &&
         name.rfind("glowplug::", 0) != 0;
}

bool hasMask(const c10::IValue& value) {
  auto isMask = [](const at::Tensor& tensor) {
    return tensor.defined() &&
           (tensor.scalar_type() == c10::kBool || tensor.scalar_type() == c10::kByte);
  };
  if (value.isTensor()) return isMask(value.toTensor());
  if (!value.isList()) return false;
  for (const c10::IValue& item : value.toListRef()) {
    if (item.isTensor() && isMask(item.toTensor())) return true;
  }
  return false;
}

}  // namespace

OpTraits::OpTraits(const c10::OperatorHandle& op)
    : name_(op.operator_name().name), overload_(op.operator_name().overload_name), op_(op) {
  const c10::FunctionSchema& schema = op.schema();
  std::string full = overload_.empty() ? name_ : name_ + "." + overload_;
  foreign_ = isForeign(name_);
  draws_ = kDrawing.count(name_) > 0;
  bool hasOut = false;
  for (const c10::Argument& argument : schema.arguments()) {
    const c10::AliasInfo* alias = argument.alias_info();
    writes_.push_back(alias != nullptr && alias->isWrite());
    aliases_.push_back(alias != nullptr);
    hasOut |= argument.is_out();
    std::string type = argument.type()->str();
    draws_ |= type.find("Generator") != std::string::npos;
  }
  if (op.hasTag(at::Tag::nondeterministic_seeded)) draws_ = true;
  changesFields_ = (op.hasTag(at::Tag::inplace_view) && full != "aten::detach_") ||
                   full == "aten::set_data" || full == "glowplug::set_grad" ||
                   full == "glowplug::backward";
  dynamic_ = op.hasTag(at::Tag::dynamic_output_shape) ||
             op.hasTag(at::Tag::data_dependent_output) || kDataSized.count(full) > 0 ||
             (kDataSized.count(name_) > 0 && name_ != "aten::where" && name_ != "aten::set_");
  readsMasks_ = kMaskReading.count(name_) > 0;
  hiddenWrites_ = kRunningStatistics.count(name_) > 0;
  conservativeAliases_ = foreign_ &&
                         schema.aliasAnalysis() != c10::AliasAnalysisKind::FROM_SCHEMA &&
                         schema.aliasAnalysis() != c10::AliasAnalysisKind::PURE_FUNCTION;
  bool inPlace = !name_.empty() && name_.back() == '_' && !writes_.empty() && writes_[0];
  resizesWritten_ = hasOut || kResizing.count(name_) > 0;
  keepsSizesOfSelf_ = (inPlace && !resizesWritten_) || kSizeKeeping.count(name_) > 0;
  metadataQuery_ = kMetadataQueries.count(name_) > 0;
  lift_ = name_ == "aten::lift_fresh" || name_ == "aten::lift_fresh_copy" || name_ == "aten::lift";
  bool like = !foreign_ && name_.size() > 5 && name_.compare(name_.size() - 5, 5, "_like") == 0;
  makesOneTensor_ = lift_ || like || kFactories.count(name_) > 0;
}

int OpTraits::find(const char* argument) const {
  auto index = op_.schema().argumentIndexWithName(argument);
  return index ? *index : -1;
}

const c10::IValue* OpTraits::value(const char* argument, Arguments arguments) const {
  int index = find(argument);
  return index < 0 ? nullptr : &arguments[index];
}

bool OpTraits::numberIs(const char* argument, Arguments arguments, double expected) const {
  const c10::IValue* found = value(argument, arguments);
  if (found == nullptr) return false;
  if (found->isDouble()) return found->toDouble() == expected;
  if (found->isInt()) return static_cast<double>(found->toInt()) == expected;
  return found->isBool() && found->toBool() == (expected != 0);
}

bool OpTraits::random(Arguments arguments) const {
  if (foreign_) return true;
  if (!draws_) return false;
  if (numberIs("train", arguments, 0) || numberIs("training", arguments, 0)) return false;
  return !numberIs("dropout_p", arguments, 0) && !numberIs("dropout", arguments, 0);
}

bool OpTraits::writes(size_t index, Arguments arguments) const {
  if (writes_[index] || conservativeAliases_) return true;
  if (!hiddenWrites_) return false;
  const std::string& name = op_.schema().arguments()[index].name();
  if (name.rfind("running_", 0) != 0) return false;
  return !numberIs("training", arguments, 0) && !numberIs("use_input_stats", arguments, 0);
}

bool OpTraits::sizesDependOnData(Arguments arguments) const {
  if (foreign_) return true;
  if (name_ == "aten::one_hot")
    return !(arguments.size() > 1 && arguments[1].isInt() && arguments[1].toInt() >= 0);
  if (name_ == "aten::repeat_interleave") {
    const c10::IValue* size = value("output_size", arguments);
    bool given = size != nullptr && size->isInt();
    return overload_ != "self_int" && !given;
  }
  if (readsMasks_) return std::any_of(arguments.begin() + 1, arguments.end(), hasMask);
  if (keepsSizesOfSelf_) return false;
  return dynamic_;
}

bool OpTraits::givesZeroDim(Arguments arguments) const {
  if (kLosses.count(name_) > 0) {
    return value("reduction", arguments) != nullptr && !numberIs("reduction", arguments, 0);
  }
  if (kReducing.count(name_) == 0 || arguments.empty() || overload_ == "other") return false;
  if (numberIs("keepdim", arguments, 1)) return false;
  const c10::IValue* dim = value("dim", arguments);
  if (dim == nullptr || dim->isNone()) return true;
  return dim->isIntList() && dim->toIntList().empty() && name_ != "aten::amax";
}

}  // namespace glowplug::aten
