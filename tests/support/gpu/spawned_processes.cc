#include "tests/support/gpu/spawned_processes.h"

#include "tests/support/gpu/gpu_driver.h"

#include <array>
#include <cstdlib>
#include <spawn.h>
#include <unistd.h>

namespace gyre::tests {
namespace {

constexpr std::string_view word = "--as-process";
constexpr int argument_count = 6;  // the program, the word, name, process, board, scale

int run_as_process(const CudaProcessCase& one, int process, int board_file) {
  const ProcessBoard board(board_file);
  std::string complaint;
  {
    CudaProcess here(one.all, process, board, gpu_driver());
    complaint = carry_out(here, one.body, !one.dying.empty());
  }
  complaint += end_gpu_driver();
  board.complain(process, complaint);
  return complaint.empty() ? 0 : 1;
}

}  // namespace

std::vector<std::string> spawn_processes(const CudaProcessCase& one, ProcessScale scale) {
  const ProcessBoard board;
  std::vector<int> children;
  for (int process = 0; process < one.all.processes; ++process) {
    std::array<std::string, argument_count> words = {"/proc/self/exe",
                                                     std::string(word),
                                                     one.name,
                                                     std::to_string(process),
                                                     std::to_string(board.file()),
                                                     std::to_string(static_cast<int>(scale))};
    std::array<char*, argument_count + 1> pointers{};
    for (std::size_t i = 0; i < words.size(); ++i) pointers[i] = words[i].data();
    pid_t child = 0;
    const int error =
        posix_spawn(&child, words[0].c_str(), nullptr, nullptr, pointers.data(), environ);
    if (error != 0) std::abort();
    children.push_back(child);
  }
  return collect_processes(one.all, board, children, one.dying);
}

std::optional<int> ran_as_process(int count, char** arguments) {
  if (count != argument_count || arguments[1] != word) return std::nullopt;
  const auto scale = static_cast<ProcessScale>(std::atoi(arguments[5]));
  for (const CudaProcessCase& one : cuda_process_cases(scale))
    if (one.name == arguments[2])
      return run_as_process(one, std::atoi(arguments[3]), std::atoi(arguments[4]));
  return 2;
}

}  // namespace gyre::tests
