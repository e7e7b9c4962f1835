// Runs a program: by threads of this process, or by processes that are forked from it.
#include "tests/support/random_programs/program_run.h"

#include "tests/support/random_programs/program_thread.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <new>
#include <set>
#include <sys/mman.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace gyre::tests {
namespace {

constexpr int patience_s = 90;

// The threads of one process; process 0 makes the unique id.
void run_process(const Program& program, ProgramBoard& board, int process) {
  const WithVariables variables(program.settings);
  if (!program.by_init_all && process == program.process_of_rank(0)) {
    if (gyreGetUniqueId(&board.id) != gyreSuccess)
      return board.complain(std::string("gyreGetUniqueId: ") + gyreGetLastError(nullptr));
    board.has_id = 1;
  }
  Stage stage(program, board, process);
  std::set<int> used;
  for (int rank = 0; rank < program.ranks(); ++rank)
    if (program.process_of_rank(rank) == process)
      used.insert(program.thread_of_rank[static_cast<std::size_t>(rank)]);
  std::vector<std::thread> threads;
  for (const int thread : used)
    threads.emplace_back([&stage, thread] { RankThread(stage, thread).run(); });
  for (std::thread& thread : threads) thread.join();
}

// A program that breaks nothing has nothing to say.
bool is_quiet(const Program& program) {
  return std::ranges::none_of(
      program.steps, [](const Step& step) { return std::holds_alternative<Break>(step.act); });
}

// What was written to a file without a name.
std::string text_of(int file) {
  char text[900];
  const ssize_t bytes = pread(file, text, sizeof text, 0);
  return {text, static_cast<std::size_t>(std::max<ssize_t>(bytes, 0))};
}

// Waits for all of them; what is wrong with how they end.
void await(std::vector<pid_t> children, ProgramBoard& board) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(patience_s);
  for (std::size_t process = 0; process < children.size(); ++process) {
    int status = 0;
    bool hangs = false;
    while (waitpid(children[process], &status, hangs ? 0 : WNOHANG) == 0) {
      hangs = std::chrono::steady_clock::now() > until;
      if (hangs) (void)kill(children[process], SIGKILL);
      if (!hangs) std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
    const std::string name = "process " + std::to_string(process);
    if (hangs)
      board.complain(name + " hangs");
    else if (status != 0)
      board.complain(name + " ends with status " + std::to_string(status));
  }
}

}  // namespace

std::string run_program(const Program& program) {
  const auto board = std::make_unique<ProgramBoard>();
  run_process(program, *board, 0);
  return board->all();
}

std::string run_in_processes(const Program& program) {
  void* const memory = mmap(nullptr, sizeof(ProgramBoard), PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return "no memory that processes share";
  ProgramBoard& board = *new (memory) ProgramBoard;
  const int log = memfd_create("program-log", MFD_CLOEXEC);
  std::fflush(nullptr);  // or each process writes it again
  std::vector<pid_t> children;
  for (int process = 0; process < program.processes(); ++process) {
    const pid_t child = fork();
    if (child == 0) {
      (void)dup2(log, STDERR_FILENO);
      run_process(program, board, process);
      _exit(0);
    }
    if (child < 0) board.complain("fork failed");
    if (child > 0) children.push_back(child);
  }
  await(children, board);
  if (const std::string said = text_of(log); is_quiet(program) && !said.empty())
    board.complain("it says: " + said);
  (void)close(log);
  const std::string wrong = board.all();
  (void)munmap(memory, sizeof(ProgramBoard));
  return wrong;
}

}  // namespace gyre::tests
