// RdmaLink: what both ends of a connection do alike: they join, poll, watch for the peer's silence,
// say what failed and close. Used by one thread at a time.
#pragma once

#include "transports/rdma/farewell.h"
#include "transports/rdma/queues.h"

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace gyre::transport {

class RdmaLink {
 public:
  RdmaLink(std::unique_ptr<RdmaQueues> queues, std::shared_ptr<RdmaFarewell> farewell,
           std::string_view toward, int peer)
      : queues_(std::move(queues)), farewell_(std::move(farewell)), toward_(toward), peer_(peer) {}

  RdmaQueues& queues() { return *queues_; }
  const RdmaQueues& queues() const { return *queues_; }
  Status join(const RdmaAddress& peer);
  bool is_joined() const { return is_joined_; }

  // Calls `on_success(completion, tag)` for each completion there is. One that tells of a failure
  // is an error; none if the peer has closed, as its queue pairs may be gone.
  template <typename OnSuccess>
  Status take_completions(OnSuccess&& on_success) {
    for (;;) {
      GYRE_ASSIGN(const std::span<const ibv_wc> found, queues_->poll());
      for (const ibv_wc& completion : found) {
        const WorkTag tag = WorkTag::of(completion.wr_id);
        if (completion.status != IBV_WC_SUCCESS) {
          if (is_closed_) continue;
          return failure(completion);
        }
        is_heard_ = true;
        if (tag.kind == WorkKind::probe) is_probing_ = false;
        GYRE_TRY(on_success(completion, tag));
      }
      if (found.empty()) return {};
    }
  }

  void note_closing() { is_closed_ = true; }
  bool is_closed() const { return is_closed_; }
  // An error if the peer's NIC has not answered for so long. It is asked by an empty write. All
  // completions are taken.
  Status look_at_peer(std::int64_t now_ns, std::int64_t limit_ns);
  // The error with what it concerns; the queues are of no use afterwards.
  Status broken(Status why);
  // The last word, with the number of the next message.
  void close(std::uint64_t next);

 private:
  Status failure(const ibv_wc& completion) const;
  std::string ends_text() const;

  std::unique_ptr<RdmaQueues> queues_;  // null after `broken` and `close`
  const std::shared_ptr<RdmaFarewell> farewell_;
  const std::string toward_;  // "rdma to rank"
  const int peer_;
  RdmaAddress there_;
  bool is_joined_ = false;
  bool is_closed_ = false;  // by the peer
  bool is_probing_ = false;
  bool is_heard_ = false;  // anything has completed since the last look
  std::int64_t asked_ns_ = 0;
};

}  // namespace gyre::transport
