// HostStream: a queue of operations, callbacks and waits, carried out in order. The process's one
// progress thread (StreamWorker) advances the heads of all queues in turn; it starts with the first
// queued entry.
#pragma once

#include "lib/base/handle_table.h"
#include "lib/comm/communicator.h"

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace gyre::comm {

// What a stream's callback gets: the first error since the last synchronize.
using StreamCallback = std::function<void(const Status&)>;

// Reached when all that was queued before has been done.
struct StreamMark {
  std::atomic<bool> reached{false};
};

class HostStream {
 public:
  // Work on one communicator.
  struct Part {
    HandleTable<Communicator>::Pin communicator;  // none: it is done
    Work work;
    std::uint64_t ticket = 0;    // not of sends and receives alone
    std::uint64_t transfer = 0;  // of what has some
    Resumable* begun = nullptr;  // once its turn has come: what to advance
    std::int64_t begun_ns = 0;
  };
  struct Entry {
    std::vector<Part> parts;               // of one group: side by side
    StreamCallback callback;               // or a callback
    std::shared_ptr<StreamMark> wait_for;  // or a wait
    std::shared_ptr<StreamMark> mark;      // or a mark
  };

  std::mutex mutex;  // of everything here
  std::deque<Entry> entries;
  Status first_error;
  std::atomic<std::uint32_t> done{0};  // futex word: changes with each entry that was done
};

class StreamWorker {
 public:
  ~StreamWorker();
  // Takes its place in the order of the stream.
  void queue(HandleTable<HostStream>::Pin stream, HostStream::Entry entry);
  // One group's work: an entry for each stream. Parts take their places in the order of their
  // communicator as they come here.
  struct Placed {
    HandleTable<HostStream>::Pin stream;
    HostStream::Part part;
  };
  void queue(std::vector<Placed> placed);
  // The stream will be queued on no more and is empty.
  void forget(HostStream& stream);

 private:
  // Held while a turn serves it, too: its owner may destroy it as soon as it is empty.
  using Served = std::shared_ptr<HandleTable<HostStream>::Pin>;
  void serve();
  struct Blocked {
    Resumable* operation;
    std::int64_t since_ns;
  };
  bool may_begin(const HostStream::Part& part) const;
  bool serve_head(HostStream& stream, std::vector<Blocked>& blocked);
  bool serve_part(HostStream& stream, HostStream::Part& part, std::vector<Blocked>& blocked);
  bool serve_all(std::vector<Blocked>& blocked);
  bool stopped();
  void finish_part(HostStream& stream, HostStream::Part& part, Status outcome);
  void finish_head(HostStream& stream);
  void push(HandleTable<HostStream>::Pin stream, HostStream::Entry entry);  // mutex_ is held
  void announce();

  std::mutex mutex_;  // of streams_, stop_, started_
  std::vector<Served> streams_;
  bool stop_ = false;
  std::atomic<std::uint32_t> queued_{0};  // futex word: changes with each queued entry
  std::thread thread_;
};

}  // namespace gyre::comm
