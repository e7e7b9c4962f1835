// MachineExchange: what ranks on GPUs tell each other of their hosts' machines, and what they make
// of it. Machines are described ones; ranks are members of a job in this thread.
#include "lib/comm/machine_exchange.h"

#include "lib/comm/join_info.h"
#include "lib/comm/ring_searches.h"
#include "lib/device/gpu_info.h"
#include "lib/links/message_keys.h"
#include "tests/support/catch.h"
#include "tests/support/control/silent_member.h"
#include "tests/topologies/described_machines.h"

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace machine_exchange_test {

using namespace gyre;
using namespace gyre::comm;
using topology::NodeKind;
using topology::Topology;

namespace {

// What ranks have sent and not yet received: by receiver, sender and key.
struct Mail {
  std::map<std::tuple<int, int, std::uint64_t>, std::deque<control::MessageBytes>> waiting;
  std::size_t messages = 0, bytes = 0;
};

class MailedMember final : public tests::SilentMember {
 public:
  MailedMember(int rank, const control::Roster& roster, Mail& mail)
      : SilentMember(roster), rank_(rank), mail_(mail) {}
  Status send(int to, std::uint64_t key, control::MessageBytes message) override {
    ++mail_.messages;
    mail_.bytes += message.size();
    mail_.waiting[{to, rank_, key}].push_back(std::move(message));
    return {};
  }
  std::optional<control::MessageBytes> receive(int from, std::uint64_t key) override {
    auto& messages = mail_.waiting[{rank_, from, key}];
    if (messages.empty()) return std::nullopt;
    control::MessageBytes message = std::move(messages.front());
    messages.pop_front();
    return message;
  }

 private:
  const int rank_;
  Mail& mail_;
};

// A rank on each GPU of each host. `speaks`: whether the rank says what its host is.
struct MailedJob {
  explicit MailedJob(
      std::vector<Topology> hosts,
      const std::function<bool(int rank)>& speaks = [](int) { return true; })
      : machines(std::move(hosts)) {
    for (std::size_t host = 0; host < machines.size(); ++host)
      for (const int node : machines[host].all(NodeKind::gpu)) add_rank(host, node, speaks);
  }

  void add_rank(std::size_t host, int node, const std::function<bool(int rank)>& speaks) {
    const int rank = static_cast<int>(roster.notes.size());
    trust::ProcessIdentity process;
    process.host.fill(static_cast<std::uint8_t>(host + 1));
    roster.processes.push_back(process);
    roster.process_of_rank.push_back(static_cast<std::uint32_t>(rank));
    GpuInfo gpu;
    gpu.uuid = "GPU-" + std::to_string(rank);
    gpu.blocks = gpu.connections = gpu.channels = 1;
    gpu.bus_id = machines[host].node(node).bus_id;
    for (char& c : gpu.bus_id)
      if (c >= 'a') c = static_cast<char>(c - 'a' + 'A');  // as the driver writes it
    Result<OutlinedMachine> outlined = outline_machine(machines[host]);
    REQUIRE(outlined.ok());
    known.push_back(speaks(rank) ? std::optional(std::move(outlined).value()) : std::nullopt);
    const std::string note = known.back() ? encode(known.back()->note) : std::string();
    roster.notes.push_back(
        encode(JoinInfo{"settings", encode(gpu), "0000000000000001", "-,-,-,-", "", note}));
  }

  int size() const { return static_cast<int>(roster.notes.size()); }
  void begin() {
    layout = RankLayout(roster);
    for (int rank = 0; rank < size(); ++rank) {
      members.push_back(std::make_unique<MailedMember>(rank, roster, mail));
      exchanges.push_back(std::make_unique<MachineExchange>(
          layout, *members.back(), rank, known[static_cast<std::size_t>(rank)], patience_ns));
      REQUIRE(exchanges.back()->begin().ok());
    }
  }
  Result<topology::Cluster> cluster(int rank) {
    MachineExchange& exchange = *exchanges[static_cast<std::size_t>(rank)];
    const Result<bool> is_here = exchange.advance();
    if (!is_here.ok()) return is_here.status();
    REQUIRE(*is_here);
    return exchange.cluster();
  }
  // Which is the same on all ranks.
  topology::Cluster common_cluster() {
    Result<topology::Cluster> first = cluster(0);
    INFO(first.status().message());
    REQUIRE(first.ok());
    for (int rank = 1; rank < size(); ++rank) {
      const Result<topology::Cluster> other = cluster(rank);
      REQUIRE(other.ok());
      CHECK(*other == *first);
    }
    return std::move(first).value();
  }
  // Which is the same on all ranks, too.
  std::string common_objection() {
    const std::string first(cluster(0).status().message());
    for (int rank = 1; rank < size(); ++rank) CHECK(cluster(rank).status().message() == first);
    return first;
  }

  std::int64_t patience_ns = std::int64_t{60} * 1'000'000'000;
  std::vector<Topology> machines;
  control::Roster roster;
  std::vector<std::optional<OutlinedMachine>> known;
  Mail mail;
  RankLayout layout;
  std::vector<std::unique_ptr<MailedMember>> members;
  std::vector<std::unique_ptr<MachineExchange>> exchanges;
};

Topology machine(const char* name) { return tests::described_machine(name); }

}  // namespace

TEST_CASE("equal hosts send nothing, and every rank knows where all are") {
  MailedJob job({machine("hgx_h100"), machine("hgx_h100"), machine("hgx_h100")});
  job.begin();
  const topology::Cluster cluster = job.common_cluster();
  CHECK(job.mail.messages == 0);
  CHECK(cluster.machines.size() == 1);
  REQUIRE(cluster.hosts.size() == 3);
  for (const topology::ClusterHost& host : cluster.hosts) CHECK(host.members.size() == 8);
  CHECK(cluster.hosts[2].members.back().rank == 23);
}

TEST_CASE("each rank gets the machines that are not its own, from their first ranks") {
  MailedJob job({machine("hgx_h100"), machine("broken_nic"), machine("hgx_h100")});
  job.begin();
  CHECK(job.mail.messages == 8 + 16);
  CHECK(job.mail.bytes < job.mail.messages * 3000);
  const topology::Cluster cluster = job.common_cluster();
  CHECK(cluster.machines.size() == 2);
  CHECK(cluster.hosts[1].machine == 1);
  CHECK(cluster.hosts[2].machine == 0);
  CHECK(topology::find_rings(cluster).ok());
}

TEST_CASE("a rank that knows nothing itself is told, unless it speaks for its host") {
  MailedJob told({machine("hgx_h100"), machine("hgx_h100")}, [](int rank) { return rank != 3; });
  told.begin();
  CHECK(told.mail.messages == 1);
  CHECK(told.common_cluster().hosts.size() == 2);
  MailedJob silent({machine("hgx_h100"), machine("hgx_h100")}, [](int rank) { return rank != 8; });
  silent.begin();
  CHECK(silent.common_objection() == "rank 8 does not know its host's links");
  CHECK(silent.mail.messages == 0);
}

TEST_CASE("where no order is better than another, nothing is told") {
  Topology plain = machine("pcie_8");
  for (topology::TopologyNode& node : plain.nodes)
    if (node.port && node.name != "mlx5_0") node.port->is_up = false;
  MailedJob job({plain, plain});
  job.begin();
  CHECK(job.common_objection() == "no host has NVLinks or several ports");
  CHECK(job.mail.messages == 0);
}

TEST_CASE("a GPU that the host's speaker does not see has no place") {
  MailedJob job({machine("hgx_h100")});
  Topology hidden = machine("hgx_h100");
  const int gpu = hidden.all(NodeKind::gpu).back();
  hidden.nodes[static_cast<std::size_t>(gpu)].bus_id = "0000:ff:00.0";
  job.machines.push_back(hidden);
  job.add_rank(1, gpu, [](int) { return true; });
  job.roster.processes.back().host = job.roster.processes.front().host;
  job.begin();
  CHECK(job.common_objection() ==
        "rank 8 is on GPU 0000:FF:00.0, which its host's lowest rank does not see");
}

TEST_CASE("a job of too many different machines does without") {
  std::vector<Topology> hosts(17, machine("workstation_2"));
  for (std::size_t host = 0; host < hosts.size(); ++host)
    hosts[host].links.front().gigabytes_per_s = 40 + static_cast<double>(host);
  MailedJob job(hosts);
  job.begin();
  CHECK(job.common_objection() == "the hosts are more than 16 different machines");
  CHECK(job.mail.messages == 0);
}

TEST_CASE("a rank that describes another machine than it announced is blamed") {
  MailedJob job({machine("hgx_h100"), machine("broken_nic")});
  job.begin();
  job.mail.waiting[{0, 8, message_key(MessageTopic::machine)}].front()[20] ^= 1;
  const Status failed = job.cluster(0).status();
  CHECK(failed.code() == Code::RemoteError);
  CHECK(failed.culprits() == std::vector<int>{8});
  CHECK(failed.message() ==
        "rank 8 described its host to this one: it is another machine than it had announced");
}

TEST_CASE("a rank that does not describe its host in time is awaited, then blamed") {
  MailedJob job({machine("hgx_h100"), machine("broken_nic")});
  job.patience_ns = 0;
  job.begin();
  CHECK(job.cluster(1).ok());
  job.mail.waiting[{0, 8, message_key(MessageTopic::machine)}].clear();
  const Status failed = job.cluster(0).status();
  CHECK(failed.code() == Code::Timeout);
  CHECK(failed.culprits() == std::vector<int>{8});
  CHECK(failed.message() == "rank 8 has not described its host to this one within 0 s");
  MailedJob patient({machine("hgx_h100"), machine("broken_nic")});
  patient.begin();
  patient.mail.waiting[{0, 8, message_key(MessageTopic::machine)}].clear();
  const Result<bool> is_here = patient.exchanges[0]->advance();
  REQUIRE(is_here.ok());
  CHECK_FALSE(*is_here);
  CHECK(patient.exchanges[0]->awaited_rank() == 8);
}

TEST_CASE("a rank of which the roster says another thing than it said goes no further") {
  MailedJob job({machine("hgx_h100"), machine("broken_nic")}, [](int rank) { return rank != 8; });
  job.roster.notes[8] = job.roster.notes[9];
  job.layout = RankLayout(job.roster);
  MailedMember speaker(8, job.roster, job.mail);
  MachineExchange exchange(job.layout, speaker, 8, job.known[8], job.patience_ns);
  const Status failed = exchange.begin();
  CHECK(failed.code() == Code::RemoteError);
  CHECK(failed.culprits() == std::vector<int>{0});
  CHECK(job.mail.messages == 0);
}

TEST_CASE("a note of a machine is read as it was written, and nothing else is") {
  const Result<OutlinedMachine> outlined = outline_machine(machine("hgx_h100"));
  REQUIRE(outlined.ok());
  const std::string text = encode(outlined->note);
  CHECK(read_machine_note(text) == outlined->note);
  CHECK(text.back() == '+');
  for (const std::string& wrong :
       {std::string(), text.substr(1), text + "+", "A" + text.substr(1), text.substr(0, 32) + "x"})
    CHECK_FALSE(read_machine_note(wrong).has_value());
}

TEST_CASE("a message that is no outline is refused, wherever it is cut") {
  const Result<OutlinedMachine> outlined = outline_machine(machine("workstation_2"));
  REQUIRE(outlined.ok());
  CHECK(*decode_outline(outlined->message) == outlined->outline);
  control::MessageBytes message = outlined->message;
  message.push_back(0);
  CHECK_FALSE(decode_outline(message).ok());
  for (std::size_t length = 0; length < outlined->message.size(); ++length)
    CHECK_FALSE(decode_outline(std::span(outlined->message).first(length)).ok());
}

TEST_CASE("a machine that peers would refuse is not told") {
  Topology large = machine("workstation_2");
  for (int i = 0; i < 1100; ++i) {
    topology::TopologyNode node;
    node.kind = NodeKind::gpu;
    node.parent = 0;
    node.bus_id = "gpu" + std::to_string(i);
    large.add(std::move(node));
  }
  CHECK_FALSE(outline_machine(large).ok());
  Topology odd = machine("workstation_2");
  odd.nodes[static_cast<std::size_t>(odd.all(NodeKind::port).front())].name = "eth 0";
  CHECK_FALSE(outline_machine(odd).ok());
}

TEST_CASE("ranks of one process search once, and no further than they are allowed") {
  const Topology host = machine("hgx_h100");
  const topology::Cluster cluster = topology::equal_hosts(host, 2, host.all(NodeKind::gpu));
  RingSearches searches;
  const auto first = searches.find(cluster, 16);
  REQUIRE(first.ok());
  CHECK((*first)->channels.size() == 8);
  CHECK(searches.find(cluster, 16)->get() == first->get());
  CHECK((*searches.find(cluster, 4))->channels.size() == 4);
  topology::Cluster other = cluster;
  std::swap(other.hosts[0].members[0].rank, other.hosts[0].members[1].rank);
  CHECK_FALSE(searches.find(other, 16)->get() == first->get());
}

TEST_CASE("orders of rings begin with rank 0, and equal ones are one") {
  topology::FoundChannels found;
  found.channels = {{{2, 0, 1}, {}, {}}, {{0, 1, 2}, {}, {}}};
  CHECK(ring_orders(found) == std::vector<std::vector<std::int32_t>>{{0, 1, 2}});
  found.channels.push_back({{1, 0, 2}, {}, {}});
  CHECK(ring_orders(found) ==
        std::vector<std::vector<std::int32_t>>{{0, 1, 2}, {0, 1, 2}, {0, 2, 1}});
}

}  // namespace machine_exchange_test
