// Lane: a communicator, its operations that are under way, and the two ways to carry one out.
#pragma once

#include "tools/pytorch/src/communicator.h"
#include "tools/pytorch/src/completions.h"
#include "tools/pytorch/src/work.h"

#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <unordered_set>
#include <vector>

namespace gyre_torch {

using Tensors = std::vector<at::Tensor>;

// One operation before it is carried out.
struct Operation {
  Description description;
  Tensors inputs, outputs;  // the user's; an output that is its own input stands in `outputs` alone
  // Gyre's calls for it, as one group. Results may land in memory of their own, which `deliver`
  // copies out. Both hold the tensors that they use.
  std::function<gyreResult_t(gyreComm_t, gyreStream_t)> call;
  std::function<void()> deliver;
  std::shared_ptr<int> source;  // where Gyre tells from whom a receive was
};
// All of them as one; their descriptions and sources are not.
Operation together(std::vector<Operation> parts);

class Lane {
 public:
  // Who goes on with what was begun: Gyre's progress thread, or callers, in `go_on`.
  enum class Drive { progress_thread, callers };
  explicit Lane(std::unique_ptr<Communicator> communicator, Drive drive = Drive::progress_thread);
  // Ends what is under way if it does not end by itself within a few seconds.
  ~Lane();
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  Communicator& communicator() { return *communicator_; }
  // To be held from an operation's number to its begin, so that both are in one order.
  std::mutex& order() { return order_; }
  // By the calling thread; it is over on return. Throws if it fails.
  c10::intrusive_ptr<HostWork> carry_out(Operation operation);
  // On a host stream: after those before it, or side by side with them.
  enum class Order { in_line, side_by_side };
  c10::intrusive_ptr<HostWork> begin(Operation operation, Order order);
  // Returns when what was begun in line is over, and does it where callers drive.
  void go_on();
  // Waits for what is under way; false if `most` was not enough. Other threads may go on with it.
  bool drain(std::chrono::milliseconds most);
  // With a word to the user, as what is under way will not have happened.
  void abort_at_end();
  // How long what is under way may take when its group or process goes; then it is aborted.
  static constexpr std::chrono::milliseconds patience{5000};

 private:
  struct UnderWay {
    c10::intrusive_ptr<HostWork> work;
    gyreStream_t stream = nullptr;  // its own; null: the lane's
  };
  using Place = std::list<UnderWay>::iterator;
  // Those of them that have ended, until a caller's thread forgets them. Who ends the last may
  // outlive the lane.
  struct Ended {
    std::mutex mutex;
    std::vector<Place> places;
  };
  struct Ending;
  static void on_end(gyreStream_t stream, gyreResult_t status, void* user);
  gyreStream_t make_stream() const;
  gyreStream_t free_stream();
  void give_back(gyreStream_t stream);
  void forget_ended();
  bool has_ended();
  gyreResult_t call(const Operation& operation, gyreStream_t stream) const;
  c10::intrusive_ptr<HostWork> work_for(Operation& operation) const;

  const std::unique_ptr<Communicator> communicator_;
  const Drive drive_;
  std::mutex order_;  // and of what follows
  gyreStream_t in_line_ = nullptr;
  std::unordered_set<gyreStream_t> streams_;  // all, and those that no operation has
  std::vector<gyreStream_t> free_;
  std::list<UnderWay> under_way_;  // and until it is forgotten, what has ended
  const std::shared_ptr<Ended> ended_ = std::make_shared<Ended>();
};

}  // namespace gyre_torch
