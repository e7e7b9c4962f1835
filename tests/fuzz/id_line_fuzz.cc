// Questions and answers about the id: the line in clear in any pieces, a line whose other end must
// prove itself and cannot, and the server of the id with visitors that say anything.
// Input: u8 which; then blocks. Of a line: what arrives at once. Of a server: what a visitor says.
#include "lib/base/log.h"
#include "lib/bootstrap/id_line.h"
#include "lib/bootstrap/id_server.h"
#include "tests/fuzz/input.h"

#include <limits>
#include <sys/socket.h>

using namespace gyre;
using namespace gyre::bootstrap;

namespace {

constexpr std::uint32_t ranks = 4, meeting_number = 2;

trust::UniqueId some_id() {
  trust::UniqueId id;
  id.secret.fill(5);
  id.root_door = "gyre-fuzz";
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

void look_at(const Message& message) {
  GYRE_DEMAND(!message.empty() && message.size() <= 255);
  const auto question = decode_question(message);
  if (question.ok()) GYRE_DEMAND(encode(*question) == message);
  const auto answer = decode_answer(message);
  GYRE_DEMAND(fuzz::is_one_line(answer.status().message()));
}

void hear_in_clear(fuzz::Input& input) {
  SocketPair pair;
  auto line = IdLine::make(IdLine::End::answering, std::move(pair.near), nullptr);
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
      const Message& got = **message;
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
    key->psk.fill(9);
    auto tls = trust::Tls::create();
    GYRE_DEMAND(tls.ok());
    return std::shared_ptr<const NetworkProof>(new NetworkProof{std::move(key), std::move(*tls)});
  }();
  return made;
}

// Whoever has not the key gets no message through, and no alert that tells what was wrong.
void hear_a_stranger(fuzz::Input& input) {
  constexpr std::uint8_t record_alert = 21;
  SocketPair pair;
  auto line = IdLine::make(IdLine::End::answering, std::move(pair.near), proof());
  GYRE_DEMAND(line.ok());
  for (bool good = true; good && !input.empty();) {
    say(pair.far, input.take_block());
    const auto message = line->receive();
    good = message.ok();
    GYRE_DEMAND(!good || !message->has_value());
  }
  std::uint8_t answer[4096];
  const ssize_t got = ::recv(pair.far.get(), answer, sizeof answer, MSG_DONTWAIT);
  GYRE_DEMAND(got <= 0 || answer[0] != record_alert);
}

struct Door {
  FileDescriptor listener;
  trust::SocketAddress address;
};

Door open_door() {
  Door door;
  auto address = trust::abstract_address("gyre-fuzz-id-" + std::to_string(getpid()));
  auto listener = trust::listen_at(*address);
  GYRE_DEMAND(listener.ok());
  door.listener = std::move(*listener);
  door.address = *address;
  return door;
}

// What the server may do with a question, by the simplest reading.
bool deserves_id(std::span<const std::uint8_t> words,
                 std::map<std::uint32_t, trust::Token>& known) {
  if (words.size() < 2 || words.size() < 1u + words[0] || words[0] == 0) return false;
  const auto question = decode_question(Message(words.begin() + 1, words.begin() + 1 + words[0]));
  if (!question.ok() || question->meeting != meeting_number || question->size != ranks ||
      question->rank == 0 || question->rank >= ranks)
    return false;
  return known.try_emplace(question->rank, question->process).first->second == question->process;
}

void serve_visitors(fuzz::Input& input) {
  Door door = open_door();
  auto server =
      IdServer::start(std::move(door.listener), {{door.address}, "here", nullptr},
                      {some_id(), ranks, meeting_number, std::numeric_limits<std::int64_t>::max()});
  GYRE_DEMAND(server.ok());
  std::map<std::uint32_t, trust::Token> known;
  for (int visits = 0; visits < 6 && !input.empty(); ++visits) {
    const auto words = input.take_block();
    const FileDescriptor visitor(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    GYRE_DEMAND(::connect(visitor.get(), door.address.get(), door.address.length) == 0);
    say(visitor, words);
    const bool deserves = deserves_id(words, known);
    for (int turn = 0; turn < 3; ++turn) (void)(*server)->serve();
    std::uint8_t answer[512];
    const ssize_t got = ::recv(visitor.get(), answer, sizeof answer, MSG_DONTWAIT);
    const bool given = got > 1 && decode_answer(Message(answer + 1, answer + got)).ok();
    GYRE_DEMAND(given == deserves);
  }
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const bool quiet = configure_log(LogLevel::none, "").ok();
  fuzz::Input input(data, size);
  constexpr void (*parts[])(fuzz::Input&) = {hear_in_clear, hear_a_stranger, serve_visitors};
  if (quiet) parts[input.take<std::uint8_t>() % std::size(parts)](input);
  return 0;
}
