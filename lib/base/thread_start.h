// Starts the library's threads. On failure the error names the limit that the process reached.
#pragma once

#include "lib/base/status.h"

#include <functional>
#include <thread>

namespace gyre {

// `name`, of at most 15 letters, is what ps shows.
Status start_thread(std::thread& thread, const char* name, std::function<void()> body);

}  // namespace gyre
