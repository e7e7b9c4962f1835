#include "lib/comm/group.h"

#include "lib/base/caught.h"
#include "lib/comm/sequence.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <memory>

namespace gyre::comm {
namespace {

// Sends and receives of a group on one stream and communicator become one entry, where the first of
// them stood.
void merge_transfers(std::vector<GroupedCall>& calls) {
  for (auto first = calls.begin(); first != calls.end(); ++first) {
    if (!first->stream || first->work.request.transfers == nullptr) continue;
    auto all = std::make_shared<std::vector<Transfer>>(*first->work.request.transfers);
    for (auto later = std::next(first); later != calls.end();) {
      const bool same = later->stream && &*later->stream == &*first->stream &&
                        later->work.request.transfers != nullptr &&
                        &*later->communicator == &*first->communicator;
      if (same)
        all->insert(all->end(), later->work.request.transfers->begin(),
                    later->work.request.transfers->end());
      later = same ? calls.erase(later) : std::next(later);
    }
    first->work.request.transfers = std::move(all);
  }
}

// Sends and receives that wait for no collective: peers may need them before they make theirs.
bool runs_beside(const Work& work, Communicator& communicator) {
  return work.is_exchange() && communicator.backend().runs_side_by_side();
}

// What goes to streams: a communicator's calls together, unless several streams have some.
Status queue(StreamWorker& worker, std::vector<GroupedCall>& calls) {
  using Where = std::pair<const Communicator*, const HostStream*>;
  std::vector<Where> where;
  for (const GroupedCall& call : calls)
    if (call.stream) where.emplace_back(&*call.communicator, &*call.stream);
  std::vector<StreamWorker::StreamAssignment> placed;
  std::vector<std::shared_ptr<Sequence>> sequences;  // of `placed`; null where one call is alone
  for (GroupedCall& call : calls) {
    if (!call.stream) continue;
    const Where mine{&*call.communicator, &*call.stream};
    const bool together = !runs_beside(call.work, *call.communicator) &&
                          std::ranges::all_of(where, [&](const Where& one) {
                            return one.first != mine.first || one == mine;
                          });
    const auto known = std::ranges::find_if(placed, [&](const StreamWorker::StreamAssignment& one) {
      return together && &*one.part.communicator == mine.first &&
             !runs_beside(one.part.work, *one.part.communicator);
    });
    if (known == placed.end()) {
      sequences.emplace_back();
      StreamWorker::StreamAssignment& one = placed.emplace_back();
      one.stream = std::move(call.stream);
      one.part.communicator = std::move(call.communicator);
      one.part.work = std::move(call.work);
      continue;
    }
    std::shared_ptr<Sequence>& sequence =
        sequences[static_cast<std::size_t>(known - placed.begin())];
    if (sequence == nullptr) {
      sequence = std::make_shared<Sequence>(*known->part.communicator);
      sequence->add(known->part.work);
      const bool has_transfers = known->part.work.exchanges();
      known->part.work = {.resumable = sequence, .has_transfers = has_transfers};
    }
    known->part.work.has_transfers |= call.work.exchanges();
    sequence->add(call.work);
  }
  return placed.empty() ? Status() : worker.queue(std::move(placed));
}

}  // namespace

Status wait_for_queue(StreamWorker& worker, Communicator& communicator) {
  // On a broken one nothing begins any more, but it may stand behind what others queued.
  const auto is_empty = [&] {
    return communicator.order.queued.load(std::memory_order_acquire) == 0 ||
           (!communicator.broken().ok() && communicator.order.begun.load() == 0);
  };
  if (is_empty()) return {};
  return worker.run_until(communicator.order.queued, is_empty, communicator.wait_policy());
}

Status wait_for_stream(StreamWorker& worker, HostStream& stream, const WaitPolicy& policy) {
  return worker.run_until(
      stream.done,
      [&] {
        const std::lock_guard lock(stream.mutex);
        return stream.entries.empty();
      },
      policy);
}

Status carry_out_now(StreamWorker& worker, Communicator& communicator, const Request& request) {
  GYRE_TRY(wait_for_queue(worker, communicator));
  GYRE_TRY(communicator.broken());
  Resumable& operation = communicator.begin(request);
  if (!operation.finished()) {
    Resumable* const all[] = {&operation};
    worker.run(all, communicator.wait_policy());
  }
  return operation.outcome();
}

Status carry_on(StreamWorker& worker, const Communicator& communicator, Resumable& operation) {
  Resumable* const all[] = {&operation};
  if (!operation.finished()) worker.run(all, communicator.wait_policy());
  return operation.outcome();
}

JoiningCalls::JoiningCalls(std::span<const GroupedCall> calls) {
  for (const GroupedCall& call : calls)
    if (call.work.joins) communicators_.push_back(&*call.communicator);
}

JoiningCalls::~JoiningCalls() {
  if (!begun_) (void)give_up(Status(Code::SystemError, "out of memory"));
}

// The others are told what went wrong here: the program's calls, or this process's machine.
Status JoiningCalls::give_up(Status why) {
  begun_ = true;
  const Code code = why.code() == Code::SystemError ? Code::SystemError : Code::InvalidUsage;
  (void)thrown_by([&] {
    for (Communicator* const one : communicators_)
      (void)one->fail(
          Status(code, fmt::format("this rank has not joined, as its group was not carried out: {}",
                                   why.message())));
  });
  return why;
}

Status carry_out(StreamWorker& worker, std::vector<GroupedCall> calls) {
  JoiningCalls joining(calls);
  merge_transfers(calls);
  std::vector<std::unique_ptr<Sequence>> sequences;
  std::vector<std::unique_ptr<ExclusiveUse>> entries;
  for (GroupedCall& call : calls) {
    if (call.stream) continue;
    Communicator& communicator = *call.communicator;
    auto known = std::ranges::find_if(sequences, [&](const auto& sequence) {
      return &sequence->communicator() == &communicator;
    });
    if (known == sequences.end()) {
      entries.push_back(std::make_unique<ExclusiveUse>(communicator));
      Status entered = entries.back()->status();
      if (!entered.ok()) {
        communicator.remember(entered);
        return joining.give_up(std::move(entered));
      }
      known = sequences.insert(sequences.end(), std::make_unique<Sequence>(communicator, worker));
    }
    (*known)->add(call.work);
  }
  std::vector<Resumable*> all;
  all.reserve(sequences.size());  // what may fail comes before what begins
  bool background = false;
  for (const GroupedCall& call : calls) background |= call.background;
  if (Status queued = queue(worker, calls); !queued.ok()) return joining.give_up(std::move(queued));
  joining.note_begun();
  const Status begun = background ? Status(Code::InProgress, "begun") : Status();
  if (sequences.empty()) return begun;

  WaitPolicy policy = sequences[0]->communicator().wait_policy();
  // Who joins or splits waits for the control thread, which needs a processor: on two of them a
  // split of two ranks takes 140 us so, and 350 us with a spin first.
  const auto meets = [](const GroupedCall& call) { return call.work.joins || call.work.resumable; };
  if (std::ranges::any_of(calls, meets)) policy.spins = 0;
  for (const auto& sequence : sequences) all.push_back(sequence.get());
  worker.run(all, policy);
  for (const auto& sequence : sequences)
    if (!sequence->outcome().ok()) return sequence->outcome();
  return begun;
}

}  // namespace gyre::comm
