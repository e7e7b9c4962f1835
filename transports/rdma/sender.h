// The sending end: a private fifo that the executor commits into, and the code that writes its
// messages into the receiver's memory. A slot is free again when the peer's NIC has acknowledged
// all of its message.
#pragma once

#include "lib/transport/endpoint.h"
#include "lib/transport/mapped.h"
#include "transports/rdma/link.h"
#include "transports/rdma/note.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace gyre::transport {

// How many messages may be on their way, and how many requests that takes on one queue pair.
struct RdmaWindow {
  std::uint32_t messages = 0;  // a power of two; 0: the device can do too little
  std::uint32_t writes = 0;    // of one message
  QueueDepth depth() const;
};
RdmaWindow fit_window(const FifoShape& shape, const RdmaDevice& device, std::size_t pairs);

class RdmaSender final : public Connection {
 public:
  // Whether the receiver has said that it will not join.
  using IsRefused = std::function<bool()>;

  static Result<std::unique_ptr<RdmaSender>> make(const LinkKey& key,
                                                  std::shared_ptr<FifoMemory> memory,
                                                  std::unique_ptr<RdmaQueues> queues,
                                                  std::shared_ptr<RdmaFarewell> farewell,
                                                  const RdmaAddress& there, RdmaWindow window,
                                                  IsRefused is_refused);
  ~RdmaSender() override;

  bool ready() const override { return is_ready_; }
  const FifoView& fifo() const override { return memory_->view; }
  Status progress() override;
  bool flushed() const override { return leaving_.head() == committed(); }
  bool flushed_to(std::uint64_t tail) const override { return leaving_.head() >= tail; }
  bool needs_progress() const override { return true; }
  Status look_at_peer(std::int64_t now_ns, std::int64_t limit_ns) override;
  void arm(WaitSet& set) override;
  void disarm() override {}
  bool same_address_space() const override { return false; }

 private:
  // A part of a message that one queue pair writes.
  struct RdmaPiece {
    std::size_t pair = 0;
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;
  };

  RdmaSender(const LinkKey& key, std::shared_ptr<FifoMemory> memory,
             std::unique_ptr<RdmaQueues> queues, std::shared_ptr<RdmaFarewell> farewell,
             const RdmaAddress& there, RdmaWindow window, IsRefused is_refused);
  Status prepare(const RdmaAddress& there);
  void fail(Status status);
  Status on_completion(const ibv_wc& completion, WorkTag tag);
  Status on_notice(const ibv_wc& completion);
  void release_finished();
  Status ship();
  Status ship_message(std::uint64_t index);
  // Posts the writes of one piece, and behind them `last`, if it is there.
  Status write_piece(std::uint64_t index, const RdmaPiece& piece, ibv_send_wr* last);
  std::uint64_t committed() const;

  const LinkKey key_;
  const RdmaAddress there_;
  const RdmaWindow window_;
  const IsRefused is_refused_;
  const std::shared_ptr<FifoMemory> memory_;
  SlotReader leaving_;                     // the messages that the peer's NIC has not acknowledged
  Mapping notes_;                          // NotePlaces, a ring like the receiver's
  std::uint64_t posted_;                   // messages below it are on their way
  std::uint64_t credited_;                 // messages below it have left the receiver's slots
  std::vector<std::uint32_t> unfinished_;  // requests, by message in the ring
  std::vector<ibv_send_wr> requests_;      // of one piece
  std::vector<ibv_sge> parts_;
  bool is_ready_ = false;
  loaded::VerbsMemory slots_memory_, notes_memory_;
  RdmaLink link_;  // before the memory that it uses is withdrawn
  Status error_;
};

}  // namespace gyre::transport
