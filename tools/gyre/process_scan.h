// Finds the processes of this host that show a state page (lib/base/state_page.h) and reads the
// pages. Also reads the kernel's facts of any process. It sees only processes that the user may
// inspect: the user's own, or all of them as root.
#pragma once

#include "lib/base/owned.h"
#include "lib/base/state_page_reader.h"

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace gyre::tools {

// States as in /proc/PID/stat: R runs, S sleeps, D waits for a device, T and t are stopped (t by a
// debugger), Z and X have ended.
inline constexpr char state_gone = '-';

struct ProcessFacts {
  long pid = 0;
  long own_pid = 0;  // as it knows itself: in its innermost namespace
  long parent = 0;
  std::uint64_t network = 0;  // of its namespace; 0: not known
  char state = state_gone;
  std::string command;
};
ProcessFacts look_at(long pid);

struct ThreadFacts {
  char state = state_gone;
  std::string kernel_function;  // where it sleeps; empty if it does not, or nobody may know
};
// `thread` as the process itself knows it.
ThreadFacts look_at_thread(const ProcessFacts& process, std::uint32_t thread);

struct SeenProcess {
  ProcessFacts facts;
  FileDescriptor state_page_file;
  StatePageSnapshot state_page;
};

struct Scan {
  std::vector<SeenProcess> processes;  // by process id
  std::vector<std::string> notes;      // state pages that could not be read, and why
};
Scan scan_processes();
// Whether this process exists but does not let us look at its descriptors.
bool is_closed_to_us(long pid);
// Looks again at the same ones.
void look_again(Scan& scan);

// Itself and what descends from it.
std::vector<long> descendants(long pid);

}  // namespace gyre::tools
