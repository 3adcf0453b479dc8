#include "aten/rng_state.h"

#include <mutex>

#include "aten/torch.h"

namespace glowplug::aten {

namespace {

at::Tensor state() {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  std::scoped_lock lock(generator.mutex());
  return generator.get_state();
}

void setState(const at::Tensor& state) {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  std::scoped_lock lock(generator.mutex());
  generator.set_state(state);
}

void seed(int64_t number) {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  std::scoped_lock lock(generator.mutex());
  generator.set_current_seed(static_cast<uint64_t>(number));
}

// Calls an operator of ours as a program would, with errors as torch's bindings give them.
bool call(const char* name, torch::jit::Stack& stack) {
  try {
    c10::Dispatcher::singleton().findSchemaOrThrow(name, "").callBoxed(&stack);
    return true;
  } catch (const std::exception&) {
    torch::translate_exception_to_python(std::current_exception());
    return false;
  }
}

}  // namespace

bool isDefaultGenerator(PyObject* object) {
  return THPGenerator_Check(object) &&
         reinterpret_cast<THPGenerator*>(object)->cdata == at::detail::getDefaultCPUGenerator();
}

PyObject* readRngState() {
  torch::jit::Stack stack;
  if (!call("glowplug::rng_state", stack)) return nullptr;
  return THPVariable_Wrap(stack.back().toTensor());
}

bool canSetState(PyObject* state) {
  if (!THPVariable_Check(state)) return false;
  const at::Tensor& tensor = THPVariable_Unpack(state);
  return tensor.is_cpu() && tensor.scalar_type() == at::kByte && tensor.layout() == at::kStrided;
}

PyObject* setRngState(PyObject* generator, PyObject* state) {
  torch::jit::Stack stack{THPVariable_Unpack(state)};
  return call("glowplug::set_rng_state", stack) ? Py_NewRef(generator) : nullptr;
}

PyObject* seedRng(PyObject* generator, PyObject* seed) {
  int overflow = 0;
  torch::jit::Stack stack{
      c10::IValue(static_cast<int64_t>(PyLong_AsLongLongAndOverflow(seed, &overflow)))};
  if (overflow != 0) {
    PyErr_SetString(PyExc_OverflowError, "a seed of more than 63 bits");
    return nullptr;
  }
  return call("glowplug::seed", stack) ? Py_NewRef(generator) : nullptr;
}

TORCH_LIBRARY_FRAGMENT(glowplug, library) {
  library.def("rng_state() -> Tensor", &state);
  library.def("set_rng_state(Tensor state) -> ()", &setState);
  library.def("seed(int seed) -> ()", &seed);
}

}  // namespace glowplug::aten
