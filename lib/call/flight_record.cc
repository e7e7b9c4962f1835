#include "lib/call/flight_record.h"

#include "lib/base/flight_file.h"
#include "lib/base/log.h"
#include "lib/call/version.h"
#include "lib/plan/algorithms.h"
#include "lib/plan/protocol.h"

#include <fmt/core.h>

#include <algorithm>
#include <functional>
#include <map>

namespace gyre::comm {
namespace {

template <typename NameOf>
NameTable names(std::size_t count, NameOf name_of) {
  NameTable table;
  for (std::size_t i = 0; i < std::min(count, NameTable::max_names); ++i)
    table.names[i] = FixedText<24>(name_of(i));
  return table;
}

CodeNames state_page_names() {
  CodeNames all;
  all.functions =
      names(function_count, [](std::size_t i) { return function_name(static_cast<Function>(i)); });
  all.functions.names[exchange_function] = FixedText<24>("gyreSend and gyreRecv");
  all.types = names(element_type_count,
                    [](std::size_t i) { return element_name(static_cast<ElementType>(i)); });
  all.ops = names(reduce_op_count, [](std::size_t i) { return op_name(static_cast<ReduceOp>(i)); });
  const auto algorithms = plan::algorithms();
  all.algorithms = names(algorithms.size(), [&](std::size_t i) { return algorithms[i].name; });
  all.algorithms.names[no_algorithm] = FixedText<24>("none");
  all.protocols = names(plan::protocol_count, [](std::size_t i) {
    return plan::protocol_name(static_cast<plan::Protocol>(i));
  });
  return all;
}

}  // namespace

Result<RankState> claim_rank_state(StatePage& state_page, const trust::ProcessIdentity& self,
                                   const RankIdentity& identity) {
  const auto owner = [&] {
    return StatePage::Owner{self.host, self.host_name, version_text(), state_page_names()};
  };
  GYRE_ASSIGN(RankState rank_state, state_page.claim(owner, identity));
  rank_state.note_caller();
  return rank_state;
}

Result<RankState> claim_meeting(StatePage& state_page, const trust::ProcessIdentity& self,
                                const std::string& job, int size, int rank) {
  RankIdentity identity;
  identity.communicator = std::hash<std::string>()(job);
  identity.name = FixedText<16>("meeting");
  identity.label = FixedText<64>(job);
  identity.rank = rank;
  identity.size = size;
  GYRE_ASSIGN(RankState rank_state, claim_rank_state(state_page, self, identity));
  WaitRecord wait;
  wait.phase = WaitPhase::joining;
  wait.what = BlockedOn::entered;
  rank_state.tell_wait(WaitLane::collective, wait);
  return rank_state;
}

void show_peers(RankState& rank_state, const control::Roster& roster) {
  RankPeers peers;
  std::map<trust::Token, std::uint32_t> known;
  std::vector<std::uint32_t> host_of_process;
  for (const trust::ProcessIdentity& process : roster.processes) {
    const auto [place, is_new] =
        known.emplace(process.host, static_cast<std::uint32_t>(peers.hosts.size()));
    if (is_new) peers.hosts.push_back({process.host, process.host_name});
    host_of_process.push_back(place->second);
  }
  for (const std::uint32_t process : roster.process_of_rank)
    peers.peers.push_back({roster.processes[process].pid, host_of_process[process]});
  rank_state.show_peers(peers);
}

void note_failure(RankState& rank_state, const Status& why, const std::string& file_pattern) {
  rank_state.fail(why);
  if (file_pattern.empty()) return;
  const StatePageHead head = rank_state.state_page().memory().head.read().value_or(StatePageHead());
  const auto written = write_flight_file(file_pattern, head, read_rank_state(rank_state));
  if (!written.ok()) return log_warn("{}", written.status().full_text());
  log_info(Subsystem::coll, "the last {} operations are in {}", flight_count, *written);
}

FlightCall flight_call(std::span<const Transfer> transfers) {
  FlightCall call;
  call.algorithm = no_algorithm;
  call.protocol = static_cast<std::uint8_t>(plan::Protocol::simple);
  if (transfers.empty()) return call;
  const Transfer& first = transfers[0];
  bool one_type = true, one_way = true, one_peer = true;
  for (const Transfer& transfer : transfers) {
    call.bytes += transfer.bytes;
    one_type &= transfer.type == first.type;
    one_way &= transfer.sends == first.sends;
    one_peer &= transfer.peer == first.peer;
  }
  const ElementType type = one_type ? first.type : ElementType::uint8;
  call.type = static_cast<std::uint8_t>(type);
  call.count = call.bytes / element_bytes(type);
  call.root = one_peer ? first.peer : any_source;
  const Function function = first.sends ? Function::send : Function::receive;
  call.function = one_way ? static_cast<std::uint8_t>(function) : exchange_function;
  return call;
}

void OperationRecord::tell(WaitPhase phase, const Blocked& on) {
  WaitRecord wait;
  if (flight_.is_open()) {
    flight_.time_end();
    wait.sequence = flight_.sequence();
    wait.serial = flight_.serial();
    wait.function = flight_.function();
  }
  wait.phase = phase;
  wait.what = on.what;
  wait.peer = on.peer;
  wait.channel = on.channel;
  wait.chunk = on.chunk;
  rank_state_.tell_wait(lane_, wait);
}

}  // namespace gyre::comm
