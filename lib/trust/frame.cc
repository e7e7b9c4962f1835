#include "lib/trust/frame.h"

#include <fmt/core.h>

#include <cstring>

namespace gyre::trust {

void append_frame(std::uint8_t type, std::span<const std::uint8_t> body,
                  std::vector<std::uint8_t>& stream) {
  const auto length = static_cast<std::uint32_t>(body.size() + 1);
  std::uint8_t head[5];
  std::memcpy(head, &length, sizeof length);
  head[4] = type;
  stream.insert(stream.end(), head, head + sizeof head);
  stream.insert(stream.end(), body.begin(), body.end());
}

Status FrameIntake::take(std::span<const std::uint8_t> bytes) {
  incoming_.insert(incoming_.end(), bytes.begin(), bytes.end());
  std::size_t place = 0;
  while (incoming_.size() - place >= 5) {
    std::uint32_t length = 0;
    std::memcpy(&length, incoming_.data() + place, sizeof length);
    if (length == 0 || length > max_frame_bytes)
      return Status(Code::RemoteError, fmt::format("the peer sent a frame of {} bytes", length));
    if (incoming_.size() - place - 4 < length) break;
    const auto start = incoming_.begin() + static_cast<std::ptrdiff_t>(place);
    frames_.push_back({start[4], {start + 5, start + 4 + length}});
    place += 4 + std::size_t{length};
  }
  incoming_.erase(incoming_.begin(), incoming_.begin() + static_cast<std::ptrdiff_t>(place));
  return {};
}

std::optional<Frame> FrameIntake::receive() {
  if (frames_.empty()) return std::nullopt;
  Frame frame = std::move(frames_.front());
  frames_.pop_front();
  return frame;
}

}  // namespace gyre::trust
