#pragma once

#include <optional>
#include <string>
#include <string_view>

// The words of the trace's text form. A text (of an object, constant, metadata, operator, file...)
// stands bare where its end can be found by reading it, else between backquotes with escapes.
namespace glowplug::ir {

// Which bare words may stand: Any allows brackets (balanced, with anything between them) and one
// Python string literal; Operator allows ':' but no brackets; File neither.
enum class Word : uint8_t { Any, Operator, File };

// Length of the bare word that `text` begins with; 0 if there is none.
size_t bareLength(std::string_view text, Word word);

// `text` as it is printed.
std::string quoted(std::string_view text, Word word);

// Reads what quoted() made from the front of `rest` and removes it there; nothing if it is
// malformed.
std::optional<std::string> takeQuoted(std::string_view& rest, Word word);

}  // namespace glowplug::ir
