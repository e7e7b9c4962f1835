// Reads a process's place from launchers' variables: a table with one row per launcher, for rank,
// size, local rank and local size. The most specific launcher comes first. Values are parsed whole.
// Sets that contradict the one in use are reported. Nothing here opens, binds or waits.
#include "lib/rendezvous/launch_place.h"

#include <fmt/core.h>

#include <algorithm>
#include <climits>
#include <optional>
#include <sys/socket.h>
#include <unistd.h>

extern "C" char** environ;

namespace gyre::rendezvous {
namespace {

using Environment = std::map<std::string, std::string>;

// Slurm's steps that srun starts are numbered below this; batch scripts, interactive shells and
// the like have reserved numbers from here up (slurm.h: SLURM_MAX_NORMAL_STEP_ID).
constexpr std::int64_t slurm_special_steps = 0xfffffff0;

// Launchers that differ from the others.
constexpr std::string_view open_mpi = "Open MPI", mpich = "MPICH or Intel MPI", pmix = "PMIx",
                           srun = "srun", kubernetes = "Kubernetes (an indexed Job)";

const std::string* find(const Environment& environment, std::string_view name) {
  const auto found = environment.find(std::string(name));
  return found == environment.end() ? nullptr : &found->second;
}

// For people: outside text may be long and may hold anything.
std::string shown(std::string_view text) {
  constexpr std::size_t most = 60;
  std::string clean(text.substr(0, most));
  for (char& letter : clean)
    if (letter < ' ' || letter > '~') letter = '?';
  return text.size() > most ? clean + "..." : clean;
}

// The first of `names` that is set.
std::string_view first_set(const Environment& environment,
                           const std::vector<std::string_view>& names) {
  for (std::string_view name : names)
    if (find(environment, name) != nullptr) return name;
  return {};
}

Result<int> whole_number(const Environment& environment, std::string_view name, int least, int most,
                         std::string_view why_max) {
  const std::string& value = *find(environment, name);
  const auto parsed = parse_integer(value, least, most);
  if (parsed.ok()) return static_cast<int>(*parsed);
  return invalid_usage(fmt::format("{}=\"{}\" is not accepted: give a whole number from {} to {}{}",
                                   name, shown(value), least, most, why_max));
}

// The process at the other end of hydra's PMI socket: one per host and job, whatever shells and
// wrappers stand between it and us. Without such a socket, our parent.
std::string starter(const Environment& environment) {
  const std::string* text = find(environment, "PMI_FD");
  const auto descriptor = parse_integer(text == nullptr ? "" : *text, 0, INT_MAX);
  ucred peer{};
  socklen_t bytes = sizeof peer;
  if (descriptor.ok() &&
      getsockopt(static_cast<int>(*descriptor), SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0)
    return fmt::format("proxy {}", peer.pid);
  return fmt::format("parent {}", getppid());
}

std::string joined(const Environment& environment, const std::vector<std::string_view>& names) {
  std::string id;
  for (std::string_view name : names)
    if (const std::string* value = find(environment, name); value != nullptr)
      id += fmt::format("{}{}={}", id.empty() ? "" : " ", name, *value);
  return id;
}

std::string torchrun_job(const Environment& environment) {
  // The run id alone is "none" unless the user gave one.
  return joined(environment, {"TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "MASTER_ADDR",
                              "MASTER_PORT"});
}
std::string open_mpi_job(const Environment& environment) {
  const std::string_view name =
      first_set(environment, {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"});
  return name.empty() ? starter(environment) : joined(environment, {name});
}
std::string pmi_job(const Environment& environment) {
  const std::string id = joined(environment, {"PMI_JOBID"});
  return id.empty() ? starter(environment) : id;
}
std::string pmix_job(const Environment& environment) {
  return joined(environment, {"PMIX_NAMESPACE"});
}
std::string slurm_job(const Environment& environment) {
  return joined(environment, {"SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"});
}

std::string kubernetes_job(const Environment& environment) {
  return joined(environment, {"GYRE_RENDEZVOUS_ADDRESS"});
}

struct LauncherVariables {
  std::string_view name;
  // In each list the first that is set counts.
  std::vector<std::string_view> rank, size, local_rank, local_size;
  std::string (*job)(const Environment&);
};

const std::vector<LauncherVariables>& launchers() {
  static const std::vector<LauncherVariables>& table = *new std::vector<LauncherVariables>{
      {"torchrun", {"RANK"}, {"WORLD_SIZE"}, {"LOCAL_RANK"}, {"LOCAL_WORLD_SIZE"}, torchrun_job},
      {open_mpi,
       {"OMPI_COMM_WORLD_RANK"},
       {"OMPI_COMM_WORLD_SIZE"},
       {"OMPI_COMM_WORLD_LOCAL_RANK"},
       {"OMPI_COMM_WORLD_LOCAL_SIZE"},
       open_mpi_job},
      {mpich,
       {"PMI_RANK"},
       {"PMI_SIZE"},
       {"MPI_LOCALRANKID", "PMI_LOCAL_RANK"},
       {"MPI_LOCALNRANKS", "PMI_LOCAL_SIZE"},
       pmi_job},
      {"MVAPICH",
       {"MV2_COMM_WORLD_RANK"},
       {"MV2_COMM_WORLD_SIZE"},
       {"MV2_COMM_WORLD_LOCAL_RANK"},
       {"MV2_COMM_WORLD_LOCAL_SIZE"},
       pmi_job},
      // PMIx tells the size only to its own clients.
      {pmix, {"PMIX_RANK"}, {"GYRE_SIZE"}, {"PMIX_LOCAL_RANK"}, {"PMIX_LOCAL_SIZE"}, pmix_job},
      {srun,
       {"SLURM_PROCID"},
       {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"},
       {"SLURM_LOCALID"},
       {},
       slurm_job},
      // The size is not said in a Job's pods.
      {kubernetes, {"JOB_COMPLETION_INDEX"}, {"GYRE_SIZE"}, {}, {}, kubernetes_job},
  };
  return table;
}

// What one launcher says; -1 is unknown.
struct LauncherClaim {
  const LauncherVariables* launcher = nullptr;  // null: Gyre's own variables
  std::string_view rank_name, size_name;
  int rank = -1, size = -1, local_rank = -1, local_size = -1;
  bool several_hosts = false;

  std::string_view name() const { return launcher == nullptr ? "Gyre" : launcher->name; }
  std::string text() const {
    return fmt::format("{} ({}={}, {}={})", name(), rank_name, rank, size_name, size);
  }
};

// SLURM_ variables are also in the shells of salloc and sbatch, where they describe no rank.
bool in_slurm_step(const Environment& environment) {
  const std::string* step = find(environment, "SLURM_STEP_ID");
  return step != nullptr && parse_integer(*step, 0, slurm_special_steps - 1).ok();
}

// "2(x3),1": two tasks on each of three nodes, then one. The tasks of the `node`-th; -1 if there is
// no such node or the text is something else.
int slurm_tasks_of_node(std::string_view text, std::int64_t node) {
  int found = -1;
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    std::string_view entry = text.substr(0, comma);
    text.remove_prefix(std::min(comma + 1, text.size()));
    std::int64_t nodes = 1;
    if (const std::size_t open = entry.find("(x"); open != entry.npos && entry.back() == ')') {
      const auto repeat =
          parse_integer(entry.substr(open + 2, entry.size() - open - 3), 1, 1 << 30);
      if (!repeat.ok()) return -1;
      nodes = *repeat;
      entry = entry.substr(0, open);
    }
    const auto tasks = parse_integer(entry, 0, 1 << 30);
    if (!tasks.ok()) return -1;
    if (node >= 0 && node < nodes) found = static_cast<int>(*tasks);
    node -= nodes;
  }
  return found;
}

void add_slurm_nodes(const Environment& environment, LauncherClaim* claim) {
  const std::string_view tasks =
      first_set(environment, {"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"});
  const std::string* node = find(environment, "SLURM_NODEID");
  const auto index = parse_integer(node == nullptr ? "" : *node, 0, INT_MAX);
  if (!tasks.empty() && index.ok())
    claim->local_size = slurm_tasks_of_node(*find(environment, tasks), *index);
  const std::string_view nodes =
      first_set(environment, {"SLURM_STEP_NUM_NODES", "SLURM_NNODES", "SLURM_JOB_NUM_NODES"});
  claim->several_hosts =
      !nodes.empty() && parse_integer(*find(environment, nodes), 2, INT_MAX).ok();
}

Status check_local(const LauncherClaim& claim, std::string_view rank_name,
                   std::string_view size_name) {
  if (claim.local_size > claim.size)
    return invalid_usage(fmt::format("{} is {}, but the whole job has {} ranks ({})", size_name,
                                     claim.local_size, claim.size, claim.size_name));
  const int ranks = claim.local_size > 0 ? claim.local_size : claim.size;
  if (claim.local_rank >= ranks)
    return invalid_usage(
        fmt::format("{} is {}, but it is counted from 0 and there are {} ranks ({})", rank_name,
                    claim.local_rank, ranks, claim.local_size > 0 ? size_name : claim.size_name));
  return Status();
}

Result<LauncherClaim> read_claim(const LauncherVariables& launcher,
                                 const Environment& environment) {
  LauncherClaim claim;
  claim.launcher = &launcher;
  claim.rank_name = first_set(environment, launcher.rank);
  claim.size_name = first_set(environment, launcher.size);
  GYRE_ASSIGN(claim.size, whole_number(environment, claim.size_name, 1, INT_MAX, ""));
  GYRE_ASSIGN(claim.rank,
              whole_number(environment, claim.rank_name, 0, claim.size - 1,
                           fmt::format(", because {} is {}", claim.size_name, claim.size)));
  const std::string_view local_rank = first_set(environment, launcher.local_rank);
  const std::string_view local_size = first_set(environment, launcher.local_size);
  if (!local_size.empty()) {
    GYRE_ASSIGN(claim.local_size, whole_number(environment, local_size, 1, INT_MAX, ""));
  }
  if (!local_rank.empty()) {
    GYRE_ASSIGN(claim.local_rank, whole_number(environment, local_rank, 0, INT_MAX, ""));
  }
  if (launcher.name == srun) add_slurm_nodes(environment, &claim);
  if (launcher.name == kubernetes) claim.local_rank = 0, claim.local_size = 1;  // of its pod
  GYRE_TRY(check_local(claim, local_rank, local_size.empty() ? claim.size_name : local_size));
  return claim;
}

Result<LauncherClaim> gyre_claim(const Settings& settings) {
  if (settings.size < 0)
    return invalid_usage("GYRE_RANK is set but GYRE_SIZE is not: set both, on every rank");
  if (settings.rank >= settings.size)
    return invalid_usage(fmt::format(
        "GYRE_RANK=\"{}\" is not accepted: give a whole number from 0 to {}, because GYRE_SIZE is "
        "{}",
        settings.rank, settings.size - 1, settings.size));
  LauncherClaim claim;
  claim.rank_name = "GYRE_RANK";
  claim.size_name = "GYRE_SIZE";
  claim.rank = static_cast<int>(settings.rank);
  claim.size = static_cast<int>(settings.size);
  return claim;
}

// Every set that is whole, in order of precedence. A malformed first one is an error; a malformed
// later one is not used and only warned of.
Result<std::vector<LauncherClaim>> read_claims(const Settings& settings,
                                               const Environment& environment,
                                               std::vector<std::string>* warnings) {
  std::vector<LauncherClaim> claims;
  if (settings.rank >= 0) {
    GYRE_ASSIGN(LauncherClaim claim, gyre_claim(settings));
    claims.push_back(claim);
  }
  for (const LauncherVariables& launcher : launchers()) {
    const bool has_rank = !first_set(environment, launcher.rank).empty();
    const bool has_size = !first_set(environment, launcher.size).empty();
    if (!has_rank || !has_size) continue;
    if (launcher.name == srun && !in_slurm_step(environment)) continue;
    if (launcher.size.front() == "GYRE_SIZE" && settings.rank >= 0) continue;
    auto claim = read_claim(launcher, environment);
    if (claim.ok()) {
      claims.push_back(*claim);
    } else if (claims.empty()) {
      return std::move(claim).status().while_doing(
          fmt::format("reading the variables of {}", launcher.name));
    } else {
      warnings->push_back(
          fmt::format("ignored: {}. In use: {}", claim.status().message(), claims.front().text()));
    }
  }
  return claims;
}

// A launcher that srun started, one per node, leaves its own Slurm variables to its ranks: fewer
// Slurm tasks than ranks contradict nothing.
bool contradicts(const LauncherClaim& used, const LauncherClaim& other) {
  if (other.rank == used.rank && other.size == used.size) return false;
  return other.name() != srun || other.size >= used.size;
}

Status nothing_said(const Settings& settings, const Environment& environment) {
  if (settings.size >= 0)
    return invalid_usage("GYRE_SIZE is set but GYRE_RANK is not: set both, on every rank");
  std::string found;
  for (const LauncherVariables& launcher : launchers()) {
    const std::string_view rank = first_set(environment, launcher.rank);
    const std::string_view size = first_set(environment, launcher.size);
    if (rank.empty() == size.empty() || launcher.name == srun) continue;
    found += fmt::format(" {} is set but {} is not.", rank.empty() ? size : rank,
                         rank.empty() ? launcher.rank.front() : launcher.size.front());
  }
  if (find(environment, "SLURM_JOB_ID") != nullptr)
    found +=
        " This process is in a Slurm allocation, but in no step of it: start the ranks with srun.";
  return invalid_usage(
      "no variable says which rank this process is." + found +
      " Start the job with `gyre run`, torchrun, mpirun or srun, or set GYRE_RANK and GYRE_SIZE on "
      "every rank (GYRE_RANK=0 GYRE_SIZE=1 for a single one)");
}

void apply_own_local(const Settings& settings, LauncherClaim* claim) {
  if (settings.local_rank >= 0) claim->local_rank = static_cast<int>(settings.local_rank);
  if (settings.local_size >= 0) claim->local_size = static_cast<int>(settings.local_size);
}

// What nobody said is taken as on one host, where rank and local rank are the same.
void set_local_place(const LauncherClaim& used, LaunchPlace* place,
                     std::vector<std::string>* warnings) {
  const bool known = used.local_size > 0;
  place->several_hosts = known ? used.local_size != used.size : used.several_hosts && used.size > 1;
  place->one_host = used.size == 1 || (known && used.local_size == used.size);
  place->local_size = known ? used.local_size : used.size;
  place->local_rank = used.local_rank >= 0 ? used.local_rank : place->several_hosts ? 0 : used.rank;
  if (known || used.size == 1) return;
  if (place->several_hosts)
    warnings->push_back(fmt::format(
        "{} does not say how many ranks share this host: set GYRE_LOCAL_RANK and GYRE_LOCAL_SIZE",
        used.name()));
  else
    place->source += ", taken as all on one host";
}

// The key-value space of the launcher that is believed, and of no other.
void add_launcher_space(const Environment& environment, const LauncherClaim& used,
                        LaunchPlace* place) {
  const auto names = [&](std::string_view name) { return used.name() == name; };
  const std::string* text = find(environment, "PMI_FD");
  const auto descriptor = parse_integer(text == nullptr ? "" : *text, 0, INT_MAX);
  if (names(mpich) && descriptor.ok()) place->pmi_descriptor = static_cast<int>(*descriptor);
  const std::string* rank = find(environment, "PMIX_RANK");
  place->has_pmix = (names(open_mpi) || names(pmix) || names(srun)) && rank != nullptr &&
                    *rank == std::to_string(used.rank) &&
                    find(environment, "PMIX_NAMESPACE") != nullptr;
}

}  // namespace

Result<LaunchPlace> read_launch_place(const Settings& settings,
                                      const std::map<std::string, std::string>& environment,
                                      std::vector<std::string>* warnings) {
  std::vector<std::string> unheard;
  if (warnings == nullptr) warnings = &unheard;
  GYRE_ASSIGN(const std::vector<LauncherClaim> claims,
              read_claims(settings, environment, warnings));
  if (claims.empty()) return nothing_said(settings, environment);

  LauncherClaim used = claims.front();
  for (const LauncherClaim& other : claims) {
    if (contradicts(used, other))
      warnings->push_back(
          fmt::format("{} and {} contradict each other; {} is used because it is the more specific "
                      "one. Unset what is wrong",
                      used.text(), other.text(), used.name()));
    if (other.rank != used.rank || other.size != used.size) continue;
    if (used.local_rank < 0) used.local_rank = other.local_rank;
    if (used.local_size < 0) used.local_size = other.local_size;
    used.several_hosts = used.several_hosts || other.several_hosts;
  }
  if (settings.size >= 0 && settings.rank < 0 && used.size_name != "GYRE_SIZE")
    warnings->push_back(
        fmt::format("GYRE_SIZE is ignored because GYRE_RANK is not set. In use: {}", used.text()));
  apply_own_local(settings, &used);
  GYRE_TRY(check_local(used, "GYRE_LOCAL_RANK", "GYRE_LOCAL_SIZE"));

  LaunchPlace place;
  place.rank = used.rank;
  place.size = used.size;
  place.source = fmt::format("{} ({}, {})", used.name(), used.rank_name, used.size_name);
  place.job_id = used.launcher == nullptr ? "default" : used.launcher->job(environment);
  if (!settings.job_id.empty()) place.job_id = settings.job_id;
  set_local_place(used, &place, warnings);
  add_launcher_space(environment, used, &place);
  return place;
}

std::map<std::string, std::string> process_environment() {
  std::map<std::string, std::string> environment;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::size_t equals = text.find('=');
    if (equals != text.npos) environment.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return environment;
}

}  // namespace gyre::rendezvous
