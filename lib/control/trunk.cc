#include "lib/control/trunk.h"

#include "lib/base/clock.h"
#include "lib/base/path_watch.h"
#include "lib/trust/address.h"

#include <fmt/core.h>

#include <algorithm>
#include <sys/epoll.h>
#include <sys/socket.h>

namespace gyre::control {
namespace {

// The end that dialed closes a trunk that carries nothing; the other one waits so long for that.
constexpr std::int64_t max_idle_ns = 2 * ns_per_s;
// Signs of life are more frequent than the kernel's questions at any limit.
constexpr std::int64_t path_limit_ns = 3 * ns_per_s;
// Links on one trunk.
constexpr std::size_t max_links = 1 << 16;

bool is_local(int socket) {
  int domain = 0;
  socklen_t length = sizeof domain;
  return getsockopt(socket, SOL_SOCKET, SO_DOMAIN, &domain, &length) == 0 && domain == AF_UNIX;
}

Status broken(Kind kind) {
  return Status(Code::RemoteError,
                fmt::format("it broke the control protocol ({})", kind_name(kind)));
}

}  // namespace

Trunk::Trunk(ControlThread& thread, TrunkOwner& owner,
             std::unique_ptr<trust::SecureSession> session, trust::SessionRole role, bool separate)
    : thread_(thread),
      owner_(owner),
      session_(std::move(session)),
      role_(role),
      separate_(separate),
      is_local_(is_local(session_->descriptor())),
      next_link_(role == trust::SessionRole::client ? 2 : 1) {}

Trunk::~Trunk() {
  for (const auto& [number, link] : links_) link->cut();
}

Status Trunk::open(PeerProcesses& processes, const trust::ProcessIdentity& self) {
  idle_ns_ = heard_ns_ = said_ns_ = SystemClock::read();
  GYRE_ASSIGN(binding_, session_->binding());
  GYRE_ASSIGN(watch_, thread_.watch(session_->descriptor(), EPOLLIN | EPOLLOUT,
                                    [this](std::uint32_t) { on_socket(); }));
  // Elsewhere, and where the kernel does not tell, the socket's end and silence remain.
  if (is_local_)
    process_watch_ = processes.watch(session_->descriptor(), [this] { on_peer_exit(); });
  else
    set_path_questions(session_->descriptor(), path_limit_ns);
  transmit(Kind::greeting, encode_greeting(self));
  thread_.due_at(idle_ns_ + max_idle_ns);
  return {};
}

// -------------------------------------------------------------------------------------- the socket

void Trunk::transmit(Kind kind, std::span<const std::uint8_t> body) {
  if (ended_) return;
  said_ns_ = SystemClock::read();
  Status sent = session_->send(static_cast<std::uint8_t>(kind), body);
  // Only bytes leave here; what arrives is taken in order at the socket's next event, and so is an
  // error: the caller may be in the middle of something.
  if (sent.ok()) sent = session_->transmit();
  watch_.change(wished_events());
  if (!sent.ok()) thread_.due_at(0);
}

// What came with the end of the handshake is in the session already: a first look needs no event
// of the socket but that it can be written to.
std::uint32_t Trunk::wished_events() const {
  const bool writes = !looked_ || (session_->failure().ok() && session_->wants_write());
  return writes ? EPOLLIN | EPOLLOUT : EPOLLIN;
}

void Trunk::on_socket() {
  looked_ = true;
  read_all();
  if (ended_) return;
  watch_.change(wished_events());
  rest();
}

// One helping; epoll comes back for more.
void Trunk::read_all() {
  const Status status = session_->advance();
  if (session_->heard()) heard_ns_ = SystemClock::read();
  while (!ended_) {
    std::optional<trust::Frame> frame = session_->receive();
    if (!frame) break;
    on_frame(*frame);
  }
  if (!status.ok()) end(status);
}

// Its socket holds everything that it said before it died: hear that first, it may name the cause.
void Trunk::on_peer_exit() {
  process_watch_.reset();
  do {
    read_all();
  } while (!ended_ && session_->heard());
  end(Status(Code::RemoteError, "its process ended"));
}

std::int64_t Trunk::ping(std::int64_t now_ns, std::int64_t period_ns) {
  if (now_ns - said_ns_ >= period_ns) transmit(Kind::ping, {});
  return said_ns_ + period_ns;
}

std::int64_t Trunk::tick(std::int64_t now_ns, std::int64_t overslept_ns) {
  if (!session_->failure().ok()) {
    on_socket();
    return never_ns;
  }
  heard_ns_ = std::min(now_ns, heard_ns_ + overslept_ns);
  rest();
  if (ended_ || !is_idle()) return never_ns;
  if (now_ns - idle_ns_ < max_idle_ns) return idle_ns_ + max_idle_ns;
  end(Status(Code::RemoteError, "it carried nothing"));
  return never_ns;
}

bool Trunk::loses_what_is_said(std::int64_t now_ns, std::int64_t limit_ns) {
  return !is_local_ &&
         path_watch_.find_cut(session_->descriptor(), now_ns, limit_ns + grace_ns()).has_value();
}

std::int64_t Trunk::next_look_ns(std::int64_t now_ns) const {
  constexpr std::int64_t look_ns = 50 * ns_per_ms;
  if (is_local_) return never_ns;
  if (now_ns < said_ns_ + look_ns) return said_ns_ + look_ns;
  return path_watch_.is_asking() ? now_ns + look_ns : never_ns;
}

std::string Trunk::silence_text(std::int64_t limit_ns) const {
  const auto sight = look_at_path(session_->descriptor());
  if (is_local_ || !sight) return {};
  const std::string path = trust::format_path(session_->descriptor());
  if (!sight->looks_cut(limit_ns)) return fmt::format(" (its host answers: {})", path);
  return fmt::format(
      " (no answer from its host either: the network from {} is cut, or the host is down)", path);
}

bool Trunk::is_idle() const { return links_.empty() && waiting_.empty() && asked_.empty(); }

void Trunk::rest() {
  if (ended_ || !is_idle()) return;
  if (role_ == trust::SessionRole::client && flushed())
    end(Status(Code::RemoteError, "it carried nothing"));
}

void Trunk::end(const Status& how) {
  if (std::exchange(ended_, true)) return;
  watch_.reset();
  process_watch_.reset();
  // Whoever is told may close other links, which then are not told.
  for (const auto& [number, link] : std::exchange(links_, {}))
    if (link->is_open()) link->end(how, false);
  for (auto& [number, opening] : std::exchange(asked_, {})) opening.on_link(how);
  for (PendingLink& opening : std::exchange(waiting_, {})) opening.on_link(how);
  owner_.on_end(*this);
}

// ----------------------------------------------------------------------------------------- frames

void Trunk::on_frame(trust::Frame& frame) {
  const auto kind = static_cast<Kind>(frame.type);
  if (kind >= Kind::ping && kind <= Kind::closed) {
    if (!on_own_frame(kind, frame.body)) end(broken(kind));
    return;
  }
  std::span<const std::uint8_t> body;
  const std::optional<std::uint64_t> number = decode_on_link(frame.body, &body);
  if (!number) return end(broken(kind));
  const auto found = links_.find(*number);
  if (found == links_.end()) return;  // it was closed here; the peer did not know yet
  frame.body.erase(frame.body.begin(), frame.body.end() - static_cast<std::ptrdiff_t>(body.size()));
  found->second->hear(frame);
}

// False: the peer broke the protocol.
bool Trunk::on_own_frame(Kind kind, std::span<const std::uint8_t> body) {
  switch (kind) {
    case Kind::greeting:
      return on_greeting(body);
    case Kind::open:
      return on_open(body);
    case Kind::opened:
      return on_opened(body);
    case Kind::refused:
      return on_refused(body);
    case Kind::closed:
      return on_closed(body);
    default:
      return true;
  }
}

bool Trunk::on_greeting(std::span<const std::uint8_t> body) {
  if (peer_) return false;
  peer_ = decode_greeting(body);
  if (!peer_) return false;
  owner_.on_greeting(*this);
  return true;
}

// ------------------------------------------------------------------------------- links that we
// open

void Trunk::open_link(PendingLink opening) {
  if (!peer_) return waiting_.push_back(std::move(opening));
  ask(std::move(opening));
}

void Trunk::ask_waiting() {
  for (PendingLink& opening : take_waiting()) ask(std::move(opening));
}

void Trunk::ask(PendingLink opening) {
  OpenMessage message;
  message.link = next_link_;
  message.identity = opening.key->identity;
  const Result<trust::KeyProof> own = proof(*opening.key, trust::Prover::opener, message.link);
  if (!own.ok()) return opening.on_link(own.status());
  message.proof = *own;
  next_link_ += 2;
  asked_.emplace(message.link, std::move(opening));
  transmit(Kind::open, encode(message));
}

bool Trunk::on_opened(std::span<const std::uint8_t> body) {
  const std::optional<OpenedMessage> message = decode_opened(body);
  if (!message) return false;
  const auto found = asked_.find(message->link);
  if (found == asked_.end()) return false;
  const PendingLink opening = std::move(asked_.extract(found).mapped());
  const Result<trust::KeyProof> theirs =
      proof(*opening.key, trust::Prover::answerer, message->link);
  if (theirs.ok() && trust::is_same(message->proof, *theirs)) {
    opening.on_link(make_link(message->link));
    return true;
  }
  transmit(Kind::closed, encode_on_link(message->link));
  opening.on_link(
      Status(Code::RemoteError, "it did not prove that it knows the communicator's secret"));
  return true;
}

bool Trunk::on_refused(std::span<const std::uint8_t> body) {
  std::span<const std::uint8_t> rest;
  const std::optional<std::uint64_t> number = decode_on_link(body, &rest);
  const auto found = number && rest.empty() ? asked_.find(*number) : asked_.end();
  if (found == asked_.end()) return false;
  const PendingLink opening = std::move(asked_.extract(found).mapped());
  opening.on_link(Status(Code::RemoteError,
                         "it knows no communicator of this unique id: is the id the right one, "
                         "and its communicator alive?"));
  return true;
}

// ---------------------------------------------------------------------------- links that they open

bool Trunk::on_open(std::span<const std::uint8_t> body) {
  const std::optional<OpenMessage> message = decode_open(body);
  const bool theirs = message && message->link % 2 != next_link_ % 2 && message->link > peer_link_;
  if (!theirs || !peer_) return false;
  const std::uint64_t number = peer_link_ = message->link;
  const std::optional<trust::KeyProof> answer = answer_to(*message);
  if (!answer) {
    transmit(Kind::refused, encode_on_link(number));
    return true;
  }
  transmit(Kind::opened, encode(OpenedMessage{number, *answer}));
  owner_.on_link(message->identity, make_link(number));
  return true;
}

// Our proof for who has proved to know a key that is known here.
std::optional<trust::KeyProof> Trunk::answer_to(const OpenMessage& message) const {
  const auto key = links_.size() < max_links ? owner_.find_key(message.identity) : nullptr;
  if (key == nullptr) return std::nullopt;
  const Result<trust::KeyProof> expected = proof(*key, trust::Prover::opener, message.link);
  const Result<trust::KeyProof> own = proof(*key, trust::Prover::answerer, message.link);
  if (!expected.ok() || !own.ok() || !trust::is_same(message.proof, *expected)) return std::nullopt;
  return *own;
}

// ------------------------------------------------------------------------------------------- links

Result<trust::KeyProof> Trunk::proof(const trust::SessionKey& key, trust::Prover who,
                                     std::uint64_t number) const {
  return trust::prove(key, binding_, who, number);
}

std::unique_ptr<ControlLink> Trunk::make_link(std::uint64_t number) {
  auto link = std::make_unique<ControlLink>(*this, number);
  links_.emplace(number, link.get());
  return link;
}

void Trunk::send(std::uint64_t link, Kind kind, std::span<const std::uint8_t> body) {
  transmit(kind, encode_on_link(link, body));
}

void Trunk::forget(std::uint64_t link) {
  if (links_.erase(link) == 0) return;
  transmit(Kind::closed, encode_on_link(link));
  if (!is_idle()) return;
  idle_ns_ = SystemClock::read();
  thread_.due_at(0);
}

bool Trunk::on_closed(std::span<const std::uint8_t> body) {
  std::span<const std::uint8_t> rest;
  const std::optional<std::uint64_t> number = decode_on_link(body, &rest);
  if (!number || !rest.empty()) return false;
  const auto found = links_.find(*number);
  if (found == links_.end()) return true;  // closed here as well
  ControlLink& link = *found->second;
  links_.erase(found);
  link.end(Status(Code::RemoteError, "its control connection closed"), true);
  if (is_idle()) idle_ns_ = SystemClock::read();
  return true;
}

}  // namespace gyre::control
