// RdmaEnd: what the sending and the receiving end of a connection are alike. Each has a private
// fifo, a ring of notes of the messages in it, places for grants behind that, and a link with the
// peer. An error is for good.
#pragma once

#include "lib/transport/carrier.h"
#include "lib/transport/mapped.h"
#include "lib/transport/transport.h"
#include "transports/rdma/link.h"
#include "transports/rdma/note.h"
#include "transports/rdma/registration_cache.h"

#include <cstddef>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

namespace gyre::transport {

// What the connections of a transport share.
struct RdmaShared {
  std::shared_ptr<RdmaFarewell> farewell;
  std::shared_ptr<RegistrationCache> registrations;  // null: memory of callers is out of reach
};

class RdmaEnd : public Connection, protected Carrier, protected CompletionTaker {
 public:
  const FifoView& fifo() const final { return memory_->view; }
  Status progress() final;
  bool needs_progress() const final { return true; }
  Status look_at_peer(std::int64_t now_ns, std::int64_t limit_ns) final;
  void arm(WaitSet& set) override;
  void disarm() final {}
  bool same_address_space() const final { return false; }
  Carrier* carrier() final { return registrations_ != nullptr ? this : nullptr; }

 protected:
  RdmaEnd(std::shared_ptr<FifoMemory> memory, std::vector<RdmaRail> rails, RdmaShared shared,
          std::string_view toward, int peer)
      : memory_(std::move(memory)),
        link_(*this, std::move(rails), std::move(shared.farewell), toward, peer),
        registrations_(std::move(shared.registrations)) {}
  // Makes so many places for notes, and those for grants. Lets the NIC of each rail in use reach
  // them, as the peer may write them, and the slots.
  Status register_memory(std::size_t notes, int slots_access);
  // One for the first try and one for each rail that may be lost meanwhile.
  static constexpr std::uint8_t grant_places = max_rails;
  std::byte* grant_place(std::uint8_t attempt) const {
    return notes_.get().data + grant_offset_ + attempt % grant_places * sizeof(NotePlace);
  }
  // With keys for all rails in use; null: it has to be copied.
  std::shared_ptr<const Registration> register_lent(const void* memory,
                                                    std::uint64_t bytes) noexcept;
  // What can be done now. It does not block.
  virtual Status turn() = 0;
  void fail(Status status) { error_ = link_.broken(std::move(status)); }

  // Carrier; each end does its own part.
  std::string refusal() const override { return refusal_; }
  std::vector<std::string> ports() const override;
  std::shared_ptr<const void> hold(const void*, std::uint64_t) noexcept override { return nullptr; }
  // The next `progress` says that it was.
  void cut_off() noexcept override { link_.drop(); }

  const std::shared_ptr<FifoMemory> memory_;
  Mapping notes_;  // NotePlaces, a ring
  std::size_t grant_offset_ = 0;
  RdmaLink link_;
  const std::shared_ptr<RegistrationCache> registrations_;
  std::string refusal_;
  Status error_;
};

}  // namespace gyre::transport
