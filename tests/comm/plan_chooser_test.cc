// PlanChooser by itself: messages that are too large for a communicator's slots.
#include "lib/comm/plan_chooser.h"

#include "tests/support/catch.h"

#include <string>

namespace plan_chooser_test {

using namespace gyre;
using namespace gyre::comm;

namespace {

// The least number of ranks for which a message of Bruck's does not fit the least slot, of a page.
constexpr int size = 130;
constexpr std::uint64_t page_bytes = 4096;

PlanChooser chooser(int rank) {
  Settings settings;
  settings.algorithm = "alltoall:bruck";
  auto allowed = tune::Allowed::parse(settings);
  REQUIRE(allowed.ok());
  return {rank, size, std::move(allowed).value()};
}

Status choose(PlanChooser& chooser, Function function, plan::Collective collective,
              std::uint64_t slot_bytes) {
  Request request;
  request.function = function;
  request.collective = collective;
  request.count = 1000;
  tune::TuningInputs inputs;
  inputs.ranks = size;
  inputs.slot_bytes = slot_bytes;
  inputs.line_count = 128;
  return chooser.choose(request, inputs).status();
}

}  // namespace

TEST_CASE("a call whose messages do not fit GYRE_BUFFSIZE is refused on all ranks, and it alone") {
  for (int rank = 0; rank < size; ++rank) {
    PlanChooser plans = chooser(rank);
    for (int again = 0; again < 2; ++again) {
      const Status refused =
          choose(plans, Function::all_to_all, plan::Collective::all_to_all, page_bytes);
      CHECK(refused.code() == Code::InvalidUsage);
      CHECK(refused.message().find("raise GYRE_BUFFSIZE") != std::string_view::npos);
      CHECK(choose(plans, Function::all_reduce, plan::Collective::all_reduce, page_bytes).ok());
    }
    CHECK(choose(plans, Function::all_to_all, plan::Collective::all_to_all, 2 * page_bytes).ok());
  }
}

}  // namespace plan_chooser_test
