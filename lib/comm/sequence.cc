#include "lib/comm/sequence.h"

namespace gyre::comm {

void Sequence::add(const Work& work) {
  if (work.request.transfers == nullptr) return works_.push_back(work);
  transfers_.insert(transfers_.end(), work.request.transfers->begin(),
                    work.request.transfers->end());
}

bool Sequence::advance() {
  if (!begun_) begin();
  bool moved = false;
  for (Resumable** part : {&current_, &exchange_})
    if (*part != nullptr) moved |= advance_part(*part);
  // Not before both have ended, also where one has failed: peers may still write into the buffers
  // of the other one.
  if (current_ == nullptr && exchange_ == nullptr) finish(failure_);
  return moved || finished();
}

void Sequence::expire() {
  for (Resumable* part : {current_, exchange_})
    if (part != nullptr) part->expire();
}

bool Sequence::arm(WaitSet& set) {
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

std::int64_t Sequence::limit_ns() const {
  return !works_.empty() && works_[0].joins ? communicator_.joining().limit_ns()
                                            : communicator_.options().timeout_ns;
}

void Sequence::begin() {
  begun_ = true;
  begin_next();
  if (failure_.ok() && communicator_.backend().runs_side_by_side()) begin_exchange();
}

void Sequence::begin_exchange() {
  if (transfers_.empty()) return;
  exchanged_.transfers =
      std::make_shared<const std::vector<Transfer>>(std::exchange(transfers_, {}));
  exchange_ = &communicator_.begin(exchanged_);
}

// To the next collective, if all went well so far; none: null.
void Sequence::begin_next() {
  current_ = nullptr;
  if (!failure_.ok()) return;
  if (Status broken = communicator_.broken(); !broken.ok()) return fail(broken);
  if (next_ == works_.size()) return begin_exchange();
  const Work& work = works_[next_++];
  const bool more = next_ < works_.size() && works_[next_].is_collective();
  current_ = &communicator_.begin(work, more);
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
  if (&part == &current_)
    begin_next();
  else
    part = nullptr;
  return true;
}

}  // namespace gyre::comm
