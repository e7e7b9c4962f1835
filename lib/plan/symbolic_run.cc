#include "lib/plan/symbolic_run.h"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>
#include <tuple>

namespace gyre::plan {

namespace {

constexpr std::uint64_t piece_bytes = 4;
constexpr std::uint64_t max_pieces = 3;  // of a chunk: a first, a middle and a last round
constexpr std::uint64_t room_bytes = piece_bytes * max_pieces;
constexpr std::uint64_t short_bytes = 5;  // missing from the last chunk: two pieces, one short

// splitmix64: a well mixed function of the seed, the same on every machine.
std::uint64_t mixed(std::uint64_t value) {
  value += 0x9e3779b97f4a7c15U;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9U;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebU;
  return value ^ (value >> 31);
}

}  // namespace

SymbolicRun::SymbolicRun(std::span<const Plan> plans)
    : plans_(plans),
      contract_(plans.front()),
      contributions_(static_cast<std::int32_t>(plans.size())) {
  std::map<std::tuple<std::int32_t, std::int32_t, std::int32_t>, std::uint32_t> numbers;
  const auto number = [&](std::int32_t from, std::int32_t to, std::int32_t channel) {
    const auto [place, is_new] =
        numbers.try_emplace({from, to, channel}, static_cast<std::uint32_t>(fifos_.size()));
    if (is_new) fifos_.push_back({from, to, channel, -1, -1, true, {}});
    return place->second;
  };
  for (std::size_t rank = 0; rank < plans.size(); ++rank) {
    for (std::uint32_t lane = 0; lane < plans[rank].lane_count(); ++lane) {
      Worker worker;
      worker.rank = static_cast<std::int32_t>(rank);
      worker.number = lane;
      worker.index = static_cast<std::uint32_t>(workers_.size());
      worker.lane = plans[rank].lane(lane);
      for (std::uint32_t i = 0; i < worker.lane.link_count; ++i) {
        const Link& link = worker.lane.links[i];
        worker.in.push_back(number(link.peer, worker.rank, link.channel));
        worker.out.push_back(number(worker.rank, link.peer, link.channel));
      }
      const std::vector<bool> used = used_links(worker.lane, false);
      const std::vector<Stored> stored = stored_links(worker.lane);
      for (std::size_t i = 0; i < used.size(); ++i)
        if (used[i] && stored[i] != Stored::all) fifos_[worker.in[i]].is_stored = false;
      workers_.push_back(std::move(worker));
    }
  }
}

std::uint64_t SymbolicRun::size_of(std::uint64_t label) const {
  const std::uint32_t count = plans_.front().chunk_count();
  if (!machine_.even) return mixed(label + 1) % (room_bytes + 1);
  const bool is_short = !contract_.pairs() && label == count - 1;
  return is_short ? room_bytes - short_bytes : room_bytes;
}

// Even: one Layout that says it all. Uneven: a table for each buffer, the input's in reverse unless
// the two buffers are one.
void SymbolicRun::lay_out(const SymbolicMachine& machine) {
  machine_ = machine;
  const std::uint32_t count = plans_.front().chunk_count();
  tables_.clear();
  tables_.reserve(2 * plans_.size());
  geometries_.clear();
  for (std::size_t rank = 0; rank < plans_.size(); ++rank) {
    const std::uint64_t missing = contract_.pairs() ? 0 : short_bytes;
    const Layout even = Layout::even(room_bytes, room_bytes * count - missing);
    Geometry geometry{even, even, piece_bytes, count};
    for (const Buffer buffer : {Buffer::input, Buffer::output}) {
      if (machine.even) break;
      std::vector<Extent>& table = tables_.emplace_back(count);
      const bool reversed = buffer == Buffer::input && !machine.in_place;
      for (std::uint32_t chunk = 0; chunk < count; ++chunk) {
        const std::uint64_t room = reversed ? count - 1 - chunk : chunk;
        const auto label = contract_.label(buffer, static_cast<std::int32_t>(rank), chunk);
        table[chunk] = {room * room_bytes, size_of(label)};
      }
      Layout& layout = buffer == Buffer::input ? geometry.input : geometry.output;
      layout = Layout::listed(table.data());
    }
    geometries_.push_back(geometry);
  }
}

void SymbolicRun::bring_inputs() {
  memories_.resize(plans_.size());
  for (std::size_t i = 0; i < plans_.size(); ++i) {
    const std::int32_t rank = static_cast<std::int32_t>(i);
    const std::uint32_t count = plans_[i].chunk_count();
    memories_[i].begin(count * max_pieces, plans_[i].scratch_chunks(), machine_.in_place);
    for (std::uint32_t chunk = 0; chunk < count; ++chunk) {
      if (!contract_.brings(rank, chunk)) continue;
      const std::uint64_t bytes = geometries_[i].input.bytes(chunk);
      const std::uint64_t first = geometries_[i].input.offset(chunk) / piece_bytes;
      const std::uint64_t label = contract_.label(Buffer::input, rank, chunk);
      for (std::uint64_t piece = 0; piece * piece_bytes < bytes; ++piece) {
        const std::uint64_t here = std::min(piece_bytes, bytes - piece * piece_bytes);
        memories_[i].bring(first + piece,
                           {label, Contributions::of_rank(rank), static_cast<std::uint8_t>(piece),
                            static_cast<std::uint8_t>(here), false});
      }
    }
  }
}

Status SymbolicRun::run(const SymbolicMachine& machine) {
  lay_out(machine);
  bring_inputs();
  switch_sums_ = switch_stores_ = 0;
  for (Fifo& fifo : fifos_) fifo.messages.clear();
  spare_.resize(messages_.size());
  std::iota(spare_.begin(), spare_.end(), 0U);
  for (Worker& worker : workers_) {
    const Geometry& geometry = geometries_[static_cast<std::size_t>(worker.rank)];
    worker.cursor = Cursor(worker.lane, geometry, rounds(geometry));
    worker.stand();
    worker.clock.assign(workers_.size(), 0);
  }
  GYRE_TRY(run_all());
  for (const Fifo& fifo : fifos_) {
    if (fifo.messages.empty()) continue;
    return internal_error(fmt::format("nobody received a message from rank {} to {} on channel {}",
                                      fifo.from, fifo.to, fifo.channel));
  }
  return check_results();
}

std::string SymbolicRun::describe(const Worker& worker) {
  const Move& move = worker.move;
  return fmt::format("rank {} lane {} step {}.{} round {}", worker.rank, worker.number,
                     move.step_index, move.repeat, move.round);
}

// A seeded scheduler: in each turn the workers come in another order, and some run ahead.
Status SymbolicRun::run_all() {
  std::vector<std::uint32_t> open;
  for (const Worker& worker : workers_) {
    if (!worker.cursor.done()) open.push_back(worker.index);
  }
  std::uint64_t random = machine_.seed;
  while (!open.empty()) {
    for (std::size_t left = open.size(); left > 1; --left) {
      random = mixed(random);
      std::swap(open[left - 1], open[random % left]);
    }
    bool moved = false;
    for (const std::uint32_t index : open) {
      Worker& worker = workers_[index];
      random = mixed(random);
      for (std::uint64_t most = random % 4 == 0 ? 9 : 1; most > 0; --most) {
        if (worker.cursor.done()) break;
        if (!ready(worker)) break;
        if (Status status = perform(worker); !status.ok()) {
          return std::move(status).while_doing(describe(worker));
        }
        worker.cursor.advance();
        worker.stand();
        moved = true;
      }
    }
    if (!moved) return deadlock(open);
    std::erase_if(open, [this](std::uint32_t index) { return workers_[index].cursor.done(); });
  }
  return {};
}

bool SymbolicRun::ready(const Worker& worker) const {
  const Move& move = worker.move;
  for (std::uint32_t i = 0; i < move.recv.count; ++i) {
    if (fifos_[worker.in[move.recv[i]]].messages.empty()) return false;
  }
  for (std::uint32_t i = 0; machine_.depth > 0 && i < move.send.count; ++i) {
    if (fifos_[worker.out[move.send[i]]].messages.size() >= machine_.depth) return false;
  }
  return true;
}

Status SymbolicRun::deadlock(const std::vector<std::uint32_t>& blocked) const {
  std::string who;
  for (std::size_t i = 0; i < std::min<std::size_t>(blocked.size(), 4); ++i) {
    const Worker& worker = workers_[blocked[i]];
    const Move& move = worker.move;
    std::string why = "a slot";
    for (std::uint32_t link = 0; link < move.recv.count; ++link) {
      const Fifo& fifo = fifos_[worker.in[move.recv[link]]];
      if (fifo.messages.empty()) why = fmt::format("data from rank {}", fifo.from);
    }
    who += fmt::format("; {} waits for {}", describe(worker), why);
  }
  return internal_error(
      fmt::format("deadlock of {} lanes at depth {}{}", blocked.size(), machine_.depth, who));
}

std::uint32_t SymbolicRun::roundings() const {
  std::uint32_t most = 0;
  for (const auto& [label, contribution] : results_)
    most = std::max(most, contributions_.roundings(contribution));
  return most;
}

bool SymbolicRun::in_rank_order() const {
  return std::all_of(results_.begin(), results_.end(), [this](const auto& result) {
    const std::vector<std::int32_t> ranks = contributions_.ranks(result.second);
    return std::is_sorted(ranks.begin(), ranks.end());
  });
}

Status SymbolicRun::check_results() {
  for (const Plan& plan : plans_) {
    for (std::uint32_t chunk = 0; chunk < plan.chunk_count(); ++chunk) {
      if (!contract_.gets(plan.rank(), chunk)) continue;
      Status status = check_result(plan.rank(), chunk);
      if (status.ok()) continue;
      return std::move(status).while_doing(
          fmt::format("rank {} output chunk {}", plan.rank(), chunk));
    }
  }
  return {};
}

Status SymbolicRun::check_result(std::int32_t rank, std::uint32_t chunk) {
  const Layout& layout = geometries_[static_cast<std::size_t>(rank)].output;
  const std::uint64_t label = contract_.label(Buffer::output, rank, chunk);
  const std::uint64_t bytes = layout.bytes(chunk);
  for (std::uint64_t piece = 0; piece * piece_bytes < bytes; ++piece) {
    SymbolicValue got;
    const std::uint64_t index = layout.offset(chunk) / piece_bytes + piece;
    if (!memory(rank).holds(index, &got)) return internal_error("it was never stored");
    const std::uint64_t here = std::min(bytes - piece * piece_bytes, piece_bytes);
    if (got.label != label || got.piece != piece || got.bytes != here) {
      return internal_error("it holds another chunk");
    }
    if (got.finished != contract_.sums()) {
      return internal_error(got.finished ? "it was finished, but nothing was summed"
                                         : "it is not finished");
    }
    const auto [known, is_new] = results_.try_emplace(label, got.contribution);
    if (!is_new && known->second != got.contribution) {
      return internal_error("it was summed in another order than elsewhere or before");
    }
    if (!is_new) continue;
    std::vector<std::int32_t> ranks = contributions_.ranks(got.contribution);
    std::sort(ranks.begin(), ranks.end());
    if (ranks != contract_.contributors(chunk)) {
      return internal_error("it lacks contributions, or has one twice");
    }
  }
  return {};
}

}  // namespace gyre::plan
