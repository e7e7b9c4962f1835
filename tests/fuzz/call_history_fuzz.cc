// Peers' reports of their calls, compared with the calls of this rank. A second implementation
// keeps every call in a map, with the number of its run of equal calls, and must agree. Input: u8
// rank, then acts: u8 kind: 0 and 1: this rank's next call, as u8 function, u8 type, u8 op, u8
// root, u16 count, u8 blocks; 2: a message, as u8 from and a block; 3: a message of records, as u8
// from, u8 how many, each as i8 distance from the newest call and the call.
#include "lib/call/call_history.h"
#include "tests/fuzz/input.h"

#include <map>

namespace call_history_fuzz {

using namespace gyre;
using namespace gyre::comm;

namespace {

constexpr std::uint64_t remembered_runs = 128, told = 32;

struct Own {
  CallRecord call;
  std::uint64_t run = 0;
};

class Trial {
 public:
  explicit Trial(int rank) : rank_(rank), state_page_(rank) {}
  // False when it is over.
  bool act(fuzz::Input& input);

 private:
  static CallRecord take_call(fuzz::Input& input, std::uint64_t sequence);
  bool begin(const CallRecord& call);
  bool hear(int from, const control::MessageBytes& rank_message);
  bool differs(const CallRecord& theirs) const;
  void judge(const std::optional<Status>& verdict, bool expected) const;
  void check_question() const;

  const int rank_;
  CallHistory state_page_;
  std::map<std::uint64_t, Own> own_;
  std::uint64_t runs_ = 0;
  std::uint64_t newest_ = 0;
  std::map<int, std::vector<CallRecord>> ahead_;
};

CallRecord Trial::take_call(fuzz::Input& input, std::uint64_t sequence) {
  Request request;
  const auto function = input.take<std::uint8_t>();
  request.function = static_cast<Function>(function % function_count);
  request.collective = static_cast<plan::Collective>(function % plan::collective_count);
  request.type = static_cast<ElementType>(input.take<std::uint8_t>() % element_type_count);
  request.op = static_cast<ReduceOp>(input.take<std::uint8_t>() % reduce_op_count);
  request.root = input.take<std::uint8_t>();
  request.count = input.take<std::uint16_t>();
  CallRecord call = CallRecord::of(request, sequence);
  call.blocks = std::uint64_t{input.take<std::uint8_t>()} << 40;
  return call;
}

void Trial::judge(const std::optional<Status>& verdict, bool expected) const {
  GYRE_DEMAND(verdict.has_value() == expected);
  if (!verdict) return;
  GYRE_DEMAND(verdict->code() == Code::Mismatch && verdict->culprits().size() == 2);
  GYRE_DEMAND(verdict->culprits()[0] == rank_ || verdict->culprits()[1] == rank_);
  GYRE_DEMAND(fuzz::is_one_line(verdict->message()));
}

bool Trial::differs(const CallRecord& theirs) const {
  const auto own = own_.find(theirs.sequence);
  return own != own_.end() && own->second.run + remembered_runs > runs_ &&
         !theirs.agrees_with(own->second.call);
}

bool Trial::begin(const CallRecord& call) {
  if (own_.empty() || !call.agrees_with(own_.rbegin()->second.call)) ++runs_;
  own_[call.sequence] = {call, runs_};
  newest_ = call.sequence;
  bool expected = false;
  for (auto& [from, calls] : ahead_) {
    for (const CallRecord& theirs : calls)
      expected |= theirs.sequence == call.sequence && differs(theirs);
    std::erase_if(calls, [&](const CallRecord& one) { return one.sequence <= call.sequence; });
  }
  judge(state_page_.begin(call), expected);
  return !expected;
}

bool Trial::hear(int from, const control::MessageBytes& rank_message) {
  bool expected = false;
  if (rank_message.size() % sizeof(CallRecord) == 0 &&
      rank_message.size() <= told * sizeof(CallRecord)) {
    ahead_[from].clear();
    for (std::size_t at = 0; at < rank_message.size() && !expected; at += sizeof(CallRecord)) {
      CallRecord theirs;
      std::memcpy(&theirs, rank_message.data() + at, sizeof theirs);
      GYRE_DEMAND(fuzz::is_one_line(theirs.text()));
      if (theirs.sequence > newest_) ahead_[from].push_back(theirs);
      expected = differs(theirs);
    }
  }
  judge(state_page_.compare(from, rank_message), expected);
  return !expected;
}

// A state page that heard this one's own question has nothing against it.
void Trial::check_question() const {
  const control::MessageBytes question = state_page_.question();
  GYRE_DEMAND(question.size() == std::min<std::uint64_t>(own_.size(), told) * sizeof(CallRecord));
  CallHistory other(rank_ + 1);
  GYRE_DEMAND(!other.compare(rank_, question));
  for (std::size_t at = 0; at < question.size(); at += sizeof(CallRecord)) {
    CallRecord call;
    std::memcpy(&call, question.data() + at, sizeof call);
    GYRE_DEMAND(!other.begin(call));
  }
  GYRE_DEMAND(!other.compare(rank_, question));
}

bool Trial::act(fuzz::Input& input) {
  const auto kind = input.take<std::uint8_t>() % 4;
  if (kind < 2) return begin(take_call(input, newest_ + 1));
  const int from = rank_ + 1 + input.take<std::uint8_t>() % 5 - 2 * (rank_ > 1);
  if (from == rank_) return true;
  if (kind == 2) return hear(from, input.take_vector());
  control::MessageBytes rank_message;
  for (int left = input.take<std::uint8_t>() % 40; left > 0; --left) {
    const auto distance = input.take<std::int8_t>();
    const CallRecord call = take_call(input, newest_ + static_cast<std::uint64_t>(distance));
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(&call);
    rank_message.insert(rank_message.end(), bytes, bytes + sizeof call);
  }
  const bool goes_on = hear(from, rank_message);
  check_question();
  return goes_on;
}

}  // namespace

int take_input(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  Trial trial(input.take<std::uint8_t>() % 8);
  for (int acts = 0; !input.empty() && acts < 400; ++acts)
    if (!trial.act(input)) break;
  return 0;
}

GYRE_FUZZ_TARGET(call_history)

}  // namespace call_history_fuzz
