// Exchange: sends and receives of one communicator that go on together: one call, or all of a
// group. Sends to one peer leave in their order, those to different peers side by side.
#pragma once

#include "lib/bootstrap/control.h"
#include "lib/comm/links.h"
#include "lib/comm/mailbox.h"
#include "lib/comm/transfer.h"

#include <map>
#include <memory>
#include <span>
#include <vector>

namespace gyre::comm {

class Exchange {
 public:
  // Both outlive it.
  Exchange(Links& links, int rank, int size) : links_(links), rank_(rank), size_(size) {}

  Status begin(std::span<const Transfer> transfers);
  // True in `done` when all have come and gone.
  Status advance(bool& moved, bool& done);
  Blocked blocked();
  // How many are still to be done, for errors.
  std::size_t pending() const;
  bool arm(WaitSet& set);
  void disarm();

 private:
  struct PendingSend {
    const Transfer* transfer = nullptr;
    std::uint64_t sent = 0;
    bool begun = false;
    bool done = false;
  };
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
  std::vector<PendingReceive> receives_;
  std::vector<int> peers_;            // that these transfers are with, each once
  std::map<int, Mailbox> mailboxes_;  // by peer, from the first message on
  std::uint64_t kept_bytes_ = 0;
};

}  // namespace gyre::comm
