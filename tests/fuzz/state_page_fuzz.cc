// A process whose state page lies: gyre why reads it next to an honest one. The values that it
// reads are in range, its text is lines of printable characters, and its JSON is valid. Input:
// acts: u8 where, u32 index, u64 value; see `place` for where.
#include "lib/base/flight_file.h"
#include "lib/base/state_page.h"
#include "lib/base/state_page_reader.h"
#include "tests/fuzz/input.h"
#include "tools/gyre/why_graph.h"
#include "tools/gyre/why_json.h"
#include "tools/gyre/why_text.h"

#include <nlohmann/json.hpp>

#include <fcntl.h>
#include <sstream>
#include <sys/mman.h>
#include <unistd.h>

namespace state_page_fuzz {

using namespace gyre;
using namespace gyre::tools;

namespace {

constexpr std::uint64_t word_bytes = sizeof(std::uint64_t);

// A rank of two communicators that has calls, waits and a failure behind it.
class Honest {
 public:
  Honest() {
    StatePage::Owner owner;
    owner.host = {1};
    owner.host_name = "here";
    owner.names.functions.names[0] = FixedText<24>("gyreAllReduce");
    for (const std::uint64_t communicator : {10U, 11U}) {
      RankIdentity identity;
      identity.communicator = communicator;
      identity.name = FixedText<16>("name");
      identity.rank = 1;
      identity.size = 3;
      auto rank_state = state_page_.claim([&] { return owner; }, identity);
      GYRE_DEMAND(rank_state.ok());
      fill(rank_states_.emplace_back(std::move(*rank_state)));
    }
    const off_t bytes = lseek(state_page_.descriptor(), 0, SEEK_END);
    words_.resize(static_cast<std::size_t>(bytes) / word_bytes);
    GYRE_DEMAND(pread(state_page_.descriptor(), words_.data(), words_.size() * word_bytes, 0) ==
                bytes);
  }
  const std::vector<std::uint64_t>& words() const { return words_; }

 private:
  static void fill(RankState& rank_state) {
    rank_state.show_peers({{{{1}, "here"}, {{2}, "there"}}, {{10, 0}, {11, 0}, {12, 1}}});
    OpenFlightEntry flight;
    FlightCall call;
    for (call.sequence = 1; call.sequence <= 3; ++call.sequence) {
      WaitRecord wait;
      wait.serial = rank_state.begin(flight, call);
      wait.sequence = call.sequence;
      wait.phase = WaitPhase::moving;
      wait.what = BlockedOn::data;
      wait.peer = 2;
      rank_state.stamp(flight);
      rank_state.tell_wait(WaitLane::collective, wait);
      if (call.sequence == 3) break;
      rank_state.end_wait(WaitLane::collective);
      flight.time_end();
      rank_state.end(flight, 0);
    }
    rank_state.fail(Status(Code::RemoteError, "it broke").blame({2}));
  }

  StatePage state_page_;
  std::vector<RankState> rank_states_;
  std::vector<std::uint64_t> words_;
};

const Honest& honest() {
  static const Honest made;
  return made;
}

// The word to change.
std::size_t place(std::uint8_t where, std::uint32_t index) {
  const auto offset_in = [&](std::size_t base, std::size_t bytes) {
    return base / word_bytes + index % (bytes / word_bytes);
  };
  constexpr std::size_t file_bytes = round_up(sizeof(StatePageMemory), state_page_bytes);
  constexpr std::size_t flights = offsetof(RankStateMemory, flights);
  constexpr std::size_t past_waits = offsetof(RankStateMemory, past_waits);
  const std::size_t span = rank_state_span(3).bytes;
  const std::size_t rank_state = file_bytes + (where & 0x80 ? span : 0);
  switch (where & 0x7f) {
    case 0:
      return index % honest().words().size();
    case 1:  // who it is, and the names of its codes
      return offset_in(0, offsetof(StatePageMemory, directory));
    case 2:
      return offset_in(offsetof(StatePageMemory, directory), 4 * word_bytes);
    case 3:  // identity, waits, failure
      return offset_in(rank_state, flights);
    case 4:
      return offset_in(rank_state + flights, 5 * sizeof(FlightLine));
    case 5:
      return offset_in(rank_state + past_waits, 4 * sizeof(PastWaitLine));
    default:  // peers and hosts
      return offset_in(rank_state + sizeof(RankStateMemory), span - sizeof(RankStateMemory));
  }
}

FileDescriptor file_of(const std::vector<std::uint64_t>& words, std::size_t bytes) {
  FileDescriptor file(memfd_create("board", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  GYRE_DEMAND(::write(file.get(), words.data(), bytes) == static_cast<ssize_t>(bytes));
  GYRE_DEMAND(fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK) == 0);
  return file;
}

void check_lines(const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) GYRE_DEMAND(fuzz::is_one_line(line));
}

void check_rank_state(const StatePageHead& head, const RankSnapshot& view) {
  GYRE_DEMAND(view.identity.rank >= 0 && view.identity.rank < view.identity.size);
  GYRE_DEMAND(view.flights.size() <= flight_count && view.past_waits.size() <= past_wait_count);
  GYRE_DEMAND(view.peers.empty() ||
              view.peers.size() == static_cast<std::size_t>(view.identity.size));
  for (const RankPeers::Peer& peer : view.peers) GYRE_DEMAND(peer.host < view.hosts.size());
  const std::string text = flight_text(head, view);
  check_lines(text);
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) GYRE_DEMAND(nlohmann::json::accept(line));
}

void add(Sight& sight, StatePageSnapshot state_page) {
  Sight::ProcessView process;
  process.facts.pid = process.facts.own_pid = 1000 + static_cast<long>(sight.processes.size());
  process.facts.state = 'S';
  process.head = state_page.head;
  for (RankSnapshot& rank_state : state_page.rank_states) {
    SeenRank rank;
    rank.process = sight.processes.size();
    rank.rank_state = std::move(rank_state);
    rank.steady = true;
    sight.ranks.push_back(std::move(rank));
  }
  sight.processes.push_back(std::move(process));
}

}  // namespace

int take_input(const std::uint8_t* data, std::size_t bytes) {
  fuzz::Input input(data, bytes);
  std::vector<std::uint64_t> words = honest().words();
  const bool lies = !input.empty();
  std::size_t length = words.size() * word_bytes;
  while (!input.empty()) {
    const auto where = input.take<std::uint8_t>();
    const auto index = input.take<std::uint32_t>();
    if ((where & 0x7f) == 7)
      length = std::min<std::size_t>(length, index);
    else
      words[place(where, index)] = input.take<std::uint64_t>();
  }
  auto state_page = read_state_page(file_of(words, length).get());
  auto other =
      read_state_page(file_of(honest().words(), honest().words().size() * word_bytes).get());
  GYRE_DEMAND(other.ok() && other->rank_states.size() == 2 && (lies || state_page.ok()));
  Sight sight;
  sight.now_ns = SystemClock::read();
  if (state_page.ok()) {
    GYRE_DEMAND(lies || state_page->rank_states.size() == 2);
    for (const RankSnapshot& view : state_page->rank_states)
      check_rank_state(state_page->head, view);
    add(sight, std::move(*state_page));
  }
  add(sight, std::move(*other));
  const std::vector<JobView> jobs = find_jobs(sight);
  GYRE_DEMAND(!jobs.empty());
  for (const JobView& job : jobs) check_lines(to_text(sight, job));
  GYRE_DEMAND(nlohmann::json::accept(to_json(sight, jobs, {}).dump()));
  return 0;
}

GYRE_FUZZ_TARGET(state_page)

}  // namespace state_page_fuzz
