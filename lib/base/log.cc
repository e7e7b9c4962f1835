#include "lib/base/log.h"

#include "lib/base/clock.h"

#include <cstring>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace gyre {
namespace {

std::atomic<LogLevel> current_level{LogLevel::warn};
std::atomic<int> current_descriptor{STDERR_FILENO};
thread_local int thread_rank = -1;

std::string host_name() {
  char name[256] = {};
  if (gethostname(name, sizeof name - 1) != 0) return "host";
  return name;
}

constexpr std::string_view level_name(LogLevel level) {
  constexpr std::string_view names[] = {"", "VERSION", "WARN", "INFO", "TRACE"};
  return names[static_cast<int>(level)];
}

}  // namespace

std::string log_path(const std::string& pattern) {
  std::string path;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const bool escape = pattern[i] == '%' && i + 1 < pattern.size();
    if (escape && pattern[i + 1] == 'h')
      path += host_name(), ++i;
    else if (escape && pattern[i + 1] == 'p')
      path += std::to_string(getpid()), ++i;
    else
      path += pattern[i];
  }
  return path;
}

Status configure_log(LogLevel level, const std::string& file) {
  current_level.store(level, std::memory_order_relaxed);
  if (file.empty()) return {};
  const std::string path = log_path(file);
  if (path == "/dev/stdout" || path == "stdout") {
    current_descriptor.store(STDOUT_FILENO, std::memory_order_relaxed);
    return {};
  }
  if (path == "/dev/stderr" || path == "stderr") return {};
  // Appends, so that several ranks of one process and a second communicator share a file; a link is
  // refused, so that nobody can point the log at another file.
  const int descriptor =
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (descriptor < 0)
    return Status::from_errno(fmt::format("opening GYRE_DEBUG_FILE {}", path), errno);
  const int previous = current_descriptor.exchange(descriptor, std::memory_order_relaxed);
  if (previous > STDERR_FILENO) ::close(previous);
  return {};
}

LogLevel log_level() { return current_level.load(std::memory_order_relaxed); }

void set_log_rank(int rank) { thread_rank = rank; }

void write_log(LogLevel level, std::string_view text) {
  const std::string rank = thread_rank >= 0 ? fmt::format(" [{}]", thread_rank) : std::string();
  const std::string line = fmt::format("{}:{}:{}{} GYRE {} {}\n", host_name(), getpid(),
                                       syscall(SYS_gettid), rank, level_name(level), text);
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
  if (held_back == 0) return write_log(LogLevel::warn, text);
  write_log(LogLevel::warn, fmt::format("{} (and {} more like it)", text, held_back));
}

}  // namespace gyre
