// RdmaLink: what both ends of a connection do alike. It consists of one or more rails: a rail joins
// a port here with a port there, by queue pairs of its own, and knows the connection's memory by
// keys of its own. A link joins, polls, watches for the peer's silence, goes on without a rail that
// fails, says what failed, and closes. Used by one thread at a time.
#pragma once

#include "transports/rdma/farewell.h"
#include "transports/rdma/queues.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace gyre::transport {

struct RdmaRail {
  std::shared_ptr<RdmaDevice> device;  // of the keys: it outlives them
  loaded::VerbsMemory slots, notes;    // this end's
  RemoteMemory flushed{};              // a word of what the peer may write, if it is to be flushed
  std::unique_ptr<RdmaQueues> queues;  // null: not used, or lost
  RdmaAddress there{};
  std::uint8_t planned = 0;      // of a rail whose ports are planned at both ends; see RdmaWay
  std::uint32_t unfinished = 0;  // requests of messages that have not completed
  bool is_probing = false;
  bool is_heard = false;  // anything has completed since the last look
  std::int64_t asked_ns = 0;
};

// Takes what has completed over a rail, and loses none.
class CompletionTaker {
 public:
  virtual Status take(const ibv_wc& completion, WorkTag tag, std::size_t rail) = 0;

 protected:
  ~CompletionTaker() = default;
};

class RdmaLink {
 public:
  // The number of the flush of a rail that is lost; those of its user have others.
  static constexpr std::uint64_t last_flush = 1;
  RdmaLink(CompletionTaker& taker, std::vector<RdmaRail> rails,
           std::shared_ptr<RdmaFarewell> farewell, std::string_view toward, int peer)
      : taker_(taker),
        rails_(std::move(rails)),
        farewell_(std::move(farewell)),
        toward_(toward),
        peer_(peer) {}

  std::vector<RdmaRail>& rails() { return rails_; }
  const std::vector<RdmaRail>& rails() const { return rails_; }
  // The first rail in use: notes and notices go there. Their number if there is none.
  std::size_t main() const;
  // Each rail with the peer's. The link is without those that the peer does not use, and has lost
  // those that cannot be joined.
  Status join(const std::vector<std::optional<RdmaAddress>>& there);
  bool is_joined() const { return is_joined_; }

  // Gives each completion that there is to the taker. A rail with one that tells of a failure is
  // lost. None counts once the peer has closed, as its queue pairs may be gone.
  Status take_completions();
  // Goes on without a rail. What the peer's NIC was told to be here is taken first. The last rail's
  // loss is an error.
  Status lose(std::size_t rail, Status why);
  // A rail that was lost since the last call.
  std::optional<std::size_t> next_lost();
  // Posts over the main rail, or over the next one if it fails.
  Status tell(WorkKind kind, const Notice& notice);
  // A rail whose NIC at the peer's end has not answered for so long is lost. It is asked by an
  // empty write. All completions were taken.
  Status look_at_peer(std::int64_t now_ns, std::int64_t limit_ns);
  Status arm(WaitSet& set);

  void note_closing() { is_closed_ = true; }
  bool is_closed() const { return is_closed_; }
  // Without queue pairs the NIC neither sends what it has not read yet nor takes what comes.
  void drop() noexcept;
  bool is_dropped() const { return main() == rails_.size(); }
  // The error with what it concerns; the link is dropped.
  Status broken(Status why);
  // The last word, with the number of the next message. Where the peer may still write grants:
  // taken if that word is on its way.
  void close(std::uint64_t next, Mapping&& notes) noexcept;

 private:
  // Takes what is there; `failed` becomes the first failure.
  Status drain(std::size_t rail, Status& failed);
  Status stop(std::size_t rail);
  Status flush_last(std::size_t rail);
  void note_answer(std::size_t rail, WorkTag tag);
  Status look_at(std::size_t rail, std::int64_t now_ns, std::int64_t limit_ns);
  Status give_up(std::size_t rail, Status why);
  Status failure(std::size_t rail, const ibv_wc& completion) const;
  std::string ends_text(std::size_t rail) const;
  std::string_view use_text(const RdmaRail& rail) const;
  std::size_t count_used() const;

  CompletionTaker& taker_;
  std::vector<RdmaRail> rails_;
  const std::shared_ptr<RdmaFarewell> farewell_;
  const std::string toward_;  // "rdma to rank"
  const int peer_;
  bool is_joined_ = false;
  bool is_closed_ = false;         // by the peer
  std::vector<std::size_t> lost_;  // that nobody has asked for
  std::string last_ends_ = "not joined";
};

}  // namespace gyre::transport
