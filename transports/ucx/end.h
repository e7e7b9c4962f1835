// UcpEnd: what the sending and the receiving end of a connection are alike. Each has a private
// fifo, a link by which notices find it, and the connection of UCX with the peer's engine. An error
// is for good.
#pragma once

#include "lib/transport/mapped.h"
#include "transports/ucx/engine.h"
#include "transports/ucx/local_process.h"

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace gyre::transport {

class UcpEnd : public Connection, protected UcpSink {
 public:
  std::uint64_t link() const { return link_; }

  bool ready() const final { return is_ready_; }
  const FifoView& fifo() const final { return memory_->view; }
  Status progress() final;
  bool needs_progress() const final { return true; }
  void arm(WaitSet& set) override;
  Status look_at_peer(std::int64_t now_ns, std::int64_t limit_ns) final;
  void disarm() final {}
  bool same_address_space() const final { return false; }

 protected:
  // `toward`: "ucx to rank". `listener`: of the peer's process, if it is on this host.
  UcpEnd(std::string_view toward, int peer_rank, std::shared_ptr<UcpEngine> engine,
         std::shared_ptr<FifoMemory> memory, std::string listener);
  // From now on notices find this end.
  Status join_engine();
  // What can be done now. Whoever calls it holds the engine.
  virtual Status turn() = 0;
  // Whether all that this end has to do can be done at once. So UCX is not asked for news, which
  // costs system calls. Whoever calls it holds the engine.
  virtual bool needs_no_news() const { return false; }
  Status look_at_host(std::int64_t now_ns, std::int64_t limit_ns);
  void fail(Status status);
  UcpNotice notice(UcpNoticeKind kind, std::uint64_t number = 0) const;

  const std::string_view toward_;
  const int peer_rank_;
  const std::shared_ptr<UcpEngine> engine_;
  const std::shared_ptr<FifoMemory> memory_;
  LocalProcess process_;           // the peer's
  std::shared_ptr<UcpPeer> peer_;  // null: not connected yet
  std::uint64_t link_ = 0;         // of this end
  std::uint64_t peers_link_ = 0;   // of the other one, once it is known
  std::uint64_t seen_turns_ = 0;   // of the engine
  bool is_ready_ = false;
  bool is_closed_ = false;  // by the peer. Written by whoever holds the engine.
  Status error_;
};

}  // namespace gyre::transport
