// A peer's messages as sends and receives see them: a receiver of messages in slots, or in lines
// and slots, against an honest sender, and against one that writes anything. Where there are lines,
// every third long message is lent. Input: u8 flags (the shape; 8: counters near their end; 16:
// lines), then acts, see `Trial::act`.
#include "lib/sendrecv/inline_message.h"
#include "lib/sendrecv/mailbox.h"
#include "tests/fuzz/fifo.h"
#include "tests/fuzz/input.h"

#include <deque>
#include <memory>
#include <optional>
#include <set>

namespace mailbox_fuzz {

using namespace gyre;
using namespace gyre::comm;

namespace {

constexpr int peer = 3;
constexpr std::size_t max_receives = 32;
constexpr std::uint8_t has_lines = 16;

transport::FifoShape shape_of(std::uint8_t flags) {
  transport::FifoShape shape;
  shape.slot_count = 1u << (flags & 3);
  shape.line_count = (flags & has_lines) != 0 ? 128 : 2;
  shape.slot_bytes = (flags & 4) != 0 ? 128 : 256;
  shape.first = (flags & 8) != 0 ? ~std::uint64_t{0} - 2 : 0;
  return shape;
}

// Of the message of that number; its first bytes are the number itself.
std::byte byte_at(std::uint32_t number, std::uint64_t place) {
  return static_cast<std::byte>(place < 4 ? number >> 8 * place : number * 31 + place * 7);
}

// Memory that a sender lends, as this process and as its peer reach it.
constexpr std::uint64_t max_bytes = 1500;
struct LentMemory {
  transport::RegionTable regions;
  std::byte* own = static_cast<std::byte*>(regions.allocate(max_bytes).value());
  std::unique_ptr<transport::PeerMemory> peers = transport::PeerMemory::open(regions.probe());
};
LentMemory& lent_memory() {
  static LentMemory memory;
  return memory;
}

class Trial {
 public:
  explicit Trial(std::uint8_t flags) : fifo_(shape_of(flags)) {
    transport::start_counters(fifo_.view);
    sends_.slots = transport::SlotWriter(fifo_.view);
    lines_ = transport::LineWriter(fifo_.view);
    port_.peer = peer;
    port_.shares_memory = (flags & has_lines) != 0;
    port_.slots = transport::SlotReader(fifo_.view);
    port_.lines = transport::LineReader(fifo_.view);
    port_.peer_memory = lent_memory().peers.get();
  }
  // False when it is over.
  bool act(fuzz::Input& input);

 private:
  struct Sent {
    TransferHead head;
    std::uint64_t shipped = 0;
    bool begun = false;
  };
  struct Wanted {
    Transfer transfer;
    Batch batch;
    std::vector<std::byte> place;
    int source = -1, tag = -1;
    bool checked = false;
  };
  void send(fuzz::Input& input);
  void ship();
  bool ship_at_once(Sent& one);
  bool ship_lines(Sent& one);
  bool may_lend(const Sent& one) const;
  void lend(Sent& one);
  void ship_slot(Sent& one);
  void lie_in_line(std::uint64_t flag, std::span<const std::uint8_t> content);
  void lie(fuzz::Input& input);
  void lie_in_grant(fuzz::Input& input);
  bool receive(fuzz::Input& input);
  void receive_now(Wanted& wanted);
  bool advance();
  bool goes_on(const Status& status);
  void check(const Wanted& wanted);

  fuzz::Fifo fifo_;
  exec::SendPort sends_;
  transport::LineWriter lines_;
  exec::ReceivePort port_;
  std::uint64_t kept_ = 0, sent_bytes_ = 0;
  Receives receives_;
  Mailbox box_{peer, port_, receives_, kept_};
  std::vector<Sent> sent_;
  std::size_t next_ = 0;  // of sent_, to be shipped
  std::optional<std::uint64_t> lent_until_;
  std::deque<Wanted> wanted_;
  std::set<std::uint32_t> taken_;
  bool honest_ = true;
};

void Trial::send(fuzz::Input& input) {
  Sent one;
  one.head.bytes = input.take<std::uint16_t>() % max_bytes;
  one.head.tag = input.take<std::uint8_t>() % 3;
  one.head.type = static_cast<std::uint8_t>(input.take<std::uint8_t>() % element_type_count);
  sent_bytes_ += one.head.bytes;
  sent_.push_back(one);
}

// As Outbox::ship does it, or ImmediateTransfer: the payload first.
void Trial::ship() {
  while (next_ < sent_.size()) {
    if (lent_until_ && !sends_.slots.released(*lent_until_)) return;
    lent_until_.reset();
    Sent& one = sent_[next_];
    if (!ship_at_once(one) && port_.shares_memory && !one.begun) {
      if (!ship_lines(one)) return;
    } else if (one.shipped < one.head.bytes || !one.begun) {
      if (!sends_.slots.has_credit()) return;
      may_lend(one) ? lend(one) : ship_slot(one);
    }
    if (one.shipped == one.head.bytes) ++next_;
  }
}

// Every other one.
bool Trial::ship_at_once(Sent& one) {
  const std::uint64_t bytes = one.head.bytes, slots = payload_slots(bytes, fifo_.view.shape);
  if (!port_.shares_memory || one.begun || next_ % 2 == 0 || is_inline(bytes)) return false;
  if (!fits(bytes, fifo_.view.shape, max_slots_both_ways) || !lines_.has_credit(1) ||
      !sends_.slots.has_credit(slots))
    return false;
  std::vector<std::byte> payload(bytes);
  for (std::size_t i = 0; i < bytes; ++i)
    payload[i] = byte_at(static_cast<std::uint32_t>(next_), i);
  write_slots(sends_, payload.data(), bytes);
  write_lines(lines_, one.head, payload.data());
  one.begun = true;
  one.shipped = bytes;
  return true;
}

bool Trial::ship_lines(Sent& one) {
  if (!lines_.has_credit(message_lines(one.head.bytes))) return false;
  std::vector<std::byte> payload(is_inline(one.head.bytes) ? one.head.bytes : 0);
  for (std::size_t i = 0; i < payload.size(); ++i)
    payload[i] = byte_at(static_cast<std::uint32_t>(next_), i);
  write_lines(lines_, one.head, payload.data());
  one.begun = true;
  one.shipped = payload.size();
  return true;
}

bool Trial::may_lend(const Sent& one) const {
  return port_.shares_memory && one.begun && one.shipped == 0 && next_ % 3 == 0 &&
         lent_memory().peers != nullptr;
}

// As Outbox::lend does it.
void Trial::lend(Sent& one) {
  LentMemory& memory = lent_memory();
  for (std::uint64_t i = 0; i < one.head.bytes; ++i)
    memory.own[i] = byte_at(static_cast<std::uint32_t>(next_), i);
  const transport::RegionPlace place = memory.regions.find(memory.own, one.head.bytes);
  transport::Grant& grant = fifo_.view.control->sender_grant;
  grant.loan = {.region = place.region,
                .offset = place.offset,
                .bytes = one.head.bytes,
                .descriptor = place.descriptor};
  const std::uint64_t sequence = sends_.slots.tail() + 1;
  grant.sequence.store(sequence);
  sends_.slots.commit(0, transport::message_flag(sequence, transfer_signature),
                      transport::DeliveryMode::pull);
  lent_until_ = sequence;
  one.shipped = one.head.bytes;
}

void Trial::ship_slot(Sent& one) {
  std::uint64_t used = 0;
  if (!std::exchange(one.begun, true)) {
    std::memcpy(sends_.slots.place(), &one.head, sizeof one.head);
    used = sizeof one.head;
  }
  const std::uint64_t part =
      std::min(fifo_.view.shape.slot_bytes - used, one.head.bytes - one.shipped);
  for (std::uint64_t i = 0; i < part; ++i)
    sends_.slots.place()[used + i] = byte_at(static_cast<std::uint32_t>(next_), one.shipped + i);
  one.shipped += part;
  sends_.slots.commit(static_cast<std::uint32_t>(used + part),
                      transport::message_flag(sends_.slots.tail() + 1, transfer_signature),
                      transport::DeliveryMode::staged);
}

void Trial::lie_in_line(std::uint64_t flag, std::span<const std::uint8_t> content) {
  if (!lines_.has_credit(1)) return;
  honest_ = false;
  const std::size_t fits = std::min<std::size_t>(content.size(), transport::line_payload_bytes);
  if (fits > 0) std::memcpy(lines_.place(), content.data(), fits);
  lines_.commit_line(transport::FlagSignature(transfer_signature ^ flag));
}

void Trial::lie(fuzz::Input& input) {
  const auto bytes = input.take<std::uint32_t>();
  const auto delivery = input.take<std::uint8_t>();
  const auto flag = input.take<std::uint64_t>();
  const auto content = input.take_block();
  if (port_.shares_memory && (delivery & 1) == 0) return lie_in_line(flag, content);
  if (!sends_.slots.has_credit()) return;
  honest_ = false;
  const std::size_t fits = std::min<std::size_t>(content.size(), fifo_.view.shape.slot_bytes);
  if (fits > 0) std::memcpy(sends_.slots.place(), content.data(), fits);
  sends_.slots.commit(bytes,
                      transport::message_flag(sends_.slots.tail() + 1, transfer_signature) ^ flag,
                      static_cast<transport::DeliveryMode>(delivery));
}

// Of what is lent now.
void Trial::lie_in_grant(fuzz::Input& input) {
  honest_ = false;
  transport::Grant& grant = fifo_.view.control->sender_grant;
  const auto word = input.take<std::uint8_t>() % 5;
  const auto change = input.take<std::uint64_t>();
  if (word == 0) grant.sequence.fetch_xor(change);
  if (word == 1) grant.loan.region ^= change;
  if (word == 2) grant.loan.offset ^= change;
  if (word == 3) grant.loan.bytes ^= change;
  if (word == 4) grant.loan.descriptor ^= static_cast<std::uint32_t>(change);
}

bool Trial::receive(fuzz::Input& input) {
  const auto bytes = input.take<std::uint16_t>() % max_bytes;
  const auto tag = input.take<std::uint8_t>() % 4;
  const auto type = input.take<std::uint8_t>() % element_type_count;
  const auto how = input.take<std::uint8_t>();
  const bool from_anyone = (how & 1) != 0;
  if (wanted_.size() == max_receives) return true;
  Wanted& wanted = wanted_.emplace_back();
  wanted.place.resize(bytes);
  Transfer& transfer = wanted.transfer;
  transfer.output = wanted.place.data();
  transfer.bytes = bytes;
  transfer.type = static_cast<ElementType>(type);
  transfer.peer = from_anyone ? any_source : peer;
  transfer.tag = tag == 3 ? any_tag : tag;
  transfer.source = &wanted.source;
  transfer.received_tag = &wanted.tag;
  if ((how & 2) != 0 && port_.shares_memory && fits(bytes, fifo_.view.shape, max_slots_both_ways) &&
      box_.is_clear() && receives_.none_unfinished())
    return receive_now(wanted), true;
  wanted.batch.begin({&transfer, 1});
  const PendingTransfer pending{&transfer, &wanted.batch};
  const auto is_given = box_.give_kept(pending);
  if (!is_given.ok()) return goes_on(is_given.status());
  if (!is_given.value()) receives_.add(pending);
  return true;
}

// As ImmediateTransfer does it.
void Trial::receive_now(Wanted& wanted) {
  if (box_.take_now(wanted.transfer) != Mailbox::Taken::taken) return wanted_.pop_back();
  wanted.checked = true;
  check(wanted);
}

void Trial::check(const Wanted& wanted) {
  GYRE_DEMAND(wanted.source == peer);
  GYRE_DEMAND(wanted.transfer.takes(peer, wanted.tag));
  if (!honest_ || wanted.place.size() < 4) return;
  std::uint32_t number = 0;
  std::memcpy(&number, wanted.place.data(), sizeof number);
  GYRE_DEMAND(number < sent_.size() && taken_.insert(number).second);
  const Sent& sent = sent_[number];
  GYRE_DEMAND(sent.head.bytes == wanted.place.size() && sent.head.tag == wanted.tag);
  for (std::size_t i = 0; i < wanted.place.size(); ++i)
    GYRE_DEMAND(wanted.place[i] == byte_at(number, i));
}

bool Trial::advance() {
  bool moved = false;
  if (!goes_on(box_.advance(moved))) return false;
  std::size_t open = 0;
  for (Wanted& wanted : wanted_) {
    open += wanted.batch.open();
    if (!wanted.batch.is_done() || wanted.checked) continue;
    wanted.checked = true;
    check(wanted);
  }
  GYRE_DEMAND(receives_.await(peer) == (open > 0));
  GYRE_DEMAND(!honest_ || kept_ <= sent_bytes_);
  return true;
}

// What is wrong is the peer's, and said of it.
bool Trial::goes_on(const Status& status) {
  if (status.ok()) return true;
  GYRE_DEMAND(status.culprits() == std::vector<int>{peer});
  GYRE_DEMAND(!honest_ || status.code() == Code::Mismatch);
  GYRE_DEMAND(fuzz::is_one_line(status.message()));
  return false;
}

bool Trial::act(fuzz::Input& input) {
  switch (input.take<std::uint8_t>() % 7) {
    case 0:
      return send(input), true;
    case 1:
      return ship(), true;
    case 2:
      return receive(input);
    case 3:
      return advance();
    case 4:
      return lie(input), true;
    case 5: {
      honest_ = false;
      const auto offset = input.take<std::uint16_t>();
      return fifo_.scribble(offset, input.take<std::uint8_t>()), true;
    }
    default:
      return lie_in_grant(input), true;
  }
}

}  // namespace

int take_input(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  Trial trial(input.take<std::uint8_t>());
  for (int acts = 0; !input.empty() && acts < 300; ++acts)
    if (!trial.act(input)) break;
  return 0;
}

GYRE_FUZZ_TARGET(mailbox)

}  // namespace mailbox_fuzz
