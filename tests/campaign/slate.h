// Slate: memory of a rank that is wiped after each call. A write between two of the rank's own
// calls is an error: somebody wrote after the call had returned.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace gyre::campaign {

class Slate {
 public:
  Slate(std::size_t elements, bool lent);
  Slate(const Slate&) = delete;
  Slate& operator=(const Slate&) = delete;
  ~Slate();

  std::uint32_t* begin() { return memory_; }
  std::size_t elements() const { return elements_; }
  bool lent() const { return lent_; }
  // From the end of a call to the begin of the next one that uses it.
  void wipe();
  // The first element that is not as wipe() left it, or -1.
  std::ptrdiff_t touched() const;

 private:
  const std::size_t elements_;
  const bool lent_;
  std::vector<std::uint32_t> heap_;
  std::uint32_t* memory_ = nullptr;
};

}  // namespace gyre::campaign
