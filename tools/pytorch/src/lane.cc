#include "tools/pytorch/src/lane.h"

#include <thread>

namespace gyre_torch {
namespace {

// How long what is under way may take when its group goes; then it is aborted.
constexpr std::chrono::milliseconds farewell{5000};

Tensors all_of(const Operation& operation) {
  Tensors all = operation.inputs;
  all.insert(all.end(), operation.outputs.begin(), operation.outputs.end());
  return all;
}

gyreStream_t make_stream() {
  gyreStream_t stream = nullptr;
  TORCH_CHECK(gyreStreamCreate(&stream) == gyreSuccess, "gyre: ", gyreGetLastError(nullptr));
  return stream;
}

}  // namespace

// What a stream's callback knows of the operation before it.
struct Lane::Ending {
  HostWork* work;  // the lane keeps it until it is over
  std::function<void()> deliver;
  std::function<gyreResult_t(gyreComm_t, gyreStream_t)> call;  // holds what Gyre uses
  std::shared_ptr<Completions> completions;
  const Communicator* communicator;
};

Lane::Lane(std::unique_ptr<Communicator> communicator)
    : communicator_(std::move(communicator)), in_line_(make_stream()), streams_{in_line_} {}

Lane::~Lane() {
  if (!drain(farewell)) {
    TORCH_WARN("gyre: rank ", communicator_->membership().rank, ": the process group ends while ",
               under_way_.front().work->description().text, " is under way: it is aborted");
    (void)gyreCommAbort(communicator_->get());
    (void)drain(farewell);
  }
  for (gyreStream_t stream : streams_) (void)gyreStreamDestroy(stream);
  forget_ended();
}

gyreResult_t Lane::call(const Operation& operation, gyreStream_t stream) const {
  gyreResult_t begun = gyreGroupStart();
  if (begun != gyreSuccess) return begun;
  const gyreResult_t called = operation.call(communicator_->get(), stream);
  const gyreResult_t ended = gyreGroupEnd();
  return called != gyreSuccess ? called : ended;
}

c10::intrusive_ptr<HostWork> Lane::work_for(Operation& operation) const {
  return c10::make_intrusive<HostWork>(communicator_->membership().rank,
                                       std::move(operation.description), all_of(operation),
                                       operation.outputs, operation.source);
}

c10::intrusive_ptr<HostWork> Lane::carry_out(Operation operation) {
  forget_ended();
  auto work = work_for(operation);
  communicator_->check(call(operation, nullptr), work->description().text);
  if (operation.deliver) operation.deliver();
  work->end_here();
  return work;
}

c10::intrusive_ptr<HostWork> Lane::begin(Operation operation, Order order) {
  forget_ended();
  auto work = work_for(operation);
  const bool has_own = order == Order::side_by_side;
  gyreStream_t stream = has_own ? free_stream() : in_line_;
  const gyreResult_t called = call(operation, stream);
  if (called != gyreSuccess) {
    if (has_own) free_.push_back(stream);
    communicator_->check(called, work->description().text);
  }
  under_way_.push_back({work, has_own ? stream : nullptr});
  auto* ending = new Ending{work.get(), std::move(operation.deliver), std::move(operation.call),
                            completions_, communicator_.get()};
  if (gyreStreamAddCallback(stream, on_end, ending) != gyreSuccess) {
    delete ending;
    TORCH_CHECK(false, "gyre: ", gyreGetLastError(nullptr));
  }
  return work;
}

void Lane::on_end(gyreStream_t, gyreResult_t status, void* user) {
  const std::unique_ptr<Ending> ending(static_cast<Ending*>(user));
  std::exception_ptr why;
  if (status != gyreSuccess) {
    try {
      throw_error(ending->communicator->membership(), status, ending->work->description().text,
                  ending->communicator->last_error());
    } catch (...) {
      why = std::current_exception();
    }
  }
  ending->work->end(why, std::move(ending->deliver), ending->completions);
}

gyreStream_t Lane::free_stream() {
  if (free_.empty()) {
    streams_.push_back(make_stream());
    return streams_.back();
  }
  gyreStream_t stream = free_.back();
  free_.pop_back();
  return stream;
}

void Lane::forget_ended() {
  for (auto it = under_way_.begin(); it != under_way_.end();) {
    if (!it->work->is_over()) {
      ++it;
      continue;
    }
    if (it->stream != nullptr) free_.push_back(it->stream);
    it = under_way_.erase(it);
  }
}

bool Lane::drain(std::chrono::milliseconds most) {
  const auto until = std::chrono::steady_clock::now() + most;
  for (forget_ended(); !under_way_.empty(); forget_ended()) {
    if (std::chrono::steady_clock::now() >= until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

}  // namespace gyre_torch
