// Seeds of what tools read: false state pages, and flight files.
#include "lib/base/flight_file.h"
#include "tests/fuzz/seeds.h"

namespace gyre::fuzz {
namespace {

// Acts of `state_page`; see `place` in the target.
class Lies {
 public:
  Lies& lie(std::uint8_t where, std::uint32_t index, std::uint64_t value) {
    script_.number(where).number(index).number(value);
    return *this;
  }
  Lies& cut(std::uint32_t bytes) {
    script_.number(std::uint8_t{7}).number(bytes);
    return *this;
  }
  operator Bytes() { return script_; }

 private:
  Script script_;
};

enum Where : std::uint8_t { anywhere, head, directory, rank_state, flight, past_wait, peer };
constexpr std::uint8_t second = 0x80;  // of the two rank states
constexpr std::uint64_t most = ~std::uint64_t{0};
constexpr std::uint64_t sign = std::uint64_t{1} << 63;

void add_state_pages(Seeds& seeds) {
  const auto add = [&](const std::string& name, Bytes bytes) {
    seeds.add("state_page", name, std::move(bytes));
  };
  add("honest", {});
  add("no_magic", Lies().lie(head, 0, 0));
  add("cut", Lies().cut(1000));
  add("cut_in_a_ledger", Lies().cut(100000));
  add("directory_far", Lies().lie(directory, 0, UINT32_MAX).lie(directory, 1, most));
  add("directory_same", Lies().lie(directory, 2, std::uint64_t{1} << 32 | 10));
  // Each word of the heads takes the values at which numbers turn.
  for (const std::uint64_t value : {std::uint64_t{0}, std::uint64_t{2}, sign, most}) {
    const std::string name = value == sign   ? "sign"
                             : value == most ? "most"
                                             : std::to_string(value);
    Lies heads, rank_states, flights, waits, peers;
    for (std::uint32_t i = 3; i < 32; ++i) heads.lie(head, i, value);
    for (std::uint32_t i = 0; i < 64; ++i) rank_states.lie(second | rank_state, i, value);
    for (std::uint32_t i = 8; i < 40; ++i) flights.lie(flight, i, value);
    for (std::uint32_t i = 10; i < 30; ++i) waits.lie(past_wait, i, value);
    for (std::uint32_t i = 0; i < 10; ++i) peers.lie(peer, i, value);
    add("head_" + name, heads);
    add("ledger_" + name, rank_states);
    add("flights_" + name, flights);
    add("past_waits_" + name, waits);
    add("peers_" + name, peers);
  }
}

RankSnapshot a_rank_state() {
  RankSnapshot view;
  view.identity.size = 2;
  FlightEntry flight;
  for (flight.serial = 1; flight.serial <= 3; ++flight.serial) {
    flight.call.sequence = flight.serial == 2 ? 0 : flight.serial;
    view.flights.push_back({flight, 1000, 5000});
  }
  view.flights.back().end_ns.reset();
  view.flights.front().start_ns.reset();
  PastWait past;
  past.wait.phase = WaitPhase::moving;
  past.wait.serial = 2;
  past.wait.since_ns = 2000;
  past.until_ns = 3000;
  view.past_waits.push_back(past);
  past.wait.serial = past.wait.sequence = 3;
  past.wait.peer = 0;
  view.past_waits.push_back(past);
  view.waits.push_back(past.wait);
  return view;
}

// The time at which the text is made is in it: it is given another one.
std::string with_fixed_time(std::string text) {
  for (const char* name : {"\"now_ns\":", "\"wall_ns\":"}) {
    const std::size_t from = text.find(name) + std::string_view(name).size();
    text.replace(from, text.find(',', from) - from, "9000");
  }
  return text;
}

void add_traces(Seeds& seeds) {
  const auto add = [&](const char* name, std::string_view text) {
    seeds.add_text("flight_trace", name, text);
  };
  const std::string text = with_fixed_time(flight_text(StatePageHead(), a_rank_state()));
  add("honest", text);
  add("twice", text + text);
  add("cut", std::string_view(text).substr(0, text.size() - 20));
  add("no_head", std::string_view(text).substr(text.find('\n') + 1));
  std::string wrong = text;
  wrong.replace(wrong.find("9000"), 4, "18446744073709551615");
  add("late_clock", wrong);
  wrong = text;
  wrong.replace(wrong.find("\"gyre_flights\":1"), 16, "\"gyre_flights\":2");
  add("version", wrong);
  wrong = text;
  wrong.replace(wrong.rfind("\"start_ns\":2000"), 15, "\"start_ns\":null");
  add("wait_without_start", wrong);
  add("deep", std::string(3000, '['));
  add("a_number", "7\n");
}

}  // namespace

void add_state_page_seeds(Seeds& seeds) {
  add_state_pages(seeds);
  add_traces(seeds);
}

}  // namespace gyre::fuzz
