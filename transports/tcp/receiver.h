// The receiving end of a tcp connection. It waits for the sender to show its ticket at the
// listener. Then it reads each message into the next free slot of a private fifo, or to its place
// in the memory that is lent for its call. It reads nothing while no slot is free.
#pragma once

#include "lib/transport/carrier.h"
#include "lib/transport/endpoint.h"
#include "lib/transport/mapped.h"
#include "transports/tcp/byte_stream.h"
#include "transports/tcp/secure_stream.h"
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

class TcpReceiver final : public Connection, private Carrier {
 public:
  TcpReceiver(const LinkKey& key, const TransportEnvironment& environment,
              std::shared_ptr<FifoMemory> memory, std::shared_ptr<Arrival> arrival,
              IssuedTicket ticket, StreamSecurity security, std::shared_ptr<SharedSocket> pair);

  bool ready() const override { return stream_ != nullptr && stream_->joined(); }
  const FifoView& fifo() const override { return memory_->view; }
  Status progress() override;
  bool flushed() const override { return true; }
  bool needs_progress() const override { return true; }
  void arm(WaitSet& set) override;
  Status look_at_peer(std::int64_t now_ns, std::int64_t limit_ns) override;
  bool at_end() const override { return closed_ && is_drained(); }
  void disarm() override {}
  bool same_address_space() const override { return false; }
  Carrier* carrier() override { return this; }

 private:
  // Carrier.
  bool grants() const override { return false; }
  std::shared_ptr<const void> hold(const void*, std::uint64_t) noexcept override { return memory_; }
  void lend(const Loan& loan, std::uint64_t sequence) noexcept override {
    loan_ = loan;
    lent_to_ = sequence;
  }
  void end_loan() noexcept override { lent_to_ = 0; }
  void cut_off() noexcept override { is_cut_off_ = true; }

  // What is read beyond the message at hand: small messages come many at a time, and a large one's
  // successor loses no more than this to a copy.
  static constexpr std::size_t max_ahead = 4096;

  Status join();
  Result<std::shared_ptr<FileDescriptor>> find_socket();
  Status land();
  // Makes messages of what was read ahead, as far as it goes and slots are free.
  Status use_ahead();
  Status take_header();
  Status note_closing();
  // Where the payload of the message at hand goes: its place in lent memory; null: its slot.
  std::byte* lent_place() const;
  std::byte* place() const { return landing_ != nullptr ? landing_ : arriving_.place(); }
  void commit_if_whole();
  // All that came has been taken. The head is this process's: it is read where its thread wrote it.
  bool is_drained() const {
    const auto& head = memory_->view.control->head.value;
    return head.load(std::memory_order_relaxed) == arriving_.tail();
  }
  std::size_t ahead_bytes() const { return ahead_end_ - ahead_begin_; }
  void fail(Status status);

  const LinkKey key_;
  const std::shared_ptr<FifoMemory> memory_;
  const std::shared_ptr<Arrival> arrival_;
  const IssuedTicket ticket_;
  const StreamSecurity security_;
  const std::shared_ptr<SharedSocket> pair_;  // null: the other way has a socket of its own
  ShownTicket shown_;                         // on the socket that the sending end dialed
  const std::vector<std::string> own_addresses_;
  const std::int64_t liveness_ns_;
  PathWatch path_;
  SlotWriter arriving_;
  const WireHeader common_;
  WireHeader header_;  // of the message at hand
  bool has_header_ = false;
  std::byte* landing_ = nullptr;  // lent_place() of it
  std::size_t landed_ = 0;        // bytes of its payload that are there
  Loan loan_;                     // for the call lent_to_, its sequence + 1; 0: for none
  std::uint64_t lent_to_ = 0;
  bool is_cut_off_ = false;
  std::array<std::byte, max_ahead> ahead_;
  std::size_t ahead_begin_ = 0;
  std::size_t ahead_end_ = 0;
  std::unique_ptr<ByteStream> stream_;
  bool closed_ = false;  // by the peer, between two messages
  std::string address_ = "not connected";
  Status error_;
};

}  // namespace gyre::transport
