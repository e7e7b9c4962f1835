// The keys of all messages that ranks of a communicator send each other (see Membership::send). A
// key has a topic, and a number that distinguishes messages of one topic.
#pragma once

#include <cstdint>

namespace gyre::comm {

enum class MessageTopic : std::uint8_t {
  link = 1,     // an endpoint; by channel
  split,        // the id of a split's child; by split
  call,         // what was called last
  device_link,  // an endpoint of a device's link; by channel
  device_plan,  // a plan's links on devices are open; by plan
  region,       // memory of a device that is lent
  question,     // where the reader is in its calls
  answer,       // to that; by question
  transport,    // of a transport's own, see transport::TransportLetters; by its key
  machine,      // the outline of a host
};

// The number keeps 56 bits.
constexpr std::uint64_t message_key(MessageTopic kind, std::uint64_t number = 0) {
  constexpr int kind_shift = 56;
  return std::uint64_t{static_cast<std::uint8_t>(kind)} << kind_shift |
         (number & ((std::uint64_t{1} << kind_shift) - 1));
}

}  // namespace gyre::comm
