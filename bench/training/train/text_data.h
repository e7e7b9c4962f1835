// A text as numbers of characters, which are bytes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gyre::training {

struct TextData {
  std::string source;               // for people
  std::string characters;           // that occur, sorted
  std::vector<std::uint8_t> codes;  // the text: places in `characters`
};

TextData encode_text(const std::string& text);
// Of these files, or, if there are none, the licences that every Debian has. Empty, or why not.
std::string load_text(std::vector<std::string> paths, TextData* data);

}  // namespace gyre::training
