// Cases of CUDA graphs of Gyre's calls that run alike over the fake driver and on a GPU: captured
// once, replayed without the host, kept alive by the graph. Each checks by Catch2's macros; buffers
// are of `count` elements a rank.
#pragma once

#include "tests/support/device/device_ranks.h"

#include <cstddef>

namespace gyre::tests {

// A graph of each rank, made ready to be launched on its stream.
class Graphs {
 public:
  Graphs(const OnCuda& on, Ranks& ranks) : on_(on), ranks_(ranks) {}
  ~Graphs() { destroy(); }
  Graphs(const Graphs&) = delete;
  Graphs& operator=(const Graphs&) = delete;

  // What the ranks call in `act` becomes a graph each; what the group came to.
  gyreResult_t capture(const Ranks::Call& act);
  void launch(std::size_t rank);
  void replay();
  void destroy();

 private:
  const OnCuda& on_;
  Ranks& ranks_;
  std::vector<loaded::CuGraphRun> runs_;
};

// Buffers of all ranks for all-reduces of int32, which differ from round to round.
struct GraphBuffers {
  GraphBuffers(const OnCuda& on, std::size_t ranks, std::size_t elements);
  void fill(int round) const;
  gyreResult_t all_reduce(int rank, gyreComm_t comm, gyreStream_t stream) const;
  std::size_t wrong_sums(int round) const;

  std::size_t count;
  std::vector<DeviceInts> in, out;
};

// The first call of a communicator is the captured one: its links and plans open in the capture.
void check_captured_call(const OnCuda& on, int ranks, std::size_t count, int replays);
void check_replays_among_calls(const OnCuda& on, std::size_t count, int rounds);
// Three ranks: two all-reduces, uneven blocks, a send and a receive.
void check_captured_group(const OnCuda& on, std::size_t count, int replays);
void check_captured_streams(const OnCuda& on, std::size_t count);
void check_graph_stays_usable(const OnCuda& on, std::size_t count);
void check_abort_of_replay(const OnCuda& on, std::size_t count, double max_seconds);
void check_replay_left_out(const OnCuda& on, std::size_t count, int timeout_ms);
// The default stream would have to wait for what is captured, unless that stream is non-blocking.
void check_default_stream_in_capture(const OnCuda& on, std::size_t count);
void check_spoiled_capture(const OnCuda& on, std::size_t count);

}  // namespace gyre::tests
