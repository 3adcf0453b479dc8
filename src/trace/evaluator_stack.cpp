#include "trace/evaluator_stack.h"

#include <pthread.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

namespace glowplug::trace {

namespace {

constexpr size_t kFurtherStack = size_t{64} << 20;  // taken page by page as it is used
constexpr size_t kReserve = size_t{1} << 20;        // what operators and C libraries may need

// Memory for one stack, with a page below it that may not be touched.
class Stack {
 public:
  Stack() = default;
  Stack(Stack&& other) noexcept : memory_(std::exchange(other.memory_, nullptr)) {}
  Stack& operator=(Stack&& other) noexcept {
    std::swap(memory_, other.memory_);
    return *this;
  }
  ~Stack() {
    if (memory_) munmap(memory_, kFurtherStack);
  }

  static Stack make() {
    Stack stack;
    void* memory = mmap(nullptr, kFurtherStack, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (memory == MAP_FAILED) return stack;
    mprotect(memory, guardSize(), PROT_NONE);
    stack.memory_ = static_cast<char*>(memory);
    return stack;
  }

  explicit operator bool() const { return memory_ != nullptr; }
  char* bottom() const { return memory_ + guardSize(); }
  size_t size() const { return kFurtherStack - guardSize(); }

 private:
  static size_t guardSize() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }

  char* memory_ = nullptr;
};

struct Call {
  void (*function)(void*);
  void* argument;
  ucontext_t caller;
#if defined(__SANITIZE_ADDRESS__)
  const void* callerBottom = nullptr;
  size_t callerSize = 0;
#endif
};

struct ThreadStack {
  uintptr_t limit = 0;  // below it the stack is low; 0: not known yet
  Stack spare;          // going in and out at the limit must not map memory each time
  Call* starting = nullptr;
};

thread_local ThreadStack threadStack;

uintptr_t limitOfThread() {
  pthread_attr_t attributes;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) return 1;
  void* bottom = nullptr;
  size_t size = 0;
  pthread_attr_getstack(&attributes, &bottom, &size);
  pthread_attr_destroy(&attributes);
  return reinterpret_cast<uintptr_t>(bottom) + std::min(kReserve, size / 4);
}

void start() {
  Call* call = threadStack.starting;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, &call->callerBottom, &call->callerSize);
#endif
  call->function(call->argument);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(nullptr, call->callerBottom, call->callerSize);
#endif
}

void switchTo(const Stack& stack, Call* call) {
  ucontext_t callee;
  getcontext(&callee);
  callee.uc_stack.ss_sp = stack.bottom();
  callee.uc_stack.ss_size = stack.size();
  callee.uc_link = &call->caller;
  makecontext(&callee, start, 0);
  threadStack.starting = call;
#if defined(__SANITIZE_ADDRESS__)
  void* fake = nullptr;
  __sanitizer_start_switch_fiber(&fake, stack.bottom(), stack.size());
#endif
  swapcontext(&call->caller, &callee);
  threadStack.starting = nullptr;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#endif
}

}  // namespace

bool stackIsLow() {
  uintptr_t& limit = threadStack.limit;
  if (limit == 0) [[unlikely]]
    limit = limitOfThread();
  return reinterpret_cast<uintptr_t>(__builtin_frame_address(0)) < limit;
}

void callOnFurtherStack(void (*function)(void*), void* argument) {
  Stack stack = threadStack.spare ? std::move(threadStack.spare) : Stack::make();
  if (!stack) {
    function(argument);
    return;
  }
  Call call{function, argument, {}};
  const uintptr_t outer =
      std::exchange(threadStack.limit, reinterpret_cast<uintptr_t>(stack.bottom()) + kReserve);
  switchTo(stack, &call);
  threadStack.limit = outer;
  threadStack.spare = std::move(stack);
}

}  // namespace glowplug::trace
