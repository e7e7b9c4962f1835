#include "lib/comm/join_info.h"

#include <algorithm>

namespace gyre::comm {
namespace {

// The last seven count: a setting may have one, the other parts have none.
constexpr char mark = '|';

}  // namespace

control::MessageBytes encode(const JoinInfo& note) {
  control::MessageBytes message(note.settings.begin(), note.settings.end());
  for (const std::string_view part : {note.device, note.processors, note.locality,
                                      note.announcement, note.machine, note.wires, note.yields}) {
    message.push_back(static_cast<std::uint8_t>(mark));
    message.insert(message.end(), part.begin(), part.end());
  }
  return message;
}

JoinInfo read_join_info(const control::MessageBytes& message) {
  std::string_view text(reinterpret_cast<const char*>(message.data()), message.size());
  const auto take_last = [&] {
    const std::size_t at = std::min(text.rfind(mark), text.size());
    const std::string_view part = text.substr(std::min(at + 1, text.size()));
    text = text.substr(0, at);
    return part;
  };
  JoinInfo note;
  note.yields = take_last();
  note.wires = take_last();
  note.machine = take_last();
  note.announcement = take_last();
  note.locality = take_last();
  note.processors = take_last();
  note.device = take_last();
  note.settings = text;
  return note;
}

}  // namespace gyre::comm
