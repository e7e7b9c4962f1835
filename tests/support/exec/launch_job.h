// All ranks of one collective on the host's interpreter, in one thread under a seeded scheduler,
// with real fifos in plain memory and real arithmetic.
#pragma once

#include "lib/base/units.h"
#include "lib/exec/launch.h"
#include "lib/plan/algorithms.h"
#include "tests/support/catch.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <thread>
#include <tuple>

namespace gyre::tests {

struct FifoMemory {
  explicit FifoMemory(const transport::FifoShape& shape)
      : memory(static_cast<std::byte*>(
            std::aligned_alloc(4096, round_up(transport::fifo_bytes(shape), 4096)))) {
    std::memset(memory, 0, transport::fifo_bytes(shape));
    view = transport::FifoView::at(memory, shape);
  }
  ~FifoMemory() { std::free(memory); }
  FifoMemory(const FifoMemory&) = delete;
  FifoMemory& operator=(const FifoMemory&) = delete;
  std::byte* memory;
  transport::FifoView view;
};

// Makes one end of the connection from one rank to another.
using Connector = std::function<std::unique_ptr<transport::Connection>(
    int from, int to, int channel, transport::Direction direction)>;

class PlainConnection final : public transport::Connection {
 public:
  PlainConnection(const transport::FifoView& view, bool shared) : view_(view), shared_(shared) {}
  bool ready() const override { return true; }
  const transport::FifoView& fifo() const override { return view_; }
  Status progress() override { return {}; }
  bool flushed() const override { return true; }
  bool needs_progress() const override { return false; }
  void arm(WaitSet&) override {}
  void disarm() override {}
  bool same_address_space() const override { return shared_; }

 private:
  transport::FifoView view_;
  bool shared_;
};

// All ranks of one collective, and the fifos between them.
class Job {
 public:
  Job(std::string_view algorithm, int ranks, const transport::FifoShape& shape, bool shared)
      : Job(algorithm, all_reduce_of(ranks), shape, shared) {}
  // Over connections in plain memory, unless there is a connector.
  Job(std::string_view algorithm, const plan::PlanRequest& request,
      const transport::FifoShape& shape, bool shared, Connector connector = {})
      : shape_(shape), shared_(shared), connector_(std::move(connector)) {
    shape_.spreads = connector_ == nullptr;
    auto plans = plan::build_plans(*plan::find_algorithm(algorithm), request);
    REQUIRE(plans.ok());
    plans_ = std::move(*plans);
    for (int rank = 0; rank < size(); ++rank) bound_.push_back(bind(rank));
    launches_.resize(bound_.size());
  }

  const plan::Plan& plan(int rank) const { return plans_[static_cast<std::size_t>(rank)]; }
  int size() const { return static_cast<int>(plans_.size()); }

  // As ranks of other processes do.
  void map_each_other_by(transport::PeerMemory* memory) {
    for (auto& port : sends_) port->peer_memory = memory;
    for (auto& port : receives_) port->peer_memory = memory;
  }
  // As ranks of other processes do that map nothing, and whose memory the kernel copies.
  void copy_from_each_other_by(transport::PeerMemory* memory, bool copies = true) {
    for (auto& port : receives_) {
      port->peer_memory = memory;
      port->copies = copies;
    }
  }
  // What `from` and `to` tell each other of the messages from the one to the other.
  transport::FifoControl& control(int from, int to, int channel = 0) {
    return *fifos_.at({from, to, channel})->view.control;
  }
  transport::FifoView view(int from, int to) { return fifos_.at({from, to, 0})->view; }
  exec::Launch& launch(int rank) { return launches_[static_cast<std::size_t>(rank)]; }
  void begin(int rank, const exec::Call& call) {
    launch(rank).begin(bound_[static_cast<std::size_t>(rank)], call);
  }

  // The call is then carried out by that run.
  void bind_short(int rank, exec::Call& call, exec::ShortRun& run) {
    run.bind(bound_[static_cast<std::size_t>(rank)], call);
    run.set_signature(call.signature);
    call.short_run = &run;
  }

  // Takes what has come for a rank, and moves nothing.
  void settle(int rank) {
    for (exec::SendPort* port : bound_[static_cast<std::size_t>(rank)].send_ports)
      REQUIRE(port->connection->progress().ok());
  }

  // Runs one call on each rank; which rank goes next, and so enters, is the seed's choice.
  void run(const std::vector<exec::Call>& calls, std::mt19937_64& random) {
    std::vector<std::size_t> running;
    for (std::size_t rank = 0; rank < calls.size(); ++rank) running.push_back(rank);
    std::vector<bool> has_entered(calls.size());
    int idle = 0;
    while (!running.empty()) {
      const std::size_t pick = random() % running.size();
      const std::size_t rank = running[pick];
      if (!has_entered[rank]) launches_[rank].begin(bound_[rank], calls[rank]);
      has_entered[rank] = true;
      const auto state = launches_[rank].advance();
      INFO(launches_[rank].error().message());
      REQUIRE(state != exec::Launch::State::failed);
      idle = state == exec::Launch::State::blocked ? idle + 1 : 0;
      REQUIRE(idle < 20000);  // nobody moved for a long time: a deadlock
      if (connector_ && idle > 100) std::this_thread::sleep_for(std::chrono::microseconds(100));
      if (state == exec::Launch::State::done)
        running.erase(running.begin() + static_cast<long>(pick));
    }
  }

  // All enter; then all but one go as far as they come.
  void run_without(std::size_t late, const std::vector<exec::Call>& calls) {
    for (std::size_t rank = 0; rank < calls.size(); ++rank)
      launches_[rank].begin(bound_[rank], calls[rank]);
    for (int idle = 0; idle < 100; ++idle)
      for (std::size_t rank = 0; rank < calls.size(); ++rank)
        if (rank != late && launches_[rank].advance() != exec::Launch::State::blocked) idle = 0;
  }
  // After that, all together.
  void finish() {
    int turns = 0;
    for (bool done = false; !done;) {
      REQUIRE(++turns < 20000);
      done = true;
      for (exec::Launch& launch : launches_) done &= launch.advance() == exec::Launch::State::done;
    }
  }

  // The first failure; success if there is none within many turns.
  Status run_to_failure(const std::vector<exec::Call>& calls) {
    for (std::size_t rank = 0; rank < calls.size(); ++rank)
      launches_[rank].begin(bound_[rank], calls[rank]);
    for (int turn = 0; turn < 1000; ++turn)
      for (exec::Launch& launch : launches_)
        if (launch.advance() == exec::Launch::State::failed) return launch.error();
    return {};
  }

 private:
  static plan::PlanRequest all_reduce_of(int ranks) {
    plan::PlanRequest request;
    request.rank_count = ranks;
    return request;
  }

  transport::FifoView fifo(int from, int to, int channel) {
    auto& memory = fifos_[{from, to, channel}];
    if (!memory) memory = std::make_unique<FifoMemory>(shape_);
    return memory->view;
  }

  exec::BoundPlan bind(int rank) {
    exec::BoundPlan bound;
    const plan::Plan& plan = plans_[static_cast<std::size_t>(rank)];
    bound.direct = plan.direct();
    bound.direct_in_place = plan.direct_in_place();
    std::map<std::pair<int, int>, std::pair<exec::SendPort*, exec::ReceivePort*>> known;
    for (std::uint32_t index = 0; index < plan.lane_count(); ++index) {
      exec::BoundPlan::LaneEnds ends;
      ends.lane = plan.lane(index);
      ends.shared = exec::StealableStep::of(ends.lane);
      const std::vector<plan::Stored> stored = plan::stored_links(ends.lane);
      for (std::uint32_t i = 0; i < ends.lane.link_count; ++i) {
        const plan::Link link = ends.lane.links[i];
        auto& ports = known[{link.peer, link.channel}];
        if (ports.first == nullptr) {
          ports = make_ports(rank, link);
          bound.send_ports.push_back(ports.first);
          bound.receive_ports.push_back(ports.second);
          bound.stored.push_back(plan::Stored::none);
        }
        // Two lanes may have the link, and one of them receives on it.
        const auto place = std::ranges::find(bound.receive_ports, ports.second);
        plan::Stored& known_stored =
            bound.stored[static_cast<std::size_t>(place - bound.receive_ports.begin())];
        known_stored = std::max(known_stored, stored[i]);
        ends.send.push_back(ports.first);
        ends.recv.push_back(ports.second);
      }
      bound.lanes.push_back(std::move(ends));
    }
    return bound;
  }

  std::unique_ptr<transport::Connection> connect(int from, int to, int channel,
                                                 transport::Direction direction) {
    if (connector_) return connector_(from, to, channel, direction);
    return std::make_unique<PlainConnection>(fifo(from, to, channel), shared_);
  }

  std::pair<exec::SendPort*, exec::ReceivePort*> make_ports(int rank, plan::Link link) {
    auto send = std::make_unique<exec::SendPort>();
    send->peer = link.peer;
    send->same_address_space = shared_;
    send->connection = connect(rank, link.peer, link.channel, transport::Direction::send);
    send->carrier = send->connection->carrier();
    auto receive = std::make_unique<exec::ReceivePort>();
    receive->peer = link.peer;
    receive->same_address_space = shared_;
    receive->connection = connect(link.peer, rank, link.channel, transport::Direction::receive);
    receive->carrier = receive->connection->carrier();
    receive->slots = transport::SlotReader(receive->connection->fifo());
    receive->lines = transport::LineReader(receive->connection->fifo());
    send->shares_memory = receive->shares_memory = connector_ == nullptr;
    exec::begin_to_send(*send, *receive);
    sends_.push_back(std::move(send));
    receives_.push_back(std::move(receive));
    return {sends_.back().get(), receives_.back().get()};
  }

  transport::FifoShape shape_;
  bool shared_;
  Connector connector_;
  std::vector<plan::Plan> plans_;
  std::map<std::tuple<int, int, int>, std::unique_ptr<FifoMemory>> fifos_;
  std::vector<std::unique_ptr<exec::SendPort>> sends_;
  std::vector<std::unique_ptr<exec::ReceivePort>> receives_;
  std::vector<exec::BoundPlan> bound_;
  std::vector<exec::Launch> launches_;
};

}  // namespace gyre::tests
