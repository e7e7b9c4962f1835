// Log lines for people: "host:pid:tid [rank] GYRE INFO NET text" on stderr or in GYRE_DEBUG_FILE.
// The rank is there if the process is exactly one rank. The sink is process-wide, as stderr is. Any
// thread may log. Each line is one write(2), so lines never interleave. Nothing here waits, throws
// or raises a signal. If the reader has no room, the line is lost, and the next one that fits says
// how many were.
#pragma once

#include "lib/base/status.h"
#include "lib/base/subsystem.h"

#include <fmt/core.h>

#include <atomic>
#include <string>
#include <string_view>

namespace gyre {

enum class LogLevel : int { none, version, warn, info, trace };

// Sets level, file ("" = stderr; %h and %p become host name and process id), and which subsystems'
// INFO and TRACE lines are written; VERSION and WARN always are.
Status configure_log(LogLevel level, const std::string& file,
                     SubsystemMask subsystems = all_subsystems);
LogLevel log_level();
// This process is that rank as long as one of these lives. Lines show it, whichever thread writes
// them; but none where several ranks live in the process, until all of them are gone.
class LoggedRank {
 public:
  explicit LoggedRank(int rank) noexcept;
  ~LoggedRank();
  LoggedRank(const LoggedRank&) = delete;
  LoggedRank& operator=(const LoggedRank&) = delete;
};
// In a forked child: its parent's ranks are not its own.
void forget_logged_ranks() noexcept;
// Of INFO and TRACE, `subject` is the subsystem's name.
void write_log(LogLevel level, std::string_view subject, std::string_view text) noexcept;
void write_log(LogLevel level, std::string_view subject, fmt::string_view format,
               fmt::format_args arguments) noexcept;
// Says how many lines were lost, if there is room for that now.
void tell_lost_lines() noexcept;

namespace log_state {
// Which subsystems' lines are written; zero below the level. One load tells a caller.
extern std::atomic<SubsystemMask> info, trace;
}  // namespace log_state

inline bool logs_info(Subsystem subsystem) {
  return (log_state::info.load(std::memory_order_relaxed) & mask_of(subsystem)) != 0;
}
inline bool logs_trace(Subsystem subsystem) {
  return (log_state::trace.load(std::memory_order_relaxed) & mask_of(subsystem)) != 0;
}

template <typename... Arguments>
void log_warn(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  if (log_level() >= LogLevel::warn)
    write_log(LogLevel::warn, {}, format, fmt::make_format_args(arguments...));
}

template <typename... Arguments>
void log_info(Subsystem subsystem, fmt::format_string<Arguments...> format,
              Arguments&&... arguments) {
  if (logs_info(subsystem)) [[unlikely]]
    write_log(LogLevel::info, subsystem_name(subsystem), format,
              fmt::make_format_args(arguments...));
}

template <typename... Arguments>
void log_trace(Subsystem subsystem, fmt::format_string<Arguments...> format,
               Arguments&&... arguments) {
  if (logs_trace(subsystem)) [[unlikely]]
    write_log(LogLevel::trace, subsystem_name(subsystem), format,
              fmt::make_format_args(arguments...));
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
