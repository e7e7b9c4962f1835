#include "lib/topology/processor_set.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <charconv>

namespace gyre::topology {
namespace {

constexpr int word_bits = 32;

Result<std::uint32_t> parse_word(std::string_view text, std::string_view whole) {
  std::string_view digits = text;
  if (digits.starts_with("0x")) digits.remove_prefix(2);
  std::uint32_t word = 0;
  const auto [end, error] = std::from_chars(digits.begin(), digits.end(), word, 16);
  if (error != std::errc() || end != digits.end())
    return invalid_argument(
        fmt::format("\"{}\" is no mask of processors: \"{}\" is no word of 32 "
                    "bits in hexadecimal",
                    whole.substr(0, 80), text.substr(0, 20)));
  return word;
}

}  // namespace

Result<ProcessorSet> ProcessorSet::parse_mask(std::string_view text) {
  ProcessorSet set;
  std::string_view rest = text;
  while (true) {
    const std::size_t comma = rest.rfind(',');
    const std::string_view word = comma == rest.npos ? rest : rest.substr(comma + 1);
    if (set.words_.size() * word_bits >= max_processors)
      return invalid_argument(fmt::format("a mask of more than {} processors: \"{}\"",
                                          max_processors, text.substr(0, 80)));
    // hwloc leaves words of zeros out.
    if (word.empty() && comma != rest.npos) {
      set.words_.push_back(0);
    } else {
      GYRE_ASSIGN(const std::uint32_t value, parse_word(word, text));
      set.words_.push_back(value);
    }
    if (comma == rest.npos) break;
    rest = rest.substr(0, comma);
  }
  set.trim();
  return set;
}

void ProcessorSet::trim() {
  while (!words_.empty() && words_.back() == 0) words_.pop_back();
}

void ProcessorSet::insert(int processor) {
  const std::size_t word = static_cast<std::size_t>(processor / word_bits);
  if (word >= words_.size()) words_.resize(word + 1);
  words_[word] |= 1U << (processor % word_bits);
}

void ProcessorSet::insert_all(const ProcessorSet& others) {
  if (others.words_.size() > words_.size()) words_.resize(others.words_.size());
  for (std::size_t i = 0; i < others.words_.size(); ++i) words_[i] |= others.words_[i];
}

void ProcessorSet::keep_only(const ProcessorSet& others) {
  words_.resize(std::min(words_.size(), others.words_.size()));
  for (std::size_t i = 0; i < words_.size(); ++i) words_[i] &= others.words_[i];
  trim();
}

bool ProcessorSet::contains(int processor) const {
  const std::size_t word = static_cast<std::size_t>(processor / word_bits);
  return word < words_.size() && (words_[word] >> (processor % word_bits) & 1) != 0;
}

bool ProcessorSet::contains_all(const ProcessorSet& others) const {
  if (others.words_.size() > words_.size()) return false;
  for (std::size_t i = 0; i < others.words_.size(); ++i)
    if ((others.words_[i] & ~words_[i]) != 0) return false;
  return true;
}

bool ProcessorSet::intersects(const ProcessorSet& others) const {
  const std::size_t both = std::min(words_.size(), others.words_.size());
  for (std::size_t i = 0; i < both; ++i)
    if ((words_[i] & others.words_[i]) != 0) return true;
  return false;
}

int ProcessorSet::count() const {
  int count = 0;
  for (const std::uint32_t word : words_) count += std::popcount(word);
  return count;
}

std::vector<int> ProcessorSet::numbers() const {
  std::vector<int> found;
  for (int i = 0; i < static_cast<int>(words_.size()) * word_bits; ++i)
    if (contains(i)) found.push_back(i);
  return found;
}

cpu_set_t ProcessorSet::cpu_set() const {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int processor : numbers())
    if (processor < CPU_SETSIZE) CPU_SET(processor, &set);
  return set;
}

std::string ProcessorSet::mask(std::string_view before_each) const {
  if (words_.empty()) return fmt::format("{}00000000", before_each);
  std::string text;
  for (std::size_t i = words_.size(); i-- > 0;)
    text += fmt::format("{}{:08x}{}", before_each, words_[i], i > 0 ? "," : "");
  return text;
}

std::string ProcessorSet::hwloc_mask() const { return mask("0x"); }
std::string ProcessorSet::nccl_mask() const { return mask(""); }

std::string ProcessorSet::list() const {
  std::string text;
  const int end = static_cast<int>(words_.size()) * word_bits;
  for (int first = 0; first < end; ++first) {
    if (!contains(first)) continue;
    int last = first;
    while (contains(last + 1)) ++last;
    text += text.empty() ? "" : ",";
    text += last == first ? fmt::format("{}", first) : fmt::format("{}-{}", first, last);
    first = last;
  }
  return text;
}

Result<ProcessorSet> allowed_processors() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0)
    return Status::from_errno("sched_getaffinity", errno);
  ProcessorSet set;
  for (int i = 0; i < CPU_SETSIZE; ++i)
    if (CPU_ISSET(i, &allowed)) set.insert(i);
  return set;
}

}  // namespace gyre::topology
