// How the library's threads start: or an error that names the limit which they ran into.
#pragma once

#include "lib/base/status.h"

#include <functional>
#include <thread>

namespace gyre {

// `name`, of at most 15 letters, is what ps shows.
Status start_thread(std::thread& thread, const char* name, std::function<void()> body);

}  // namespace gyre
