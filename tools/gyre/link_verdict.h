// The verdict of gyre link: it holds each measured link against the expectation of its kind, and
// names those that are slow, change bytes or carry none. Values in, values out.
//
// Latency is judged by the fastest tenth of the messages, and not at all where the ranks waited for
// processors: the rest tells of them.
// A kind's expectation is the median of its links, and more if the machine's own figure is higher.
// Of two in the middle the better one counts, so that one slow link of two does not lower it.
#pragma once

#include "tools/gyre/link_values.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gyre::tools {

// From good to bad.
enum class LinkFinding : std::uint8_t { fine, slow, dead, corrupting };
std::string_view finding_name(LinkFinding finding);

struct KindExpectation {
  std::string kind;
  int links = 0;            // of it, that were measured to the end
  double bytes_per_s = 0;   // one direction; 0: no link of it says
  bool is_machine = false;  // that figure is the machine's
  double both_bytes_per_s = 0;
  double best_latency_us = 0;
};

struct JudgedLink {
  LinkMeasurement measured;
  LinkFinding finding = LinkFinding::fine;
  // Of the expectation; 1 is as expected, 0 was not measured.
  double up_share = 0, down_share = 0, both_share = 0, latency_share = 0;
  double share = 0;    // the least of them
  std::string reason;  // why it is named, for people: "0.012 GB/s up, 10 % of ..."
};

struct LinkVerdict {
  std::vector<JudgedLink> links;  // the worst first
  std::vector<KindExpectation> kinds;
  std::vector<int> silent_ranks;  // that seem to have ended meanwhile
  double slow_below = 0;
  std::string sentence;  // all of it in one
  std::string advice;    // what to do next; empty: nothing

  bool names_any() const;
};

std::vector<KindExpectation> find_expectations(const std::vector<LinkMeasurement>& measured);

LinkVerdict judge_links(const LinkJobFacts& facts, std::vector<LinkMeasurement> measured,
                        std::vector<KindExpectation> kinds, double slow_below);

std::string rate_text(double bytes_per_s);                       // "0.118 GB/s"
std::string counted(std::size_t count, std::string_view thing);  // "1 link", "2 links"

}  // namespace gyre::tools
