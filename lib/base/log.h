// Log lines for people: "host:pid:tid [rank] GYRE WARN text" on stderr or in GYRE_DEBUG_FILE.
// The sink is process-wide, as stderr is; it is the only such state in lib/base.
// Any thread may log; a line is written with one write(2), so lines never interleave.
#pragma once

#include "lib/base/status.h"

#include <fmt/format.h>

#include <atomic>
#include <string>
#include <string_view>

namespace gyre {

enum class LogLevel : int { none, version, warn, info, trace };

// Sets level and file ("" = stderr; %h and %p become host name and process id).
Status configure_log(LogLevel level, const std::string& file);
LogLevel log_level();
// Rank shown in this thread's lines; -1 shows none.
void set_log_rank(int rank);
void write_log(LogLevel level, std::string_view text);

template <typename... Arguments>
void log_warn(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  if (log_level() >= LogLevel::warn)
    write_log(LogLevel::warn, fmt::format(format, std::forward<Arguments>(arguments)...));
}

template <typename... Arguments>
void log_info(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  if (log_level() >= LogLevel::info)
    write_log(LogLevel::info, fmt::format(format, std::forward<Arguments>(arguments)...));
}

template <typename... Arguments>
void log_trace(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  if (log_level() >= LogLevel::trace)
    write_log(LogLevel::trace, fmt::format(format, std::forward<Arguments>(arguments)...));
}

// At most one line in `interval_ns` passes; says how many were held back. One per kind of message.
class RateLimitedWarning {
 public:
  explicit RateLimitedWarning(std::int64_t interval_ns) : interval_ns_(interval_ns) {}
  void write(std::string_view text);

 private:
  const std::int64_t interval_ns_;
  std::atomic<std::int64_t> last_ns_{0};
  std::atomic<std::int64_t> held_back_{0};
};

}  // namespace gyre
