#include "lib/base/state_page.h"

#include "lib/base/descriptor_mark.h"
#include "lib/base/file_size.h"
#include "lib/base/memory_file.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <iterator>
#include <new>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace gyre {
namespace {

constexpr std::uint64_t state_page_pages = divide_up(sizeof(StatePageMemory), state_page_bytes);

// Readers map it, so it must not shrink under them; it grows.
FileDescriptor make_file() {
  FileDescriptor file = open_memory_file(state_page_file_name);
  if (!file.has_value() || fchmod(file.get(), 0400) != 0 ||
      fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_SEAL) != 0)
    return {};
  return file;
}

bool grow(int file, std::uint64_t pages) {
  return set_file_size(file, pages * state_page_bytes).ok();
}

// Of the file, or (-1) memory of this process alone. Zeros.
Mapping map_pages(int file, std::uint64_t page, std::uint64_t count) {
  const std::uint64_t bytes = count * state_page_bytes;
  const int flags = file < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, file,
                      static_cast<off_t>(page * state_page_bytes));
  if (memory == MAP_FAILED) return {};
  return Mapping({static_cast<std::byte*>(memory), bytes});
}

}  // namespace

std::string_view wait_phase_name(WaitPhase phase) {
  constexpr std::string_view names[] = {"none", "joining", "opening", "moving", "blaming"};
  return names[static_cast<int>(phase)];
}

// ------------------------------------------------------------------------------- state page

Status StatePage::open(const Owner& owner) {
  file_ = make_file();
  if (file_.has_value() && grow(file_.get(), state_page_pages))
    mapping_ = map_pages(file_.get(), 0, state_page_pages);
  if (!mapping_.has_value()) {
    file_.reset();
    mapping_ = map_pages(-1, 0, state_page_pages);
  }
  if (!mapping_.has_value()) return Status::from_errno("mapping the memory for tools", errno);
  pages_ = state_page_pages;
  source_ = tick_source();
  // Fresh pages are zeros, which is what empty words are; writing them would only cost memory.
  memory_ = reinterpret_cast<StatePageMemory*>(mapping_.get().data);
  StatePageHead head;
  head.pid = static_cast<std::uint32_t>(getpid());
  head.uid = geteuid();
  head.origin = read_tick_pair(source_);
  head.source = source_;
  head.host = owner.host;
  head.host_name = FixedText<64>(owner.host_name);
  head.version = FixedText<32>(owner.version);
  head.names = owner.names;
  memory_->head.write(head);
  // Pairs with the acquire in state_page_reader.cc.
  memory_->magic.store(state_page_magic, std::memory_order_release);
  return {};
}

// First fit; 0: none to be had.
std::uint64_t StatePage::take_pages(std::uint64_t count) {
  if (!file_.has_value() || !descriptor_mark_stands()) return 0;
  for (auto extent = free_.begin(); extent != free_.end(); ++extent) {
    const auto [page, free_count] = *extent;
    if (free_count < count) continue;
    free_.erase(extent);
    if (free_count > count) free_[page + count] = free_count - count;
    return page;
  }
  if (!grow(file_.get(), pages_ + count)) return 0;
  return std::exchange(pages_, pages_ + count);
}

void StatePage::give_pages(std::uint64_t page, std::uint64_t count) {
  if (!descriptor_mark_stands()) return;
  // Its memory goes back to the kernel, and the next rank state there begins with zeros. Where that
  // fails, the pages are not used again.
  if (fallocate(file_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                static_cast<off_t>(page * state_page_bytes),
                static_cast<off_t>(count * state_page_bytes)) != 0)
    return;
  auto place = free_.end();
  try {
    place = free_.emplace(page, count).first;
  } catch (const std::bad_alloc&) {
    return;
  }
  if (const auto next = std::next(place); next != free_.end() && page + count == next->first) {
    place->second += next->second;
    free_.erase(next);
  }
  if (place == free_.begin()) return;
  const auto previous = std::prev(place);
  if (previous->first + previous->second != page) return;
  previous->second += place->second;
  free_.erase(place);
}

Result<RankState> StatePage::claim(const std::function<Owner()>& owner,
                                   const RankIdentity& identity) {
  const std::lock_guard lock(mutex_);
  if (memory_ == nullptr) GYRE_TRY(open(owner()));
  // What may throw comes first. The rank state is the state page's when all is done: it gives back
  // then.
  rank_states_.reserve(rank_states_.size() + 1);
  RankState rank_state;
  rank_state.source_ = source_;
  rank_state.identity_ = identity;
  const std::uint64_t count = rank_state_span(identity.size).bytes / state_page_bytes;
  const auto free_entry = std::ranges::find_if(memory_->directory, [](const SharedWord& entry) {
    return entry.load(std::memory_order_relaxed) == 0;
  });
  rank_state.index_ = static_cast<std::uint32_t>(free_entry - memory_->directory.begin());
  if (rank_state.index_ < max_rank_states) rank_state.page_ = take_pages(count);
  if (rank_state.page_ != 0) rank_state.mapping_ = map_pages(file_.get(), rank_state.page_, count);
  if (!rank_state.mapping_.has_value()) {
    if (rank_state.page_ != 0) give_pages(std::exchange(rank_state.page_, 0), count);
    rank_state.mapping_ = map_pages(-1, 0, count);
  }
  if (!rank_state.mapping_.has_value())
    return Status::from_errno("mapping memory for a communicator's state", errno);
  rank_state.memory_ = reinterpret_cast<RankStateMemory*>(rank_state.mapping_.get().data);
  rank_state.memory_->identity.write(identity);
  rank_states_.push_back(rank_state.memory_);
  ++claims_;
  if (rank_state.page_ != 0)
    // Pairs with the acquire in state_page_reader.cc.
    free_entry->store(claims_ << 32 | rank_state.page_, std::memory_order_release);
  rank_state.state_page_ = this;
  return rank_state;
}

void StatePage::release(RankState& rank_state) {
  const std::lock_guard lock(mutex_);
  const std::uint64_t count = rank_state.mapping_.get().bytes / state_page_bytes;
  std::erase(rank_states_, rank_state.memory_);
  rank_state.mapping_.reset();
  if (rank_state.page_ == 0) return;
  memory_->directory[rank_state.index_].store(0, std::memory_order_release);
  give_pages(rank_state.page_, count);
}

void StatePage::look(const std::function<void(const RankStateMemory&)>& at) const {
  const std::lock_guard lock(mutex_);
  for (const RankStateMemory* memory : rank_states_) at(*memory);
}

// ------------------------------------------------------------------------------- rank state

RankState::RankState(RankState&& other) noexcept { *this = std::move(other); }

RankState& RankState::operator=(RankState&& other) noexcept {
  if (this == &other) return *this;
  if (state_page_ != nullptr) state_page_->release(*this);
  state_page_ = std::exchange(other.state_page_, nullptr);
  index_ = other.index_;
  page_ = other.page_;
  mapping_ = std::move(other.mapping_);
  memory_ = std::exchange(other.memory_, nullptr);
  source_ = other.source_;
  identity_ = other.identity_;
  caller_ = other.caller_;
  told_ = other.told_;
  past_waits_ = other.past_waits_;
  return *this;
}

RankState::~RankState() {
  if (state_page_ != nullptr) state_page_->release(*this);
}

void RankState::note_caller() {
  caller_ = thread_mark();
  memory_->caller.store(static_cast<std::uint64_t>(syscall(SYS_gettid)), std::memory_order_relaxed);
}

void RankState::tell_wait(WaitLane lane, WaitRecord wait) {
  WaitRecord& told = told_[index(lane)];
  const bool same = wait.phase == told.phase && wait.serial == told.serial &&
                    wait.what == told.what && wait.peer == told.peer &&
                    wait.channel == told.channel && wait.chunk == told.chunk;
  if (same) return;
  wait.communicator = identity_.communicator;
  wait.since_ns = SystemClock::read();
  if (tells_wait(lane) && lane != WaitLane::kernels) keep_wait(told, wait.since_ns);
  told = wait;
  memory_->waits[index(lane)].write(wait);
}

void RankState::end_wait(WaitLane lane) {
  if (!tells_wait(lane)) return;
  if (lane != WaitLane::kernels) keep_wait(told_[index(lane)], SystemClock::read());
  told_[index(lane)] = {};
  memory_->waits[index(lane)].write({});
}

void RankState::keep_wait(const WaitRecord& wait, std::int64_t until_ns) {
  PastWaitLine& line = memory_->past_waits[++past_waits_ % past_wait_count];
  // A reader that sees a word of this wait sees that the former one is gone: the words are releases
  // and pair with the acquires in state_page_reader.cc.
  line.number.store(0, std::memory_order_relaxed);
  line.wait.store({wait, until_ns});
  line.number.store(past_waits_, std::memory_order_release);
  memory_->long_waits.store(past_waits_, std::memory_order_relaxed);
}

void RankState::show_peers(const RankPeers& peers) {
  const RankStateSpan span = rank_state_span(identity_.size);
  std::byte* const start = mapping_.get().data;
  const std::size_t ranks = std::min(peers.peers.size(), static_cast<std::size_t>(identity_.size));
  const std::size_t hosts = std::min(peers.hosts.size(), ranks);
  auto* const words = reinterpret_cast<SharedWord*>(start + span.ranks_offset);
  for (std::size_t rank = 0; rank < ranks; ++rank)
    words[rank].store(peers.peers[rank].pid | std::uint64_t{peers.peers[rank].host} << 32,
                      std::memory_order_relaxed);
  auto* const notes = reinterpret_cast<SharedWords<HostEntry>*>(start + span.hosts_offset);
  for (std::size_t host = 0; host < hosts; ++host)
    notes[host].store({peers.hosts[host].token, FixedText<64>(peers.hosts[host].name)});
  // Pairs with the acquire in state_page_reader.cc.
  memory_->hosts.store(hosts, std::memory_order_release);
}

void RankState::fail(const Status& why) {
  const std::lock_guard lock(state_page_->failing_);
  if (why.ok() || memory_->failure.writes() > 0) return;
  FailureRecord note;
  note.at_ns = SystemClock::read();
  note.code = static_cast<std::int32_t>(why.code());
  const std::size_t count = std::min(why.culprits().size(), FailureRecord::max_culprits);
  note.culprit_count = static_cast<std::int32_t>(count);
  std::copy_n(why.culprits().begin(), count, note.culprits.begin());
  note.text = FixedText<912>(why.message());
  memory_->failure.write(note);
}

}  // namespace gyre
