// The timeline that is made of flights (recorded operations): what it shows, and input that is no
// flight.
#include "tools/gyre/flight_trace.h"

#include "tests/support/catch.h"

#include <fmt/core.h>
#include <nlohmann/json.hpp>

namespace flight_trace_test {

using namespace gyre;
using namespace gyre::tools;
using nlohmann::json;

namespace {

// Its clock is a second behind the wall's.
std::string head(int rank, const std::string& more = "") {
  return fmt::format(R"({{"gyre_flights":1,"communicator":"aa","rank":{},"host":"h","pid":{},)"
                     R"("now_ns":9000,"wall_ns":1000009000{}}})"
                     "\n",
                     rank, 7 + rank, more);
}
std::string flight(const std::string& function, int number, const std::string& start,
                   const std::string& end) {
  return fmt::format(R"({{"serial":{},"sequence":{},"function":"{}","start_ns":{},"end_ns":{},)"
                     R"("bytes":8}})"
                     "\n",
                     number, number, function, start, end);
}
std::string wait(int number, int peer, int start, int end) {
  return fmt::format(R"({{"wait":"data","serial":{},"sequence":{},"peer":{},"start_ns":{},)"
                     R"("end_ns":{}}})"
                     "\n",
                     number, number, peer, start, end);
}

std::vector<json> events(const std::vector<std::string>& texts, const std::string& phase) {
  const auto trace = make_trace(texts);
  REQUIRE(trace.ok());
  std::vector<json> found;
  const json document = json::parse(*trace);
  for (const json& one : document["traceEvents"])
    if (one["ph"] == phase) found.push_back(one);
  return found;
}

}  // namespace

TEST_CASE("a trace holds each flight once, open ones up to now", "[trace]") {
  const auto slices =
      events({head(1) + flight("f", 1, "1000", "1000") + flight("f", 2, "1000", "4000") +
              flight("g", 3, "5000", "null") + flight("unknown", 4, "null", "null")},
             "X");
  std::vector<json> operations;
  for (const json& one : slices)
    if (one["args"].contains("bytes")) operations.push_back(one);
  REQUIRE(operations.size() == 3);
  CHECK(operations[1]["ts"] == 0.0);
  CHECK(operations[1]["dur"] == 3.0);
  CHECK(operations[2]["ts"] == 4.0);
  CHECK(operations[2]["dur"] == 4.0);
}

TEST_CASE("in an operation lie its waits, and its work between them", "[trace]") {
  const auto slices =
      events({head(1) + flight("gyreAllReduce", 1, "1000", "9000") + wait(1, 0, 2000, 5000) +
              wait(1, 2, 6000, 20000) + wait(77, 2, 6000, 7000)},
             "X");
  const auto is = [&](std::size_t i, const char* name, double from, double duration) {
    CHECK(slices.at(i)["name"] == name);
    CHECK(slices.at(i)["ts"] == from);
    CHECK(slices.at(i)["dur"] == duration);
    CHECK(slices.at(i)["tid"] == slices.at(0)["tid"]);
  };
  REQUIRE(slices.size() == 5);
  is(0, "gyreAllReduce", 0, 8);
  is(1, "sends and reduces", 0, 1);
  is(2, "waits for data of rank 0", 1, 3);
  is(3, "sends and reduces", 4, 1);
  is(4, "waits for data of rank 2", 5, 3);
}

TEST_CASE("a wait that goes on is shown up to now, on the thread of its lane", "[trace]") {
  const std::string waits =
      R"(,"waits":[{"what":"credit","phase":"moving","peer":-1,"serial":2,"since_ns":4000}])";
  std::string transfers = flight("gyreSend", 2, "3000", "null");
  transfers.replace(transfers.find("\"sequence\":2"), 12, "\"sequence\":0");
  const auto slices = events({head(1, waits) + flight("f", 1, "1000", "null") + transfers}, "X");
  REQUIRE(slices.size() == 5);
  CHECK(slices[2]["name"] == "gyreSend");
  CHECK(slices[3]["name"] == "sends");
  CHECK(slices[4]["name"] == "waits for credit of any rank");
  CHECK(slices[4]["dur"] == 5.0);
  CHECK(slices[4]["tid"] == slices[2]["tid"]);
  CHECK(slices[4]["tid"] != slices[0]["tid"]);
}

TEST_CASE("an arrow leads from the rank that kept another one waiting", "[trace]") {
  const std::string late = head(0) + flight("gyreBroadcast", 1, "4000", "5000");
  const std::string early = head(1) + flight("gyreBroadcast", 1, "1000", "6000");
  const std::vector<std::string> texts = {late, early + wait(1, 0, 2000, 4500)};
  const auto from = events(texts, "s"), to = events(texts, "f");
  REQUIRE(from.size() == 1);
  REQUIRE(to.size() == 1);
  CHECK(from[0]["id"] == to[0]["id"]);
  CHECK(from[0]["pid"] != to[0]["pid"]);
  CHECK(from[0]["ts"] == 3.5);
  CHECK(to[0]["ts"] == 3.5);
  // Its operation began after the wait was over: two clocks that disagree.
  CHECK(events({late, early + wait(1, 0, 2000, 3000)}, "s").empty());
  CHECK(events({late, early + wait(1, 9, 2000, 4500)}, "s").empty());
}

TEST_CASE("what is no flight is refused, with its line", "[trace]") {
  const std::string good = flight("f", 1, "1000", "4000");
  for (const std::string& wrong :
       {std::string("x\n"), good, head(1) + "{}\n", head(1) + "[1]\n",
        std::string("{\"gyre_flights\":2}\n"), head(1) + flight("f", 1, "\"1\"", "2"),
        head(1) + flight("f", 1, "1", "18446744073709551615"),
        head(1) + R"({"wait":"data","start_ns":1})" + "\n"})
    CHECK_FALSE(make_trace({wrong}).ok());
  CHECK(
      make_trace({head(1), head(2) + good + "7\n"}).status().message().find("flights 2, line 3") !=
      std::string_view::npos);
}

}  // namespace flight_trace_test
