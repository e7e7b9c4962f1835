// SendingRail: one socket of a sending tcp connection. It dials, shows its ticket, and hands a run
// of messages to the kernel, many with one system call. The connection says which messages.
#pragma once

#include "lib/base/path_watch.h"
#include "lib/transport/carrier.h"
#include "lib/transport/transport.h"
#include "transports/tcp/byte_stream.h"
#include "transports/tcp/dialer.h"
#include "transports/tcp/rail_pace.h"
#include "transports/tcp/rails.h"
#include "transports/tcp/shared_socket.h"
#include "transports/tcp/wire.h"

#include <array>
#include <cstdint>
#include <memory>
#include <string>

namespace gyre::transport {

// Messages before `end`, or a part of one.
struct MessageRun {
  std::uint64_t first = 0;
  std::uint64_t end = 0;
  std::uint32_t offset = 0;
  std::uint32_t bytes = 0;  // of the part; 0: whole messages
};

class SendingRail {
 public:
  // `ticket` is the peer's. `pair`: null: the other way has a socket of its own.
  SendingRail(RailTerms terms, const trust::Ticket& ticket, TcpDialer dialer,
              std::shared_ptr<SharedSocket> pair);
  SendingRail(SendingRail&&) = default;
  ~SendingRail();

  bool joined() const { return stream_ != nullptr && stream_->joined(); }
  Status join();
  // The path to the peer, as far as there is one yet.
  Status judge(std::int64_t now_ns, std::int64_t limit_ns);
  bool met_silence() const { return dialer_.met_silence(); }
  void close() { stream_.reset(); }
  const std::string& address() const { return address_; }

  // The kernel has all of its messages: it may take the next ones.
  bool is_free() const { return run_.first == run_.end; }
  void take(const MessageRun& run) {
    run_ = run;
    packed_end_ = run.first;
  }
  // The first that the kernel has not taken whole; any number if it is free.
  std::uint64_t first() const { return run_.first; }
  // Until the kernel has all of them, or takes no more.
  Status ship(const FifoView& fifo, const WireHeader& common);
  // What the kernel does not have, though the run is done.
  bool holds_bytes() const { return stream_ != nullptr && stream_->holds_bytes(); }

  // Of several rails: asks the kernel how much of what it took has been delivered.
  void look(std::int64_t now_ns);
  const RailPace& pace() const { return pace_; }
  // Of the run, what the kernel has not taken.
  std::uint64_t left_bytes(const FifoView& fifo) const;

  void arm(WaitSet& set, bool has_messages) const;

  static constexpr std::size_t max_batch = 16;  // messages with one call

 private:
  Result<std::shared_ptr<FileDescriptor>> find_socket();
  Result<std::shared_ptr<FileDescriptor>> find_answered();
  // Describes what has not left, from the first byte on; the number of parts and their bytes.
  Result<std::size_t> gather(const FifoView& fifo, const WireHeader& common, std::size_t* bytes);
  WireHeader header_of(const FifoView& fifo, const WireHeader& common, std::uint64_t index) const;
  void account(const FifoView& fifo, std::size_t bytes);
  // Of a message, the bytes that this run has.
  std::uint32_t bytes_of(const SlotHeader& note) const {
    return run_.bytes > 0 ? run_.bytes : note.bytes;
  }

  RailTerms terms_;
  trust::Ticket ticket_;
  std::shared_ptr<SharedSocket> pair_;
  TcpDialer dialer_;
  PathWatch path_;
  RailPace pace_;
  std::unique_ptr<ByteStream> stream_;
  std::string address_ = "not connected";
  MessageRun run_;
  std::uint64_t packed_end_ = 0;   // of the run's messages, those before it are in packed_
  std::size_t sent_of_first_ = 0;  // bytes of the first, header included, that the kernel has
  // A header, and behind it its payload if that is short: one part of the vector then.
  struct PackedMessage {
    WireHeader header;
    std::array<std::byte, 2048> payload;
  };
  static_assert(sizeof(PackedMessage) == sizeof(WireHeader) + 2048, "no padding");
  std::array<PackedMessage, max_batch> packed_;
  std::array<iovec, (1 + LentParts::most) * max_batch> parts_{};
};

}  // namespace gyre::transport
