#include "lower/affine.h"

#include <algorithm>

#include "common/check.h"

namespace glowplug::lower {
namespace {

bool alike(const Term& a, const Term& b) {
  return a.loop == b.loop && a.value == b.value && a.sizes == b.sizes;
}

void addTerm(Affine& to, Term term) {
  const auto same = std::find_if(to.terms.begin(), to.terms.end(),
                                 [&](const Term& other) { return alike(other, term); });
  if (same == to.terms.end()) {
    if (term.factor != 0) to.terms.push_back(std::move(term));
    return;
  }
  same->factor += term.factor;
  if (same->factor == 0) to.terms.erase(same);
}

bool plain(const Term& term) { return !term.loop.valid() && !term.value.valid(); }

Term product(const Term& a, const Term& b) {
  GP_CHECK(plain(a) || plain(b), "a product of two loop variables is not affine");
  Term out = plain(a) ? b : a;
  const Term& other = plain(a) ? a : b;
  out.factor *= other.factor;
  out.sizes.insert(out.sizes.end(), other.sizes.begin(), other.sizes.end());
  std::sort(out.sizes.begin(), out.sizes.end());
  return out;
}

}  // namespace

Affine constantIndex(int64_t number) { return {number, {}}; }
Affine sizeIndex(SizeId size) { return {0, {Term{1, {size}, {}, {}}}}; }
Affine loopIndex(LoopId loop) { return {0, {Term{1, {}, loop, {}}}}; }
Affine valueIndex(ValueId value) { return {0, {Term{1, {}, {}, value}}}; }

Affine operator+(Affine a, const Affine& b) {
  a.constant += b.constant;
  for (const Term& term : b.terms) addTerm(a, term);
  return a;
}

Affine operator-(Affine a, const Affine& b) {
  a.constant -= b.constant;
  for (Term term : b.terms) {
    term.factor = -term.factor;
    addTerm(a, std::move(term));
  }
  return a;
}

Affine operator*(const Affine& a, const Affine& b) {
  Affine out{a.constant * b.constant, {}};
  const auto scaled = [&](const Term& term, int64_t by) {
    Term copy = term;
    copy.factor *= by;
    addTerm(out, std::move(copy));
  };
  for (const Term& term : a.terms) scaled(term, b.constant);
  for (const Term& term : b.terms) scaled(term, a.constant);
  for (const Term& left : a.terms) {
    for (const Term& right : b.terms) addTerm(out, product(left, right));
  }
  return out;
}

bool isConstant(const Affine& a) { return a.terms.empty(); }

bool onlySizes(const Affine& a) { return std::all_of(a.terms.begin(), a.terms.end(), plain); }

bool uses(const Affine& a, LoopId loop) {
  return std::any_of(a.terms.begin(), a.terms.end(),
                     [&](const Term& term) { return term.loop == loop; });
}

Affine factorOf(const Affine& a, LoopId loop) {
  Affine out;
  for (const Term& term : a.terms) {
    if (term.loop != loop) continue;
    if (term.sizes.empty()) {
      out.constant += term.factor;
    } else {
      addTerm(out, Term{term.factor, term.sizes, {}, {}});
    }
  }
  return out;
}

Affine without(const Affine& a, LoopId loop) {
  Affine out{a.constant, {}};
  for (const Term& term : a.terms) {
    if (term.loop != loop) out.terms.push_back(term);
  }
  return out;
}

int64_t evaluate(const Affine& a, const int64_t* sizes) {
  int64_t sum = a.constant;
  for (const Term& term : a.terms) {
    GP_CHECK(plain(term), "an expression over sizes alone");
    int64_t product = term.factor;
    for (const SizeId size : term.sizes) product *= sizes[size.index()];
    sum += product;
  }
  return sum;
}

}  // namespace glowplug::lower
