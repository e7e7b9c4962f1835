// DeviceLinks: the memory through which this rank's kernels and a peer's send to each other. Each
// rank brings its end on its own GPU; threads of one process hand theirs over by a one-time ticket,
// so that both hold what both use. Opening a plan is resumable and ends when all ranks have opened
// it: from then on nobody takes device memory for it, while others' kernels already wait.
#pragma once

#include "lib/base/wait.h"
#include "lib/bootstrap/control.h"
#include "lib/exec/cuda_executor.h"
#include "lib/transport/endpoint.h"

#include <map>
#include <memory>
#include <utility>
#include <vector>

namespace gyre::comm {

class DeviceLinks {
 public:
  DeviceLinks(int rank, int size, bootstrap::Membership& membership, trust::TicketBook& tickets,
              exec::CudaExecutor& executor)
      : rank_(rank), size_(size), membership_(membership), tickets_(tickets), executor_(executor) {}

  // Begins to open what `plan` needs and is not there.
  Status open(const plan::Plan& plan);
  // Goes on; true once all ranks have opened it.
  Result<bool> advance(bool& moved);
  exec::DeviceLink link(plan::Link link) const;

  // Links for sends and receives, of as many channels; open when the peer has begun to open its
  // own, since nobody else has to know of it.
  Status open_pair(int peer, std::uint32_t channels);
  Status advance_pairs(bool& moved);
  bool pair_is_open(int peer) const;
  exec::DeviceLink pair(int peer) const { return link({peer, pair_channel}); }

  Blocked blocked() const;

 private:
  using Key = std::pair<int, int>;         // peer, channel of the plan
  static constexpr int pair_channel = -1;  // of none
  // What one rank brings. The other holds it too.
  struct End {
    std::shared_ptr<std::byte> memory;
    std::shared_ptr<const exec::CudaDevice> device;
    std::uint64_t bytes = 0;
  };
  struct Joint {
    std::shared_ptr<End> own, peers;
    transport::IssuedTicket ticket;
  };
  Status open_one(const Key& key, std::uint64_t bytes);
  Status take(const Key& key, Joint& joint, const bootstrap::Letter& letter);
  bool meet(bool& moved);

  const int rank_;
  const int size_;
  bootstrap::Membership& membership_;
  trust::TicketBook& tickets_;
  exec::CudaExecutor& executor_;
  std::map<Key, Joint> joints_;
  std::vector<Key> opening_;
  std::uint64_t plans_opened_ = 0;
  int next_to_meet_ = 0;  // rank 0 hears of all, then tells all; the others tell and hear it
  bool told_ = false;
};

}  // namespace gyre::comm
