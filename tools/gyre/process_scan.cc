#include "tools/gyre/process_scan.h"

#include "lib/base/errno_text.h"
#include "lib/base/memory_file.h"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <dirent.h>
#include <fcntl.h>
#include <memory>
#include <sstream>
#include <string_view>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

namespace gyre::tools {
namespace {

struct FolderTraits {
  using Handle = DIR*;
  static DIR* none() { return nullptr; }
  static void close(DIR* folder) { ::closedir(folder); }
};
using Folder = Owned<FolderTraits>;

// At most 64 KiB; empty if it cannot be read.
std::string read_text(const std::string& path) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  std::string text(64 << 10, '\0');
  const ssize_t length = file.has_value() ? ::read(file.get(), text.data(), text.size()) : 0;
  text.resize(length > 0 ? static_cast<std::size_t>(length) : 0);
  return text;
}

// The last number of the line that begins with `name`; 0 if there is none.
long number_after(const std::string& text, std::string_view name) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(name)) continue;
    std::istringstream words(line.substr(name.size()));
    long last = 0;
    for (long number = 0; words >> number;) last = number;
    return last;
  }
  return 0;
}

// Names of a folder that are numbers.
std::vector<long> numbers_in(const std::string& path) {
  std::vector<long> numbers;
  const Folder folder(::opendir(path.c_str()));
  if (!folder.has_value()) return numbers;
  while (const dirent* entry = ::readdir(folder.get())) {
    char* end = nullptr;
    const long number = std::strtol(entry->d_name, &end, 10);
    if (end != entry->d_name && *end == '\0') numbers.push_back(number);
  }
  std::ranges::sort(numbers);
  return numbers;
}

// What /proc/PID/stat says after the name, which may hold anything: the state, then the parent.
char state_in(const std::string& stat) {
  const std::size_t end = stat.rfind(')');
  return end == stat.npos || end + 2 >= stat.size() ? state_gone : stat[end + 2];
}

std::string command_of(long pid) {
  std::string line = read_text(fmt::format("/proc/{}/cmdline", pid));
  if (line.empty()) line = read_text(fmt::format("/proc/{}/comm", pid));
  std::ranges::replace(line, '\0', ' ');
  while (!line.empty() && (line.back() == ' ' || line.back() == '\n')) line.pop_back();
  return printable(line.substr(0, 200));
}

// The file system that holds all memory files, which nobody can mount or put other files on.
dev_t device_of_memory() {
  const FileDescriptor probe = open_memory_file("gyre-why");
  struct stat facts {};
  return probe.has_value() && ::fstat(probe.get(), &facts) == 0 ? facts.st_dev : 0;
}

// Whether the descriptor at `path` is of a memory file, which opens at once. A file of any other
// kind can have such a path too: opening a FIFO would wait for a writer, and a file system of its
// user's need not answer at all. So it is only looked at, without a question to its file system.
bool is_in_memory(const std::string& path) {
  const FileDescriptor seen(::open(path.c_str(), O_PATH | O_CLOEXEC));
  struct statx facts {};
  if (!seen.has_value() ||
      ::statx(seen.get(), "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE, &facts) != 0)
    return false;
  return S_ISREG(facts.stx_mode) &&
         makedev(facts.stx_dev_major, facts.stx_dev_minor) == device_of_memory();
}

// A forked child has its parent's state page as well: only one that names the process itself is its
// own.
void find_state_page(long pid, Scan& scan) {
  const std::string folder = fmt::format("/proc/{}/fd", pid);
  const std::string wanted = fmt::format("/memfd:{}", state_page_file_name);
  for (const long number : numbers_in(folder)) {
    const std::string path = fmt::format("{}/{}", folder, number);
    char link[64] = {};
    const ssize_t length = ::readlink(path.c_str(), link, sizeof link - 1);
    if (length <= 0 || !std::string_view(link).starts_with(wanted)) continue;
    if (!is_in_memory(path)) {
      scan.notes.push_back(
          fmt::format("pid {}: the file that it names as its state page is not in memory", pid));
      continue;
    }
    FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (!file.has_value()) {
      scan.notes.push_back(fmt::format("pid {}: its state page cannot be opened: {}", pid,
                                       errno_description(errno)));
      continue;
    }
    Result<StatePageSnapshot> state_page = read_state_page(file.get());
    if (!state_page.ok()) {
      scan.notes.push_back(fmt::format("pid {}: {}", pid, state_page.status().message()));
      continue;
    }
    ProcessFacts facts = look_at(pid);
    if (facts.own_pid != static_cast<long>(state_page->head.pid)) continue;
    scan.processes.push_back({std::move(facts), std::move(file), std::move(*state_page)});
    return;
  }
}

}  // namespace

ProcessFacts look_at(long pid) {
  ProcessFacts facts;
  facts.pid = pid;
  facts.state = state_in(read_text(fmt::format("/proc/{}/stat", pid)));
  if (facts.state == state_gone) return facts;
  const std::string status = read_text(fmt::format("/proc/{}/status", pid));
  facts.parent = number_after(status, "PPid:");
  facts.own_pid = number_after(status, "NSpid:");
  if (facts.own_pid == 0) facts.own_pid = pid;
  struct stat network {};
  if (::stat(fmt::format("/proc/{}/ns/net", pid).c_str(), &network) == 0)
    facts.network = network.st_ino;
  facts.command = command_of(pid);
  return facts;
}

ThreadFacts look_at_thread(const ProcessFacts& process, std::uint32_t thread) {
  long number = thread;
  // In a container it goes by other numbers.
  if (process.own_pid != process.pid)
    for (const long one : numbers_in(fmt::format("/proc/{}/task", process.pid)))
      if (number_after(read_text(fmt::format("/proc/{}/task/{}/status", process.pid, one)),
                       "NSpid:") == static_cast<long>(thread))
        number = one;
  const std::string folder = fmt::format("/proc/{}/task/{}", process.pid, number);
  ThreadFacts facts;
  facts.state = state_in(read_text(folder + "/stat"));
  facts.kernel_function = printable(read_text(folder + "/wchan"));
  if (facts.kernel_function == "0") facts.kernel_function.clear();
  return facts;
}

Scan scan_processes() {
  Scan scan;
  for (const long pid : numbers_in("/proc")) find_state_page(pid, scan);
  return scan;
}

bool is_closed_to_us(long pid) {
  const Folder folder(::opendir(fmt::format("/proc/{}/fd", pid).c_str()));
  return !folder.has_value() && errno == EACCES;
}

void look_again(Scan& scan) {
  for (SeenProcess& process : scan.processes) {
    process.facts = look_at(process.facts.pid);
    Result<StatePageSnapshot> state_page = read_state_page(process.state_page_file.get());
    if (state_page.ok()) process.state_page = std::move(*state_page);
  }
}

std::vector<long> descendants(long pid) {
  std::map<long, std::vector<long>> children;
  for (const long one : numbers_in("/proc"))
    children[number_after(read_text(fmt::format("/proc/{}/status", one)), "PPid:")].push_back(one);
  std::vector<long> found = {pid};
  // A process id in use twice cannot be: each is somebody's child once.
  for (std::size_t i = 0; i < found.size(); ++i)
    if (const auto& next = children[found[i]]; found.size() < 1U << 16)
      found.insert(found.end(), next.begin(), next.end());
  return found;
}

}  // namespace gyre::tools
