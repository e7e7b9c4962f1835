// Files that the library writes for people: names with %h (host), %p (process id) and %r (rank) in
// them, and how such a file is opened.
#pragma once

#include "lib/base/owned.h"

#include <string>

namespace gyre {

std::string this_host_name();
// %r stays as it is without a rank.
std::string expand_file_pattern(const std::string& pattern, int rank = -1);
// The same for another process.
std::string expand_file_pattern(const std::string& pattern, const std::string& host, long pid,
                                int rank);
// Appends, so that several ranks share a file; mode 0600. A link is refused, so that nobody can
// point the file at another. No file, and errno, if that fails.
FileDescriptor open_for_appending(const std::string& path);

}  // namespace gyre
