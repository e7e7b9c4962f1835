#include "lib/base/log.h"

#include "lib/base/clock.h"
#include "lib/base/file_pattern.h"

#include <cstring>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace gyre {
namespace {

std::atomic<LogLevel> current_level{LogLevel::warn};
std::atomic<int> current_descriptor{STDERR_FILENO};
thread_local int thread_rank = -1;

constexpr std::string_view level_name(LogLevel level) {
  constexpr std::string_view names[] = {"", "VERSION", "WARN", "INFO", "TRACE"};
  return names[static_cast<int>(level)];
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
  const int previous = current_descriptor.exchange(descriptor.release(), std::memory_order_relaxed);
  if (previous > STDERR_FILENO) ::close(previous);
  return {};
}

LogLevel log_level() { return current_level.load(std::memory_order_relaxed); }

void set_log_rank(int rank) { thread_rank = rank; }

void write_log(LogLevel level, std::string_view subject, std::string_view text) {
  const std::string rank = thread_rank >= 0 ? fmt::format(" [{}]", thread_rank) : std::string();
  const std::string line =
      fmt::format("{}:{}:{}{} GYRE {} {}{}{}\n", this_host_name(), getpid(), syscall(SYS_gettid),
                  rank, level_name(level), subject, subject.empty() ? "" : " ", text);
  // A full disk or a closed stderr must not disturb the job.
  [[maybe_unused]] const ssize_t written =
      ::write(current_descriptor.load(std::memory_order_relaxed), line.data(), line.size());
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
