// Error numbers in words, also with a glibc before 2.32, which has no strerrorname_np().
#pragma once

#include <string>

namespace gyre {

std::string errno_name(int number);         // "ECONNREFUSED"; before 2.32 "errno 111"
std::string errno_description(int number);  // "Connection refused"
std::string errno_text(int number);         // "ECONNREFUSED (Connection refused)"

}  // namespace gyre
