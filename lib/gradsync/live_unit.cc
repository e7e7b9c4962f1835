#include "lib/gradsync/live_unit.h"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace gyre::gradsync {
namespace {

Result<Mapping> map_zeros(std::uint64_t bytes) {
  void* const memory =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    return Status::from_errno(fmt::format("mmap of {} bytes", bytes), errno);
  return Mapping({static_cast<std::byte*>(memory), bytes});
}

}  // namespace

Result<LiveUnit> LiveUnit::make(UnitLayout layout, std::uint64_t share, StateLayout keeps) {
  LiveUnit unit;
  unit.layout_ = std::move(layout);
  unit.pieces_ = unit.layout_.pieces_of(share);
  unit.share_number_ = share;
  const std::uint64_t share_floats = unit.layout_.share_count * sizeof(float);
  if (keeps.stage < 3) {
    GYRE_ASSIGN(unit.whole_, allocate(unit.layout_.bytes()));
  } else {
    GYRE_ASSIGN(unit.share_, allocate(unit.layout_.share_bytes()));
  }
  if (keeps.stage < 2) {
    GYRE_ASSIGN(unit.gradients_, allocate(unit.layout_.bytes()));
  } else {
    GYRE_ASSIGN(unit.gradient_share_, allocate(unit.layout_.share_bytes()));
  }
  if (unit.layout_.type != ElementType::float32) {
    GYRE_ASSIGN(unit.master_, map_zeros(share_floats));
  }
  for (int state = 0; state < keeps.states; ++state) {
    GYRE_ASSIGN(unit.states_[state], map_zeros(share_floats));
  }
  return unit;
}

std::byte* LiveUnit::share() const {
  if (share_.has_value()) return static_cast<std::byte*>(share_.get());
  return whole() + share_number_ * layout_.share_bytes();
}

float* LiveUnit::master() const {
  if (master_.has_value()) return reinterpret_cast<float*>(master_.get().data);
  return reinterpret_cast<float*>(share());
}

float* LiveUnit::state(int which) const {
  return reinterpret_cast<float*>(states_[which].get().data);
}

void LiveUnit::adopt_whole() {
  if (share_.has_value())
    std::memcpy(share(), whole() + share_number_ * layout_.share_bytes(), layout_.share_bytes());
  if (master_.has_value())
    kernels::convert({.from = layout_.type,
                      .source = share(),
                      .target = master(),
                      .count = layout_.share_count});
}

void LiveUnit::narrow_master() {
  if (master_.has_value())
    kernels::convert(
        {.source = master(), .to = layout_.type, .target = share(), .count = layout_.share_count});
}

std::byte* LiveUnit::gradient_share() const {
  if (gradient_share_.has_value()) return static_cast<std::byte*>(gradient_share_.get());
  return gradients() + share_number_ * layout_.share_bytes();
}

std::byte* LiveUnit::place(std::byte* base, std::size_t tensor) const {
  const auto slot = std::find_if(layout_.slots.begin(), layout_.slots.end(),
                                 [&](const auto& one) { return one.tensor == tensor; });
  return base + slot->first * element_bytes(layout_.type);
}

Status LiveUnit::take_whole(BufferPool& pool) {
  GYRE_ASSIGN(whole_, pool.take());
  return {};
}

Status LiveUnit::take_gradients(BufferPool& pool) {
  GYRE_ASSIGN(gradients_, pool.take());
  return {};
}

void LiveUnit::clear_gradients() {
  std::memset(gradients(), 0, layout_.bytes());
  is_cleared = true;
}

}  // namespace gyre::gradsync
