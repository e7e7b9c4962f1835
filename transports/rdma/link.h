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
  loaded::VerbsMemory slots, notes;    // this end's
  std::unique_ptr<RdmaQueues> queues;  // null: not used, or lost
  RdmaAddress there{};
  std::uint32_t unfinished = 0;  // requests of messages that have not completed
  bool is_probing = false;
  bool is_heard = false;  // anything has completed since the last look
  std::int64_t asked_ns = 0;
};

class RdmaLink {
 public:
  RdmaLink(std::vector<RdmaRail> rails, std::shared_ptr<RdmaFarewell> farewell,
           std::string_view toward, int peer)
      : rails_(std::move(rails)), farewell_(std::move(farewell)), toward_(toward), peer_(peer) {}

  std::vector<RdmaRail>& rails() { return rails_; }
  const std::vector<RdmaRail>& rails() const { return rails_; }
  // The first rail in use: notes and notices go there. Their number if there is none.
  std::size_t main() const;
  // Each rail with the peer's; the link is without those that the peer does not use.
  Status join(const std::vector<std::optional<RdmaAddress>>& there);
  bool is_joined() const { return is_joined_; }

  // Calls `take(completion, tag, rail)` for each completion there is, which returns a Status and
  // loses no rail. A rail with a completion that tells of a failure is lost. None counts once the
  // peer has closed, as its queue pairs may be gone.
  template <typename Take>
  Status take_completions(Take& take) {
    for (std::size_t rail = 0; rail < rails_.size(); ++rail) {
      if (rails_[rail].queues == nullptr) continue;
      Status failed;
      GYRE_TRY(drain(rail, take, failed));
      if (!failed.ok() && !is_closed_) GYRE_TRY(lose(rail, std::move(failed), take));
    }
    return {};
  }
  // Goes on without a rail. What the peer's NIC was told to be here is taken first. The last rail's
  // loss is an error.
  template <typename Take>
  Status lose(std::size_t rail, Status why, Take& take) {
    if (rails_[rail].queues == nullptr) return {};
    rails_[rail].queues->stop();
    Status flushed;
    GYRE_TRY(drain(rail, take, flushed));
    return give_up(rail, std::move(why));
  }
  // A rail that was lost since the last call.
  std::optional<std::size_t> next_lost();
  // Posts over the main rail, or over the next one if it fails.
  template <typename Take>
  Status tell(WorkKind kind, const Notice& notice, Take& take) {
    for (;;) {
      const std::size_t rail = main();
      Status posted = rails_[rail].queues->post_notice(kind, notice);
      if (posted.ok()) return posted;
      GYRE_TRY(lose(rail, std::move(posted), take));
    }
  }
  // A rail whose NIC at the peer's end has not answered for so long is lost. It is asked by an
  // empty write. All completions were taken.
  template <typename Take>
  Status look_at_peer(std::int64_t now_ns, std::int64_t limit_ns, Take& take) {
    for (std::size_t rail = 0; rail < rails_.size() && is_joined_ && !is_closed_; ++rail) {
      if (rails_[rail].queues == nullptr) continue;
      Status silent = look_at(rail, now_ns, limit_ns);
      if (!silent.ok()) GYRE_TRY(lose(rail, std::move(silent), take));
    }
    return {};
  }
  Status arm(WaitSet& set);

  void note_closing() { is_closed_ = true; }
  bool is_closed() const { return is_closed_; }
  // The error with what it concerns; no rail is of use afterwards.
  Status broken(Status why);
  // The last word, with the number of the next message.
  void close(std::uint64_t next);

 private:
  // Takes what is there; `failed` becomes the first failure.
  template <typename Take>
  Status drain(std::size_t rail, Take& take, Status& failed) {
    for (;;) {
      GYRE_ASSIGN(const std::span<const ibv_wc> found, rails_[rail].queues->poll());
      for (const ibv_wc& completion : found) {
        if (completion.status != IBV_WC_SUCCESS) {
          if (failed.ok()) failed = failure(rail, completion);
          continue;
        }
        const WorkTag tag = WorkTag::of(completion.wr_id);
        note_answer(rail, tag);
        GYRE_TRY(take(completion, tag, rail));
      }
      if (found.empty()) return {};
    }
  }
  void note_answer(std::size_t rail, WorkTag tag) {
    rails_[rail].is_heard = true;
    if (tag.kind == WorkKind::probe) rails_[rail].is_probing = false;
  }
  Status look_at(std::size_t rail, std::int64_t now_ns, std::int64_t limit_ns);
  Status give_up(std::size_t rail, Status why);
  Status failure(std::size_t rail, const ibv_wc& completion) const;
  std::string ends_text(std::size_t rail) const;
  std::size_t count_used() const;

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
