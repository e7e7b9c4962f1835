#include "transports/tcp/dealer.h"

#include "lib/base/clock.h"

#include <algorithm>
#include <array>
#include <limits>
#include <span>
#include <utility>

namespace gyre::transport {
namespace {

// Small messages go together until they have so many bytes.
constexpr std::uint64_t min_run_bytes = 64 << 10;
// Less is sent before the kernel has said how rails do.
constexpr std::uint64_t min_looked_at_bytes = 16 << 10;
// A message is shared from this size on, in parts of at least a quarter of it.
constexpr std::uint32_t min_shared_bytes = 64 << 10;
constexpr double min_part_bytes = 16 << 10;
constexpr std::uint32_t part_unit = 4 << 10;
// While it waits for a rail, it asks the kernel again after this.
constexpr std::int64_t look_again_ns = 100'000;

}  // namespace

bool Dealer::deal(std::vector<SendingRail>& rails) {
  if (next_ == committed() || std::ranges::none_of(rails, &SendingRail::is_free)) return false;
  const MessageRun run = next_run(rails.size() == 1);
  if (rails.size() == 1) return give(rails.front(), run), true;
  const std::uint64_t bytes = bytes_between(run.first, run.end);
  if (bytes < min_looked_at_bytes) return give_to_fastest(rails, run);
  const std::int64_t now_ns = SystemClock::read();
  const bool is_waiting = awaited_ != nullptr && !awaited_->is_free();
  if (is_waiting && now_ns - looked_ns_ < look_again_ns) return false;
  look(rails, now_ns);
  const std::uint32_t first_bytes = fifo_.note(run.first).bytes;
  if (first_bytes >= min_shared_bytes && share(rails, first_bytes)) return true;
  return give_if_it_helps(rails, run, bytes);
}

std::uint64_t Dealer::bytes_between(std::uint64_t first, std::uint64_t end) const {
  std::uint64_t bytes = 0;
  for (; first != end; ++first) bytes += sizeof(WireHeader) + fifo_.note(first).bytes;
  return bytes;
}

MessageRun Dealer::next_run(bool is_alone) const {
  const std::uint64_t most = std::min<std::uint64_t>(committed() - next_, SendingRail::max_batch);
  if (is_alone) return {next_, next_ + most};
  MessageRun run{next_, next_};
  for (std::uint64_t bytes = 0; run.end - next_ < most && bytes < min_run_bytes;)
    bytes += sizeof(WireHeader) + fifo_.note(run.end++).bytes;
  return run;
}

void Dealer::give(SendingRail& rail, const MessageRun& run) {
  rail.take(run);
  next_ = run.end;
}

bool Dealer::give_to_fastest(std::vector<SendingRail>& rails, const MessageRun& run) {
  const auto pace = [](const SendingRail& rail) {
    return rail.is_free() ? rail.pace().bytes_per_ns() : -1;
  };
  give(*std::ranges::max_element(rails, {}, pace), run);
  return true;
}

void Dealer::look(std::vector<SendingRail>& rails, std::int64_t now_ns) {
  looked_ns_ = now_ns;
  double fastest = 0;
  for (SendingRail& rail : rails) {
    rail.look(now_ns);
    fastest = std::max(fastest, rail.pace().bytes_per_ns());
  }
  guess_ = fastest > 0 ? fastest : 1;
}

// Parts that end at one time T: sum over the rails of (T x pace - backlog) = bytes. A rail whose
// part would be small has none, and T is computed anew.
bool Dealer::share(std::vector<SendingRail>& rails, std::uint32_t bytes) {
  std::array<SendingRail*, max_rails> free_rails;
  std::size_t count = 0;
  for (SendingRail& rail : rails)
    if (rail.is_free()) free_rails[count++] = &rail;
  std::span sharing(free_rails.data(), count);
  const auto pace = [&](const SendingRail* rail) { return rail->pace().bytes_per_ns_or(guess_); };
  double end_ns = 0;
  const auto part = [&](const SendingRail* rail) {
    return end_ns * pace(rail) - static_cast<double>(rail->pace().backlog_bytes());
  };
  for (;;) {
    double all_bytes = bytes, all_pace = 0;
    for (const SendingRail* rail : sharing) {
      all_bytes += static_cast<double>(rail->pace().backlog_bytes());
      all_pace += pace(rail);
    }
    end_ns = all_bytes / all_pace;
    const auto least = std::ranges::min_element(sharing, {}, part);
    if (sharing.size() == 1 || part(*least) >= min_part_bytes) break;
    std::swap(*least, sharing.back());
    sharing = sharing.first(sharing.size() - 1);
  }
  if (sharing.size() < 2) return false;
  const std::uint64_t index = next_;
  std::uint32_t offset = 0;
  for (SendingRail* rail : sharing) {
    const std::uint32_t own = static_cast<std::uint32_t>(part(rail)) / part_unit * part_unit;
    const std::uint32_t length = rail == sharing.back() ? bytes - offset : own;
    give(*rail, {index, index + 1, offset, length});
    offset += length;
  }
  return true;
}

bool Dealer::give_if_it_helps(std::vector<SendingRail>& rails, const MessageRun& run,
                              std::uint64_t bytes) {
  const auto by_end = [&](const SendingRail& rail) { return ns_for(rail, bytes); };
  const auto free_by_end = [&](const SendingRail& rail) {
    return rail.is_free() ? by_end(rail) : std::numeric_limits<double>::infinity();
  };
  SendingRail& best = *std::ranges::min_element(rails, {}, by_end);
  SendingRail& best_free = *std::ranges::min_element(rails, {}, free_by_end);
  awaited_ = &best;
  if (by_end(best_free) > ns_for(best, bytes_between(next_, committed()))) return false;
  give(best_free, run);
  return true;
}

}  // namespace gyre::transport
