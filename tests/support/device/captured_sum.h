// CapturedSum: an all-reduce in a CUDA graph of each rank of a process, over the fake driver.
#pragma once

#include "tests/support/device/device_processes.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace gyre::tests {

// A sum over all ranks as a graph of each rank of this process.
class CapturedSum {
 public:
  explicit CapturedSum(DeviceProcess& here) : here_(here) {
    for (std::size_t place = 0; place < here.comms.size(); ++place) {
      in_.push_back(here.allocate(place, count));
      out_.push_back(here.allocate(place, count));
    }
  }
  ~CapturedSum() { destroy(); }
  CapturedSum(const CapturedSum&) = delete;
  CapturedSum& operator=(const CapturedSum&) = delete;

  // What was wrong, as all below.
  std::string capture() {
    for (loaded::CuStream stream : here_.streams)
      if (here_.driver->stream_begin_capture(stream, loaded::cu::capture_global) !=
          loaded::cu::success)
        return "no capture";
    std::string wrong = call();
    for (loaded::CuStream stream : here_.streams) {
      loaded::CuGraph graph = nullptr;
      if (here_.driver->stream_end_capture(stream, &graph) != loaded::cu::success)
        return wrong + " no end";
      if (here_.driver->graph_instantiate(&runs_.emplace_back(), graph, 0) != loaded::cu::success)
        return wrong + " no run";
      (void)here_.driver->graph_destroy(graph);
    }
    return wrong;
  }
  std::string call() {
    return here_.call([&](std::size_t place, gyreComm_t comm, gyreStream_t stream) {
      return gyreAllReduce(in_[place], out_[place], count, gyreInt32, gyreSum, comm, stream);
    });
  }
  std::string replay(int round) {
    for (std::size_t place = 0; place < in_.size(); ++place)
      for (std::size_t i = 0; i < count; ++i) {
        in_[place][i] = static_cast<int>(i) + 7 * here_.rank(place) + round;
        out_[place][i] = -1;
      }
    launch();
    if (std::string failed = here_.synchronize(); !failed.empty()) return failed;
    const int n = here_.ranks();
    for (const std::int32_t* out : out_)
      for (std::size_t i = 0; i < count; ++i)
        if (out[i] != n * (static_cast<int>(i) + round) + 7 * n * (n - 1) / 2)
          return "element " + std::to_string(i) + " of round " + std::to_string(round);
    return "";
  }
  void launch() {
    for (std::size_t place = 0; place < runs_.size(); ++place)
      (void)here_.driver->graph_launch(runs_[place], here_.streams[place]);
  }
  void destroy() {
    for (loaded::CuGraphRun run : std::exchange(runs_, {}))
      (void)here_.driver->graph_run_destroy(run);
  }

 private:
  static constexpr std::size_t count = 3000;

  DeviceProcess& here_;
  std::vector<std::int32_t*> in_, out_;
  std::vector<loaded::CuGraphRun> runs_;
};

}  // namespace gyre::tests
