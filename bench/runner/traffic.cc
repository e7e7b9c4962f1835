// Traffic: see traffic.h. The formula and the file's rules are those of nccl-tests 2.19.6,
// src/alltoallv.cu.
#include "bench/runner/traffic.h"

#include "bench/runner/gyre_calls.h"
#include "bench/runner/shape.h"
#include "lib/base/settings.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>

namespace gyre::bench {
namespace {

// Blocks are whole runs of 16 bytes, so that every type divides them.
constexpr std::uint64_t unit = 16;
// More than a matrix of any machine; what is above cannot be counted in bytes.
constexpr double max_bytes = 0x1p62;

// A number that is neither negative nor above `most`, and nothing behind it.
bool read_number(const std::string& text, double most, double& value) {
  char* end = nullptr;
  value = std::strtod(text.c_str(), &end);
  return !text.empty() && *end == '\0' && value >= 0 && value <= most;
}

// A variable of the tests that holds a number; `absent` without it.
Result<double> number_variable(const char* name, double most, double absent) {
  const char* text = tests_variable(name);
  double value = absent;
  if (text != nullptr && !read_number(text, most, value))
    return invalid_argument(
        fmt::format("{}=\"{}\" is not a number from 0 to {:g}", name, text, most));
  return value;
}

}  // namespace

Result<Traffic> Traffic::parse(std::string_view matrix, double scale, const std::string& name) {
  Traffic traffic(0);
  traffic.scale_ = scale;
  traffic.name_ = name;
  std::istringstream lines{std::string(matrix)};
  std::size_t columns = 0, rows = 0;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::size_t found = 0;
    for (std::string word; words >> word; ++found) {
      double bytes = 0;
      if (!read_number(word, max_bytes, bytes) || bytes * scale > max_bytes)
        return invalid_argument(fmt::format(
            "{}, row {}, column {}: \"{}\" is not a number of bytes", name, rows, found, word));
      traffic.matrix_.push_back(static_cast<std::uint64_t>(bytes * scale) / unit * unit);
    }
    if (found == 0) continue;
    if (rows == 0) columns = found;
    if (found != columns)
      return invalid_argument(fmt::format("{}, row {}: {} columns, but {} in the first row", name,
                                          rows, found, columns));
    ++rows;
  }
  if (rows == 0) return invalid_argument(name + " is empty");
  if (rows != columns)
    return invalid_argument(
        fmt::format("{} has {} rows of {} columns; it must be square", name, rows, columns));
  traffic.side_ = static_cast<int>(rows);
  return traffic;
}

Result<Traffic> Traffic::from_environment() {
  GYRE_ASSIGN(const double spread, number_variable("ALLTOALLV_SPREAD", 1, 1));
  GYRE_ASSIGN(const double scale, number_variable("ALLTOALLV_MATRIX_SCALE", max_bytes, 1));
  const char* path = tests_variable("ALLTOALLV_MATRIX_FILE");
  if (path == nullptr) return Traffic(spread);
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (!file) return Status::from_errno(fmt::format("reading {}", path), errno);
  return parse(text, scale, path);
}

Status Traffic::fits(int ranks, std::uint64_t min_bytes, std::uint64_t max_bytes) const {
  if (generated()) return {};
  if (ranks > side_)
    return invalid_argument(fmt::format("{} has {} rows for {} ranks", name_, side_, ranks));
  if (min_bytes != max_bytes)
    return invalid_argument(
        fmt::format("-b {} -e {}: the sizes are those of {}, so give the same size to both",
                    min_bytes, max_bytes, name_));
  const Shape bytes = {.element_bytes = 1, .ranks = ranks};
  std::uint64_t most = 0;
  for (int rank = 0; rank < ranks; ++rank)
    most = std::max({most, sent(bytes, rank), received(bytes, rank)});
  if (most <= max_bytes) return {};
  return invalid_argument(fmt::format("-e {}: {} needs {} bytes at least", max_bytes, name_, most));
}

std::uint64_t Traffic::bytes(const Shape& shape, int from, int to) const {
  if (!generated()) return matrix_[static_cast<std::size_t>(from * side_ + to)];
  const std::uint64_t total =
      equal_share(shape) * static_cast<std::uint64_t>(shape.ranks) * shape.element_bytes;
  if (shape.ranks == 1) return total / unit * unit;
  const int distance = (to - from + shape.ranks) % shape.ranks;
  const double distances = 0.5 * shape.ranks * (shape.ranks - 1);
  const auto whole = static_cast<double>(total);
  const double part = (1 - spread_) * whole / shape.ranks + spread_ * whole * distance / distances;
  return static_cast<std::uint64_t>(part) / unit * unit;
}

std::uint64_t Traffic::elements(const Shape& shape, int from, int to) const {
  return bytes(shape, from, to) / shape.element_bytes;
}

std::uint64_t Traffic::send_offset(const Shape& shape, int from, int to) const {
  std::uint64_t offset = 0;
  for (int rank = 0; rank < to; ++rank) offset += elements(shape, from, rank);
  return offset;
}

std::uint64_t Traffic::sent(const Shape& shape, int rank) const {
  return send_offset(shape, rank, shape.ranks);
}

std::uint64_t Traffic::received(const Shape& shape, int rank) const {
  std::uint64_t total = 0;
  for (int from = 0; from < shape.ranks; ++from) total += elements(shape, from, rank);
  return total;
}

Counts Traffic::counts(const Shape& shape, int rank) const {
  Counts counts;
  std::size_t sent_before = 0, received_before = 0;
  for (int peer = 0; peer < shape.ranks; ++peer) {
    counts.send.push_back(elements(shape, rank, peer));
    counts.recv.push_back(elements(shape, peer, rank));
    counts.send_displacements.push_back(sent_before);
    counts.recv_displacements.push_back(received_before);
    sent_before += counts.send.back();
    received_before += counts.recv.back();
  }
  return counts;
}

std::vector<std::string> Traffic::summary(const Shape& shape, double seconds) const {
  constexpr const char* title = "GYRE_TESTS_ALLTOALLV_PRINT_SUMMARY";
  std::vector<std::string> lines;
  if (generated())
    lines.push_back(fmt::format(
        "{}: mode=generated nranks={} total_bytes={} spread={:.3f} time_usec={:.2f}", title,
        shape.ranks,
        equal_share(shape) * static_cast<std::uint64_t>(shape.ranks) * shape.element_bytes, spread_,
        seconds * 1e6));
  else
    lines.push_back(
        fmt::format("{}: mode=matrix nranks={} matrix_dim={} scale={:.3f} time_usec={:.2f}", title,
                    shape.ranks, side_, scale_, seconds * 1e6));
  for (int rank = 0; rank < shape.ranks; ++rank) {
    const std::uint64_t out = sent(shape, rank) * shape.element_bytes;
    const std::uint64_t in = received(shape, rank) * shape.element_bytes;
    const double speed = seconds > 0 ? static_cast<double>(std::max(out, in)) / 1e9 / seconds : 0;
    lines.push_back(fmt::format("  rank={} send_bytes={} recv_bytes={} alg_bw={:.2f} bus_bw={:.2f}",
                                rank, out, in, speed, speed * without_own_share(shape.ranks)));
  }
  return lines;
}

Result<bool> summary_wanted() {
  GYRE_ASSIGN(const double value, number_variable("ALLTOALLV_PRINT_SUMMARY", 1, 0));
  return value != 0;
}

}  // namespace gyre::bench
