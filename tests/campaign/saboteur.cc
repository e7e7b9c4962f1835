#include "tests/campaign/saboteur.h"

#include "tests/campaign/diary.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <string>
#include <sys/resource.h>
#include <sys/wait.h>

namespace gyre::campaign {
namespace {

void pause_ms(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

// Only so many more descriptors than there are.
void limit_descriptors(int more) {
  const int next = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (next >= 0) close(next);
  rlimit limit{};
  (void)getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = static_cast<rlim_t>(std::max(next, 0) + more);
  (void)setrlimit(RLIMIT_NOFILE, &limit);
}

// Only so much more address space than there is.
void limit_memory(int more_kib) {
  long pages = 0;
  if (std::FILE* file = std::fopen("/proc/self/statm", "r")) {
    if (std::fscanf(file, "%ld", &pages) != 1) pages = 0;
    (void)std::fclose(file);
  }
  const auto bytes = static_cast<rlim_t>(pages) * static_cast<rlim_t>(sysconf(_SC_PAGESIZE)) +
                     static_cast<rlim_t>(more_kib) * 1024;
  const rlimit limit{bytes, bytes};
  (void)setrlimit(RLIMIT_AS, &limit);
}

// Waits for it, but not for ever.
void reap(int rank, pid_t child) {
  int status = 0;
  for (int turn = 0; turn < 3000; ++turn) {
    if (waitpid(child, &status, WNOHANG) == child) {
      if (WIFSIGNALED(status)) note(rank, "child_died %d", WTERMSIG(status));
      return;
    }
    pause_ms(1);
  }
  (void)kill(child, SIGKILL);
  (void)waitpid(child, &status, 0);
  note(rank, "child_hangs");
}

void fork_that_calls(RankLife& life, int) {
  const pid_t child = fork();
  if (child != 0) return reap(life.rank(), child);
  const gyreResult_t result = life.call_in_child();
  note(life.rank(), "child_told %d %s", result, gyreGetLastError(nullptr));
  _exit(0);
}

void fork_that_exits(RankLife& life, int) {
  const pid_t child = fork();
  if (child != 0) return reap(life.rank(), child);
  std::exit(0);
}

// A child keeps all descriptors open while its parent dies.
void fork_that_holds(RankLife&, int hold_ms) {
  const pid_t child = fork();
  if (child == 0) {
    for (const int standard : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) close(standard);
    pause_ms(hold_ms);
    _exit(0);
  }
  (void)kill(getpid(), SIGKILL);
}

// The rank's own thread does it, when it comes to its group.
void prepare_fork(RankLife& life, int) {
  life.prepare_fork([&life] {
    const pid_t child = fork();
    if (child != 0) return reap(life.rank(), child);
    const gyreResult_t result = gyreGroupEnd();
    note(life.rank(), "child_told %d %s", result, gyreGetLastError(nullptr));
    _exit(0);
  });
}

// As a program does that means to leave nothing open for what it starts.
void close_descriptors(RankLife&, int) { (void)close_range(STDERR_FILENO + 1, ~0U, 0); }

void limit_files(RankLife&, int) {
  const rlimit limit{64 << 10, 64 << 10};
  (void)setrlimit(RLIMIT_FSIZE, &limit);
}

void replace_process(RankLife&, int) {
  close(STDOUT_FILENO);
  close(STDERR_FILENO);
  execl("/bin/sleep", "sleep", "2", nullptr);
  _exit(3);
}

struct Deed {
  const char* kind;
  void (*act)(RankLife& life, int amount);
};
const Deed deeds[] = {
    {"kill", [](RankLife&, int) { (void)kill(getpid(), SIGKILL); }},
    {"stop", [](RankLife&, int) { (void)kill(getpid(), SIGSTOP); }},
    {"exit", [](RankLife&, int) { std::exit(0); }},
    {"quit", [](RankLife&, int) { _exit(0); }},
    {"exec", replace_process},
    {"abort", [](RankLife& life, int) { life.abort_all(); }},
    {"fork-call", fork_that_calls},
    {"fork-exit", fork_that_exits},
    {"fork-hold", fork_that_holds},
    {"fork-group", prepare_fork},
    {"closed", close_descriptors},
    {"file-size", limit_files},
    {"descriptors", [](RankLife&, int more) { limit_descriptors(more); }},
    {"memory", [](RankLife&, int more_kib) { limit_memory(more_kib); }},
    {"cue", [](RankLife&, int) {}},  // the driver acts
};

std::vector<Sabotage> of_process(const Errands& errands, int process) {
  std::vector<Sabotage> mine;
  for (const Sabotage& one : errands.sabotages)
    if (errands.process_of_rank[static_cast<std::size_t>(one.rank)] == process) mine.push_back(one);
  return mine;
}

}  // namespace

Saboteur::Saboteur(const Errands& errands, int process)
    : mine_(of_process(errands, process)), due_(mine_.size()) {
  for (std::size_t i = 0; i < mine_.size(); ++i) threads_.emplace_back([this, i] { wait_for(i); });
}

Saboteur::~Saboteur() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Saboteur::notice(int rank, int errand) {
  for (std::size_t i = 0; i < mine_.size(); ++i) {
    if (mine_[i].rank != rank || mine_[i].errand != errand) continue;
    const std::lock_guard lock(mutex_);
    due_[i] = true;
    changed_.notify_all();
  }
}

RankLife& Saboteur::life_of(int rank) {
  return **std::ranges::find(lives_, rank, [](const RankLife* life) { return life->rank(); });
}

void Saboteur::wait_for(std::size_t index) {
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return over_ || due_[index]; });
    if (!due_[index]) return;
  }
  const Sabotage& sabotage = mine_[index];
  std::this_thread::sleep_for(std::chrono::microseconds(sabotage.after_us));
  const Deed* deed = std::ranges::find(deeds, sabotage.kind, &Deed::kind);
  if (deed == std::end(deeds)) return note(sabotage.rank, "unknown %s", sabotage.kind.c_str());
  note(sabotage.rank, "fault %s", sabotage.kind.c_str());
  deed->act(life_of(sabotage.rank), sabotage.amount);
}

}  // namespace gyre::campaign
