#include "aten/convolution_primitive.h"

#include <ATen/Parallel.h>
#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <array>
#include <stdexcept>

#include "aten/buffer_pool.h"

namespace glowplug::aten {
namespace {

using onednn::check;
using onednn::functions;
using onednn::Owned;

using Desc = Owned<dnnl_memory_desc>;

// Threads of a program may each have asked for another number.
constexpr size_t kMostThreadCounts = 4;

Desc describe(const std::vector<int64_t>& sizes, dnnl_format_tag_t tag) {
  dnnl_memory_desc_t made = nullptr;
  check(functions()->memory_desc_create_with_tag(&made, static_cast<int>(sizes.size()),
                                                 sizes.data(), dnnl_f32, tag),
        "description");
  return Desc(made);
}

const std::vector<int64_t>& behind(const ConvolutionPacking& how) {
  return how.after.empty() ? how.padding : how.after;
}

std::vector<int64_t> resultSizes(const ConvolutionPacking& how,
                                 const std::vector<int64_t>& weight) {
  std::vector<int64_t> out{how.inputSizes[0], weight[0]};
  for (size_t d = 0; d < 2; ++d) {
    const int64_t reach = how.dilation[d] * (weight[d + 2] - 1) + 1;
    const int64_t padded = how.inputSizes[d + 2] + how.padding[d] + behind(how)[d];
    out.push_back((padded - reach) / how.stride[d] + 1);
  }
  return out;
}

void appendActivation(dnnl_post_ops* ops, const ConvolutionPacking& how) {
  if (how.activation == "none") return;
  dnnl_alg_kind_t kind = dnnl_eltwise_swish;
  if (how.activation == "gelu") {
    kind = how.algorithm == "tanh" ? dnnl_eltwise_gelu_tanh : dnnl_eltwise_gelu_erf;
  }
  check(functions()->post_ops_append_eltwise(ops, kind, 1, 0), "activation");
}

Owned<dnnl_primitive_attr> attributes(const ConvolutionPacking& how, const Desc& result) {
  dnnl_post_ops_t ops = nullptr;
  check(functions()->post_ops_create(&ops), "post-operations");
  const Owned<dnnl_post_ops> owned(ops);
  if (how.adds) {
    check(functions()->post_ops_append_binary(ops, dnnl_binary_add, result.get()), "addition");
  }
  appendActivation(ops, how);
  dnnl_primitive_attr_t made = nullptr;
  check(functions()->primitive_attr_create(&made), "attributes");
  Owned<dnnl_primitive_attr> out(made);
  check(functions()->primitive_attr_set_post_ops(made, ops), "post-operations");
  check(functions()->primitive_attr_set_scratchpad_mode(made, dnnl_scratchpad_mode_user),
        "scratchpad");
  return out;
}

Owned<dnnl_primitive> primitiveOf(dnnl_primitive_desc* desc) {
  dnnl_primitive_t made = nullptr;
  check(functions()->primitive_create(&made, desc), "primitive");
  return Owned<dnnl_primitive>(made);
}

Owned<dnnl_memory> memoryOf(const dnnl_memory_desc* desc, void* data) {
  dnnl_memory_t made = nullptr;
  check(functions()->memory_create(&made, desc, onednn::engine(), data), "memory");
  return Owned<dnnl_memory>(made);
}

void* address(const at::Tensor& tensor) { return const_cast<void*>(tensor.const_data_ptr()); }

// With a factor for each output channel, where one is given: a product of its own would be another
// pass over the weight.
Owned<dnnl_primitive_attr> scaling(const at::Tensor& scale, bool grouped) {
  if (!scale.defined()) return {};
  dnnl_primitive_attr_t made = nullptr;
  check(functions()->primitive_attr_create(&made), "attributes");
  Owned<dnnl_primitive_attr> out(made);
  const int dimensions = grouped ? 0b11 : 0b1;
  check(functions()->primitive_attr_set_scales_mask(made, DNNL_ARG_FROM, dimensions), "scales");
  return out;
}

at::Tensor reordered(const at::Tensor& plain, const at::Tensor& scale,
                     const std::vector<int64_t>& sizes, const dnnl_memory_desc* to) {
  const bool grouped = sizes.size() == 5;
  const Desc from = describe(sizes, grouped ? dnnl_abcde : dnnl_abcd);
  const auto bytes = static_cast<int64_t>(functions()->memory_desc_get_size(to));
  const PoolPause ownMemory;
  at::Tensor out = at::empty({bytes}, at::kByte);
  const auto attr = scaling(scale, grouped);
  dnnl_primitive_desc_t desc = nullptr;
  check(functions()->reorder_primitive_desc_create(&desc, from.get(), onednn::engine(), to,
                                                   onednn::engine(), attr.get()),
        "reorder");
  const Owned<dnnl_primitive_desc> owned(desc);
  const auto reorder = primitiveOf(desc);
  const auto source = memoryOf(from.get(), address(plain));
  const auto target = memoryOf(to, address(out));
  Owned<dnnl_memory> factors;
  if (attr) {
    const Desc vector = describe({scale.numel()}, dnnl_a);
    factors = memoryOf(vector.get(), address(scale));
  }
  const dnnl_exec_arg_t arguments[] = {{DNNL_ARG_FROM, source.get()},
                                       {DNNL_ARG_TO, target.get()},
                                       {DNNL_ARG_ATTR_SCALES | DNNL_ARG_FROM, factors.get()}};
  check(functions()->primitive_execute(reorder.get(), onednn::stream(), attr ? 3 : 2, arguments),
        "reorder");
  return out;
}

}  // namespace

// Memory objects hold addresses, so each call in flight has some of its own.
struct ConvolutionPrimitive::Made {
  struct Arguments {
    Owned<dnnl_memory> x, weight, bias, other, result, scratchpad;
  };

  int threads = 0;
  Owned<dnnl_primitive_desc> desc;
  Owned<dnnl_primitive> primitive;
  size_t scratchBytes = 0;
  mutable std::atomic<Arguments*> idle{nullptr};

  Made() = default;
  Made(const Made&) = delete;
  Made& operator=(const Made&) = delete;
  ~Made() { delete idle.load(); }

  const dnnl_memory_desc* query(dnnl_query_t what, int index = 0) const {
    return functions()->primitive_desc_query_md(desc.get(), what, index);
  }
  std::unique_ptr<Arguments> take(const ConvolutionPacking& how) const {
    if (Arguments* found = idle.exchange(nullptr)) return std::unique_ptr<Arguments>(found);
    auto made = std::make_unique<Arguments>();
    made->x = memoryOf(query(dnnl_query_src_md), nullptr);
    made->weight = memoryOf(query(dnnl_query_weights_md), nullptr);
    if (how.biased) made->bias = memoryOf(query(dnnl_query_weights_md, 1), nullptr);
    if (how.adds) made->other = memoryOf(query(dnnl_query_dst_md), nullptr);
    made->result = memoryOf(query(dnnl_query_dst_md), nullptr);
    if (scratchBytes > 0) made->scratchpad = memoryOf(query(dnnl_query_scratchpad_md), nullptr);
    return made;
  }
  void giveBack(std::unique_ptr<Arguments> used) const { delete idle.exchange(used.release()); }
};

ConvolutionPrimitive::ConvolutionPrimitive(const at::Tensor& weight, const at::Tensor& scale,
                                           at::Tensor bias, const ConvolutionPacking& how)
    : how_(how), weightSizes_(weight.sizes().vec()), bias_(std::move(bias)) {
  if (how.groups > 1) {
    weightSizes_[0] /= how.groups;
    weightSizes_.insert(weightSizes_.begin(), how.groups);
  }
  const Desc any = describe(weightSizes_, dnnl_format_tag_any);
  auto made = make(any.get());
  weight_ = reordered(weight, scale, weightSizes_, made->query(dnnl_query_weights_md));
  made_.store(std::make_shared<const AllMade>(AllMade{std::move(made)}));
}
ConvolutionPrimitive::~ConvolutionPrimitive() = default;

std::shared_ptr<const ConvolutionPrimitive::Made> ConvolutionPrimitive::make(
    dnnl_memory_desc* weight) const {
  std::vector<int64_t> sizes = weightSizes_;
  if (sizes.size() == 5) {
    sizes.erase(sizes.begin());
    sizes[0] *= how_.groups;
  }
  const Desc x = describe(how_.inputSizes, dnnl_acdb);
  const Desc result = describe(resultSizes(how_, sizes), dnnl_acdb);
  const Desc bias = how_.biased ? describe({sizes[0]}, dnnl_a) : Desc();
  const auto attr = attributes(how_, result);
  const std::vector<int64_t> between{how_.dilation[0] - 1, how_.dilation[1] - 1};
  auto out = std::make_shared<Made>();
  out->threads = at::get_num_threads();
  dnnl_primitive_desc_t desc = nullptr;
  check(functions()->convolution_forward_primitive_desc_create(
            &desc, onednn::engine(), dnnl_forward_inference, dnnl_convolution_direct, x.get(),
            weight, bias.get(), result.get(), how_.stride.data(), between.data(),
            how_.padding.data(), behind(how_).data(), attr.get()),
        "convolution");
  out->desc.reset(desc);
  out->primitive = primitiveOf(desc);
  const dnnl_memory_desc* scratchpad = out->query(dnnl_query_scratchpad_md);
  out->scratchBytes = scratchpad ? functions()->memory_desc_get_size(scratchpad) : 0;
  return out;
}

// A primitive runs on as many threads as there were when it was made.
std::shared_ptr<const ConvolutionPrimitive::Made> ConvolutionPrimitive::current() const {
  const auto all = made_.load();
  const int threads = at::get_num_threads();
  for (const auto& made : *all) {
    if (C10_LIKELY(made->threads == threads)) return made;
  }
  dnnl_memory_desc_t packed = nullptr;
  check(functions()->memory_desc_clone(&packed, all->front()->query(dnnl_query_weights_md)),
        "weight");
  const Desc weight(packed);
  std::shared_ptr<const Made> other = make(weight.get());
  AllMade more = *all;
  if (more.size() == kMostThreadCounts) more.erase(more.begin());
  more.push_back(other);
  made_.store(std::make_shared<const AllMade>(std::move(more)));
  return other;
}

void ConvolutionPrimitive::run(const void* x, const void* other, const void* bias,
                               void* result) const {
  const auto made = current();
  auto with = made->take(how_);
  const at::DataPtr scratch =
      made->scratchBytes > 0 ? c10::GetCPUAllocator()->allocate(made->scratchBytes) : at::DataPtr();
  std::array<dnnl_exec_arg_t, 6> arguments;
  int count = 0;
  const auto put = [&](int name, const Owned<dnnl_memory>& memory, const void* data) {
    if (!memory) return;
    check(functions()->memory_set_data_handle(memory.get(), const_cast<void*>(data)), "address");
    arguments[static_cast<size_t>(count++)] = {name, memory.get()};
  };
  put(DNNL_ARG_SRC, with->x, x);
  put(DNNL_ARG_WEIGHTS, with->weight, weight_.const_data_ptr());
  put(DNNL_ARG_BIAS, with->bias, bias_.defined() ? bias_.const_data_ptr() : bias);
  put(DNNL_ARG_ATTR_MULTIPLE_POST_OP(0) | DNNL_ARG_SRC_1, with->other, other);
  put(DNNL_ARG_DST, with->result, result);
  put(DNNL_ARG_SCRATCHPAD, with->scratchpad, scratch.get());
  check(functions()->primitive_execute(made->primitive.get(), onednn::stream(), count,
                                       arguments.data()),
        "convolution");
  made->giveBack(std::move(with));
}

}  // namespace glowplug::aten
