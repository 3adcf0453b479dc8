// torch.autograd.Function.apply. Its forward is evaluated like any other function: its operators
// are part of the graph, what it reads is guarded. What torch does besides (it makes the node and
// gives the outputs their history) becomes one event, a call of aten::functionAttacher, which a
// replay makes with the outputs that its own operators have computed.
//
// When a replay is followed, its node is there already: the program's forward runs on a ctx that is
// let go of, and the outputs are those of the replay.

#include "aten/function_node.h"
#include "cpython/error_pause.h"
#include "trace/evaluator.h"
#include "trace/recorder.h"

namespace glowplug::trace {

using common::ValueId;
using cpython::Ref;

namespace {

Ref asTuple(PyObject* output) {
  return PyTuple_Check(output) ? Ref::borrow(output) : Ref::steal(PyTuple_Pack(1, output));
}

// Only its tensors mean something to autograd.
Ref tensorsOnly(PyObject* tuple) {
  Ref result = Ref::steal(PyTuple_New(PyTuple_GET_SIZE(tuple)));
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); i++) {
    PyObject* item = PyTuple_GET_ITEM(tuple, i);
    PyTuple_SET_ITEM(result.get(), i, Py_NewRef(aten::isTensor(item) ? item : Py_None));
  }
  return result;
}

bool holds(PyObject* tuple, PyObject* item) {
  for (Py_ssize_t i = 0; PyTuple_Check(tuple) && i < PyTuple_GET_SIZE(tuple); i++)
    if (PyTuple_GET_ITEM(tuple, i) == item) return true;
  return false;
}

}  // namespace

struct Recorder::FunctionRun final : aten::FunctionForward {
  FunctionRun(Recorder& recorder, PyObject* cls, PyObject* inputs)
      : FunctionForward(cls),
        recorder(recorder),
        inputs(inputs),
        inGraph(aten::wantsGradient(inputs)) {}

  PyObject* forward(PyObject* ctx, PyObject* passed) override {
    output = callForward(ctx, passed);
    if (!output || !recorder.active_) return output ? Py_NewRef(output.get()) : nullptr;
    describe(ctx);
    if (followed) {
      aten::clearContext(ctx);
      return PyTuple_New(0);
    }
    evaluation = std::make_unique<EvaluationPause>();
    operators = std::make_unique<aten::OpRecorder::Pause>();
    return Py_NewRef(output.get());
  }

  Ref callForward(PyObject* ctx, PyObject* passed) {
    static PyObject* forwardName = PyUnicode_InternFromString("forward");
    static PyObject* setupName = PyUnicode_InternFromString("setup_context");
    bool setsUp = aten::setsUpContext(cls());
    std::vector<PyObject*> args;
    if (!setsUp) args.push_back(ctx);
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(passed); i++)
      args.push_back(PyTuple_GET_ITEM(passed, i));
    Ref function = Ref::steal(recorder.loadAttr(cls(), forwardName));
    if (!function) return Ref();
    Ref result = Ref::steal(recorder.call(function.get(), args.data(), args.size(), nullptr));
    Ref setup = Ref::steal(result ? recorder.loadAttr(cls(), setupName) : nullptr);
    if (!setup || !setsUp) return setup ? std::move(result) : Ref();
    PyObject* given[] = {ctx, passed, result.get()};
    Ref done = Ref::steal(recorder.call(setup.get(), given, 3, nullptr));
    return done ? std::move(result) : Ref();
  }

  // An input that forward gives back as it is comes out as another tensor.
  bool isGiven(PyObject* item, PyObject* dirty) const {
    return aten::isTensor(item) && holds(inputs, item) && !holds(dirty, item);
  }

  void describe(PyObject* ctx) {
    described = true;
    aten::FunctionContext left = aten::readContext(ctx);
    if (!left.understood)
      return recorder.refuse("autograd_function", "its ctx was set up by torch's compiler");
    Ref outputs = asTuple(output.get());
    Ref given = Ref::steal(PyList_New(0));
    bool changes = inGraph || left.dirty != Py_None;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(outputs.get()); i++) {
      PyObject* item = PyTuple_GET_ITEM(outputs.get(), i);
      if (!aten::isTensor(item)) continue;
      changes |= aten::requiresGradient(item);
      if (!isGiven(item, left.dirty)) continue;
      changes = true;
      PyList_Append(given.get(), Ref::steal(PyLong_FromSsize_t(i)).get());
    }
    if (!changes) return;  // nothing but the values is left of it
    ir::Event event;
    event.kind = ir::EventKind::Opaque;
    event.keeps = true;
    event.pure = true;
    if (PyTuple_Check(left.dirty))
      for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(left.dirty); i++)
        noteDirty(event, PyTuple_GET_ITEM(left.dirty, i));
    Ref attributes = Ref::steal(PyObject_GenericGetDict(ctx, nullptr));
    attributes = Ref::steal(attributes ? PyDict_Copy(attributes.get()) : nullptr);
    Ref flags = Ref::steal(PyLong_FromLongLong(left.flags));
    Ref indices = Ref::steal(PyList_AsTuple(given.get()));
    if (!attributes || !flags || !indices) {
      PyErr_Clear();
      return recorder.refuse("internal_error", "the attributes of a ctx");
    }
    Ref args = tensorsOnly(inputs), made = tensorsOnly(outputs.get());
    recorder.describeKept(
        event,
        {aten::functionAttacher(), cls(), args.get(), made.get(), left.saved, left.savedForForward,
         left.dirty, left.notDifferentiable, flags.get(), attributes.get(), indices.get()});
    if (!recorder.active_) return;
    followed = recorder.follow_ && recorder.follow_->opaquePending();
    this->event = std::move(event);
    this->given = std::move(indices);
  }

  // Changes the history of what is dirty, which may be seen outside.
  void noteDirty(ir::Event& event, PyObject* item) {
    if (!aten::isTensor(item)) return;
    if (recorder.ops_->isExternal(item)) event.pure = false;
    if (aten::isView(item))
      recorder.refuse("autograd_function", "it writes to a view that is one of its inputs");
  }

  Recorder& recorder;
  PyObject* inputs;
  bool inGraph;
  Ref output;
  bool described = false, followed = false;
  std::optional<ir::Event> event;
  Ref given;  // indices of outputs that torch makes
  std::unique_ptr<EvaluationPause> evaluation;
  std::unique_ptr<aten::OpRecorder::Pause> operators;
};

// What the event keeps is from outside from here on.
void Recorder::describeKept(ir::Event& event, std::initializer_list<PyObject*> parts) {
  for (PyObject* part : parts)
    event.recipes.push_back(PyDict_CheckExact(part) ? dictRecipe(ir::RecipeKind::Dict, part, false)
                                                    : recipe(part));
  keptFresh_ |= escape();
}

PyObject* Recorder::callFunction(PyObject* callee, const Arguments& args, const Invoke& invoke) {
  PyObject* cls = PyCFunction_Check(callee) ? PyCFunction_GET_SELF(callee) : nullptr;
  if (!cls || !PyType_Check(cls)) return invoke();
  if (args.kwnames && PyTuple_GET_SIZE(args.kwnames)) return invoke();  // raises
  size_t first = args.count() && args.values[0] == cls ? 1 : 0;
  Ref inputs = Ref::steal(PyTuple_New(static_cast<Py_ssize_t>(args.count() - first)));
  for (size_t i = first; i < args.count(); i++)
    PyTuple_SET_ITEM(inputs.get(), static_cast<Py_ssize_t>(i - first), Py_NewRef(args.values[i]));
  if (aten::hasTangent(inputs.get()))
    return callOpaque(callee, args, invoke, OpaqueKind::Unknown, "autograd_function");
  FunctionRun run(*this, cls, inputs.get());
  Ref result = Ref::steal(aten::applyFunction(inputs.get(), run));
  run.operators.reset();
  run.evaluation.reset();
  if (!result) {
    if (run.described && !stopping_) {
      cpython::ErrorPause pause;
      refuse("call_raised", calleeName(cls) + ".apply");
    }
    return nullptr;
  }
  if (!active_ || !run.event) return result.release();
  ops_->syncState();
  if (run.followed) result = takeFunction(run);
  if (result) noteFunctionResult(run, result.get());
  return result.release();
}

// What the replay got from apply, in the form that the program expects.
Ref Recorder::takeFunction(const FunctionRun& run) {
  Ref taken = Ref::steal(follow_->takeOpaque());
  Py_ssize_t count = PyTuple_GET_SIZE(run.given.get());
  if (!taken) return Ref();
  bool expected = PyTuple_Check(taken.get()) ? PyTuple_GET_SIZE(taken.get()) == count : count == 0;
  if (!expected) {
    PyErr_SetString(PyExc_SystemError, "glowplug: another call was expected");
    return Ref();
  }
  Ref raw = asTuple(run.output.get());
  Ref outputs = Ref::steal(PySequence_List(raw.get()));
  for (Py_ssize_t i = 0; i < count; i++)
    PyList_SetItem(outputs.get(), PyLong_AsSsize_t(PyTuple_GET_ITEM(run.given.get(), i)),
                   Py_NewRef(PyTuple_GET_ITEM(taken.get(), i)));
  if (!PyTuple_Check(run.output.get())) return Ref::borrow(PyList_GET_ITEM(outputs.get(), 0));
  return Ref::steal(PyList_AsTuple(outputs.get()));
}

void Recorder::noteFunctionResult(FunctionRun& run, PyObject* result) {
  Ref outputs = asTuple(result), raw = asTuple(run.output.get());
  for (Py_ssize_t i = 0; active_ && i < PyTuple_GET_SIZE(outputs.get()); i++) {
    PyObject* item = PyTuple_GET_ITEM(outputs.get(), i);
    if (!aten::isTensor(item)) continue;
    Ref index = Ref::steal(PyLong_FromSsize_t(i));
    bool given = PySequence_Contains(run.given.get(), index.get()) == 1;
    ValueId value = ops_->addFunctionResult(item, PyTuple_GET_ITEM(raw.get(), i));
    if (given && active_) run.event->results.push_back(value);
    if (!given && item != PyTuple_GET_ITEM(raw.get(), i))
      refuse("autograd_function", "torch gave another tensor than its forward");
  }
  if (active_) emit(std::move(*run.event));
}

}  // namespace glowplug::trace
