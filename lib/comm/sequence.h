// Sequence: one communicator's calls of a group: collectives one after the other, and beside them
// all sends and receives at once; on a device, after them. It ends when all that was begun has. The
// calling thread runs it, or a stream's entry is one.
#pragma once

#include "lib/comm/communicator.h"

#include <vector>

namespace gyre::comm {

class Sequence final : public Resumable {
 public:
  explicit Sequence(Communicator& communicator) : communicator_(communicator) {}
  void add(const Work& work);
  Communicator& communicator() { return communicator_; }

  bool advance() override;
  void expire() override;
  void break_off(const Status& why) override { (void)communicator_.fail(why); }
  bool arm(WaitSet& set) override;
  void disarm() override;
  void tell_wait() override;
  std::int64_t limit_ns() const override;

 private:
  void begin();
  void begin_next();
  void begin_exchange();
  void fail(const Status& why);
  bool advance_part(Resumable*& part);

  Communicator& communicator_;
  std::vector<Work> works_;  // collectives, joins and splits; none is added once it has begun
  std::vector<Transfer> transfers_;
  Request exchanged_;  // all of them
  std::size_t next_ = 0;
  bool begun_ = false;
  Resumable* current_ = nullptr;
  Resumable* exchange_ = nullptr;
  Status failure_;  // of the first part that failed
};

}  // namespace gyre::comm
