#include "tests/campaign/errand.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <numeric>
#include <sstream>

namespace gyre::campaign {
namespace {

using Fields = std::map<std::string, std::string>;

[[noreturn]] void refuse(const std::string& what) {
  std::fprintf(stderr, "campaign_rank: %s\n", what.c_str());
  std::exit(2);
}

std::vector<int> numbers(const std::string& text) {
  std::vector<int> list;
  std::istringstream in(text);
  for (std::string one; std::getline(in, one, ',');) list.push_back(std::stoi(one));
  return list;
}

// Takes a field out, so that what is left at the end was not known.
std::string take(Fields& fields, const char* name, const char* otherwise = nullptr) {
  const auto found = fields.find(name);
  if (found == fields.end() && otherwise == nullptr) refuse(std::string("no field ") + name);
  if (found == fields.end()) return otherwise;
  std::string value = found->second;
  fields.erase(found);
  return value;
}

Queue queue_of(const std::string& name) {
  if (name == "stream") return Queue::stream;
  if (name == "caller") return Queue::by_caller;
  return Queue::thread;
}

Errand errand_of(const std::string& verb, Fields& fields, const Errands& errands) {
  Errand errand;
  errand.verb = verb;
  errand.comm = std::stoi(take(fields, "comm", "0"));
  errand.count = std::stoul(take(fields, "count", "0"));
  errand.lent = take(fields, "memory", "heap") == "lent";
  errand.in_place = take(fields, "place", "apart") == "in";
  errand.queue = queue_of(take(fields, "queue", "thread"));
  errand.root = std::stoi(take(fields, "root", "0"));
  const std::string ranks = take(fields, "ranks", "");
  errand.ranks = ranks.empty() ? errands.comms.at(errand.comm) : numbers(ranks);
  errand.children = numbers(take(fields, "children", ""));
  const std::string late = take(fields, "late", "");
  if (!late.empty()) std::sscanf(late.c_str(), "%d:%d", &errand.late_rank, &errand.late_ms);
  errand.leaver = std::stoi(take(fields, "leaver", "-1"));
  errand.rest_ms = std::stoi(take(fields, "ms", "0"));
  return errand;
}

void read_world(Fields& fields, Errands& errands) {
  errands.process_of_rank = numbers(take(fields, "processes"));
  errands.blocking = take(fields, "blocking") == "1";
  errands.aftermath = take(fields, "aftermath");
  errands.survivors = numbers(take(fields, "survivors"));
  errands.attended = std::stoi(take(fields, "attended"));
  errands.comms[0].resize(errands.process_of_rank.size());
  std::iota(errands.comms[0].begin(), errands.comms[0].end(), 0);
}

void read_line(const std::string& line, Errands& errands) {
  std::istringstream in(line);
  std::string verb;
  in >> verb;
  Fields fields;
  for (std::string one; in >> one;) {
    const std::size_t equals = one.find('=');
    if (equals == std::string::npos) refuse("not understood: " + line);
    fields[one.substr(0, equals)] = one.substr(equals + 1);
  }
  if (verb == "world") {
    read_world(fields, errands);
  } else if (verb == "sabotage") {
    errands.sabotages.push_back({std::stoi(take(fields, "errand")), std::stoi(take(fields, "rank")),
                                 std::stoi(take(fields, "after_us")), take(fields, "kind"),
                                 std::stoi(take(fields, "amount", "0"))});
  } else {
    errands.list.push_back(errand_of(verb, fields, errands));
    const Errand& errand = errands.list.back();
    for (std::size_t member = 0; member < errand.children.size(); ++member)
      if (errand.children[member] >= 0)
        errands.comms[errand.children[member]].push_back(errands.comms[errand.comm][member]);
  }
  if (!fields.empty()) refuse("an unknown field in: " + line);
}

}  // namespace

bool Errands::uses(Queue queue) const {
  return std::ranges::any_of(list, [&](const Errand& one) { return one.queue == queue; });
}

Errands read_errands(const char* path) {
  std::ifstream file(path);
  if (!file) refuse(std::string("cannot read ") + path);
  Errands errands;
  for (std::string line; std::getline(file, line);)
    if (!line.empty()) read_line(line, errands);
  return errands;
}

bool holds(const std::vector<int>& list, int value) {
  return std::ranges::find(list, value) != list.end();
}

}  // namespace gyre::campaign
