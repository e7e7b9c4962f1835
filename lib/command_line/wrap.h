// Texts for a terminal: lines that are broken between words.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace gyre::command_line {

inline constexpr std::size_t page_columns = 88;

// Every line of `text` ends before `columns`, and those after the first begin with `indent` spaces;
// the first is taken to begin at that column already. Lines that fit stay as they are, and what
// becomes of others begins with as many spaces as they do.
std::string wrapped(std::string_view text, std::size_t indent = 0,
                    std::size_t columns = page_columns);

}  // namespace gyre::command_line
