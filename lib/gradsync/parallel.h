// Parallel: several threads of one process work on batches of one model. Each thread has its own
// gradients, which are summed into the caller's. The threads wait between two batches.
#pragma once

#include "lib/gradsync/model_gradients.h"

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

namespace gyre::gradsync {

class Parallel {
 public:
  using Body = std::function<Status(const gyreGradPart_t&)>;

  static Result<std::unique_ptr<Parallel>> create(int threads, std::vector<Tensor> tensors);
  ~Parallel();
  Parallel(const Parallel&) = delete;
  Parallel& operator=(const Parallel&) = delete;

  // The caller is thread 0.
  Status step(std::size_t samples, const Body& body);

 private:
  // What one thread has.
  struct Part {
    OwnedCommunicator comm;
    ModelGradients gradients;
    std::vector<void*> places;  // of them, by tensor
    Status status;              // of the last thing it did
  };
  // What all threads do next.
  enum class ThreadCommand : std::uint8_t { nothing, joining, computing, reducing, leaving };

  Parallel(int threads, std::vector<Tensor> tensors);
  Status open();
  Status all_do(ThreadCommand what);
  void serve(std::size_t thread);
  void act(std::size_t thread, ThreadCommand what);
  Status join(std::size_t thread);
  Status compute(std::size_t thread);
  Status reduce(const Part& part) const;

  const std::vector<Tensor> tensors_;
  std::vector<Part> parts_;  // by thread; each its thread's own while it acts
  gyreUniqueId id_{};
  std::atomic<bool> busy_{false};  // with a step
  // Of the batch; written between two acts.
  std::size_t samples_ = 0;
  const Body* body_ = nullptr;
  Status broken_;  // for good

  std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  std::uint64_t act_ = 0;  // its number
  ThreadCommand doing_ = ThreadCommand::nothing;
  std::size_t acting_ = 0;  // threads that have not done it
  std::vector<std::thread> threads_;
};

}  // namespace gyre::gradsync
