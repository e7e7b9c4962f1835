// Requests for the id and answers to them. Either the line in clear, in any pieces; or a line whose
// other end must prove itself and cannot; or the server of the id, with clients that send anything.
// Input: u8 which; then blocks. For a line: the pieces that arrive. For a server: a client's bytes.
// For a recorded hello: u8 number of changes, u16 place and u8 value of each, then the lengths of
// its pieces.
#include "lib/base/log.h"
#include "lib/control/first_words.h"
#include "lib/rendezvous/id_connection.h"
#include "lib/rendezvous/id_server.h"
#include "tests/fuzz/input.h"

#include <limits>
#include <sys/socket.h>

namespace id_connection_fuzz {

using namespace gyre;
using namespace gyre::control;
using namespace gyre::rendezvous;

namespace {

constexpr std::uint32_t ranks = 4, meeting_number = 2;

trust::UniqueId some_id() {
  trust::UniqueId id;
  id.secret.bytes.fill(5);
  id.root_listener = "gyre-fuzz";
  return id;
}

struct SocketPair {
  SocketPair() {
    int ends[2];
    GYRE_DEMAND(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
    near = FileDescriptor(ends[0]);
    far = FileDescriptor(ends[1]);
  }
  FileDescriptor near, far;
};

void say(const FileDescriptor& socket, std::span<const std::uint8_t> words) {
  // The other end may have closed.
  (void)!::send(socket.get(), words.data(), words.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

void look_at(const IdMessage& message) {
  GYRE_DEMAND(!message.empty() && message.size() <= 255);
  const auto question = decode_id_request(message);
  if (question.ok()) GYRE_DEMAND(encode(*question) == message);
  const auto answer = decode_answer(message);
  GYRE_DEMAND(fuzz::is_one_line(answer.status().message()));
}

void hear_in_clear(fuzz::Input& input) {
  SocketPair pair;
  auto line = IdConnection::make(IdConnection::Side::answering, std::move(pair.near), nullptr);
  GYRE_DEMAND(line.ok());
  std::vector<std::uint8_t> left;  // not yet given out, by our own count
  bool good = true;
  while (good && !input.empty()) {
    const auto words = input.take_block();
    say(pair.far, words);
    left.insert(left.end(), words.begin(), words.end());
    while (good) {
      const auto message = line->receive();
      const bool empty_message = !left.empty() && left[0] == 0;
      GYRE_DEMAND(message.ok() == !empty_message);
      good = message.ok();
      if (!good || !message->has_value()) break;
      const IdMessage& got = **message;
      GYRE_DEMAND(left.size() > got.size() && left[0] == got.size() &&
                  std::equal(got.begin(), got.end(), left.begin() + 1));
      left.erase(left.begin(), left.begin() + 1 + static_cast<std::ptrdiff_t>(got.size()));
      look_at(got);
    }
    if (good) GYRE_DEMAND(left.empty() || left.size() < std::size_t{left[0]} + 1);
  }
  pair.far.reset();
  if (good) GYRE_DEMAND(!line->receive().ok());
}

const std::shared_ptr<const NetworkProof>& proof() {
  static const std::shared_ptr<const NetworkProof> made = [] {
    auto key = std::make_shared<trust::SessionKey>();
    key->identity = "gyre-meeting-1-0123456789abcdef0123456789abcdef";
    key->psk.bytes.fill(9);
    auto tls = trust::Tls::create();
    GYRE_DEMAND(tls.ok());
    return std::shared_ptr<const NetworkProof>(new NetworkProof{std::move(key), std::move(*tls)});
  }();
  return made;
}

// A line whose other end has not the key: it gets no message through, no alert that tells what was
// wrong, and no session before its hello is whole and names the key.
class StrangersLine {
 public:
  StrangersLine()
      : line_(IdConnection::make(IdConnection::Side::answering, std::move(pair_.near), proof())) {
    GYRE_DEMAND(line_.ok());
  }
  bool hear(std::span<const std::uint8_t> words) {
    say(pair_.far, words);
    said_.append(words.begin(), words.end());
    const auto message = line_->receive();
    GYRE_DEMAND(!message.ok() || !message->has_value());
    GYRE_DEMAND(line_->is_unnamed() || said_.find(proof()->key->identity) != said_.npos);
    return message.ok();
  }
  ~StrangersLine() {
    constexpr std::uint8_t record_alert = 21;
    std::uint8_t answer[4096];
    const ssize_t got = ::recv(pair_.far.get(), answer, sizeof answer, MSG_DONTWAIT);
    GYRE_DEMAND(got <= 0 || answer[0] != record_alert);
  }

 private:
  SocketPair pair_;
  Result<IdConnection> line_;
  std::string said_;
};

void hear_a_stranger(fuzz::Input& input) {
  StrangersLine line;
  while (!input.empty() && line.hear(input.take_block())) continue;
}

// What one of us says first.
std::vector<std::uint8_t> genuine_hello() {
  SocketPair pair;
  auto asking = IdConnection::make(IdConnection::Side::asking, std::move(pair.near), proof());
  GYRE_DEMAND(asking.ok() && asking->flush().ok());
  std::vector<std::uint8_t> hello(max_first_words);
  const ssize_t got = ::recv(pair.far.get(), hello.data(), hello.size(), MSG_DONTWAIT);
  GYRE_DEMAND(got > 0);
  hello.resize(static_cast<std::size_t>(got));
  return hello;
}

void hear_an_eavesdropper(fuzz::Input& input) {
  static const std::vector<std::uint8_t> overheard = genuine_hello();
  std::vector<std::uint8_t> hello = overheard;
  for (int changes = input.take<std::uint8_t>() % 8; changes > 0; --changes) {
    const std::size_t place = input.take<std::uint16_t>() % hello.size();
    hello[place] = input.take<std::uint8_t>();
  }
  StrangersLine line;
  std::span<const std::uint8_t> left = hello;
  while (!left.empty()) {
    const std::size_t length =
        input.empty() ? left.size()
                      : std::min<std::size_t>(left.size(), 1u + input.take<std::uint8_t>());
    if (!line.hear(left.first(length))) return;
    left = left.subspan(length);
  }
}

struct Listening {
  FileDescriptor listener;
  trust::SocketAddress address;
};

Listening open_listening() {
  Listening listening;
  auto address = trust::abstract_address("gyre-fuzz-id-" + std::to_string(getpid()));
  auto listener = trust::listen_at(*address);
  GYRE_DEMAND(listener.ok());
  listening.listener = std::move(*listener);
  listening.address = *address;
  return listening;
}

// What the server may do with a question, by the simplest reading.
bool deserves_id(std::span<const std::uint8_t> words,
                 std::map<std::uint32_t, trust::Token>& known) {
  if (words.size() < 2 || words.size() < 1u + words[0] || words[0] == 0) return false;
  const auto question =
      decode_id_request(IdMessage(words.begin() + 1, words.begin() + 1 + words[0]));
  if (!question.ok() || question->meeting != meeting_number || question->size != ranks ||
      question->rank == 0 || question->rank >= ranks)
    return false;
  return known.try_emplace(question->rank, question->process).first->second == question->process;
}

void serve_visitors(fuzz::Input& input) {
  Listening listening = open_listening();
  auto server =
      IdServer::start(std::move(listening.listener), {{listening.address}, "here", nullptr},
                      {some_id(), ranks, meeting_number, std::numeric_limits<std::int64_t>::max()});
  GYRE_DEMAND(server.ok());
  std::map<std::uint32_t, trust::Token> known;
  for (int visits = 0; visits < 6 && !input.empty(); ++visits) {
    const auto words = input.take_block();
    const FileDescriptor visitor(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    GYRE_DEMAND(::connect(visitor.get(), listening.address.get(), listening.address.length) == 0);
    say(visitor, words);
    const bool deserves = deserves_id(words, known);
    for (int turn = 0; turn < 3; ++turn) (void)(*server)->serve();
    std::uint8_t answer[512];
    const ssize_t got = ::recv(visitor.get(), answer, sizeof answer, MSG_DONTWAIT);
    const bool given = got > 1 && decode_answer(IdMessage(answer + 1, answer + got)).ok();
    GYRE_DEMAND(given == deserves);
  }
}

}  // namespace

int take_input(const std::uint8_t* data, std::size_t size) {
  static const bool quiet = configure_log(LogLevel::none, "").ok();
  fuzz::Input input(data, size);
  constexpr void (*parts[])(fuzz::Input&) = {hear_in_clear, hear_a_stranger, serve_visitors,
                                             hear_an_eavesdropper};
  if (quiet) parts[input.take<std::uint8_t>() % std::size(parts)](input);
  return 0;
}

GYRE_FUZZ_TARGET(id_connection)

}  // namespace id_connection_fuzz
