// The unique id in a file of the trial's folder, which is the working directory of all its
// processes.
#pragma once

#include <gyre/gyre.h>

#include <chrono>
#include <cstdio>
#include <string>
#include <thread>

namespace gyre::campaign {

// NULL says that there will be none. A system call that fails once is tried again.
inline void write_meeting(const char* name, const gyreUniqueId* id) {
  const std::string draft = std::string(name) + ".draft";
  std::FILE* file = std::fopen(draft.c_str(), "w");
  if (file == nullptr) file = std::fopen(draft.c_str(), "w");
  if (file == nullptr) return;
  if (id != nullptr) (void)std::fwrite(id, sizeof *id, 1, file);
  (void)std::fclose(file);
  (void)std::rename(draft.c_str(), name);
}

// False if there is none after some seconds.
inline bool read_meeting(const char* name, gyreUniqueId* id) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(12);
  while (std::chrono::steady_clock::now() < until) {
    if (std::FILE* file = std::fopen(name, "r")) {
      const bool whole = std::fread(id, sizeof *id, 1, file) == 1;
      (void)std::fclose(file);
      return whole;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return false;
}

}  // namespace gyre::campaign
