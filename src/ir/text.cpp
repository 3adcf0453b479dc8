#include "ir/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>

namespace glowplug::ir {
namespace {

// Words that mean something of their own where a text may stand.
constexpr std::array<std::string_view, 7> kReserved = {"-",      "_",      "from",   "tensor",
                                                       "scalar", "object", "dynamic"};

bool isPrintable(char c) { return static_cast<unsigned char>(c) >= 0x20 && c != 0x7f; }

bool isPlain(char c, Word word) {
  const auto u = static_cast<unsigned char>(c);
  if (std::isalnum(u) || u >= 0x80) return true;
  if (c == ':') return word != Word::File;
  return std::string_view("_.+-*/").find(c) != std::string_view::npos;
}

size_t stringLiteralLength(std::string_view text) {
  for (size_t i = 1; i < text.size(); ++i) {
    if (!isPrintable(text[i])) return 0;
    if (text[i] == '\\') {
      if (++i >= text.size() || !isPrintable(text[i])) return 0;
    } else if (text[i] == text[0]) {
      return i + 1;
    }
  }
  return 0;
}

// Length of the bracketed group at the front of `text`, 0 if it does not end.
size_t groupLength(std::string_view text) {
  constexpr std::string_view kOpen = "([<{", kClose = ")]>}";
  std::string expected;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (!isPrintable(c) || c == '`') return 0;
    if (const size_t open = kOpen.find(c); open != std::string_view::npos) {
      expected.push_back(kClose[open]);
    } else if (kClose.find(c) != std::string_view::npos) {
      if (expected.back() != c) return 0;
      expected.pop_back();
      if (expected.empty()) return i + 1;
    }
  }
  return 0;
}

std::optional<char> takeEscape(std::string_view& rest) {
  if (rest.empty()) return std::nullopt;
  const char c = rest.front();
  rest.remove_prefix(1);
  if (c == '\\' || c == '`') return c;
  if (c == 'n') return '\n';
  if (c != 'x' || rest.size() < 2) return std::nullopt;
  int code = 0;
  for (int i = 0; i < 2; ++i) {
    const size_t digit = std::string_view("0123456789abcdef").find(rest[i]);
    if (digit == std::string_view::npos) return std::nullopt;
    code = code * 16 + static_cast<int>(digit);
  }
  rest.remove_prefix(2);
  return static_cast<char>(code);
}

bool isBare(std::string_view text, Word word) {
  if (text.empty() || bareLength(text, word) != text.size()) return false;
  if (std::find(kReserved.begin(), kReserved.end(), text) != kReserved.end()) return false;
  // "@12" is the number of a site, so no file may be called 12.
  return word != Word::File ||
         !std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c); });
}

}  // namespace

size_t bareLength(std::string_view text, Word word) {
  if (text.empty()) return 0;
  if (word == Word::Any) {
    if (text[0] == '\'' || text[0] == '"') return stringLiteralLength(text);
    if (text[0] == '{') return 0;  // begins a list of operands
  }
  size_t i = 0;
  while (i < text.size()) {
    if (isPlain(text[i], word)) {
      ++i;
    } else if (word == Word::Any &&
               std::string_view("([<{").find(text[i]) != std::string_view::npos) {
      const size_t length = groupLength(text.substr(i));
      if (length == 0) return 0;
      i += length;
    } else {
      break;
    }
  }
  return i;
}

std::string quoted(std::string_view text, Word word) {
  if (isBare(text, word)) return std::string(text);
  std::string out = "`";
  for (const char c : text) {
    if (c == '`' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (!isPrintable(c)) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    } else {
      out += c;
    }
  }
  return out + '`';
}

std::optional<std::string> takeQuoted(std::string_view& rest, Word word) {
  if (rest.empty() || rest.front() != '`') {
    const size_t length = bareLength(rest, word);
    if (length == 0) return std::nullopt;
    std::string out(rest.substr(0, length));
    rest.remove_prefix(length);
    return out;
  }
  std::string_view left = rest.substr(1);
  std::string out;
  while (!left.empty()) {
    const char c = left.front();
    left.remove_prefix(1);
    if (c == '`') {
      rest = left;
      return out;
    }
    if (c != '\\') {
      out += c;
      continue;
    }
    const std::optional<char> escaped = takeEscape(left);
    if (!escaped) return std::nullopt;
    out += *escaped;
  }
  return std::nullopt;
}

}  // namespace glowplug::ir
