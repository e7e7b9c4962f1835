// Memory with guards, and waiting without the library.
#include "tests/support/random_programs/program_run.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

namespace gyre::tests {
namespace {

constexpr std::byte guard{0x5C};

}  // namespace

LiveBuffer::LiveBuffer(const ProgramBuffer& made)
    : bytes_(made.bytes),
      shift_(made.shift),
      allocated_(made.allocated),
      whole_bytes_(made.bytes + made.shift + 2 * guard_bytes) {
  void* memory = nullptr;
  if (allocated_ && gyreMemAllocOn(&memory, whole_bytes_, GYRE_DEVICE_HOST) == gyreSuccess)
    whole_ = static_cast<std::byte*>(memory);
  if (whole_ == nullptr) {
    heap_.resize(whole_bytes_);
    whole_ = heap_.data();
  }
  std::fill_n(whole_, whole_bytes_, guard);
  std::ranges::copy(first_bytes(made), begin());
}

LiveBuffer::~LiveBuffer() {
  if (heap_.empty()) (void)gyreMemFree(whole_);
}

std::string LiveBuffer::wrong(const std::vector<std::byte>& expected) const {
  const std::byte* first = whole_ + guard_bytes + shift_;
  const auto hex = [](std::byte byte) { return std::to_string(std::to_integer<int>(byte)); };
  for (std::size_t i = 0; i < bytes_; ++i)
    if (first[i] != expected[i])
      return "byte " + std::to_string(i) + " of " + std::to_string(bytes_) + " is " +
             hex(first[i]) + ", not " + hex(expected[i]);
  const auto is_guard = [](std::byte byte) { return byte == guard; };
  if (!std::all_of(first - shift_ - guard_bytes, first, is_guard)) return "bytes before it changed";
  if (!std::all_of(first + bytes_, first + bytes_ + guard_bytes, is_guard))
    return "bytes behind it changed";
  return {};
}

bool Crossing::cross(int threads) {
  const int round = arrived_.fetch_add(1) / threads;
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!failed_ && arrived_ < (round + 1) * threads) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  return !failed_;
}

void ProgramBoard::complain(const std::string& text) {
  const int place = complaints_.fetch_add(1);
  if (place < most_) text.copy(texts_[static_cast<std::size_t>(place)].data(), 999);
  crossing.fail();
}

std::string ProgramBoard::all() const {
  std::string joined;
  for (int i = 0; i < std::min(complaints_.load(), most_); ++i)
    joined += std::string(texts_[static_cast<std::size_t>(i)].data()) + "\n";
  return joined;
}

gyreResult_t settled(gyreComm_t comm) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(40);
  gyreResult_t state = gyreInProgress;
  while (std::chrono::steady_clock::now() < end) {
    if (const gyreResult_t asked = gyreCommGetAsyncError(comm, &state); asked != gyreSuccess)
      return asked;
    if (state != gyreInProgress) break;
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  return state;
}

}  // namespace gyre::tests
