#include "lib/gradsync/parallel.h"

#include "kernels/cpu/elementwise.h"
#include "lib/base/caught.h"
#include "lib/base/thread_start.h"

#include <fmt/core.h>

#include <algorithm>

namespace gyre::gradsync {
Parallel::Parallel(int threads, std::vector<Tensor> tensors)
    : tensors_(std::move(tensors)), parts_(static_cast<std::size_t>(threads)) {}

Result<std::unique_ptr<Parallel>> Parallel::create(int threads, std::vector<Tensor> tensors) {
  std::unique_ptr<Parallel> made(new Parallel(threads, std::move(tensors)));
  GYRE_TRY(made->open());
  return made;
}

Status Parallel::open() {
  for (Part& part : parts_) {
    GYRE_ASSIGN(part.gradients, ModelGradients::make(tensors_));
    part.places.resize(tensors_.size());
    for (const LiveBucket& bucket : part.gradients.buckets())
      for (const Slice& slice : bucket.plan().slices)
        part.places[slice.tensor] = bucket.view(slice);
  }
  GYRE_TRY(checked(gyreGetUniqueId(&id_)));
  threads_.reserve(parts_.size());
  for (std::size_t thread = 1; thread < parts_.size(); ++thread) {
    std::thread started;
    GYRE_TRY(start_thread(started, "gyre-part", [this, thread] { serve(thread); }));
    threads_.push_back(std::move(started));
  }
  return all_do(ThreadCommand::joining);
}

Parallel::~Parallel() {
  (void)all_do(ThreadCommand::leaving);
  for (std::thread& thread : threads_) thread.join();
}

// A body that called it would wait for itself, and a second thread is a mistake anyhow.
Status Parallel::step(std::size_t samples, const Body& body) {
  if (busy_.exchange(true, std::memory_order_acquire))
    return invalid_usage(
        "a step is running: its bodies, and other threads, may not begin another one");
  samples_ = samples;
  body_ = &body;
  Status done = Status(broken_).while_doing("an earlier step failed");
  if (done.ok()) done = all_do(ThreadCommand::computing);
  if (done.ok()) done = broken_ = all_do(ThreadCommand::reducing);
  if (done.ok()) parts_[0].gradients.give(tensors_);
  busy_.store(false, std::memory_order_release);  // pairs with the acquire of the next step
  return done;
}

// Returns when all have. A failure that is one thread's alone comes first: it is the others' cause.
Status Parallel::all_do(ThreadCommand what) {
  {
    const std::lock_guard lock(mutex_);
    doing_ = what;
    acting_ = threads_.size();
    ++act_;
  }
  changed_.notify_all();
  act(0, what);
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return acting_ == 0; });
  const auto has_failed = [](const Part& part) { return !part.status.ok(); };
  auto first = std::find_if(parts_.begin(), parts_.end(), [&](const Part& part) {
    return has_failed(part) && is_local(part.status);
  });
  if (first == parts_.end()) first = std::find_if(parts_.begin(), parts_.end(), has_failed);
  if (first == parts_.end()) return {};
  return Status(first->status).while_doing(fmt::format("in thread {}", first - parts_.begin()));
}

void Parallel::serve(std::size_t thread) {
  for (std::uint64_t seen = 0;;) {
    ThreadCommand what = ThreadCommand::nothing;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return act_ != seen; });
      seen = act_;
      what = doing_;
    }
    act(thread, what);
    {
      const std::lock_guard lock(mutex_);
      --acting_;
    }
    changed_.notify_all();
    if (what == ThreadCommand::leaving) return;
  }
}

void Parallel::act(std::size_t thread, ThreadCommand what) {
  Part& part = parts_[thread];
  part.status = {};
  if (what == ThreadCommand::joining) part.status = caught([&] { return join(thread); });
  if (what == ThreadCommand::computing) part.status = caught([&] { return compute(thread); });
  if (what == ThreadCommand::reducing) {
    part.status = caught([&] { return reduce(part); });
    // The others must not wait for this thread.
    if (!part.status.ok()) (void)gyreCommAbort(part.comm.get());
  }
  if (what == ThreadCommand::leaving) part.comm.reset();
}

Status Parallel::join(std::size_t thread) {
  gyreConfig_t config = GYRE_CONFIG_INITIALIZER;
  config.device = GYRE_DEVICE_HOST;
  gyreComm_t comm = nullptr;
  GYRE_TRY(checked(gyreCommInitRankConfig(&comm, static_cast<int>(parts_.size()), id_,
                                          static_cast<int>(thread), &config)));
  parts_[thread].comm = OwnedCommunicator(comm);
  return {};
}

// Its samples: as many for each thread, and one more for the first where some are left over.
Status Parallel::compute(std::size_t thread) {
  Part& part = parts_[thread];
  const std::size_t each = samples_ / parts_.size();
  const std::size_t over = samples_ % parts_.size();
  const std::size_t first = thread * each + std::min(thread, over);
  const std::size_t count = each + (thread < over ? 1 : 0);
  part.gradients.clear(tensors_);
  if (count == 0) return {};
  GYRE_TRY((*body_)({.thread = static_cast<int>(thread),
                     .threads = static_cast<int>(parts_.size()),
                     .first = first,
                     .count = count,
                     .gradients = part.places.data()}));
  if (over == 0) return {};
  const auto weight =
      static_cast<float>(static_cast<double>(count) / static_cast<double>(samples_));
  for (std::size_t tensor = 0; tensor < tensors_.size(); ++tensor)
    kernels::convert({.from = tensors_[tensor].type,
                      .source = part.places[tensor],
                      .to = tensors_[tensor].type,
                      .target = part.places[tensor],
                      .count = tensors_[tensor].count,
                      .factor = weight});
  return {};
}

Status Parallel::reduce(const Part& part) const {
  const bool is_even = samples_ % parts_.size() == 0;
  for (const LiveBucket& bucket : part.gradients.buckets())
    GYRE_TRY(checked(gyreReduce(bucket.data(), bucket.data(), bucket.plan().count,
                                static_cast<gyreDataType_t>(bucket.wire_type()),
                                is_even ? gyreAvg : gyreSum, 0, part.comm.get(), nullptr),
                     part.comm.get()));
  return {};
}

}  // namespace gyre::gradsync
