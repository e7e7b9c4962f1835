// DeviceHoldings: how many blocks of its GPUs this process's communicators hold, that is, may run
// there at one time. Join infos contain them, so that the next communicator takes no more than is
// left (device_share.h). A communicator holds blocks from the moment it begins to join, first by an
// estimate, until nothing of it can launch any more. Its graphs count.
#pragma once

#include "lib/device/device_streams.h"

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace gyre::comm {

struct DeviceHolding {
  std::string communicator;
  std::uint32_t ranks = 0;   // on the GPU, of all processes
  std::uint32_t blocks = 0;  // of all of them together
  friend bool operator==(const DeviceHolding&, const DeviceHolding&) = default;
};

// Any thread.
class DeviceHoldings {
  struct Book;

 public:
  DeviceHoldings();

  // What of this process is on the GPU.
  struct LocalUse {
    std::uint32_t communicators = 0, ranks = 0, max_ranks = 0;  // of one of them
    bool is_first = false;  // asked for the first time since this communicator began to join
  };

  // One rank's. It gives back with its end at the latest.
  class Claim {
   public:
    Claim(std::shared_ptr<Book> book, std::string uuid, std::string communicator,
          std::shared_ptr<std::atomic<std::uint32_t>> opened)
        : book_(std::move(book)),
          uuid_(std::move(uuid)),
          communicator_(std::move(communicator)),
          opened_(std::move(opened)) {}
    ~Claim();
    Claim(const Claim&) = delete;
    Claim& operator=(const Claim&) = delete;

    // What all ranks of the communicator hold of the GPU, as they have settled it.
    void settle(std::uint32_t ranks, std::uint32_t blocks);
    // Its kernels run no more, whatever becomes of it.
    void give_back();
    // Ranks of the communicator in this process, on any GPU, that have all they ask the driver for.
    // It stays so when some of them leave.
    void note_opened() { opened_->fetch_add(1, std::memory_order_relaxed); }
    std::uint32_t opened() const { return opened_->load(std::memory_order_relaxed); }
    // Of all communicators, this one included.
    std::vector<DeviceHolding> all() const;
    LocalUse here();
    // From now on the rank's calls go there, unless another rank of the communicator, on this GPU
    // and in this process, has a call or a kernel on a stream that waits for that one, or it for
    // the other.
    Status use_stream(int rank, DeviceStreamUse use);
    void note_launch(int rank);  // of the call that was on its way there

   private:
    const std::shared_ptr<Book> book_;
    const std::string uuid_, communicator_;
    bool has_given_back_ = false;                         // the book's mutex
    std::shared_ptr<std::atomic<std::uint32_t>> opened_;  // all claims' of the communicator
  };

  struct ClaimResult {
    std::shared_ptr<Claim> claim;
    std::vector<DeviceHolding> others;  // that were there before
  };
  // What a further communicator may come to hold is estimated from what others do.
  using Estimate = std::uint32_t (*)(std::uint32_t total, const std::vector<DeviceHolding>& others);
  ClaimResult claim(const std::string& uuid, const std::string& communicator, std::uint32_t total,
                    Estimate estimate);

 private:
  struct HoldingEntry {
    DeviceHolding holding;
    std::uint32_t claims = 0;
    bool asked = false;
    std::map<int, DeviceStreamUse> streams;  // by rank
  };
  struct Book {
    std::mutex mutex;
    std::map<std::string, std::map<std::string, HoldingEntry>> by_gpu;        // and communicator
    std::map<std::string, std::weak_ptr<std::atomic<std::uint32_t>>> opened;  // by communicator
  };
  const std::shared_ptr<Book> book_;
};

}  // namespace gyre::comm
