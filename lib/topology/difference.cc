// The difference of two machines, by the lines that describe them.
#include "lib/topology/describe.h"

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

namespace gyre::topology {
namespace {

// A longer comparison is of machines that have little in common: then all lines differ.
constexpr std::size_t max_cells = 16'000'000;

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

std::size_t depth(std::string_view line) {
  return std::min(line.find_first_not_of(' '), line.size());
}

// The longest common subsequence, from the end on.
class LineDifference {
 public:
  LineDifference(const std::string& first, const std::string& second)
      : first_(lines_of(first)), second_(lines_of(second)) {
    if (first_.size() * second_.size() > max_cells) return;
    columns_ = second_.size() + 1;
    common_.resize((first_.size() + 1) * columns_);
    for (std::size_t i = first_.size(); i-- > 0;)
      for (std::size_t j = second_.size(); j-- > 0;)
        common(i, j) = first_[i] == second_[j] ? common(i + 1, j + 1) + 1
                                               : std::max(common(i + 1, j), common(i, j + 1));
  }

  std::string text() {
    std::size_t i = 0, j = 0;
    while (i < first_.size() || j < second_.size()) {
      const bool both = i < first_.size() && j < second_.size();
      if (both && columns_ > 0 && first_[i] == second_[j]) {
        pass(first_[i]);
        ++i;
        ++j;
      } else if (i < first_.size() &&
                 (!both || columns_ == 0 || common(i + 1, j) >= common(i, j + 1))) {
        add("- ", first_[i++]);
      } else {
        add("+ ", second_[j++]);
      }
    }
    return std::move(text_);
  }

 private:
  std::uint32_t& common(std::size_t i, std::size_t j) { return common_[i * columns_ + j]; }

  // A line of both: printed only if something below it differs.
  void pass(std::string_view line) {
    leave(depth(line));
    above_.push_back(line);
  }

  void add(const char* sign, std::string_view line) {
    leave(depth(line));
    for (const std::string_view part : above_) text_ += "  " + std::string(part) + "\n";
    above_.clear();
    text_ += sign + std::string(line) + "\n";
  }

  void leave(std::size_t to_depth) {
    while (!above_.empty() && depth(above_.back()) >= to_depth) above_.pop_back();
  }

  const std::vector<std::string_view> first_, second_;
  std::size_t columns_ = 0;
  std::vector<std::uint32_t> common_;
  std::vector<std::string_view> above_;
  std::string text_;
};

}  // namespace

std::string difference(const Topology& first, const Topology& second) {
  // The facts that discovery missed are no part of a machine.
  const auto text = [](Topology machine) {
    machine.missed.clear();
    return describe(machine);
  };
  const std::string before = text(first), after = text(second);
  return before == after ? std::string() : LineDifference(before, after).text();
}

}  // namespace gyre::topology
