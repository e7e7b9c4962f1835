// JSON: see json.h. Like nccl-tests, it writes booleans and the root as strings, for the scripts
// that read them.
#include "bench/runner/json.h"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <string_view>
#include <unistd.h>

extern "C" char** environ;

namespace gyre::bench {
namespace {

using nlohmann::ordered_json;

constexpr int file_version = 3;

const char* truth(bool value) { return value ? "true" : "false"; }

// The variables that bear on a run. The rest of an environment is nobody's business and may hold
// secrets.
ordered_json relevant_environment() {
  constexpr std::string_view prefixes[] = {"GYRE_", "NCCL_", "CUDA_",       "OMPI_",      "PMI_",
                                           "PMIX_", "MPI_",  "MV2_",        "SLURM_",     "UCX_",
                                           "OMP_",  "RANK=", "WORLD_SIZE=", "LOCAL_RANK="};
  ordered_json list = ordered_json::array();
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    for (const std::string_view prefix : prefixes)
      if (text.starts_with(prefix)) list.push_back(text);
  }
  return list;
}

// The same keys without values where the collective has no such form.
ordered_json absent_placement_json(const Options& options) {
  return {{options.cpu_time ? "cpu_time" : "time", nullptr},
          {"alg_bw", nullptr},
          {"bus_bw", nullptr},
          {"nwrong", nullptr}};
}

ordered_json placement_json(const Options& options, const Placement& placement) {
  ordered_json object;
  object[options.cpu_time ? "cpu_time" : "time"] =
      options.cpu_time ? placement.cpu_time_us : placement.time_us;
  object["alg_bw"] = placement.algorithm_bandwidth;
  object["bus_bw"] = placement.bus_bandwidth;
  object["nwrong"] = nullptr;
  if (placement.wrong) object["nwrong"] = static_cast<double>(*placement.wrong);
  return object;
}

ordered_json iterations_json(const Options& options, const Placement& placement) {
  const IterationStatistics& s = placement.statistics;
  ordered_json object = {{"skipped_iterations", options.per_iteration_skip},
                         {"min_us", s.least},
                         {"max_us", s.most},
                         {"avg_us", s.mean},
                         {"p50_us", s.p50},
                         {"p95_us", s.p95},
                         {"p99_us", s.p99},
                         {"stdev_us", s.deviation},
                         {"cv_pct", s.variation_percent},
                         {"times_us", placement.iteration_us}};
  if (!placement.process_iteration_us.empty())
    object["per_process_max_times_us"] = placement.process_iteration_us;
  return object;
}

}  // namespace

std::string time_of_day() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  char text[64];
  return std::string(text, std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &local));
}

Result<std::unique_ptr<JsonReport>> JsonReport::create(const std::string& path,
                                                       const std::vector<std::string>& arguments,
                                                       int library_version) {
  auto report = std::make_unique<JsonReport>();
  report->path_ = path;
  report->file_.reset(std::fopen(path.c_str(), "wx"));
  for (int i = 0; !report->file_ && errno == EEXIST; ++i) {
    report->path_ = fmt::format("{}.{}", path, i);
    report->file_.reset(std::fopen(report->path_.c_str(), "wx"));
  }
  if (!report->file_) return Status::from_errno("creating " + report->path_, errno);
  ordered_json& document = report->document_;
  document["version"] = file_version;
  document["start_time"] = time_of_day();
  document["args"] = arguments;
  document["env"] = relevant_environment();
  document["nccl_version"] = library_version;  // the key is nccl-tests'; the library is Gyre
  return report;
}

void JsonReport::configuration(const Options& options, const std::vector<Seat>& seats) {
  ordered_json& config = document_["config"];
  config["nthreads"] = options.threads;
  config["ngpus"] = options.ranks_per_thread;
  config["minimum_bytes"] = options.min_bytes;
  config["maximum_bytes"] = options.max_bytes;
  if (options.step_factor > 1)
    config["step_factor"] = options.step_factor;
  else
    config["step_bytes"] = options.step_bytes;
  config["warmup_iters"] = options.warmup;
  config["iterations"] = options.iterations;
  config["aggregated_iterations"] = options.aggregated;
  config["validation"] = options.checks;
  config["graph"] = options.graph_launches;
  config["blocking_collectives"] = truth(options.blocking != Blocking::none);
  config["per_iter_timing"] = truth(options.per_iteration || options.stats);
  config["per_iter_skip"] = options.per_iteration_skip;
  config["plain_memory"] = truth(options.plain_memory);
  config["parallel_init"] = truth(options.parallel_init);
  config["devices"] = ordered_json::array();
  for (const Seat& seat : seats)
    config["devices"].push_back({{"rank", seat.rank},
                                 {"group", seat.group},
                                 {"pid", seat.pid},
                                 {"hostname", seat.host},
                                 {"device", std::max(seat.device.ordinal, 0)},
                                 {"device_hex", seat.device.bus},
                                 {"device_info", seat.device.name}});
  document_["results"] = ordered_json::array();
}

void JsonReport::add(const Options& options, const Row& row) {
  ordered_json object;
  object["size"] = row.bytes;
  object["count"] = row.count;
  object["type"] = element_name(row.type);
  object["redop"] = row.op ? op_name(*row.op) : "none";
  object["root"] = fmt::format("{:>6}", row.root);
  object["out_of_place"] = placement_json(options, row.out_of_place);
  const bool iterations = options.per_iteration || options.stats;
  if (iterations) object["out_of_place_per_iter"] = iterations_json(options, row.out_of_place);
  object["in_place"] =
      row.in_place ? placement_json(options, *row.in_place) : absent_placement_json(options);
  if (iterations)
    object["in_place_per_iter"] =
        row.in_place ? iterations_json(options, *row.in_place) : ordered_json();
  object["actual_iterations"] = options.iterations;
  object["experiment_name"] = "";
  document_["results"].push_back(std::move(object));
}

void JsonReport::conclude(const RunVerdict& verdict) {
  document_["out_of_bounds"] = {{"count", verdict.failed_checks},
                                {"okay", truth(verdict.failed_checks == 0)}};
  document_["average_bus_bandwidth"] = {
      {"bandwidth", verdict.average_bus_bandwidth},
      {"okay", verdict.min_bandwidth < 0 ? "unchecked" : truth(verdict.fast_enough())}};
  document_["errors"] = ordered_json::array();
}

void JsonReport::error(const std::string& text) { document_["errors"].push_back(text); }

Status JsonReport::write() {
  document_["end_time"] = time_of_day();
  const std::string text =
      document_.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  const bool whole = std::fwrite(text.data(), 1, text.size(), file_.get()) == text.size();
  if (!whole || std::fflush(file_.get()) != 0) return Status::from_errno("writing " + path_, errno);
  return {};
}

}  // namespace gyre::bench
