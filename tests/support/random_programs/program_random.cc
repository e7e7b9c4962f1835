#include "tests/support/random_programs/program_random.h"

#include <algorithm>
#include <numeric>

namespace gyre::tests {
namespace {

constexpr std::size_t max_call_bytes = 1 << 20;
constexpr int timeout_of_legal_ms = 20'000, timeout_of_silent_ms = 1500;

std::map<std::string, std::string> draw_settings(Random& random, int ranks) {
  std::map<std::string, std::string> chosen;
  const bool shared = !random.one_in(4);
  chosen["GYRE_TRANSPORT"] = shared ? "shm" : "tcp";
  if (!shared && random.one_in(6)) chosen["GYRE_TCP_SECURITY"] = "tls";
  if (!shared && random.one_in(4)) chosen["GYRE_TCP_SOCKETS"] = "3";
  const std::vector<const char*> protocols = {"LL", "Simple", "Direct"};
  if (shared && random.one_in(2)) chosen["GYRE_PROTO"] = random.pick(protocols);
  if (random.one_in(8)) chosen["GYRE_BUFFSIZE"] = "8192";
  if (random.one_in(6)) {
    chosen["GYRE_REPRODUCIBLE"] = "1";
    return chosen;
  }
  const std::vector<std::pair<const char*, std::vector<const char*>>> algorithms = {
      {"allreduce", {"ring", "tree", "oneshot", "twoshot", "doubling", "star"}},
      {"reducescatter", {"ring", "twoshot", "window"}},
      {"allgather", {"ring", "twoshot", "window"}},
      {"broadcast", {"ring", "tree", "chain", "binomial", "star"}},
      {"reduce", {"ring", "tree", "chain", "binomial", "star"}}};
  std::string text;
  for (const auto& [collective, names] : algorithms)
    if (ranks > 1 && random.one_in(2))
      text += (text.empty() ? "" : ";") + std::string(collective) + ":" + random.pick(names);
  if (!text.empty()) chosen["GYRE_ALGO"] = text;
  return chosen;
}

}  // namespace

void draw_world(Random& random, Temper temper, Program& program) {
  const int ranks = random.one_in(8) ? 1 : 2 + random.below(7);
  const int threads = random.one_in(5) ? 1 : random.one_in(3) ? 1 + random.below(ranks) : ranks;
  for (int rank = 0; rank < ranks; ++rank)
    program.thread_of_rank.push_back(rank < threads ? rank : random.below(threads));
  program.by_init_all = threads == 1 && random.one_in(2);
  program.settings = draw_settings(random, ranks);
  // Communicators that gyreCommInitAll makes have no config to say it.
  if (program.by_init_all) program.settings["GYRE_TIMEOUT"] = temper == Temper::silent ? "2" : "20";
  program.timeout_ms = temper == Temper::silent ? timeout_of_silent_ms : timeout_of_legal_ms;
  program.streams_each = random.below(4);
  ProgramCommunicator root;
  root.members.resize(at(ranks));
  std::iota(root.members.begin(), root.members.end(), 0);
  root.blocking = program.by_init_all || !random.one_in(5);
  program.comms.push_back(root);
}

std::size_t draw_count(Random& random, ElementType type, std::size_t blocks) {
  const int sort = random.below(20);
  std::size_t count = 0;
  if (sort >= 2) count = 1 + at(random.below(16));
  if (sort >= 10) count = at(random.below(2000));
  if (sort >= 17) count = at(random.below(30'000));
  if (sort >= 19) count = at(random.below(300'000));
  return std::min(count, max_call_bytes / element_bytes(type) / blocks);
}

// Some blocks are empty, some lie apart from the others.
void draw_tables(Random& random, Call& call) {
  const int n = static_cast<int>(call.parts.size());
  const auto draw_counts = [&] {
    std::vector<std::size_t> counts;
    for (int i = 0; i < n; ++i)
      counts.push_back(random.one_in(4) ? 0 : at(random.below(static_cast<int>(call.count) + 1)));
    return counts;
  };
  const auto places = [&](const std::vector<std::size_t>& counts) {
    std::vector<std::size_t> list;
    std::size_t next = 0;
    for (const std::size_t count : counts) {
      next += random.one_in(3) ? at(random.below(5)) : 0;
      list.push_back(next);
      next += count;
    }
    return list;
  };
  if (call.verb == Verb::all_to_all_v) {
    for (Part& part : call.parts) {
      part.send_counts = draw_counts();
      part.send_places = places(part.send_counts);
    }
    for (int to = 0; to < n; ++to) {
      for (const Part& from : call.parts)
        call.parts[at(to)].receive_counts.push_back(from.send_counts[at(to)]);
      call.parts[at(to)].receive_places = places(call.parts[at(to)].receive_counts);
    }
    return;
  }
  const std::vector<std::size_t> counts = draw_counts(), starts = places(counts);
  for (Part& part : call.parts) {
    part.receive_counts = counts;
    part.receive_places = starts;
  }
}

}  // namespace gyre::tests
