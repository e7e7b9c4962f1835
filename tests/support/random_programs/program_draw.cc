// Draws calls, messages and splits, and the memory that they use.
#include "tests/support/comm/elements.h"
#include "tests/support/random_programs/program_drawing.h"

#include <algorithm>

namespace gyre::tests {
namespace {

constexpr std::size_t max_comms = 7;

}  // namespace

Program ProgramDraw::program() {
  draw_world(random_, temper_, program_);
  if (housing_ == Housing::processes) house();
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

void ProgramDraw::act() {
  destroy_pending(false);
  if (housing_ == Housing::processes && one_in(8)) return leave();
  if (!partial_.empty() && (alive_.empty() || one_in(3))) return message_of_partial();
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

void ProgramDraw::grouped() {
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

// In a group, calls without a stream come after those on streams, whoever made them first: so that
// a rank keeps its order, it has only one kind there. Its messages keep one stream, as they have no
// other order.
int ProgramDraw::draw_queue(int comm, int rank, bool is_message) {
  const auto known = queue_in_group_.find({comm, rank});
  if (group_ != 0 && known != queue_in_group_.end())
    return is_message || known->second == 0 ? known->second : 1 + below(program_.streams_each);
  const int queue = program_.streams_each > 0 && one_in(2) ? 1 + below(program_.streams_each) : 0;
  if (group_ != 0) queue_in_group_[{comm, rank}] = queue;
  return queue;
}

int ProgramDraw::enter(int comm, int rank, int queue) {
  const int known = true_queue(comm, queue);
  // A group's calls without a stream wait when its others have been queued already.
  if (known == ProgramOrder::thread && group_ == 0) order_.wait_for_comm(rank, comm);
  if (known == ProgramOrder::thread && group_ != 0) waited_after_.emplace_back(rank, comm);
  const bool beside_others = group_ != 0 && known <= program_.streams_each;
  undriven_.insert({rank, queue});
  entered_at_ = order_.enter(rank, known, comm, beside_others);
  return known;
}

bool ProgramDraw::is_usable(int buffer, int queue, bool writes) {
  if (left_.contains(program_.buffers[at(buffer)].rank)) return false;
  if (touched_in_group_.contains(buffer)) return false;
  return order_.may_access(program_.buffers[at(buffer)].rank, accesses_[at(buffer)], queue, writes);
}

void ProgramDraw::touch(int buffer, int queue, std::size_t place, bool writes) {
  accesses_[at(buffer)].push_back({queue, place, writes});
  if (group_ != 0) touched_in_group_.insert(buffer);
}

// Sometimes one that was used before, where its values do not matter.
Place ProgramDraw::draw_place(int rank, int queue, std::size_t bytes, Filling filling,
                              ElementType type, bool writes) {
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

void ProgramDraw::part(Call& call, int member) {
  Part& part = call.parts[at(member)];
  const int rank = rank_of(call.comm, member);
  part.queue = draw_queue(call.comm, rank, false);
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

void ProgramDraw::call(int comm) {
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

void ProgramDraw::message(int comm, int from, int to) {
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
  message.send_queue = draw_queue(comm, sender, true);
  int queue = enter(comm, sender, message.send_queue);
  message.input = draw_place(sender, queue, bytes, Filling::bits, message.type, false);
  message.receive_queue = alone ? message.send_queue : draw_queue(comm, receiver, true);
  // The two calls of a rank to itself are one group: they may not share a buffer.
  if (alone && bytes > 0) touched_in_group_.insert(message.input.buffer);
  queue = enter(comm, receiver, message.receive_queue);
  message.output = draw_place(receiver, queue, bytes, Filling::untouched, message.type, true);
  if (group_ == 0) touched_in_group_.clear();
  add(message);
}

// Everybody to a neighbour, or to everybody.
void ProgramDraw::messages(int comm) {
  const int n = size(comm), distance = 1 + below(n);
  const bool to_all = one_in(3);
  for (int from = 0; from < n; ++from)
    for (int to = 0; to < n; ++to)
      if (to_all || to == (from + distance) % n) message(comm, from, to);
}

void ProgramDraw::split(int comm) {
  if (program_.comms.size() >= max_comms) return;
  for (const int rank : members(comm)) {
    const auto known = queue_in_group_.find({comm, rank});
    if (known != queue_in_group_.end() && known->second != 0) return;
  }
  const bool is_polled = !program_.comms[at(comm)].blocking && !program_.by_caller.empty();
  if (is_polled && group_ != 0) return;
  if (is_polled)
    for (const int rank : members(comm)) drive(rank);
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

void ProgramDraw::end_of_step() {
  for (const auto& [rank, queue] : settled_after_) order_.synchronize(rank, queue);
  for (const auto& [rank, comm] : waited_after_) order_.wait_for_comm(rank, comm);
  settled_after_.clear();
  waited_after_.clear();
}

Program draw_program(std::uint32_t seed, Temper temper, Housing housing) {
  return ProgramDraw(seed, temper, housing).program();
}

int Program::process_of_rank(int rank) const {
  if (process_of_thread.empty()) return 0;
  const int thread = thread_of_rank[static_cast<std::size_t>(rank)];
  return process_of_thread[static_cast<std::size_t>(thread)];
}

int Program::processes() const {
  return process_of_thread.empty() ? 1 : *std::ranges::max_element(process_of_thread) + 1;
}

bool Program::is_by_caller(int rank, int queue) const {
  return !by_caller.empty() &&
         by_caller[static_cast<std::size_t>(rank)][static_cast<std::size_t>(queue) - 1];
}

int Program::threads_at(std::size_t step) const {
  std::set<int> there(thread_of_rank.begin(), thread_of_rank.end());
  for (const int thread : std::set<int>(there)) {
    const auto stays = [&](int rank) {
      return std::ranges::none_of(steps.begin(), steps.begin() + static_cast<std::ptrdiff_t>(step),
                                  [&](const Step& one) {
                                    const auto* leave = std::get_if<Leave>(&one.act);
                                    return leave != nullptr && leave->rank == rank;
                                  });
    };
    bool any = false;
    for (int rank = 0; rank < ranks(); ++rank)
      any |= thread_of_rank[static_cast<std::size_t>(rank)] == thread && stays(rank);
    if (!any) there.erase(thread);
  }
  return static_cast<int>(there.size());
}

int ProgramCommunicator::place_of(int rank) const {
  const auto found = std::ranges::find(members, rank);
  return found == members.end() ? nobody : static_cast<int>(found - members.begin());
}

}  // namespace gyre::tests
