#include "lib/rendezvous/id_connection.h"

#include "lib/control/first_words.h"
#include "lib/trust/wire.h"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <string_view>
#include <sys/socket.h>

namespace gyre::rendezvous {
namespace {

constexpr std::array<char, 7> question_magic = {'G', 'Y', 'R', 'E', 'A', 'S', 'K'};
constexpr std::uint8_t version = 1;
enum class AnswerKind : std::uint8_t { id = 1, refusal = 2 };
constexpr std::size_t max_refusal = 240;
constexpr std::uint8_t frame_kind = 'm';

Status closed() { return Status(Code::RemoteError, "the other end closed the connection"); }

}  // namespace

IdMessage encode(const IdRequest& request) {
  trust::Writer writer;
  writer.put(question_magic);
  writer.put(version);
  writer.put(request.rank);
  writer.put(request.size);
  writer.put(request.meeting);
  writer.put(request.process);
  return writer.take();
}

Result<IdRequest> decode_id_request(const IdMessage& message) {
  trust::Reader reader(message);
  std::array<char, 7> magic{};
  std::uint8_t spoken = 0;
  if (!reader.get(magic) || magic != question_magic || !reader.get(spoken))
    return Status(Code::RemoteError, "it does not speak Gyre's protocol");
  if (spoken != version)
    return Status(Code::Mismatch,
                  fmt::format("this rank's Gyre uses version {} of the protocol to meet, rank 0's "
                              "uses version {}: all ranks must run the same library",
                              spoken, version));
  IdRequest request;
  if (!reader.get(request.rank) || !reader.get(request.size) || !reader.get(request.meeting) ||
      !reader.get(request.process) || !reader.at_end())
    return Status(Code::RemoteError, "its question is malformed");
  return request;
}

IdMessage encode_id(const trust::EncodedId& id) {
  trust::Writer writer;
  writer.put(AnswerKind::id);
  writer.put(id.bytes);
  return writer.take();
}

IdMessage encode_refusal(std::string_view why) {
  trust::Writer writer;
  writer.put(AnswerKind::refusal);
  why = why.substr(0, max_refusal);
  writer.put_rest({reinterpret_cast<const std::uint8_t*>(why.data()), why.size()});
  return writer.take();
}

Result<trust::UniqueId> decode_answer(const IdMessage& message) {
  trust::Reader reader(message);
  AnswerKind kind{};
  trust::EncodedId id;
  const bool whole = reader.get(kind);
  if (whole && kind == AnswerKind::id && reader.get(id.bytes) && reader.at_end())
    return trust::decode_unique_id(id);
  if (!whole || kind != AnswerKind::refusal)
    return Status(Code::RemoteError, "rank 0's answer is malformed");
  std::string why;
  for (const std::uint8_t letter : reader.rest())
    why += letter < ' ' || letter > '~' ? '?' : static_cast<char>(letter);
  return invalid_usage("rank 0 answers: " + why);
}

Result<IdConnection> IdConnection::make(Side end, FileDescriptor socket,
                                        std::shared_ptr<const NetworkProof> proof) {
  IdConnection line;
  line.socket_ = std::move(socket);
  line.proof_ = std::move(proof);
  if (line.proof_ != nullptr && end == Side::asking)
    GYRE_TRY(line.start_session(trust::SessionRole::client));
  return line;
}

Status IdConnection::start_session(trust::SessionRole role) {
  GYRE_ASSIGN(session_,
              trust::SecureSession::start(*proof_->tls, std::move(socket_), role, proof_->key));
  return Status();
}

bool IdConnection::departed() const {
  if (proof_ == nullptr) return ended_;
  return session_ != nullptr && session_->established() && session_->ended();
}

bool IdConnection::wants_to_write() const {
  return session_ ? session_->wants_write() : !leaving_.empty();
}

Result<std::optional<IdMessage>> IdConnection::receive() {
  if (proof_ == nullptr) return receive_in_clear();
  if (is_unnamed()) GYRE_TRY(hear_first_words());
  if (is_unnamed()) return std::optional<IdMessage>();
  Status status = session_->advance();
  // What came before the end still counts.
  std::optional<trust::Frame> frame = session_->receive();
  if (!frame && !status.ok()) return status;
  if (!frame) return std::optional<IdMessage>();
  if (frame->type != frame_kind) return Status(Code::RemoteError, "it sent an unknown frame");
  return std::optional(std::move(frame->body));
}

// The session, which is large and whose arithmetic takes time, is made for those alone whose hello
// is whole and names our key.
Status IdConnection::hear_first_words() {
  std::uint8_t bytes[control::max_first_words];
  const ssize_t got = ::recv(socket_.get(), bytes, sizeof bytes, MSG_DONTWAIT | MSG_PEEK);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return Status();
  if (got <= 0) return closed();
  const control::FirstWords words = control::judge_first_words(
      {bytes, static_cast<std::size_t>(got)}, rendezvous_identity_prefix);
  if (words.intent == control::FirstWords::Intent::unclear) return Status();
  if (words.intent == control::FirstWords::Intent::other)
    return Status(Code::RemoteError, std::string(words.fault));
  if (words.intent == control::FirstWords::Intent::show_ticket || words.identity.empty())
    return Status(Code::RemoteError, "it did not name the key of a meeting");
  if (words.identity != proof_->key->identity)
    return Status(Code::RemoteError, "it has another secret, or is of another job");
  return start_session(trust::SessionRole::server);
}

Result<std::optional<IdMessage>> IdConnection::receive_in_clear() {
  while (true) {
    const std::size_t wanted = arrived_bytes_ == 0 ? 1 : 1 + arrived_[0];
    if (arrived_bytes_ == wanted && wanted > 1) {
      arrived_bytes_ = 0;
      return std::optional(IdMessage(&arrived_[1], &arrived_[0] + wanted));
    }
    if (arrived_bytes_ == 1 && wanted == 1)
      return Status(Code::RemoteError, "it sent an empty message");
    const ssize_t got =
        ::recv(socket_.get(), &arrived_[arrived_bytes_], wanted - arrived_bytes_, MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return std::optional<IdMessage>();
    ended_ = got <= 0;
    if (ended_) return closed();
    arrived_bytes_ += static_cast<std::size_t>(got);
  }
}

Status IdConnection::send(const IdMessage& message) {
  if (session_ != nullptr) {
    GYRE_TRY(session_->send(frame_kind, message));
    // Reading as well would find the end of one who has read the answer and gone.
    return session_->established() ? session_->transmit() : session_->advance();
  }
  leaving_.push_back(static_cast<std::uint8_t>(message.size()));
  // Not by insert(), in which GCC 14 sees an overflow.
  std::ranges::copy(message, std::back_inserter(leaving_));
  return flush();
}

Status IdConnection::flush() {
  if (session_ != nullptr) return session_->advance();
  while (left_ < leaving_.size()) {
    const ssize_t put = ::send(socket_.get(), leaving_.data() + left_, leaving_.size() - left_,
                               MSG_DONTWAIT | MSG_NOSIGNAL);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0 && errno == EAGAIN) return Status();
    ended_ = put < 0;
    if (ended_) return closed();
    left_ += static_cast<std::size_t>(put);
  }
  trust::wipe(leaving_);
  leaving_.clear();
  left_ = 0;
  return Status();
}

}  // namespace gyre::rendezvous
