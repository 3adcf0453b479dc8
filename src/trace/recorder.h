#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "aten/op_recorder.h"
#include "common/reasons.h"
#include "cpython/undo_log.h"
#include "trace/callees.h"
#include "trace/evaluator.h"
#include "trace/follow.h"
#include "trace/foreign.h"
#include "trace/operations.h"
#include "trace/provenance.h"
#include "trace/recording.h"

// The recorder watches one real execution through the Operations door and through the dispatcher,
// and writes down what a replay needs: where each value came from, what was assumed about it, which
// operators ran, what was written.
//
// It keeps no shadow of Python values. An object is one of
//   constant  a literal, or an immutable value that a guard has pinned where it was loaded;
//   sourced   it existed before the call and was reached by an access path (Provenance knows it);
//   tensor    the operator recorder knows its TensorImpl;
//   fresh     none of these: made since the recording began.
// So what has to be right is: whatever reads from a sourced object goes through a method here that
// adds the guard and remembers the source of what came out. C functions that read in ways unknown
// to us make the recording refuse, never guess.
namespace glowplug::trace {

class Recorder final : public Operations, public aten::OpSink {
 public:
  struct Limits {
    size_t events = 100000;
    bool audit = false;  // refuse when an object from outside is met without a known source
    // Keep what the program changes, and stop it where the recording cannot go on.
    bool undoable = false;
  };

  Recorder(std::string name, Limits limits);
  ~Recorder() override;

  // Calls `callee` for real, recording. The result is the program's own (new reference, or nullptr
  // with its exception). Afterwards either refusal() says why there is no trace, or take() gives
  // it.
  PyObject* record(PyObject* callee, PyObject* const* args, size_t positional, PyObject* kwnames);
  // Before record(): the program is run again up to where that replay has stopped.
  void follow(Follow& replay) { follow_ = &replay; }
  const std::optional<common::Refusal>& refusal() const { return refusal_; }
  std::shared_ptr<Recording> take() { return std::move(recording_); }
  // Puts back what the program has changed, as far as it was seen: objects, tensors, torch's random
  // numbers; not files, output and the like. Only for Limits::undoable.
  void undo();
  // Segment-ending calls met while recording, with reasons (graph breaks).
  const std::vector<common::Refusal>& breaks() const { return breaks_; }

  // Operations
  void enterFrame(cpython::FrameView frame, bool resumed) override;
  void leaveFrame(cpython::FrameView frame, PyObject* result, bool yielded) override;
  void delegateFrame(cpython::FrameView frame) override;
  PyObject* loadGlobal(cpython::FrameView frame, PyObject* name) override;
  PyObject* loadName(cpython::FrameView frame, PyObject* name) override;
  int storeName(cpython::FrameView frame, PyObject* name, PyObject* value) override;
  int storeGlobal(cpython::FrameView frame, PyObject* name, PyObject* value) override;
  PyObject* loadCell(PyObject* cell) override;
  void storeCell(PyObject* cell, PyObject* value) override;
  PyObject* importName(cpython::FrameView frame, PyObject* name, PyObject* fromlist,
                       PyObject* level) override;
  PyObject* importFrom(PyObject* module, PyObject* name) override;
  PyObject* loadAttr(PyObject* object, PyObject* name) override;
  int loadMethod(PyObject* object, PyObject* name, PyObject** method) override;
  int storeAttr(PyObject* object, PyObject* name, PyObject* value) override;
  PyObject* loadItem(PyObject* container, PyObject* key) override;
  int storeItem(PyObject* container, PyObject* key, PyObject* value) override;
  PyObject* binary(int op, PyObject* left, PyObject* right) override;
  PyObject* compare(int op, PyObject* left, PyObject* right) override;
  PyObject* positive(PyObject* value) override;
  PyObject* negative(PyObject* value) override;
  PyObject* invert(PyObject* value) override;
  int truth(PyObject* value) override;
  bool is(PyObject* left, PyObject* right) override;
  int contains(PyObject* container, PyObject* item) override;
  PyObject* iter(PyObject* iterable) override;
  PyObject* next(PyObject* iterator) override;
  PySendResult send(PyObject* receiver, PyObject* value, PyObject** result) override;
  PyObject* yieldFromIter(PyObject* iterable, cpython::FrameView frame) override;
  int unpack(PyObject* iterable, int before, int after, PyObject** out) override;
  int listExtend(PyObject* list, PyObject* iterable) override;
  int setUpdate(PyObject* set, PyObject* iterable) override;
  int dictUpdate(PyObject* dict, PyObject* mapping) override;
  int dictMerge(PyObject* dict, PyObject* mapping, PyObject* callee) override;
  PyObject* formatValue(PyObject* value, int conversion, PyObject* spec) override;
  PyObject* buildString(PyObject* const* pieces, Py_ssize_t count) override;
  void usedAsKey(PyObject* key) override;
  PyObject* call(PyObject* callee, PyObject* const* args, size_t nargsf,
                 PyObject* kwnames) override;
  PyObject* callEx(PyObject* callee, PyObject* tuple, PyObject* dict) override;
  PyObject* sequenceToTuple(PyObject* iterable, PyObject* callee) override;
  PyObject* loadSpecial(PyObject* object, PyObject* name) override;
  void madeFunction(PyObject* function) override;
  PyObject* matchClass(PyObject* subject, PyObject* type, Py_ssize_t positional,
                       PyObject* names) override;
  PyObject* matchKeys(PyObject* mapping, PyObject* keys) override;
  PyObject* length(PyObject* value) override;

  // OpSink
  void onOp(ir::Event event) override;
  void onScalar(common::ValueId value, PyObject* scalar) override;
  void onRefuse(const char* reason, const std::string& detail) override;
  void enterOperator() override;
  void leaveOperator() override;

 private:
  // The arguments of a C call, positional first.
  struct Arguments {
    PyObject* const* values;
    size_t positional;
    PyObject* kwnames;
    size_t count() const { return positional + (kwnames ? PyTuple_GET_SIZE(kwnames) : 0); }
  };
  // An effect whose recipes are made at the end, when fresh objects have their final state.
  struct PendingEffect {
    size_t event = 0;
    std::vector<cpython::Ref> operands;
  };
  // Objects that have a recipe, by address. Fresh ones are held; the others Provenance holds.
  struct Described {
    std::unordered_map<PyObject*, common::RecipeId> ids;
    std::vector<cpython::Ref> fresh;
  };
  // Objects made in the call that calls have been given, with how often they are held.
  using Holds = std::vector<std::pair<PyObject*, Py_ssize_t>>;
  using Invoke = std::function<PyObject*()>;
  // What an opaque call may do (the flags of ir::Event).
  enum class OpaqueKind { Unknown, Known, Output, Keeps };

  // --- recorder.cpp: the door's lock
  bool active() const { return active_; }
  void refuse(const char* reason, std::string detail);
  common::Refusal refusal(const char* reason, std::string detail) const;
  struct SiteIdText {
    std::string file, function;
    int line = 0;
  };
  SiteIdText siteText() const;
  common::SiteId site();
  ir::Trace& trace() { return recording_->trace; }
  void emit(ir::Event event);
  void bindRoots(PyObject* callee, PyObject* const* args, size_t positional, PyObject* kwnames);
  void guardApart(PyObject* const* args, size_t count);
  void finish(PyObject* result);
  void findBreaks();

  // --- sources.cpp: sources and guards
  common::ObjectId objectId(PyObject* value);
  common::SourceId child(common::SourceId parent, ir::StepKind step, PyObject* key);
  common::SourceId child(common::SourceId parent, ir::StepKind step, int64_t index = 0);
  common::SourceId pinned(PyObject* object, Provenance::Life life = Provenance::Life::Recording);
  void guard(ir::PredicateKind kind, common::SourceId source, PyObject* object = nullptr);
  void guardLength(common::SourceId source, Py_ssize_t length);
  void guardOther(ir::PredicateKind kind, common::SourceId source, common::SourceId other);
  void addGuard(ir::Guard guard);
  void noteSame(common::SourceId source, common::SourceId known);
  void noteLoad(common::SourceId source, PyObject* value);
  void noteTensor(common::SourceId source, PyObject* tensor);
  void noteSecondInput(common::SourceId source, PyObject* tensor);
  common::SourceId sourceOf(PyObject* object);
  bool isSourced(PyObject* object) { return sourceOf(object).valid(); }
  void noteFunction(cpython::FrameView frame);
  void noteGlobal(PyObject* globals, PyObject* builtins, PyObject* name, PyObject* value);

  // --- audit.cpp: is every object from outside met through a known path?
  void startAudit();
  void auditArguments(cpython::FrameView frame);
  PyObject* audited(PyObject* result, const char* where, PyObject* what = nullptr);

  // --- attributes.cpp
  PyObject* typeAttr(PyTypeObject* type, PyObject* name);  // borrowed; guards the look-up
  common::SourceId readAttr(PyObject* object, PyObject* name);
  common::SourceId readGenericAttr(PyObject* object, common::SourceId source, PyObject* name);
  common::SourceId readTypeAttr(PyObject* type, PyObject* name);
  common::SourceId readSuperAttr(PyObject* super, PyObject* name);
  common::SourceId readInstanceDict(PyObject* object, common::SourceId source, PyObject* name,
                                    bool* found);
  PyObject* tensorAttr(PyObject* tensor, PyObject* name);
  int storeTensorAttr(PyObject* tensor, PyObject* name, PyObject* value);
  enum class AttrWrite { Direct, Evaluated, InC };
  AttrWrite attrWrite(PyTypeObject* type, PyObject* value);
  int storeForeignAttr(PyObject* object, PyObject* name, PyObject* value);
  bool beforeAttrWrite(PyObject* object, PyObject* name, PyObject* value);
  bool beforeClassWrite(PyObject* type, PyObject* name);
  void afterAttrWrite(PyObject* object, PyObject* name, PyObject* value);

  // --- containers.cpp: reads of and writes to containers that came from outside
  void readKey(PyObject* dict, PyObject* key);
  PyObject* behindProxy(PyObject* object);
  void readAll(PyObject* container);  // length or keys, and every item
  void readMember(PyObject* set, PyObject* item);
  void readLength(PyObject* container);
  void readItem(PyObject* container, PyObject* key);
  void deepRead(PyObject* object);  // everything a C function may look at
  void deepRead(PyObject* object, std::unordered_set<PyObject*>& seen);
  void readSnapshot(PyObject* container, Provenance::Written& written);
  void beforeWrite(PyObject* container);
  void wroteKey(PyObject* container, PyObject* key);
  bool pinKey(PyObject* key);
  void emitEffect(ir::EffectKind kind, std::initializer_list<PyObject*> operands);
  bool changedBefore(PyObject* container);
  PyObject* dictItem(PyObject* dict, PyObject* key, const Invoke& invoke);

  Provenance::Written* written(PyObject* container);
  bool isWritten(PyObject* container, PyObject* key);

  // --- scalars.cpp, and data-dependent sizes
  void useScalar(PyObject* value);  // its value matters from here on: a fork
  void trackScalar(PyObject* object, common::ValueId value);
  bool holdsScalar(PyObject* object) const;
  bool computesScalar(PyObject* const* operands, size_t count) const;
  PyObject* noteComputed(PyObject* callee, PyObject* const* operands, size_t count,
                         PyObject* kwnames, PyObject* given);
  PyObject* unaryScalar(const char* name, PyObject* value, PyObject* result);
  PyObject* callItem(const Invoke& invoke);
  void pinPending();
  void forkOn(common::ValueId value, PyObject* expected);
  void useSizes(PyObject* tensor);

  // --- opaque.cpp
  PyObject* callOpaque(PyObject* callee, const Arguments& args, const Invoke& invoke,
                       OpaqueKind kind, const char* reason);
  PyObject* callApart(const Invoke& invoke, bool* programRan);
  PyObject* callForeign(PyObject* function, std::initializer_list<PyObject*> operands);
  OpaqueKind foreignKind(PyObject* const* operands, size_t count) const;
  OpaqueKind opaqueKind(const Callee& model, PyObject* first) const;
  bool anyForeign(const Arguments& args) const;
  cpython::Ref noteResult(ir::Event event, cpython::Ref result);
  void noteOrigin(PyObject* callee, PyObject* result);
  bool refusesGarbage(common::ValueId value);
  void describeCall(ir::Event& event, PyObject* callee, const Arguments& args);
  Described describeApart(ir::Event& event, PyObject* callee, const Arguments& args);
  void handOver(Described given);
  bool takeBuilt();
  PyObject* noteRaised(PyObject* callee, const Arguments& args);
  void mayHaveChangedAnything();
  std::vector<std::pair<PyObject*, common::RecipeId>> madeIn(const Described& described) const;
  PyObject* callPrint(PyObject* callee, const Arguments& args, const Invoke& invoke);
  bool passesTensors(const ir::Event& event, PyObject* callee, const Arguments& args) const;
  bool escape();  // whether there was any such object

  // --- lifetimes.cpp
  Provenance::Life lifeAt(common::SourceId source) const;
  Holds holdsOnBuilt(const Described& given) const;
  void noteKept(const Holds& before);
  void endResults();
  class EndSearch;
  void endOperands();
  // Before something is read that a finalizer may have written.
  void endBefore() {
    constexpr size_t kMost = 256;
    if (active_ && !effectOperands_.empty() && effectOperands_.size() <= kMost) endOperands();
  }
  void letResultsGo();  // after a refusal

  // --- function_calls.cpp, hooks.cpp
  struct FunctionRun;
  PyObject* callFunction(PyObject* callee, const Arguments& args, const Invoke& invoke);
  void describeKept(ir::Event& event, std::initializer_list<PyObject*> parts);
  cpython::Ref takeFunction(const FunctionRun& run);
  void noteFunctionResult(FunctionRun& run, PyObject* result);
  PyObject* callHook(PyObject* callee, const Arguments& args, const Invoke& invoke);
  PyObject* callSavedHooks(PyObject* callee, const Arguments& args, const Invoke& invoke);
  PyObject* callGenerator(PyObject* callee, const Arguments& args, const Invoke& invoke);
  PyObject* readGradFn(PyObject* tensor, common::SourceId source, PyObject* name);
  PyObject* callRetainGrad(const Arguments& args, const Invoke& invoke);

  // --- handed_callables.cpp
  void noteHanded(PyObject* callee, const Arguments& args);
  void readHanded(PyObject* callable);

  // --- calls.cpp, call_models.cpp
  PyObject* callAfterRefusal(const Invoke& invoke);
  void stop();
  static PyObject* callSkipped(const Invoke& invoke);
  PyObject* callAutograd(PyObject* callee, const Callee& model, const Arguments& args,
                         const Invoke& invoke);
  PyObject* callPython(PyObject* first, const Invoke& invoke);
  PyObject* callAutocastClear(const Invoke& invoke);
  PyObject* callReading(PyObject* callee, const Callee& model, const Arguments& args,
                        const Invoke& invoke);
  PyObject* callBackward(PyObject* callee, const Arguments& args, const Invoke& invoke);
  PyObject* callPure(PyObject* callee, const Arguments& args, const Invoke& invoke);
  bool beforeContainerWrite(const Callee& model, const Arguments& args, bool sourced);
  static cpython::Ref unboundFunction(PyObject* callee, const Arguments& args);
  PyObject* callC(PyObject* callee, const Callee& model, const Arguments& args,
                  const Invoke& invoke);
  PyObject* callObject(PyObject* callee, const Arguments& args, const Invoke& invoke);
  PyObject* callPartial(PyObject* callee, const Arguments& args, const Invoke& invoke);
  PyObject* callCached(PyObject* callee, const Arguments& args, const Invoke& invoke);
  PyObject* callType(PyTypeObject* type, const Arguments& args, const Invoke& invoke);
  PyObject* callTensor(PyObject* callee, const Callee& model, const Arguments& args,
                       const Invoke& invoke);
  PyObject* callIdentity(PyObject* object, const Invoke& invoke);
  PyObject* callAttribute(const Callee& model, const Arguments& args, const Invoke& invoke);
  PyObject* callContainer(PyObject* callee, const Callee& model, const Arguments& args,
                          const Invoke& invoke);
  PyObject* callRead(PyObject* callee, const Callee& model, const Arguments& args,
                     const Invoke& invoke);
  PyObject* callState(const Callee& model, const Arguments& args, const Invoke& invoke);
  PyObject* callContextVariable(const Callee& model, const Arguments& args, const Invoke& invoke);
  PyObject* callUnknown(PyObject* callee, const Arguments& args, const Invoke& invoke);
  PyObject* dispatch(PyObject* callee, const Arguments& args, const Invoke& invoke);
  void deepReadAll(const Arguments& args);
  static PyObject* boundTo(PyObject* callee);
  bool iteratesInC(PyObject* iterator);
  void noteBound(PyObject* callee);
  bool notePartial(PyObject* partial);
  void noteWrapped(common::SourceId entry, PyObject* object);
  void noteClass(PyObject* callee, PyObject* result, size_t count);
  void noteTensorResult(PyObject* result, PyObject* callee);

  // --- object_state.cpp
  PyObject* callReduce(PyObject* callee, const Arguments& args, const Invoke& invoke);
  void readState(PyObject* object);
  void readSlots(PyObject* object, common::SourceId source);

  // --- recipes.cpp
  common::RecipeId recipe(PyObject* object);
  common::RecipeId addRecipe(ir::Recipe recipe, PyObject* object);
  common::RecipeId listRecipe(ir::RecipeKind kind, PyObject* sequence);
  common::RecipeId dictRecipe(ir::RecipeKind kind, PyObject* dict, bool memoize = true);
  common::RecipeId objectRecipe(PyObject* object);
  void describeException(PyObject* object, std::vector<common::RecipeId>& children);
  common::RecipeId functionRecipe(PyObject* function);
  common::RecipeId freshRecipe(PyObject* object);
  common::RecipeId constRecipe(PyObject* object);
  common::RecipeId tensorRecipe(PyObject* tensor);
  void resolveEffects();

  PendingEffect describeEffect(ir::Event& event, PyObject* callee, const Arguments& args);
  void emitEffect(ir::Event event, PendingEffect pending);
  void addOperand(ir::Event& event, PendingEffect& pending, PyObject* operand, bool copied);

  std::shared_ptr<Recording> recording_;
  std::unique_ptr<aten::OpRecorder> ops_;
  Provenance provenance_;
  Limits limits_;
  bool active_ = false;
  bool stopping_ = false;  // refused, and the program must not go on
  cpython::UndoLog undo_;
  std::vector<std::unique_ptr<EvaluationPause>> pauses_;  // one for each operator that is running
  std::optional<common::Refusal> refusal_;
  std::vector<common::Refusal> breaks_;
  std::vector<struct _PyInterpreterFrame*> frames_;
  std::vector<PendingEffect> pendingEffects_;
  // What the pending effects hold that was made in the call, and how often.
  std::unordered_map<PyObject*, Py_ssize_t> effectOperands_;
  Described described_;
  std::map<std::pair<PyCodeObject*, int>, common::SiteId> sites_;
  // Python floats whose value a replay computes anew (tensor.item()), until something depends on
  // it.
  std::unordered_map<PyObject*, common::ValueId> scalars_;
  std::vector<cpython::Ref> scalarObjects_;
  std::vector<std::pair<common::ValueId, cpython::Ref>> pendingScalars_;
  bool expectScalar_ = false;         // a callee that hands the number on to the program is running
  std::vector<cpython::Ref> joined_;  // the pieces of texts that were computed
  std::unordered_set<uint32_t> clocks_;     // values that are clock readings
  std::unordered_set<uint32_t> collected_;  // ... that count garbage
  // Opaque calls that end a segment, by event, with what there is to say about a break there.
  std::vector<std::pair<size_t, common::Refusal>> calls_;
  Follow* follow_ = nullptr;
  int depth_ = 0;  // of the recipe or the reading that is under way
  // Tensors whose .grad a backward pass has written.
  std::unordered_map<PyObject*, cpython::Ref> withGradient_;
  int64_t epoch_ = 0;        // events up to the last call that may have changed anything
  bool committing_ = false;  // an event has been recorded that cannot be taken back
  int savedHooks_ = 0;       // pairs of default hooks for saved tensors that replays set too
  bool keptFresh_ = false;   // autograd's graph holds a mutable object that was made in the call
  std::unordered_set<PyObject*>
      kept_;  // objects that calls gave which change autograd's graph only
  std::unordered_set<PyObject*>
      outside_;  // audit: all objects the garbage collector tracked at the start
  std::vector<PyObject*> identified_;         // objects from outside whose address was asked for
  std::unordered_set<uint64_t> addresses_;    // the numbers that came out
  std::unordered_set<PyObject*> classDicts_;  // the dicts of classes whose __dict__ was read
  // Context variables set in this call, with what they held before (nothing: no value).
  std::vector<std::pair<cpython::Ref, cpython::Ref>> contextVariables_;
  std::unordered_set<uint32_t> sized_;  // values whose sizes are guarded
};

// The function of module operator behind an oparg of BINARY_OP, and of COMPARE_OP.
PyObject* operatorFunction(int op);
PyObject* comparisonFunction(int op);

}  // namespace glowplug::trace
