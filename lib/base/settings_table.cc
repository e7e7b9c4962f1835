// The table of settings, and what is said of each.
#include "lib/base/settings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace gyre {
namespace {

constexpr std::int64_t max_seconds = 10LL * 365 * 24 * 3600;
constexpr std::int64_t max_rank = (1LL << 31) - 1;

std::vector<Setting> settings_of_output() {
  using S = Setting;
  return {
      {"GYRE_DEBUG", S::Keyword{&Settings::debug, {"NONE", "VERSION", "WARN", "INFO", "TRACE"}},
       "how much to log"},
      {"GYRE_DEBUG_SUBSYS", S::Text{&Settings::debug_subsystems},
       "subsystems whose INFO and TRACE lines are logged: INIT, BOOTSTRAP, ENV, GRAPH (paths "
       "between ranks), TUNING (algorithms), NET, SHM, ALLOC, COLL and P2P (TRACE: each call), "
       "CALL (calls that fail), ALL, or ^ and those to leave out"},
      {"GYRE_DEBUG_FILE", S::Text{&Settings::debug_file},
       "file for the log, stderr if unset; %h and %p become host and process id"},
      {"GYRE_FLIGHT_FILE", S::Text{&Settings::flight_file},
       "file to which a communicator that breaks writes its last operations; %h, %p and %r become "
       "host, process id and rank"},
      {"GYRE_METRICS", S::Text{&Settings::metrics},
       "where each process serves metrics over HTTP, in Prometheus's text format: a port of "
       "127.0.0.1, address:port, or unix:/path (%h and %p as above). The rank on this host "
       "(GYRE_LOCAL_RANK, or the launcher's) is added to the port. Port 0 takes any free port and "
       "logs it at INFO. If the place is taken, the communicator's init fails"},
  };
}

std::vector<Setting> settings_of_choices() {
  using S = Setting;
  return {
      {"GYRE_ALGO", S::Text{&Settings::algorithm},
       "algorithms allowed, as in \"ring,tree\" or \"all_reduce:^ring\"; calls that none of the "
       "listed algorithms can do may use any"},
      {"GYRE_PROTO", S::Text{&Settings::protocol},
       "protocols allowed, as in \"simple\" or \"^LL\"; on the host LL means line"},
      {"GYRE_BUFFSIZE", S::Size{&Settings::slot_bytes, 0, 1LL << 30},
       "bytes of one slot of the simple protocol; 0: 128 KiB, but 512 KiB where all use TCP alone, "
       "and 63 KiB where all use UCX alone"},
      {"GYRE_REPRODUCIBLE", S::Switch{&Settings::reproducible},
       "1: only algorithms that sum in rank order and round once; results then do not depend on "
       "algorithm and transport"},
      {"GYRE_CHECK_CALLS", S::Switch{&Settings::check_calls},
       "1: ranks compare their calls, and a mismatch error shows both; 0: a mismatch is found by "
       "the data alone, and the error names the ranks without their calls"},
      {"GYRE_SPIN_COUNT", S::Integer{&Settings::spin_count, -1, 1LL << 40},
       "polls before a waiting thread yields; -1 chooses by the load"},
      {"GYRE_MAX_CTAS", S::Integer{&Settings::max_channels, 0, 1 << 20},
       "most channels of a CUDA communicator; with fewer, more communicators fit on a GPU at one "
       "time; 0: as config.maxCTAs says"},
      {"GYRE_MIN_CTAS", S::Integer{&Settings::min_channels, 0, 1 << 20},
       "channels that a CUDA communicator takes if the GPU has room; others may then lack room; "
       "0: as config.minCTAs says"},
      {"GYRE_FIRST_SEQUENCE", S::Integer{&Settings::first_sequence, 0, 1LL << 48},
       "number before the first call, split and message; for tests of counters that wrap around"},
  };
}

std::vector<Setting> settings_of_ways() {
  using S = Setting;
  return {
      {"GYRE_TRANSPORT", S::Text{&Settings::transport},
       "transports allowed, best first, or ^ and those to leave out; ucx only if it is named"},
      {"GYRE_TRANSPORT_PLUGIN", S::Text{&Settings::transport_plugin},
       "libraries of further transports (gyre/transport.h): absolute paths, separated by ':'"},
      {"GYRE_SOCKET_IFNAME", S::Text{&Settings::socket_interface},
       "network interfaces for other hosts (the fastest with a carrier if unset, never loopback or "
       "a bridge of containers), and for tcp between ranks of this host (loopback if unset): "
       "prefixes, =exact names, or ^ and those to leave out"},
      {"GYRE_SOCKET_FAMILY", S::Keyword{&Settings::socket_family, {"ANY", "AF_INET", "AF_INET6"}},
       "address family of sockets"},
      {"GYRE_TCP_SECURITY", S::Keyword{&Settings::tcp_security, {"ticket", "tls"}},
       "ticket: a data connection begins with a one-time ticket; tls: it is also encrypted"},
      {"GYRE_TCP_SOCKETS", S::Integer{&Settings::tcp_sockets, 1, Settings::max_tcp_sockets},
       "sockets of a tcp connection, over the interfaces that GYRE_SOCKET_IFNAME names, in turn; a "
       "faster one carries more. The same on all ranks"},
      {"GYRE_TCP_CHECKSUM", S::Switch{&Settings::tcp_checksum},
       "1: each message over tcp has a checksum, so that bytes that hardware changes on their way "
       "are an error (tls finds that too). The same on all ranks"},
      {"GYRE_TOPO_FILE", S::Text{&Settings::topology_file},
       "file that says what this host is made of, where the kernel's files do not: XML of hwloc or "
       "of NCCL (gyre topo --file shows it)"},
      {"GYRE_SHM_DISABLE", S::Switch{&Settings::shm_disable}, "1: shared memory is not used"},
      {"GYRE_CMA", S::Keyword{&Settings::cma, {"auto", "0", "1"}},
       "1: ranks of this host copy their blocks of a scatter from the root's memory, by the kernel "
       "(process_vm_readv), where it lets them; 0: never; auto: where ranks outnumber processors "
       "and do not share one session. The same on all ranks"},
      {"GYRE_P2P_DISABLE", S::Switch{&Settings::p2p_disable},
       "1: kernels do not access the memory of another GPU"},
      {"GYRE_P2P_LEVEL",
       S::Keyword{&Settings::p2p_level, {"LOC", "NVL", "PIX", "PXB", "PHB", "SYS"}},
       "largest distance at which kernels access memory of another GPU: the same GPU, NVLink, one "
       "PCIe switch, several, one host bridge, anywhere in the host"},
  };
}

std::vector<Setting> settings_of_rdma() {
  using S = Setting;
  return {
      {"GYRE_IB_DISABLE", S::Switch{&Settings::ib_disable}, "1: RDMA is not used"},
      {"GYRE_IB_HCA", S::Text{&Settings::ib_hca},
       "RDMA devices that may be used, as in \"mlx5_0:1,mlx5_2\": prefixes of names, =exact names, "
       "or ^ and those to leave out; a name may end in :port"},
      {"GYRE_IB_GID_INDEX", S::Integer{&Settings::ib_gid_index, 0, 255},
       "index of the port's GID; if unset, the GID is chosen by its type (RoCE v2) and address"},
      {"GYRE_IB_TC", S::Integer{&Settings::ib_traffic_class, 0, 255},
       "traffic class of packets, as switches are set up for it: with DSCP d it is 4 * d"},
      {"GYRE_IB_SL", S::Integer{&Settings::ib_service_level, 0, 15}, "service level of packets"},
      {"GYRE_IB_TIMEOUT", S::Integer{&Settings::ib_timeout, 1, 31},
       "n: a packet without an answer is sent again after 4.096 us * 2^n"},
      {"GYRE_IB_RETRY_CNT", S::Integer{&Settings::ib_retry_count, 0, 7},
       "how often a packet is sent again before its connection fails"},
      {"GYRE_IB_QPS_PER_CONNECTION", S::Integer{&Settings::ib_qps_per_connection, 1, 16},
       "queue pairs of a connection, over which long messages are spread"},
      {"GYRE_NET_GDR_LEVEL",
       S::Keyword{&Settings::net_gdr_level, {"LOC", "PIX", "PXB", "PHB", "SYS"}},
       "largest distance at which a NIC reads and writes the memory of a GPU: never, one PCIe "
       "switch, several, one host bridge, anywhere in the host"},
  };
}

std::vector<Setting> settings_of_waits() {
  using S = Setting;
  return {
      {"GYRE_TIMEOUT", S::Integer{&Settings::timeout_s, 1, max_seconds},
       "seconds for which a call waits for a rank that is alive but does not make the call"},
      {"GYRE_INIT_TIMEOUT", S::Integer{&Settings::init_timeout_s, 1, max_seconds},
       "seconds within which all ranks must join a communicator"},
      {"GYRE_LIVENESS_TIMEOUT", S::Integer{&Settings::liveness_timeout_s, 1, max_seconds},
       "seconds of silence after which a process counts as dead"},
  };
}

std::vector<Setting> settings_of_launch() {
  using S = Setting;
  return {
      {"GYRE_RANK", S::Integer{&Settings::rank, 0, max_rank}, "this process's rank"},
      {"GYRE_SIZE", S::Integer{&Settings::size, 1, max_rank}, "number of ranks"},
      {"GYRE_LOCAL_RANK", S::Integer{&Settings::local_rank, 0, max_rank}, "rank on this host"},
      {"GYRE_LOCAL_SIZE", S::Integer{&Settings::local_size, 1, max_rank}, "ranks on this host"},
      {"GYRE_JOB_ID", S::Text{&Settings::job_id}, "name of the job, the same on all its ranks"},
      {"GYRE_RENDEZVOUS_FILE", S::Text{&Settings::rendezvous_file},
       "file through which the ranks meet: rank 0 makes it, with mode 0600, and all ranks see it"},
      {"GYRE_RENDEZVOUS_ADDRESS", S::Text{&Settings::rendezvous_address},
       "host:port where rank 0 listens and the ranks meet; needs GYRE_RENDEZVOUS_SECRET_FILE"},
      {"GYRE_RENDEZVOUS_SECRET_FILE", S::Text{&Settings::rendezvous_secret_file},
       "file of mode 0600 with at least 32 random bytes, the same for all ranks"},
      {"GYRE_RENDEZVOUS_FD", S::Integer{&Settings::rendezvous_fd, 0, 1 << 20},
       "descriptor that ranks inherit from gyre run, which sets this variable"},
  };
}

}  // namespace

const std::vector<SettingGroup>& settings_groups() {
  static const std::vector<SettingGroup>& groups = *new std::vector<SettingGroup>{
      {"What to log and to show", settings_of_output()},
      {"How calls are carried out", settings_of_choices()},
      {"How ranks reach each other", settings_of_ways()},
      {"How RDMA is used", settings_of_rdma()},
      {"How long to wait", settings_of_waits()},
      {"How ranks find each other, as a launcher or its caller says", settings_of_launch()}};
  return groups;
}

const std::vector<Setting>& settings_table() {
  static const std::vector<Setting>& table = *[] {
    auto* all = new std::vector<Setting>;
    for (const SettingGroup& group : settings_groups())
      all->insert(all->end(), group.settings.begin(), group.settings.end());
    return all;
  }();
  return table;
}

std::string accepted_values(const Setting& setting) {
  if (const auto* integer = std::get_if<Setting::Integer>(&setting.kind))
    return fmt::format("a whole number from {} to {}", integer->least, integer->most);
  if (const auto* size = std::get_if<Setting::Size>(&setting.kind))
    return fmt::format("a size from {} to {}, K, M and G allowed", size->least, size->most);
  if (const auto* choice = std::get_if<Setting::Keyword>(&setting.kind))
    return fmt::format("one of {}", fmt::join(choice->words, ", "));
  if (std::holds_alternative<Setting::Switch>(setting.kind)) return "0 or 1";
  return "a text that is not empty";
}

std::string default_text(const Setting& setting) {
  const Settings settings;
  const auto or_unset = [](std::string text) { return text.empty() ? std::string("unset") : text; };
  // A number that nobody may set stands for none.
  const auto number = [&](const auto& kind) {
    const std::int64_t value = settings.*kind.field;
    return or_unset(value < kind.least ? std::string() : std::to_string(value));
  };
  if (const auto* integer = std::get_if<Setting::Integer>(&setting.kind)) return number(*integer);
  if (const auto* size = std::get_if<Setting::Size>(&setting.kind)) return number(*size);
  if (const auto* word = std::get_if<Setting::Keyword>(&setting.kind)) return settings.*word->field;
  if (const auto* text = std::get_if<Setting::Text>(&setting.kind))
    return or_unset(settings.*text->field);
  return settings.*std::get<Setting::Switch>(setting.kind).field ? "1" : "0";
}

}  // namespace gyre
