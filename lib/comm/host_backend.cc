#include "lib/comm/host_backend.h"

#include "lib/base/log.h"
#include "lib/base/units.h"
#include "lib/comm/communicator_state.h"
#include "lib/comm/device_services.h"
#include "lib/comm/host_machine.h"
#include "lib/comm/join_info.h"
#include "lib/comm/pair_log.h"
#include "lib/comm/rank_levels.h"
#include "lib/device/device_memory.h"
#include "lib/links/message_keys.h"
#include "lib/links/transport_registry.h"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <string_view>
#include <utility>

namespace gyre::comm {
namespace {

// Slots of 128 KiB: two of them and what they are summed with stay in a core's second-level cache,
// and the flags of a message cost under 1 % of moving it (bench/results).
constexpr transport::FifoShape default_shape = {
    .slot_count = 4, .line_count = 128, .slot_bytes = 128 << 10};
// Of few ranks that share memory. What goes one way passes through 2 MiB for each processor before
// it is written over, so that these lines have left the reader's second-level cache
// (docs/decisions/48). More ranks have more links, and more of them on a processor share its cache.
constexpr std::uint64_t long_link_bytes = 2 << 20;
constexpr int max_ranks_of_long_links = 8;
constexpr std::uint64_t max_sharers_of_long_links = 2;
// Of sockets alone: what leaves from lent memory is not copied to a slot. With messages of 512 KiB
// calls of 512 KiB and more took 0.75 to 0.89 times as long as with 128
// (bench/results/settings.jsonl).
constexpr std::uint64_t socket_slot_bytes = 512 << 10;
// Of UCX alone: about as many bytes, in messages that are one packet of UCX over TCP each. The
// first is taken while the others come: sends of 1 MiB took 0.8 times as long, with two ranks over
// loopback.
constexpr std::uint32_t ucx_slot_count = 8;
constexpr std::uint64_t ucx_slot_bytes = 63 << 10;

transport::FifoShape shape_of(const Settings& settings) {
  transport::FifoShape shape = default_shape;
  if (settings.slot_bytes > 0)
    shape.slot_bytes = round_up(static_cast<std::uint64_t>(settings.slot_bytes), 4096);
  shape.first = static_cast<std::uint64_t>(settings.first_sequence);
  return shape;
}

// Once in a process, unless somebody has decided it.
void warn_of_clear_text(const Settings& settings) {
  static std::atomic<bool> told{false};
  if (settings.tcp_security == "tls" || settings.says("GYRE_TCP_SECURITY") || told.exchange(true))
    return;
  log_warn(
      "data between hosts is not encrypted: anybody on the network path can read and change it. "
      "GYRE_TCP_SECURITY=tls encrypts it; GYRE_TCP_SECURITY=ticket keeps it so without this "
      "warning");
}

transport::RdmaOptions rdma_options(const Settings& settings) {
  return {.hca = settings.ib_hca,
          .gid_index = static_cast<int>(settings.ib_gid_index),
          .traffic_class = static_cast<int>(settings.ib_traffic_class),
          .service_level = static_cast<int>(settings.ib_service_level),
          .timeout = static_cast<int>(settings.ib_timeout),
          .retry_count = static_cast<int>(settings.ib_retry_count),
          .qps_per_connection = static_cast<int>(settings.ib_qps_per_connection)};
}

transport::TransportLetters letters_of(CommunicatorState& state) {
  const auto key_of = [](std::uint64_t key) { return message_key(MessageTopic::transport, key); };
  return {.send =
              [&state, key_of](std::int32_t to, std::uint64_t key, control::MessageBytes bytes) {
                return state.membership->send(to, key_of(key), std::move(bytes));
              },
          .receive =
              [&state, key_of](std::int32_t from, std::uint64_t key) {
                return state.membership->receive(from, key_of(key));
              }};
}

std::function<bool(std::string_view)> near_gpu(const std::shared_ptr<GpuNics>& nics) {
  if (nics == nullptr) return nullptr;
  return [nics](std::string_view port) { return nics->why_too_far(port).empty(); };
}

std::string announced_by(const CommunicatorState& state, const trust::ProcessIdentity& process) {
  if (state.membership == nullptr) return {};
  const control::Roster& roster = state.membership->roster();
  for (std::size_t rank = 0; rank < roster.process_of_rank.size(); ++rank)
    if (roster.processes[roster.process_of_rank[rank]].process == process.process)
      return std::string(read_join_info(roster.notes[rank]).announcement);
  return {};
}

}  // namespace

HostBackend::HostBackend(CommunicatorState& state, const Services& services, tune::Allowed allowed)
    : state_(state),
      services_(services),
      regions_(services.regions),
      lasting_(std::make_shared<transport::LastingMemory>(services.regions)),
      machine_(services.machine),
      plans_(state.rank, state.size, std::move(allowed)) {}

transport::FifoShape HostBackend::fifo_shape() const { return shape_of(state_.options.settings); }

Result<std::unique_ptr<HostBackend>> HostBackend::make(CommunicatorState& state,
                                                       const Services& services,
                                                       control::ControlPlane& plane,
                                                       const trust::UniqueId& id) {
  const Settings& settings = state.options.settings;
  GYRE_ASSIGN(tune::Allowed allowed, tune::Allowed::parse(settings));
  std::unique_ptr<HostBackend> made(new HostBackend(state, services, std::move(allowed)));
  if (state.options.device != nullptr)
    made->gpu_nics_ = std::make_shared<GpuNics>(services.machine, services.devices.nvml, settings,
                                                state.options.device->bus_id());
  GYRE_ASSIGN(made->transports_,
              make_transports(
                  settings, {.self = state.self,
                             .tickets = plane.tickets(),
                             .listen_on_this_host =
                                 [&plane, settings] { return plane.listen_on_this_host(settings); },
                             .tcp_encrypted = settings.tcp_security == "tls",
                             .tcp_sockets = static_cast<std::size_t>(settings.tcp_sockets),
                             .tcp_checksums = settings.tcp_checksum,
                             .communicator_hash = communicator_hash(id),
                             .epoch = id.epoch,
                             .liveness_ns = state.liveness_ns(),
                             .letters = letters_of(state),
                             .announced =
                                 [&state](const trust::ProcessIdentity& process) {
                                   return announced_by(state, process);
                                 },
                             .rdma = rdma_options(settings),
                             .verbs = &services.verbs,
                             .ucp = &services.ucp,
                             .is_near_gpu = near_gpu(made->gpu_nics_),
                             .lasting = made->lasting_}));
  return made;
}

// Settings that every rank must share, since all choose for themselves and must choose alike.
Result<control::MessageBytes> HostBackend::join_info(const std::string& device,
                                                     const std::string& machine) const {
  const Settings& settings = state_.options.settings;
  const std::string common = fmt::format(
      "version=15 transports={} algo={} proto={} slots={} reproducible={} security={} checksum={} "
      "cma={} check={} first={}",
      transport_names(transports_), settings.algorithm, settings.protocol, fifo_shape().slot_bytes,
      state_.options.reproducible, settings.tcp_security, settings.tcp_checksum, settings.cma,
      settings.check_calls, settings.first_sequence);
  GYRE_ASSIGN(const topology::Locality place, own_locality());
  std::string announcement;
  for (const auto& transport : transports_) {
    GYRE_ASSIGN(const std::string said, transport->announcement());
    if (!said.empty()) announcement += (announcement.empty() ? "" : ";") + said;
  }
  return encode(JoinInfo{common, device, processor_mask(), topology::encode(place), announcement,
                         machine, wires_text(transports_), yield_group()});
}

Result<topology::Locality> HostBackend::own_locality() const {
  const std::string& file = state_.options.settings.topology_file;
  const auto processors = topology::allowed_processors();
  if (file.empty())
    return processors.ok() ? topology::read_locality(*processors) : topology::Locality();
  GYRE_ASSIGN(const topology::Topology* const machine, machine_.find(file));
  return processors.ok() ? topology::find_locality(*machine, *processors) : topology::Locality();
}

Result<bool> HostBackend::settle() {
  const control::Roster& roster = state_.membership->roster();
  const trust::Token& own_host = state_.self.host;
  links_ = std::make_unique<Links>(state_.rank, *state_.membership, transports_, regions_.probe());
  exchange_ = std::make_unique<HostExchange>(*links_, regions_, state_.size);
  layout_ = RankLayout(roster);
  plans_.follow(layout_);
  if (state_.rank == 0) log_info(Subsystem::graph, "{}", layout_.text());
  if (logs_info(Subsystem::graph)) log_candidates();
  int local_ranks = 0;
  for (int rank = 0; rank < state_.size; ++rank)
    local_ranks += state_.identity_of(rank).host == own_host;
  const bool one_host = local_ranks == state_.size;
  bool maps_all = one_host;
  for (int peer = 0; peer < state_.size && maps_all; ++peer) {
    GYRE_ASSIGN(transport::Transport * transport, links_->select(peer));
    maps_all = transport->reach(links_->identity_of(peer)).maps_slots;
  }
  is_one_process_ = roster.processes.size() == 1;
  tuning_.ranks = state_.size;
  tuning_.levels = find_levels(layout_, roster, maps_all, has_shared_memory(transports_));
  if (state_.rank == 0) log_info(Subsystem::graph, "{}", tune::levels_text(tuning_.levels));
  tuning_.reproducible = state_.options.reproducible;
  settle_shape();
  if (!one_host) warn_of_clear_text(state_.options.settings);
  log_info(Subsystem::init, "communicator {}rank {} of {}: {} processes, {} ranks on this host, {}",
           state_.options.name, state_.rank, state_.size, roster.processes.size(), local_ranks,
           maps_all ? "memory reaches all ranks" : "not all ranks share memory");
  return true;
}

// All ranks have the same settings and levels.
void HostBackend::settle_shape() {
  transport::FifoShape shape = fifo_shape();
  const bool is_set = state_.options.settings.slot_bytes > 0;
  if (tuning_.uses_alone(topology::Medium::ucx) && !is_set) {
    shape.slot_count = ucx_slot_count;
    shape.slot_bytes = ucx_slot_bytes;
  }
  const bool maps_all = tuning_.maps_all();
  const std::uint64_t sharers = ranks_per_processor();
  const bool is_crowded = maps_all && sharers > 1;
  const bool is_long =
      maps_all && sharers <= max_sharers_of_long_links && state_.size <= max_ranks_of_long_links;
  while (is_long && shape.slot_count < transport::max_pooled_slots &&
         shape.slot_count * shape.slot_bytes < long_link_bytes / sharers)
    shape.slot_count *= 2;
  tuning_.slot_bytes = shape.slot_bytes;
  tuning_.line_count = shape.line_count;
  if (tuning_.uses_alone(topology::Medium::sockets) && !is_set)
    shape.slot_bytes = tuning_.lent_bytes = socket_slot_bytes;
  shape.spreads = is_long;
  links_->use_shape(shape);
  const std::string& cma = state_.options.settings.cma;
  const bool waits_apart = is_crowded && !yields_reach_all();
  if (waits_apart && state_.rank == 0)
    log_info(Subsystem::init,
             "the ranks outnumber the processors, and do not share one session: one that waits "
             "cannot hand its processor to another one");
  may_copy_ = cma == "1" || (cma == "auto" && waits_apart);
  links_->use_copies(may_copy_);
}

// Of ranks of one host: how many share a processor at most, if they spread evenly.
std::uint64_t HostBackend::ranks_per_processor() const {
  std::vector<std::string_view> masks;
  for (const control::MessageBytes& note : state_.membership->roster().notes)
    masks.push_back(read_join_info(note).processors);
  return divide_up(static_cast<std::uint64_t>(state_.size),
                   static_cast<std::uint64_t>(std::max(count_processors(masks), 1)));
}

// Whether a rank that waits can hand its processor to each other one.
bool HostBackend::yields_reach_all() const {
  const std::vector<control::MessageBytes>& notes = state_.membership->roster().notes;
  const std::string_view first = read_join_info(notes.front()).yields;
  return std::ranges::all_of(notes, [&](const control::MessageBytes& note) {
    return read_join_info(note).yields == first;
  });
}

HostExchange* HostBackend::host_exchange() {
  const CommunicatorOptions& options = state_.options;
  const bool is_plain =
      options.driver == nullptr && options.blocking && !logs_trace(Subsystem::p2p);
  return is_plain ? exchange_.get() : nullptr;
}

std::vector<PeerPath> HostBackend::peer_paths() const {
  const auto machine = machine_.find(state_.options.settings.topology_file);
  return comm::peer_paths(*links_, layout_, machine.ok() ? *machine : nullptr, state_.rank,
                          state_.size);
}

void HostBackend::log_candidates() const {
  const auto machine = machine_.find(state_.options.settings.topology_file);
  for (const std::string& line :
       pair_lines(*links_, layout_, machine.ok() ? *machine : nullptr, state_.rank, state_.size))
    log_info(Subsystem::graph, "{}", line);
}

Status HostBackend::check_memory(std::string_view name, const void* buffer,
                                 std::uint64_t bytes) const {
  return check_host_memory(*state_.options.driver, name, buffer, bytes);
}

Status HostBackend::fetch(void* value, const void* from, std::uint64_t bytes) const {
  std::memcpy(value, from, bytes);
  return {};
}

// NICs may keep keys of it. Peers of this host reach memory of gyreMemAlloc alone.
Result<std::uint64_t> HostBackend::register_buffer(const void* buffer, std::uint64_t bytes) {
  auto* const start = static_cast<std::byte*>(const_cast<void*>(buffer));
  bool moves = false;
  if (const loaded::CudaDriver* const driver = services_.cuda_in_use(); driver != nullptr) {
    GYRE_ASSIGN(moves, is_managed(*driver, buffer));
  }
  return lasting_->add({start, moves ? 0 : static_cast<std::size_t>(bytes)});
}

Status HostBackend::deregister_buffer(std::uint64_t handle) {
  return lasting_->remove(handle) ? Status() : not_registered(handle);
}

// ------------------------------------------------------------------------------ a collective

bool HostBackend::is_bound(const Request& request, const CallRecord& record) {
  if (request.tables != nullptr) return false;
  const auto fits = [&](const BoundCall& one) {
    return one.made_for.sequence != 0 && one.made_for.agrees_with(record);
  };
  if (!fits(*current_)) {
    const auto found = std::ranges::find_if(bound_calls_, fits);
    if (found == bound_calls_.end()) return false;
    current_ = &*found;
  }
  repeatable_.note_use(repeatable_.at(place_of(*current_)));
  return true;
}

// One that is free, or was not used for longest.
HostBackend::BoundCall& HostBackend::oldest() {
  return *std::ranges::min_element(bound_calls_, {}, [this](const BoundCall& one) {
    return one.made_for.sequence == 0 ? 0 : repeatable_.at(place_of(one)).used;
  });
}

Status HostBackend::choose(const Request& request) {
  is_running_ = false;
  current_ = &oldest();
  BoundCall& next = *current_;
  next.made_for = {};
  repeatable_.at(place_of(next)) = {};
  GYRE_ASSIGN(next.chosen, plans_.choose(request, tuning_));
  next.plan = &prepared_[next.chosen.plan];
  if (64ULL * next.chosen.plan->message_chunks() > transport::max_line_message_bytes(fifo_shape()))
    next.chosen.choice.protocol = plan::without_lines(next.chosen.choice.protocol);
  return {};
}

Status HostBackend::begin_opening() { return links_->open(*current_->chosen.plan); }

Result<bool> HostBackend::open(bool& moved) {
  GYRE_TRY(links_->advance(moved));
  return links_->plan_is_open();
}

// Kept until as many other kinds of calls have come since.
Status HostBackend::bind(const Request& request, const CallRecord& record) {
  BoundCall& bound = *current_;
  const plan::Plan& plan = *bound.chosen.plan;
  if (!bound.plan->is_open) bound.plan->bound = links_->bind(plan);
  bound.plan->is_open = true;
  const tune::Choice& choice = bound.chosen.choice;
  bound.copies = may_copy_ && request.collective == plan::Collective::scatter &&
                 choice.protocol == plan::Protocol::direct;
  const std::uint64_t piece =
      bound.copies
          ? tune::copied_piece_bytes(tuning_, bound.chosen.bytes)
          : tune::piece_bytes(tuning_, choice.protocol, bound.chosen.bytes, plan.chunk_count());
  bound.binding.bind(request, plan, piece);
  exec::Call& call = bound.call;
  call = {};
  call.geometry = bound.binding.geometry();
  call.input_bytes = bound.binding.input_bytes();
  call.output_bytes = bound.binding.output_bytes();
  const std::uint64_t scratch_bytes = plan.scratch_chunks() * call.geometry.piece_bytes;
  if (bound.scratch.size() < scratch_bytes) bound.scratch.resize(scratch_bytes);
  call.scratch = bound.scratch.data();
  // Only with equal blocks does a rank know where the peer's block for it lies.
  call.pairs = request.collective == plan::Collective::all_to_all;
  call.lends = !call.pairs || request.tables == nullptr;
  call.rank = static_cast<std::uint32_t>(state_.rank);
  call.type = request.type;
  call.op = request.op;
  call.divisor = request.op == ReduceOp::avg ? static_cast<std::uint32_t>(state_.size) : 1;
  call.protocol = bound.chosen.choice.protocol;
  bound.signature = signature_of(request);
  bind_run(bound, request.tables == nullptr);
  bound.made_for = record;
  if (request.tables != nullptr) bound.made_for.sequence = 0;
  repeatable_.note_use(repeatable_.at(place_of(bound)));
  return {};
}

// All calls by lines have a run, and those by slots that need nothing else and may come again.
void HostBackend::bind_run(BoundCall& bound, bool comes_again) {
  exec::Call& call = bound.call;
  const bool by_slots = call.protocol == plan::Protocol::simple && comes_again &&
                        call.output_bytes < exec::OutputPace::min_bytes;
  if (call.protocol != plan::Protocol::line && !by_slots) return;
  bound.run.bind(bound.plan->bound, call);
  if (call.protocol == plan::Protocol::line || bound.run.is_whole()) call.short_run = &bound.run;
}

// What is not bound: the buffers, and what the calls before it tell.
void HostBackend::prepare(const Request& request, std::uint64_t sequence) {
  exec::Call& call = current_->call;
  call.input = request.input;
  call.output = request.output;
  call.in_place = request.in_place;
  call.pace = &paces_[static_cast<int>(request.collective)][call.in_place].of(call.output_bytes);
  call.streamed = call.pace->begin_call();
  call.pre_scalar = request.op == ReduceOp::pre_mul_sum ? &request.pre_scalar : nullptr;
  call.sequence = sequence;
  call.signature = current_->signature;
  if (state_.call_history != nullptr)
    call.signature = hash_with(call.signature, state_.call_history->hash());
  call.signature = with_own_number(request, call.signature, sequence);
  if (call.short_run != nullptr) call.short_run->set_signature(call.signature);
}

void HostBackend::take_over(const Request& request, std::uint64_t sequence) {
  current_ = &bound_calls_[repeatable_.last_place()];
  prepare(request, sequence);
  launch_.take_over(current_->plan->bound, current_->call);
  is_running_ = true;
  has_told_refusal_ = false;
}

// In a region that peers map, or where they copy from.
transport::RegionPlace HostBackend::place_of_input(const BoundCall& bound) const {
  const exec::Call& call = bound.call;
  const transport::RegionPlace place = regions_.find(call.input, call.input_bytes);
  if (place.region != transport::region_staged || !bound.copies ||
      !transport::can_be_copied(call.input, call.input_bytes))
    return place;
  return {.region = transport::region_copied,
          .offset = reinterpret_cast<std::uintptr_t>(call.input)};
}

Backend::State HostBackend::begin(const Request& request, std::uint64_t sequence, bool) {
  prepare(request, sequence);
  exec::Call& call = current_->call;
  if (call.protocol == plan::Protocol::direct && !is_one_process_) {
    call.input_place = call.output_place = {};
    if (call.input != nullptr) call.input_place = place_of_input(*current_);
    if (call.output != nullptr) call.output_place = regions_.lend(call.output, call.output_bytes);
  }
  launch_.begin(current_->plan->bound, call);
  is_running_ = true;
  has_told_refusal_ = false;
  return State::moved;
}

// It may be stopped, or its machine paused, and go on at any time.
bool HostBackend::withdraw(int by) {
  const std::string what =
      fmt::format("rank {} stopped in the middle of writing into {} bytes at {}", by,
                  current_->call.output_bytes, static_cast<const void*>(current_->call.output));
  const Status done = regions_.withdraw(current_->call.output);
  if (done.ok())
    log_warn(
        "{}: this rank no longer shares these bytes with any peer. Calls on them are slower until "
        "gyreMemFree frees them",
        what);
  else if (!std::exchange(has_told_refusal_, true))
    log_warn(
        "{}, and access to them cannot be withdrawn now ({}): the call ends when it can, or when "
        "that rank continues",
        what, done.message());
  return done.ok();
}

void HostBackend::end_loan() {
  regions_.end_loan(current_->call.output);
  current_->call.output_place = {};
}

Status HostBackend::look_at_peers(std::int64_t now_ns, std::int64_t limit_ns) {
  if (!is_running_) return links_->look_at_peers(now_ns, limit_ns);
  GYRE_TRY(links_->check_reached(now_ns, limit_ns));
  return launch_.look_at_peers(now_ns, limit_ns);
}

}  // namespace gyre::comm
