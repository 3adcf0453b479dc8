#include "codegen_support.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <map>

#include "codegen/compiler.h"
#include "codegen/session.h"
#include "common/check.h"
#include "lower/affine.h"
#include "lower/cost.h"
#include "lower/interpreter.h"
#include "lower/lanes.h"
#include "lower/parser.h"
#include "lower/printer.h"
#include "lower/tables.h"
#include "lower/verifier.h"

namespace glowplug::codegen::testing {

using lower::DType;
using lower::Kernel;
using lower::Number;
using lower::Role;
using lower::Statement;
using lower::StatementKind;

namespace {

// Pages whose end is followed, and whose begin is preceded, by one without any access rights.
class GuardedBytes {
 public:
  explicit GuardedBytes(const Bytes& bytes) : size_(bytes.size()) {
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    whole_ = (size_ + page - 1) / page * page + 2 * page;
    void* made = mmap(nullptr, whole_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    GP_CHECK(made != MAP_FAILED, "mmap");
    start_ = static_cast<char*>(made);
    GP_CHECK(mprotect(start_ + page, whole_ - 2 * page, PROT_READ | PROT_WRITE) == 0, "mprotect");
    data_ = start_ + whole_ - page - size_;
    if (size_ > 0) std::memcpy(data_, bytes.data(), size_);
  }
  ~GuardedBytes() { munmap(start_, whole_); }
  GuardedBytes(const GuardedBytes&) = delete;
  GuardedBytes& operator=(const GuardedBytes&) = delete;

  char* data() const { return data_; }
  Bytes copy() const { return {data_, data_ + size_}; }

 private:
  size_t size_;
  size_t whole_;
  char* start_;
  char* data_;
};

class Lengths {
 public:
  Lengths(const Kernel& kernel, const std::vector<int64_t>& sizes)
      : sizes_(sizes),
        last_(lower::loopCount(kernel), 0),
        lastOfValue_(lower::valueCount(kernel), 0),
        lengths_(kernel.buffers.size(), 0) {
    for (const lower::Nest& nest : kernel.nests) {
      for (const lower::ParallelLoop& loop : nest.loops) note(loop.loop, loop.extent);
      block(nest.body);
    }
  }

  std::vector<int64_t> lengths_of() const { return lengths_; }

 private:
  void note(lower::LoopId loop, const lower::Affine& extent) {
    last_[loop.index()] = std::max<int64_t>(lower::evaluate(extent, sizes_.data()) - 1, 0);
  }
  int64_t most(const lower::Affine& a) const {
    int64_t sum = a.constant;
    for (const lower::Term& term : a.terms) {
      int64_t product = term.factor;
      for (const lower::SizeId size : term.sizes) product *= sizes_[size.index()];
      if (term.loop.valid()) product *= last_[term.loop.index()];
      if (term.value.valid()) product *= lastOfValue_[term.value.index()];
      sum += std::max<int64_t>(product, 0);
    }
    return sum;
  }
  void block(const std::vector<Statement>& body) {
    for (const Statement& s : body) {
      if (s.kind == StatementKind::Loop) note(s.loop, s.extent);
      if (s.kind == StatementKind::Check || s.kind == StatementKind::Index) {
        lastOfValue_[s.result.index()] = s.kind == StatementKind::Index
                                             ? most(s.index)
                                             : lower::evaluate(s.index, sizes_.data()) - 1;
      }
      if (s.kind == StatementKind::Load || s.kind == StatementKind::Store) {
        int64_t& length = lengths_[s.buffer.index()];
        length = std::max(length, most(s.index) + 1);
      }
      block(s.body);
    }
  }

  const std::vector<int64_t>& sizes_;
  std::vector<int64_t> last_;
  std::vector<int64_t> lastOfValue_;
  std::vector<int64_t> lengths_;
};

double specialReal(DType dtype, Random& random) {
  const bool isDouble = dtype == DType::F64;
  const double inf = std::numeric_limits<double>::infinity();
  const double denormal = isDouble               ? 0x1p-1074
                          : dtype == DType::F16  ? 0x1p-24
                          : dtype == DType::BF16 ? 0x1p-133
                                                 : 0x1p-149;
  const double most = isDouble ? std::numeric_limits<double>::max()
                      : dtype == DType::F16
                          ? 65504.0
                          : static_cast<double>(std::numeric_limits<float>::max());
  const double list[] = {0.0,   -0.0,         1.0,          -1.0,     0.5,           -2.5,
                         inf,   -inf,         std::nan(""), denormal, -denormal * 3, most,
                         -most, 2147483648.0, -129.75,      255.5,    1e-5};
  return list[random() % std::size(list)];
}

int64_t specialInteger(Random& random) {
  const int64_t list[] = {0,
                          1,
                          -1,
                          2,
                          127,
                          128,
                          -128,
                          255,
                          256,
                          32767,
                          -32768,
                          65535,
                          65536,
                          2147483647,
                          -2147483648,
                          std::numeric_limits<int64_t>::max(),
                          std::numeric_limits<int64_t>::min()};
  return list[random() % std::size(list)];
}

// One text is often run with several inputs.
std::shared_ptr<const LoadedCode> load(const Kernel& kernel, const Target& target) {
  static std::map<std::string, std::unique_ptr<Compiler>> compilers;
  static std::map<std::string, std::shared_ptr<const LoadedCode>> made;
  std::shared_ptr<const LoadedCode>& code = made[target.name + lower::print(kernel)];
  if (code) return code;
  std::unique_ptr<Compiler>& compiler = compilers[target.name];
  if (!compiler) compiler = std::make_unique<Compiler>(target);
  std::string problem;
  const auto loaded = Session::shared().load(compiler->object({&kernel}), problem);
  GP_CHECK(loaded, problem);
  if (made.size() > 16) made.clear();
  return made[target.name + lower::print(kernel)] = loaded;
}

void runNest(lower::NestFunction function, const lower::KernelArguments& arguments, int64_t items,
             void* scratch, Random* pieces) {
  if (pieces == nullptr) return function(&arguments, 0, items, scratch);
  std::vector<std::pair<int64_t, int64_t>> ranges;
  for (int64_t begin = 0; begin < items;) {
    const int64_t most = (*pieces)() % 2 == 0 ? 5 : items;
    const int64_t end = std::min(items, begin + 1 + static_cast<int64_t>((*pieces)() % most));
    ranges.emplace_back(begin, end);
    begin = end;
  }
  std::shuffle(ranges.begin(), ranges.end(), *pieces);
  for (const auto& [begin, end] : ranges) function(&arguments, begin, end, scratch);
}

// Distance in units of the last place.
template <class Float, class Bits>
int64_t ulpsBetween(double a, double b) {
  const auto place = [](double value) {
    const auto bits = std::bit_cast<Bits>(static_cast<Float>(value));
    return bits < 0 ? std::numeric_limits<Bits>::min() - bits : bits;
  };
  const auto distance = static_cast<__int128>(place(a)) - static_cast<__int128>(place(b));
  const auto size = distance < 0 ? -distance : distance;
  return static_cast<int64_t>(std::min<__int128>(size, std::numeric_limits<int64_t>::max()));
}

bool near(DType dtype, double a, double b, Tolerance tolerance) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  if (a == b && std::signbit(a) == std::signbit(b)) return true;
  if (tolerance.relative > 0 &&
      std::fabs(a - b) <= tolerance.relative * std::max(1.0, std::fabs(a))) {
    return true;
  }
  const int64_t ulps =
      dtype == DType::F64 ? ulpsBetween<double, int64_t>(a, b) : ulpsBetween<float, int32_t>(a, b);
  // A unit of a 16-bit dtype is 2^16 (bf16) or 2^13 (f16) of f32's.
  const int64_t unit = dtype == DType::BF16 ? 1 << 16 : dtype == DType::F16 ? 1 << 13 : 1;
  return ulps <= tolerance.ulps * unit && tolerance.ulps > 0;
}

}  // namespace

Kernel kernelOf(std::string_view text) {
  const lower::Parsed parsed = lower::parse(text);
  EXPECT_FALSE(parsed.error) << parsed.error->text();
  if (parsed.error) return {};
  const std::vector<std::string> messages = lower::verify(parsed.kernel);
  EXPECT_TRUE(messages.empty()) << fmt::format("{}", fmt::join(messages, "\n"));
  return messages.empty() ? parsed.kernel : Kernel{};
}

std::vector<int64_t> neededLengths(const Kernel& kernel, const std::vector<int64_t>& sizes) {
  return Lengths(kernel, sizes).lengths_of();
}

Number randomNumber(DType dtype, Random& random) {
  const bool special = random() % 4 == 0;
  Number value{};
  if (lower::isReal(dtype)) {
    std::normal_distribution<double> normal;
    value.real = special ? specialReal(dtype, random) : normal(random) * 3;
  } else if (special) {
    value.integer = specialInteger(random);
  } else {
    value.integer = static_cast<int64_t>(random() % 41) - 20;
  }
  return lower::fit(dtype, value);
}

Bytes randomBytes(DType dtype, int64_t count, Random& random) {
  const auto bytes = static_cast<size_t>(lower::bytesOf(dtype));
  Bytes out(static_cast<size_t>(count) * bytes);
  for (size_t i = 0; i < out.size(); i += bytes) {
    lower::writeNumber(dtype, out.data() + i, randomNumber(dtype, random));
  }
  return out;
}

Input randomInput(const Kernel& kernel, std::vector<int64_t> sizes, Random& random) {
  Input input{std::move(sizes), {}, {}};
  for (const lower::Scalar& scalar : kernel.scalars) {
    input.scalars.push_back(randomNumber(scalar.dtype, random));
  }
  const std::vector<int64_t> lengths = neededLengths(kernel, input.sizes);
  for (size_t i = 0; i < kernel.buffers.size(); ++i) {
    const lower::Buffer& buffer = kernel.buffers[i];
    const bool local = buffer.role == Role::Local;
    input.buffers.push_back(local ? Bytes() : randomBytes(buffer.dtype, lengths[i], random));
  }
  return input;
}

Outcome interpreted(const Kernel& kernel, const Input& input) {
  Outcome out{input.buffers, {}};
  std::vector<void*> pointers;
  std::vector<int64_t> lengths;
  for (size_t i = 0; i < out.buffers.size(); ++i) {
    pointers.push_back(out.buffers[i].data());
    lengths.push_back(static_cast<int64_t>(out.buffers[i].size()) /
                      lower::bytesOf(kernel.buffers[i].dtype));
  }
  lower::interpret(kernel, {pointers.data(), input.sizes.data(), input.scalars.data(), &out.error},
                   lengths);
  return out;
}

Outcome compiled(const Kernel& kernel, const Input& input, const Target& target, Random* pieces) {
  const auto code = load(kernel, target);
  std::vector<std::unique_ptr<GuardedBytes>> memory;
  std::vector<void*> pointers;
  for (const Bytes& bytes : input.buffers) {
    memory.push_back(std::make_unique<GuardedBytes>(bytes));
    pointers.push_back(memory.back()->data());
  }
  const int64_t* sizes = input.sizes.data();
  const GuardedBytes scratch(Bytes(static_cast<size_t>(lower::localBytes(kernel, sizes)), 'x'));
  Outcome out;
  const lower::KernelArguments arguments{pointers.data(), sizes, input.scalars.data(), &out.error};
  for (size_t nest = 0; nest < kernel.nests.size(); ++nest) {
    const lower::NestFunction function = code->function(kernel, nest);
    GP_CHECK(function != nullptr, kernel.name);
    const int64_t items = lower::costOf(kernel, kernel.nests[nest], sizes).items;
    runNest(function, arguments, items, scratch.data(), pieces);
  }
  for (const auto& bytes : memory) out.buffers.push_back(bytes->copy());
  return out;
}

std::string difference(const Kernel& kernel, const Outcome& wanted, const Outcome& given,
                       Tolerance tolerance) {
  if ((wanted.error.kind != 0) != (given.error.kind != 0)) {
    return fmt::format("error {} instead of {}", given.error.kind, wanted.error.kind);
  }
  if (wanted.error.kind != 0) return {};
  for (size_t i = 0; i < kernel.buffers.size(); ++i) {
    const lower::Buffer& buffer = kernel.buffers[i];
    const auto bytes = static_cast<size_t>(lower::bytesOf(buffer.dtype));
    for (size_t at = 0; at < wanted.buffers[i].size(); at += bytes) {
      const Number a = lower::readNumber(buffer.dtype, wanted.buffers[i].data() + at);
      const Number b = lower::readNumber(buffer.dtype, given.buffers[i].data() + at);
      const bool real = lower::isReal(buffer.dtype);
      if (real ? near(buffer.dtype, a.real, b.real, tolerance) : a.integer == b.integer) continue;
      return real ? fmt::format("{}[{}]: {} instead of {}", buffer.name, at / bytes, b.real, a.real)
                  : fmt::format("{}[{}]: {} instead of {}", buffer.name, at / bytes, b.integer,
                                a.integer);
    }
  }
  return {};
}

std::vector<Target> targetsHere() {
  std::vector<Target> out;
  for (const Target& target : Target::all()) {
    if (target.runsHere()) out.push_back(target);
  }
  return out;
}

void expectSame(const Kernel& kernel, const Input& input, Tolerance tolerance, Tolerance inPieces) {
  const Outcome wanted = interpreted(kernel, input);
  for (const Target& target : targetsHere()) {
    const Outcome whole = compiled(kernel, input, target);
    const std::string problem = difference(kernel, wanted, whole, tolerance);
    EXPECT_EQ(problem, "") << target.name << "\n" << lower::print(kernel);
    Random pieces(7);
    const Outcome parts = compiled(kernel, input, target, &pieces);
    EXPECT_EQ(difference(kernel, whole, parts, inPieces), "")
        << "in pieces, " << target.name << "\n"
        << lower::print(kernel);
  }
}

void expectSame(std::string_view text, const std::vector<int64_t>& sizes, Tolerance tolerance,
                uint64_t seed) {
  const Kernel kernel = kernelOf(text);
  if (kernel.name.empty()) return;
  Random random(seed);
  expectSame(kernel, randomInput(kernel, sizes, random), tolerance);
}

}  // namespace glowplug::codegen::testing
