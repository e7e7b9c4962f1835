// Launches whose peers lie: all ranks of a call run here, in the order that the input says. Between
// their turns the fuzzer overwrites notes, counters, lines and grants. A rank then ends with an
// error or continues; without a lie, all end with the right sums. Input: u8 algorithm, u8 protocol
// (3: short runs through slots), u8 ranks, u16 elements, then acts: u8 kind, u8 rank or fifo, and
// what it needs.
#include "lib/base/log.h"
#include "lib/exec/launch.h"
#include "lib/plan/algorithms.h"
#include "tests/fuzz/fifo.h"
#include "tests/fuzz/input.h"

#include <map>
#include <memory>
#include <tuple>

namespace launch_fuzz {

using namespace gyre;
using namespace gyre::transport;

namespace {

constexpr FifoShape shape = {
    .slot_count = 4, .line_count = 32, .slot_bytes = 1024, .spreads = true};
constexpr int max_ranks = 4;
constexpr std::size_t max_elements = 512;
constexpr std::uint64_t signature = 0x123456;

class PlainConnection final : public Connection {
 public:
  explicit PlainConnection(const FifoView& view) : view_(view) {}
  bool ready() const override { return true; }
  const FifoView& fifo() const override { return view_; }
  Status progress() override { return {}; }
  bool flushed() const override { return true; }
  bool needs_progress() const override { return false; }
  void arm(WaitSet&) override {}
  void disarm() override {}
  bool same_address_space() const override { return false; }

 private:
  const FifoView view_;
};

// Buffers that peers may map, as other processes do, made once.
struct Buffers {
  RegionTable regions;
  std::vector<std::int32_t*> inputs, outputs;
  std::unique_ptr<PeerMemory> peer_memory;
  Buffers() {
    const auto allocate = [&] {
      const auto memory = regions.allocate(max_elements * sizeof(std::int32_t));
      GYRE_DEMAND(memory.ok());
      return static_cast<std::int32_t*>(*memory);
    };
    for (int rank = 0; rank < max_ranks; ++rank) {
      inputs.push_back(allocate());
      outputs.push_back(allocate());
    }
    peer_memory = PeerMemory::open(regions.probe());
    GYRE_DEMAND(peer_memory != nullptr);
  }
};

Buffers& buffers() {
  static Buffers made;
  return made;
}

class Job {
 public:
  Job(const plan::Algorithm& algorithm, plan::Protocol protocol, bool shortly, int ranks,
      std::size_t elements);
  void act(fuzz::Input& input);
  // Everybody's turns until nobody moves.
  void finish();
  bool honest() const { return honest_; }
  void check_sums() const;
  void check_doomed() const;

 private:
  struct Rank {
    exec::BoundPlan bound;
    exec::Launch launch;
    exec::ShortRun run;
    exec::Call call;
    std::vector<std::byte> scratch;
    std::map<std::pair<int, int>, std::unique_ptr<exec::SendPort>> send;
    std::map<std::pair<int, int>, std::unique_ptr<exec::ReceivePort>> receive;
    bool done = false;
    bool failed = false;
  };
  FifoView fifo(int from, int to, int channel);
  void bind(int rank);
  void begin(int rank);
  bool advance(int rank);
  void lie(fuzz::Input& input, int kind, const fuzz::Fifo& fifo, std::size_t receiver);

  const plan::Protocol protocol_;
  const bool shortly_;
  const std::size_t elements_;
  std::vector<plan::Plan> plans_;
  std::map<std::tuple<int, int, int>, std::unique_ptr<fuzz::Fifo>> fifos_;
  std::vector<Rank> ranks_;
  bool honest_ = true;
  std::size_t doomed_ = max_ranks;  // the rank that has a note to read which it must refuse
};

Job::Job(const plan::Algorithm& algorithm, plan::Protocol protocol, bool shortly, int ranks,
         std::size_t elements)
    : protocol_(protocol),
      shortly_(shortly),
      elements_(elements),
      ranks_(static_cast<std::size_t>(ranks)) {
  plan::PlanRequest request;
  request.rank_count = ranks;
  auto plans = plan::build_plans(algorithm, request);
  GYRE_DEMAND(plans.ok());
  plans_ = std::move(*plans);
  for (int rank = 0; rank < ranks; ++rank) bind(rank);
  for (int rank = 0; rank < ranks; ++rank) begin(rank);
}

FifoView Job::fifo(int from, int to, int channel) {
  auto& memory = fifos_[{from, to, channel}];
  if (memory == nullptr) memory = std::make_unique<fuzz::Fifo>(shape);
  return memory->view;
}

void Job::bind(int rank) {
  Rank& self = ranks_[static_cast<std::size_t>(rank)];
  const plan::Plan& plan = plans_[static_cast<std::size_t>(rank)];
  self.bound.direct = plan.direct();
  self.bound.direct_in_place = plan.direct_in_place();
  for (std::uint32_t index = 0; index < plan.lane_count(); ++index) {
    exec::BoundPlan::LaneEnds ends;
    ends.lane = plan.lane(index);
    ends.shared = exec::StealableStep::of(ends.lane);
    for (std::uint32_t i = 0; i < ends.lane.link_count; ++i) {
      const plan::Link link = ends.lane.links[i];
      auto& send = self.send[{link.peer, link.channel}];
      auto& receive = self.receive[{link.peer, link.channel}];
      if (send == nullptr) {
        const FifoView out = fifo(rank, link.peer, link.channel);
        const FifoView in = fifo(link.peer, rank, link.channel);
        send = std::make_unique<exec::SendPort>();
        receive = std::make_unique<exec::ReceivePort>();
        send->peer = receive->peer = link.peer;
        send->peer_memory = receive->peer_memory = buffers().peer_memory.get();
        receive->copies = true;
        send->connection = std::make_unique<PlainConnection>(out);
        receive->connection = std::make_unique<PlainConnection>(in);
        receive->slots = SlotReader(in);
        receive->lines = LineReader(in);
        send->shares_memory = receive->shares_memory = true;
        exec::begin_to_send(*send, *receive);
        self.bound.send_ports.push_back(send.get());
        self.bound.receive_ports.push_back(receive.get());
      }
      ends.send.push_back(send.get());
      ends.recv.push_back(receive.get());
    }
    self.bound.lanes.push_back(std::move(ends));
  }
}

void Job::begin(int rank) {
  const auto place = static_cast<std::size_t>(rank);
  Rank& self = ranks_[place];
  const plan::Plan& plan = plans_[place];
  std::int32_t* input = buffers().inputs[place];
  std::int32_t* output = buffers().outputs[place];
  for (std::size_t i = 0; i < elements_; ++i) input[i] = static_cast<std::int32_t>(i) * (rank + 1);
  std::fill_n(output, max_elements, -1);
  const std::uint64_t bytes = elements_ * sizeof *input;
  const std::uint64_t chunk_bytes =
      std::max<std::uint64_t>(64, round_up(divide_up(bytes, plan.chunk_count()), 64));
  const std::uint64_t room = protocol_ == plan::Protocol::line ? 448 : shape.slot_bytes;
  exec::Call& call = self.call;
  call.geometry.input = call.geometry.output = plan::Layout::even(chunk_bytes, bytes);
  call.geometry.chunk_count = plan.chunk_count();
  call.geometry.piece_bytes = room / plan.message_chunks() / 64 * 64;
  self.scratch.resize(plan.scratch_chunks() * call.geometry.piece_bytes);
  call.input = reinterpret_cast<const std::byte*>(input);
  call.output = reinterpret_cast<std::byte*>(output);
  call.scratch = self.scratch.data();
  call.input_bytes = call.output_bytes = bytes;
  call.input_place = buffers().regions.find(input, bytes);
  call.output_place = buffers().regions.find(output, bytes);
  call.type = ElementType::int32;
  call.protocol = protocol_;
  call.sequence = 1;
  call.signature = signature;
  if (shortly_) {
    self.run.bind(self.bound, call);
    self.run.set_signature(signature);
    call.short_run = &self.run;
  }
  self.launch.begin(self.bound, call);
}

bool Job::advance(int rank) {
  Rank& self = ranks_[static_cast<std::size_t>(rank)];
  if (self.done || self.failed) return false;
  const exec::Launch::State state = self.launch.advance();
  self.done = state == exec::Launch::State::done;
  self.failed = state == exec::Launch::State::failed;
  if (self.failed) {
    GYRE_DEMAND(!honest_);
    GYRE_DEMAND(self.launch.error().culprits().size() == 1);
  } else if (!self.done) {
    (void)self.launch.blocked();
  }
  return state != exec::Launch::State::blocked;
}

void Job::act(fuzz::Input& input) {
  const int kind = input.take<std::uint8_t>() % 16;
  const std::size_t which = input.take<std::uint8_t>();
  if (kind < 6) return void(advance(static_cast<int>(which % ranks_.size())));
  if (fifos_.empty()) return;
  const auto place = std::next(fifos_.begin(), static_cast<long>(which % fifos_.size()));
  lie(input, kind, *place->second, static_cast<std::size_t>(std::get<1>(place->first)));
  honest_ = false;
}

// At the places where a peer's word is read; anywhere else is scribbling.
void Job::lie(fuzz::Input& input, int kind, const fuzz::Fifo& fifo, std::size_t receiver) {
  FifoControl& control = *fifo.view.control;
  Grant& grant = (kind & 1) != 0 ? control.sender_grant : control.receiver_grant;
  const std::uint64_t number = input.take<std::uint64_t>();
  switch (kind) {
    case 6:
      fifo.view.note(number).bytes ^= input.take<std::uint32_t>();
      break;
    case 7: {
      const auto delivery = input.take<std::uint16_t>();
      fifo.view.note(number).delivery = DeliveryMode{delivery};
      // A second lie may take back the first.
      doomed_ = max_ranks;
      if (honest_ && delivery > 2 &&
          number - control.head.value < control.tail.value - control.head.value)
        doomed_ = receiver;
      break;
    }
    case 8:
      fifo.view.note(number).flag ^= input.take<std::uint64_t>();
      break;
    case 9:
    case 10:
      (kind == 9 ? control.tail.value : control.head.value) += number;
      break;
    case 11:
    case 12:
      grant.loan.offset += number;
      break;
    case 13:
    case 14:
      grant.loan.region = number;
      grant.loan.descriptor = input.take<std::uint8_t>();
      break;
    default:
      fifo.view.line(number).flag ^= input.take<std::uint64_t>();
      control.line_head.value += input.take<std::uint8_t>();
      control.sender_grant.sequence = input.take<std::uint8_t>();
      control.receiver_grant.sequence = input.take<std::uint8_t>();
      control.receiver_grant.loan.reach ^= input.take<std::uint8_t>();
      control.receiver_grant.loan.bytes ^= input.take<std::uint16_t>();
      control.pieces_taken.value ^= input.take<std::uint64_t>();
      control.pieces_done.value ^= input.take<std::uint64_t>();
  }
}

void Job::finish() {
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
      moved |= advance(static_cast<int>(rank));
  }
}

void Job::check_sums() const {
  const auto ranks = static_cast<std::int32_t>(ranks_.size());
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    GYRE_DEMAND(ranks_[rank].done);
    const std::int32_t* output = buffers().outputs[rank];
    for (std::size_t i = 0; i < elements_; ++i)
      GYRE_DEMAND(output[i] == static_cast<std::int32_t>(i) * ranks * (ranks + 1) / 2);
    for (std::size_t i = elements_; i < max_elements; ++i) GYRE_DEMAND(output[i] == -1);
  }
}

void Job::check_doomed() const { GYRE_DEMAND(doomed_ == max_ranks || !ranks_[doomed_].done); }

}  // namespace

int take_input(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  constexpr std::string_view names[] = {"oneshot", "twoshot", "ring", "doubling", "tree"};
  const plan::Algorithm* algorithm =
      plan::find_algorithm(names[input.take<std::uint8_t>() % std::size(names)]);
  const int kind = input.take<std::uint8_t>() % 4;
  const bool shortly = kind == 3;
  const auto protocol = shortly ? plan::Protocol::simple : static_cast<plan::Protocol>(kind);
  const int ranks = 1 + input.take<std::uint8_t>() % max_ranks;
  Job job(*algorithm, protocol, shortly, ranks, input.take<std::uint16_t>() % (max_elements + 1));
  for (int acts = 0; acts < 200 && !input.empty(); ++acts) job.act(input);
  job.finish();
  if (job.honest()) job.check_sums();
  job.check_doomed();
  return 0;
}

GYRE_FUZZ_TARGET(launch)

}  // namespace launch_fuzz
