// RdmaQueues: the queue pairs of one end of a connection, with one completion queue for all of
// them. Moves no messages: it makes, joins, posts and polls.
#pragma once

#include "lib/base/wait.h"
#include "transports/rdma/address.h"
#include "transports/rdma/device.h"

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace gyre::transport {

// The use of a work request, told back by its completion.
enum class WorkKind : std::uint8_t { receive, message, notice, credit, close, probe, grant, flush };
struct WorkTag {
  WorkKind kind = WorkKind::receive;
  std::uint8_t pair = 0;     // index of the queue pair
  std::uint64_t number = 0;  // of the message; 48 bits

  std::uint64_t to_id() const {
    return std::uint64_t{static_cast<std::uint8_t>(kind)} << 56 | std::uint64_t{pair} << 48 |
           (number & ((std::uint64_t{1} << 48) - 1));
  }
  static WorkTag of(std::uint64_t id) {
    return {static_cast<WorkKind>(id >> 56), static_cast<std::uint8_t>(id >> 48 & 0xff),
            id & ((std::uint64_t{1} << 48) - 1)};
  }
};

// The 32 bits that a peer's message brings with it.
enum class NoticeKind : std::uint8_t { message, credit, close, lost, resume, grant, taken };
struct Notice {
  static constexpr int number_bits = 21;
  static constexpr std::uint32_t mask = (1U << number_bits) - 1;
  NoticeKind kind = NoticeKind::message;
  // Of a message, or of the next one, or of a call: its low bits; or of a rail; or a RailQuestion.
  std::uint32_t number = 0;
  // Of `lost`, its answer and messages: how many losses the sender has counted. Of `grant` and its
  // receipt: the attempt.
  std::uint8_t round = 0;

  std::uint32_t to_immediate() const;
  // Nothing if it is none of ours.
  static std::optional<Notice> of(std::uint32_t immediate);
};
// The number near `reference` whose low bits are those. Near: within half of what the bits count.
constexpr std::uint64_t whole_number(std::uint32_t low, std::uint64_t reference,
                                     int bits = Notice::number_bits) {
  const std::uint32_t mask = (1U << bits) - 1;
  const std::uint32_t distance = (low - static_cast<std::uint32_t>(reference)) & mask;
  const bool is_behind = distance > mask / 2;
  return reference + distance - (is_behind ? std::uint64_t{mask} + 1 : 0);
}

// What a sender says of a rail that it has lost.
struct RailQuestion {
  static constexpr int rail_bits = 2, head_bits = Notice::number_bits - rail_bits;
  static_assert(max_rails == 1 << rail_bits && max_window <= 1U << (head_bits - 2));
  std::size_t rail = 0;
  // Of the first message that the receiver's NIC has not acknowledged as a whole.
  std::uint64_t head = 0;

  constexpr std::uint32_t to_number() const {
    return static_cast<std::uint32_t>(head << rail_bits | rail) & Notice::mask;
  }
  static constexpr RailQuestion of(std::uint32_t number, std::uint64_t near) {
    return {number % max_rails, whole_number(number >> rail_bits, near, head_bits)};
  }
};

struct QueueDepth {
  std::uint32_t send = 0, receive = 0;  // of each queue pair
};

class RdmaQueues {
 public:
  static Result<std::unique_ptr<RdmaQueues>> make(std::shared_ptr<RdmaDevice> device,
                                                  const RdmaGid& gid, std::size_t pairs,
                                                  QueueDepth depth);

  // Of the completion queue that so many pairs take.
  static std::uint32_t completion_entries(std::size_t pairs, QueueDepth depth);

  RdmaDevice& device() const { return *device_; }
  const std::shared_ptr<RdmaDevice>& shared_device() const { return device_; }
  RdmaNetwork network() const { return gid_.network; }
  std::size_t size() const { return pairs_.size(); }
  std::uint32_t inline_bytes() const { return inline_bytes_; }
  std::uint32_t number_of(std::size_t pair) const { return pairs_[pair].get()->qp_num; }
  // What a peer needs to join; memory is the caller's to add.
  RdmaAddress address(const std::string& host_name) const;
  // Joins with a peer's, which has as many pairs.
  Status join(const RdmaAddress& peer);

  Status post_receives(std::size_t pair, std::uint32_t count);
  Status post(std::size_t pair, ibv_send_wr& first);
  // A message without bytes on the first pair.
  Status post_notice(WorkKind kind, Notice notice);
  // A queue pair that is joined with itself, for what follows. Once.
  Status make_flush();
  bool has_flush() const { return flush_.has_value(); }
  // Reads a word here, which arrives behind all that the peer has written by these queue pairs and
  // that was told by `poll`. At most `max_flushes` are under way.
  Status post_flush(const RemoteMemory& word, std::uint64_t number);
  bool is_flushing() const { return flushes_ > 0; }
  bool has_flush_failed() const { return has_flush_failed_; }
  // Completions, at most 16 of them; until the next call.
  Result<std::span<const ibv_wc>> poll();
  // The set wakes on the next completion. The caller polls once more afterwards.
  Status arm(WaitSet& set);
  // From here on nothing of the peer arrives. What has is still told by `poll`, and all of it once
  // there are no receive requests left. False if the device refuses.
  bool stop();
  bool has_receives() const { return receives_ > 0; }
  // After the closing notice was posted: whether it has left, or never will. It allocates nothing.
  bool has_closed();
  // An error, of this process, once completions were lost because their queue was full: from then
  // on nobody knows what has arrived. Costs a system call.
  Status overflow();

 private:
  static constexpr std::uint32_t max_flushes = 2;  // under way
  explicit RdmaQueues(std::shared_ptr<RdmaDevice> device, const RdmaGid& gid)
      : device_(std::move(device)), gid_(gid) {}
  void note_done(const ibv_wc& completion);
  int poll_now();  // how many; negative: it failed
  Status make_completions(std::uint32_t entries);
  Status make_pair(QueueDepth depth);
  Status prepare(ibv_qp* pair, unsigned access);
  // Joins one pair with that one of a peer's.
  Status join(ibv_qp* pair, const RdmaAddress& peer, const QueuePairNumbers& other,
              std::uint32_t first_packet);
  ibv_qp_attr receiving(const RdmaAddress& peer, const QueuePairNumbers& other) const;

  // The device last of all, as it outlives the queues.
  const std::shared_ptr<RdmaDevice> device_;
  const RdmaGid gid_;
  std::atomic<bool> is_overflowed_{false};  // set by VerbsDevice::take_events
  loaded::VerbsChannel channel_;
  loaded::VerbsQueue completions_;
  std::vector<loaded::VerbsPair> pairs_;
  std::vector<std::uint32_t> first_packets_;
  std::uint32_t inline_bytes_ = 0;
  std::uint32_t receives_ = 0;  // requests that have not completed
  loaded::VerbsPair flush_;     // none: nothing is flushed
  std::uint32_t flushes_ = 0;   // reads that have not completed
  bool has_flush_failed_ = false;
  std::array<ibv_wc, 16> polled_{};
};

}  // namespace gyre::transport
