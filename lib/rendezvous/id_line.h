// IdLine: what is said between rank 0, who has the id, and another rank, who wants it: one question
// and one answer over a stream socket, in clear on one host, under TLS over a network. Never
// blocks. An unauthenticated client costs 256 bytes until it has shown that it speaks the protocol.
//
//   message   u8 length, body (of at most 255 bytes)
#pragma once

#include "lib/base/owned.h"
#include "lib/base/status.h"
#include "lib/rendezvous/meeting_point.h"
#include "lib/trust/secure_session.h"
#include "lib/trust/unique_id.h"

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace gyre::rendezvous {

using Message = std::vector<std::uint8_t>;

struct Question {
  std::uint32_t rank = 0;
  std::uint32_t size = 0;
  std::uint32_t meeting = 0;  // earlier meetings of this process
  trust::Token process{};
};
Message encode(const Question& question);
Result<Question> decode_question(const Message& message);

// The id, or why there is none for the one who asked.
Message encode_id(const trust::EncodedId& id);
Message encode_refusal(std::string_view why);
Result<trust::UniqueId> decode_answer(const Message& message);

class IdLine {
 public:
  enum class End { asking, answering };
  // Without a proof: in clear.
  static Result<IdLine> make(End end, FileDescriptor socket,
                             std::shared_ptr<const NetworkProof> proof);

  IdLine(IdLine&&) = default;
  IdLine& operator=(IdLine&&) = default;
  ~IdLine() { trust::wipe(leaving_); }

  int descriptor() const { return session_ ? session_->descriptor() : socket_.get(); }
  // Over a network, the other end has not named our key yet: what it says stays in the kernel.
  bool is_unnamed() const { return proof_ != nullptr && session_ == nullptr; }
  bool wants_to_write() const;
  // The other end has gone, and was one of us: by the key it proved, or in clear by its user.
  bool departed() const;
  // The other end's message, once it is whole. An error: closed, or not our protocol.
  Result<std::optional<Message>> receive();
  // An error: it cannot be sent. What the other end does then is receive's to say.
  Status send(const Message& message);
  Status flush();

 private:
  IdLine() = default;
  Result<std::optional<Message>> receive_in_clear();
  Status hear_first_words();
  Status start_session(trust::SessionRole role);

  FileDescriptor socket_;  // until there is a session
  std::shared_ptr<const NetworkProof> proof_;
  std::unique_ptr<trust::SecureSession> session_;
  trust::Wiped<256> arrived_;
  std::size_t arrived_bytes_ = 0;
  bool ended_ = false;  // in clear: the other end closed, or the socket broke
  Message leaving_;
  std::size_t left_ = 0;  // of it, at the other end's kernel already
};

}  // namespace gyre::rendezvous
