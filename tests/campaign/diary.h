// The diary: what ranks write for the driver, one event a line. A line holds the time (ns of the
// steady clock, which all processes of a machine share), the rank, a keyword, and a text. Nothing
// is allocated, so a process without memory or descriptors can still write.
#pragma once

#include <chrono>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <unistd.h>

namespace gyre::campaign {

inline std::int64_t now_ns() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

[[gnu::format(printf, 2, 3)]] inline void note(int rank, const char* format, ...) {
  char line[3000];  // less than PIPE_BUF: lines of threads do not mix
  int length = std::snprintf(line, sizeof line, "%lld %d ", static_cast<long long>(now_ns()), rank);
  std::va_list values;
  va_start(values, format);
  std::vsnprintf(line + length, sizeof line - static_cast<std::size_t>(length) - 1, format, values);
  va_end(values);
  length = static_cast<int>(std::strlen(line));
  for (int i = 0; i < length; ++i)
    if (line[i] == '\n') line[i] = ' ';
  line[length++] = '\n';
  [[maybe_unused]] const ssize_t written =
      write(STDOUT_FILENO, line, static_cast<std::size_t>(length));
}

}  // namespace gyre::campaign
