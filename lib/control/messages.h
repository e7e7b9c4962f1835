// The messages of the control plane and their bytes. A peer's bytes are checked here for values
// that are valid at all. The job or the trunk judges whether the peer may send them now.
#pragma once

#include "lib/base/status.h"
#include "lib/control/membership.h"
#include "lib/trust/identity.h"
#include "lib/trust/proof.h"

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace gyre::control {

enum class Kind : std::uint8_t {
  // Of a link, whose number comes first.
  join = 1,  // to the root: a rank of this process
  place,     // from the root: where in the tree this process stands, and who is its parent
  roster,    // from the parent: a part of the roster
  hello,     // to the parent
  welcome,   // its answer
  ready,     // to the parent: everybody below is linked
  go,        // to those below: all are
  rank_message,
  ack,  // messages were taken
  failure,
  leave,
  departed,        // all that have left, on a new link
  moved,           // to the root: the parent has taken over this link's duty
  farewell_heard,  // to a process whose last rank has left: this one knows it
  // Of a trunk.
  ping,
  greeting,  // the first: which process this is
  open,      // a link, with a proof of its communicator's key
  opened,    // the answer, with another proof
  refused,   // the other answer: a link's number
  closed,    // a link's number
};
std::string_view kind_name(Kind kind);

inline constexpr std::uint16_t protocol_version = 4;
inline constexpr std::size_t max_rank_message_bytes = 64 << 10;
inline constexpr int max_size = 1 << 24;

std::vector<std::uint8_t> encode_greeting(const trust::ProcessIdentity& process);
std::optional<trust::ProcessIdentity> decode_greeting(std::span<const std::uint8_t> bytes);

// Both ends open links; those of the one who dialed have even numbers.
struct OpenMessage {
  std::uint64_t link = 0;
  std::string identity;  // of the key
  trust::KeyProof proof{};
};
std::vector<std::uint8_t> encode(const OpenMessage& message);
std::optional<OpenMessage> decode_open(std::span<const std::uint8_t> bytes);

struct OpenedMessage {
  std::uint64_t link = 0;
  trust::KeyProof proof{};
};
std::vector<std::uint8_t> encode(const OpenedMessage& message);
std::optional<OpenedMessage> decode_opened(std::span<const std::uint8_t> bytes);

// A link's number alone, or before what is said on it.
std::vector<std::uint8_t> encode_on_link(std::uint64_t link,
                                         std::span<const std::uint8_t> body = {});
// `body` becomes the view of what follows.
std::optional<std::uint64_t> decode_on_link(std::span<const std::uint8_t> bytes,
                                            std::span<const std::uint8_t>* body);

struct JoinMessage {
  std::uint16_t version = protocol_version;
  std::uint32_t size = 0;
  std::uint32_t rank = 0;
  std::uint32_t init_timeout_ms = 0;
  std::uint32_t liveness_ms = 0;
  trust::ProcessIdentity process;
  MessageBytes note;
};
std::vector<std::uint8_t> encode(const JoinMessage& message);
// A wrong version is an error that shows both; anything else that is wrong is "malformed".
Result<JoinMessage> decode_join(std::span<const std::uint8_t> bytes);

// Of a process that is no child of the root's: its parent gives it the roster.
struct PlaceMessage {
  std::uint32_t process = 0;  // its number in the roster
  trust::ProcessIdentity parent;
  std::vector<int> parent_ranks;  // for blame; of very many, the first
};
std::vector<std::uint8_t> encode(const PlaceMessage& message);
std::optional<PlaceMessage> decode_place(std::span<const std::uint8_t> bytes);

struct HelloMessage {
  std::uint32_t process = 0;
  trust::Token token{};
};
std::vector<std::uint8_t> encode(const HelloMessage& message);
std::optional<HelloMessage> decode_hello(std::span<const std::uint8_t> bytes);

struct RankMessageHead {
  std::uint32_t from = 0;
  std::uint32_t to = 0;
  std::uint64_t key = 0;
  std::uint64_t number = 0;  // from 1, of the two processes
};
std::vector<std::uint8_t> encode(const RankMessageHead& head, std::span<const std::uint8_t> text);
// `text` becomes the view of what follows the head.
std::optional<RankMessageHead> decode_rank_message(std::span<const std::uint8_t> bytes,
                                                   std::span<const std::uint8_t>* text);

// Process `from` has taken the messages of process `to` up to `number`.
struct AckMessage {
  std::uint32_t from = 0;
  std::uint32_t to = 0;
  std::uint64_t number = 0;
};
std::vector<std::uint8_t> encode(const AckMessage& message);
std::optional<AckMessage> decode_ack(std::span<const std::uint8_t> bytes);

// In a leave: not a rank, but the root's process, which had none.
inline constexpr std::uint32_t no_rank = UINT32_MAX;
std::vector<std::uint8_t> encode_leave(std::uint32_t rank);
std::optional<std::uint32_t> decode_leave(std::span<const std::uint8_t> bytes);

// The roster travels in parts, each {total, offset, bytes}.
struct RosterMessage {
  std::uint32_t liveness_ms = 0;  // the shortest that any rank asked for
  Roster roster;
};
std::vector<std::vector<std::uint8_t>> encode_parts(const RosterMessage& message);

class RosterAssembly {
 public:
  // True when the last part has come.
  Result<bool> take(std::span<const std::uint8_t> part);
  Result<RosterMessage> decode(std::uint32_t size) const;
  bool empty() const { return bytes_.empty(); }

 private:
  std::uint32_t total_ = 0;
  std::vector<std::uint8_t> bytes_;  // never more than total_
};

}  // namespace gyre::control
