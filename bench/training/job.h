// Shared by the programs here: ranks that are processes of a launcher or threads of one process.
#pragma once

#include "bench/training/failure.h"
#include "lib/command_line/command_line.h"

#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

namespace gyre::bench {

using command_line::CommandLine, command_line::any_text, command_line::number, command_line::one_of,
    command_line::whole;

// The program's options. Ends it after --help, and with exit code 2 where they are wrong.
inline void parse(CommandLine& line, int argc, char** argv) {
  if (const std::optional<int> code = line.read(argc, argv)) std::exit(*code);
}

inline int rank_of(gyreComm_t comm) {
  int rank = 0;
  expect(gyreCommUserRank(comm, &rank), comm);
  return rank;
}
inline int size_of(gyreComm_t comm) {
  int size = 0;
  expect(gyreCommCount(comm, &size), comm);
  return size;
}

// body(comm) in so many threads, a rank each.
template <typename Body>
void run_threads(int ranks, const Body& body) {
  gyreUniqueId id;
  expect(gyreGetUniqueId(&id), nullptr);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      gyreConfig_t config = GYRE_CONFIG_INITIALIZER;
      config.device = GYRE_DEVICE_HOST;
      gyreComm_t comm = nullptr;
      expect(gyreCommInitRankConfig(&comm, ranks, id, rank, &config), nullptr);
      body(comm);
      expect(gyreCommDestroy(comm), nullptr);
    });
  for (std::thread& thread : threads) thread.join();
}

// body(comm) for the rank that this process is, as its launcher says. Where nothing says so it is
// an error, or, if it `may_be_alone`, the only rank.
template <typename Body>
void run_process(const Body& body, bool may_be_alone = false) {
  gyreConfig_t config = GYRE_CONFIG_INITIALIZER;
  config.device = GYRE_DEVICE_HOST;
  gyreComm_t comm = nullptr;
  if (const gyreResult_t joined = gyreCommInitEnv(&comm, &config); joined != gyreSuccess) {
    const std::string why = gyreGetLastError(nullptr);
    // A launcher that has said only half of it is an error too; then the text goes on otherwise.
    constexpr const char* nothing_said = "no variable says which rank this process is. Start";
    if (!may_be_alone || joined != gyreInvalidUsage || why.find(nothing_said) == std::string::npos)
      fail(why);
    return run_threads(1, body);
  }
  body(comm);
  expect(gyreCommDestroy(comm), nullptr);
}

}  // namespace gyre::bench
