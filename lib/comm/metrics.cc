#include "lib/comm/metrics.h"

#include "lib/call/flight_record.h"

#include <fmt/core.h>

#include <algorithm>
#include <initializer_list>
#include <map>
#include <utility>

namespace gyre::comm {
namespace {

using Label = std::pair<std::string_view, std::string>;

std::string labels_text(std::initializer_list<Label> labels) {
  std::string text;
  for (const auto& [name, value] : labels)
    text += fmt::format("{}{}=\"{}\"", text.empty() ? "" : ",", name, label_value(value));
  return text.empty() ? text : fmt::format("{{{}}}", text);
}

// A metric and its samples, which differ in their labels: of two with the same the larger counts.
class MetricFamily {
 public:
  MetricFamily(std::string_view name, std::string_view type, std::string_view help)
      : name_(name), type_(type), help_(help) {}
  void add(double value, std::initializer_list<Label> labels) {
    double& known = samples_.try_emplace(labels_text(labels), value).first->second;
    known = std::max(known, value);
  }
  void add(std::uint64_t value, std::initializer_list<Label> labels) {
    add(static_cast<double>(value), labels);
  }
  std::string text() const {
    std::string text = fmt::format("# HELP {} {}\n# TYPE {} {}\n", name_, help_, name_, type_);
    for (const auto& [labels, value] : samples_)
      text += fmt::format("{}{} {}\n", name_, labels, value);
    return text;
  }

 private:
  std::string_view name_, type_, help_;
  std::map<std::string, double> samples_;
};

std::string code_name(std::int32_t code) {
  switch (static_cast<Code>(code)) {
#define GYRE_CODE_CASE(name, value, text, remedy) \
  case Code::name:                                \
    return #name;
    GYRE_CODES(GYRE_CODE_CASE)
#undef GYRE_CODE_CASE
  }
  return std::to_string(code);
}

// As in gyre.h, without "gyre".
std::string collective_label(std::size_t function) {
  if (function == exchange_function) return "SendAndRecv";
  return std::string(function_name(static_cast<Function>(function)).substr(4));
}

struct MetricFamilies {
  MetricFamily build{"gyre_build_info", "gauge", "The library's version; always 1."};
  MetricFamily communicators{
      "gyre_communicators", "gauge",
      "Communicators of this process whose ranks have met, one for each rank in it."};
  MetricFamily info{"gyre_communicator_info", "gauge",
                    "The name that the program gave to a communicator; always 1."};
  MetricFamily size{"gyre_communicator_size", "gauge", "Ranks of the communicator."};
  MetricFamily failed{"gyre_communicator_failed", "gauge",
                      "1 once the communicator is broken, with the code of the cause."};
  MetricFamily operations{"gyre_operations_total", "counter",
                          "Calls that succeeded; a group's sends and receives count as one."};
  MetricFamily bytes{"gyre_operation_bytes_total", "counter",
                     "Bytes of those calls: their count times the size of an element."};
  MetricFamily long_waits{"gyre_long_waits_total", "counter",
                          "Finished waits for peers that were long enough to be shown to tools."};
  MetricFamily waits{
      "gyre_wait_seconds", "gauge",
      "How long a rank's current wait for a peer has lasted; no sample without a wait."};
};

void add_operations(MetricFamilies& families, const RankSummary& head, const Label& communicator,
                    const Label& rank) {
  for (std::size_t function = 0; function <= exchange_function; ++function) {
    const RankSummary::DoneCount& done = head.done[function];
    if (done.operations == 0) continue;
    const Label collective{"collective", collective_label(function)};
    families.operations.add(done.operations, {communicator, rank, collective});
    families.bytes.add(done.bytes, {communicator, rank, collective});
  }
}

void add_head(MetricFamilies& families, const RankSummary& head, std::int64_t now_ns) {
  const Label communicator{"communicator", std::string(head.identity.name.view())};
  const Label rank{"rank", std::to_string(head.identity.rank)};
  for (const WaitRecord& wait : head.waits)
    families.waits.add(
        static_cast<double>(std::max<std::int64_t>(now_ns - wait.since_ns, 0)) / ns_per_s,
        {communicator,
         rank,
         {"phase", std::string(wait_phase_name(wait.phase))},
         {"what", std::string(blocked_on_word(wait.what))},
         {"peer", wait.peer < 0 ? std::string() : std::to_string(wait.peer)}});
  const std::int32_t code = head.failure ? head.failure->code : 0;
  if (head.has_met || code != 0)
    families.failed.add(std::uint64_t{code != 0}, {communicator, rank, {"code", code_name(code)}});
  if (!head.has_met) return;
  families.info.add(std::uint64_t{1},
                    {communicator, rank, {"name", std::string(head.identity.label.view())}});
  families.size.add(static_cast<std::uint64_t>(head.identity.size), {communicator, rank});
  families.long_waits.add(head.long_waits, {communicator, rank});
  add_operations(families, head, communicator, rank);
}

}  // namespace

std::string label_value(std::string_view text) {
  std::string shown;
  for (const char c : text) {
    if (c == '\n') {
      shown += "\\n";
      continue;
    }
    if (c == '"' || c == '\\') shown += '\\';
    shown += c < ' ' || c > '~' ? '?' : c;
  }
  return shown;
}

std::string metrics_text(std::string_view version, const std::vector<RankSummary>& heads,
                         std::int64_t now_ns) {
  MetricFamilies families;
  families.build.add(std::uint64_t{1}, {{"version", std::string(version)}});
  const auto met = std::ranges::count_if(heads, &RankSummary::has_met);
  families.communicators.add(static_cast<std::uint64_t>(met), {});
  for (const RankSummary& head : heads) add_head(families, head, now_ns);
  return families.build.text() + families.communicators.text() + families.info.text() +
         families.size.text() + families.failed.text() + families.operations.text() +
         families.bytes.text() + families.long_waits.text() + families.waits.text();
}

}  // namespace gyre::comm
