#include "lib/transport/lost_knocks.h"

#include "lib/base/clock.h"

#include <fmt/core.h>

namespace gyre::transport {
namespace {

// 10 ms before the second, 20 before the third, 1.3 s in all.
constexpr int max_losses = 8;
constexpr std::int64_t first_pause_ns = 10 * ns_per_ms;

}  // namespace

Status LostKnocks::note(std::string_view why) {
  if (++count_ == max_losses)
    return Status(Code::RemoteError,
                  fmt::format("its listener closed {} connections: {}", count_, why));
  pause_until_ns_ = SystemClock::read() + (first_pause_ns << (count_ - 1));
  return {};
}

bool LostKnocks::pauses() const { return count_ > 0 && SystemClock::read() < pause_until_ns_; }

}  // namespace gyre::transport
