#include "lib/comm/joining_note.h"

#include <algorithm>

namespace gyre::comm {
namespace {

// The last one counts: a mask has none, a setting may.
constexpr char mask_mark = '|';

}  // namespace

bootstrap::Letter encode(const JoiningNote& note) {
  bootstrap::Letter letter(note.settings.begin(), note.settings.end());
  letter.push_back(static_cast<std::uint8_t>(mask_mark));
  letter.insert(letter.end(), note.processors.begin(), note.processors.end());
  return letter;
}

JoiningNote read_joining_note(const bootstrap::Letter& letter) {
  const std::string_view text(reinterpret_cast<const char*>(letter.data()), letter.size());
  const std::size_t mark = std::min(text.rfind(mask_mark), text.size());
  return {text.substr(0, mark), text.substr(std::min(mark + 1, text.size()))};
}

}  // namespace gyre::comm
