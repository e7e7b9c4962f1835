// Seeds of settings and of launchers' variables: lines NAME=VALUE.
#include "tests/fuzz/seeds.h"

namespace gyre::fuzz {
namespace {

void add_settings(Seeds& seeds) {
  const auto lines = [&](const char* name, std::string_view text) {
    seeds.add("settings", name, Script(0).rest_text(text));
  };
  lines("subsystems", "GYRE_DEBUG=INFO\nGYRE_DEBUG_SUBSYS=init,NET,Shm\n");
  lines("subsystems_left_out", "GYRE_DEBUG_SUBSYS=^COLL,P2P\n");
  lines("subsystems_all", "GYRE_DEBUG_SUBSYS=^ALL\n");
  lines("subsystems_near", "GYRE_DEBUG_SUBSYS=NET,TUNNING\n");
  lines("subsystems_empty", "GYRE_DEBUG_SUBSYS=NET,\n");
  lines("usual", "GYRE_DEBUG=info\nGYRE_DEBUG_FILE=/tmp/gyre.%h.%p.%%\nGYRE_TIMEOUT=60\n");
  lines("ranks", "GYRE_RANK=1\nGYRE_SIZE=4\nGYRE_LOCAL_RANK=1\nGYRE_LOCAL_SIZE=2\nGYRE_JOB_ID=j\n");
  lines("algorithms", "GYRE_ALGO=ring,tree;allreduce:^ring\nGYRE_PROTO=^LL,LL128\n");
  lines("algorithms_named", "GYRE_ALGO=AllReduce:OneShot;all_gather:ring\nGYRE_PROTO=Simple;ll\n");
  lines("algorithm_unknown", "GYRE_ALGO=rong\n");
  lines("collective_unknown", "GYRE_ALGO=allproduce:ring\n");
  lines("protocol_unknown", "GYRE_PROTO=simpel\n");
  lines("nothing_allowed", "GYRE_ALGO=allreduce:^oneshot,doubling,twoshot,ring,tree\n");
  lines("no_protocol", "GYRE_PROTO=LL128\n");
  lines("transports", "GYRE_TRANSPORT=tcp,shm\nGYRE_SHM_DISABLE=1\n");
  lines("transports_but", "GYRE_TRANSPORT=^shm,self\n");
  lines("transport_unknown", "GYRE_TRANSPORT=rdma\n");
  lines("sizes", "GYRE_BUFFSIZE=1.5M\nGYRE_SPIN_COUNT=-1\n");
  lines("size_too_large", "GYRE_BUFFSIZE=2G\n");
  lines("size_wrong", "GYRE_BUFFSIZE=1e6\n");
  lines("switch_wrong", "GYRE_REPRODUCIBLE=yes\n");
  lines("choice_wrong", "GYRE_TCP_SECURITY=none\n");
  lines("text_empty", "GYRE_SOCKET_IFNAME=\n");
  lines("number_wrong", "GYRE_TIMEOUT=12s\n");
  lines("unknown_near", "GYRE_TIMEOT=1\nGYRE_TESTS_X=2\nPATH=/bin\n");
  lines("unknown_far", "GYRE_SOMETHING_ELSE_ALTOGETHER=1\n");
  lines("rendezvous",
        "GYRE_RENDEZVOUS_FILE=/tmp/x\nGYRE_RENDEZVOUS_ADDRESS=[::1]:80\n"
        "GYRE_RENDEZVOUS_SECRET_FILE=/tmp/y\nGYRE_RENDEZVOUS_FD=3\nGYRE_SOCKET_FAMILY=AF_INET\n");
  const auto number = [&](const char* name, std::string_view text, std::int64_t most) {
    seeds.add("settings", name, Script(1).number(std::int64_t{0}).number(most).rest_text(text));
  };
  number("number", "42", 100);
  number("number_beyond", "101", 100);
  number("number_huge", "99999999999999999999", INT64_MAX);
  number("number_negative", "-1", 100);
  number("number_size", "1.5k", 1 << 20);
  number("number_tera", "1023T", INT64_MAX);
  number("number_dots", "1.2.3M", 1 << 30);
  number("number_unit_alone", "K", 1 << 30);
  number("number_empty", "", 1);
  number("name_near", "GYRE_DEBUGFILE", 1);
}

void add_launchers(Seeds& seeds) {
  const auto lines = [&](const char* name, std::string_view text) {
    seeds.add_text("launch_place", name, text);
  };
  constexpr std::string_view torchrun =
      "RANK=5\nWORLD_SIZE=8\nLOCAL_RANK=1\nLOCAL_WORLD_SIZE=4\nMASTER_ADDR=10.0.0.1\n"
      "MASTER_PORT=29500\nTORCHELASTIC_RUN_ID=none\nTORCHELASTIC_RESTART_COUNT=0\n";
  constexpr std::string_view open_mpi =
      "OMPI_COMM_WORLD_RANK=1\nOMPI_COMM_WORLD_SIZE=2\nOMPI_COMM_WORLD_LOCAL_RANK=1\n"
      "OMPI_COMM_WORLD_LOCAL_SIZE=2\nOMPI_MCA_ess_base_jobid=1306656769\n";
  constexpr std::string_view mpich =
      "PMI_RANK=1\nPMI_SIZE=2\nPMI_FD=2\nMPI_LOCALRANKID=1\nMPI_LOCALNRANKS=2\n";
  constexpr std::string_view slurm =
      "SLURM_PROCID=5\nSLURM_NTASKS=7\nSLURM_LOCALID=1\nSLURM_NODEID=2\n"
      "SLURM_STEP_NUM_NODES=4\nSLURM_JOB_ID=42\nSLURM_STEP_ID=0\n";
  const auto with = [](std::string_view base, std::string_view first) {
    return std::string(first) + std::string(base);
  };
  lines("gyre", "GYRE_RANK=2\nGYRE_SIZE=4\nGYRE_LOCAL_RANK=0\nGYRE_LOCAL_SIZE=2\n");
  lines("gyre_least", "GYRE_RANK=2\nGYRE_SIZE=4\nGYRE_JOB_ID=mine\n");
  lines("gyre_rank_alone", "GYRE_RANK=2\n");
  lines("gyre_size_alone", "GYRE_SIZE=2\n");
  lines("gyre_rank_beyond", "GYRE_RANK=4\nGYRE_SIZE=4\n");
  lines("torchrun", torchrun);
  lines("torchrun_and_size", with(torchrun, "GYRE_SIZE=3\n"));
  lines("torchrun_and_open_mpi", with(torchrun, open_mpi));
  lines("torchrun_and_wrong_mpi",
        with(torchrun, "OMPI_COMM_WORLD_RANK=x\nOMPI_COMM_WORLD_SIZE=2\n"));
  lines("torchrun_wrong_rank", with(torchrun, "RANK=4abc\n"));
  lines("torchrun_long_rank", with(torchrun, "RANK=" + std::string(100, '7') + "\x1b[31m\n"));
  lines("torchrun_local_rank_beyond", with(torchrun, "LOCAL_RANK=4\n"));
  lines("torchrun_local_size_beyond", with(torchrun, "LOCAL_WORLD_SIZE=9\n"));
  lines("torchrun_rank_alone", "RANK=0\n");
  lines("open_mpi", open_mpi);
  lines("open_mpi_namespace", with(open_mpi, "PMIX_NAMESPACE=prterun-1\n"));
  lines("open_mpi_no_job", "OMPI_COMM_WORLD_RANK=1\nOMPI_COMM_WORLD_SIZE=2\n");
  lines("mpich", mpich);
  lines("mpich_job", with(mpich, "PMI_JOBID=7\n"));
  lines("mvapich", "MV2_COMM_WORLD_RANK=3\nMV2_COMM_WORLD_SIZE=4\nMV2_COMM_WORLD_LOCAL_SIZE=2\n");
  lines("pmix", "PMIX_RANK=1\nPMIX_NAMESPACE=job.7\nGYRE_SIZE=2\n");
  lines("srun", with(slurm, "SLURM_STEP_TASKS_PER_NODE=2(x3),1\n"));
  lines("srun_last_node",
        with(slurm, "SLURM_TASKS_PER_NODE=2(x3),1\nSLURM_NODEID=3\nSLURM_LOCALID=0\n"));
  lines("srun_no_nodes", with(slurm, "SLURM_STEP_TASKS_PER_NODE=2(x0)\n"));
  lines("srun_other_nodes", with(slurm, "SLURM_STEP_TASKS_PER_NODE=2(x3),x\n"));
  lines("srun_no_local", "SLURM_PROCID=5\nSLURM_NTASKS=7\nSLURM_NNODES=4\nSLURM_STEP_ID=0\n");
  lines("srun_and_gyre", with(slurm, "GYRE_RANK=1\nGYRE_SIZE=16\n"));
  lines("sbatch", "SLURM_PROCID=0\nSLURM_NTASKS=7\nSLURM_JOB_ID=42\nSLURM_STEP_ID=4294967291\n");
  lines("srun_pmix", with(slurm, "PMIX_RANK=5\nPMIX_NAMESPACE=slurm.pmix.42.0\n"));
  lines("open_mpi_pmix", with(open_mpi, "PMIX_RANK=1\nPMIX_NAMESPACE=7\n"));
  lines("kubernetes", "JOB_COMPLETION_INDEX=1\nGYRE_SIZE=2\nGYRE_RENDEZVOUS_ADDRESS=a:1\n");
  lines("kubernetes_beyond", "JOB_COMPLETION_INDEX=2\nGYRE_SIZE=2\n");
  lines("kubernetes_index_alone", "JOB_COMPLETION_INDEX=1\n");
  lines("local_corrected", with(mpich, "GYRE_LOCAL_RANK=0\nGYRE_LOCAL_SIZE=1\n"));
  lines("nothing", "PATH=/bin\n");
  lines("not_variables", "no equals sign\n=\n==x\nRANK\n");
}

void add_buses(Seeds& seeds) {
  const auto pair = [&](const char* name, const std::string& here, const std::string& there) {
    seeds.add_text("bus", name, here + "\n" + there);
  };
  const std::string bridge = "/sys/devices/pci0000:00/";
  const std::string behind = bridge + "0000:00:01.0/0000:01:00.0/";
  pair("one_switch", behind + "0000:02:08.0/0000:03:00.0", behind + "0000:02:10.0/0000:04:00.0");
  pair("switches", behind + "0000:02:08.0/0000:03:00.0",
       behind + "0000:02:10.0/0000:05:00.0/0000:06:00.0/0000:07:00.0");
  pair("one_bridge", bridge + "0000:00:05.0", bridge + "0000:00:06.0");
  pair("two_bridges", bridge + "0000:00:05.0", "/sys/devices/pci0000:80/0000:80:01.0");
  pair("under_another_bus", "/sys/devices/LNXSYSTM:00/VMBUS:00/pci0001:00/0001:00:00.0", bridge);
  pair("no_device", bridge + "0000:00:05.0/virtual", bridge + "pci/0000:00:06.0");
}

}  // namespace

void add_environment_seeds(Seeds& seeds) {
  add_settings(seeds);
  add_buses(seeds);
  add_launchers(seeds);
}

}  // namespace gyre::fuzz
