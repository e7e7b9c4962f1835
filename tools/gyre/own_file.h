// Opens files that this program writes for its user. Others may have put something under the same
// name, and root must not be led to write elsewhere.
#pragma once

#include "lib/base/owned.h"
#include "lib/base/status.h"

#include <string>

namespace gyre::tools {

// Empty, for writing, of mode 0600. What is there already must be a regular file of this user with
// no other name, or a character device; a FIFO does not hold us.
Result<FileDescriptor> open_own_file(const std::string& path);

}  // namespace gyre::tools
