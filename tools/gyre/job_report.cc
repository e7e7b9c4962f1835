#include "tools/gyre/job_report.h"

#include <fmt/core.h>

#include <cstring>
#include <map>
#include <sys/wait.h>

namespace gyre::tools {

int exit_code_of(int wait_status) {
  if (WIFSIGNALED(wait_status)) return exit_signal_base + WTERMSIG(wait_status);
  return WEXITSTATUS(wait_status);
}

std::string describe_end(int wait_status) {
  if (!WIFSIGNALED(wait_status)) return fmt::format("exit code {}", WEXITSTATUS(wait_status));
  return fmt::format("signal {} ({}){}", WTERMSIG(wait_status), strsignal(WTERMSIG(wait_status)),
                     WCOREDUMP(wait_status) ? ", core dumped" : "");
}

std::string rank_ranges(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank" : "ranks";
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const std::size_t first = i;
    while (i + 1 < ranks.size() && ranks[i + 1] == ranks[i] + 1) ++i;
    text += first == 0 ? " " : ", ";
    text += first == i ? fmt::format("{}", ranks[i]) : fmt::format("{}-{}", ranks[first], ranks[i]);
  }
  return text;
}

std::vector<std::string> job_report(const std::vector<RankEnd>& ends, int first_failed) {
  std::vector<std::string> lines;
  if (first_failed >= 0) {
    const RankEnd& first = ends[static_cast<std::size_t>(first_failed)];
    lines.push_back(fmt::format("rank {} (pid {}) died first: {}", first_failed, first.pid,
                                describe_end(first.wait_status)));
  }
  std::map<std::string, std::vector<int>> alike;
  for (std::size_t rank = 0; rank < ends.size(); ++rank) {
    if (static_cast<int>(rank) == first_failed) continue;
    const RankEnd& end = ends[rank];
    const std::string what =
        end.ended ? describe_end(end.wait_status) : fmt::format("does not end, even after SIGKILL");
    alike[what + (end.ended && end.after_order ? ", after gyre run had ordered its end" : "")]
        .push_back(static_cast<int>(rank));
  }
  for (const auto& [what, ranks] : alike)
    lines.push_back(fmt::format("{}: {}", rank_ranges(ranks), what));
  return lines;
}

}  // namespace gyre::tools
