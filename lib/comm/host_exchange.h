// HostExchange: sends and receives of host memory. Sends to one peer leave in the order in which
// they were begun, those to different peers side by side; receives are matched in their order.
#pragma once

#include "lib/bootstrap/control.h"
#include "lib/comm/exchange.h"
#include "lib/comm/links.h"
#include "lib/comm/mailbox.h"
#include "lib/comm/transfer.h"

#include <map>
#include <memory>
#include <span>
#include <vector>

namespace gyre::comm {

class HostExchange final : public Exchange {
 public:
  // Both outlive it.
  HostExchange(Links& links, int rank, int size) : links_(links), rank_(rank), size_(size) {}

  Status begin(std::span<const Transfer> batch) override;
  Status advance(bool& moved) override;
  bool is_done(std::span<const Transfer> batch) const override;
  Blocked blocked(std::span<const Transfer> batch) override;
  std::size_t pending(std::span<const Transfer> batch) const override;
  void end(std::span<const Transfer> batch) override;
  bool arm(WaitSet& set) override;
  void disarm() override;

 private:
  struct PendingSend {
    const Transfer* transfer = nullptr;
    std::uint64_t sent = 0;
    bool begun = false;
    bool done = false;
    std::uint64_t tail = 0;  // of its last slot, once it is done
  };
  Status advance_all(bool& moved);
  void find_peers();
  bool is_gone(const PendingSend& send) const;
  bool takes_from_anyone() const;
  // Whether a receive may take from it, or has to.
  bool awaits(int peer) const;
  bool depends_on(int peer) const;
  Mailbox& mailbox(int peer);
  Status advance_sends(bool& moved);
  Status advance_receives(bool& moved);
  void ship(PendingSend& send, exec::SendPort& port, bool& moved) const;

  Links& links_;
  const int rank_, size_;
  std::vector<PendingSend> sends_;
  std::vector<PendingReceiveRef> receives_;
  std::vector<int> peers_;            // that these transfers are with, each once
  Status failed_;                     // nothing goes on after an error
  std::map<int, Mailbox> mailboxes_;  // by peer, from the first message on
  std::uint64_t kept_bytes_ = 0;
};

}  // namespace gyre::comm
