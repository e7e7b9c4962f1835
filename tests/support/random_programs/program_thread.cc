// The start and end of a thread, and the calls that all threads make.
#include "tests/support/random_programs/program_thread.h"

#include "tests/support/comm/elements.h"

#include <algorithm>
#include <chrono>
#include <thread>

namespace gyre::tests {

Stage::Stage(const Program& of, ProgramBoard& on, int process)
    : program(of), board(on), expected(expected_bytes(of)) {
  for (const ProgramBuffer& buffer : of.buffers)
    buffers.push_back(of.process_of_rank(buffer.rank) == process
                          ? std::make_unique<LiveBuffer>(buffer)
                          : nullptr);
  for (const ProgramCommunicator& comm : of.comms) handles.emplace_back(comm.members.size());
  received.resize(of.steps.size(), {nobody, nobody});
  break_memory.resize(of.steps.size());
  for (std::size_t i = 0; i < of.steps.size(); ++i)
    if (const auto* fault = std::get_if<Break>(&of.steps[i].act)) {
      const std::size_t n = of.comms[static_cast<std::size_t>(fault->comm)].members.size();
      break_memory[i].assign(n, std::vector<float>((n + 1) * (fault->count + 1), 1));
    }
}

namespace {

bool await_id(const ProgramBoard& board) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (board.has_id == 0 && board.none_yet() && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  return board.has_id != 0;
}

}  // namespace

RankThread::RankThread(Stage& stage, int thread) : stage_(stage), program_(stage.program) {
  for (int rank = 0; rank < program_.ranks(); ++rank)
    if (program_.thread_of_rank[at(rank)] == thread) ranks_.insert(rank);
}

void RankThread::run() {
  open();
  for (std::size_t i = 0; i < program_.steps.size() && good() && !ranks_.empty();) {
    std::size_t end = i + 1;
    const int group = program_.steps[i].group;
    while (group != 0 && end < program_.steps.size() && program_.steps[end].group == group) ++end;
    carry_out(i, end);
    i = end;
  }
  close();
}

// ------------------------------------------------------------------------------ begin and end

void RankThread::open() {
  gyreConfig_t config = GYRE_CONFIG_INITIALIZER;
  config.blocking = comm_at(0).blocking ? 1 : 0;
  config.timeoutMs = program_.timeout_ms;
  config.commName = "program";
  std::vector<gyreComm_t>& root = stage_.handles[0];
  const int n = program_.ranks();
  const bool grouped = ranks_.size() > 1;
  if (!program_.by_init_all && !await_id(stage_.board)) return complain(0, "there is no unique id");
  if (program_.by_init_all) {
    expect(0, 0, gyreCommInitAll(root.data(), n, nullptr), nullptr, false);
  } else {
    if (grouped) (void)gyreGroupStart();
    for (const int rank : ranks_)
      expect(0, rank, gyreCommInitRankConfig(&root[at(rank)], n, stage_.board.id, rank, &config),
             nullptr, !comm_at(0).blocking);
    if (grouped) expect(0, *ranks_.begin(), gyreGroupEnd(), nullptr, !comm_at(0).blocking);
  }
  for (const int rank : ranks_) {
    expect(0, rank, settled(root[at(rank)]), root[at(rank)], false);
    for (int queue = 1; queue <= program_.streams_each; ++queue)
      expect(
          0, rank,
          gyreStreamCreateWithFlags(&streams_[{rank, queue}],
                                    program_.is_by_caller(rank, queue) ? GYRE_STREAM_BY_CALLER : 0),
          nullptr, false);
  }
}

// What a program leaves, and everything after a failure, so that nobody waits for this thread.
void RankThread::close() {
  const bool failed = !good();
  for (const int rank : ranks_) destroy_left(rank, failed);
  for (const int rank : ranks_) close_rank(rank, failed);
}

void RankThread::destroy_left(int rank, bool failed) {
  for (std::size_t comm = 0; comm < stage_.handles.size(); ++comm)
    for (std::size_t member = 0; member < stage_.handles[comm].size(); ++member) {
      gyreComm_t& left = stage_.handles[comm][member];
      if (program_.comms[comm].members[member] != rank || left == nullptr) continue;
      (void)(failed ? gyreCommAbort(left) : gyreCommDestroy(left));
      left = nullptr;
    }
}

void RankThread::close_rank(int rank, bool failed) {
  for (int queue = 1; queue <= program_.streams_each; ++queue) {
    const gyreResult_t result = gyreStreamDestroy(stream(rank, queue));
    if (!failed) expect(program_.steps.size(), rank, result, nullptr, false);
  }
  for (std::size_t i = 0; i < program_.steps.size() && !failed; ++i) {
    const auto* message = std::get_if<Message>(&program_.steps[i].act);
    if (message == nullptr || rank_of(message->comm, message->to) != rank) continue;
    if (stage_.received[i] != std::array{message->from, message->tag})
      complain(i, "the receiver learns of rank " + std::to_string(stage_.received[i][0]) +
                      " and tag " + std::to_string(stage_.received[i][1]));
  }
}

// ------------------------------------------------------------------------------ steps

void RankThread::carry_out(std::size_t begin, std::size_t end) {
  std::vector<Invocation> all;
  for (std::size_t i = begin; i < end; ++i) {
    const Act& act = program_.steps[i].act;
    if (const auto* call = std::get_if<Call>(&act)) collect(*call, i, all);
    if (const auto* message = std::get_if<Message>(&act)) collect(*message, i, all);
    if (const auto* split = std::get_if<Split>(&act)) collect(*split, i, all);
    std::visit([&](const auto& one) { alone(one, i); }, act);
  }
  // Each rank goes through the communicators in another order: a group may not mind.
  const int comms = static_cast<int>(program_.comms.size());
  std::ranges::stable_sort(all, {}, [&](const Invocation& one) {
    return std::pair(one.rank, (one.comm + one.rank) % comms);
  });
  bool may_go_on = false;
  const bool grouped = all.size() > 1;
  if (grouped) (void)gyreGroupStart();
  for (const Invocation& one : all) {
    const bool background = !comm_at(one.comm).blocking;
    may_go_on |= background;
    expect(one.step, one.rank, one.call(), handle(one.comm, one.member), background);
  }
  if (grouped) expect(begin, all[0].rank, gyreGroupEnd(), nullptr, may_go_on);
  for (const Invocation& one : all)
    if (one.after && good()) one.after();
}

void RankThread::collect(const Call& call, std::size_t step, std::vector<Invocation>& all) {
  for (int member = 0; member < static_cast<int>(call.parts.size()); ++member) {
    const int rank = rank_of(call.comm, member);
    if (!mine(rank)) continue;
    const Part& part = call.parts[at(member)];
    const gyreComm_t comm = handle(call.comm, member);
    const bool makes_op = sums(call.verb) && call.op == ReduceOp::pre_mul_sum;
    auto op = static_cast<gyreRedOp_t>(call.op);
    if (makes_op) {
      std::byte scalar[8] = {};
      put(call.type, scalar, static_cast<double>(part.scalar),
          static_cast<std::uint64_t>(part.scalar));
      expect(step, rank,
             gyreRedOpCreatePreMulSum(&op, scalar, static_cast<gyreDataType_t>(call.type),
                                      gyreScalarHostImmediate, comm),
             comm, false);
    }
    std::vector<void*> registered;
    for (const Place& place : {part.input, part.output}) {
      if (!part.registered || place.buffer == nobody) continue;
      LiveBuffer& buffer = *stage_.buffers[at(place.buffer)];
      expect(step, rank,
             gyreCommRegister(comm, buffer.begin(), buffer.bytes(), &registered.emplace_back()),
             comm, false);
    }
    all.push_back({rank, call.comm, member, step,
                   [=, this, &call, &part] { return collective(call, part, op, member); },
                   [=, this] {
                     if (makes_op) expect(step, rank, gyreRedOpDestroy(op, comm), comm, false);
                     // What may still run keeps its registration until the communicator's end.
                     if (part.queue != 0 || !comm_at(call.comm).blocking) return;
                     for (void* one : registered)
                       expect(step, rank, gyreCommDeregister(comm, one), comm, false);
                   }});
  }
}

gyreResult_t RankThread::collective(const Call& call, const Part& part, gyreRedOp_t op,
                                    int member) {
  const auto type = static_cast<gyreDataType_t>(call.type);
  const gyreComm_t comm = handle(call.comm, member);
  const gyreStream_t in = stream(rank_of(call.comm, member), part.queue);
  const std::byte* send = pointer(part.input);
  std::byte* receive = pointer(part.output);
  switch (call.verb) {
    case Verb::all_reduce:
      return gyreAllReduce(send, receive, call.count, type, op, comm, in);
    case Verb::reduce:
      return gyreReduce(send, receive, call.count, type, op, call.root, comm, in);
    case Verb::broadcast:
      if (send == receive) return gyreBcast(receive, call.count, type, call.root, comm, in);
      return gyreBroadcast(send, receive, call.count, type, call.root, comm, in);
    case Verb::reduce_scatter:
      return gyreReduceScatter(send, receive, call.count, type, op, comm, in);
    case Verb::all_gather:
      return gyreAllGather(send, receive, call.count, type, comm, in);
    case Verb::all_to_all:
      return gyreAlltoAll(send, receive, call.count, type, comm, in);
    case Verb::gather:
      return gyreGather(send, receive, call.count, type, call.root, comm, in);
    case Verb::scatter:
      return gyreScatter(send, receive, call.count, type, call.root, comm, in);
    case Verb::barrier:
      return gyreBarrier(comm, in);
    default:
      return uneven(call, part, op, comm, in);
  }
}

gyreResult_t RankThread::uneven(const Call& call, const Part& part, gyreRedOp_t op, gyreComm_t comm,
                                gyreStream_t in) {
  const auto type = static_cast<gyreDataType_t>(call.type);
  const std::byte* send = pointer(part.input);
  std::byte* receive = pointer(part.output);
  const std::size_t* counts = part.receive_counts.data();
  if (call.verb == Verb::all_to_all_v)
    return gyreAlltoAllv(send, part.send_counts.data(), part.send_places.data(), receive, counts,
                         part.receive_places.data(), type, comm, in);
  if (call.verb == Verb::reduce_scatter_v)
    return gyreReduceScatterv(send, receive, counts, type, op, comm, in);
  int member = 0;
  (void)gyreCommUserRank(comm, &member);
  return gyreAllGatherv(send, counts[member], receive, counts, part.receive_places.data(), type,
                        comm, in);
}

void RankThread::collect(const Message& message, std::size_t step, std::vector<Invocation>& all) {
  const auto type = static_cast<gyreDataType_t>(message.type);
  const int sender = rank_of(message.comm, message.from);
  const int receiver = rank_of(message.comm, message.to);
  const auto send = [=, this, &message] {
    return gyreSendTagged(pointer(message.input), message.count, type, message.to, message.tag,
                          handle(message.comm, message.from), stream(sender, message.send_queue));
  };
  const auto receive = [=, this, &message] {
    std::array<int, 2>& learned = stage_.received[step];
    return gyreRecvTagged(pointer(message.output), message.count, type,
                          message.from_any ? GYRE_ANY_SOURCE : message.from,
                          message.any_tag ? GYRE_ANY_TAG : message.tag, &learned[0], &learned[1],
                          handle(message.comm, message.to),
                          stream(receiver, message.receive_queue));
  };
  if (mine(sender)) all.push_back({sender, message.comm, message.from, step, send});
  if (mine(receiver)) all.push_back({receiver, message.comm, message.to, step, receive});
}

void RankThread::collect(const Split& split, std::size_t step, std::vector<Invocation>& all) {
  for (int member = 0; member < static_cast<int>(split.colors.size()); ++member) {
    const int rank = rank_of(split.comm, member), child = split.children[at(member)];
    if (!mine(rank)) continue;
    // A handle of nobody's has to become NULL.
    auto nothing = std::make_shared<gyreComm_t>(reinterpret_cast<gyreComm_t>(1));
    const auto place = [=, this]() -> gyreComm_t* {
      if (child == nobody) return nothing.get();
      return &handle(child, comm_at(child).place_of(rank));
    };
    const auto call = [=, this, &split] {
      gyreConfig_t config = GYRE_CONFIG_INITIALIZER;
      config.blocking = split.blocking ? 1 : 0;
      config.timeoutMs = program_.timeout_ms;
      return gyreCommSplit(handle(split.comm, member), split.colors[at(member)],
                           split.keys[at(member)], place(), split.configured ? &config : nullptr);
    };
    all.push_back({rank, split.comm, member, step, call, [=, this] {
                     const gyreComm_t parent = handle(split.comm, member);
                     expect(step, rank, settled(parent), parent, false);
                     if (child != nobody) return check_child(step, child, rank);
                     if (*nothing != nullptr) complain(step, "a handle without a color");
                   }});
  }
}

void RankThread::check_child(std::size_t step, int comm, int rank) {
  const int member = comm_at(comm).place_of(rank);
  int size = nobody, place = nobody;
  (void)gyreCommCount(handle(comm, member), &size);
  (void)gyreCommUserRank(handle(comm, member), &place);
  if (size == static_cast<int>(comm_at(comm).members.size()) && place == member) return;
  complain(step, "rank " + std::to_string(rank) + " is " + std::to_string(place) + " of " +
                     std::to_string(size) + " in communicator " + std::to_string(comm));
}

}  // namespace gyre::tests
