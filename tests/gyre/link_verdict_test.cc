// gyre link without a job: rounds of pairs, the pattern, verdicts on made-up measurements, and what
// the reports say of them.
#include "lib/topology/xml.h"
#include "tests/support/catch.h"
#include "tools/gyre/link_pattern.h"
#include "tools/gyre/link_report.h"
#include "tools/gyre/link_rounds.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <set>

namespace link_verdict_test {

using namespace gyre;
using namespace gyre::tools;

namespace {

std::vector<LinkPair> all_pairs(int ranks) {
  std::vector<LinkPair> pairs;
  for (int low = 0; low < ranks; ++low)
    for (int high = low + 1; high < ranks; ++high) pairs.push_back({low, high});
  return pairs;
}

std::vector<int> hosts_of(int hosts, int ranks_per_host) {
  std::vector<int> all;
  for (int rank = 0; rank < hosts * ranks_per_host; ++rank) all.push_back(rank / ranks_per_host);
  return all;
}

// Every pair once; no rank, and no host of a pair across hosts, twice in a round.
void check_rounds(const LinkRounds& rounds, const std::vector<LinkPair>& pairs,
                  const std::vector<int>& host_of_rank) {
  std::multiset<LinkPair> met;
  for (const std::vector<LinkPair>& round : rounds) {
    std::set<int> ranks, hosts;
    for (const LinkPair& pair : round) {
      met.insert(pair);
      CHECK(ranks.insert(pair.low).second);
      CHECK(ranks.insert(pair.high).second);
      const int host = host_of_rank[static_cast<std::size_t>(pair.low)];
      const int other = host_of_rank[static_cast<std::size_t>(pair.high)];
      if (host == other) continue;
      CHECK(hosts.insert(host).second);
      CHECK(hosts.insert(other).second);
    }
  }
  CHECK(met == std::multiset<LinkPair>(pairs.begin(), pairs.end()));
}

// Ranks on a host each, in a ring of good links over tcp.
struct MadeUpRing {
  LinkJobFacts facts;
  std::vector<LinkMeasurement> links;

  explicit MadeUpRing(int ranks) {
    facts.ranks = ranks;
    facts.plans = {"ring (all-reduce of 64 MiB)"};
    facts.seconds = 2.5;
    facts.reported.assign(static_cast<std::size_t>(ranks), true);
    for (int rank = 0; rank < ranks; ++rank) {
      facts.host_names.push_back("node" + std::to_string(rank));
      facts.host_of_rank.push_back(rank);
      const int next = (rank + 1) % ranks;
      LinkMeasurement link;
      link.pair = {std::min(rank, next), std::max(rank, next)};
      link.round = rank % 2;
      link.kind = "tcp by eth0";
      link.best_latency_us = 20 + rank;
      link.latency_us = 30 + rank;
      link.latency_p99_us = 90;
      link.up = {1.1e9 + 1e6 * rank, 16 << 20, 64 << 20, {}};
      link.down = {1.1e9, 16 << 20, 64 << 20, {}};
      link.both_bytes_per_s = 2.1e9;
      links.push_back(link);
    }
  }
  LinkVerdict verdict(double slow_below = 0.5) const {
    return judge_links(facts, links, find_expectations(links), slow_below);
  }
};

int attribute(const topology::XmlElement& element, std::string_view name) {
  return std::stoi(std::string(element.attribute(name)));
}

void collect(const topology::XmlElement& element, std::string_view name,
             std::vector<const topology::XmlElement*>& found) {
  if (element.name == name) found.push_back(&element);
  for (const topology::XmlElement& child : element.children) collect(child, name, found);
}

}  // namespace

TEST_CASE("rounds hold each pair once, and no rank or host's cable twice", "[link]") {
  for (const auto& [hosts, ranks_per_host] :
       {std::pair(1, 2), std::pair(1, 7), std::pair(1, 8), std::pair(2, 1), std::pair(5, 1),
        std::pair(4, 2), std::pair(3, 5)}) {
    CAPTURE(hosts, ranks_per_host);
    const std::vector<int> where = hosts_of(hosts, ranks_per_host);
    const std::vector<LinkPair> pairs = all_pairs(hosts * ranks_per_host);
    check_rounds(find_rounds(pairs, where), pairs, where);
  }
  CHECK(find_rounds({}, {0}).empty());
}

TEST_CASE("all pairs of one host take as few rounds as a tournament does", "[link]") {
  for (const int ranks : {2, 3, 8, 9, 64}) {
    CAPTURE(ranks);
    const LinkRounds rounds = find_rounds(all_pairs(ranks), hosts_of(1, ranks));
    CHECK(rounds.size() == static_cast<std::size_t>(ranks % 2 == 0 ? ranks - 1 : ranks));
  }
}

TEST_CASE("a ring takes three rounds at most, whatever its length", "[link]") {
  for (const int ranks : {3, 4, 7, 16, 65}) {
    CAPTURE(ranks);
    std::vector<LinkPair> ring = {{0, ranks - 1}};
    for (int rank = 0; rank + 1 < ranks; ++rank) ring.push_back({rank, rank + 1});
    const std::vector<int> where = hosts_of(ranks, 1);
    const LinkRounds rounds = find_rounds(ring, where);
    check_rounds(rounds, ring, where);
    CHECK(rounds.size() <= 3);
  }
}

TEST_CASE("the pattern finds each wrong byte, its place and its bits", "[link]") {
  for (const std::size_t bytes : {1U, 7U, 8U, 4095U, 4096U, 4097U, 100'003U}) {
    CAPTURE(bytes);
    std::vector<std::byte> message(bytes);
    fill_pattern(message, 77);
    LinkDamage damage;
    check_pattern(message, 77, 0, damage);
    CHECK(damage.bytes + damage.messages == 0);
    const std::size_t place = bytes / 2;
    const auto sent = std::to_integer<std::uint8_t>(message[place]);
    message[place] ^= std::byte{0x81};
    check_pattern(message, 77, 5, damage);
    CHECK(damage.messages == 1);
    CHECK(damage.bytes == 1);
    CHECK(damage.bits == 2);
    CHECK(damage.first_message == 5);
    CHECK(damage.first_offset == place);
    CHECK(damage.sent == sent);
    CHECK(damage.received == (sent ^ 0x81));
    message[bytes - 1] ^= std::byte{1};
    check_pattern(message, 77, 6, damage);
    CHECK(damage.messages == 2);
    CHECK(damage.first_message == 5);
  }
}

TEST_CASE("another seed, and a message that has slipped, are not the pattern", "[link]") {
  std::vector<std::byte> message(8192);
  fill_pattern(message, 1);
  LinkDamage damage;
  check_pattern(message, 2, 0, damage);
  CHECK(damage.bytes > 8000);
  std::rotate(message.begin(), message.begin() + 8, message.end());
  damage = {};
  check_pattern(message, 1, 0, damage);
  CHECK(damage.bytes > 8000);
}

TEST_CASE("links that are alike are fine, and nothing is advised", "[link]") {
  const LinkVerdict verdict = MadeUpRing(4).verdict();
  CHECK_FALSE(verdict.names_any());
  CHECK(verdict.sentence ==
        "All 4 links are as expected: none is below 50 % of its kind, and none changed a byte of "
        "0.537 GB.");
  CHECK(verdict.advice.empty());
  REQUIRE(verdict.kinds.size() == 1);
  CHECK(verdict.kinds.front().links == 4);
}

TEST_CASE("a link at a tenth of its kind's rate is named, with the direction", "[link]") {
  MadeUpRing ring(4);
  ring.links[2].down.bytes_per_s = 0.11e9;
  const LinkVerdict verdict = ring.verdict();
  REQUIRE(verdict.names_any());
  const JudgedLink& worst = verdict.links.front();
  CHECK(worst.measured.pair == LinkPair{2, 3});
  CHECK(worst.finding == LinkFinding::slow);
  CHECK(worst.share == Approx(0.1).epsilon(0.02));
  CHECK(verdict.links[1].finding == LinkFinding::fine);
  CHECK(verdict.sentence.find("rank 2 (node2) and rank 3 (node3) is slow: 0.11 GB/s from rank 3 to "
                              "2, 10 % of the 1.1 GB/s") != std::string::npos);
  CHECK(verdict.advice.find("node2 and node3") != std::string::npos);
  CHECK_FALSE(ring.verdict(0.05).names_any());
}

TEST_CASE("of two links the slow one does not lower what is expected", "[link]") {
  MadeUpRing ring(3);
  ring.links.pop_back();
  ring.links[1].up.bytes_per_s = ring.links[1].down.bytes_per_s = 0.11e9;
  ring.links[1].both_bytes_per_s = 0.2e9;
  const LinkVerdict verdict = ring.verdict();
  CHECK(verdict.links.front().measured.pair == LinkPair{1, 2});
  CHECK(verdict.links.front().finding == LinkFinding::slow);
  CHECK(verdict.links.back().finding == LinkFinding::fine);
}

TEST_CASE("links that are all slow are named by the machine's figure", "[link]") {
  MadeUpRing ring(4);
  for (LinkMeasurement& link : ring.links) link.known_bytes_per_s = 12.5e9;
  const LinkVerdict verdict = ring.verdict();
  CHECK(std::ranges::all_of(
      verdict.links, [](const JudgedLink& link) { return link.finding == LinkFinding::slow; }));
  CHECK(verdict.kinds.front().is_machine);
  CHECK(verdict.links.front().reason.find("machine's port") != std::string::npos);
}

TEST_CASE("links of different kinds are not compared", "[link]") {
  MadeUpRing ring(4);
  ring.links[0].kind = "shm, CACHE";
  ring.links[0].up.bytes_per_s = ring.links[0].down.bytes_per_s = 20e9;
  ring.links[0].both_bytes_per_s = 40e9;
  CHECK_FALSE(ring.verdict().names_any());
}

TEST_CASE("a late link is named, unless it is late by some microseconds or not always", "[link]") {
  MadeUpRing ring(4);
  ring.links[1].best_latency_us = 40;
  ring.links[2].latency_us = ring.links[2].latency_p99_us = 9000;  // of a busy processor
  CHECK_FALSE(ring.verdict().names_any());
  ring.links[1].best_latency_us = 5000;
  ring.links[1].is_crowded = true;
  CHECK_FALSE(ring.verdict().names_any());
  CHECK(link_text(ring.facts, ring.verdict()).find("~") != std::string::npos);
  ring.links[1].is_crowded = false;
  const LinkVerdict verdict = ring.verdict();
  CHECK(verdict.links.front().measured.pair == LinkPair{1, 2});
  CHECK(verdict.links.front().reason.find("5000.0 us one way at best") != std::string::npos);
}

TEST_CASE("a link that is measured again alone is held against what was expected before",
          "[link]") {
  MadeUpRing ring(4);
  ring.links[1].up.bytes_per_s = 0.3e9;
  const std::vector<KindExpectation> kinds = find_expectations(ring.links);
  for (const std::size_t again : {1U, 2U, 3U})  // each alone is far faster than beside others
    ring.links[again].up.bytes_per_s = ring.links[again].down.bytes_per_s = 5e9;
  CHECK_FALSE(judge_links(ring.facts, ring.links, kinds, 0.5).names_any());
  CHECK(judge_links(ring.facts, ring.links, find_expectations(ring.links), 0.5).names_any());
}

TEST_CASE("a changed byte counts more than any rate, and is told whole", "[link]") {
  MadeUpRing ring(4);
  ring.links[0].up.bytes_per_s = 0.01e9;
  ring.links[1].up.damage = {3, 3, 4, 7, 500, 0x10, 0x90};
  const LinkVerdict verdict = ring.verdict();
  CHECK(verdict.links[0].finding == LinkFinding::corrupting);
  CHECK(verdict.links[0].reason ==
        "rank 1 to 2 changed 3 bytes (4 bits) in 3 messages, first at byte 500 of message 7: sent "
        "0x10, received 0x90");
  CHECK(verdict.links[1].finding == LinkFinding::slow);
  CHECK(verdict.sentence ==
        "2 of 4 links are named, and rank 1 (node1) is an end of each: 1 corrupting (1-2), 1 slow "
        "(0-1).");
  CHECK(verdict.advice.starts_with("do not start the job over this link"));
}

TEST_CASE("a host that is an end of all named links is said", "[link]") {
  MadeUpRing ring(4);
  ring.facts.host_names = {"a", "b"};
  ring.facts.host_of_rank = {0, 1, 1, 0};
  ring.links[0].up.bytes_per_s = ring.links[2].up.bytes_per_s = 0.1e9;
  CHECK(ring.verdict().sentence.find("host a is an end of each") != std::string::npos);
}

TEST_CASE("a link that broke off is dead, and its rank only if all of it is", "[link]") {
  MadeUpRing ring(4);
  ring.links[1].failure = "no answer in 2 s";
  ring.facts.reported[2] = false;
  LinkVerdict verdict = ring.verdict();
  CHECK(verdict.links.front().finding == LinkFinding::dead);
  CHECK(verdict.silent_ranks.empty());
  CHECK(verdict.sentence.find("rank 1 (node1) and rank 2 (node2) is dead") != std::string::npos);
  ring.links[2].failure = "no answer in 2 s";
  verdict = ring.verdict();
  CHECK(verdict.silent_ranks == std::vector<int>{2});
  CHECK(verdict.sentence == "Rank 2 (node2) answered no more.");
  ring.links[3].up.bytes_per_s = 0.1e9;
  CHECK(ring.verdict().sentence ==
        "Rank 2 (node2) answered no more; of the other links 1 slow (0-3).");
  ring.facts.reported[2] = true;
  CHECK(ring.verdict().silent_ranks.empty());
}

TEST_CASE("a rank that ended after good rounds is silent, too", "[link]") {
  MadeUpRing ring(4);
  ring.facts.reported[1] = false;
  ring.links[0].round = 0;  // 0-1 went well
  ring.links[1].round = 1;  // 1-2 did not
  ring.links[1].failure = "broke off";
  ring.links.push_back(ring.links[1]);
  ring.links.back().pair = {1, 3};
  ring.links.back().round = 2;
  CHECK(ring.verdict().silent_ranks == std::vector<int>{1});
  ring.links[0].round = 3;  // it answered later
  CHECK(ring.verdict().silent_ranks.empty());
}

TEST_CASE("the text begins with the worst link and ends with what to do", "[link]") {
  MadeUpRing ring(4);
  ring.links[2].up.bytes_per_s = 0.11e9;
  const std::string text = link_text(ring.facts, ring.verdict());
  CAPTURE(text);
  const std::size_t worst = text.find("2 - 3 (node2 - node3)"), other = text.find("0 - 1 (node0");
  REQUIRE(worst != std::string::npos);
  CHECK(worst < other);
  CHECK(text.find("SLOW") != std::string::npos);
  CHECK(text.find("ring (all-reduce of 64 MiB)") != std::string::npos);
  CHECK(text.find("Next: look at both ends") != std::string::npos);
}

TEST_CASE("the JSON has what was measured, and null where nothing was", "[link]") {
  MadeUpRing ring(4);
  ring.links[1].up.damage = {1, 1, 1, 0, 9, 0x01, 0x00};
  ring.links[3].failure = "no answer in 2 s";
  ring.links[3].both_bytes_per_s = 0;
  const auto made = nlohmann::json::parse(link_json(ring.facts, ring.verdict()));
  CHECK(made["schema"] == "gyre-link-1");
  REQUIRE(made["links"].size() == 4);
  const auto& corrupting = made["links"][0];
  CHECK(corrupting["ranks"] == nlohmann::json{1, 2});
  CHECK(corrupting["finding"] == "corrupting");
  CHECK(corrupting["directions"][0]["damage"]["first"]["offset"] == 9);
  CHECK(corrupting["directions"][1]["damage"].is_null());
  const auto& dead = made["links"][1];
  CHECK(dead["finding"] == "dead");
  CHECK(dead["both_bytes_per_s"].is_null());
  CHECK(dead["failure"] == "no answer in 2 s");
  CHECK(made["links"][2]["reason"].is_null());
}

TEST_CASE("the heat map is XML within its width, whose cells lie apart from the legend", "[link]") {
  for (const int ranks : {2, 5, 16, 64, 200}) {
    CAPTURE(ranks);
    MadeUpRing ring(ranks);
    ring.facts.host_names[0] = "a<b>&\"c";
    ring.links[1].up.damage = {1, 1, 1, 0, 9, 0x01, 0x00};
    const auto parsed = topology::parse_xml(link_svg(ring.facts, ring.verdict()));
    REQUIRE(parsed.ok());
    CHECK(parsed->attribute("width") == "700");
    const int height = attribute(*parsed, "height");
    std::vector<const topology::XmlElement*> rects, cells, texts;
    collect(*parsed, "rect", rects);
    collect(*parsed, "g", cells);
    CHECK(cells.size() == 2 * ring.links.size());
    double cells_end = 0;
    std::set<std::string> fills;
    for (const topology::XmlElement* const cell : cells) {
      const topology::XmlElement& rect = cell->children.back();
      const double end = std::stod(std::string(rect.attribute("y"))) +
                         std::stod(std::string(rect.attribute("height")));
      cells_end = std::max(cells_end, end);
      fills.insert(std::string(rect.attribute("fill")));
    }
    CHECK(fills.contains("#b3123a"));
    int legends = 0;
    for (const topology::XmlElement* const rect : rects) {
      if (rect->attribute("width") != "13") continue;
      ++legends;
      CHECK(std::stod(std::string(rect->attribute("y"))) >= cells_end);
      CHECK(std::stod(std::string(rect->attribute("y"))) + 13 <= height);
    }
    CHECK(legends >= 2);
    collect(*parsed, "text", texts);
    for (const topology::XmlElement* const text : texts)
      CHECK(std::stod(std::string(text->attribute("x"))) < 700);
  }
}

}  // namespace link_verdict_test
