#include "lib/cuda/device_relay.h"

#include "lib/base/units.h"

#include <fmt/core.h>

#include <atomic>
#include <cstring>

namespace gyre::exec {

using cuda::DeviceProtocol;

namespace {

// Credits and messages of a few channels on their way at a time.
constexpr std::uint32_t slots_of_connection = 8;
// The number of the call that a relay is to its wires.
constexpr std::uint64_t only_call = 1;

std::uint64_t load(const std::uint64_t* word) {
  return std::atomic_ref(*const_cast<std::uint64_t*>(word)).load(std::memory_order_acquire);
}
void store(std::uint64_t* word, std::uint64_t value) {
  std::atomic_ref(*word).store(value, std::memory_order_release);
}

}  // namespace

transport::FifoShape DeviceRelay::fifo_shape(const DeviceShape& shape) {
  return {.slot_count = slots_of_connection,
          .line_count = 1,
          .slot_bytes = round_up(relay_header_bytes + shape.slot_bytes, 4096)};
}

DeviceRelay::DeviceRelay(int peer, const DeviceShape& shape, const DeviceLink& link,
                         std::unique_ptr<transport::Connection> send,
                         std::unique_ptr<transport::Connection> receive, std::uint64_t first,
                         const RelayPlaces& places)
    : peer_(peer),
      shape_(shape),
      link_(link),
      places_(places),
      send_(std::move(send)),
      receive_(std::move(receive)),
      counts_(shape.channels, RelayCounts{first, first, first, first}) {
  // The peer's ends of the same two pieces.
  const DeviceLink far{.own = link.peers,
                       .peers = link.own,
                       .lends = false,
                       .own_rings = link.peers_rings,
                       .peers_rings = link.own_rings};
  for (std::uint32_t channel = 0; channel < shape.channels; ++channel)
    channels_.push_back({receive_end(shape, far, channel, DeviceProtocol::simple),
                         send_end(shape, far, channel, DeviceProtocol::simple)});
  lend_rings();
}

// Of memory that does not last, or that the NIC refuses, the wire has and lends nothing. Of a GPU's
// memory it is to store all: nothing else reaches it.
void DeviceRelay::lend_rings() {
  const std::uint64_t bytes = shape_.relay_rings_bytes();
  if (transport::Carrier* const wire = granting_carrier(*send_); wire != nullptr)
    held_ = wire->hold(link_.peers_rings, bytes);
  if (transport::Carrier* const wire = granting_carrier(*receive_); wire != nullptr)
    wire->lend({.region = transport::region_same_process,
                .offset = reinterpret_cast<std::uintptr_t>(link_.own_rings),
                .bytes = bytes,
                .stores_all = places_.own_on_gpu ? 1U : 0U},
               only_call);
}

Status DeviceRelay::advance(bool& moved) {
  if (!error_.ok() || has_left()) return error_;
  return keep(move(moved));
}

Status DeviceRelay::look_at_peer(std::int64_t now_ns, std::int64_t limit_ns) {
  if (!error_.ok() || has_left() || peer_left_) return error_;
  GYRE_TRY(keep(receive_->look_at_peer(now_ns, limit_ns)));
  return keep(send_->look_at_peer(now_ns, limit_ns));
}

Status DeviceRelay::keep(Status status) {
  if (!status.ok())
    error_ = std::move(status)
                 .while_doing(fmt::format("relaying between GPUs to rank {}", peer_))
                 .blame({peer_});
  return error_;
}

Status DeviceRelay::move(bool& moved) {
  const Status received = receive_->progress();
  if (send_error_.ok()) send_error_ = send_->progress();
  if (!joined_) {
    GYRE_TRY(received);
    GYRE_TRY(send_error_);
    join();
    if (!joined_) return {};
    moved = true;
  }
  GYRE_TRY(land(moved));
  GYRE_TRY(check_far_end(received));
  if (!send_error_.ok()) return {};
  if (!peer_left_) GYRE_TRY(ship(moved));
  say_goodbye(moved);
  send_error_ = send_->progress();
  return {};
}

// Whether the peer lends is known before the first message, and stays.
bool DeviceRelay::can_join() const {
  if (!send_->ready() || !receive_->ready()) return false;
  // Pairs with the release of whoever reads the peer's grant from the wire.
  return granting_carrier(*send_) == nullptr || send_->fifo().control->receiver_grant.sequence.load(
                                                    std::memory_order_acquire) == only_call;
}

void DeviceRelay::join() {
  if (!can_join()) return;
  if (granting_carrier(*send_) != nullptr) {
    const transport::Loan loan = send_->fifo().control->receiver_grant.read();
    peer_lends_ =
        loan.region == transport::region_same_process && loan.bytes == shape_.relay_rings_bytes();
    peer_needs_all_ = loan.stores_all != 0;
  }
  writer_ = transport::SlotWriter(send_->fifo());
  reader_ = transport::SlotReader(receive_->fifo());
  joined_ = true;
}

// A peer that has said goodbye may close. A broken way out is a symptom alone, since the way in may
// still hold the goodbye; it ends as well, if the peer is gone.
Status DeviceRelay::check_far_end(const Status& received) {
  if (peer_left_ || reader_.has_message()) return {};
  GYRE_TRY(received);
  if (!receive_->at_end()) return {};
  return Status(Code::RemoteError, "it closed the connection without a goodbye");
}

// As much as lies there: it all finds room in this rank's rings.
Status DeviceRelay::land(bool& moved) {
  for (std::uint32_t i = 0; i < slots_of_connection && reader_.has_message(); ++i) {
    GYRE_TRY(deliver(moved));
    reader_.release();
  }
  return {};
}

// What a wire has pushed is in the ring.
Result<RelayMessage> DeviceRelay::take_message(const transport::SlotHeader& note) {
  const bool is_pushed =
      note.delivery == transport::DeliveryMode::push && granting_carrier(*receive_) != nullptr;
  if (!note_fits(note, reader_.view().shape) ||
      (!is_pushed && note.delivery != transport::DeliveryMode::staged))
    return Status(Code::RemoteError,
                  fmt::format("its message of {} bytes with delivery {} is malformed", note.bytes,
                              static_cast<int>(note.delivery)));
  if (peer_left_) return Status(Code::RemoteError, "it sends messages after its goodbye");
  if (is_pushed) return take_pushed_message(note, shape_, counts_);
  // The header is copied there, and the peer may change the rest as it likes: it is payload.
  return take_relay_message({reader_.place(), note.bytes}, shape_, counts_);
}

Status DeviceRelay::deliver(bool& moved) {
  const transport::SlotHeader note = reader_.note();
  GYRE_ASSIGN(const RelayMessage said, take_message(note));
  moved = true;
  if (said.word == RelayWord::goodbye) {
    peer_left_ = true;
    return {};
  }
  const cuda::DeviceEnd& takes = channels_[said.channel].takes;
  const cuda::DeviceEnd& gives = channels_[said.channel].gives;
  if (said.word == RelayWord::head) {
    store(takes.told, said.number);  // pairs with the acquire in Simple::await_credit
    return {};
  }
  const std::uint64_t slot = (said.number - 1) & ((1ULL << shape_.slot_shift) - 1);
  const bool is_copied = note.delivery == transport::DeliveryMode::staged && said.bytes > 0;
  if (is_copied && places_.own_on_gpu)
    return Status(Code::RemoteError,
                  fmt::format("its message of {} bytes came through the host, and was to go to the "
                              "GPU's memory",
                              said.bytes));
  if (is_copied)
    std::memcpy(gives.ring + slot * shape_.slot_bytes, reader_.place() + relay_header_bytes,
                said.bytes);
  gives.notes[slot] = {said.flag, said.bytes, transport::DeliveryMode::staged, 0};
  store(gives.told, said.number);  // pairs with the acquire in Simple::await_message
  return {};
}

// One message of each channel; the next time another channel begins.
Status DeviceRelay::ship(bool& moved) {
  const auto channels = static_cast<std::uint32_t>(channels_.size());
  for (std::uint32_t i = 0; i < channels; ++i) GYRE_TRY(ship_released(i, moved));
  for (std::uint32_t i = 0; i < channels; ++i)
    GYRE_TRY(ship_message((next_channel_ + i) % channels, moved));
  next_channel_ = (next_channel_ + 1) % channels;
  return {};
}

Status DeviceRelay::ship_released(std::uint32_t channel, bool& moved) {
  RelayCounts& counts = counts_[channel];
  // Pairs with the release in Simple::close_received: what the kernel has read may be overwritten.
  const std::uint64_t head = load(channels_[channel].gives.heard);
  if (head == counts.returned) return {};
  if (head - counts.returned > counts.landed - counts.returned)
    return internal_error(fmt::format("a kernel has released {} messages of rank {}, and {} came",
                                      head, peer_, counts.landed));
  if (!writer_.has_credit()) return {};
  counts.returned = head;
  commit({.channel = channel, .word = RelayWord::head, .number = head});
  moved = true;
  return {};
}

Status DeviceRelay::ship_message(std::uint32_t channel, bool& moved) {
  RelayCounts& counts = counts_[channel];
  const cuda::DeviceEnd& takes = channels_[channel].takes;
  // Pairs with the release in Simple::close_sent: the slot and its note are written.
  const std::uint64_t tail = load(takes.heard);
  if (tail == counts.sent || !writer_.has_credit()) return {};
  const std::uint64_t slots = 1ULL << shape_.slot_shift;
  const std::uint64_t slot = counts.sent & (slots - 1);
  const transport::SlotHeader note = takes.notes[slot];
  if (tail - counts.freed > slots || note.bytes > shape_.slot_bytes ||
      note.delivery != transport::DeliveryMode::staged)
    return internal_error(fmt::format(
        "a kernel has sent messages {} to {} to rank {}, {} released; the first of {} bytes",
        counts.sent, tail, peer_, counts.freed, note.bytes));
  moved = true;
  return commit_tail({.channel = channel,
                      .word = RelayWord::tail,
                      .number = ++counts.sent,
                      .flag = note.flag,
                      .bytes = note.bytes},
                     takes.ring + slot * shape_.slot_bytes);
}

// `place`: the slot of the mirror's ring. The peer's has the same offset in its rings.
Status DeviceRelay::commit_tail(const RelayMessage& tail, const std::byte* place) {
  const bool is_long = tail.bytes >= transport::min_lent_bytes, is_any = tail.bytes > 0;
  const bool stays = places_.mirror_on_gpu ? is_any : is_long && held_ != nullptr;
  const bool pushes = peer_lends_ && (peer_needs_all_ ? is_any : is_long);
  if (stays && held_ == nullptr)
    return internal_error(fmt::format("no wire holds the rings to rank {}", peer_));
  std::byte* const staged = writer_.place() + relay_header_bytes;
  if (!stays) std::memcpy(staged, place, tail.bytes);
  if (!stays && !pushes) return commit(tail), Status();
  transport::LentParts& parts = lent_parts(writer_.view(), writer_.tail());
  parts = {};
  if (pushes) {
    (void)parts.add({stays ? place : staged, static_cast<std::uint64_t>(place - link_.peers_rings),
                     tail.bytes});
    writer_.commit(tail.bytes, pushed_flag(tail), transport::DeliveryMode::push);
    return {};
  }
  std::memcpy(writer_.place(), &tail, sizeof tail);
  (void)parts.add({writer_.place(), 0, relay_header_bytes});
  (void)parts.add({place, relay_header_bytes, tail.bytes});
  writer_.commit(static_cast<std::uint32_t>(relay_header_bytes) + tail.bytes, tail.number,
                 transport::DeliveryMode::pull);
  return {};
}

void DeviceRelay::commit(const RelayMessage& message) {
  std::memcpy(writer_.place(), &message, sizeof message);
  writer_.commit(static_cast<std::uint32_t>(sizeof message) + message.bytes, message.number,
                 transport::DeliveryMode::staged);
}

// Answered at once: whoever leaves waits for it.
void DeviceRelay::say_goodbye(bool& moved) {
  const bool is_time = peer_left_ || (leaving_ && first_told() < 0);
  if (!is_time || said_goodbye_ || !writer_.has_credit()) return;
  commit({.word = RelayWord::goodbye});
  said_goodbye_ = moved = true;
}

bool DeviceRelay::has_left() const {
  if (!peer_left_) return false;
  return !send_error_.ok() || (said_goodbye_ && send_->flushed());
}

bool DeviceRelay::has_told(std::uint32_t channel) const {
  return load(channels_[channel].takes.heard) != counts_[channel].sent ||
         load(channels_[channel].gives.heard) != counts_[channel].returned;
}

int DeviceRelay::first_told() const {
  for (std::uint32_t channel = 0; channel < channels_.size(); ++channel)
    if (has_told(channel)) return static_cast<int>(channel);
  return -1;
}

bool DeviceRelay::arm(WaitSet& set) {
  if (!error_.ok() || has_left()) return true;
  const bool may_send = send_error_.ok();
  // An end that has closed is found by `advance`; to arm it would be to depend on it.
  if (!peer_left_ && !receive_->at_end()) receive_->arm(set);
  if (may_send) send_->arm(set);
  if (!joined_) return !can_join();
  const bool may_ship = may_send && !peer_left_ && writer_.has_credit() && first_told() >= 0;
  return !may_ship && !(reader_.has_message() && !peer_left_);
}

void DeviceRelay::disarm() {
  receive_->disarm();
  send_->disarm();
}

}  // namespace gyre::exec
