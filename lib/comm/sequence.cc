#include "lib/comm/sequence.h"

#include <algorithm>
#include <utility>

namespace gyre::comm {

void Sequence::add(const Work& work) {
  if (work.request.transfers == nullptr) return works_.push_back(work);
  transfers_.insert(transfers_.end(), work.request.transfers->begin(),
                    work.request.transfers->end());
}

// Not before it joins: what is queued waits for that. A broken communicator carries out nothing.
bool Sequence::waits_for_queue() const {
  return queued_on_ != nullptr && !begins_with_join() && communicator_.broken().ok() &&
         communicator_.order.queued.load(std::memory_order_acquire) != 0;
}

bool Sequence::begins_with_join() const { return next_ == 0 && !works_.empty() && works_[0].joins; }

bool Sequence::advance() {
  if (seen_ns_ == 0) seen_ns_ = system_clock.now_ns();
  if (held_ && waits_for_queue()) {
    if (queued_on_->is_over()) finish(process_ends());
    return finished();
  }
  if (std::exchange(held_, false)) begin_next();
  bool moved = false;
  for (Resumable** part : {&current_, &exchange_})
    if (*part != nullptr) moved |= advance_part(*part);
  // Not before both have ended, also where one has failed: peers may still write into the buffers
  // of the other one.
  if (current_ == nullptr && exchange_ == nullptr && !held_) finish(failure_);
  return moved || finished();
}

void Sequence::expire() {
  for (Resumable* part : {current_, exchange_})
    if (part != nullptr) part->expire();
}

bool Sequence::arm(WaitSet& set) {
  if (held_) {
    auto& queued = communicator_.order.queued;
    set.add_futex(&queued, queued.load(std::memory_order_acquire));
    return waits_for_queue();
  }
  bool asleep = true;
  for (Resumable* part : {current_, exchange_})
    if (part != nullptr) asleep &= part->arm(set);
  return asleep;
}

void Sequence::disarm() {
  for (Resumable* part : {current_, exchange_})
    if (part != nullptr) part->disarm();
}

void Sequence::tell_wait() {
  for (Resumable* part : {current_, exchange_})
    if (part != nullptr) part->tell_wait();
}

// Each part has its own, from when it began. What is waited for before has deadlines of its own.
std::int64_t Sequence::limit_ns() const {
  const bool joins = held_ ? begins_with_join() : current_ == &communicator_.joining();
  const std::int64_t own = joins ? communicator_.joining().limit_ns() : communicator_.timeout_ns();
  if (seen_ns_ == 0) return own;
  const std::int64_t begun_ns = held_ ? system_clock.now_ns() : part_began_ns_;
  return own + std::max<std::int64_t>(begun_ns - seen_ns_, 0);
}

void Sequence::begin_exchange() {
  if (transfers_.empty()) return;
  exchanged_.transfers =
      std::make_shared<const std::vector<Transfer>>(std::exchange(transfers_, {}));
  part_began_ns_ = system_clock.now_ns();
  exchange_ = &communicator_.begin(exchanged_);
}

// To the next collective, if all went well so far.
void Sequence::begin_next() {
  if (!failure_.ok()) return;
  if (Status broken = communicator_.broken(); !broken.ok()) return fail(broken);
  if (next_ == works_.size()) return begin_exchange();
  const Work& work = works_[next_++];
  const bool more = next_ < works_.size() && works_[next_].is_collective();
  part_began_ns_ = system_clock.now_ns();
  current_ = &communicator_.begin(work, more);
  // Who has not joined has nothing to send by.
  if (!work.joins && communicator_.backend().runs_side_by_side()) begin_exchange();
}

// Its caller may have called gyreGroupEnd, which has no communicator to ask.
void Sequence::fail(const Status& why) {
  communicator_.remember(why);
  if (failure_.ok()) failure_ = why;
}

bool Sequence::advance_part(Resumable*& part) {
  const bool moved = part->finished() || part->advance();
  if (!part->finished()) return moved;
  if (!part->outcome().ok()) fail(part->outcome());
  const bool was_current = &part == &current_, joined = part == &communicator_.joining();
  part = nullptr;
  held_ = joined && failure_.ok() && queued_on_ != nullptr;
  if (was_current && !held_) begin_next();
  return true;
}

}  // namespace gyre::comm
