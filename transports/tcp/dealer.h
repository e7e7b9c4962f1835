// Dealer: which rail of a sending connection takes which messages. A rail alone takes all. Several
// that are free share a large message by how fast they deliver. One that is free alone takes the
// next message if that helps: if it delivers it before the others could have done with all that
// waits. Small messages take the fastest.
#pragma once

#include "lib/transport/slots.h"
#include "transports/tcp/sending_rail.h"

#include <cstdint>
#include <vector>

namespace gyre::transport {

class Dealer {
 public:
  Dealer(const FifoView& fifo, std::uint64_t first) : fifo_(fifo), next_(first) {}

  // The first message that no rail has.
  std::uint64_t next() const { return next_; }
  // Behind the last message that the executor has committed.
  std::uint64_t committed() const {
    // This end's own memory, and its one thread.
    return fifo_.control->tail.value.load(std::memory_order_relaxed);
  }
  // Gives rails that are free something to do. False: there is nothing, or it is better to wait.
  bool deal(std::vector<SendingRail>& rails);

 private:
  std::uint64_t bytes_between(std::uint64_t first, std::uint64_t end) const;
  MessageRun next_run(bool is_alone) const;
  void give(SendingRail& rail, const MessageRun& run);
  bool give_to_fastest(std::vector<SendingRail>& rails, const MessageRun& run);
  void look(std::vector<SendingRail>& rails, std::int64_t now_ns);
  bool share(std::vector<SendingRail>& rails, std::uint32_t bytes);
  bool give_if_it_helps(std::vector<SendingRail>& rails, const MessageRun& run,
                        std::uint64_t bytes);
  double ns_for(const SendingRail& rail, std::uint64_t more) const {
    return rail.pace().ns_for(rail.left_bytes(fifo_) + more, guess_);
  }

  const FifoView fifo_;
  std::uint64_t next_ = 0;
  std::int64_t looked_ns_ = 0;
  double guess_ = 1;  // bytes per ns of a rail of which nothing is known: as the fastest
  const SendingRail* awaited_ = nullptr;  // the best one, when it was last compared
};

}  // namespace gyre::transport
