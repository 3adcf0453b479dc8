#include "guard/fast_program.h"

#include <algorithm>
#include <unordered_set>

#include "cpython/version_tags.h"
#include "guard/predicates.h"

namespace glowplug::guard {

bool FastProgram::run(const Call& call, Mask bit, Made& made) {
  if (!checkRoots(call)) return false;
  Walk walk(bit, made);
  for (const Branch& branch : rootBranches_) {
    walk.root(*branch.node, call);
    if (!walk.live()) return false;
  }
  if (!checkClasses(bit) || !checkWords(bit) || !checkObjects(bit)) return false;
  for (const Branch& branch : branches_) {
    walk.step(*branch.node, branch.parent);
    if (!walk.live()) return false;
  }
  for (const SamenessCheck& check : sameness_)
    if ((check.first.object() == check.second.object()) != check.same) return false;
  return true;
}

bool FastProgram::checkRoots(const Call& call) const {
  for (const FixedRoot& root : fixedRoots_) {
    if (fetchRoot(*root.node, call) != root.object) return false;
    if (!root.held.is(root.object)) return false;
  }
  for (const Word& word : livenessWords_)
    if (*word.address != word.expected) return false;
  return true;
}

bool FastProgram::checkClasses(Mask bit) {
  for (ClassCheck& check : classes_) {
    if (*check.address == check.version && check.version != 0) [[likely]]
      continue;
    if (!repairClass(check, bit)) return false;
  }
  return true;
}

bool FastProgram::repairClass(ClassCheck& check, Mask bit) {
  if (!(check.state->passing() & bit)) return false;
  for (uint32_t i = check.firstItem; i < check.endItem; i++) {
    const Item& item = classItems_[i];
    PyObject* now = _PyType_Lookup(check.state->type(), item.node->key.get());
    if (!now || !item.isAt(now)) return false;
  }
  check.version = check.state->version();
  return true;
}

bool FastProgram::checkWords(Mask bit) {
  const Word* words = words_.data();
  const size_t count = words_.size();
  for (size_t i = 0; i < count; i++)
    if (*words[i].address != words[i].expected) [[unlikely]]
      if (!repairWord(i, bit)) return false;
  return true;
}

// A dict that was written since: only what the trace uses of it counts.
bool FastProgram::repairWord(size_t word, Mask bit) {
  auto found =
      std::lower_bound(dictWords_.begin(), dictWords_.end(), word,
                       [](const DictWord& dict, size_t index) { return dict.word < index; });
  if (found == dictWords_.end() || found->word != word) return false;
  if (!(dictPassing(*found->node, found->dict) & bit)) return false;
  for (uint32_t i = found->firstItem; i < found->endItem; i++)
    if (!dictItems_[i].isAt(dictItems_[i].node->object)) return false;
  words_[word].expected = *words_[word].address;
  return true;
}

bool FastProgram::checkObjects(Mask bit) const {
  for (const TensorCheck& check : tensors_)
    if (!aten::metaMatches(*check.meta, check.tensor)) return false;
  for (const PredicateCheck& check : predicates_)
    if (!(holding(*check.predicate, check.object) & bit)) return false;
  return true;
}

void FastProgram::fetch(std::vector<cpython::Ref>& fetched) const {
  fetched.reserve(wanted_.size());
  for (const Place& place : wanted_) fetched.push_back(cpython::Ref::borrow(place.object()));
}

size_t FastProgram::checks() const {
  return fixedRoots_.size() + rootBranches_.size() + livenessWords_.size() + classes_.size() +
         words_.size() + tensors_.size() + predicates_.size() + branches_.size() + sameness_.size();
}

void FastProgram::countChanges() const {
  std::unordered_set<const Node*> changed;
  for (const Item& item : fixed_) {
    // What hangs below another object is another object too; that is no news about it.
    bool below = item.node->parent && changed.contains(item.node->parent);
    if (!below && item.node->object == item.object) continue;
    changed.insert(item.node);
    if (!below) item.node->changes++;
  }
}

}  // namespace glowplug::guard
