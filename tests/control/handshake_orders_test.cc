// The handshake of control connections and the exchange of tickets, with an attacker between all
// ends. The code of both ends is the library's; the attacker is a model checker. Two clients run
// the protocol at the same time with two processes of their job. In every state that can be reached
// the attacker delivers each message that was ever sent to each end, whole or changed, or a message
// of its own. So it drops, replays, redirects and reorders without limit.
//
//   state    what each end has accepted so far. A message that an end refuses leads to no state: an
//            end that is dead can do no more than one to which nothing is delivered any more
//   judged   what an end refuses once, it refuses in all states in which it has accepted the same
//   fork     a state is kept in a process: each delivery is made in a child, as OpenSSL's state
//            cannot be copied. Nothing lies in a socket between two deliveries
//
// The listener ends what waits after 2 s (unauthenticated_clients_test), the dialer after 4 s.
#include "lib/control/first_words.h"
#include "lib/trust/secure_session.h"
#include "lib/trust/session_key.h"
#include "lib/trust/tickets.h"
#include "tests/support/catch.h"

#include <fmt/core.h>
#include <openssl/x509.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>
#include <vector>

namespace handshake_orders_test {

using namespace gyre;
using namespace gyre::trust;
using gyre::control::FirstWords;
using gyre::control::judge_first_words;

namespace {

using Flight = std::vector<std::uint8_t>;
enum : std::uint8_t { greeting = 1, ticket_given = 2 };
enum class Answer { refused, accepted, waiting };

struct Pair {
  Pair() {
    int ends[2] = {};
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
    inside = FileDescriptor(ends[0]);
    outside = FileDescriptor(ends[1]);
  }
  void give(const Flight& flight) const {
    REQUIRE(::send(outside.get(), flight.data(), flight.size(), MSG_NOSIGNAL) ==
            static_cast<ssize_t>(flight.size()));
  }
  Flight take() const {
    Flight flight(64 << 10);
    const ssize_t got = ::recv(outside.get(), flight.data(), flight.size(), MSG_DONTWAIT);
    flight.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
    return flight;
  }
  FileDescriptor inside, outside;
};

struct Message {
  std::string label;
  Flight flight;
};

// One end of a connection. `history` has the labels of all that it accepted.
struct End {
  std::string name, history;
  Pair pair{};
  std::unique_ptr<SecureSession> session{};
  std::string peer{};  // who it said it is
  bool has_greeted = false;
  bool redeemed = false;

  bool established() const { return session != nullptr && session->established(); }
  bool is_fresh() const { return history.empty(); }
  // The kernel's queues are those of all forks.
  void drain() const {
    std::uint8_t bytes[4096];
    const int inside = session != nullptr ? session->descriptor() : pair.inside.get();
    for (const int socket : {pair.outside.get(), inside})
      while (::recv(socket, bytes, sizeof bytes, MSG_DONTWAIT) > 0) {
      }
  }
};

std::shared_ptr<const SessionKey> key_of(std::uint8_t secret_byte) {
  UniqueId id;
  id.secret.bytes.fill(secret_byte);
  return *derive_control_key(id);
}

// Ends of records in a flight of TLS, first to last.
std::vector<std::size_t> record_ends(const Flight& flight) {
  std::vector<std::size_t> ends;
  for (std::size_t at = 0; at + 5 <= flight.size();) {
    at += 5 + (std::size_t{flight[at + 3]} << 8) + flight[at + 4];
    ends.push_back(std::min(at, flight.size()));
  }
  return ends;
}

// What an attacker makes of a message: one byte of each record changed, each record left out or
// doubled, and half of the message before it.
std::vector<Flight> changed(const Flight& flight) {
  std::vector<Flight> made;
  std::size_t begin = 0;
  const bool is_ticket = flight.front() == 'G';
  const auto ends = is_ticket ? std::vector<std::size_t>{flight.size()} : record_ends(flight);
  for (const std::size_t end : ends) {
    const auto from = flight.begin() + static_cast<std::ptrdiff_t>(begin),
               to = flight.begin() + static_cast<std::ptrdiff_t>(end);
    // A change of compatibility (RFC 8446, D.4) means nothing, and nor does its absence.
    const bool means_nothing = !is_ticket && *from == 20;
    begin = end;
    if (means_nothing) continue;
    for (const std::ptrdiff_t place : {std::ptrdiff_t{12}, (to - from) / 2, (to - from) - 1}) {
      if (place >= to - from) continue;
      made.push_back(flight);
      made.back()[static_cast<std::size_t>(from - flight.begin() + place)] ^= 4;
    }
    if (is_ticket) continue;
    // Without its last record it is the beginning of the same message.
    Flight without(flight.begin(), from);
    without.insert(without.end(), to, flight.end());
    if (to != flight.end()) made.push_back(without);
    Flight twice(flight.begin(), to);
    twice.insert(twice.end(), from, flight.end());
    made.push_back(twice);
  }
  const auto half = static_cast<std::ptrdiff_t>(flight.size() / 2);
  made.emplace_back(flight.begin(), flight.begin() + half);
  made.back().insert(made.back().end(), flight.begin(), flight.end());
  return made;
}

// ---------------------------------------------------------------- what all forks count together

struct Tally {
  std::uint64_t states, deliveries, refused, waiting, both_runs, failures;
  char first_failure[512];
  // Hashes; zero: none.
  std::uint64_t visited[1 << 16], judged[1 << 16];
};

// Where the text's hash is in the table, or the free place for it.
template <std::size_t size>
std::uint64_t& slot_of(std::uint64_t (&table)[size], std::uint64_t hash) {
  for (std::size_t at = hash >> 4, end = at + size; at != end; ++at)
    if (table[at % size] == hash || table[at % size] == 0) return table[at % size];
  std::abort();
}
template <std::size_t size>
bool has(std::uint64_t (&table)[size], const std::string& text) {
  return slot_of(table, std::hash<std::string>()(text) | 1) != 0;
}
// False: it was there.
template <std::size_t size>
bool put(std::uint64_t (&table)[size], const std::string& text) {
  const std::uint64_t hash = std::hash<std::string>()(text) | 1;
  return std::exchange(slot_of(table, hash), hash) == 0;
}

class World {
 public:
  World() {
    void* memory =
        mmap(nullptr, sizeof(Tally), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(memory != MAP_FAILED);
    tally_ = new (memory) Tally{};
    tls_ = std::move(Tls::create()).value();
    for (const char* name : {"C1", "C2"}) ends_.push_back({name, "begun "});
    for (const char* name : {"S1", "S2", "D1", "D2"}) ends_.push_back({name, ""});
    for (End* client : {&ends_[0], &ends_[1]}) {
      start(*client, SessionRole::client, ours_);
      REQUIRE(client->session->advance().ok());
      post(*client);
    }
    make_forgeries();
  }
  ~World() { munmap(tally_, sizeof(Tally)); }

  void explore();
  const Tally& tally() const { return *tally_; }

 private:
  void start(End& end, SessionRole role, std::shared_ptr<const SessionKey> key) {
    end.session =
        std::move(SecureSession::start(*tls_, std::move(end.pair.inside), role, key).value());
  }
  // What the end has said since belongs to what it has accepted.
  void post(End& end) {
    Flight flight = end.pair.take();
    if (!flight.empty()) sent_.push_back({end.name + "(" + end.history + ")", std::move(flight)});
  }
  void make_forgeries();
  Flight forged_answer(const Flight& hello) const;
  Answer deliver(End& end, const Message& message);
  Answer hear_first_words(End& end, const Flight& flight);
  Answer redeem(End& end, const Flight& flight);
  Answer converse(End& end);
  void take_frames(End& end);
  void greet(End& end);
  void deliver_in_child(std::size_t target, const Message& message, bool is_genuine);
  void try_delivery(End& end, Message message, bool is_genuine);
  static std::string pair_of(const End& end, const Message& message);
  void check_agreement();
  void check_elsewhere();
  void fail(const std::string& what) {
    if (tally_->failures++ != 0) return;
    std::strncpy(tally_->first_failure, (what + " after " + path()).c_str(),
                 sizeof tally_->first_failure - 1);
  }
  std::string path() const {
    std::string text;
    for (const End& end : ends_) text += end.name + "[" + end.history + "] ";
    return text;
  }
  static bool is_client(const End& end) { return end.name[0] == 'C'; }

  std::unique_ptr<Tls> tls_;
  const std::shared_ptr<const SessionKey> ours_ = key_of(1);
  std::array<TicketBook, 2> books_;  // of the processes of S1 and S2
  TicketBook elsewhere_;             // of another job
  std::vector<End> ends_;
  std::vector<Message> sent_, forged_;
  Tally* tally_ = nullptr;
};

// Hellos of those who do not know the secret: of another job; and one that names our key.
void World::make_forgeries() {
  const auto other = key_of(2);
  auto liar = std::make_shared<SessionKey>();
  liar->identity = ours_->identity;
  liar->psk = other->psk;
  using Key = std::shared_ptr<const SessionKey>;
  for (const auto& [label, key] : {std::pair<const char*, Key>{"hello of another job", other},
                                   std::pair<const char*, Key>{"hello with a wrong key", liar}}) {
    End attacker{"A", ""};
    start(attacker, SessionRole::client, key);
    REQUIRE(attacker.session->advance().ok());
    forged_.push_back({label, attacker.pair.take()});
  }
  TicketHello guess;
  guess.ticket.fill(0x42);
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(&guess);
  forged_.push_back({"guessed ticket", Flight(bytes, bytes + sizeof guess)});
  const std::string words = "GET / HTTP/1.1\r\n\r\n";
  forged_.push_back({"another protocol", Flight(words.begin(), words.end())});
}

// A server that has a certificate of its own in place of the key.
Flight World::forged_answer(const Flight& hello) const {
  EVP_PKEY* key = EVP_EC_gen("P-256");
  X509* certificate = X509_new();
  ASN1_INTEGER_set(X509_get_serialNumber(certificate), 1);
  X509_gmtime_adj(X509_getm_notBefore(certificate), 0);
  X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
  X509_set_pubkey(certificate, key);
  REQUIRE(X509_sign(certificate, key, EVP_sha256()) > 0);
  const Owned<SslContextTraits> context(SSL_CTX_new(TLS_server_method()));
  REQUIRE(SSL_CTX_use_certificate(context.get(), certificate) == 1);
  REQUIRE(SSL_CTX_use_PrivateKey(context.get(), key) == 1);
  const Owned<SslTraits> server(SSL_new(context.get()));
  BIO *in = BIO_new(BIO_s_mem()), *out = BIO_new(BIO_s_mem());
  SSL_set_bio(server.get(), in, out);
  BIO_write(in, hello.data(), static_cast<int>(hello.size()));
  REQUIRE(SSL_accept(server.get()) != 1);
  Flight answer(16 << 10);
  const int length = BIO_read(out, answer.data(), static_cast<int>(answer.size()));
  REQUIRE(length > 0);
  answer.resize(static_cast<std::size_t>(length));
  X509_free(certificate);
  EVP_PKEY_free(key);
  return answer;
}

// ------------------------------------------------------------------------------ the real ends

Answer World::deliver(End& end, const Message& message) {
  const Answer answer = end.session != nullptr ? (end.pair.give(message.flight), converse(end))
                                               : hear_first_words(end, message.flight);
  if (answer == Answer::accepted) {
    end.history += message.label + " ";
    post(end);
  }
  return answer;
}

// As ControlListener::look does it.
Answer World::hear_first_words(End& end, const Flight& flight) {
  const FirstWords words = judge_first_words(flight, identity_prefix);
  switch (words.intent) {
    case FirstWords::Intent::unclear:
      return Answer::waiting;
    case FirstWords::Intent::show_ticket:
      return redeem(end, flight);
    case FirstWords::Intent::prove_key:
      if (words.identity != ours_->identity) return Answer::refused;
      start(end, SessionRole::server, ours_);
      end.pair.give(flight);
      return converse(end);
    case FirstWords::Intent::other:
      return Answer::refused;
  }
  return Answer::refused;
}

Answer World::redeem(End& end, const Flight& flight) {
  TicketHello hello;
  if (flight.size() < sizeof hello) return Answer::waiting;
  std::memcpy(&hello, flight.data(), sizeof hello);
  bool arrived = false;
  for (TicketBook& book : books_)
    arrived |= book.redeem(hello.ticket, {}) == TicketBook::Redemption::good;
  end.redeemed = arrived;
  return arrived ? Answer::accepted : Answer::refused;
}

Answer World::converse(End& end) {
  const bool stood = end.established();
  if (!end.session->advance().ok()) return Answer::refused;
  if (!end.established()) {
    // A server that has answered a hello waits for the client's proof.
    char byte = 0;
    const bool said = ::recv(end.pair.outside.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 1;
    return said && end.is_fresh() ? Answer::accepted : Answer::waiting;
  }
  const bool was_greeted = !end.peer.empty();
  take_frames(end);
  if (!std::exchange(end.has_greeted, true)) greet(end);
  return !stood || end.peer.empty() == was_greeted ? Answer::accepted : Answer::waiting;
}

// A server gives a ticket as well.
void World::greet(End& end) {
  const Flight name(end.name.begin(), end.name.end());
  REQUIRE(end.session->send(greeting, name).ok());
  if (!is_client(end)) {
    TicketBook& book = books_[end.name[1] == '1' ? 0 : 1];
    REQUIRE(end.session->send(ticket_given, *book.issue([](FileDescriptor) {})).ok());
  }
  REQUIRE(end.session->transmit().ok());
}

void World::take_frames(End& end) {
  while (const std::optional<Frame> frame = end.session->receive()) {
    if (frame->type == greeting) {
      if (!end.peer.empty()) fail("an end was greeted twice");
      end.peer.assign(frame->body.begin(), frame->body.end());
    } else {
      TicketHello hello;
      std::copy(frame->body.begin(), frame->body.end(), hello.ticket.begin());
      const auto* bytes = reinterpret_cast<const std::uint8_t*>(&hello);
      sent_.push_back(
          {"ticket of " + end.name + "(" + end.history + ")", Flight(bytes, bytes + sizeof hello)});
    }
  }
}

// -------------------------------------------------------------------------------- the checks

// Whoever stands has one partner that it agrees with, and both know each other.
void World::check_agreement() {
  for (const End& end : ends_) {
    if (!end.established()) continue;
    int partners = 0;
    for (const End& other : ends_) {
      if (&other == &end || !other.established()) continue;
      if (*other.session->binding() != *end.session->binding()) continue;
      ++partners;
      if (is_client(other) == is_client(end)) fail("two of one role agree");
      if (!end.peer.empty() && end.peer != other.name)
        fail(end.name + " takes its peer for another");
    }
    if (partners > 1) fail(end.name + " stands with two");
    // The client stands first.
    if (partners == 0 && !is_client(end)) fail(end.name + " stands with nobody");
    if (partners == 0 && !end.peer.empty()) fail(end.name + " was greeted by nobody");
  }
  const End &one = ends_[4], &other = ends_[5];
  if (one.redeemed && other.redeemed && one.history == other.history) fail("a ticket opened twice");
}

// A ticket that has been seen opens nothing in another job.
void World::check_elsewhere() {
  for (const Message& message : sent_) {
    if (message.flight.front() != 'G') continue;
    TicketHello hello;
    std::memcpy(&hello, message.flight.data(), sizeof hello);
    if (elsewhere_.redeem(hello.ticket, {}) != TicketBook::Redemption::unknown)
      fail("a ticket opens another job");
  }
}

// A refusal depends on what the end has accepted, and on the message; of a ticket, on all.
std::string World::pair_of(const End& end, const Message& message) {
  return end.name + "(" + end.history + ") " + message.label;
}

void World::try_delivery(End& end, Message message, bool is_genuine) {
  const Answer answer = deliver(end, message);
  end.drain();
  switch (answer) {
    case Answer::refused:
      ++tally_->refused;
      if (message.flight.front() != 'G') put(tally_->judged, pair_of(end, message));
      return;
    case Answer::waiting:
      ++tally_->waiting;
      if (is_genuine) fail(end.name + " makes nothing of " + message.label);
      return;
    case Answer::accepted:
      if (!is_genuine) fail(end.name + " accepts " + message.label);
      check_agreement();
      if (put(tally_->visited, path()) && ++tally_->states != 0) explore();
  }
}

void World::deliver_in_child(std::size_t target, const Message& message, bool is_genuine) {
  if (has(tally_->judged, pair_of(ends_[target], message))) return;
  ++tally_->deliveries;
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    try {
      try_delivery(ends_[target], message, is_genuine);
    } catch (...) {
      _exit(1);
    }
    _exit(0);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) fail("a child ended badly");
}

void World::explore() {
  check_elsewhere();
  const bool all_stand = std::all_of(ends_.begin(), ends_.begin() + 4,
                                     [](const End& end) { return end.established(); });
  if (all_stand && ends_[4].redeemed && ends_[5].redeemed) ++tally_->both_runs;
  for (std::size_t target = 0; target < ends_.size(); ++target) {
    const End& end = ends_[target];
    // Fresh connections are alike, but that tickets are shown at the last two alone.
    const bool is_second = target == 3 || target == 5;
    if (end.redeemed || (is_second && end.is_fresh() && ends_[target - 1].is_fresh())) continue;
    for (const Message& message : sent_) {
      if (end.is_fresh() && (message.flight.front() == 'G') != (target >= 4)) continue;
      deliver_in_child(target, message, true);
      int number = 0;
      for (Flight& flight : changed(message.flight))
        deliver_in_child(
            target, {fmt::format("{}, changed {}", message.label, ++number), std::move(flight)},
            false);
    }
    for (const Message& message : forged_) deliver_in_child(target, message, false);
    if (is_client(end) && !end.established())
      deliver_in_child(target, {"a certificate", forged_answer(sent_[target].flight)}, false);
  }
}

}  // namespace

TEST_CASE("whatever an attacker delivers, ends that stand know the secret and agree") {
  World world;
  world.explore();
  const Tally& tally = world.tally();
  fmt::print("{} states, {} deliveries: {} refused, {} left waiting\n", tally.states,
             tally.deliveries, tally.refused, tally.waiting);
  INFO(tally.first_failure);
  CHECK(tally.failures == 0);
  // The protocol's own order is among them.
  CHECK(tally.both_runs > 0);
  CHECK(tally.states > 50);
}

}  // namespace handshake_orders_test
