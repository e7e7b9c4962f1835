// IdConnection: the exchange between rank 0, which has the id, and another rank, which wants it:
// one question and one answer over a stream socket, in clear on one host, under TLS over a network.
// It never blocks. An unauthenticated client costs 256 bytes until it has shown that it speaks the
// protocol.
//
//   message   u8 length, body (of at most 255 bytes)
#pragma once

#include "lib/base/owned.h"
#include "lib/base/status.h"
#include "lib/rendezvous/rendezvous_address.h"
#include "lib/trust/secure_session.h"
#include "lib/trust/unique_id.h"

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace gyre::rendezvous {

using IdMessage = std::vector<std::uint8_t>;

struct IdRequest {
  std::uint32_t rank = 0;
  std::uint32_t size = 0;
  std::uint32_t meeting = 0;  // earlier meetings of this process
  trust::Token process{};
};
IdMessage encode(const IdRequest& request);
Result<IdRequest> decode_id_request(const IdMessage& message);

// The id, or why there is none for the one who asked.
IdMessage encode_id(const trust::EncodedId& id);
IdMessage encode_refusal(std::string_view why);
Result<trust::UniqueId> decode_answer(const IdMessage& message);

class IdConnection {
 public:
  enum class Side { asking, answering };
  // Without a proof: in clear.
  static Result<IdConnection> make(Side end, FileDescriptor socket,
                                   std::shared_ptr<const NetworkProof> proof);

  IdConnection(IdConnection&&) = default;
  IdConnection& operator=(IdConnection&&) = default;
  ~IdConnection() { trust::wipe(leaving_); }

  int descriptor() const { return session_ ? session_->descriptor() : socket_.get(); }
  // Over a network, the other end has not named our key yet: what it says stays in the kernel.
  bool is_unnamed() const { return proof_ != nullptr && session_ == nullptr; }
  bool wants_to_write() const;
  // The other end has gone, and was one of us: by the key it proved, or in clear by its user.
  bool departed() const;
  // The other end's message, once it is whole. An error: closed, or not our protocol.
  Result<std::optional<IdMessage>> receive();
  // An error: it cannot be sent. What the other end does then is receive's to say.
  Status send(const IdMessage& message);
  Status flush();

 private:
  IdConnection() = default;
  Result<std::optional<IdMessage>> receive_in_clear();
  Status hear_first_words();
  Status start_session(trust::SessionRole role);

  FileDescriptor socket_;  // until there is a session
  std::shared_ptr<const NetworkProof> proof_;
  std::unique_ptr<trust::SecureSession> session_;
  trust::Wiped<256> arrived_;
  std::size_t arrived_bytes_ = 0;
  bool ended_ = false;  // in clear: the other end closed, or the socket broke
  IdMessage leaving_;
  std::size_t left_ = 0;  // of it, at the other end's kernel already
};

}  // namespace gyre::rendezvous
