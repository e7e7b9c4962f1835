// Frame: one message on a secure session. FrameIntake finds frames in the bytes of the stream as
// they arrive. It knows no sockets and no keys.
//
//   on the wire   u32 length of type and body, u8 type, body; at most 1 MiB
#pragma once

#include "lib/base/status.h"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

namespace gyre::trust {

inline constexpr std::size_t max_frame_bytes = 1 << 20;

struct Frame {
  std::uint8_t type = 0;
  std::vector<std::uint8_t> body;
};

// Appends the frame's bytes to `stream`; the body has less than max_frame_bytes.
void append_frame(std::uint8_t type, std::span<const std::uint8_t> body,
                  std::vector<std::uint8_t>& stream);

class FrameIntake {
 public:
  // The stream's next bytes. After an error there is no telling where a frame begins.
  Status take(std::span<const std::uint8_t> bytes);
  // The next whole frame, in order.
  std::optional<Frame> receive();

 private:
  std::vector<std::uint8_t> incoming_;  // of a frame that is not whole
  std::deque<Frame> frames_;
};

}  // namespace gyre::trust
