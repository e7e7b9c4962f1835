// Sets the size of a memory file. It refuses a size beyond the process's limit for files, for which
// the kernel would end the process by SIGXFSZ.
#pragma once

#include "lib/base/status.h"

#include <cstdint>

namespace gyre {

// The bytes are zeros, and take memory when they are touched. A failure is in errno, too.
Status set_file_size(int file, std::uint64_t bytes);
// The same with memory that the file keeps: touching it cannot fail any more.
Status reserve_file_size(int file, std::uint64_t bytes);

}  // namespace gyre
