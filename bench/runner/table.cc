// Table: see table.h. The widths are nccl-tests'; a test holds them.
#include "bench/runner/table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <vector>

namespace gyre::bench {
namespace {

// What follows "time algbw busbw #wrong" in each half.
std::string extra_headers(const Options& options, bool units) {
  std::vector<const char*> names;
  if (options.per_iteration && units) names = {"(us)", "(us)", "(us)", "(%)"};
  if (options.per_iteration && !units) names = {"i_min", "i_max", "i_p99", "i_cv%"};
  if (options.stats && units) names = {"(us)", "(us)", "(us)"};
  if (options.stats && !units) names = {"min", "p50", "p99"};
  std::string text;
  for (const char* name : names) text += fmt::format("  {:>7}", name);
  return text;
}

std::string half_header(const Options& options, bool units) {
  if (units)
    return fmt::format("  {:>7}  {:>6}  {:>6}  {:>6}", "(us)", "(GB/s)", "(GB/s)", "") +
           extra_headers(options, true);
  return fmt::format("  {:>7}  {:>6}  {:>6}  {:>6}", options.cpu_time ? "cputime" : "time", "algbw",
                     "busbw", "#wrong") +
         extra_headers(options, false);
}

std::string half_body(const Options& options, const Placement& placement) {
  std::string text = fmt::format(
      "  {:>7}  {:>6}  {:>6}",
      number_text(options.cpu_time ? placement.cpu_time_us : placement.time_us, 7),
      number_text(placement.algorithm_bandwidth, 6), number_text(placement.bus_bandwidth, 6));
  text += placement.wrong ? fmt::format("  {:>6g}", static_cast<double>(*placement.wrong))
                          : std::string("    N/A");
  const IterationStatistics& s = placement.statistics;
  const auto add = [&](double value) { text += "  " + number_text(value, 7); };
  if (options.per_iteration)
    add(s.least), add(s.most), add(s.p99), add(s.variation_percent);
  else if (options.stats)
    add(s.least), add(s.p50), add(s.p99);
  return text;
}

// Every column of a half that the collective does not have.
std::string absent_half(const Options& options) {
  std::string text = fmt::format("  {:>7}  {:>6}  {:>6}  {:>5}", "N/A", "N/A", "N/A", "N/A");
  for (int i = options.per_iteration ? 4 : options.stats ? 3 : 0; i > 0; --i)
    text += fmt::format("  {:>7}", "N/A");
  return text;
}

std::string memory_text(std::uint64_t bytes) {
  auto amount = static_cast<double>(bytes);
  const char* unit = " B";
  for (const char* larger : {" KB", " MB", " GB"}) {
    if (amount < 1024.0) break;
    amount /= 1024.0;
    unit = larger;
  }
  const int decimals = amount < 10.0 ? 2 : amount < 100.0 ? 1 : 0;
  return fmt::format("{:.{}f}{}", amount, decimals, unit);
}

}  // namespace

std::string version_text(int code) {
  return fmt::format("{}.{}.{}", code / 10000, code / 100 % 100, code % 100);
}

std::string number_text(double value, int width) {
  for (const int decimals : {2, 1, 0}) {
    std::string text = fmt::format("{:{}.{}f}", value, width, decimals);
    if (text.size() <= static_cast<std::size_t>(width)) return text;
  }
  return fmt::format("{:{}.{}e}", value, width, width >= 7 ? 1 : 0);
}

std::string opening(const Options& options, std::string_view collective, int header_version,
                    int library_version) {
  const bool factor = options.step_factor > 1;
  std::string text;
  const auto out = std::back_inserter(text);
  fmt::format_to(out, "# gyre version {} gyre-headers={} gyre-library={}\n",
                 version_text(library_version), header_version, library_version);
  fmt::format_to(out, "# Collective test starting: {}\n", collective);
  fmt::format_to(out,
                 "# nThread {} nGpus {} minBytes {} maxBytes {} step: {}({}) warmup iters: {} "
                 "iters: {} agg iters: {} validation: {} graph: {} unalign: {}\n",
                 options.threads, options.ranks_per_thread, options.min_bytes, options.max_bytes,
                 factor ? options.step_factor : options.step_bytes, factor ? "factor" : "bytes",
                 options.warmup, options.iterations, options.aggregated, options.checks,
                 options.graph_launches, options.unaligned_elements);
  if (options.blocking == Blocking::wait_and_barrier)
    text += "# Blocking Enabled: wait and barrier after each inner iteration (-m) \n";
  if (options.blocking == Blocking::wait)
    text += "# Blocking Enabled: wait after each inner iteration (-m), no barrier \n";
  if (options.blocking == Blocking::barrier_untimed)
    text +=
        "# Blocking Enabled: wait and barrier after each outer iteration (-n); time excludes "
        "barrier \n";
  if (options.per_iteration || options.stats) {
    text += "# Per-Iteration Report: wall-clock timing; each iteration counts as its slowest rank";
    if (options.per_iteration_skip > 0)
      fmt::format_to(out, "; summary skips first {} iterations", options.per_iteration_skip);
    text += " \n";
  }
  if (options.parallel_init)
    text += "# Parallel Init Enabled: threads call into gyreCommInitRank concurrently \n";
  if (options.cold)
    text += "# Cold: iterations move through buffers larger than the last-level cache \n";
  if (options.plain_memory) text += "# Plain memory: buffers come from malloc \n";
  text += "#\n# Using devices\n";
  return text;
}

std::string seat_line(const Seat& seat) {
  return fmt::format("#  Rank {:>2} Group {:>2} Pid {:>6} on {:>10} device {:>2} [{}] {}\n",
                     seat.rank, seat.group, seat.pid, seat.host, std::max(seat.device.ordinal, 0),
                     seat.device.bus, seat.device.name);
}

std::string sharing_lines(std::span<const Seat> seats) {
  std::string text;
  for (std::size_t i = 0; i < seats.size(); ++i) {
    const Seat& first = seats[i];
    const auto shares = [&](const Seat& seat) { return seat.shares_with(first); };
    if (first.device.uuid.empty() || std::ranges::any_of(seats.first(i), shares)) continue;
    std::vector<int> ranks;
    std::set<int> processes;
    for (const Seat& seat : seats) {
      if (!shares(seat)) continue;
      ranks.push_back(seat.rank);
      processes.insert(seat.pid);
    }
    if (ranks.size() < 2) continue;
    text += fmt::format("#  Ranks {} share the GPU [{}] of {}", fmt::join(ranks, " "),
                        first.device.bus, first.host);
    if (processes.size() > 1)
      text += first.device.shares_by_mps
                  ? fmt::format("; MPS runs the kernels of their {} processes side by side",
                                processes.size())
                  : fmt::format(
                        "; without MPS their {} processes take turns on it, and times "
                        "include the waiting",
                        processes.size());
    text += "\n";
  }
  return text;
}

std::string column_header(const Options& options) {
  const bool extra = options.per_iteration || options.stats;
  const std::string_view halves =
      options.per_iteration
          ? "              out-of-place (+ per-iteration)                                in-place "
            "(+ per-iteration)\n"
      : extra
          ? "              out-of-place (+ per-iteration)                            in-place (+ "
            "per-iteration)\n"
          : "           out-of-place                       in-place          \n";
  const auto line = [&](const char* size, const char* count, const char* type, const char* op,
                        const char* root) {
    return fmt::format("# {:>10}  {:>12}  {:>8}  {:>6}  {:>6}", size, count, type, op, root);
  };
  const auto both = [&](bool units, std::string_view time) {
    const std::string half = half_header(options, units);
    return half + half + fmt::format(" {:>{}}\n", time, options.timestamps ? 19 : 0);
  };
  return "#\n" + line("", "", "", "", "") + std::string(halves) +
         line("size", "count", "type", "redop", "root") +
         both(false, options.timestamps ? "timestamp" : "") +
         line("(B)", "(elements)", "", "", "") +
         both(true, options.timestamps ? "%Y-%m-%d %H:%M:%S" : "");
}

std::string row_line(const Options& options, const Row& row, std::string_view time_of_day) {
  std::string text = fmt::format("{:>12}  {:>12}  {:>8}  {:>6}  {:>6}", row.bytes, row.count,
                                 element_name(row.type), row.op ? op_name(*row.op) : "none",
                                 fmt::format("{:>6}", row.root));
  text += half_body(options, row.out_of_place);
  text += row.in_place ? half_body(options, *row.in_place) : absent_half(options);
  if (options.timestamps) text += fmt::format("{:>21}", time_of_day);
  return text + "\n";
}

std::string closing(const RunVerdict& verdict, std::string_view collective) {
  const char* speed = verdict.min_bandwidth < 0 ? "" : verdict.fast_enough() ? "OK" : "FAILED";
  return fmt::format("# {:<20} : {} {}\n# {:<20} : {:g} {}\n#\n# Collective test concluded: {}\n",
                     "Out of bounds values", verdict.failed_checks,
                     verdict.failed_checks > 0 ? "FAILED" : "OK", "Avg bus bandwidth",
                     verdict.average_bus_bandwidth, speed, collective);
}

std::string memory_line(const MemoryUse& use, bool on_devices) {
  return fmt::format(
      "# {:<20} : Initialization {} | User-Allocated {} | Collective {} | Total  {}\n",
      on_devices ? "GPU memory usage" : "Host memory usage", memory_text(use.initialization),
      memory_text(use.buffers), memory_text(use.collective),
      memory_text(use.initialization + use.buffers + use.collective));
}

}  // namespace gyre::bench
