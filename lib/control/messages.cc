#include "lib/control/messages.h"

#include "lib/trust/wire.h"

#include <fmt/core.h>

#include <algorithm>
#include <set>

namespace gyre::control {
namespace {

using trust::Reader;
using trust::Writer;

constexpr std::size_t max_identity = 4096;
constexpr std::size_t part_bytes = 256 << 10;
constexpr std::size_t max_roster_bytes = 1u << 30;
constexpr std::uint32_t max_blamed = 1024;

Status malformed(std::string_view what) {
  return Status(Code::RemoteError, fmt::format("sent a malformed {}", what));
}

bool get_processes(Reader& reader, std::uint32_t most, Roster& roster) {
  std::uint32_t count = 0;
  if (!reader.get(count) || count == 0 || count > most) return false;
  std::set<trust::Token> tokens;
  for (std::uint32_t i = 0; i < count; ++i) {
    std::vector<std::uint8_t> block;
    if (!reader.get_block(block, max_identity)) return false;
    Result<trust::ProcessIdentity> identity = trust::decode_identity(block);
    if (!identity.ok() || !tokens.insert(identity->process).second) return false;
    roster.processes.push_back(std::move(*identity));
  }
  return true;
}

bool get_ranks(Reader& reader, std::uint32_t size, Roster& roster) {
  std::uint32_t count = 0;
  if (!reader.get(count) || count != size) return false;
  for (std::uint32_t i = 0; i < count; ++i) {
    std::uint32_t process = 0;
    MessageBytes note;
    if (!reader.get(process) || process >= roster.processes.size() ||
        !reader.get_block(note, max_rank_message_bytes))
      return false;
    roster.process_of_rank.push_back(process);
    roster.notes.push_back(std::move(note));
  }
  return true;
}

}  // namespace

std::string_view kind_name(Kind kind) {
  constexpr std::string_view names[] = {
      "message",      "join", "place",   "roster",  "hello",    "welcome", "ready",          "go",
      "rank message", "ack",  "failure", "leave",   "departed", "moved",   "farewell heard", "ping",
      "greeting",     "open", "opened",  "refused", "closed"};
  const auto index = static_cast<std::size_t>(kind);
  return index < std::size(names) ? names[index] : names[0];
}

std::vector<std::uint8_t> encode_greeting(const trust::ProcessIdentity& process) {
  Writer writer;
  writer.put_block(trust::encode(process));
  return writer.take();
}

std::optional<trust::ProcessIdentity> decode_greeting(std::span<const std::uint8_t> bytes) {
  Reader reader(bytes);
  std::vector<std::uint8_t> identity;
  if (!reader.get_block(identity, max_identity) || !reader.at_end()) return std::nullopt;
  Result<trust::ProcessIdentity> process = trust::decode_identity(identity);
  if (!process.ok()) return std::nullopt;
  return std::move(*process);
}

std::vector<std::uint8_t> encode(const OpenMessage& message) {
  Writer writer;
  writer.put(message.link);
  writer.put_text(message.identity);
  writer.put(message.proof);
  return writer.take();
}

std::optional<OpenMessage> decode_open(std::span<const std::uint8_t> bytes) {
  OpenMessage message;
  Reader reader(bytes);
  if (!reader.get(message.link) || !reader.get_text(message.identity, trust::identity_length) ||
      !reader.get(message.proof) || !reader.at_end())
    return std::nullopt;
  return message;
}

std::vector<std::uint8_t> encode(const OpenedMessage& message) {
  Writer writer;
  writer.put(message.link);
  writer.put(message.proof);
  return writer.take();
}

std::optional<OpenedMessage> decode_opened(std::span<const std::uint8_t> bytes) {
  OpenedMessage message;
  Reader reader(bytes);
  if (!reader.get(message.link) || !reader.get(message.proof) || !reader.at_end())
    return std::nullopt;
  return message;
}

std::vector<std::uint8_t> encode_on_link(std::uint64_t link, std::span<const std::uint8_t> body) {
  Writer writer;
  writer.put(link);
  writer.put_rest(body);
  return writer.take();
}

std::optional<std::uint64_t> decode_on_link(std::span<const std::uint8_t> bytes,
                                            std::span<const std::uint8_t>* body) {
  std::uint64_t link = 0;
  Reader reader(bytes);
  if (!reader.get(link)) return std::nullopt;
  *body = reader.rest();
  return link;
}

std::vector<std::uint8_t> encode(const JoinMessage& message) {
  Writer writer;
  writer.put(message.version);
  writer.put(message.size);
  writer.put(message.rank);
  writer.put(message.init_timeout_ms);
  writer.put(message.liveness_ms);
  writer.put_block(trust::encode(message.process));
  writer.put_block(message.note);
  return writer.take();
}

Result<JoinMessage> decode_join(std::span<const std::uint8_t> bytes) {
  JoinMessage message;
  Reader reader(bytes);
  if (!reader.get(message.version)) return malformed("join");
  if (message.version != protocol_version)
    return Status(Code::Mismatch,
                  fmt::format("speaks control protocol {}, this library speaks {}: all ranks must "
                              "run the same version of Gyre",
                              message.version, protocol_version));
  std::vector<std::uint8_t> identity;
  if (!reader.get(message.size) || !reader.get(message.rank) ||
      !reader.get(message.init_timeout_ms) || !reader.get(message.liveness_ms) ||
      !reader.get_block(identity, max_identity) ||
      !reader.get_block(message.note, max_rank_message_bytes) || !reader.at_end())
    return malformed("join");
  if (message.size == 0 || message.size > max_size || message.rank >= message.size ||
      message.init_timeout_ms == 0 || message.liveness_ms == 0)
    return malformed("join");
  GYRE_ASSIGN(message.process, trust::decode_identity(identity));
  return message;
}

std::vector<std::uint8_t> encode(const PlaceMessage& message) {
  Writer writer;
  writer.put(message.process);
  writer.put_block(trust::encode(message.parent));
  const std::size_t ranks = std::min<std::size_t>(message.parent_ranks.size(), max_blamed);
  for (std::size_t i = 0; i < ranks; ++i)
    writer.put(static_cast<std::uint32_t>(message.parent_ranks[i]));
  return writer.take();
}

std::optional<PlaceMessage> decode_place(std::span<const std::uint8_t> bytes) {
  PlaceMessage message;
  Reader reader(bytes);
  std::vector<std::uint8_t> identity;
  if (!reader.get(message.process) || !reader.get_block(identity, max_identity) ||
      reader.left() > max_blamed * sizeof(std::uint32_t))
    return std::nullopt;
  Result<trust::ProcessIdentity> parent = trust::decode_identity(identity);
  if (!parent.ok()) return std::nullopt;
  message.parent = std::move(*parent);
  while (!reader.at_end()) {
    std::uint32_t rank = 0;
    if (!reader.get(rank) || rank >= static_cast<std::uint32_t>(max_size)) return std::nullopt;
    message.parent_ranks.push_back(static_cast<int>(rank));
  }
  return message;
}

std::vector<std::uint8_t> encode(const HelloMessage& message) {
  Writer writer;
  writer.put(message.process);
  writer.put(message.token);
  return writer.take();
}

std::optional<HelloMessage> decode_hello(std::span<const std::uint8_t> bytes) {
  HelloMessage message;
  Reader reader(bytes);
  if (!reader.get(message.process) || !reader.get(message.token) || !reader.at_end())
    return std::nullopt;
  return message;
}

std::vector<std::uint8_t> encode(const RankMessageHead& head, std::span<const std::uint8_t> text) {
  Writer writer;
  writer.put(head.from);
  writer.put(head.to);
  writer.put(head.key);
  writer.put(head.number);
  writer.put_rest(text);
  return writer.take();
}

std::optional<RankMessageHead> decode_rank_message(std::span<const std::uint8_t> bytes,
                                                   std::span<const std::uint8_t>* text) {
  RankMessageHead head;
  Reader reader(bytes);
  if (!reader.get(head.from) || !reader.get(head.to) || !reader.get(head.key) ||
      !reader.get(head.number) || head.number == 0 || reader.left() > max_rank_message_bytes)
    return std::nullopt;
  *text = reader.rest();
  return head;
}

std::vector<std::uint8_t> encode(const AckMessage& message) {
  Writer writer;
  writer.put(message.from);
  writer.put(message.to);
  writer.put(message.number);
  return writer.take();
}

std::optional<AckMessage> decode_ack(std::span<const std::uint8_t> bytes) {
  AckMessage message;
  Reader reader(bytes);
  if (!reader.get(message.from) || !reader.get(message.to) || !reader.get(message.number) ||
      !reader.at_end())
    return std::nullopt;
  return message;
}

std::vector<std::uint8_t> encode_leave(std::uint32_t rank) {
  Writer writer;
  writer.put(rank);
  return writer.take();
}

std::optional<std::uint32_t> decode_leave(std::span<const std::uint8_t> bytes) {
  std::uint32_t rank = 0;
  Reader reader(bytes);
  if (!reader.get(rank) || !reader.at_end()) return std::nullopt;
  return rank;
}

std::vector<std::vector<std::uint8_t>> encode_parts(const RosterMessage& message) {
  Writer writer;
  writer.put(message.liveness_ms);
  writer.put(static_cast<std::uint32_t>(message.roster.processes.size()));
  for (const auto& process : message.roster.processes) writer.put_block(trust::encode(process));
  writer.put(static_cast<std::uint32_t>(message.roster.process_of_rank.size()));
  for (std::size_t rank = 0; rank < message.roster.process_of_rank.size(); ++rank) {
    writer.put(message.roster.process_of_rank[rank]);
    writer.put_block(message.roster.notes[rank]);
  }
  const std::vector<std::uint8_t> whole = writer.take();
  std::vector<std::vector<std::uint8_t>> parts;
  for (std::size_t offset = 0; offset < whole.size(); offset += part_bytes) {
    Writer part;
    part.put(static_cast<std::uint32_t>(whole.size()));
    part.put(static_cast<std::uint32_t>(offset));
    const std::size_t length = std::min(part_bytes, whole.size() - offset);
    part.put_rest(std::span(whole).subspan(offset, length));
    parts.push_back(part.take());
  }
  return parts;
}

Result<bool> RosterAssembly::take(std::span<const std::uint8_t> part) {
  Reader reader(part);
  std::uint32_t total = 0, offset = 0;
  if (!reader.get(total) || !reader.get(offset) || total > max_roster_bytes ||
      offset != bytes_.size() || reader.at_end())
    return malformed("roster");
  // The first part's total holds: with a smaller one later on, what is still to come would wrap.
  if (offset == 0) total_ = total;
  if (total != total_ || reader.left() > total_ - offset) return malformed("roster");
  const auto rest = reader.rest();
  bytes_.insert(bytes_.end(), rest.begin(), rest.end());
  return bytes_.size() == total;
}

Result<RosterMessage> RosterAssembly::decode(std::uint32_t size) const {
  RosterMessage message;
  Reader reader(bytes_);
  // The root's process may have no rank of its own.
  if (!reader.get(message.liveness_ms) || message.liveness_ms == 0 ||
      !get_processes(reader, size + 1, message.roster) ||
      !get_ranks(reader, size, message.roster) || !reader.at_end())
    return malformed("roster");
  return message;
}

}  // namespace gyre::control
