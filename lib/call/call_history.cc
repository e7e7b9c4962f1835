#include "lib/call/call_history.h"

#include <fmt/core.h>

#include <cstring>
#include <iterator>

namespace gyre::comm {
namespace {

constexpr unsigned type_shift = 8, op_shift = 16, root_shift = 32;

}  // namespace

CallRecord CallRecord::of(const Request& request, std::uint64_t sequence) {
  CallRecord call;
  call.sequence = sequence;
  const bool sums = plan::sums(request.collective);
  call.kind = static_cast<std::uint64_t>(request.function) |
              static_cast<std::uint64_t>(request.type) << type_shift |
              (sums ? static_cast<std::uint64_t>(request.op) << op_shift : 0) |
              static_cast<std::uint64_t>(request.root) << root_shift;
  if (request.function == Function::all_to_all_v) return call;
  call.count = request.count;
  if (request.tables != nullptr) call.blocks = signature_of(request);
  return call;
}

std::string CallRecord::text() const {
  const auto function = static_cast<std::uint8_t>(kind);
  const auto type = static_cast<std::uint8_t>(kind >> type_shift);
  const auto op = static_cast<std::uint8_t>(kind >> op_shift);
  if (function > static_cast<std::uint8_t>(Function::split) || type >= element_type_count ||
      op > static_cast<std::uint8_t>(ReduceOp::pre_mul_sum))
    return "a call that this version does not know";
  const auto name = static_cast<Function>(function);
  std::string text(function_name(name));
  if (name == Function::barrier || name == Function::split) return text;
  if (name != Function::all_to_all_v) text += fmt::format(" of {}", count);
  text += fmt::format(" {}", element_name(static_cast<ElementType>(type)));
  if (name == Function::all_reduce || name == Function::reduce ||
      name == Function::reduce_scatter || name == Function::reduce_scatter_v)
    text += fmt::format(" ({})", op_name(static_cast<ReduceOp>(op)));
  if (name == Function::broadcast || name == Function::reduce || name == Function::gather ||
      name == Function::scatter)
    text += fmt::format(", root {}", kind >> root_shift);
  if (blocks != 0) text += fmt::format(", blocks {:08x}", blocks >> 32);
  return text;
}

std::optional<Status> CallHistory::judge(int from, const CallRecord& theirs,
                                         const CallRecord& own) const {
  if (theirs.agrees_with(own)) return std::nullopt;
  const bool lower = from < rank_;
  const CallRecord& first = lower ? theirs : own;
  const CallRecord& second = lower ? own : theirs;
  return Status(Code::Mismatch,
                fmt::format("collective number {} differs: rank {} called {}, rank {} called {}",
                            own.sequence, lower ? from : rank_, first.text(), lower ? rank_ : from,
                            second.text()))
      .blame({lower ? from : rank_, lower ? rank_ : from});
}

void CallHistory::begin_run(const CallRecord& call) {
  for (const std::uint64_t part : {call.sequence, call.kind, call.count, call.blocks})
    history_ = hash_with(history_, part);
  const std::uint64_t number = begun_.load(std::memory_order_relaxed);
  CallRun& run = runs_[number % run_count];
  // No number while the rest changes. The fence keeps the stores behind it; pairs with find's.
  run.first.store(0, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  run.kind.store(call.kind, std::memory_order_relaxed);
  run.count.store(call.count, std::memory_order_relaxed);
  run.blocks.store(call.blocks, std::memory_order_relaxed);
  run.first.store(call.sequence, std::memory_order_release);  // pairs with the acquire in find
  begun_.store(number + 1, std::memory_order_release);        // pairs with the acquire in find
}

bool CallHistory::change(const CallRecord& call) {
  if (last_.sequence == 0 || !call.agrees_with(last_)) begin_run(call);
  last_ = call;
  newest_.store(call.sequence, std::memory_order_release);  // pairs with compare's and question's
  return !asked_ahead_.load(std::memory_order_acquire);
}

std::optional<Status> CallHistory::begin(const CallRecord& call) {
  if (change(call)) [[likely]]
    return std::nullopt;
  const std::lock_guard lock(mutex_);
  std::optional<Status> mismatch;
  for (auto question = ahead_.begin(); question != ahead_.end();) {
    auto& [from, calls] = *question;
    for (const CallRecord& theirs : calls)
      if (!mismatch && theirs.sequence == call.sequence) mismatch = judge(from, theirs, call);
    std::erase_if(calls, [&](const CallRecord& one) { return one.sequence <= call.sequence; });
    question = calls.empty() ? ahead_.erase(question) : std::next(question);
  }
  asked_ahead_.store(!ahead_.empty(), std::memory_order_release);
  return mismatch;
}

// Of a call that has begun: its run was there before the newest call was named. Backwards, since it
// is one of the last; nothing if so many runs have begun since that its own is overwritten.
std::optional<CallRecord> CallHistory::find(std::uint64_t sequence) const {
  const std::uint64_t begun = begun_.load(std::memory_order_acquire);
  const std::uint64_t oldest = begun < run_count ? 0 : begun - run_count;
  for (std::uint64_t number = begun; number > oldest; --number) {
    const CallRun& run = runs_[(number - 1) % run_count];
    const std::uint64_t first = run.first.load(std::memory_order_acquire);
    if (first == 0 || first > sequence) continue;
    const CallRecord call{sequence, run.kind.load(std::memory_order_relaxed),
                          run.count.load(std::memory_order_relaxed),
                          run.blocks.load(std::memory_order_relaxed)};
    std::atomic_thread_fence(std::memory_order_acquire);
    if (run.first.load(std::memory_order_relaxed) == first) return call;
  }
  return std::nullopt;
}

control::MessageBytes CallHistory::question() const {
  static_assert(sizeof(CallRecord) == 32 && std::is_trivially_copyable_v<CallRecord>);
  const std::uint64_t newest = newest_.load(std::memory_order_acquire);
  const std::uint64_t oldest = newest < calls_in_question ? 1 : newest - calls_in_question + 1;
  control::MessageBytes message;
  for (std::uint64_t sequence = oldest; sequence <= newest; ++sequence)
    if (const auto call = find(sequence)) {
      message.resize(message.size() + sizeof *call);
      std::memcpy(message.data() + message.size() - sizeof *call, &*call, sizeof *call);
    }
  return message;
}

std::optional<Status> CallHistory::compare(int from, const control::MessageBytes& message) {
  if (message.size() % sizeof(CallRecord) != 0 ||
      message.size() > calls_in_question * sizeof(CallRecord))
    return std::nullopt;
  const std::lock_guard lock(mutex_);
  ahead_.erase(from);
  for (std::size_t at = 0; at < message.size(); at += sizeof(CallRecord)) {
    CallRecord theirs;
    std::memcpy(&theirs, message.data() + at, sizeof theirs);
    if (theirs.sequence > newest_.load(std::memory_order_acquire)) {
      ahead_[from].push_back(theirs);
      asked_ahead_.store(true, std::memory_order_seq_cst);
      // The call may have begun meanwhile, without a look at what was just kept.
      if (theirs.sequence > newest_.load(std::memory_order_seq_cst)) continue;
    }
    const auto own = find(theirs.sequence);
    if (!own) continue;
    if (auto mismatch = judge(from, theirs, *own)) return mismatch;
  }
  return std::nullopt;
}

}  // namespace gyre::comm
