// Seeds to programs. Whatever is drawn is legal: a buffer is used only when what was done to it
// before is surely over, and every member makes a communicator's calls in one order.
#include "tests/support/elements.h"
#include "tests/support/program.h"
#include "tests/support/program_order.h"
#include "tests/support/program_random.h"
#include "tests/support/program_refusals.h"

#include <algorithm>
#include <numeric>
#include <set>

namespace gyre::tests {
namespace {

constexpr std::size_t comms_most = 7;

std::size_t at(int index) { return static_cast<std::size_t>(index); }

class Draw {
 public:
  Draw(std::uint32_t seed, Temper temper) : temper_(temper), random_(seed) { program_.seed = seed; }

  Program program() {
    draw_world(random_, temper_, program_);
    alive_.push_back(0);
    const int acts = 3 + below(14);
    for (int i = 0; i < acts; ++i) act();
    if (temper_ == Temper::broken || temper_ == Temper::silent) {
      break_one();
      for (int i = below(4); i > 0; --i) act();
    }
    end();
    return std::move(program_);
  }

 private:
  int below(int most) { return random_.below(most); }
  bool one_in(int chances) { return random_.one_in(chances); }
  template <typename List>
  auto& pick(List& list) {
    return random_.pick(list);
  }
  void add(Act act) { program_.steps.push_back({group_, std::move(act)}); }
  std::vector<int>& members(int comm) { return program_.comms[at(comm)].members; }
  int size(int comm) { return static_cast<int>(members(comm).size()); }
  int rank_of(int comm, int member) { return members(comm)[at(member)]; }

  void act();
  void grouped();
  void call(int comm);
  void part(Call& call, int member);
  void message(int comm, int from, int to);
  void messages(int comm);
  void split(int comm);
  void end_of_step();
  void stream_act();
  void verify();
  void refuse();
  void retire();
  void destroy_pending(bool all);
  void break_one();
  void settle_all(int rank);
  void end();

  // The queue as ProgramOrder counts: a non-blocking communicator's own comes after the streams.
  int true_queue(int comm, int queue) {
    if (queue != 0 || program_.comms[at(comm)].blocking) return queue;
    return program_.streams_each + 1 + comm;
  }
  int draw_queue(int comm, int rank);
  int enter(int comm, int rank, int queue);
  Place draw_place(int rank, int queue, std::size_t bytes, Filling filling, ElementType type,
                   bool writes);
  void touch(int buffer, int queue, std::size_t place, bool writes);
  bool is_usable(int buffer, int queue, bool writes);

  const Temper temper_;
  Random random_;
  Program program_;
  ProgramOrder order_{16};
  std::vector<int> alive_;                                   // communicators that may be called
  std::vector<Destroy> pending_;                             // still to be destroyed
  std::vector<std::vector<ProgramOrder::Access>> accesses_;  // by buffer
  int group_ = 0, groups_ = 0;
  std::set<int> touched_in_group_;                     // buffers
  std::map<std::pair<int, int>, int> queue_in_group_;  // (comm, rank): all its calls there
  // What is known at the end of the step or group: of (rank, queue), of (rank, comm).
  std::vector<std::pair<int, int>> settled_after_, waited_after_;
  std::size_t entered_at_ = 0;  // place of the entry being made
  int next_tag_ = 100;
};

void Draw::act() {
  destroy_pending(false);
  if (alive_.empty()) return;
  if (temper_ == Temper::refused && one_in(2)) refuse();
  const int choice = below(20);
  const int comm = pick(alive_);
  if (choice < 8) return call(comm);
  if (choice < 12) return grouped();
  if (choice < 14) return message(comm, below(size(comm)), below(size(comm)));
  if (choice < 16) return split(comm);
  if (choice < 18) return stream_act();
  if (choice < 19) return verify();
  retire();
}

void Draw::grouped() {
  group_ = ++groups_;
  const std::vector<int> callable = alive_;  // children of a split come into being at its end
  for (int i = 1 + below(4); i > 0; --i) {
    const int comm = callable[at(below(static_cast<int>(callable.size())))];
    const int choice = below(8);
    if (choice < 4)
      call(comm);
    else if (choice < 6)
      message(comm, below(size(comm)), below(size(comm)));
    else if (choice < 7)
      messages(comm);
    else
      split(comm);
  }
  group_ = 0;
  end_of_step();
  touched_in_group_.clear();
  queue_in_group_.clear();
}

// ------------------------------------------------------------------------------ buffers

int Draw::draw_queue(int comm, int rank) {
  const auto known = queue_in_group_.find({comm, rank});
  if (group_ != 0 && known != queue_in_group_.end()) return known->second;
  const int queue = program_.streams_each > 0 && one_in(2) ? 1 + below(program_.streams_each) : 0;
  if (group_ != 0) queue_in_group_[{comm, rank}] = queue;
  return queue;
}

int Draw::enter(int comm, int rank, int queue) {
  const int known = true_queue(comm, queue);
  // A group's calls without a stream wait when its others have been queued already.
  if (known == ProgramOrder::thread && group_ == 0) order_.wait_for_comm(rank, comm);
  if (known == ProgramOrder::thread && group_ != 0) waited_after_.emplace_back(rank, comm);
  const bool beside_others = group_ != 0 && known <= program_.streams_each;
  entered_at_ = order_.enter(rank, known, comm, beside_others);
  return known;
}

bool Draw::is_usable(int buffer, int queue, bool writes) {
  if (touched_in_group_.contains(buffer)) return false;
  return order_.may_access(program_.buffers[at(buffer)].rank, accesses_[at(buffer)], queue, writes);
}

void Draw::touch(int buffer, int queue, std::size_t place, bool writes) {
  accesses_[at(buffer)].push_back({queue, place, writes});
  if (group_ != 0) touched_in_group_.insert(buffer);
}

// Sometimes one that was used before, where its values do not matter.
Place Draw::draw_place(int rank, int queue, std::size_t bytes, Filling filling, ElementType type,
                       bool writes) {
  if (bytes == 0) return {};
  const bool any_values = filling == Filling::bits || filling == Filling::untouched;
  std::vector<int> old;
  for (int i = 0; any_values && i < static_cast<int>(program_.buffers.size()); ++i)
    if (program_.buffers[at(i)].rank == rank && program_.buffers[at(i)].bytes >= bytes &&
        is_usable(i, queue, writes))
      old.push_back(i);
  int buffer = nobody;
  if (!old.empty() && one_in(2)) {
    buffer = pick(old);
  } else {
    ProgramBuffer made{rank, bytes,         one_in(3) ? at(below(9)) : 0, one_in(6), filling,
                       type, random_.bits()};
    program_.buffers.push_back(made);
    accesses_.emplace_back();
    buffer = static_cast<int>(program_.buffers.size()) - 1;
  }
  touch(buffer, queue, entered_at_, writes);
  return {buffer, 0};
}

// ------------------------------------------------------------------------------ calls

void Draw::part(Call& call, int member) {
  Part& part = call.parts[at(member)];
  const int rank = rank_of(call.comm, member);
  part.queue = draw_queue(call.comm, rank);
  part.registered = one_in(10);
  const int queue = enter(call.comm, rank, part.queue);
  const std::size_t bytes = element_bytes(call.type);
  const Extents extents = extents_of(call, member);
  Filling filling = Filling::bits;
  if (sums(call.verb) && is_float(call.type))
    filling = call.op == ReduceOp::prod ? Filling::factors : Filling::small;
  const bool narrow = is_float(call.type) && bytes == 1;
  const std::vector<std::int64_t> scalars = {1, -1, 2, -2, 0};
  part.scalar = narrow ? (one_in(2) ? 1 : -1) : pick(scalars);
  const bool in_place = call.verb != Verb::all_to_all && call.verb != Verb::all_to_all_v &&
                        extents.input > 0 && extents.output > 0 && one_in(3);
  if (!in_place) {
    part.input = draw_place(rank, queue, extents.input * bytes, filling, call.type, false);
    if (extents.input > 0) touched_in_group_.insert(part.input.buffer);
    part.output =
        draw_place(rank, queue, extents.output * bytes, Filling::untouched, call.type, true);
    if (group_ == 0) touched_in_group_.clear();
    return;
  }
  const std::size_t first = own_first(call, member) * bytes;
  const bool into = extents.input < extents.output || call.verb == Verb::all_gather_v ||
                    call.verb == Verb::gather || call.verb == Verb::all_gather;
  const std::size_t whole = std::max(extents.input * bytes + (into ? first : 0),
                                     extents.output * bytes + (into ? 0 : first));
  part.input = part.output = draw_place(rank, queue, whole, filling, call.type, true);
  (into ? part.input : part.output).offset = first;
}

void Draw::call(int comm) {
  Call call;
  call.comm = comm;
  call.verb = static_cast<Verb>(below(verb_count));
  call.type = static_cast<ElementType>(below(element_type_count));
  call.op = static_cast<ReduceOp>(below(reduce_op_count));
  const bool bitwise =
      call.op == ReduceOp::band || call.op == ReduceOp::bor || call.op == ReduceOp::bxor;
  if (bitwise && is_float(call.type)) call.op = ReduceOp::sum;
  call.parts.resize(at(size(comm)));
  call.root = below(size(comm));
  call.count = draw_count(random_, call.type, call.parts.size());
  draw_tables(random_, call);
  for (int member = 0; member < size(comm); ++member) part(call, member);
  add(std::move(call));
}

void Draw::message(int comm, int from, int to) {
  Message message;
  message.comm = comm;
  message.from = from;
  message.to = to;
  message.type = static_cast<ElementType>(below(element_type_count));
  message.count = draw_count(random_, message.type, 1);
  // Nobody else may send with the tag of a message that is taken from anyone.
  message.from_any = one_in(4);
  message.any_tag = !message.from_any && one_in(4);
  message.tag = message.from_any ? next_tag_++ : below(3);
  const int sender = rank_of(comm, from), receiver = rank_of(comm, to);
  const std::size_t bytes = message.count * element_bytes(message.type);
  const bool alone = group_ == 0 && from == to;
  message.send_queue = draw_queue(comm, sender);
  int queue = enter(comm, sender, message.send_queue);
  message.input = draw_place(sender, queue, bytes, Filling::bits, message.type, false);
  message.receive_queue = alone ? message.send_queue : draw_queue(comm, receiver);
  // The two calls of a rank to itself are one group: they may not share a buffer.
  if (alone && bytes > 0) touched_in_group_.insert(message.input.buffer);
  queue = enter(comm, receiver, message.receive_queue);
  message.output = draw_place(receiver, queue, bytes, Filling::untouched, message.type, true);
  if (group_ == 0) touched_in_group_.clear();
  add(message);
}

// Everybody to a neighbour, or to everybody.
void Draw::messages(int comm) {
  const int n = size(comm), distance = 1 + below(n);
  const bool to_all = one_in(3);
  for (int from = 0; from < n; ++from)
    for (int to = 0; to < n; ++to)
      if (to_all || to == (from + distance) % n) message(comm, from, to);
}

void Draw::split(int comm) {
  if (program_.comms.size() >= comms_most) return;
  for (const int rank : members(comm)) {
    const auto known = queue_in_group_.find({comm, rank});
    if (known != queue_in_group_.end() && known->second != 0) return;
  }
  Split split;
  split.comm = comm;
  split.configured = one_in(3);
  const bool inherited = program_.comms[at(comm)].blocking;
  split.blocking = split.configured ? one_in(2) : inherited;
  const int colors = 1 + below(3);
  std::vector<int> first(at(colors), nobody);
  for (int member = 0; member < size(comm); ++member) {
    const int rank = rank_of(comm, member);
    if (group_ != 0) queue_in_group_[{comm, rank}] = 0;
    const int queue = enter(comm, rank, 0);
    if (queue != 0) settled_after_.emplace_back(rank, queue);  // the run waits for it
    split.colors.push_back(one_in(6) ? GYRE_SPLIT_NOCOLOR : below(colors));
    split.keys.push_back(below(5) - 2);
    split.children.push_back(nobody);
  }
  for (int color = 0; color < colors; ++color) {
    std::vector<int> places;
    for (int member = 0; member < size(comm); ++member)
      if (split.colors[at(member)] == color) places.push_back(member);
    if (places.empty()) continue;
    std::ranges::stable_sort(places, {}, [&](int member) { return split.keys[at(member)]; });
    ProgramCommunicator child;
    child.parent = comm;
    child.blocking = split.blocking;
    for (const int member : places) {
      child.members.push_back(rank_of(comm, member));
      split.children[at(member)] = static_cast<int>(program_.comms.size());
    }
    alive_.push_back(static_cast<int>(program_.comms.size()));
    program_.comms.push_back(child);
  }
  add(std::move(split));
  if (group_ == 0) end_of_step();
}

void Draw::end_of_step() {
  for (const auto& [rank, queue] : settled_after_) order_.synchronize(rank, queue);
  for (const auto& [rank, comm] : waited_after_) order_.wait_for_comm(rank, comm);
  settled_after_.clear();
  waited_after_.clear();
}

// ------------------------------------------------------------------------------ one rank alone

void Draw::stream_act() {
  const int rank = below(program_.ranks());
  if (program_.streams_each == 0) return;
  const int queue = 1 + below(program_.streams_each), other = 1 + below(program_.streams_each);
  if (queue != other && !one_in(3)) {
    order_.wait_for_stream(rank, queue, other);
    return add(StreamWait{rank, queue, other});
  }
  order_.synchronize(rank, queue);
  add(Synchronize{rank, queue});
}

void Draw::verify() {
  for (int buffer = 0; buffer < static_cast<int>(program_.buffers.size()); ++buffer) {
    if (!one_in(3) || !is_usable(buffer, ProgramOrder::thread, false)) continue;
    add(Verify{buffer});
  }
}

void Draw::refuse() {
  const int comm = pick(alive_);
  add(Refusal{comm, below(size(comm)), below(static_cast<int>(refusals().size()))});
}

void Draw::retire() {
  if (alive_.size() < 2) return;
  const auto which = alive_.begin() + below(static_cast<int>(alive_.size()));
  for (int member = 0; member < size(*which); ++member)
    pending_.push_back({*which, member, one_in(3)});
  alive_.erase(which);
}

void Draw::destroy_pending(bool all) {
  std::ranges::shuffle(pending_, random_.source());
  while (!pending_.empty() && (all || one_in(2))) {
    const Destroy last = pending_.back();
    pending_.pop_back();
    const int rank = rank_of(last.comm, last.member);
    order_.wait_for_comm(rank, last.comm);
    add(last);
  }
}

void Draw::settle_all(int rank) {
  for (int queue = 1; queue <= program_.streams_each; ++queue) {
    order_.synchronize(rank, queue);
    add(Synchronize{rank, queue});
  }
  for (const int comm : alive_) {
    const int member = program_.comms[at(comm)].place_of(rank);
    if (member == nobody || program_.comms[at(comm)].blocking) continue;
    order_.wait_for_comm(rank, comm);
    add(Settle{comm, member});
  }
}

// All that was called before is over everywhere, so that the fault meets nothing else.
void Draw::break_one() {
  std::vector<int> shared;
  for (const int comm : alive_)
    if (size(comm) > 1) shared.push_back(comm);
  if (shared.empty()) return;
  const int comm = pick(shared);
  for (const int rank : members(comm)) settle_all(rank);
  // Large ones do not fit the slots between two members.
  const bool waits = temper_ == Temper::silent;
  const auto fault = static_cast<Fault>(waits ? static_cast<int>(Fault::silence) + below(2)
                                              : below(static_cast<int>(Fault::silence)));
  add(Break{comm, below(size(comm)), fault, one_in(2) && !waits ? 10UL : 300'000UL});
  std::erase(alive_, comm);
  for (int member = 0; member < size(comm); ++member) pending_.push_back({comm, member, false});
}

void Draw::end() {
  for (int rank = 0; rank < program_.ranks(); ++rank) settle_all(rank);
  // What was retired may still run, on a queue of its own: its destruction waits for it.
  destroy_pending(true);
  for (int buffer = 0; buffer < static_cast<int>(program_.buffers.size()); ++buffer)
    if (is_usable(buffer, ProgramOrder::thread, false)) add(Verify{buffer});
  for (const int comm : alive_)
    for (int member = 0; member < size(comm); ++member)
      pending_.push_back({comm, member, one_in(3)});
  destroy_pending(true);
}

}  // namespace

Program draw_program(std::uint32_t seed, Temper temper) { return Draw(seed, temper).program(); }

int ProgramCommunicator::place_of(int rank) const {
  const auto found = std::ranges::find(members, rank);
  return found == members.end() ? nobody : static_cast<int>(found - members.begin());
}

}  // namespace gyre::tests
