// What the programs here share: ranks that are processes of a launcher or threads of one process,
// and an end with the reason where something fails.
#pragma once

#include <gyre/gradsync.h>

#include <CLI/CLI.hpp>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

namespace gyre::bench {

[[noreturn]] inline void fail(const std::string& text) {
  std::fprintf(stderr, "%s: %s\n", program_invocation_short_name, text.c_str());
  std::exit(1);
}

// The program's options. Ends it after --help, and with exit code 2 where they are wrong.
inline void parse(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    std::exit(app.exit(error) == 0 ? 0 : 2);
  }
}

// Of a function of gradsync.h; and of one of gyre.h.
inline void expect(gyreResult_t result) {
  if (result != gyreSuccess) fail(gyreGradGetLastError());
}
inline void expect(gyreResult_t result, gyreComm_t comm) {
  if (result != gyreSuccess) fail(gyreGetLastError(comm));
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

// body(comm) for the rank that this process is, as its launcher says.
template <typename Body>
void run_process(const Body& body) {
  gyreConfig_t config = GYRE_CONFIG_INITIALIZER;
  config.device = GYRE_DEVICE_HOST;
  gyreComm_t comm = nullptr;
  expect(gyreCommInitEnv(&comm, &config), nullptr);
  body(comm);
  expect(gyreCommDestroy(comm), nullptr);
}

}  // namespace gyre::bench
