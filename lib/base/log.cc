#include "lib/base/log.h"

#include "lib/base/clock.h"
#include "lib/base/file_pattern.h"
#include "lib/base/prompt_write.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace gyre {
namespace {

std::atomic<LogLevel> current_level{LogLevel::warn};
std::atomic<int> current_descriptor{STDERR_FILENO};
std::atomic<dev_t> own_device{0};  // and the next: which file that is, if it is the log's own
std::atomic<ino_t> own_inode{0};
std::atomic<std::int64_t> lost_lines{0};
std::atomic<bool> is_cut{false};  // the last line of the log has no end

// What LoggedRanks say, in one word, as each line looks at it.
// Aligned as a whole: else Clang asks a library to load it at once.
struct alignas(8) LoggedRanks {
  std::uint32_t count = 0;  // that live
  std::int32_t rank = -1;   // of all of them; -1: they differ
};
std::atomic<LoggedRanks> logged_ranks{};
static_assert(std::atomic<LoggedRanks>::is_always_lock_free);

constexpr std::string_view level_name(LogLevel level) {
  constexpr std::string_view names[] = {"", "VERSION", "WARN", "INFO", "TRACE"};
  return names[static_cast<int>(level)];
}

// Whether the log is what this number stands for. A program may close all descriptors that it does
// not know, and have the number for a file of its own then; and what the library opens itself, for
// a moment, where stderr is closed, is close-on-exec.
bool is_log(int descriptor) {
  if (descriptor <= STDERR_FILENO) {
    const int flags = fcntl(descriptor, F_GETFD);
    return flags >= 0 && (flags & FD_CLOEXEC) == 0;
  }
  struct stat about {};
  return fstat(descriptor, &about) == 0 && about.st_dev == own_device && about.st_ino == own_inode;
}

bool put(int descriptor, std::string_view text) {
  const std::size_t written = write_promptly(descriptor, text);
  if (written > 0) is_cut.store(written < text.size(), std::memory_order_relaxed);
  return written == text.size();
}

std::string rank_shown() {
  const LoggedRanks ranks = logged_ranks.load(std::memory_order_relaxed);
  return ranks.count > 0 && ranks.rank >= 0 ? fmt::format(" [{}]", ranks.rank) : std::string();
}

std::string line_of(LogLevel level, std::string_view subject, std::string_view text) {
  return fmt::format("{}:{}:{}{} GYRE {} {}{}{}\n", this_host_name(), getpid(), syscall(SYS_gettid),
                     rank_shown(), level_name(level), subject, subject.empty() ? "" : " ", text);
}

// False if there is no room for that.
bool put_losses(int descriptor) {
  std::int64_t lost = lost_lines.load(std::memory_order_relaxed);
  if (lost == 0) return true;
  const std::string line =
      line_of(LogLevel::warn, {},
              fmt::format("lines lost here: {}; the reader of this log had no room", lost));
  // Another thread tells, or the next line does.
  if (!lost_lines.compare_exchange_strong(lost, 0, std::memory_order_relaxed)) return true;
  if (put(descriptor, is_cut.load(std::memory_order_relaxed) ? "\n" + line : line)) return true;
  lost_lines.fetch_add(lost, std::memory_order_relaxed);
  return false;
}

}  // namespace

namespace log_state {
std::atomic<SubsystemMask> info{0}, trace{0};
}  // namespace log_state

Status configure_log(LogLevel level, const std::string& file, SubsystemMask subsystems) {
  current_level.store(level, std::memory_order_relaxed);
  log_state::info.store(level >= LogLevel::info ? subsystems : 0, std::memory_order_relaxed);
  log_state::trace.store(level >= LogLevel::trace ? subsystems : 0, std::memory_order_relaxed);
  if (file.empty()) return {};
  const std::string path = expand_file_pattern(file);
  if (path == "/dev/stdout" || path == "stdout") {
    current_descriptor.store(STDOUT_FILENO, std::memory_order_relaxed);
    return {};
  }
  if (path == "/dev/stderr" || path == "stderr") return {};
  // Several ranks of one process and a second communicator share the file.
  auto opened = open_output_file(path, OldText::stays);
  if (!opened.ok()) return std::move(opened).status().while_doing("GYRE_DEBUG_FILE");
  FileDescriptor descriptor = std::move(opened).value();
  struct stat about {};
  if (fstat(descriptor.get(), &about) != 0)
    return Status::from_errno("fstat of GYRE_DEBUG_FILE", errno);
  const int previous = current_descriptor.load(std::memory_order_relaxed);
  const bool replaces = previous > STDERR_FILENO && is_log(previous);
  own_device = about.st_dev, own_inode = about.st_ino;
  // In one step: other threads may be writing.
  if (replaces && dup3(descriptor.get(), previous, O_CLOEXEC) == previous) return {};
  current_descriptor.store(descriptor.release(), std::memory_order_relaxed);
  return {};
}

LogLevel log_level() { return current_level.load(std::memory_order_relaxed); }

LoggedRank::LoggedRank(int rank) noexcept {
  LoggedRanks seen = logged_ranks.load(std::memory_order_relaxed), next;
  do {
    next.count = seen.count + 1;
    next.rank = seen.count == 0 || seen.rank == rank ? rank : -1;
  } while (!logged_ranks.compare_exchange_weak(seen, next, std::memory_order_relaxed));
}

LoggedRank::~LoggedRank() {
  LoggedRanks seen = logged_ranks.load(std::memory_order_relaxed), next;
  do {
    if (seen.count == 0) return;  // a fork has made a child of this process meanwhile
    next = {seen.count - 1, seen.rank};
  } while (!logged_ranks.compare_exchange_weak(seen, next, std::memory_order_relaxed));
}

void forget_logged_ranks() noexcept { logged_ranks.store({}, std::memory_order_relaxed); }

void write_log(LogLevel level, std::string_view subject, std::string_view text) noexcept {
  try {
    const int descriptor = current_descriptor.load(std::memory_order_relaxed);
    if (!is_log(descriptor)) return;
    if (put_losses(descriptor) && put(descriptor, line_of(level, subject, text))) return;
  } catch (...) {  // no memory for a line
  }
  lost_lines.fetch_add(1, std::memory_order_relaxed);
}

void write_log(LogLevel level, std::string_view subject, fmt::string_view format,
               fmt::format_args arguments) noexcept {
  try {
    return write_log(level, subject, fmt::vformat(format, arguments));
  } catch (...) {
  }
  lost_lines.fetch_add(1, std::memory_order_relaxed);
}

void tell_lost_lines() noexcept {
  if (lost_lines.load(std::memory_order_relaxed) == 0) return;
  try {
    const int descriptor = current_descriptor.load(std::memory_order_relaxed);
    if (is_log(descriptor)) (void)put_losses(descriptor);
  } catch (...) {  // another time
  }
}

void RateLimitedWarning::write(std::string_view text) {
  if (log_level() < LogLevel::warn) return;
  const std::int64_t now = SystemClock::read();
  std::int64_t last = last_ns_.load(std::memory_order_relaxed);
  const bool first = last == 0;
  if ((!first && now - last < interval_ns_) ||
      !last_ns_.compare_exchange_strong(last, now, std::memory_order_relaxed)) {
    held_back_.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  const std::int64_t held_back = held_back_.exchange(0, std::memory_order_relaxed);
  if (held_back == 0) return write_log(LogLevel::warn, {}, text);
  write_log(LogLevel::warn, {}, fmt::format("{} (and {} more like it)", text, held_back));
}

}  // namespace gyre
