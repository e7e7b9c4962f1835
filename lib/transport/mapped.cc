#include "lib/transport/mapped.h"

#include "lib/base/units.h"

#include <fmt/core.h>

#include <bit>
#include <cerrno>
#include <sys/mman.h>

namespace gyre::transport {
namespace {

constexpr std::uint64_t max_fifo_bytes = std::uint64_t{64} << 30;
constexpr std::uint32_t max_count = 1 << 20;
constexpr std::uint32_t max_slot_count = 1 << 15;  // two fifos have as many as a SlotPlace tells

Bell& bell_of(const FifoMemory& memory, Direction direction) {
  FifoControl& control = *memory.view.control;
  return direction == Direction::send ? control.sender_bell : control.receiver_bell;
}

}  // namespace

Status check_shape(const FifoShape& shape) {
  const auto good_count = [](std::uint32_t count) {
    return std::has_single_bit(count) && count <= max_count;
  };
  const bool good = good_count(shape.slot_count) && shape.slot_count <= max_slot_count &&
                    good_count(shape.line_count) && shape.slot_bytes > 0 &&
                    shape.slot_bytes % counter_spacing == 0 &&
                    shape.slot_bytes <= max_fifo_bytes / shape.slot_count &&
                    shape.slot_bytes <= UINT32_MAX;
  if (good) return {};
  return invalid_argument(
      fmt::format("no fifo can have {} slots of {} bytes and {} lines (counts are powers of two, "
                  "slot bytes a multiple of {})",
                  shape.slot_count, shape.slot_bytes, shape.line_count, counter_spacing));
}

Result<std::shared_ptr<FifoMemory>> private_fifo(const FifoShape& shape) {
  GYRE_TRY(check_shape(shape));
  const std::size_t bytes = round_up(fifo_bytes(shape), 4096);
  void* start = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (start == MAP_FAILED)
    return Status::from_errno(fmt::format("mmap of {} bytes for a fifo", bytes), errno);
  auto memory = std::make_shared<FifoMemory>();
  memory->mapping = Mapping({static_cast<std::byte*>(start), bytes});
  memory->view = FifoView::at(memory->mapping.get().data, shape);
  start_counters(memory->view);
  return memory;
}

MappedConnection::MappedConnection(std::shared_ptr<FifoMemory> memory, Direction direction,
                                   Scope sharing, IssuedTicket ticket)
    : memory_(std::move(memory)),
      bell_(bell_of(*memory_, direction)),
      sharing_(sharing),
      ticket_(std::move(ticket)) {}

void MappedConnection::arm(WaitSet& set) { arm_bell(bell_, set); }
void MappedConnection::disarm() { disarm_bell(bell_); }

void arm_bell(Bell& bell, WaitSet& set) {
  // The word first: a bell rung from here on changes it, and the sleep ends at once. Pairs with the
  // release in ring: what was rung for before is seen in the caller's last look.
  set.add_futex(&bell.rung, bell.rung.load(std::memory_order_acquire));
  // Before that look; pairs with the load in ring_if_sleeping.
  bell.sleeping.store(1, std::memory_order_seq_cst);
}

void disarm_bell(Bell& bell) { bell.sleeping.store(0, std::memory_order_relaxed); }

}  // namespace gyre::transport
