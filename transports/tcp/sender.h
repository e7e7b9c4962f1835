// The sending end of a tcp connection: a private fifo that the executor commits into, and the code
// that ships committed messages, many with one system call. Messages may lie in memory that callers
// lend: the kernel takes them from there.
#pragma once

#include "lib/base/path_watch.h"
#include "lib/transport/carrier.h"
#include "lib/transport/endpoint.h"
#include "lib/transport/mapped.h"
#include "transports/tcp/byte_stream.h"
#include "transports/tcp/dialer.h"
#include "transports/tcp/secure_stream.h"
#include "transports/tcp/shared_socket.h"
#include "transports/tcp/wire.h"

#include <array>
#include <memory>
#include <string>
#include <vector>

namespace gyre::transport {

class TcpSender final : public Connection, private Carrier {
 public:
  TcpSender(const LinkKey& key, const TransportEnvironment& environment,
            const EndpointContents& endpoint, std::shared_ptr<FifoMemory> memory,
            StreamSecurity security, std::shared_ptr<SharedSocket> pair);
  ~TcpSender() override;

  bool ready() const override { return stream_ != nullptr && stream_->joined(); }
  const FifoView& fifo() const override { return memory_->view; }
  Status progress() override;
  bool flushed() const override;
  bool flushed_to(std::uint64_t tail) const override;
  bool needs_progress() const override { return true; }
  Status look_at_peer(std::int64_t now_ns, std::int64_t limit_ns) override;
  bool met_silence() const override { return dialer_.met_silence(); }
  void arm(WaitSet& set) override;
  void disarm() override {}
  bool same_address_space() const override { return false; }
  Carrier* carrier() override { return this; }

 private:
  static constexpr std::size_t max_batch = 16;  // messages with one call

  // Carrier. The kernel copies what it takes: any memory will do, and nothing is kept of it.
  bool grants() const override { return false; }
  std::shared_ptr<const void> hold(const void*, std::uint64_t) noexcept override { return memory_; }
  void cut_off() noexcept override { is_cut_off_ = true; }

  Status join();
  void fail(Status status);
  Result<std::shared_ptr<FileDescriptor>> find_socket();
  Result<std::shared_ptr<FileDescriptor>> find_answered();
  Status ship();
  // What is said of a message in its header.
  WireHeader header_of(std::uint64_t index, const SlotHeader& note) const;
  // Describes what has not left, from the first byte on; the number of parts and their bytes.
  Result<std::size_t> gather(std::size_t* bytes);
  void account(std::size_t bytes);
  std::uint64_t committed() const;

  const LinkKey key_;
  const std::shared_ptr<FifoMemory> memory_;
  std::vector<LentParts> lent_;  // by slot; the executor writes it
  bool is_cut_off_ = false;
  SlotReader leaving_;             // the messages that the kernel has not taken whole
  std::size_t sent_of_first_ = 0;  // bytes of the first, header included, that it has taken
  const WireHeader common_;
  // A header, and behind it its payload if that is short: one part of the vector then.
  struct PackedMessage {
    WireHeader header;
    std::array<std::byte, 192> payload;
  };
  static_assert(sizeof(PackedMessage) == 256);
  std::array<PackedMessage, max_batch> packed_;
  std::array<iovec, (1 + LentParts::most) * max_batch> parts_{};
  const StreamSecurity security_;
  const std::shared_ptr<SharedSocket> pair_;  // null: the other way has a socket of its own
  const trust::Ticket ticket_;                // of the receiving end at the peer
  const std::int64_t liveness_ns_;
  PathWatch path_;
  TcpDialer dialer_;
  std::unique_ptr<ByteStream> stream_;
  std::string address_ = "not connected";
  Status error_;
};

}  // namespace gyre::transport
