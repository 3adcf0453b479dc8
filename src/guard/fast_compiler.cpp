// Makes FastPrograms.
//
// "Steadfast" is said of an object that is known, once the comparisons made for its parents have
// passed, to be the very object of the last complete check and not another one at its address: it
// is held weakly and alive, or is a part for life of a steadfast object. Only an address known from
// a word stands for less: then the class is compared before anything in it is read, and what an
// address cannot tell is compared as such. An item of a dict is in between. An unchanged version
// would make it steadfast; but a dict that was written is passed too when its items are found at
// the same addresses, of the same classes, with their folded predicates holding.

#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "cpython/object_fields.h"
#include "cpython/version_tags.h"
#include "guard/fast_program.h"
#include "guard/predicates.h"

namespace glowplug::guard {

using cpython::HeldObject;
using ir::PredicateKind;
using ir::StepKind;

class FastCompiler {
 public:
  explicit FastCompiler(Mask bit) : bit_(bit) {}

  void root(Node& node);
  void finish(const std::vector<Sameness>& sameness, const std::vector<Node*>& wanted);
  FastProgram take() { return std::move(program_); }

 private:
  // An object that comparisons can stand for.
  struct Fixed {
    PyObject* object = nullptr;
    bool steadfast = false;
    bool classChecked = false;  // its class has been compared
    bool answered = false;      // its folded predicates have been
  };

  static Fixed itemOfDict(PyObject* object);
  static Fixed attributeOfClass(PyObject* object);
  bool needs(const Node& node) const { return node.mask & bit_; }
  bool isPlainRoot(const Node& node) const;
  bool canFix(const Node& node, const Fixed& at) const;
  void fix(Node& node, Fixed at);
  void child(Node& node, const Fixed& parent);
  std::optional<Fixed> fixedChild(Node& node, const Fixed& parent);
  std::optional<Fixed> fixedPlace(Node& node, const Fixed& parent);
  void predicate(const Predicate& predicate, Fixed& at);
  void functionSame(const Predicate& predicate, const Fixed& at);
  void dict(Node& node, Fixed& at);
  void list(Node& node, Fixed& at);
  void checkClass(Fixed& at);
  void checkState(TypeState* state);
  void alive(const HeldObject& held);
  void alive(PyObject* const* address, PyObject* object);

  template <class Pointee>
  void word(Pointee* address, uint64_t expected) {
    static_assert(sizeof(Pointee) == sizeof(uint64_t));
    program_.words_.push_back({reinterpret_cast<const uint64_t*>(address), expected});
  }
  template <class Pointee>
  void word(Pointee** address, const void* expected) {
    word(reinterpret_cast<const uint64_t*>(address), reinterpret_cast<uint64_t>(expected));
  }
  // The pointer that now stands at the address.
  void pointer(PyObject** address) { word(address, static_cast<const void*>(*address)); }
  FastProgram::Place placeOfNode(Node* node) const;

  Mask bit_;
  FastProgram program_;
  std::unordered_map<const Node*, PyObject*> fixed_;
  std::unordered_map<const TypeState*, std::vector<FastProgram::Item>> classes_;
  std::vector<TypeState*> classOrder_;
  std::unordered_set<const void*> alive_;
};

namespace {

constexpr uint32_t kChangesToGiveUp = 2;

bool classCanChange(PyTypeObject* type) {
  return !(type->tp_flags & Py_TPFLAGS_IMMUTABLETYPE) || PyType_IsSubtype(type, &PyModule_Type);
}

// Looking these up depends on the object's class, not just on its address.
bool readsObject(PredicateKind kind) {
  return kind != PredicateKind::ConstEq && kind != PredicateKind::IdentityIs &&
         kind != PredicateKind::TypeIs && kind != PredicateKind::TensorMeta &&
         kind != PredicateKind::AttrIs && kind != PredicateKind::AttrMissing;
}

bool isStepOf(const Node& node, std::initializer_list<StepKind> kinds) {
  for (StepKind kind : kinds)
    if (node.step == kind) return true;
  return false;
}

}  // namespace

FastCompiler::Fixed FastCompiler::itemOfDict(PyObject* object) {
  return {object, false, object && !classCanChange(Py_TYPE(object)), true};
}

FastCompiler::Fixed FastCompiler::attributeOfClass(PyObject* object) {
  return {object, false, object && !classCanChange(Py_TYPE(object)), false};
}

void FastCompiler::root(Node& node) {
  if (!needs(node)) return;
  const bool argument = isStepOf(node, {StepKind::Arg, StepKind::Kwarg});
  Fixed at{node.object, true};
  HeldObject held = node.step == StepKind::Pinned ? node.pinned : HeldObject::of(node.object);
  const bool knowable = held.isStrong() || held.livenessAddress();
  if (!knowable || (argument && isPlainRoot(node)) || !canFix(node, at)) {
    program_.rootBranches_.push_back({&node, nullptr});
    return;
  }
  if (node.step == StepKind::Pinned)
    alive(held);
  else
    program_.fixedRoots_.push_back({&node, node.object, held});
  fix(node, at);
}

// Arguments of these kinds are rarely the same objects in the next call.
bool FastCompiler::isPlainRoot(const Node& node) const {
  bool deep = false;
  for (const auto& child : node.children) deep |= needs(*child);
  PyObject* object = node.object;
  return !deep || PyTuple_Check(object) || PyList_Check(object) || PyDict_Check(object) ||
         aten::isTensor(object);
}

bool FastCompiler::canFix(const Node& node, const Fixed& at) const {
  if (node.changes >= kChangesToGiveUp || !at.object) return false;
  PyTypeObject* type = Py_TYPE(at.object);
  if (type->tp_flags & Py_TPFLAGS_IMMUTABLETYPE) return true;
  // Objects of a class that may have become another one are read only if the class is checked too.
  bool reads = false, classKnown = false;
  for (const auto& predicate : node.predicates) {
    if (!(predicate->mask & bit_)) continue;
    reads |= readsObject(predicate->kind);
    classKnown |= predicate->kind == PredicateKind::TypeIs;
  }
  for (const auto& child : node.children) reads |= needs(*child);
  return classKnown || !reads;
}

void FastCompiler::fix(Node& node, Fixed at) {
  fixed_.emplace(&node, at.object);
  program_.fixed_.push_back({&node, at.object, Py_TYPE(at.object)});
  for (const auto& predicate : node.predicates)
    if ((predicate->mask & bit_) && predicate->kind == PredicateKind::TypeIs) {
      checkState(predicate->type);
      checkClass(at);
      break;
    }
  if (node.isDict && PyDict_Check(at.object)) dict(node, at);
  if (PyList_Check(at.object)) list(node, at);
  for (const auto& known : node.predicates)
    if (known->mask & bit_) predicate(*known, at);
  for (const auto& below : node.children)
    if (needs(*below) && !below->isKey()) {
      checkClass(at);
      child(*below, at);
    }
}

void FastCompiler::checkClass(Fixed& at) {
  if (at.classChecked) return;
  at.classChecked = true;
  PyTypeObject* type = Py_TYPE(at.object);
  if (at.steadfast && !classCanChange(type)) return;
  word(cpython::typeAddress(at.object), static_cast<const void*>(type));
}

void FastCompiler::checkState(TypeState* state) {
  if (state->immutable()) return;
  if (!classes_.emplace(state, std::vector<FastProgram::Item>()).second) return;
  classOrder_.push_back(state);
  alive(state->livenessAddress(), reinterpret_cast<PyObject*>(state->type()));
}

void FastCompiler::alive(const HeldObject& held) { alive(held.livenessAddress(), held.address()); }

void FastCompiler::alive(PyObject* const* address, PyObject* object) {
  if (!address || !alive_.insert(static_cast<const void*>(address)).second) return;
  program_.livenessWords_.push_back(
      {reinterpret_cast<const uint64_t*>(address), reinterpret_cast<uint64_t>(object)});
}

// The dict's version, and its items as they are in that version.
void FastCompiler::dict(Node& node, Fixed& at) {
  // What stands in the place of an instance dict is always a dict.
  if (node.step != StepKind::InstanceDict) checkClass(at);
  bool looked = false, ordered = false;
  for (const auto& predicate : node.predicates)
    if (predicate->mask & bit_) {
      looked |= looksAtKeys(predicate->kind);
      ordered |= predicate->kind == PredicateKind::DictKeys;
    }
  std::vector<Node*> items, branches;
  for (const auto& below : node.children)
    if (needs(*below) && below->isKey())
      (canFix(*below, itemOfDict(below->object)) ? items : branches).push_back(below.get());
  if (!looked && items.empty() && branches.empty()) return;
  const auto first = static_cast<uint32_t>(program_.dictItems_.size());
  for (Node* item : items)
    program_.dictItems_.push_back({item, item->object, Py_TYPE(item->object)});
  const auto end = static_cast<uint32_t>(program_.dictItems_.size());
  auto dictWord = [&](const uint64_t* address) {
    program_.dictWords_.push_back(
        {static_cast<uint32_t>(program_.words_.size()), &node, at.object, first, end});
    word(address, *address);
  };
  if (looked || !items.empty()) dictWord(cpython::dictVersionAddress(at.object));
  if (ordered && cpython::isOrderedDict(at.object)) dictWord(cpython::orderStateAddress(at.object));
  for (Node* item : items) fix(*item, itemOfDict(item->object));
  for (Node* branch : branches) program_.branches_.push_back({branch, at.object});
}

void FastCompiler::list(Node& node, Fixed& at) {
  bool items = false, length = false;
  for (const auto& predicate : node.predicates)
    length |= (predicate->mask & bit_) && predicate->kind == PredicateKind::Length;
  for (const auto& below : node.children)
    items |= needs(*below) && below->step == StepKind::ListItem;
  if (!items && !length) return;
  checkClass(at);
  cpython::ListFields fields = cpython::listFields(at.object);
  word(fields.size, static_cast<uint64_t>(*fields.size));
  if (items) word(fields.items, static_cast<const void*>(*fields.items));
}

void FastCompiler::predicate(const Predicate& predicate, Fixed& at) {
  const bool answered = at.steadfast || at.answered;
  switch (predicate.kind) {
    case PredicateKind::TypeIs:
    case PredicateKind::Missing:
    case PredicateKind::DictKeys:
    case PredicateKind::SameAs:
    case PredicateKind::NotSameAs:
      return;  // by fix() and dict(); by finish()
    case PredicateKind::ConstEq:
      if (answered || predicate.constant.get() == at.object) return;
      break;
    case PredicateKind::IdentityIs:
      if (answered || predicate.identity.isStrong()) return;
      if (predicate.identity.livenessAddress()) return alive(predicate.identity);
      break;
    case PredicateKind::TensorMeta:
      program_.tensors_.push_back({predicate.meta, at.object});
      return;
    case PredicateKind::AttrIs:
    case PredicateKind::AttrMissing:
      return checkState(predicate.type);
    case PredicateKind::NoDict:
      return checkClass(at);
    case PredicateKind::FunctionSame:
      return functionSame(predicate, at);
    case PredicateKind::Length:
      if (PyList_Check(at.object)) return;
      checkClass(at);
      if (PyDict_Check(at.object)) {
        Py_ssize_t* size = cpython::dictSizeAddress(at.object);
        return word(size, static_cast<uint64_t>(*size));
      }
      if (PyTuple_Check(at.object)) {
        if (!at.steadfast)
          word(cpython::sizeAddress(at.object), static_cast<uint64_t>(Py_SIZE(at.object)));
        return;
      }
      break;
    default:
      checkClass(at);
  }
  program_.predicates_.push_back({&predicate, at.object});
}

void FastCompiler::functionSame(const Predicate& predicate, const Fixed& at) {
  const FunctionState& state = *predicate.function;
  bool simple = at.steadfast && !state.hasKeywords;
  for (const HeldObject& part : state.defaults.parts())
    simple &= part.isStrong() || part.livenessAddress();
  if (!simple) {
    program_.predicates_.push_back({&predicate, at.object});
    return;
  }
  cpython::FunctionFields fields = cpython::functionFields(at.object);
  pointer(fields.code);  // held strongly, so no other code object is at its address
  pointer(fields.defaults);
  pointer(fields.kwdefaults);
  PyObject* defaults = *fields.defaults;
  if (!defaults || state.defaults.isStrong()) return;
  word(cpython::typeAddress(defaults), static_cast<const void*>(Py_TYPE(defaults)));
  word(cpython::sizeAddress(defaults), static_cast<uint64_t>(Py_SIZE(defaults)));
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(defaults); i++) {
    alive(state.defaults.parts()[static_cast<size_t>(i)]);
    pointer(cpython::tupleItemAddress(defaults, i));
  }
}

void FastCompiler::child(Node& node, const Fixed& parent) {
  const size_t words = program_.words_.size();
  if (std::optional<Fixed> at = fixedChild(node, parent); at && canFix(node, *at))
    return fix(node, *at);
  program_.words_.resize(words);
  program_.branches_.push_back({&node, parent.object});
}

// The child of an object that has been compared, with the words that say that it is still there.
std::optional<FastCompiler::Fixed> FastCompiler::fixedChild(Node& node, const Fixed& parent) {
  PyObject* object = node.object;
  if (!object) return std::nullopt;
  switch (node.step) {
    case StepKind::ListItem:
      pointer(&(*cpython::listFields(parent.object).items)[node.index]);
      return Fixed{object};
    case StepKind::TupleItem:
      if (parent.steadfast) return Fixed{object, true};
      word(cpython::sizeAddress(parent.object), static_cast<uint64_t>(Py_SIZE(parent.object)));
      pointer(cpython::tupleItemAddress(parent.object, node.index));
      return Fixed{object};
    case StepKind::TypeAttr: {
      auto* type = reinterpret_cast<PyTypeObject*>(parent.object);
      if (!parent.steadfast) return std::nullopt;
      if (type->tp_flags & Py_TPFLAGS_IMMUTABLETYPE) return Fixed{object, true};
      for (TypeState* state : classOrder_)
        if (state->type() == type) {
          if (!canFix(node, attributeOfClass(object))) return std::nullopt;
          classes_[state].push_back({&node, object, Py_TYPE(object)});
          return attributeOfClass(object);
        }
      return std::nullopt;
    }
    case StepKind::Closure: {
      if (parent.steadfast) return Fixed{object, true};
      PyObject** closure = cpython::functionFields(parent.object).closure;
      pointer(closure);
      word(cpython::sizeAddress(*closure), static_cast<uint64_t>(Py_SIZE(*closure)));
      pointer(cpython::tupleItemAddress(*closure, node.index));
      return Fixed{object};
    }
    case StepKind::Globals:
    case StepKind::Builtins:
    case StepKind::MethodSelf:
    case StepKind::MethodFunc:
    case StepKind::ProxyTarget:
      if (parent.steadfast) return Fixed{object, true};  // for life
      [[fallthrough]];
    default:
      return fixedPlace(node, parent);
    case StepKind::InstanceDict:
      // Where the dict stands in objects of variable size depends on the size.
      if (!parent.steadfast && Py_TYPE(parent.object)->tp_itemsize != 0) return std::nullopt;
      return fixedPlace(node, parent);
  }
}

std::optional<FastCompiler::Fixed> FastCompiler::fixedPlace(Node& node, const Fixed& parent) {
  PyObject** place = placeOf(node, parent.object);
  if (!place || *place != node.object) return std::nullopt;
  pointer(place);
  return Fixed{node.object};
}

FastProgram::Place FastCompiler::placeOfNode(Node* node) const {
  auto found = fixed_.find(node);
  return found == fixed_.end() ? FastProgram::Place{nullptr, node}
                               : FastProgram::Place{found->second, node};
}

void FastCompiler::finish(const std::vector<Sameness>& sameness, const std::vector<Node*>& wanted) {
  for (TypeState* state : classOrder_) {
    const auto first = static_cast<uint32_t>(program_.classItems_.size());
    for (const FastProgram::Item& item : classes_[state]) program_.classItems_.push_back(item);
    state->passing();
    program_.classes_.push_back({state, cpython::typeVersionAddress(state->type()),
                                 state->version(), first,
                                 static_cast<uint32_t>(program_.classItems_.size())});
  }
  for (const Sameness& pair : sameness) {
    FastProgram::SamenessCheck check{placeOfNode(pair.first), placeOfNode(pair.second), pair.same};
    // Two fixed objects were compared by the complete check.
    if (!check.first.fixed || !check.second.fixed) program_.sameness_.push_back(check);
  }
  for (Node* node : wanted) program_.wanted_.push_back(placeOfNode(node));
  program_.valid_ = true;
}

FastProgram compileFast(const std::vector<std::unique_ptr<Node>>& roots, Mask bit,
                        const std::vector<Sameness>& sameness, const std::vector<Node*>& wanted) {
  FastCompiler compiler(bit);
  for (const auto& root : roots) compiler.root(*root);
  compiler.finish(sameness, wanted);
  return compiler.take();
}

}  // namespace glowplug::guard
