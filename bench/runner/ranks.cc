// Ranks: rendezvous, and the communicators. ThreadRanks' exchanges are in thread_ranks.cc. See
// ranks.h.
#include "bench/runner/ranks.h"

#include "bench/runner/machine.h"
#include "lib/base/settings.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <unistd.h>

namespace gyre::bench {
namespace {

// What is told of each rank's device.
struct DeviceRecord {
  std::int32_t ordinal = 0;
  std::int32_t shares_by_mps = 0;
  char bus[24] = {}, uuid[40] = {}, name[56] = {};
};
static_assert(sizeof(DeviceRecord) == 128);

template <std::size_t size>
void put_text(char (&field)[size], const std::string& text) {
  text.copy(field, size - 1);
}
template <std::size_t size>
std::string text_of(const char (&field)[size]) {
  return {field, strnlen(field, size)};
}

constexpr const char* rank_variables[] = {
    "GYRE_RANK", "RANK",         "OMPI_COMM_WORLD_RANK", "PMI_RANK",
    "PMIX_RANK", "SLURM_PROCID", "MV2_COMM_WORLD_RANK",  "GYRE_SIZE"};

// salloc and sbatch leave SLURM_PROCID in shells that are no rank; only a step's tasks are.
bool is_slurm_task() {
  const char* step = std::getenv("SLURM_STEP_ID");
  return step != nullptr && parse_integer(step, 0, 0xffffffef).ok();
}

}  // namespace

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

Result<std::unique_ptr<Ranks>> Ranks::enter(const Options& options, const DriverSource& source) {
  std::unique_ptr<Ranks> ranks(new Ranks(options));
  GYRE_TRY(ranks->meet());
  GYRE_TRY(ranks->gather_processes());
  GYRE_TRY(ranks->take_devices(source));
  GYRE_TRY(ranks->gather_seats());
  GYRE_TRY(ranks->split());
  return ranks;
}

Ranks::~Ranks() {
  // Errors here have been told before, by the call that failed.
  for (gyreComm_t comm : measured_)
    if (comm != nullptr && comm != of_group_) (void)gyreCommDestroy(comm);
  for (gyreComm_t comm : beside_)
    if (comm != nullptr && comm != of_group_) (void)gyreCommDestroy(comm);
  if (of_group_ != nullptr && of_group_ != launched_) (void)gyreCommDestroy(of_group_);
  if (launched_ != nullptr) (void)gyreCommDestroy(launched_);
}

gyreConfig_t Ranks::config(int device) const {
  gyreConfig_t config = GYRE_CONFIG_INITIALIZER;
  config.device = device;
  if (options_.timeout_s > 0)
    config.timeoutMs =
        static_cast<int>(std::min<std::int64_t>(options_.timeout_s * 1000LL, INT_MAX));
  return config;
}

Status Ranks::meet() {
  if (!launched_rank()) return {};
  gyreConfig_t settings = config(GYRE_DEVICE_HOST);
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

Status Ranks::gather_processes() {
  GYRE_ASSIGN(group_, split_color(world_process_));
  processes_seen_.resize(static_cast<std::size_t>(world_processes_));
  ProcessRecord& own = processes_seen_[static_cast<std::size_t>(world_process_)];
  own.pid = getpid();
  own.group = group_;
  put_text(own.host, host_name());
  return sum_bytes({reinterpret_cast<std::uint8_t*>(processes_seen_.data()),
                    processes_seen_.size() * sizeof(ProcessRecord)});
}

// Devices only if every process has some.
Status Ranks::take_devices(const DriverSource& source) {
  const auto own_ranks = static_cast<std::size_t>(ranks_per_process());
  GYRE_ASSIGN(devices_, Devices::find(options_.device, source));
  GYRE_ASSIGN(const std::uint64_t all, smallest(devices_ != nullptr ? 1 : 0));
  if (all == 0) devices_.reset();
  own_devices_.resize(own_ranks);
  if (devices_ == nullptr) {
    const auto allocator = options_.plain_memory ? HostAllocator::malloc : HostAllocator::library;
    for (std::size_t i = 0; i < own_ranks; ++i) memories_.push_back(host_memory(allocator));
    return {};
  }
  int before = 0;  // ranks on this host
  const auto own_process = static_cast<std::size_t>(world_process_);
  const std::string here = text_of(processes_seen_[own_process].host);
  for (std::size_t i = 0; i < own_process; ++i)
    if (text_of(processes_seen_[i].host) == here) before += ranks_per_process();
  GYRE_ASSIGN(const int first, first_device(before));
  for (std::size_t i = 0; i < own_ranks; ++i) {
    GYRE_ASSIGN(own_devices_[i], devices_->facts(first + static_cast<int>(i)));
    GYRE_ASSIGN(auto memory, devices_->memory(own_devices_[i].ordinal));
    memories_.push_back(std::move(memory));
  }
  return {};
}

Status Ranks::gather_seats() {
  const auto per_process = static_cast<std::size_t>(ranks_per_process());
  std::vector<DeviceRecord> records(processes_seen_.size() * per_process);
  for (std::size_t i = 0; i < per_process; ++i) {
    DeviceRecord& record = records[static_cast<std::size_t>(world_process_) * per_process + i];
    const DeviceFacts& own = own_devices_[i];
    record.ordinal = own.ordinal;
    record.shares_by_mps = own.shares_by_mps;
    put_text(record.bus, own.bus);
    put_text(record.uuid, own.uuid);
    put_text(record.name, own.name);
  }
  GYRE_TRY(sum_bytes(
      {reinterpret_cast<std::uint8_t*>(records.data()), records.size() * sizeof(DeviceRecord)}));
  for (const DeviceRecord& record : records) {
    const ProcessRecord& process = processes_seen_[seats_.size() / per_process];
    seats_.push_back({.rank = static_cast<int>(seats_.size()),
                      .group = process.group,
                      .pid = process.pid,
                      .host = text_of(process.host),
                      .device = {.ordinal = record.ordinal,
                                 .shares_by_mps = record.shares_by_mps != 0,
                                 .bus = text_of(record.bus),
                                 .name = text_of(record.name),
                                 .uuid = text_of(record.uuid)}});
  }
  return {};
}

int Ranks::sharers(std::size_t i) const {
  return static_cast<int>(std::ranges::count_if(
      seats_, [&](const Seat& seat) { return seat.shares_with(own_seat(i)); }));
}

Result<std::uint64_t> Ranks::smallest(std::uint64_t value) {
  if (launched_ != nullptr)
    GYRE_TRY(checked(gyreAllReduce(&value, &value, 1, gyreUint64, gyreMin, launched_, nullptr),
                     "gyreAllReduce"));
  return value;
}

// Rank 0's process makes the id; the processes' communicator carries it to the others.
Status Ranks::share_id(gyreUniqueId& id) {
  if (process_ == 0) GYRE_TRY(checked(gyreGetUniqueId(&id), "gyreGetUniqueId"));
  return sum_bytes({reinterpret_cast<std::uint8_t*>(id.internal), sizeof id.internal});
}

Status Ranks::join(const gyreUniqueId& id, int first, std::span<gyreComm_t> comms,
                   bool on_devices) {
  const auto own_first = static_cast<std::size_t>(first - process_ * ranks_per_process());
  GYRE_TRY(checked(gyreGroupStart(), "gyreGroupStart"));
  Status status;
  for (std::size_t i = 0; i < comms.size() && status.ok(); ++i) {
    gyreConfig_t settings =
        config(on_devices ? own_devices_[own_first + i].ordinal : GYRE_DEVICE_HOST);
    status = checked(
        gyreCommInitRankConfig(&comms[i], total(), id, first + static_cast<int>(i), &settings),
        "gyreCommInitRankConfig");
  }
  Status end = checked(gyreGroupEnd(), "gyreGroupEnd");
  return status.ok() ? end : status;
}

Status Ranks::prepare() {
  const auto own_ranks = static_cast<std::size_t>(ranks_per_process());
  const bool have_host_ranks = own_ranks == 1 && of_group_ != nullptr;
  measured_.assign(own_ranks, nullptr);
  if (on_devices()) {
    beside_.assign(own_ranks, nullptr);
    if (have_host_ranks)
      beside_[0] = of_group_;
    else
      GYRE_TRY(share_id(beside_id_));
  } else if (have_host_ranks) {
    measured_[0] = of_group_;
    return {};
  }
  GYRE_TRY(share_id(id_));
  if (options_.parallel_init) return {};
  const int first = process_ * ranks_per_process();
  if (on_devices() && !have_host_ranks) GYRE_TRY(join(beside_id_, first, beside_, false));
  return join(id_, first, measured_, on_devices());
}

Result<std::unique_ptr<ThreadRanks>> Ranks::make_thread_ranks(int thread) {
  const auto size = static_cast<std::size_t>(options_.ranks_per_thread);
  const std::size_t own_first = static_cast<std::size_t>(thread) * size;
  const int first = process_ * ranks_per_process() + static_cast<int>(own_first);
  const std::span own(measured_.data() + own_first, size);
  std::span<gyreComm_t> beside;
  if (!beside_.empty()) beside = {beside_.data() + own_first, size};
  if (!beside.empty() && beside[0] == nullptr) GYRE_TRY(join(beside_id_, first, beside, false));
  if (own[0] == nullptr) GYRE_TRY(join(id_, first, own, on_devices()));
  return std::make_unique<ThreadRanks>(
      first, total(), std::vector<gyreComm_t>(own.begin(), own.end()),
      std::vector<gyreComm_t>(beside.begin(), beside.end()), memories().subspan(own_first, size));
}

}  // namespace gyre::bench
