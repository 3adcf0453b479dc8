#pragma once

#include <Python.h>

#include <string>

namespace glowplug::trace {

// How a callable written in C is treated while recording.
enum class CalleeKind {
  Unknown,      // nothing is known of it
  Python,       // runs Python code that the evaluator sees
  Tensor,       // tensor operators: arguments are read deeply, operators arrive from the dispatcher
  TensorQuery,  // a function of a tensor's metadata
  TensorSizes,  // ... of its sizes
  TensorContiguous,  // an operator, or the tensor itself, by its sizes and strides
  TensorData,        // gives a tensor's data to Python
  TensorItem,        // ... as one number
  Pure,       // reads its arguments deeply, keeps and changes nothing; result constant or fresh
  Shallow,    // reads its arguments one level deep; what comes out is known, constant or fresh
  Construct,  // makes a fresh object that may hold its arguments
  AutocastClear,
  ContextGet,
  ContextSet,
  ContextReset,
  State,         // reads or sets torch's thread state, which the operator recorder watches
  LogOnly,       // output that the program cannot see
  Print,         // ... of texts that are made of its arguments
  Clock,         // a number from outside, new at each call
  Collect,       // the garbage collector: how much it found is not for the program
  Skipped,       // bookkeeping that means nothing at a replay: runs unseen while recording
  Unwrapped,     // a wrapper that only keeps torch.compile away: what it wraps is called
  CheckMethods,  // looks methods up on the class that it is given first
  Backward,      // torch's engine runs a backward pass
  Function,      // autograd.Function.apply
  Hook,          // hangs a function on a tensor for autograd to call, or takes it off
  RetainGrad,
  SavedHooks,  // sets or takes away default hooks for saved tensors
  Keeps,       // keeps what it is given, for autograd; changes nothing
  NodeName,    // the name of a node of autograd's graph, which its type decides
  NodeHook,    // hangs a function on a node
  Generator,   // reads or sets the state of a random generator
  Known,       // called again at each replay; keeps nothing, changes no object that has a model
  Length,
  Iter,
  Next,
  GetAttr,
  HasAttr,
  SetAttr,
  DelAttr,
  IsInstance,
  Identity,
  Reduce,  // gives an object's state, as its class has it copied and pickled
  GenericGetAttr,
  GenericSetAttr,
  GenericDelAttr,
  DictGet,
  DictContains,
  DictGetItem,
  DictRead,
  DictSetItem,
  DictDelItem,
  DictPop,
  DictWrite,
  DictSetDefault,
  ListRead,
  ListWrite,
  ListAppend,
  SetRead,
  SetWrite,
  DequeRead,
  DequeWrite,
  ListGetItem,
  ListSetItem,
  Forbidden,  // cannot be recorded
};

struct Callee {
  CalleeKind kind = CalleeKind::Unknown;
  bool absorbs = false;  // a method that takes over what its arguments hold, and not the arguments
};

// Looks up what the table names, which may run Python code: before the first recording, so that no
// recording sees it.
void prepareCallees();
// The model of a C callable (builtin function or method, method descriptor, slot wrapper or class).
Callee calleeModel(PyObject* callable);
// The slot wrapper behind a bound one ([].__len__), borrowed; nullptr when it cannot be found.
PyObject* unboundSlotWrapper(PyObject* wrapper);
// For messages: "torch._C._nn.linear", "list.append".
std::string calleeName(PyObject* callable);
// Python functions that are called for real at each replay instead of being looked into: logging,
// warnings, and functions under glowplug.disable.
CalleeKind pythonCalleeModel(PyObject* function);
// The callable belongs to a module whose functions keep nothing and change nothing but what they
// are given of their own classes (numpy, datetime, json...).
bool isKnownModule(PyObject* callable);

// Callables of that type only pass the call on to Python code (compiled functions met inside a
// recording).
void addTransparentCallable(PyTypeObject* type);
bool isTransparentCallable(PyTypeObject* type);

}  // namespace glowplug::trace
