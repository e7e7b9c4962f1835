// Post: the messages between this process and each other process of a communicator. It numbers them
// and keeps them until they are acknowledged. So none is lost, doubled or overtaken when the path
// between the two processes changes. It knows no links.
#pragma once

#include "lib/control/membership.h"
#include "lib/control/messages.h"

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <vector>

namespace gyre::control {

class Post {
 public:
  using FrameBytes = std::vector<std::uint8_t>;
  struct ReceivedMessage {
    RankMessageHead head;
    MessageBytes text;
  };

  // Numbers a message to process `to` and keeps it. What is to be sent.
  const FrameBytes& add(std::uint32_t to, RankMessageHead head, std::span<const std::uint8_t> text);
  // What `to` has not acknowledged, in order.
  std::vector<const FrameBytes*> unacknowledged(std::uint32_t to) const;
  // Whom messages are kept for.
  std::vector<std::uint32_t> addressees() const;
  // `from` has taken all messages up to this number.
  void acknowledge(std::uint32_t from, std::uint64_t number);
  // Nobody there reads messages any more.
  void forget(std::uint32_t to) { outgoing_.erase(to); }

  // A message came from process `from`: those whose turn has come, in order; none if it came
  // before. Nothing: it is further ahead than any that an honest process sends.
  std::optional<std::vector<ReceivedMessage>> take(std::uint32_t from, const RankMessageHead& head,
                                                   std::span<const std::uint8_t> text);
  // The number of the last message of `from` that was taken; 0: none.
  std::uint64_t taken(std::uint32_t from) const;

 private:
  // A message overtakes another one only while the way changes; few are under way then.
  static constexpr std::uint64_t max_ahead = 1024;
  struct UnacknowledgedMessage {
    std::uint64_t number;
    FrameBytes frame;
  };
  struct SentMessages {
    std::uint64_t last = 0;
    std::deque<UnacknowledgedMessage> kept;
  };
  struct IncomingMessages {
    std::uint64_t taken = 0;
    std::map<std::uint64_t, ReceivedMessage> early;
  };
  std::map<std::uint32_t, SentMessages> outgoing_;  // by process
  std::map<std::uint32_t, IncomingMessages> incoming_;
};

}  // namespace gyre::control
