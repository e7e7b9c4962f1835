#include "tools/pytorch/src/host_comm_queue.h"

#include <algorithm>

namespace gyre_torch {

// What a stream's callback knows of the operation before it.
struct HostCommQueue::EndCallback {
  EndCallback(HostWork* of, const StoreCommunicator* on, OperationIterator at,
              std::shared_ptr<EndedOperations> then)
      : work(of), communicator(on), place(at), ended(std::move(then)) {}
  HostWork* work;  // the queue keeps it until it is over
  const StoreCommunicator* communicator;
  OperationIterator place;
  std::shared_ptr<EndedOperations> ended;
  std::function<void()> deliver;
  std::function<gyreResult_t(gyreComm_t, gyreStream_t)> call;  // holds what Gyre uses
};

HostCommQueue::HostCommQueue(std::unique_ptr<StoreCommunicator> communicator)
    : communicator_(std::move(communicator)), in_line_(make_stream(0)) {}

gyreStream_t HostCommQueue::make_stream(unsigned int flags) {
  gyreStream_t stream = nullptr;
  TORCH_CHECK(gyreStreamCreateWithFlags(&stream, flags) == gyreSuccess,
              "gyre: ", gyreGetLastError(nullptr));
  return *streams_.insert(stream).first;
}

HostCommQueue::~HostCommQueue() {
  if (!communicator_->is_of_this_process()) return;
  // Once the process has shut down, what has not ended will not.
  const bool is_late = CompletionThreads::shared().is_silent();
  if (!is_late && !drain(patience)) {
    abort_at_end();
    drain(patience);
  }
  for (gyreStream_t stream : streams_) (void)gyreStreamDestroy(stream);
  forget_ended();
  // A callback of a future that does not end will touch its work when it does.
  if (!under_way_.empty()) (void)new std::list<PendingOperation>(std::move(under_way_));
  if (!refused_.empty()) (void)new std::list<RefusedCallback>(std::move(refused_));
}

c10::intrusive_ptr<HostWork> HostCommQueue::work_for(Operation& operation) const {
  const GroupMembership& group = communicator_->membership();
  auto work = c10::make_intrusive<HostWork>(group.rank, std::move(operation.description),
                                            std::move(operation.inputs),
                                            std::move(operation.outputs), operation.source);
  work->set_notice(
      group.completions->begin(work->description().type, work->description().sequence));
  return work;
}

WorkPointer HostCommQueue::carry_out(Operation operation) {
  forget_ended();
  auto work = work_for(operation);
  communicator_->check(call(operation, communicator_->get(), nullptr), work->description().text);
  if (operation.deliver) operation.deliver();
  work->end_here();
  return work;
}

WorkPointer HostCommQueue::begin(Operation operation, Order order) {
  if (by_caller_ != nullptr) go_on();  // the thread would wait for it, and nobody go on with it
  return begin_on(order == Order::side_by_side ? nullptr : in_line_, std::move(operation));
}

WorkPointer HostCommQueue::begin_by_caller(Operation operation) {
  if (by_caller_ == nullptr) by_caller_ = make_stream(GYRE_STREAM_BY_CALLER);
  return begin_on(by_caller_, std::move(operation));
}

WorkPointer HostCommQueue::begin_on(gyreStream_t stream, Operation operation) {
  forget_ended();
  CompletionThreads::shared().be_ready();
  auto work = work_for(operation);
  const bool has_own = stream == nullptr;
  if (has_own) stream = free_stream();
  // What may lack memory comes before the call: what it has queued goes on in any case.
  std::list<PendingOperation> pending;
  std::list<RefusedCallback> refused;
  try {
    pending.push_back({work, has_own ? stream : nullptr});
    refused.push_back({stream, std::make_unique<EndCallback>(work.get(), communicator_.get(),
                                                             pending.begin(), ended_)});
    communicator_->check(call(operation, communicator_->get(), stream), work->description().text);
  } catch (...) {
    if (has_own) give_back(stream);
    throw;
  }
  RefusedCallback& callback = refused.front();
  callback.ending->deliver = std::move(operation.deliver);
  callback.ending->call = std::move(operation.call);
  under_way_.splice(under_way_.end(), pending);
  if (queue_callback(callback)) return work;
  const std::string why = gyreGetLastError(nullptr);
  refused_.splice(refused_.end(), refused);
  TORCH_CHECK(false, "gyre: rank ", communicator_->membership().rank, ": ",
              work->description().text, " goes on, and nobody can be told of its end: ", why);
}

// True: from now on it is Gyre's.
bool HostCommQueue::queue_callback(RefusedCallback& one) {
  if (gyreStreamAddCallback(one.stream, on_end, one.ending.get()) != gyreSuccess) return false;
  (void)one.ending.release();
  return true;
}

void HostCommQueue::on_end(gyreStream_t, gyreResult_t status, void* user) noexcept {
  const std::unique_ptr<EndCallback> ending(static_cast<EndCallback*>(user));
  std::exception_ptr why;
  if (status != gyreSuccess) {
    try {
      ending->communicator->fail(status, ending->work->description().text);
    } catch (...) {
      why = std::current_exception();
    }
  }
  // The work has the tensors, too: they are not freed on this thread.
  ending->call = nullptr;
  auto let_go = [ended = std::move(ending->ended), place = ending->place] {
    const std::lock_guard lock(ended->mutex);
    ended->places.push_back(place);
  };
  HostWork* const work = ending->work;
  if (why == nullptr) return work->end(why, std::move(ending->deliver), std::move(let_go));
  // Not by Gyre's thread: a hook may take its time.
  ending->communicator->membership().hooks->call_elsewhere(
      [work, why, let_go = std::move(let_go)]() mutable { work->end(why, {}, std::move(let_go)); });
}

gyreStream_t HostCommQueue::free_stream() {
  if (free_.empty()) return make_stream(0);
  gyreStream_t stream = free_.back();
  free_.pop_back();
  return stream;
}

void HostCommQueue::give_back(gyreStream_t stream) {
  constexpr std::size_t max_free = 64;
  if (free_.size() < max_free) return free_.push_back(stream);
  (void)gyreStreamDestroy(stream);
  streams_.erase(stream);
}

void HostCommQueue::forget_ended() {
  std::erase_if(refused_, queue_callback);
  std::vector<OperationIterator> places;
  {
    const std::lock_guard lock(ended_->mutex);
    places.swap(ended_->places);
  }
  for (const OperationIterator place : places) {
    if (place->stream != nullptr) give_back(place->stream);
    under_way_.erase(place);
  }
}

// What failed has told its work.
void HostCommQueue::go_on() { (void)gyreStreamSynchronize(by_caller_); }

bool HostCommQueue::has_ended() {
  const std::unique_lock lock(order_, std::try_to_lock);
  if (!lock.owns_lock()) return false;
  if (by_caller_ != nullptr) (void)gyreStreamQuery(by_caller_);
  forget_ended();
  return under_way_.empty();
}

void HostCommQueue::abort_at_end() {
  std::string doing = "an operation";
  if (const std::unique_lock lock(order_, std::try_to_lock); lock.owns_lock()) {
    const auto runs = [](const PendingOperation& one) { return !one.work->isCompleted(); };
    const auto first = std::find_if(under_way_.begin(), under_way_.end(), runs);
    if (first == under_way_.end()) return;  // a callback of it is
    doing = first->work->description().text;
  }
  tell_of_abort(*communicator_, doing);
  communicator_->abort();
}

}  // namespace gyre_torch
