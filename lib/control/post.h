// Post: the letters between this process and each other process of a communicator. It numbers them
// and keeps them until they are acknowledged, so that none is lost, doubled or overtaken when the
// way between the two processes changes. It knows no links.
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
  using Frame = std::vector<std::uint8_t>;
  struct Received {
    LetterHead head;
    Letter text;
  };

  // Numbers a letter to process `to` and keeps it. What is to be sent.
  const Frame& add(std::uint32_t to, LetterHead head, std::span<const std::uint8_t> text);
  // What `to` has not acknowledged, in order.
  std::vector<const Frame*> unheard(std::uint32_t to) const;
  // Whom letters are kept for.
  std::vector<std::uint32_t> addressees() const;
  // `from` has taken all letters up to this number.
  void heard(std::uint32_t from, std::uint64_t number);
  // Nobody there reads letters any more.
  void forget(std::uint32_t to) { outgoing_.erase(to); }

  // A letter came from process `from`: those whose turn has come, in order; none if it came before.
  // Nothing: it is further ahead than any that an honest process sends.
  std::optional<std::vector<Received>> take(std::uint32_t from, const LetterHead& head,
                                            std::span<const std::uint8_t> text);
  // The number of the last letter of `from` that was taken; 0: none.
  std::uint64_t taken(std::uint32_t from) const;

 private:
  // A letter overtakes another one only while the way changes; few are under way then.
  static constexpr std::uint64_t ahead_most = 1024;
  struct Kept {
    std::uint64_t number;
    Frame frame;
  };
  struct Outgoing {
    std::uint64_t last = 0;
    std::deque<Kept> kept;
  };
  struct Incoming {
    std::uint64_t taken = 0;
    std::map<std::uint64_t, Received> early;
  };
  std::map<std::uint32_t, Outgoing> outgoing_;  // by process
  std::map<std::uint32_t, Incoming> incoming_;
};

}  // namespace gyre::control
