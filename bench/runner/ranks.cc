// Ranks: meeting, and the communicators. The crew's exchanges are in crew.cc. See ranks.h.
#include "bench/runner/ranks.h"

#include "bench/runner/machine.h"
#include "lib/base/settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <unistd.h>

namespace gyre::bench {
namespace {

// What the processes tell each other at the beginning.
struct ProcessRecord {
  std::int32_t pid = 0;
  std::int32_t group = 0;
  char host[56] = {};
};
static_assert(sizeof(ProcessRecord) == 64);

constexpr const char* rank_variables[] = {
    "GYRE_RANK", "RANK",         "OMPI_COMM_WORLD_RANK", "PMI_RANK",
    "PMIX_RANK", "SLURM_PROCID", "MV2_COMM_WORLD_RANK",  "GYRE_SIZE"};

// salloc and sbatch leave SLURM_PROCID in shells that are no rank; only a step's tasks are.
bool is_slurm_task() {
  const char* step = std::getenv("SLURM_STEP_ID");
  return step != nullptr && parse_integer(step, 0, 0xffffffef).ok();
}

}  // namespace

Status checked(gyreResult_t result, std::string_view call) {
  if (result == gyreSuccess) return {};
  const std::string cause = gyreGetLastError(nullptr);
  const auto code = static_cast<Code>(result);
  if (cause.empty()) return Status(code, fmt::format("{}: {}", call, gyreGetErrorString(result)));
  const bool named = cause.find(call) != cause.npos;
  return Status(code, named ? cause : fmt::format("{}: {}", call, cause));
}

std::optional<int> launched_rank() {
  for (const std::string name : rank_variables) {
    const char* text = std::getenv(name.c_str());
    if (text == nullptr || (name == "SLURM_PROCID" && !is_slurm_task())) continue;
    // What cannot be read as a rank is gyreCommInitEnv's to explain, in every process.
    return name == "GYRE_SIZE"
               ? 0
               : static_cast<int>(
                     parse_integer(text, 0, INT_MAX).ok() ? *parse_integer(text, 0, INT_MAX) : 0);
  }
  return std::nullopt;
}

const char* tests_variable(const std::string& name) {
  const char* own = std::getenv(("GYRE_TESTS_" + name).c_str());
  return own != nullptr ? own : std::getenv(("NCCL_TESTS_" + name).c_str());
}

Result<int> parse_split(std::string_view text, int process) {
  constexpr std::pair<std::string_view, char> words[] = {{"AND", '&'}, {"OR", '|'}, {"MOD", '%'},
                                                         {"DIV", '/'}, {"&", '&'},  {"|", '|'},
                                                         {"%", '%'},   {"/", '/'}};
  std::string upper(text);
  std::ranges::transform(upper, upper.begin(), [](unsigned char c) { return std::toupper(c); });
  for (const auto& [word, operation] : words) {
    if (!upper.starts_with(word)) continue;
    const std::size_t digits = upper.find_first_not_of(' ', word.size());
    if (digits == upper.npos) break;
    GYRE_ASSIGN(const std::int64_t parsed, parse_integer(upper.substr(digits), 0, INT_MAX));
    const int number = static_cast<int>(parsed);
    if (number == 0 && (operation == '%' || operation == '/')) break;
    switch (operation) {
      case '&':
        return process & number;
      case '|':
        return process | number;
      case '%':
        return process % number;
      default:
        return process / number;
    }
  }
  return invalid_argument(fmt::format(
      "\"{}\" does not say how to split; use AND, OR, MOD or DIV (& | % /) and a number", text));
}

Result<int> split_color(int process) {
  if (const char* mask = tests_variable("SPLIT_MASK"))
    return process & static_cast<int>(std::strtoul(mask, nullptr, 16) & INT_MAX);
  if (const char* text = tests_variable("SPLIT")) return parse_split(text, process);
  return 0;
}

Result<std::unique_ptr<Ranks>> Ranks::enter(const Options& options) {
  std::unique_ptr<Ranks> ranks(new Ranks(options));
  GYRE_TRY(ranks->meet());
  GYRE_TRY(ranks->gather_seats());
  GYRE_TRY(ranks->split());
  return ranks;
}

Ranks::~Ranks() {
  // Errors here have been told before, by the call that failed.
  for (gyreComm_t comm : measured_)
    if (comm != nullptr && comm != of_group_) (void)gyreCommDestroy(comm);
  if (of_group_ != nullptr && of_group_ != launched_) (void)gyreCommDestroy(of_group_);
  if (launched_ != nullptr) (void)gyreCommDestroy(launched_);
}

gyreConfig_t Ranks::config() const {
  gyreConfig_t config = GYRE_CONFIG_INITIALIZER;
  config.device = GYRE_DEVICE_HOST;
  if (options_.timeout_s > 0)
    config.timeoutMs =
        static_cast<int>(std::min<std::int64_t>(options_.timeout_s * 1000LL, INT_MAX));
  return config;
}

Status Ranks::meet() {
  if (!launched_rank()) return {};
  gyreConfig_t settings = config();
  GYRE_TRY(checked(gyreCommInitEnv(&launched_, &settings), "gyreCommInitEnv"));
  GYRE_TRY(checked(gyreCommCount(launched_, &world_processes_), "gyreCommCount"));
  GYRE_TRY(checked(gyreCommUserRank(launched_, &world_process_), "gyreCommUserRank"));
  of_group_ = launched_;
  processes_ = world_processes_;
  process_ = world_process_;
  return {};
}

Status Ranks::split() {
  int same = 0;
  for (const Seat& seat : seats_) same += seat.group == group_;
  const int per_process = ranks_per_process();
  if (same == world_processes_ * per_process) return {};
  GYRE_TRY(checked(gyreCommSplit(launched_, group_, world_process_, &of_group_, nullptr),
                   "gyreCommSplit"));
  GYRE_TRY(checked(gyreCommCount(of_group_, &processes_), "gyreCommCount"));
  return checked(gyreCommUserRank(of_group_, &process_), "gyreCommUserRank");
}

// Everybody's bytes where its own are not zero: a gather of disjoint parts.
Status Ranks::sum_bytes(std::span<std::uint8_t> bytes) {
  if (of_group_ == nullptr) return {};
  return checked(gyreAllReduce(bytes.data(), bytes.data(), bytes.size(), gyreUint8, gyreSum,
                               of_group_, nullptr),
                 "gyreAllReduce");
}

Status Ranks::gather_seats() {
  GYRE_ASSIGN(group_, split_color(world_process_));
  std::vector<ProcessRecord> records(static_cast<std::size_t>(world_processes_));
  ProcessRecord& own = records[static_cast<std::size_t>(world_process_)];
  own.pid = getpid();
  own.group = group_;
  host_name().copy(own.host, sizeof own.host - 1);
  const std::string here = own.host;
  GYRE_TRY(sum_bytes(
      {reinterpret_cast<std::uint8_t*>(records.data()), records.size() * sizeof(ProcessRecord)}));
  ranks_here_ = 0;
  for (const ProcessRecord& record : records) {
    const std::string host(record.host, strnlen(record.host, sizeof record.host));
    if (host == here) ranks_here_ += ranks_per_process();
    for (int i = 0; i < ranks_per_process(); ++i)
      seats_.push_back({.rank = static_cast<int>(seats_.size()),
                        .group = record.group,
                        .pid = record.pid,
                        .host = host});
  }
  return {};
}

Result<std::uint64_t> Ranks::smallest(std::uint64_t value) {
  if (launched_ != nullptr)
    GYRE_TRY(checked(gyreAllReduce(&value, &value, 1, gyreUint64, gyreMin, launched_, nullptr),
                     "gyreAllReduce"));
  return value;
}

// Rank 0's process makes the id; the processes' communicator carries it to the others.
Status Ranks::share_id() {
  if (process_ == 0) GYRE_TRY(checked(gyreGetUniqueId(&id_), "gyreGetUniqueId"));
  return sum_bytes({reinterpret_cast<std::uint8_t*>(id_.internal), sizeof id_.internal});
}

Status Ranks::join(int first, std::span<gyreComm_t> comms) {
  gyreConfig_t settings = config();
  GYRE_TRY(checked(gyreGroupStart(), "gyreGroupStart"));
  Status status;
  for (std::size_t i = 0; i < comms.size() && status.ok(); ++i)
    status = checked(
        gyreCommInitRankConfig(&comms[i], total(), id_, first + static_cast<int>(i), &settings),
        "gyreCommInitRankConfig");
  Status end = checked(gyreGroupEnd(), "gyreGroupEnd");
  return status.ok() ? end : status;
}

Status Ranks::prepare() {
  measured_.assign(static_cast<std::size_t>(ranks_per_process()), nullptr);
  if (ranks_per_process() == 1 && of_group_ != nullptr) {
    measured_[0] = of_group_;
    return {};
  }
  GYRE_TRY(share_id());
  if (options_.parallel_init) return {};
  return join(process_ * ranks_per_process(), measured_);
}

Result<std::unique_ptr<Crew>> Ranks::make_crew(int thread) {
  const int size = options_.ranks_per_thread;
  const int first = process_ * ranks_per_process() + thread * size;
  const std::span<gyreComm_t> own(measured_.data() + thread * size, static_cast<std::size_t>(size));
  if (own[0] == nullptr) GYRE_TRY(join(first, own));
  return std::make_unique<Crew>(first, total(), std::vector<gyreComm_t>(own.begin(), own.end()));
}

}  // namespace gyre::bench
