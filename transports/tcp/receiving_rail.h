// ReceivingRail: one socket of a receiving tcp connection. It waits for the sender to show its
// ticket at the listener. Then it reads messages, each to where InboundMessages has room for it.
// It reads nothing while there is no room.
#pragma once

#include "lib/base/path_watch.h"
#include "lib/transport/endpoint.h"
#include "transports/tcp/byte_stream.h"
#include "transports/tcp/inbound.h"
#include "transports/tcp/rails.h"
#include "transports/tcp/shared_socket.h"
#include "transports/tcp/socket.h"
#include "transports/tcp/wire.h"

#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <vector>

namespace gyre::transport {

// Where the control thread leaves the socket that came. It is written once.
struct Arrival {
  ~Arrival() { FileDescriptor(socket.load()).reset(); }
  std::atomic<int> socket{-1};
  std::atomic<std::uint32_t> rung{0};  // changes when it has come
};

class ReceivingRail {
 public:
  // `ticket` is what the sender is to show; `pair` as for SendingRail.
  ReceivingRail(RailTerms terms, std::vector<std::string> own_addresses,
                std::shared_ptr<Arrival> arrival, IssuedTicket ticket,
                std::shared_ptr<SharedSocket> pair);

  bool joined() const { return stream_ != nullptr && stream_->joined(); }
  Status join();
  // Reads what there is room for. `common` is what each header says.
  Status land(InboundMessages& inbound, const WireHeader& common);
  // By the peer, between two messages.
  bool is_closed() const { return closed_; }
  Status judge(std::int64_t now_ns, std::int64_t limit_ns);
  void close() { stream_.reset(); }
  const std::string& address() const { return address_; }
  void arm(WaitSet& set, InboundMessages& inbound) const;

 private:
  // What is read beyond the message at hand: small messages come many at a time, and one of 16 KiB
  // with one system call. After a larger one its successor loses no more than 4 KiB to a copy.
  static constexpr std::size_t max_ahead = (16 << 10) + sizeof(WireHeader);
  static constexpr std::size_t ahead_of_large = 4 << 10;

  Result<std::shared_ptr<FileDescriptor>> find_socket();
  // Makes messages of what was read ahead, as far as it goes and there is room.
  Status use_ahead(InboundMessages& inbound, const WireHeader& common);
  Status take_header(const InboundMessages& inbound, const WireHeader& common);
  Status take_if_whole(InboundMessages& inbound);
  Status check_sum() const;
  // For the message at hand, or for the next one of any rail.
  bool has_room(InboundMessages& inbound) const {
    return inbound.has_room(has_header_ ? header_.sequence : inbound.next());
  }
  ExpectedMessage expected_message(const InboundMessages& inbound) const;
  Status note_closing();
  std::size_t ahead_bytes() const { return ahead_end_ - ahead_begin_; }

  RailTerms terms_;
  std::vector<std::string> own_addresses_;
  std::shared_ptr<Arrival> arrival_;
  IssuedTicket ticket_;
  std::shared_ptr<SharedSocket> pair_;  // null: the other way has a socket of its own
  ShownTicket shown_;                   // on the socket that the sending end dialed
  PathWatch path_;
  WireHeader header_;  // of the message at hand
  bool has_header_ = false;
  std::byte* place_ = nullptr;          // of its payload, once there is room
  std::size_t landed_ = 0;              // bytes of it that are there
  std::uint64_t least_ = 0;             // number of the next message, at least
  std::size_t ahead_room_ = max_ahead;  // after the last message
  std::array<std::byte, max_ahead> ahead_;
  std::size_t ahead_begin_ = 0;
  std::size_t ahead_end_ = 0;
  std::unique_ptr<ByteStream> stream_;
  bool closed_ = false;
  std::string address_ = "not connected";
};

}  // namespace gyre::transport
