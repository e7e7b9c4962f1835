// A connection whose two ends see the same memory, and that memory. The executor's stores are the
// transfer. Used by self, by shm and, as each end's private fifo, by tcp.
#pragma once

#include "lib/base/owned.h"
#include "lib/transport/endpoint.h"
#include "lib/transport/transport.h"

#include <memory>

namespace gyre::transport {

// Held by every end that uses it; unmapped with the last.
struct FifoMemory {
  Mapping mapping;
  FifoView view;
};

// Refuses a shape that no fifo can have: counts that are not powers of two, slots that are not a
// multiple of 128, or more than 64 GiB in all.
Status check_shape(const FifoShape& shape);
// Zeroed memory of this process alone. Pages cost nothing until they are touched.
Result<std::shared_ptr<FifoMemory>> private_fifo(const FifoShape& shape);

class MappedConnection final : public Connection {
 public:
  enum class Scope { one_process, two_processes };

  // `ticket` is what a receiving end issued for its memory; it is withdrawn with the connection.
  MappedConnection(std::shared_ptr<FifoMemory> memory, Direction direction, Scope sharing,
                   IssuedTicket ticket = {});

  bool ready() const override { return true; }
  const FifoView& fifo() const override { return memory_->view; }
  Status progress() override { return {}; }
  bool flushed() const override { return true; }
  bool needs_progress() const override { return false; }
  void arm(WaitSet& set) override;
  void disarm() override;
  bool same_address_space() const override { return sharing_ == Scope::one_process; }

 private:
  const std::shared_ptr<FifoMemory> memory_;
  Bell& bell_;  // where this end sleeps
  const Scope sharing_;
  const IssuedTicket ticket_;
};

// Announces that this thread is about to sleep at `bell`, or takes it back.
void arm_bell(Bell& bell, WaitSet& set);
void disarm_bell(Bell& bell);

}  // namespace gyre::transport
