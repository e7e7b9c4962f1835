// Files that the library writes for people. Their names may contain %h (host), %p (process id) and
// %r (rank). This file replaces those and opens the file.
#pragma once

#include "lib/base/owned.h"
#include "lib/base/status.h"

#include <string>

namespace gyre {

std::string this_host_name();
// %r stays as it is without a rank.
std::string expand_file_pattern(const std::string& pattern, int rank = -1);
// The same for another process.
std::string expand_file_pattern(const std::string& pattern, const std::string& host, long pid,
                                int rank);

// What becomes of the text in a file that is there already.
enum class OldText { stays, goes };
// Opens a file to append to, so that several ranks can share it, or makes it with mode 0600. Never
// waits. What others could read, own or have pointed elsewhere is refused, and left as it was: a
// link, a FIFO, a folder, another user's file, one with a second name. A character device
// (/dev/null, a terminal) will do.
Result<FileDescriptor> open_output_file(const std::string& path, OldText old_text);

}  // namespace gyre
