#include "lib/comm/communicator.h"

#include "lib/base/log.h"
#include "lib/comm/joining_note.h"
#include "lib/comm/process.h"
#include "lib/device/device_memory.h"
#include "lib/loaded/cuda_rest.h"
#include "lib/sendrecv/host_exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace gyre::comm {
namespace {

const SystemClock clock;

// Slots of 128 KiB: two of them and what they are summed with stay in a core's 2 MiB second-level
// cache, and the flags of a message cost under 1 % of moving it (bench/results).
constexpr transport::FifoShape default_shape = {
    .slot_count = 4, .line_count = 128, .slot_bytes = 128 << 10};

transport::FifoShape fifo_shape(const Settings& settings) {
  transport::FifoShape shape = default_shape;
  if (settings.slot_bytes > 0)
    shape.slot_bytes = round_up(static_cast<std::uint64_t>(settings.slot_bytes), 4096);
  shape.first = static_cast<std::uint64_t>(settings.first_sequence);
  return shape;
}

std::uint64_t hash_of(const std::string& text) {
  std::uint64_t hash = 0;
  for (const char c : text) hash = hash_with(hash, static_cast<unsigned char>(c));
  return hash;
}

// Once in a process, unless somebody has decided it.
void warn_of_clear_text(const Settings& settings) {
  static std::atomic<bool> told{false};
  if (settings.tcp_security == "tls" || settings.says("GYRE_TCP_SECURITY") || told.exchange(true))
    return;
  log_warn(
      "data goes between hosts as it is: whoever is on the path can read and change it. "
      "GYRE_TCP_SECURITY=tls encrypts it; GYRE_TCP_SECURITY=ticket says that you know");
}

}  // namespace

Communicator::Communicator(transport::RegionTable& regions, int size, int rank,
                           CommunicatorOptions options)
    : regions_(regions),
      size_(size),
      rank_(rank),
      options_(std::move(options)),
      sequence_(static_cast<std::uint64_t>(options_.settings.first_sequence)),
      splits_(sequence_) {}

Communicator::~Communicator() {
  if (witness_ != nullptr) witness_->end();
  if (device_ != nullptr) {
    process().device_watch.remove(*this);
    device_->leave(broken().ok() && !membership_->failed());
    p2p::Lent lent = device_->links().take_lent();
    device_.reset();
    process().device_watch.keep(std::move(lent));
    options_.device->driver().rest->settle();
  }
  if (membership_ && (may_leave_ || !process().ends())) membership_->leave();
}

Result<std::unique_ptr<Communicator>> Communicator::join(control::ControlPlane& plane,
                                                         transport::RegionTable& regions,
                                                         const trust::UniqueId& id, int size,
                                                         int rank, CommunicatorOptions options) {
  std::unique_ptr<Communicator> made(new Communicator(regions, size, rank, std::move(options)));
  const Settings& settings = made->options_.settings;
  GYRE_ASSIGN(made->allowed_, tune::Allowed::parse(settings));
  made->self_ = plane.identity();
  made->tickets_ = &plane.tickets();
  // The operation's own deadline speaks first: it knows more than the kernel.
  const std::int64_t tcp_user_timeout_ms = made->options_.timeout_ns / ns_per_ms + 10'000;
  GYRE_ASSIGN(made->transports_,
              make_transports(
                  settings, {.self = made->self_,
                             .tickets = plane.tickets(),
                             .listen_on_this_host =
                                 [&plane, settings] { return plane.listen_on_this_host(settings); },
                             .tcp_encrypted = settings.tcp_security == "tls",
                             .communicator_hash = hash_of(trust::short_name(id)),
                             .epoch = id.epoch,
                             .tcp_user_timeout_ms = tcp_user_timeout_ms,
                             .liveness_ns = made->liveness_ns()}));
  const LedgerIdentity identity{
      .communicator = hash_of(trust::short_name(id)),
      .name = FixedText<16>(trust::short_name(id)),
      .label = FixedText<64>(made->options_.label),
      .rank = rank,
      .size = size,
  };
  GYRE_ASSIGN(made->ledger_, claim_ledger(*made->options_.board, plane.identity(), identity));
  // Settings that every rank must share, since all choose for themselves and must choose alike.
  const std::string common = fmt::format(
      "version=1 transports={} algo={} proto={} slots={} reproducible={} security={} first={}",
      transport_names(made->transports_), settings.algorithm, settings.protocol,
      fifo_shape(settings).slot_bytes, made->options_.reproducible, settings.tcp_security,
      settings.first_sequence);
  if (made->on_device()) {
    const exec::CudaDevice& device = *made->options_.device;
    made->claimed_ = process().device_holdings.claim(device.uuid(), trust::short_name(id),
                                                     device.blocks_most(), estimate_holding);
  }
  GYRE_ASSIGN(const std::string device_note, made->device_note());
  GYRE_ASSIGN(made->membership_,
              plane.join(id, size, rank, encode(JoiningNote{common, device_note, processor_mask()}),
                         settings));
  made->self_ = made->membership_->self();
  made->listen();
  return made;
}

// What other ranks may ask while this one's program does something else.
void Communicator::listen() {
  witness_ = std::make_shared<Witness>(ledger_);
  const auto answer = [witness = witness_, mine = std::weak_ptr(membership_)](
                          int from, const control::Letter& question) -> std::optional<Status> {
    if (const auto membership = mine.lock()) witness->answer(*membership, from, question);
    return std::nullopt;
  };
  membership_->listen(letter_key(LetterKind::question), answer);
  if (!options_.settings.check_calls) return;
  board_ = std::make_shared<CallBoard>(rank_);
  membership_->listen(letter_key(LetterKind::call),
                      [board = board_](int from, const control::Letter& letter) {
                        return board->compare(from, letter);
                      });
}

Status Communicator::settle() {
  const control::Roster& roster = membership_->roster();
  std::vector<std::string_view> masks;
  const JoiningNote mine = read_joining_note(roster.notes[static_cast<std::size_t>(rank_)]);
  int local_ranks = 0;
  for (std::size_t rank = 0; rank < roster.notes.size(); ++rank) {
    const JoiningNote note = read_joining_note(roster.notes[rank]);
    if (note.settings != mine.settings)
      return Status(Code::InvalidUsage,
                    fmt::format("ranks {} and {} differ in their settings: \"{}\" and \"{}\"",
                                rank_, rank, mine.settings, note.settings));
    if (note.device.empty() != mine.device.empty())
      return Status(
          Code::InvalidUsage,
          fmt::format("rank {} works on {} and rank {} on {}: give all ranks a device, or "
                      "none (config.device)",
                      rank_, mine.device.empty() ? "host memory" : "a CUDA device", rank,
                      note.device.empty() ? "host memory" : "a CUDA device"));
    if (roster.processes[roster.process_of_rank[rank]].host != self_.host) continue;
    ++local_ranks;
    masks.push_back(note.processors);
  }
  show_peers(ledger_, roster);
  const bool one_host = local_ranks == size_;
  policy_ = gyre::wait_policy(local_ranks, count_processors(masks), options_.settings.spin_count);
  links_ = std::make_unique<Links>(rank_, *membership_, transports_, fifo_shape(options_.settings),
                                   regions_.probe());
  exchange_ = std::make_unique<HostExchange>(*links_, size_);
  scene_.ranks = size_;
  scene_.one_process = roster.processes.size() == 1;
  scene_.mapped = one_host;
  for (int peer = 0; peer < size_ && scene_.mapped; ++peer) {
    GYRE_ASSIGN(transport::Transport * transport, links_->select(peer));
    scene_.mapped = transport->reach(links_->identity_of(peer)).maps_slots;
  }
  scene_.reproducible = options_.reproducible;
  scene_.slot_bytes = fifo_shape(options_.settings).slot_bytes;
  scene_.line_count = fifo_shape(options_.settings).line_count;
  if (!one_host) warn_of_clear_text(options_.settings);
  log_info(Subsystem::init, "communicator {}rank {} of {}: {} processes, {} ranks on this host, {}",
           options_.name, rank_, size_, roster.processes.size(), local_ranks,
           scene_.mapped ? "memory reaches all ranks" : "not all ranks share memory");
  return on_device() ? settle_on_device() : Status();
}

Status Communicator::broken() const {
  if (!is_broken_.load(std::memory_order_acquire)) return {};
  const std::lock_guard lock(mutex_);
  return broken_;
}

Status Communicator::fail(Status why) {
  {
    const std::lock_guard lock(mutex_);
    if (broken_.ok()) broken_ = why;
    why = broken_;
    // At once: the driver may keep the watch waiting for the very kernels that are to leave.
    if (device_ready_ != nullptr) device_ready_->abort();
  }
  const bool is_first = !is_broken_.exchange(true, std::memory_order_acq_rel);
  if (!membership_->failed()) membership_->abort(why);
  if (is_first) note_failure(ledger_, why, options_.settings.flight_file);
  return why;
}

void Communicator::abort() {
  is_aborted_ = true;
  (void)fail(
      Status(Code::Aborted, fmt::format("rank {} called gyreCommAbort", rank_)).blame({rank_}));
}

void Communicator::remember(const Status& status) noexcept {
  const std::lock_guard lock(mutex_);
  try {
    last_error_ = status.full_text();
  } catch (const std::bad_alloc&) {
    last_error_ = "out of memory";  // short enough to need none
  }
}

std::string Communicator::last_error() const {
  const std::lock_guard lock(mutex_);
  return last_error_.empty() ? "no error" : last_error_;
}

Result<ReduceOp> Communicator::find_made_op(int op, ElementType type, std::uint64_t& scalar) const {
  const std::lock_guard lock(mutex_);
  GYRE_ASSIGN(scalar, made_ops_.find(op, type));
  return ReduceOp::pre_mul_sum;
}

Result<int> Communicator::make_op(ElementType type, std::uint64_t scalar) {
  const std::lock_guard lock(mutex_);
  return made_ops_.make(type, scalar);
}

Status Communicator::destroy_op(int op) {
  const std::lock_guard lock(mutex_);
  return made_ops_.destroy(op);
}

Result<std::uint64_t> Communicator::register_buffer(const void* buffer, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  Registered made{.buffer = buffer, .bytes = bytes};
  GYRE_TRY(meet_buffer(made));
  registered_[++registrations_] = std::move(made);
  return registrations_;
}

Status Communicator::deregister_buffer(std::uint64_t handle) {
  std::shared_ptr<RegisteredMemory> lent;
  std::shared_ptr<DeviceRegions> regions;
  {
    const std::lock_guard lock(mutex_);
    const auto found = registered_.find(handle);
    if (found == registered_.end())
      return invalid_argument(fmt::format("{:#x} was not registered on this communicator", handle));
    lent = found->second.lent;
    regions = regions_ready_;
    if (lent != nullptr && !std::exchange(found->second.is_delisted, true)) regions->delist(*lent);
  }
  if (lent != nullptr) GYRE_TRY(await_departure(*regions, *lent));
  const std::lock_guard lock(mutex_);
  registered_.erase(handle);
  return {};
}

Status Communicator::choose(const Request& request) {
  const BlockCounts blocks = block_counts(request.collective, size_, true);
  const std::uint64_t most = std::max(blocks.input, blocks.output);
  // All blocks together; a v-function counts them so. What a rank alone knows is no ground to
  // choose on.
  tune::Question question{request.collective, request.block_bytes() * most,
                          function_name(request.function)};
  if (request.tables != nullptr) question.bytes = request.block_bytes();
  if (request.function == Function::all_to_all_v) question.bytes = tune::Question::private_bytes;
  const bool on_device = runs_on_device(request);
  GYRE_ASSIGN(choice_, tune::choose(on_device ? device_->scene() : scene_, allowed_, question));
  auto& prepared = prepared_[{choice_.algorithm, request.collective, request.root}];
  if (prepared == nullptr) {
    plan::PlanRequest wanted;
    wanted.collective = request.collective;
    wanted.rank_count = size_;
    wanted.rank = rank_;
    wanted.root = request.root;
    GYRE_ASSIGN(plan::Plan made, plan::build_plan(*choice_.algorithm, wanted));
    GYRE_TRY(check_slots(made));
    prepared.reset(new Prepared{std::move(made), false, {}, {}, nullptr});
    log_info(Subsystem::tuning, "all ranks choose {} with {} for {} of {} bytes and the like",
             choice_.algorithm->name, plan::protocol_name(choice_.protocol),
             plan::collective_name(request.collective), question.bytes);
  }
  current_ = prepared.get();
  choice_bytes_ = question.bytes;
  const bool too_wide = on_device
                            ? !device_->fits(current_->plan, choice_.protocol)
                            : 64ULL * current_->plan.message_chunks() >
                                  transport::line_message_most_bytes(fifo_shape(options_.settings));
  if (too_wide &&
      (choice_.protocol == plan::Protocol::line || choice_.protocol == plan::Protocol::line128))
    choice_.protocol = plan::Protocol::simple;
  return {};
}

// The least piece of each chunk of a message, a cache line, has to fit the slot.
Status Communicator::check_slots(const plan::Plan& plan) {
  const transport::FifoShape shape = fifo_shape(options_.settings);
  const std::uint64_t least = 64ULL * plan.message_chunks();
  if (least <= shape.slot_bytes) return {};
  return invalid_usage(fmt::format("{} for {} ranks needs slots of {} bytes: raise GYRE_BUFFSIZE",
                                   plan.algorithm(), size_, least));
}

// All of a call but its buffers. Kept until another kind of call comes: most are like the one
// before.
void Communicator::bind(const Request& request, const CallRecord& record) {
  binding_.bind(request, current_->plan, choice_.piece_bytes);
  call_ = {};
  call_.geometry = binding_.geometry();
  call_.input_bytes = binding_.input_bytes();
  call_.output_bytes = binding_.output_bytes();
  const std::uint64_t scratch_bytes = current_->plan.scratch_chunks() * call_.geometry.piece_bytes;
  if (current_->scratch.size() < scratch_bytes) current_->scratch.resize(scratch_bytes);
  call_.scratch = current_->scratch.data();
  // Only with equal blocks does a rank know where the peer's block for it lies.
  call_.pairs = request.collective == plan::Collective::all_to_all;
  call_.lends = !call_.pairs || request.tables == nullptr;
  call_.rank = static_cast<std::uint32_t>(rank_);
  call_.type = request.type;
  call_.op = request.op;
  call_.divisor = request.op == ReduceOp::avg ? static_cast<std::uint32_t>(size_) : 1;
  call_.protocol = choice_.protocol;
  // Past the cache only what would push everything else out of it: several times the second level.
  call_.streamed = call_.output_bytes >= 16ULL << 20;
  call_.signature = signature_of(request);
  if (board_ != nullptr) call_.signature = hash_with(call_.signature, board_->history());
  bound_for_ = record;
  if (request.tables != nullptr) bound_for_.sequence = 0;
}

// The next call of the kind that is bound.
const exec::Call& Communicator::place(const Request& request) {
  call_.input = request.input;
  call_.output = request.output;
  call_.in_place = request.in_place;
  call_.pre_scalar = request.op == ReduceOp::pre_mul_sum ? &request.pre_scalar : nullptr;
  call_.sequence = sequence_;
  if (choice_.protocol != plan::Protocol::direct || scene_.one_process) return call_;
  call_.input_place = call_.output_place = {};
  if (call_.input != nullptr) call_.input_place = regions_.find(call_.input, call_.input_bytes);
  if (call_.output != nullptr) call_.output_place = regions_.lend(call_.output, call_.output_bytes);
  return call_;
}

}  // namespace gyre::comm
