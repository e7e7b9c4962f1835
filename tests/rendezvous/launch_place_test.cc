// Launchers' variables: tables of environments, and the place or the error that each must give.
#include "lib/rendezvous/rendezvous.h"
#include "tests/support/catch.h"

#include <sys/socket.h>

namespace launch_place_test {

using namespace gyre;
using namespace gyre::control;
using namespace gyre::rendezvous;

namespace {

using Environment = std::map<std::string, std::string>;

struct Read {
  Result<LaunchPlace> place;
  std::vector<std::string> warnings;
};

Read read(const Environment& environment) {
  std::vector<std::string> warnings;
  const auto settings = parse_settings(environment, nullptr);
  if (!settings.ok()) return {settings.status(), {}};
  auto place = read_launch_place(*settings, environment, &warnings);
  return {std::move(place), std::move(warnings)};
}

Environment with(Environment base, const Environment& changes) {
  for (const auto& [name, value] : changes) base[name] = value;
  return base;
}

bool contains(std::string_view text, std::string_view part) { return text.find(part) != text.npos; }

const Environment torchrun = {{"RANK", "5"},
                              {"WORLD_SIZE", "8"},
                              {"LOCAL_RANK", "1"},
                              {"LOCAL_WORLD_SIZE", "4"},
                              {"GROUP_RANK", "1"},
                              {"MASTER_ADDR", "10.0.0.1"},
                              {"MASTER_PORT", "29500"},
                              {"TORCHELASTIC_RUN_ID", "none"},
                              {"TORCHELASTIC_RESTART_COUNT", "0"}};
// As mpirun 4.1.4 sets them.
const Environment open_mpi = {{"OMPI_COMM_WORLD_RANK", "1"},
                              {"OMPI_COMM_WORLD_SIZE", "2"},
                              {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                              {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                              {"OMPI_MCA_ess_base_jobid", "1306656769"},
                              {"PMIX_NAMESPACE", "1306656769"},
                              {"PMIX_RANK", "1"}};
// As hydra 4.0.2 sets them.
const Environment mpich = {
    {"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}};
const Environment mvapich = {{"MV2_COMM_WORLD_RANK", "3"},
                             {"MV2_COMM_WORLD_SIZE", "4"},
                             {"MV2_COMM_WORLD_LOCAL_RANK", "1"},
                             {"MV2_COMM_WORLD_LOCAL_SIZE", "2"}};
const Environment srun = {
    {"SLURM_PROCID", "5"},         {"SLURM_NTASKS", "7"},  {"SLURM_STEP_NUM_TASKS", "7"},
    {"SLURM_LOCALID", "1"},        {"SLURM_NODEID", "2"},  {"SLURM_STEP_TASKS_PER_NODE", "2(x3),1"},
    {"SLURM_STEP_NUM_NODES", "4"}, {"SLURM_JOB_ID", "42"}, {"SLURM_STEP_ID", "0"}};

}  // namespace

TEST_CASE("each launcher's variables give rank, size, local place and job", "[launch_place]") {
  struct Row {
    const char* what;
    Environment environment;
    int rank, size, local_rank, local_size;
    bool several_hosts;
    const char* source;
    const char* job_part;
  };
  const std::vector<Row> rows = {
      {"Gyre's own",
       {{"GYRE_RANK", "2"}, {"GYRE_SIZE", "4"}, {"GYRE_LOCAL_RANK", "0"}, {"GYRE_LOCAL_SIZE", "2"}},
       2,
       4,
       0,
       2,
       true,
       "Gyre (GYRE_RANK, GYRE_SIZE)",
       "default"},
      {"Gyre's own, the least",
       {{"GYRE_RANK", "2"}, {"GYRE_SIZE", "4"}, {"GYRE_JOB_ID", "mine"}},
       2,
       4,
       2,
       4,
       false,
       "Gyre (GYRE_RANK, GYRE_SIZE), taken as all on one host",
       "mine"},
      {"torchrun", torchrun, 5, 8, 1, 4, true, "torchrun (RANK, WORLD_SIZE)", "MASTER_PORT=29500"},
      {"Open MPI", open_mpi, 1, 2, 1, 2, false,
       "Open MPI (OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE)", "1306656769"},
      {"MPICH", mpich, 1, 2, 1, 2, false, "MPICH or Intel MPI (PMI_RANK, PMI_SIZE)", "parent "},
      {"MVAPICH", mvapich, 3, 4, 1, 2, true, "MVAPICH (MV2_COMM_WORLD_RANK, MV2_COMM_WORLD_SIZE)",
       "parent "},
      {"PMIx with a size from the user",
       {{"PMIX_RANK", "1"}, {"PMIX_NAMESPACE", "job.7"}, {"GYRE_SIZE", "2"}},
       1,
       2,
       1,
       2,
       false,
       "PMIx (PMIX_RANK, GYRE_SIZE), taken as all on one host",
       "job.7"},
      {"srun, third of four nodes", srun, 5, 7, 1, 2, true,
       "srun (SLURM_PROCID, SLURM_STEP_NUM_TASKS)", "SLURM_JOB_ID=42 SLURM_STEP_ID=0"},
      {"srun, last node",
       with(srun, {{"SLURM_PROCID", "6"}, {"SLURM_NODEID", "3"}, {"SLURM_LOCALID", "0"}}), 6, 7, 0,
       1, true, "srun (SLURM_PROCID, SLURM_STEP_NUM_TASKS)", "42"},
      {"srun with PMI2 says the local place by Slurm's variables",
       with(srun, {{"PMI_RANK", "5"}, {"PMI_SIZE", "7"}, {"PMI_JOBID", "42.0"}}), 5, 7, 1, 2, true,
       "MPICH or Intel MPI (PMI_RANK, PMI_SIZE)", "PMI_JOBID=42.0"},
      {"a local place that the user corrects",
       with(mpich, {{"GYRE_LOCAL_RANK", "0"}, {"GYRE_LOCAL_SIZE", "1"}}), 1, 2, 0, 1, true,
       "MPICH or Intel MPI (PMI_RANK, PMI_SIZE)", "parent "},
  };
  for (const Row& row : rows) {
    INFO(row.what);
    const Read got = read(row.environment);
    INFO(got.place.status().message());
    REQUIRE(got.place.ok());
    CHECK(got.place->rank == row.rank);
    CHECK(got.place->size == row.size);
    CHECK(got.place->local_rank == row.local_rank);
    CHECK(got.place->local_size == row.local_size);
    CHECK(got.place->several_hosts == row.several_hosts);
    CHECK(got.place->source == row.source);
    CHECK(contains(got.place->job_id, row.job_part));
    CHECK(got.warnings.empty());
  }
}

TEST_CASE("a pod of an indexed Job is a rank by itself, unless something in it starts several",
          "[launch_place]") {
  const Environment pod = {{"JOB_COMPLETION_INDEX", "3"},
                           {"GYRE_SIZE", "4"},
                           {"GYRE_RENDEZVOUS_ADDRESS", "train-0.train:29500"}};
  const Read alone = read(pod);
  REQUIRE(alone.place.ok());
  CHECK(alone.place->rank == 3);
  CHECK(alone.place->size == 4);
  CHECK(alone.place->local_rank == 0);
  CHECK(alone.place->local_size == 1);
  CHECK(alone.place->several_hosts);
  CHECK(alone.place->source == "Kubernetes (an indexed Job) (JOB_COMPLETION_INDEX, GYRE_SIZE)");
  CHECK(contains(alone.place->job_id, "train-0.train"));
  CHECK(alone.warnings.empty());
  const Read inside =
      read(with(pod, {{"GYRE_RANK", "1"}, {"GYRE_SIZE", "2"}, {"GYRE_LOCAL_SIZE", "2"}}));
  REQUIRE(inside.place.ok());
  CHECK(inside.place->rank == 1);
  CHECK_FALSE(inside.place->several_hosts);
  CHECK(inside.warnings.empty());
}

TEST_CASE("a value that is not a rank or a size is refused with its name", "[launch_place]") {
  struct Row {
    Environment environment;
    const char *name, *value, *accepted;
  };
  const std::string megabyte(1 << 20, '7');
  const std::vector<Row> rows = {
      {with(torchrun, {{"RANK", "4abc"}}), "RANK", "4abc", "from 0 to 7, because WORLD_SIZE is 8"},
      {with(torchrun, {{"RANK", ""}}), "RANK", "", "from 0 to 7"},
      {with(torchrun, {{"RANK", "-1"}}), "RANK", "-1", "from 0 to 7"},
      {with(torchrun, {{"RANK", "8"}}), "RANK", "8", "from 0 to 7"},
      {with(torchrun, {{"RANK", " 1"}}), "RANK", " 1", "from 0 to 7"},
      {with(torchrun, {{"RANK", "1e1"}}), "RANK", "1e1", "from 0 to 7"},
      {with(torchrun, {{"RANK", "0x1"}}), "RANK", "0x1", "from 0 to 7"},
      {with(torchrun, {{"WORLD_SIZE", "0"}}), "WORLD_SIZE", "0", "from 1 to"},
      {with(torchrun, {{"WORLD_SIZE", "99999999999999999999"}}), "WORLD_SIZE",
       "99999999999999999999", "from 1 to"},
      {with(torchrun, {{"WORLD_SIZE", megabyte}}), "WORLD_SIZE", "777", "from 1 to"},
      {with(torchrun, {{"WORLD_SIZE", "two\n\x1b[31m"}}), "WORLD_SIZE", "two??[31m", "from 1 to"},
      {with(torchrun, {{"LOCAL_RANK", "x"}}), "LOCAL_RANK", "x", "from 0"},
      {with(open_mpi, {{"OMPI_COMM_WORLD_RANK", "2"}}), "OMPI_COMM_WORLD_RANK", "2", "from 0 to 1"},
      {with(mpich, {{"PMI_SIZE", "1.0"}}), "PMI_SIZE", "1.0", "from 1 to"},
      {with(mvapich, {{"MV2_COMM_WORLD_LOCAL_SIZE", "0"}}), "MV2_COMM_WORLD_LOCAL_SIZE", "0",
       "from 1 to"},
      {with(srun, {{"SLURM_PROCID", "?"}}), "SLURM_PROCID", "?", "from 0 to 6"},
      {{{"GYRE_RANK", "4"}, {"GYRE_SIZE", "4"}}, "GYRE_RANK", "4", "from 0 to 3"},
  };
  for (const Row& row : rows) {
    const Read got = read(row.environment);
    INFO(row.name << "=" << row.value);
    REQUIRE_FALSE(got.place.ok());
    const Status status = got.place.status();
    INFO(status.message());
    CHECK(status.code() == Code::InvalidUsage);
    CHECK(contains(status.message(), std::string(row.name) + "=\"" + row.value));
    CHECK(contains(status.message(), row.accepted));
    CHECK(status.message().size() < 400);
  }
}

TEST_CASE("a local place that does not fit into the job is refused", "[launch_place]") {
  for (const Environment& environment :
       {with(torchrun, {{"LOCAL_RANK", "4"}}), with(torchrun, {{"LOCAL_WORLD_SIZE", "9"}}),
        with(mpich, {{"GYRE_LOCAL_RANK", "2"}}), with(srun, {{"SLURM_LOCALID", "2"}})}) {
    const Read got = read(environment);
    REQUIRE_FALSE(got.place.ok());
    CHECK(got.place.status().code() == Code::InvalidUsage);
  }
}

TEST_CASE("without a launcher the error says what to set", "[launch_place]") {
  struct Row {
    Environment environment;
    const char* text;
  };
  const std::vector<Row> rows = {
      {{},
       "Start the job with `gyre run`, torchrun, mpirun or srun, or set GYRE_RANK and GYRE_SIZE"},
      {{{"GYRE_RANK", "0"}}, "GYRE_RANK is set but GYRE_SIZE is not"},
      {{{"GYRE_SIZE", "2"}}, "GYRE_SIZE is set but GYRE_RANK is not"},
      {{{"RANK", "0"}}, "RANK is set but WORLD_SIZE is not"},
      {{{"WORLD_SIZE", "2"}}, "WORLD_SIZE is set but RANK is not"},
      {{{"PMIX_RANK", "0"}}, "PMIX_RANK is set but GYRE_SIZE is not"},
      {{{"JOB_COMPLETION_INDEX", "0"}}, "JOB_COMPLETION_INDEX is set but GYRE_SIZE is not"},
      // The shells of sbatch and of salloc; the second runs in a step with a reserved number.
      {{{"SLURM_JOB_ID", "42"}, {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}},
       "start the ranks with srun"},
      {{{"SLURM_JOB_ID", "42"},
        {"SLURM_PROCID", "0"},
        {"SLURM_NTASKS", "4"},
        {"SLURM_STEP_ID", "4294967290"}},
       "start the ranks with srun"},
  };
  for (const Row& row : rows) {
    const Read got = read(row.environment);
    REQUIRE_FALSE(got.place.ok());
    INFO(got.place.status().message());
    CHECK(got.place.status().code() == Code::InvalidUsage);
    CHECK(contains(got.place.status().message(), row.text));
  }
}

TEST_CASE("of sets that contradict each other the more specific one is used and it is said",
          "[launch_place]") {
  struct Row {
    Environment environment;
    int rank, size;
    std::vector<std::string> warnings;
  };
  const Environment own = {{"GYRE_RANK", "0"}, {"GYRE_SIZE", "3"}};
  const std::vector<Row> rows = {
      {with(open_mpi, torchrun), 5, 8, {"torchrun (RANK=5, WORLD_SIZE=8) and Open MPI"}},
      {with(with(open_mpi, torchrun), own),
       0,
       3,
       {"Gyre (GYRE_RANK=0, GYRE_SIZE=3) and torchrun", "and Open MPI"}},
      // The same place, said twice.
      {with(mpich, {{"RANK", "1"}, {"WORLD_SIZE", "2"}}), 1, 2, {}},
      // torchrun and mpirun on top of srun: Slurm counts launchers, not ranks.
      {with(torchrun, {{"SLURM_PROCID", "1"},
                       {"SLURM_NTASKS", "2"},
                       {"SLURM_STEP_ID", "0"},
                       {"SLURM_JOB_ID", "42"}}),
       5,
       8,
       {}},
      // A batch script that exported RANK: every rank of the step says 0.
      {with(srun, {{"RANK", "0"}, {"WORLD_SIZE", "7"}}),
       0,
       7,
       {"torchrun (RANK=0, WORLD_SIZE=7) and srun (SLURM_PROCID=5"}},
      // Malformed, but not in use.
      {with(own, {{"RANK", "x"}, {"WORLD_SIZE", "3"}}), 0, 3, {"ignored: RANK=\"x\""}},
      {with(mpich, {{"GYRE_SIZE", "5"}}), 1, 2, {"GYRE_SIZE is ignored"}},
      // Not a step: says nothing, contradicts nothing.
      {with(mpich, {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}, {"SLURM_JOB_ID", "42"}}),
       1,
       2,
       {}},
  };
  for (std::size_t i = 0; i < rows.size(); ++i) {
    INFO("row " << i);
    const Read got = read(rows[i].environment);
    INFO(got.place.status().message());
    REQUIRE(got.place.ok());
    CHECK(got.place->rank == rows[i].rank);
    CHECK(got.place->size == rows[i].size);
    REQUIRE(got.warnings.size() == rows[i].warnings.size());
    for (std::size_t k = 0; k < got.warnings.size(); ++k) {
      INFO(got.warnings[k]);
      CHECK(contains(got.warnings[k], rows[i].warnings[k]));
    }
  }
}

TEST_CASE("jobs differ where only the restart or the step differs", "[launch_place]") {
  const auto job = [](const Environment& environment) { return read(environment).place->job_id; };
  CHECK(job(torchrun) == job(with(torchrun, {{"RANK", "6"}, {"LOCAL_RANK", "2"}})));
  CHECK(job(torchrun) != job(with(torchrun, {{"TORCHELASTIC_RESTART_COUNT", "1"}})));
  CHECK(job(torchrun) != job(with(torchrun, {{"MASTER_PORT", "29501"}})));
  CHECK(job(srun) != job(with(srun, {{"SLURM_STEP_ID", "1"}})));
  CHECK(job(open_mpi) != job(with(open_mpi, {{"PMIX_NAMESPACE", "7"}})));
}

TEST_CASE("under hydra the process behind PMI_FD names the job, whatever runs between",
          "[launch_place]") {
  int ends[2] = {-1, -1};
  REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
  const FileDescriptor one(ends[0]), other(ends[1]);
  const Read got = read(with(mpich, {{"PMI_FD", std::to_string(one.get())}}));
  REQUIRE(got.place.ok());
  CHECK(got.place->job_id == "proxy " + std::to_string(getpid()));
}

TEST_CASE("the key-value space is that of the launcher which is believed", "[launch_place]") {
  struct Row {
    const char* what;
    Environment environment;
    int pmi_descriptor;
    bool has_pmix;
  };
  const Environment pmi = {{"PMI_FD", "7"}}, pmix = {{"PMIX_RANK", "5"}, {"PMIX_NAMESPACE", "a"}};
  const std::vector<Row> rows = {
      {"Hydra", with(mpich, pmi), 7, false},
      {"Hydra at a port", mpich, -1, false},
      {"no descriptor", with(mpich, {{"PMI_FD", "seven"}}), -1, false},
      {"srun --mpi=pmi2", with(srun, {{"PMI_RANK", "5"}, {"PMI_SIZE", "7"}, {"PMI_FD", "11"}}), 11,
       false},
      {"srun", srun, -1, false},
      {"srun --mpi=pmix", with(srun, pmix), -1, true},
      {"Open MPI", open_mpi, -1, true},
      {"Open MPI without PMIx",
       {{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}},
       -1,
       false},
      {"PMIx of another rank", with(srun, with(pmix, {{"PMIX_RANK", "2"}})), -1, false},
      {"torchrun under Hydra", with(torchrun, with(mpich, pmi)), -1, false},
      {"torchrun under srun", with(torchrun, pmix), -1, false},
      {"Gyre's own place under Hydra",
       with(with(mpich, pmi), {{"GYRE_RANK", "1"}, {"GYRE_SIZE", "2"}}), -1, false},
  };
  for (const Row& row : rows) {
    INFO(row.what);
    const Read got = read(row.environment);
    REQUIRE(got.place.ok());
    CHECK(got.place->pmi_descriptor == row.pmi_descriptor);
    CHECK(got.place->has_pmix == row.has_pmix);
  }
}

TEST_CASE("Slurm's list of tasks per node is read whole or not at all", "[launch_place]") {
  for (const char* wrong : {"2(x", "2(x)", "2(x0)", "a", "2(x3),b", "2(x2)", ""}) {
    INFO(wrong);
    const Read got = read(with(srun, {{"SLURM_STEP_TASKS_PER_NODE", wrong}}));
    REQUIRE(got.place.ok());
    // Unknown, but certainly several hosts.
    CHECK(got.place->several_hosts);
    CHECK(got.place->local_rank == 1);
    REQUIRE(got.warnings.size() == 1);
    CHECK(contains(got.warnings[0], "set GYRE_LOCAL_RANK and GYRE_LOCAL_SIZE"));
  }
}

}  // namespace launch_place_test
