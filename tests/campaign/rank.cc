// A process of a trial of the campaign: some ranks, each on a thread. It ends when its ranks have
// left, or are idle and the driver has closed its input.
// usage: campaign_rank SCRIPT PROCESS
#include "tests/campaign/diary.h"
#include "tests/campaign/rank_life.h"
#include "tests/campaign/saboteur.h"

#include <algorithm>
#include <cstdlib>
#include <latch>
#include <memory>
#include <thread>
#include <vector>

using namespace gyre::campaign;

namespace {

constexpr int lifetime_s = 150;

// A tracer is put on this process meanwhile.
void wait_for_tracer() {
  char byte = 0;
  note(-1, "ready");
  [[maybe_unused]] const ssize_t got = read(STDIN_FILENO, &byte, 1);
}

void wait_for_driver() {
  char byte = 0;
  while (read(STDIN_FILENO, &byte, 1) > 0) {
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  alarm(lifetime_s);
  const Errands errands = read_errands(argv[1]);
  const int process = std::atoi(argv[2]);
  std::vector<std::unique_ptr<RankLife>> lives;
  {
    Saboteur saboteur(errands, process);
    const auto notice = [&](int rank, int errand) { saboteur.notice(rank, errand); };
    for (int rank = 0; rank < errands.ranks(); ++rank)
      if (errands.process_of_rank[static_cast<std::size_t>(rank)] == process) {
        lives.push_back(std::make_unique<RankLife>(errands, rank, notice));
        saboteur.adopt(*lives.back());
      }
    std::latch go(1);  // so that no thread of the campaign's own can fail to start
    std::vector<std::thread> threads;
    for (const auto& life : lives)
      threads.emplace_back([&] {
        go.wait();
        life->run();
      });
    if (errands.attended == process) wait_for_tracer();
    go.count_down();
    for (std::thread& thread : threads) thread.join();
    const bool all_left =
        std::ranges::all_of(lives, [](const auto& life) { return life->has_left(); });
    if (!all_left) wait_for_driver();
  }
  for (const auto& life : lives) life->end();
  note(-1, "ends");
  return 0;
}
