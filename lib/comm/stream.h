// HostStream: a queue of operations, callbacks and waits, carried out in order. The process's one
// progress thread (StreamWorker) advances the heads of all queues in turn. It starts with the first
// queued entry. A stream that callers drive advances instead in calls that wait, and once when
// something is queued. A thread that advances a stream or a communicator is its driver meanwhile;
// other threads leave it alone.
#pragma once

#include "lib/base/handle_table.h"
#include "lib/base/service_thread.h"
#include "lib/comm/communicator.h"

#include <atomic>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <span>
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
  struct StreamPart {
    HandleTable<Communicator>::Pin communicator;  // none: it is done
    Work work;
    std::uint64_t ticket = 0;    // not of sends and receives alone
    std::uint64_t transfer = 0;  // of what has some
    bool is_counted = false;     // in CallOrder::begun, until it is done
    Resumable* begun = nullptr;  // once its turn has come: what to advance
    std::int64_t begun_ns = 0;
  };
  struct QueuedWork {
    std::vector<StreamPart> parts;         // of one group: side by side
    StreamCallback callback;               // or a callback
    std::shared_ptr<StreamMark> wait_for;  // or a wait
    std::shared_ptr<StreamMark> mark;      // or a mark
  };

  explicit HostStream(bool callers_drive = false) : by_caller(callers_drive) {}

  const bool by_caller;  // not by the progress thread
  std::mutex mutex;      // of what follows
  std::list<QueuedWork> entries;
  Status first_error;
  std::atomic<std::uint32_t> done{0};  // futex word: changes with each entry that was done
  DriverSeat driver;
};

class StreamWorker {
 public:
  ~StreamWorker();
  // The process ends: the thread stops, unless it is the one that ends it or is busy for longer.
  // Nothing is queued from here; what is queued on the thread's streams stays so.
  void end(std::int64_t max_ns);
  // Takes its place in the order of the stream. If it fails (no thread can be started, no memory),
  // nothing has happened; so with the next.
  Status queue(HandleTable<HostStream>::Pin stream, HostStream::QueuedWork entry);
  // One group's work: an entry for each stream. Parts take their places in the order of their
  // communicator as they come here.
  struct StreamAssignment {
    HandleTable<HostStream>::Pin stream;
    HostStream::StreamPart part;
  };
  Status queue(std::vector<StreamAssignment> placed);
  // Returns when all are finished; meanwhile goes on with the streams that callers drive.
  void run(std::span<Resumable* const> all, const WaitPolicy& policy);
  // The same until `done`, which changes with `word`; an error if the process ends before that.
  Status run_until(std::atomic<std::uint32_t>& word, std::function<bool()> done,
                   const WaitPolicy& policy);
  // Nothing more will be done on streams, and nothing is being done.
  bool is_over() const;
  // Whether callers have such streams to go on with.
  bool has_work_of_callers() const { return for_callers_.load(std::memory_order_relaxed) != 0; }
  // One turn of a stream that callers drive; of another one, nothing.
  void give_turn(HostStream& stream);
  // One turn of all of those.
  void give_turns();
  // The stream will be queued on no more and is empty.
  void forget(HostStream& stream);

 private:
  // Held while a turn serves it, too: its owner may destroy it as soon as it is empty.
  using StreamPin = std::shared_ptr<HandleTable<HostStream>::Pin>;
  // What one thread's turn found blocked. It is the driver of these until `leave`.
  struct Turn {
    struct BlockedOperation {
      Resumable* operation;
      std::int64_t since_ns;
      Communicator* communicator;
      HostStream* stream;
    };
    std::vector<BlockedOperation> blocked;
    bool all_empty = true;          // the streams that it came to
    const bool comes_again = true;  // soon: whoever has a seat that it wants lets it have a turn

    ~Turn() { leave(); }
    bool drive(HostStream& stream) const;
    bool drive(Communicator& communicator) const;
    bool blocks(const Communicator& communicator) const;
    bool arm(WaitSet& set) const;
    void disarm() const;
    void tell_wait() const;
    // Ends what has waited too long.
    void expire() const;
    void leave();
    void make_room();  // for one more that is blocked
  };
  class CallersTask;
  class CallersTurns;
  void serve();
  void serve_unless_forked();
  std::vector<StreamPin> streams(bool by_caller);
  bool may_begin(const HostStream::StreamPart& part) const;
  bool serve_head(HostStream& stream, Turn& turn);
  bool serve_parts(HostStream& stream, HostStream::QueuedWork& head, Turn& turn);
  bool serve_part(HostStream& stream, HostStream::StreamPart& part, Turn& turn);
  bool serve_all(const std::vector<StreamPin>& streams, Turn& turn);
  // True, as something moved.
  bool finish_part(HostStream& stream, HostStream::StreamPart& part, Status outcome,
                   const Turn& turn);
  void finish_head(HostStream& stream);
  // An entry of a stream, made before it is queued: queueing cannot fail.
  struct PreparedEntry {
    StreamPin stream;
    std::list<HostStream::QueuedWork> entry;
  };
  // mutex_ is held, here and in the next two.
  Result<PreparedEntry> make(HandleTable<HostStream>::Pin stream, HostStream::QueuedWork entry);
  Status place(std::vector<StreamAssignment>& placed, std::vector<PreparedEntry>& made);
  void push(PreparedEntry& made);
  void announce(const std::vector<PreparedEntry>& queued);

  std::mutex mutex_;  // of streams_, thread_
  std::vector<StreamPin> streams_;
  std::atomic<bool> stop_{false};
  std::atomic<int> advancing_{0};              // threads that are going on with a stream's work
  std::atomic<bool> exits_{false};             // the thread has called exit()
  std::atomic<std::uint32_t> queued_{0};       // futex word: changes with each queued entry
  std::atomic<std::uint32_t> for_callers_{0};  // entries that callers are to go on with
  ServiceThread thread_;
};

}  // namespace gyre::comm
