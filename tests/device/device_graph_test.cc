// CUDA graphs of Gyre's calls over the fake driver, which checks that nothing is left behind. The
// cases themselves also run on a GPU (gpu_test.cc).
#include "tests/support/device/cuda_graph_cases.h"

namespace device_graph_test {

using namespace gyre;
using namespace gyre::tests;

namespace {

constexpr std::size_t count = 3000;

}  // namespace

TEST_CASE("a captured call runs at each replay, and not before", "[device][graph]") {
  const std::string protocol = GENERATE("LL", "LL128", "Simple", "Direct");
  OnFake on({}, {{"GYRE_PROTO", protocol}});
  check_captured_call(on, 3, count, 5);
}

TEST_CASE("replays and calls may follow one another on a stream", "[device][graph]") {
  OnFake on;
  check_replays_among_calls(on, count, 6);
}

TEST_CASE("groups, sends, receives and uneven blocks can be captured", "[device][graph]") {
  OnFake on;
  check_captured_group(on, count, 4);
}

TEST_CASE("calls of one capture on several streams keep their order", "[device][graph]") {
  OnFake on;
  check_captured_streams(on, count);
}

TEST_CASE("a graph keeps what its kernels reach, also without its communicator",
          "[device][graph]") {
  OnFake on;
  check_graph_stays_usable(on, count);
}

TEST_CASE("an abort frees replayed kernels, and later replays leave at once", "[device][graph]") {
  OnFake on;
  check_abort_of_replay(on, count, 3);
}

TEST_CASE("a replay that a rank leaves out ends by its deadline with an error", "[device][graph]") {
  OnFake on;
  check_replay_left_out(on, count, 300);
}

TEST_CASE("a call on the default stream during a capture is refused, and breaks nothing",
          "[device][graph]") {
  OnFake on;
  check_default_stream_in_capture(on, count);
}

TEST_CASE("a capture that has failed is said so, and leaves the communicator whole",
          "[device][graph]") {
  OnFake on;
  check_spoiled_capture(on, count);
}

}  // namespace device_graph_test
