// HandleTable: handles that are an index and a generation, never an address. A look-up pins the
// object, so that another thread cannot destroy it meanwhile. The last unpin deletes it.
//
// One thread at a time may occupy an object. `enter` does so without a pin, by one locked
// instruction: whoever removes the object meanwhile leaves the deletion to it. So that each of the
// two sees the other, the one who removes makes a fence for all threads. A thread whose handle is
// stale may occupy another object for a moment, which `occupy` waits for.
#pragma once

#include "lib/base/clock.h"
#include "lib/base/process_fence.h"
#include "lib/base/wait.h"

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace gyre {

template <typename T>
class HandleTable {
  struct Slot;

 public:
  // `kind` is the top byte of every handle, so that a handle of another table is told apart.
  HandleTable(std::uint8_t kind, std::uint32_t first_generation)
      : kind_(kind), first_generation_(first_generation | 1), has_fence_(prepare_process_fence()) {}
  ~HandleTable() {
    for (auto& block : blocks_) delete[] block.load(std::memory_order_relaxed);
  }

  // A pinned object, or null.
  class Pin {
   public:
    Pin() = default;
    Pin(HandleTable* table, std::uint32_t index, T* object)
        : table_(table), index_(index), object_(object) {}
    Pin(Pin&& other) noexcept
        : table_(other.table_),
          index_(other.index_),
          object_(std::exchange(other.object_, nullptr)) {}
    Pin& operator=(Pin&& other) noexcept {
      std::swap(table_, other.table_);
      std::swap(index_, other.index_);
      std::swap(object_, other.object_);
      return *this;
    }
    ~Pin() {
      if (object_ != nullptr) table_->unpin(index_);
    }
    explicit operator bool() const { return object_ != nullptr; }
    T* operator->() const { return object_; }
    T& operator*() const { return *object_; }

   private:
    HandleTable* table_ = nullptr;
    std::uint32_t index_ = 0;
    T* object_ = nullptr;
  };

  // An object that this thread occupies, or null.
  class Entry {
   public:
    Entry() = default;
    Entry(HandleTable& table, Slot& slot) : table_(&table), slot_(&slot) {}
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;
    [[gnu::always_inline]] ~Entry() {
      if (slot_ != nullptr) table_->leave_late(*slot_);
    }
    // Once, at the end: shorter than what the destructor does.
    [[gnu::always_inline]] void leave() { table_->leave(*std::exchange(slot_, nullptr)); }
    explicit operator bool() const { return slot_ != nullptr; }
    T* operator->() const { return slot_->object; }
    T& operator*() const { return *slot_->object; }

   private:
    HandleTable* table_ = nullptr;
    Slot* slot_ = nullptr;
  };

  // 0 if the table is full (2^20 objects).
  std::uint64_t insert(std::unique_ptr<T> object) {
    const std::lock_guard lock(mutex_);
    std::uint32_t index = next_;
    if (!free_.empty()) {
      index = free_.back();
      free_.pop_back();
    } else if (next_ == max_blocks * block_slots) {
      return 0;
    } else {
      ++next_;
    }
    auto& block = blocks_[index / block_slots];
    if (block.load(std::memory_order_relaxed) == nullptr)
      block.store(new Slot[block_slots], std::memory_order_release);
    Slot& slot = *find(index);
    slot.index = index;
    if (slot.generation_next == 0) slot.generation_next = first_generation_;
    const std::uint32_t generation = slot.generation_next;
    // Odd, so never 0 when it turns. A slot that is taken again each microsecond turns in 36
    // minutes, one of communicators, 100 us each, in 2.5 days; then a handle that stale, and none
    // younger, would be found.
    slot.generation_next = generation + 2;
    slot.object = object.release();
    // The table's own pin; pairs with the acquire in pin().
    slot.state.store(static_cast<std::uint64_t>(generation) << 32 | 1, std::memory_order_release);
    return static_cast<std::uint64_t>(kind_) << 56 | static_cast<std::uint64_t>(generation) << 24 |
           index;
  }

  Pin pin(std::uint64_t handle) {
    Slot* slot = checked(handle);
    if (slot == nullptr) return {};
    const std::uint32_t generation = generation_of(handle);
    std::uint64_t state = slot->state.load(std::memory_order_acquire);
    while (state >> 32 == generation && (state & closing) == 0) {
      if (slot->state.compare_exchange_weak(state, state + 1, std::memory_order_acq_rel))
        return {this, static_cast<std::uint32_t>(handle & 0xffffff), slot->object};
    }
    return {};
  }

  // Nothing if it is stale, or another thread is there.
  [[gnu::always_inline]] Entry enter(std::uint64_t handle) {
    Slot* slot = checked(handle);
    if (slot == nullptr || occupant_before(*slot, generation_of(handle)) != nobody) return {};
    // After the exchange: pairs with `remove`, which closes and then looks whether somebody is in.
    const std::uint64_t state = slot->state.load(std::memory_order_seq_cst);
    if (is_open(state, handle)) [[likely]]
      return {*this, *slot};
    leave(*slot);
    return {};
  }
  // The same for who has a pin; false: another thread is there. Where it succeeds, `leave` follows.
  bool occupy(std::uint64_t handle) {
    Slot* const slot = checked(handle);
    if (slot == nullptr) return true;
    std::uint32_t before = nobody;
    const auto is_settled = [&] {
      before = occupant_before(*slot, generation_of(handle));
      return before == nobody || before == generation_of(handle);
    };
    // Another generation is of a thread with a stale handle, which finds that out and leaves.
    constexpr WaitPolicy policy;
    if (!is_settled()) [[unlikely]]
      (void)look_until(system_clock, policy, ns_per_s, is_settled);
    return before == nobody;
  }
  void leave(std::uint64_t handle) {
    if (Slot* slot = checked(handle); slot != nullptr) leave(*slot);
  }

  // False: each thread that leaves an object makes a fence of its own.
  bool has_process_fence() const { return has_fence_; }

  // Whether it is one of an object that has not been deleted. The table may be a forked parent's,
  // as it was at the fork.
  bool knows(std::uint64_t handle) {
    const Slot* slot = checked(handle);
    return slot != nullptr &&
           slot->state.load(std::memory_order_acquire) >> 32 == generation_of(handle);
  }

  // No later pin finds it; it is deleted when the last pin goes. False if the handle is stale.
  bool remove(std::uint64_t handle) {
    Slot* slot = checked(handle);
    if (slot == nullptr) return false;
    std::uint64_t state = slot->state.load(std::memory_order_acquire);
    while (state >> 32 == generation_of(handle) && (state & closing) == 0) {
      if (!slot->state.compare_exchange_weak(state, state | closing, std::memory_order_seq_cst))
        continue;
      if (has_fence_)
        make_process_fence();
      else
        std::atomic_thread_fence(std::memory_order_seq_cst);
      // Who is in, if anybody, sees from here on that it is closing.
      if (slot->occupant.load(std::memory_order_seq_cst) == nobody &&
          take_own_pin(*slot, state | closing))
        unpin(slot->index);
      return true;
    }
    return false;
  }

 private:
  static constexpr std::uint32_t block_slots = 1024;
  static constexpr std::uint32_t max_blocks = 1024;
  static constexpr std::uint64_t closing = 1ULL << 31;
  static constexpr std::uint64_t given_up = 1ULL << 30;  // the table's own pin, of what is closing
  static constexpr std::uint64_t pins = given_up - 1;

  // A line each: ranks of one process are in different ones at once.
  struct alignas(64) Slot {
    std::atomic<std::uint64_t> state{0};  // generation (32 bits), closing, given_up, pins (30)
    T* object = nullptr;
    std::uint32_t generation_next = 0;
    std::uint32_t index = 0;
    std::atomic<std::uint32_t> occupant{nobody};  // the generation of its handle
  };
  static constexpr std::uint32_t nobody = 0;

  static std::uint32_t generation_of(std::uint64_t handle) {
    return static_cast<std::uint32_t>(handle >> 24);
  }

  // Whether it is the state of the handle's object, which nobody has removed. The handle shifted by
  // a byte has its generation where a state has it, and 0 where a state says that it closes.
  static bool is_open(std::uint64_t state, std::uint64_t handle) {
    static_assert(closing == 1ULL << 31 && max_blocks * block_slots <= 1U << 23);
    return (state ^ handle << 8) >> 31 == 0;
  }
  Slot* find(std::uint64_t index) {
    if (index >= static_cast<std::uint64_t>(block_slots) * max_blocks) return nullptr;
    // Pairs with the release in insert().
    Slot* block = blocks_[index / block_slots].load(std::memory_order_acquire);
    return block == nullptr ? nullptr : block + index % block_slots;
  }
  Slot* checked(std::uint64_t handle) {
    return handle >> 56 == kind_ ? find(handle & 0xffffff) : nullptr;
  }

  // Occupies what nobody does.
  static std::uint32_t occupant_before(Slot& slot, std::uint32_t generation) {
    std::uint32_t before = nobody;
    (void)slot.occupant.compare_exchange_strong(before, generation, std::memory_order_seq_cst);
    return before;
  }
  [[gnu::always_inline]] void leave(Slot& slot) {
    slot.occupant.store(nobody, std::memory_order_release);
    if (has_fence_) [[likely]]
      std::atomic_signal_fence(std::memory_order_seq_cst);
    else
      std::atomic_thread_fence(std::memory_order_seq_cst);
    // Pairs with the exchange in remove, across its fence.
    if ((slot.state.load(std::memory_order_acquire) & closing) != 0) [[unlikely]]
      clear_up(slot);
  }
  [[gnu::noinline]] void leave_late(Slot& slot) { leave(slot); }
  static bool is_left_over(std::uint64_t state) {
    return (state & (closing | given_up)) == closing;
  }
  // What closes may be another object than this thread came for, if its handle was stale, and a
  // third thread may be in it: then that one clears up, or who removes it.
  [[gnu::noinline]] void clear_up(Slot& slot) {
    std::uint64_t state = slot.state.load(std::memory_order_seq_cst);
    while (is_left_over(state) &&
           occupant_before(slot, static_cast<std::uint32_t>(state >> 32)) == nobody) {
      const bool is_ours = take_own_pin(slot, state);
      slot.occupant.store(nobody, std::memory_order_seq_cst);
      if (is_ours) unpin(slot.index);
      state = slot.state.load(std::memory_order_seq_cst);
    }
  }
  // The table's, of the object that `state` was of. True once, for whoever comes first.
  static bool take_own_pin(Slot& slot, std::uint64_t state) {
    const std::uint64_t generation = state >> 32;
    while (state >> 32 == generation && is_left_over(state))
      if (slot.state.compare_exchange_weak(state, state | given_up, std::memory_order_acq_rel))
        return true;
    return false;
  }

  void unpin(std::uint32_t index) {
    Slot& slot = *find(index);
    if (((slot.state.fetch_sub(1, std::memory_order_acq_rel) - 1) & (closing | pins)) != closing)
      return;
    delete std::exchange(slot.object, nullptr);
    slot.state.store(0, std::memory_order_release);  // pairs with the acquire in knows()
    const std::lock_guard lock(mutex_);
    free_.push_back(index);
  }

  const std::uint8_t kind_;
  const std::uint32_t first_generation_;
  const bool has_fence_;
  std::array<std::atomic<Slot*>, max_blocks> blocks_{};
  std::mutex mutex_;
  std::vector<std::uint32_t> free_;
  std::uint32_t next_ = 0;
};

}  // namespace gyre
