#include "codegen/compiled_kernel.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>

#include "common/check.h"
#include "lower/cost.h"
#include "lower/parser.h"
#include "lower/verifier.h"

namespace glowplug::codegen {
namespace {

using lower::Kernel;

// A chunk should take about this long: well above what handing it to a thread costs, and short
// enough for threads to finish together.
constexpr double kChunkNanoseconds = 25'000;
constexpr double kBytesPerNanosecond = 10;
constexpr double kFlopsPerNanosecondAndLane = 1;

int64_t chunkOf(const lower::Nest& nest, const lower::Cost& cost, int lanes) {
  const double time = cost.bytesPerItem / kBytesPerNanosecond +
                      cost.flopsPerItem / (kFlopsPerNanosecondAndLane * lanes) + 0.1;
  const double wanted = std::clamp(kChunkNanoseconds / time, 1.0, 1e15);
  auto chunk = static_cast<int64_t>(wanted);
  // Whole groups of vectors, so that only the last chunk has a tail.
  const int64_t group = nest.vector ? int64_t{4} * lanes : 1;
  chunk = (chunk + group - 1) / group * group;
  return chunk;
}

// Scratch memory of a thread, kept from call to call while it is not large.
class Scratch {
 public:
  Scratch() = default;
  ~Scratch() { release(); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  void* atLeast(int64_t bytes) {
    if (bytes > size_) {
      release();
      memory_ = ::operator new(static_cast<size_t>(bytes), std::align_val_t(64));
      size_ = bytes;
    }
    return memory_;
  }
  void shrink() {
    if (size_ > kKept) release();
  }

 private:
  static constexpr int64_t kKept = 1 << 20;

  void release() {
    if (memory_ != nullptr) ::operator delete(memory_, std::align_val_t(64));
    memory_ = nullptr;
    size_ = 0;
  }

  void* memory_ = nullptr;
  int64_t size_ = 0;
};

struct Work {
  const lower::KernelArguments* arguments;
  const NestLaunch* nest;
  int64_t scratchBytes;
};

void runChunks(void* context, int64_t begin, int64_t end) {
  const Work& work = *static_cast<const Work*>(context);
  thread_local Scratch scratch;
  void* memory = work.scratchBytes > 0 ? scratch.atLeast(work.scratchBytes) : nullptr;
  for (int64_t i = begin; i < end; ++i) {
    const int64_t first = i * work.nest->chunk;
    const int64_t last = std::min(first + work.nest->chunk, work.nest->items);
    work.nest->function(work.arguments, first, last, memory);
  }
  scratch.shrink();
}

}  // namespace

CompiledKernel::CompiledKernel(Kernel kernel, int lanes, std::shared_ptr<const LoadedCode> code)
    : kernel_(std::move(kernel)), lanes_(lanes), code_(std::move(code)) {
  for (size_t nest = 0; nest < kernel_.nests.size(); ++nest) {
    functions_.push_back(code_->function(kernel_, nest));
  }
}

std::vector<std::shared_ptr<const CompiledKernel>> CompiledKernel::load(std::vector<Kernel> kernels,
                                                                        const Target& target,
                                                                        const std::string& object,
                                                                        std::string& problem) {
  const std::shared_ptr<const LoadedCode> code = Session::shared().load(object, problem);
  if (!code) return {};
  std::vector<std::shared_ptr<const CompiledKernel>> out;
  for (Kernel& kernel : kernels) {
    std::shared_ptr<const CompiledKernel> made(
        new CompiledKernel(std::move(kernel), target.lanes, code));
    const auto& functions = made->functions_;
    if (std::find(functions.begin(), functions.end(), nullptr) != functions.end()) {
      problem = fmt::format("the object has no code of {}", made->kernel_.name);
      return {};
    }
    out.push_back(std::move(made));
  }
  return out;
}

std::vector<std::shared_ptr<const CompiledKernel>> CompiledKernel::compile(
    std::vector<Kernel> kernels, Compiler& compiler) {
  std::vector<const Kernel*> pointers;
  for (const Kernel& kernel : kernels) pointers.push_back(&kernel);
  const std::string object = compiler.object(pointers);
  std::string problem;
  auto out = load(std::move(kernels), compiler.target(), object, problem);
  GP_CHECK(problem.empty(), problem);
  return out;
}

std::shared_ptr<const CompiledKernel> CompiledKernel::compile(std::string_view text,
                                                              Compiler& compiler) {
  const lower::Parsed parsed = lower::parse(text);
  GP_CHECK(!parsed.error, parsed.error->text());
  const std::vector<std::string> messages = lower::verify(parsed.kernel);
  GP_CHECK(messages.empty(), fmt::format("{}", fmt::join(messages, "\n")));
  return compile({parsed.kernel}, compiler)[0];
}

Launch CompiledKernel::launchFor(std::vector<int64_t> sizes) const {
  GP_CHECK(sizes.size() == kernel_.sizes.size(),
           fmt::format("{} takes {} sizes", kernel_.name, kernel_.sizes.size()));
  Launch launch;
  for (size_t i = 0; i < kernel_.nests.size(); ++i) {
    const lower::Cost cost = lower::costOf(kernel_, kernel_.nests[i], sizes.data());
    launch.nests.push_back({functions_[i], cost.items, chunkOf(kernel_.nests[i], cost, lanes_)});
  }
  launch.scratchBytes = lower::localBytes(kernel_, sizes.data());
  launch.sizes = std::move(sizes);
  return launch;
}

lower::KernelError CompiledKernel::run(const Launch& launch, void* const* buffers,
                                       const lower::Number* scalars,
                                       const Parallel* parallel) const {
  lower::KernelError error;
  const lower::KernelArguments arguments{buffers, launch.sizes.data(), scalars, &error};
  for (const NestLaunch& nest : launch.nests) {
    const int64_t chunks = nest.chunks();
    Work work{&arguments, &nest, launch.scratchBytes};
    if (parallel != nullptr && chunks > 1) {
      parallel->run(chunks, &runChunks, &work);
    } else if (chunks > 0) {
      runChunks(&work, 0, chunks);
    }
  }
  return error;
}

}  // namespace glowplug::codegen
