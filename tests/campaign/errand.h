// The script of one trial of the campaign, as the driver drew it: a text with one errand a line. An
// errand is a call that some ranks of a communicator make together, or a rest. A sabotage is a
// fault that a process injects into itself, some time after the start of an errand of its rank.
// Ranks are numbered in the world, communicator 0; members are ranks of the communicator at hand.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

namespace gyre::campaign {

enum class Queue { thread, stream, by_caller };

struct Errand {
  std::string verb;
  int comm = 0;
  std::size_t count = 0;  // elements of a block
  bool lent = false;      // memory of gyreMemAlloc
  bool in_place = false;
  Queue queue = Queue::thread;
  int root = 0;                    // a member
  std::vector<int> ranks = {};     // who takes part
  std::vector<int> children = {};  // of a split, by member: the communicator it gets, or -1
  int late_rank = -1, late_ms = 0;
  int leaver = -1;  // destroys its communicators in place of it, and ends
  int rest_ms = 0;
};

struct Sabotage {
  int errand = 0;  // 0 is init; one past the last is destroy
  int rank = 0;
  int after_us = 0;
  std::string kind;
  int amount = 0;
};

struct Errands {
  std::vector<int> process_of_rank;
  bool blocking = true;
  std::string aftermath;       // of ranks that were told of a fault
  std::vector<int> survivors;  // who meets again
  int attended = -1;           // the process that begins when the driver says so
  std::vector<Errand> list;    // list[0] is init
  std::vector<Sabotage> sabotages;
  std::map<int, std::vector<int>> comms;  // their ranks, by member

  int ranks() const { return static_cast<int>(process_of_rank.size()); }
  int destroy() const { return static_cast<int>(list.size()); }
  bool uses(Queue queue) const;
};

// Of a file of such lines; ends the process with a text if one cannot be read.
Errands read_errands(const char* path);

bool holds(const std::vector<int>& list, int value);

}  // namespace gyre::campaign
