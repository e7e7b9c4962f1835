#include "tests/support/host_device/host_machine.h"

#include "tests/support/host_device/word_memory.h"

#include <boost/context/detail/fcontext.hpp>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

namespace gyre::tests {

using cuda::WaitingFor;
namespace fibers = boost::context::detail;

Machine* machine = nullptr;

namespace {

constexpr std::size_t stack_bytes = 48 << 10;
constexpr std::uint32_t warp = cuda::device::warp_threads;

std::size_t count_blocks(const std::vector<Grid>& grids) {
  std::size_t blocks = 0;
  for (const Grid& grid : grids) blocks += grid.blocks;
  return blocks;
}

void enter(fibers::transfer_t from) { machine->run_fiber(from.fctx); }

}  // namespace

Machine::Machine(const std::vector<Grid>& grids, const MachineOptions& options)
    : options_(options), random_(options.seed), watch_(count_blocks(grids)) {
  for (const Grid& grid : grids) add(grid);
}

void Machine::add(const Grid& grid) {
  for (std::uint32_t index = 0; index < grid.blocks; ++index) {
    auto block = std::make_unique<Block>();
    block->grid = &grid;
    block->index = index;
    block->number = blocks_.size();
    grid_threads_[&grid] += grid.threads;
    block->warps.resize((grid.threads + warp - 1) / warp);
    for (std::uint32_t thread = 0; thread < grid.threads; ++thread) {
      auto fiber = std::make_unique<Fiber>();
      fiber->block = block.get();
      fiber->thread = thread;
      fiber->stack.reset(new std::byte[stack_bytes]);
      start(*fiber);
      block->threads.push_back(std::move(fiber));
    }
    open_blocks_.push_back(block.get());
    blocks_.push_back(std::move(block));
  }
}

bool Machine::arrive(bool idle) {
  if (!options_.arrivals) return false;
  std::vector<Grid> grids = options_.arrivals(idle);
  for (Grid& grid : grids) add(arrived_.emplace_back(std::move(grid)));
  return !grids.empty();
}

std::uint64_t Machine::now() const {
  if (!options_.real_clock) return switches_;
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(std::chrono::nanoseconds(now).count());
}

void Machine::start(Fiber& fiber) {
  fiber.resume = fibers::make_fcontext(fiber.stack.get() + stack_bytes, stack_bytes, enter);
  make_ready(fiber);
  ++live_;
}

void Machine::make_ready(Fiber& fiber) {
  fiber.state = Fiber::State::ready;
  fiber.ready_at = ready_.size();
  ready_.push_back(&fiber);
}

void Machine::leave_ready(Fiber& fiber) {
  ready_[fiber.ready_at] = ready_.back();
  ready_[fiber.ready_at]->ready_at = fiber.ready_at;
  ready_.pop_back();
}

// --- switching ----------------------------------------------------------------------------------

void Machine::resume(Fiber& fiber) {
  running_ = &fiber;
  ++switches_;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&scheduler_fake_stack_, fiber.stack.get(), stack_bytes);
#endif
  fiber.resume = fibers::jump_fcontext(fiber.resume, &fiber).fctx;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(scheduler_fake_stack_, nullptr, nullptr);
#endif
}

void Machine::back_to_scheduler([[maybe_unused]] bool for_ever) {
#if defined(__SANITIZE_ADDRESS__)
  void* fake_stack = nullptr;
  __sanitizer_start_switch_fiber(for_ever ? nullptr : &fake_stack, scheduler_stack_,
                                 scheduler_stack_bytes_);
#endif
  scheduler_ = fibers::jump_fcontext(scheduler_, nullptr).fctx;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(fake_stack, &scheduler_stack_, &scheduler_stack_bytes_);
#endif
}

void Machine::run_fiber(void* scheduler) {
  scheduler_ = scheduler;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, &scheduler_stack_, &scheduler_stack_bytes_);
#endif
  block().grid->kernel();
  self().pending.move_all_to(block().pending);
  leave_ready(self());
  self().state = Fiber::State::done;
  --live_;
  progress();
  if (--grid_threads_[block().grid] == 0) end_grid();
  back_to_scheduler(true);
  std::abort();
}

void Machine::end_grid() {
  const Grid* const grid = block().grid;
  if (!grid->on_end) return;
  drain_everything();
  std::vector<std::size_t> blocks = {block().number};
  for (const Block* const other : open_blocks_)
    if (other->grid == grid) blocks.push_back(other->number);
  std::erase_if(open_blocks_, [grid](const Block* other) { return other->grid == grid; });
  if (options_.watches_races) watch_.gather(blocks);
  grid->on_end();
}

void Machine::yield() { back_to_scheduler(false); }

void Machine::wait_for(WaitingFor what, std::uint32_t link) {
  self().what = what;
  self().link = link;
  ++polls_;
  yield();
}

// Any that is ready, but for a block that has fallen behind. After a turn in vain, none falls
// behind.
Fiber& Machine::pick() {
  if (silent_turns_ == 0 && switches_ > behind_until_ && random_() % 512 == 0) {
    behind_ = open_blocks_[random_.below(open_blocks_.size())];
    behind_until_ = switches_ + random_.below(64 * ready_.size() + 1);
  }
  for (int attempt = 0; attempt < 8; ++attempt) {
    Fiber& fiber = *ready_[random_.below(ready_.size())];
    if (fiber.block != behind_ || switches_ > behind_until_) return fiber;
  }
  return *ready_[random_.below(ready_.size())];
}

std::string Machine::run() {
  machine = this;
  std::string why;
  while ((live_ > 0 || arrive(false)) && why.empty()) {
    if (options_.arrivals && switches_ % 1024 == 0) arrive(false);
    if (ready_.empty()) {
      why = report("all threads stand at meetings that not all come to");
      break;
    }
    Fiber& next = pick();
    resume(next);
    if (options_.delayed_stores) drain_some(*next.block, next);
    if (next.state == Fiber::State::done) next.stack.reset();
    if (switches_ > options_.max_switches && !options_.arrivals) why = report("no end in sight");
    if (!wrong_.empty()) why = wrong_;
    if (polls_ < 16 * ready_.size() + 64) continue;
    // Everybody has had turns, in vain. What was delayed arrives at last, and who was behind runs.
    polls_ = 0;
    behind_until_ = 0;
    if (drain_everything() || arrive(true))
      progress();
    else if (options_.arrivals)
      continue;
    else if (++silent_turns_ > 3)
      why = report("a full turn of all threads without progress");
  }
  if (why.empty()) drain_everything();
  machine = nullptr;
  return why;
}

std::string Machine::report(std::string_view why) const {
  static constexpr std::string_view names[] = {"runs", "waits for credit", "waits for data",
                                               "waits for a grant", "waits for a drain"};
  std::map<std::string, std::pair<std::uint32_t, int>> groups;  // first thread, how many
  for (const auto& block : blocks_)
    for (const auto& fiber : block->threads) {
      if (fiber->state == Fiber::State::done) continue;
      std::string line = "rank " + std::to_string(block->grid->rank) + " block " +
                         std::to_string(block->index) + " ";
      if (fiber->state == Fiber::State::at_barrier)
        line += "stands at a barrier";
      else if (fiber->state == Fiber::State::at_warp)
        line += "waits for its warp";
      else
        line += names[static_cast<std::size_t>(fiber->what)];
      if (fiber->state == Fiber::State::ready) line += ", link " + std::to_string(fiber->link);
      auto& group = groups.try_emplace(line, fiber->thread, 0).first->second;
      ++group.second;
    }
  std::string text(why);
  for (const auto& [line, group] : groups)
    text += "\n  " + line + ": thread " + std::to_string(group.first) +
            (group.second > 1 ? " and " + std::to_string(group.second - 1) + " more" : "");
  return text;
}

// --- meetings -----------------------------------------------------------------------------------

bool Machine::meet_block(bool mine) {
  Block& here = block();
  Meeting& meeting = here.barrier;
  self().what = WaitingFor::nothing;
  meeting.any |= mine;
  if (++meeting.arrived < here.threads.size()) {
    self().state = Fiber::State::at_barrier;
    leave_ready(self());
    yield();
    return meeting.result;
  }
  meeting.result = meeting.any;
  meeting.any = false;
  meeting.arrived = 0;
  for (auto& fiber : here.threads) {
    fiber->pending.move_all_to(here.pending);
    if (fiber.get() != running_) make_ready(*fiber);
  }
  progress();
  const bool result = meeting.result;
  yield();
  return result;
}

// The last to come acts for all: loads and stores of whole lines happen here, at once.
bool Machine::meet_warp(bool mine, std::byte* place, bool stores) {
  Fiber& fiber = self();
  fiber.place = place;
  fiber.stores = stores;
  const std::uint32_t first = fiber.thread / warp * warp;
  Meeting& meeting = block().warps[fiber.thread / warp];
  meeting.any |= mine;
  if (++meeting.arrived < warp) {
    fiber.state = Fiber::State::at_warp;
    leave_ready(fiber);
    yield();
    return meeting.result;
  }
  meeting.result = meeting.any;
  meeting.any = false;
  meeting.arrived = 0;
  for (std::uint32_t i = first; i < first + warp; i += 8) move_line(i);
  for (std::uint32_t i = first; i < first + warp; ++i)
    if (Fiber* other = block().threads[i].get(); other != running_) make_ready(*other);
  return meeting.result;
}

void Machine::move_line(std::uint32_t first) {
  Fiber& leader = *block().threads[first];
  if (leader.place == nullptr) return;
  Line line;
  line.place = leader.place;
  check_alignment(line.place, line_bytes);
  leader.stores ? watch_write(line.place, line_bytes, true)
                : watch_read(line.place, line_bytes, true);
  for (std::uint32_t k = 0; k < 8; ++k) {
    Fiber& fiber = *block().threads[first + k];
    if (fiber.place != line.place + k * 16)
      note("a torn line", "has a part of the line at", line.place, " that does not lie in order");
    if (!leader.stores) continue;
    std::memcpy(line.bytes + k * 16, &fiber.part, 16);
  }
  if (!leader.stores) {
    const std::uint64_t reader = std::uint64_t{block().number} << 32 | first / warp;
    // After a turn in vain, all of a line has come.
    const bool torn = options_.torn_loads && silent_turns_ == 0;
    if (line_memory_.read(line.bytes, line.place, reader, torn, random_)) progress();
    for (std::uint32_t k = 0; k < 8; ++k)
      std::memcpy(&block().threads[first + k]->part, line.bytes + k * 16, 16);
    return;
  }
  if (options_.delayed_stores) return block().lines.push_back(line);
  line_memory_.write(line.place, line.bytes);
  progress();
}

// --- memory -------------------------------------------------------------------------------------

void Machine::load(const std::byte* place, void* to, std::size_t bytes, bool weak) {
  read_words(static_cast<std::byte*>(to), place, bytes);
  if (weak && options_.stale_loads) {
    Block& here = block();
    here.seen.overlay(place, to, bytes);
    if (random_() % 2 == 0) here.seen.put(place, to, bytes);
  }
  block().pending.overlay(place, to, bytes);
  self().pending.overlay(place, to, bytes);
}

void Machine::store(std::byte* place, const void* from, std::size_t bytes) {
  block().seen.forget(place, bytes);
  if (options_.delayed_stores) return self().pending.put(place, from, bytes);
  write_words(place, static_cast<const std::byte*>(from), bytes);
  progress();
}

void Machine::release(const void* word) {
  if (options_.watches_races) watch_.release(block().number, word);
  block().pending.drain_all(block().seen);
  self().pending.drain_all(block().seen);
  while (!block().lines.empty()) drain_line(block(), 0);
}

void Machine::acquire(const void* word) {
  if (options_.watches_races) watch_.acquire(block().number, word);
  block().seen.clear();
}

constexpr std::string_view race = " without an acquire of what another block did there";

void Machine::watch_read(const std::byte* place, std::size_t bytes, bool flagged) {
  if (options_.watches_races && !watch_.read(block().number, place, bytes, flagged))
    note("a race", "reads", place, race);
}
void Machine::watch_write(const std::byte* place, std::size_t bytes, bool flagged) {
  if (options_.watches_races && !watch_.write(block().number, place, bytes, flagged))
    note("a race", "writes", place, race);
}

void Machine::check_alignment(const void* place, std::size_t bytes) {
  if (reinterpret_cast<std::uintptr_t>(place) % bytes != 0)
    note("a misaligned access", "touches", place, ", " + std::to_string(bytes) + " bytes at once");
}

void Machine::meet_aliases() {
  self().alias_fresh = false;
  if (!self().aliased.empty())
    note("an unfenced store", "stored to", self().aliased.front().first,
         " under a multicast group's address");
}

void Machine::note(std::string_view what, std::string_view does, const void* place,
                   std::string_view why) {
  if (!wrong_.empty()) return;
  wrong_ = std::string(what) + ": rank " + std::to_string(block().grid->rank) + " block " +
           std::to_string(block().index) + " thread " + std::to_string(self().thread) + " " +
           std::string(does) + " address " +
           std::to_string(reinterpret_cast<std::uintptr_t>(place)) + std::string(why);
}

void Machine::drain_line(Block& here, std::size_t pick) {
  // Of two stores to one line, the older arrives first.
  for (std::size_t i = 0; i < pick; ++i)
    if (here.lines[i].place == here.lines[pick].place) pick = i;
  line_memory_.write(here.lines[pick].place, here.lines[pick].bytes);
  here.lines.erase(here.lines.begin() + static_cast<long>(pick));
  progress();
}

void Machine::drain_some(Block& here, Fiber& fiber) {
  if (random_() % 4 != 0) return;
  const bool own = random_() % 2 == 0;
  GranuleMap& from = own ? fiber.pending : here.pending;
  for (std::uint64_t count = random_() % 8; count > 0 && !from.empty(); --count) {
    from.drain_one(random_, own ? &here.pending : nullptr, here.seen);
    progress();
  }
  if (!here.lines.empty()) drain_line(here, random_.below(here.lines.size()));
}

bool Machine::drain_everything() {
  bool any = false;
  for (Block* const here : open_blocks_) {
    any |= !here->pending.empty() || !here->lines.empty();
    here->pending.drain_all(here->seen);
    while (!here->lines.empty()) drain_line(*here, 0);
    for (auto& fiber : here->threads) {
      any |= !fiber->pending.empty();
      fiber->pending.drain_all(here->seen);
    }
  }
  return any;
}

}  // namespace gyre::tests
