// The measurements of gyre link as values. A link joins a pair of ranks and has two directions:
// up, from the lower rank to the higher one, and down.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

namespace gyre::tools {

struct LinkPair {
  int low = 0, high = 0;
  auto operator<=>(const LinkPair&) const = default;
  bool has(int rank) const { return rank == low || rank == high; }
};

// Bytes that were not what was sent. The first one is kept whole.
struct LinkDamage {
  std::uint64_t messages = 0, bytes = 0, bits = 0;
  std::uint64_t first_message = 0, first_offset = 0;  // the message's number; the place in it
  std::uint8_t sent = 0, received = 0;
};

// One direction. 0: not measured.
struct DirectedRate {
  double bytes_per_s = 0;           // median of messages of `message_bytes`
  std::uint64_t message_bytes = 0;  // the largest that there was time for
  std::uint64_t checked_bytes = 0;
  LinkDamage damage;
};

struct LinkMeasurement {
  LinkPair pair;
  int round = 0;
  std::string kind;              // "tcp by eth0": links of one kind can be compared
  double known_bytes_per_s = 0;  // the machine's figure for one direction; 0: it has none
  // Half a round trip of 8 bytes: the tenth that is fastest, which busy processors do not change;
  // the median; the 99th percentile.
  double best_latency_us = 0, latency_us = 0, latency_p99_us = 0;
  bool is_crowded = false;  // meanwhile the two ranks waited for processors, which others had
  DirectedRate up, down;
  double both_bytes_per_s = 0;    // the two directions at once, added up
  bool has_garbled_talk = false;  // a message of the two measuring programs came damaged
  bool was_repeated = false;      // alone, after it had been slow beside others
  std::string failure;            // what broke off the measurement, for people; empty: nothing did
  std::string library_text;       // the library's own words on that
};

// The ranks that measured, and what they were to measure.
struct LinkJobFacts {
  int ranks = 0;
  std::vector<std::string> host_names;  // by host
  std::vector<int> host_of_rank;
  std::vector<std::string> plans;  // "ring (all-reduce of 64 MiB)", whose links these are
  bool all_pairs = false;
  std::vector<bool> reported;  // by rank; false: it never said what it had measured
  double seconds = 0;          // that the measurement took

  const std::string& host_name(int rank) const {
    return host_names[static_cast<std::size_t>(host_of_rank[static_cast<std::size_t>(rank)])];
  }
};

}  // namespace gyre::tools
