#include "ir/cursor.h"

#include <fmt/format.h>

#include <cctype>
#include <charconv>

#include "common/ids.h"

namespace glowplug::ir {
namespace {

bool isWordChar(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

}  // namespace

bool Cursor::fail(std::string message) {
  if (!error_) {
    error_ = ParseError{line_, static_cast<int>(length_ - rest_.size()) + 1, std::move(message)};
  }
  return false;
}

void Cursor::skipSpaces() {
  while (!rest_.empty() && rest_.front() == ' ') rest_.remove_prefix(1);
}

bool Cursor::atEnd() {
  skipSpaces();
  return rest_.empty();
}

char Cursor::peek() { return atEnd() ? 0 : rest_.front(); }

bool Cursor::take(char c) {
  if (peek() != c) return false;
  rest_.remove_prefix(1);
  return true;
}

bool Cursor::expect(char c) { return take(c) || fail(fmt::format("expected '{}'", c)); }

bool Cursor::takeAbsent(Word word) {
  if (peek() != '-') return false;
  if (rest_.size() > 1 && bareLength(rest_, word) != 1) return false;
  rest_.remove_prefix(1);
  return true;
}

bool Cursor::number(int64_t& out) {
  skipSpaces();
  const auto [stop, problem] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), out);
  if (problem != std::errc()) return fail("expected a number");
  rest_.remove_prefix(static_cast<size_t>(stop - rest_.data()));
  return true;
}

bool Cursor::real(double& out) {
  skipSpaces();
  const auto [stop, problem] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), out);
  if (problem != std::errc()) return fail("expected a number");
  rest_.remove_prefix(static_cast<size_t>(stop - rest_.data()));
  return true;
}

bool Cursor::index(uint32_t& out) {
  const auto [stop, problem] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), out);
  if (problem != std::errc() || out == common::SourceId::kNone) return fail("expected an index");
  rest_.remove_prefix(static_cast<size_t>(stop - rest_.data()));
  return true;
}

bool Cursor::word(std::string& out) {
  skipSpaces();
  size_t length = 0;
  while (length < rest_.size() && isWordChar(rest_[length])) ++length;
  if (length == 0) return fail("expected a name");
  out = std::string(rest_.substr(0, length));
  rest_.remove_prefix(length);
  return true;
}

bool Cursor::text(std::string& out, Word word) {
  skipSpaces();
  std::optional<std::string> taken = takeQuoted(rest_, word);
  if (!taken) return fail("expected a text, bare or between backquotes");
  out = std::move(*taken);
  return true;
}

bool Cursor::end() { return atEnd() || fail(fmt::format("unexpected '{}'", rest_)); }

}  // namespace glowplug::ir
