#include "lib/plan/timeline.h"

#include "lib/plan/multicast.h"

#include <algorithm>
#include <deque>
#include <map>
#include <tuple>

namespace gyre::plan {

namespace {

struct Worker {
  std::int32_t rank = 0;
  Lane lane;
  Cursor cursor;
  std::uint64_t free = 0;  // when it can begin its next move
};

using FifoKey = std::tuple<std::int32_t, std::int32_t, std::int32_t>;  // from, to, channel

class TimelineRun {
 public:
  explicit TimelineRun(std::uint64_t move_time) : move_time_(move_time) {}

  bool move(Worker& worker) {
    const Move move = worker.cursor.move();
    std::uint64_t start = worker.free;
    for (std::uint32_t i = 0; i < move.recv.count; ++i) {
      const std::deque<MessageInTransit>& fifo = fifos_[key_in(worker, move.recv[i])];
      if (fifo.empty()) return false;
      start = std::max(start, fifo.front().sent + 1);
    }
    const bool summed = takes_from_all(worker.lane, move) && all_pulled(worker, move);
    for (std::uint32_t i = 0; i < move.recv.count; ++i) {
      std::deque<MessageInTransit>& fifo = fifos_[key_in(worker, move.recv[i])];
      fifo.front().received = start;
      fifo.front().summed = summed;
      fifo.front().first_received = i == 0;
      made_.flights.push_back(std::move(fifo.front()));
      fifo.pop_front();
    }
    send(worker, move, start);
    worker.free = start + move_time_;
    made_.end = std::max({made_.end, worker.free, start});
    worker.cursor.advance();
    return true;
  }

  Timeline take() { return std::move(made_); }

 private:
  static FifoKey key_in(const Worker& worker, std::uint32_t link) {
    return {worker.lane.links[link].peer, worker.rank, worker.lane.links[link].channel};
  }

  bool all_pulled(const Worker& worker, const Move& move) {
    bool all = true;
    for (std::uint32_t i = 0; i < move.recv.count; ++i)
      all = all && fifos_[key_in(worker, move.recv[i])].front().delivery == Delivery::pull;
    return all;
  }

  void send(const Worker& worker, const Move& move, std::uint64_t start) {
    MessageInTransit flight;
    flight.from = worker.rank;
    flight.delivery = delivery(*move.step);
    flight.sent = start;
    flight.bytes = move.bytes;
    flight.spread = sends_to_all(worker.lane, move);
    for_each_piece(move, [&](const Piece& piece) { flight.chunks.push_back(piece.chunk); });
    for (std::uint32_t i = 0; i < move.send.count; ++i) {
      const Link& link = worker.lane.links[move.send[i]];
      flight.to = link.peer;
      flight.channel = link.channel;
      flight.first_sent = i == 0;
      fifos_[{worker.rank, link.peer, link.channel}].push_back(flight);
    }
  }

  std::uint64_t move_time_;
  std::map<FifoKey, std::deque<MessageInTransit>> fifos_;
  Timeline made_;
};

}  // namespace

Geometry even_geometry(const Plan& plan, std::uint64_t total_bytes) {
  const std::uint64_t count = plan.chunk_count();
  const std::uint64_t chunk_bytes = (total_bytes + count - 1) / count;
  const Layout layout = Layout::even(chunk_bytes, total_bytes);
  return {layout, layout, std::max<std::uint64_t>(chunk_bytes, 1), plan.chunk_count()};
}

Result<Timeline> timeline(std::span<const Plan> plans, std::uint64_t total_bytes,
                          std::uint64_t move_time) {
  if (plans.empty()) return invalid_argument("a timeline of no plans");
  const Geometry geometry = even_geometry(plans.front(), total_bytes);
  std::vector<Worker> open;
  for (const Plan& plan : plans) {
    for (std::uint32_t i = 0; i < plan.lane_count(); ++i) {
      open.push_back({plan.rank(), plan.lane(i), Cursor(plan.lane(i), geometry, 1), 0});
    }
  }
  TimelineRun clockwork(move_time);
  while (!open.empty()) {
    bool moved = false;
    for (Worker& worker : open) {
      while (!worker.cursor.done() && clockwork.move(worker)) moved = true;
    }
    std::erase_if(open, [](const Worker& worker) { return worker.cursor.done(); });
    if (!moved && !open.empty()) return internal_error("the plans wait for each other");
  }
  return clockwork.take();
}

}  // namespace gyre::plan
