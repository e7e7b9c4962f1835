// lib/tune: which algorithm and protocol are chosen, and how GYRE_ALGO and GYRE_PROTO change that.
#include "lib/tune/choice.h"

#include "tests/support/catch.h"

#include <string>

namespace choice_test {

using namespace gyre;
using plan::Collective;
using plan::Protocol;

namespace {

using topology::Medium;

std::vector<tune::Level> one_level(Medium medium, int ranks = 4) {
  return {{.ranks = ranks, .medium = medium}};
}

const tune::TuningInputs mapped{.ranks = 4,
                                .levels = one_level(Medium::host_memory),
                                .slot_bytes = 128 << 10,
                                .line_count = 128};
const tune::TuningInputs network{
    .ranks = 4, .levels = one_level(Medium::sockets), .slot_bytes = 128 << 10, .line_count = 128};

const tune::TuningInputs device{.ranks = 4,
                                .levels = one_level(Medium::gpu_memory),
                                .device = true,
                                .whole_lines = true,
                                .slot_bytes = 256 << 10,
                                .line_count = 4096};

Result<tune::Choice> choose(const tune::TuningInputs& inputs, std::uint64_t bytes,
                            const char* algorithm = "", const char* protocol = "") {
  Settings settings;
  settings.algorithm = algorithm;
  settings.protocol = protocol;
  auto allowed = tune::Allowed::parse(settings);
  if (!allowed.ok()) return allowed.status();
  return tune::choose(inputs, *allowed, {Collective::all_reduce, bytes});
}

}  // namespace

TEST_CASE("small calls go by lines, large ones by slots, and networks never by lines", "[tune]") {
  CHECK(choose(mapped, 8)->protocol == Protocol::line);
  CHECK(choose(mapped, 64 << 20)->protocol == Protocol::direct);
  for (std::uint64_t bytes = 0; bytes <= 1ULL << 33; bytes = bytes * 2 + 8) {
    const auto choice = choose(network, bytes);
    REQUIRE(choice.ok());
    CHECK((choice->protocol == Protocol::simple || choice->protocol == Protocol::direct));
    for (const std::uint32_t chunks : {1U, 4U}) {
      const std::uint64_t piece = tune::piece_bytes(network, choice->protocol, bytes, chunks);
      CHECK(piece > 0);
      CHECK(piece <= network.slot_bytes);
      CHECK(piece % 64 == 0);
    }
  }
}

TEST_CASE("two ranks cut no chunk that fits a slot, but for a NIC; more cut it in four", "[tune]") {
  const auto piece = [](Medium medium, int ranks, std::uint64_t bytes, std::uint32_t chunks) {
    const tune::TuningInputs inputs{.ranks = ranks,
                                    .levels = one_level(medium, ranks),
                                    .slot_bytes = 128 << 10,
                                    .line_count = 128};
    return tune::piece_bytes(inputs, Protocol::simple, bytes, chunks);
  };
  CHECK(piece(Medium::sockets, 2, 64 << 10, 2) == 32 << 10);
  CHECK(piece(Medium::sockets, 2, 64 << 10, 1) == 64 << 10);
  CHECK(piece(Medium::sockets, 2, 256 << 10, 2) == 128 << 10);
  CHECK(piece(Medium::sockets, 2, 64 << 20, 2) == 128 << 10);
  CHECK(piece(Medium::host_memory, 2, 256 << 10, 2) == 128 << 10);
  CHECK(piece(Medium::host_memory, 4, 256 << 10, 4) == 16 << 10);
  CHECK(piece(Medium::sockets, 4, 256 << 10, 4) == 16 << 10);
  CHECK(piece(Medium::sockets, 4, 256 << 10, 1) == 16 << 10);
  CHECK(piece(Medium::verbs, 2, 256 << 10, 2) == 32 << 10);
}

TEST_CASE("what sockets take from lent memory may be larger than what is copied", "[tune]") {
  const auto piece = [](int ranks, Protocol protocol, std::uint32_t chunks) {
    const tune::TuningInputs inputs{.ranks = ranks,
                                    .levels = one_level(Medium::sockets, ranks),
                                    .slot_bytes = 128 << 10,
                                    .lent_bytes = 512 << 10};
    return tune::piece_bytes(inputs, protocol, 64 << 20, chunks);
  };
  CHECK(piece(2, Protocol::direct, 2) == 512 << 10);
  CHECK(piece(2, Protocol::simple, 2) == 128 << 10);
  CHECK(piece(2, Protocol::direct, 1) == 512 << 10);
  CHECK(piece(4, Protocol::direct, 4) == 512 << 10);
  CHECK(piece(4, Protocol::direct, 1) == 128 << 10);  // it is passed on
}

TEST_CASE("ranks that share memory on their host use no wire alone", "[tune]") {
  const Medium wire = GENERATE(Medium::sockets, Medium::ucx);
  const auto alone = [=](int ranks_on_host, Medium on_host) {
    tune::TuningInputs inputs;
    inputs.levels = {{.parts = 4, .ranks = ranks_on_host, .medium = on_host},
                     {.part = tune::LevelPart::network, .ranks = 8, .medium = wire}};
    return inputs.uses_alone(wire);
  };
  CHECK(alone(1, Medium::host_memory));
  CHECK(alone(2, wire));
  CHECK_FALSE(alone(2, Medium::host_memory));
  CHECK_FALSE(alone(0, Medium::host_memory));  // unequal numbers
}

TEST_CASE("several hosts of several ranks take hierarchical above 1 MiB, many ranks before",
          "[tune]") {
  const auto name = [](int ranks, int hosts, std::uint64_t bytes) {
    tune::TuningInputs inputs = network;
    inputs.ranks = ranks;
    inputs.levels = {{.parts = hosts, .ranks = ranks / hosts},
                     {.part = tune::LevelPart::network, .ranks = ranks, .medium = Medium::sockets}};
    return std::string(choose(inputs, bytes)->algorithm->name);
  };
  CHECK(name(8, 4, 512 << 10) == "twoshot");
  CHECK(name(8, 4, 1 << 20) == "ring");
  CHECK(name(8, 4, (1 << 20) + 4) == "hierarchical");
  CHECK(name(32, 4, 1 << 20) == "hierarchical");
  for (int hosts : {1, 8}) CHECK(name(8, hosts, 64 << 20) == "ring");
}

TEST_CASE("a setting wins over the table, also for one collective alone", "[tune]") {
  CHECK(choose(mapped, 8, "ring")->algorithm->name == "ring");
  CHECK(choose(mapped, 8, "Ring,TREE")->algorithm->name != "oneshot");
  CHECK(choose(mapped, 8, "^oneshot")->algorithm->name != "oneshot");
  for (const char* name : {"allreduce", "all_reduce", "AllReduce", "all-reduce"}) {
    const std::string setting = std::string(name) + ":tree;broadcast:ring";
    CHECK(choose(mapped, 8, setting.c_str())->algorithm->name == "tree");
  }
  CHECK(choose(mapped, 8, "broadcast:ring")->algorithm->name == "oneshot");
  CHECK(choose(mapped, 1 << 20, "", "LL")->protocol == Protocol::line);
  CHECK(choose(mapped, 8, "", "simple")->protocol == Protocol::simple);
  CHECK(choose(mapped, 8, "", "^LL,LL128")->protocol != Protocol::line);
}

TEST_CASE("a setting that is not understood or leaves nothing is an error", "[tune]") {
  for (const char* wrong : {"rnig", "ring,", "", "ring;;tree", "allreduce:", "bogus:ring", "^"}) {
    if (*wrong == '\0') continue;
    INFO(wrong);
    CHECK_FALSE(choose(mapped, 8, wrong).ok());
  }
  CHECK_FALSE(choose(mapped, 8, "", "LL256").ok());
  CHECK_FALSE(choose(network, 8, "", "LL").ok());
  CHECK_FALSE(choose(mapped, 8, "", "LL128").ok());
}

TEST_CASE("what the settings rule out is said, and why", "[tune]") {
  const auto refusal = [](const Result<tune::Choice>& choice) {
    return choice.ok() ? std::string("a choice") : std::string(choice.status().message());
  };
  CHECK(refusal(choose(mapped, 8, "allreduce:bruck")) ==
        "GYRE_ALGO (or reproducible) allows no algorithm for all_reduce");
  CHECK(refusal(choose(mapped, 8, "", "LL128")) ==
        "GYRE_PROTO allows no protocol that works here: the host has LL (line), Simple and Direct");
  CHECK(refusal(choose(network, 8, "", "LL")) ==
        "GYRE_PROTO allows no protocol that works here: some ranks do not share memory, and "
        "between those there are Simple and Direct");
  tune::TuningInputs relayed = device;
  relayed.levels = one_level(Medium::sockets);
  CHECK(refusal(choose(relayed, 8, "", "LL")) ==
        "GYRE_PROTO allows no protocol that works here: some ranks do not share memory, and "
        "between those there is only Simple");
  tune::TuningInputs torn = device;
  torn.whole_lines = false;
  CHECK(refusal(choose(torn, 8, "", "LL128")) ==
        "GYRE_PROTO allows no protocol that works here: between these GPUs lines of 128 bytes need "
        "not arrive whole, so there are LL, Simple and Direct");
}

TEST_CASE("reproducible allows only algorithms in rank order with one rounding", "[tune]") {
  tune::TuningInputs inputs = network;
  inputs.reproducible = true;
  for (int ranks : {1, 2, 5, 17, 64, 256}) {
    inputs.ranks = ranks;
    for (std::uint64_t bytes : {8ULL, 8192ULL, 1ULL << 20, 1ULL << 30}) {
      const auto choice = choose(inputs, bytes);
      REQUIRE(choice.ok());
      CHECK(choice->algorithm->order == plan::SumOrder::rank);
      CHECK(choice->algorithm->roundings == plan::Roundings::one);
    }
  }
}

TEST_CASE("between GPUs small calls go by lines, middle ones by long lines if they can", "[tune]") {
  CHECK(choose(device, 8)->protocol == Protocol::line);
  CHECK(choose(device, 512 << 10)->protocol == Protocol::line128);
  CHECK(choose(device, 64 << 20)->protocol == Protocol::direct);
  CHECK(choose(device, 8, "", "LL128")->protocol == Protocol::line128);
  tune::TuningInputs torn = device;
  torn.whole_lines = false;
  for (std::uint64_t bytes = 8; bytes <= 1ULL << 33; bytes *= 2)
    CHECK(choose(torn, bytes)->protocol != Protocol::line128);
  const auto refused = choose(torn, 8, "", "LL128");
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.status().full_text().find("need not arrive whole") != std::string::npos);
}

TEST_CASE("GPUs that memory does not reach have slots alone", "[tune]") {
  tune::TuningInputs relayed = device;
  relayed.levels = one_level(Medium::sockets);
  for (std::uint64_t bytes = 8; bytes <= 1ULL << 33; bytes *= 2)
    CHECK(choose(relayed, bytes)->protocol == Protocol::simple);
}

TEST_CASE("where wires reach lent memory, large calls lend it, unless the settings forbid it",
          "[tune]") {
  tune::TuningInputs carried = network;
  const Medium wire = GENERATE(Medium::verbs, Medium::sockets);
  carried.ranks = GENERATE(2, 4);
  carried.levels = one_level(wire, carried.ranks);
  std::uint64_t max_staged_bytes = 512 << 10;
  if (wire == Medium::sockets) max_staged_bytes = carried.ranks == 2 ? 64 << 10 : 256 << 10;
  for (std::uint64_t bytes = 8; bytes <= 1ULL << 33; bytes *= 2) {
    CAPTURE(bytes);
    const auto choice = choose(carried, bytes);
    REQUIRE(choice.ok());
    const Protocol expected = bytes > max_staged_bytes ? Protocol::direct : Protocol::simple;
    CHECK(choice->protocol == expected);
    tune::TuningInputs sockets = network;
    sockets.ranks = carried.ranks;
    CHECK(choice->algorithm == choose(sockets, bytes)->algorithm);
    CHECK(choose(carried, bytes, "", "^Direct")->protocol == Protocol::simple);
    CHECK(choose(carried, bytes, "", "Direct")->protocol == Protocol::direct);
  }
  const auto refused = choose(carried, 8 << 20, "", "LL");
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.status().full_text().find("there are Simple and Direct") != std::string::npos);
  // Each rank knows its own counts alone, and chooses by itself.
  Settings settings;
  const auto allowed = tune::Allowed::parse(settings);
  REQUIRE(allowed.ok());
  CHECK(tune::choose(carried, *allowed, {Collective::all_to_all, tune::CallSize::private_bytes})
            ->protocol == Protocol::simple);
}

}  // namespace choice_test
