#include "lib/comm/joining_note.h"

#include <algorithm>

namespace gyre::comm {
namespace {

// The last two count: a mask and a device have none, a setting may.
constexpr char mark = '|';

}  // namespace

control::Letter encode(const JoiningNote& note) {
  control::Letter letter(note.settings.begin(), note.settings.end());
  for (const std::string_view part : {note.device, note.processors}) {
    letter.push_back(static_cast<std::uint8_t>(mark));
    letter.insert(letter.end(), part.begin(), part.end());
  }
  return letter;
}

JoiningNote read_joining_note(const control::Letter& letter) {
  std::string_view text(reinterpret_cast<const char*>(letter.data()), letter.size());
  const auto take_last = [&] {
    const std::size_t at = std::min(text.rfind(mark), text.size());
    const std::string_view part = text.substr(std::min(at + 1, text.size()));
    text = text.substr(0, at);
    return part;
  };
  JoiningNote note;
  note.processors = take_last();
  note.device = take_last();
  note.settings = text;
  return note;
}

}  // namespace gyre::comm
