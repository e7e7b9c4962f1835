// A tcp stream from a peer that may lie. The fifo receives exactly the messages before the first
// fault, for every cut of the bytes, in clear or under TLS. Also the ticket on a socket's other
// direction. Input: u8 which (clear, ticket, TLS), then pieces: u8 kind and
//   0: block, sent as it is     1: block, sent behind a good header for it
//   2: u8 place, u8 value, block: the same with one byte of the header changed
//   3: u8 messages that the receiving rank takes from the fifo
//   4: u8 call, u8 place, u8 flags, block: a message of that call with a place in lent memory
#include "lib/trust/address.h"
#include "lib/trust/secure_socket.h"
#include "tests/fuzz/input.h"
#include "tests/support/transports/test_listener.h"
#include "transports/tcp/receiver.h"

#include <deque>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

namespace tcp_receiver_fuzz {

using namespace gyre;
using namespace gyre::transport;

namespace {

constexpr FifoShape shape = {.slot_count = 4, .line_count = 4, .slot_bytes = 256};
constexpr std::size_t max_stream = 16 << 10;

struct Ends {
  FileDescriptor peer, ours;
};

// Over loopback: the receiver sets options that only TCP has.
Ends connect_loopback() {
  static std::string address;
  static const FileDescriptor listener = tests::listen_loopback(AF_INET, address);
  static const auto target = trust::parse_address(address);
  Ends ends;
  ends.peer = FileDescriptor(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  GYRE_DEMAND(::connect(ends.peer.get(), target->get(), target->length) == 0);
  pollfd arrival{listener.get(), POLLIN, 0};
  GYRE_DEMAND(::poll(&arrival, 1, 10'000) == 1);
  ends.ours =
      FileDescriptor(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  GYRE_DEMAND(ends.ours.has_value());
  // No port stays behind in TIME_WAIT.
  const linger at_once{1, 0};
  ::setsockopt(ends.peer.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  const int one = 1;
  ::setsockopt(ends.peer.get(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  return ends;
}

struct Message {
  std::uint64_t signature = 0;
  std::vector<std::uint8_t> payload;
  bool lands = false;
};

// What the receiving rank lends, to one call.
constexpr std::uint64_t lent_to = 1, lent_signature = 5;
using Output = std::array<std::uint8_t, 512>;

// What a stream means, by the simplest reading.
class Reference {
 public:
  explicit Reference(const WireHeader& common) : common_(common) {}
  void take(std::span<const std::uint8_t> bytes) {
    stream_.insert(stream_.end(), bytes.begin(), bytes.end());
    while (good_ && stream_.size() >= sizeof(WireHeader)) {
      WireHeader header;
      std::memcpy(&header, stream_.data(), sizeof header);
      WireHeader right = common_;
      right.sequence = sequence_;
      right.signature = header.signature;
      right.bytes = header.bytes;
      if (header.call != 0) {
        right.flags = header.flags & wire_flag::final;
        right.call = header.call;
        right.place = header.place;
      }
      good_ = std::memcmp(&right, &header, sizeof right) == 0 && header.bytes <= shape.slot_bytes;
      const std::size_t whole = sizeof header + header.bytes;
      if (!good_ || stream_.size() < whole) return;
      const auto* const payload = stream_.data() + sizeof header;
      const bool lands = header.call == lent_to && header.flags != 0 &&
                         header.signature == message_flag(sequence_ + 1, lent_signature) &&
                         header.place <= output.size() &&
                         header.place + header.bytes <= output.size();
      if (lands) std::copy_n(payload, header.bytes, output.begin() + header.place);
      messages.push_back({header.signature, {payload, payload + header.bytes}, lands});
      stream_.erase(stream_.begin(), stream_.begin() + static_cast<long>(whole));
      ++sequence_;
    }
  }
  bool good() const { return good_; }
  bool between_messages() const { return stream_.empty(); }
  std::uint64_t sequence() const { return sequence_; }
  std::deque<Message> messages;  // that nobody has taken yet
  Output output{};               // once all of these have landed

 private:
  const WireHeader common_;
  std::vector<std::uint8_t> stream_;  // of the message that is not whole
  std::uint64_t sequence_ = 0;
  bool good_ = true;
};

class Trial {
 public:
  enum class Security { none, tls };
  explicit Trial(Security security);
  void send(std::span<const std::uint8_t> bytes);
  void send_message(std::span<const std::uint8_t> payload, std::uint8_t place, std::uint8_t change);
  void send_placed(std::span<const std::uint8_t> payload, std::uint8_t call, std::uint8_t place,
                   std::uint8_t flags);
  void take(unsigned count);
  void finish();

 private:
  void join();
  void settle();
  void send_behind(const WireHeader& header, std::span<const std::uint8_t> payload,
                   std::uint8_t place, std::uint8_t change);
  void check_message(const Message& expected);

  trust::ProcessIdentity self_;
  trust::TicketBook tickets_;
  const TransportEnvironment environment_{
      .self = self_, .tickets = tickets_, .communicator_hash = 0x1234, .epoch = 5};
  const LinkKey key_{.peer = 1, .channel = 2, .direction = Direction::receive};
  Ends ends_ = connect_loopback();
  std::unique_ptr<TcpReceiver> receiver_;
  SlotReader reader_;
  Reference reference_{common_header(key_, environment_)};
  Output output_{};
  std::size_t sent_ = 0;
  std::unique_ptr<trust::SecureSocket> secure_;  // of the peer, under TLS
};

const std::shared_ptr<const trust::Tls>& tls() {
  static const std::shared_ptr<const trust::Tls> made = std::move(trust::Tls::create()).value();
  return made;
}

// As make_stream does it, for a peer that says what it likes behind the handshake.
std::unique_ptr<trust::SecureSocket> start_secure(FileDescriptor socket,
                                                  const StreamSecret& secret) {
  return std::move(trust::SecureSocket::start(*tls(), std::move(socket), trust::SessionRole::client,
                                              *data_key(secret), trust::SecureLoad::bulk))
      .value();
}

Trial::Trial(Security security) {
  const auto memory = private_fifo(shape);
  const auto arrival = std::make_shared<Arrival>();
  arrival->socket = ends_.ours.release();
  std::vector<ReceivingRail> rails;
  StreamSecurity protection;
  if (security == Security::tls) {
    protection = {tls(), StreamSecret{1, 2, 3}};
    secure_ = start_secure(FileDescriptor(::fcntl(ends_.peer.get(), F_DUPFD_CLOEXEC, 0)),
                           protection.secret);
  }
  RailTerms terms;
  terms.peer = key_.peer;
  terms.liveness_ns = environment_.liveness_ns;
  terms.security = protection;
  rails.emplace_back(terms, self_.addresses, arrival, IssuedTicket(), nullptr);
  receiver_ = std::make_unique<TcpReceiver>(key_, environment_, *memory, std::move(rails));
  receiver_->carrier()->lend({.region = region_same_process,
                              .offset = reinterpret_cast<std::uintptr_t>(output_.data()),
                              .bytes = output_.size(),
                              .signature = lent_signature},
                             lent_to);
  reader_ = SlotReader((*memory)->view);
  if (secure_ != nullptr) join();
}

void Trial::join() {
  for (int turn = 0; !secure_->established() || !receiver_->ready(); ++turn) {
    GYRE_DEMAND(turn < 2000 && secure_->shake_hands().ok() && receiver_->progress().ok());
    if (turn > 100) ::usleep(500);
  }
}

void Trial::send(std::span<const std::uint8_t> bytes) {
  if (sent_ + bytes.size() > max_stream || !reference_.good()) return;
  sent_ += bytes.size();
  if (secure_ != nullptr) {
    for (std::size_t sent = 0; sent < bytes.size();) {
      const Result<std::size_t> piece = secure_->write(bytes.subspan(sent), false);
      GYRE_DEMAND(piece.ok() && *piece > 0);
      sent += *piece;
    }
  } else {
    const ssize_t sent = ::send(ends_.peer.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    GYRE_DEMAND(sent == static_cast<ssize_t>(bytes.size()));
  }
  reference_.take(bytes);
  settle();
}

void Trial::send_message(std::span<const std::uint8_t> payload, std::uint8_t place,
                         std::uint8_t change) {
  WireHeader header = common_header(key_, environment_);
  header.sequence = reference_.sequence();
  header.signature = 0x77;
  header.bytes = static_cast<std::uint32_t>(payload.size());
  send_behind(header, payload, place, change);
}

void Trial::send_placed(std::span<const std::uint8_t> payload, std::uint8_t call,
                        std::uint8_t place, std::uint8_t flags) {
  WireHeader header = common_header(key_, environment_);
  header.sequence = reference_.sequence();
  header.signature = message_flag(header.sequence + 1, lent_signature);
  header.flags = flags;
  header.call = call;
  header.place = std::uint64_t{place} * 4;
  header.bytes = static_cast<std::uint32_t>(payload.size());
  send_behind(header, payload, 0, 0);
}

void Trial::send_behind(const WireHeader& header, std::span<const std::uint8_t> payload,
                        std::uint8_t place, std::uint8_t change) {
  std::vector<std::uint8_t> bytes(sizeof header);
  std::memcpy(bytes.data(), &header, sizeof header);
  bytes[place % sizeof header] ^= change;
  bytes.insert(bytes.end(), payload.begin(), payload.end());
  send(bytes);
}

// Until the receiver has what it can have: loopback delivers at once, or a moment later.
void Trial::settle() {
  const auto arrived = [&] {
    const std::size_t room = std::min<std::size_t>(reference_.messages.size(), shape.slot_count);
    const FifoView& fifo = receiver_->fifo();
    return fifo.control->tail.value.load() - reader_.head() >= room;
  };
  for (int turn = 0; turn < 2000; ++turn) {
    const Status status = receiver_->progress();
    if (!status.ok()) return GYRE_DEMAND(!reference_.good());
    const bool fault_seen = reference_.good() || reference_.messages.size() >= shape.slot_count;
    if (arrived() && fault_seen) return;
    if (turn > 100) ::usleep(500);
  }
  GYRE_DEMAND(false && "what was sent arrives");
}

void Trial::check_message(const Message& expected) {
  const SlotHeader note = reader_.note();
  GYRE_DEMAND(note.flag == expected.signature && note.bytes == expected.payload.size());
  GYRE_DEMAND(note_fits(note, shape));
  GYRE_DEMAND(note.delivery == (expected.lands ? DeliveryMode::push : DeliveryMode::staged));
  // A message behind it, or a part of one, may lie over it.
  const bool is_last = reference_.messages.size() == 1 && reference_.between_messages();
  GYRE_DEMAND(!is_last || output_ == reference_.output);
  GYRE_DEMAND(expected.lands || note.bytes == 0 ||
              std::memcmp(reader_.place(), expected.payload.data(), note.bytes) == 0);
}

void Trial::take(unsigned count) {
  for (unsigned i = 0; i < count && reader_.has_message(); ++i) {
    GYRE_DEMAND(!reference_.messages.empty());
    check_message(reference_.messages.front());
    reference_.messages.pop_front();
    reader_.release();
  }
  settle();
}

// The peer ends its way: in peace between two messages, else it is a fault.
void Trial::finish() {
  while (!reference_.messages.empty()) take(shape.slot_count);
  if (!reference_.good()) return GYRE_DEMAND(!receiver_->progress().ok());
  ::shutdown(ends_.peer.get(), SHUT_WR);
  const auto ended = [&] {
    const Status status = receiver_->progress();
    WaitSet set;
    receiver_->arm(set);  // waiting for more is what makes a closing an error
    return !status.ok() || !receiver_->progress().ok();
  };
  for (int turn = 0; !ended(); ++turn) {
    GYRE_DEMAND(turn < 2000);
    if (turn > 100) ::usleep(500);
  }
  const std::string text(receiver_->progress().message());
  const bool in_peace = text.ends_with("the peer closed the connection");
  GYRE_DEMAND(in_peace == reference_.between_messages());
}

void receive_stream(fuzz::Input& input, Trial::Security security) {
  Trial trial(security);
  while (!input.empty()) {
    const int kind = input.take<std::uint8_t>() % 5;
    if (kind == 3) {
      trial.take(input.take<std::uint8_t>() % 8);
      continue;
    }
    if (kind == 4) {
      const std::uint8_t call = input.take<std::uint8_t>(), place = input.take<std::uint8_t>(),
                         flags = input.take<std::uint8_t>();
      trial.send_placed(input.take_block(), call, place, flags);
      continue;
    }
    const std::uint8_t place = kind == 2 ? input.take<std::uint8_t>() : 0;
    const std::uint8_t change = kind == 2 ? input.take<std::uint8_t>() : 0;
    const auto block = input.take_block();
    if (kind == 0)
      trial.send(block);
    else
      trial.send_message(block, place, change);
  }
  trial.finish();
}

// Input: blocks. Forty bytes and no more are taken, and only the right ones are good.
void receive_ticket(fuzz::Input& input) {
  trust::TicketHello expected;
  expected.ticket.fill(0x42);
  std::array<std::uint8_t, sizeof expected> right;
  std::memcpy(right.data(), &expected, sizeof expected);
  int ends[2];
  GYRE_DEMAND(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
  const FileDescriptor near(ends[0]), far(ends[1]);
  ShownTicket shown;
  std::vector<std::uint8_t> sent;
  while (!input.empty()) {
    const auto block = input.take_block();
    if (block.empty() || sent.size() + block.size() > 4096) continue;
    GYRE_DEMAND(::send(far.get(), block.data(), block.size(), MSG_NOSIGNAL) ==
                static_cast<ssize_t>(block.size()));
    sent.insert(sent.end(), block.begin(), block.end());
    const auto taken = take_ticket(near, expected.ticket, shown);
    GYRE_DEMAND(shown.bytes == std::min(sent.size(), right.size()));
    if (sent.size() < right.size()) {
      GYRE_DEMAND(taken.ok() && *taken == TicketProgress::not_yet);
      continue;
    }
    const bool good = std::equal(right.begin(), right.end(), sent.begin());
    GYRE_DEMAND(taken.ok() == good && (!good || *taken == TicketProgress::whole));
    return;
  }
}

}  // namespace

int take_input(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  const int which = input.take<std::uint8_t>() % 3;
  if (which == 1)
    receive_ticket(input);
  else
    receive_stream(input, which == 0 ? Trial::Security::none : Trial::Security::tls);
  return 0;
}

GYRE_FUZZ_TARGET(tcp_receiver)

}  // namespace tcp_receiver_fuzz
