#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "ir/parser.h"
#include "ir/text.h"

namespace glowplug::ir {

// A place in one line of text. Reading functions skip spaces first and return false, with the error
// set, when what they want is not there; the first error stays.
class Cursor {
 public:
  Cursor(std::string_view line, int number) : rest_(line), length_(line.size()), line_(number) {}

  bool fail(std::string message);
  const std::optional<ParseError>& error() const { return error_; }

  bool atEnd();
  char peek();        // 0 at the end
  bool take(char c);  // no error when something else stands there
  bool expect(char c);
  bool takeAbsent(Word word = Word::File);  // a "-" that is not the beginning of such a word
  bool number(int64_t& out);                // any sign
  bool real(double& out);                   // also inf and nan
  bool index(uint32_t& out);                // digits right here, below Id::kNone
  bool word(std::string& out);              // letters, digits and underscores
  bool text(std::string& out, Word word);
  bool end();  // nothing may follow
  // A word that is the name of something of that kind; `what` says in an error what it should be.
  template <class Kind>
  bool oneOf(std::optional<Kind> (*named)(std::string_view), Kind& out, std::string_view what) {
    std::string name;
    if (!word(name)) return false;
    const std::optional<Kind> found = named(name);
    if (!found) return fail("unknown " + std::string(what) + " '" + name + "'");
    out = *found;
    return true;
  }
  std::string_view rest() const { return rest_; }

 private:
  void skipSpaces();

  std::string_view rest_;
  size_t length_;
  int line_;
  std::optional<ParseError> error_;
};

}  // namespace glowplug::ir
