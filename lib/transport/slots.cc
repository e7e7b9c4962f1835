#include "lib/transport/slots.h"

#include "lib/base/wait.h"

#include <algorithm>
#include <cstring>

namespace gyre::transport {

void start_counters(const FifoView& view) {
  if (view.shape.first == 0) return;  // fresh memory is zero, and not touched before it is used
  for (auto* counter :
       {&view.control->tail.value, &view.control->head.value, &view.control->line_head.value})
    counter->store(view.shape.first, std::memory_order_relaxed);
  // As the laps before would have left them: zero is the number of a line, and of a slot's message,
  // too, when 40 bits turn.
  for (std::uint64_t back = 0; back < view.shape.line_count; ++back) {
    const std::uint64_t number = view.shape.first - back;  // of the next line but `back`, plus 1
    view.line(number - 1).flag.store(message_flag(number, 0), std::memory_order_relaxed);
  }
  for (std::uint64_t back = 0; back < view.shape.slot_count; ++back) {
    const std::uint64_t number = view.shape.first - back;
    view.note(number - 1).flag = message_flag(number, 0);
  }
}

// Once for each sleep: until the sleeper runs, more messages may come, and each would ask the
// kernel again. Before the word changes, which wakes a sleeper that announces itself meanwhile.
void ring(Bell& bell) {
  bell.sleeping.store(0, std::memory_order_relaxed);
  bell.rung.fetch_add(1, std::memory_order_release);
  wake_futex(&bell.rung);
}

void LineWriter::write(const std::byte* message, std::uint64_t bytes, std::uint64_t signature) {
  Line* line = line_;
  std::uint64_t number = next_;
  for (std::uint32_t left = lines_for(bytes); left > 0; --left) {
    const std::uint64_t part = std::min<std::uint64_t>(bytes, line_payload_bytes);
    copy_part_of_lines(line->payload, message, part);  // a token may have no address
    // Pairs with the acquire in LineReader::poll_lines.
    line->flag.store(message_flag(++number, signature), std::memory_order_release);
    line = line_after(line, view_.lines, lines_end_);
    message += part;
    bytes -= part;
  }
  line_ = line;
  next_ = number;
  ring_if_sleeping(view_.control->receiver_bell);
}

const std::byte* LineReader::read(std::uint64_t bytes, std::byte* staging) const {
  if (bytes <= line_payload_bytes) return place();
  std::byte* place = staging;
  for (std::uint64_t index = next_; bytes > 0; ++index) {
    const std::uint64_t part = std::min<std::uint64_t>(bytes, line_payload_bytes);
    copy_part_of_lines(place, view_.line(index).payload, part);
    place += part;
    bytes -= part;
  }
  return staging;
}

}  // namespace gyre::transport
