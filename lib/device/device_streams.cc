#include "lib/device/device_streams.h"

#include <fmt/core.h>

namespace gyre::comm {

namespace cu = loaded::cu;

Result<DeviceStreamUse> ask_stream(const loaded::CudaDriver& driver,
                                   const exec::StreamState& given) {
  DeviceStreamUse use;
  use.stream = given.stream == nullptr ? cu::default_stream : given.stream;
  if (use.stream == cu::default_stream) return use;
  if (use.stream == cu::thread_stream) {
    use.thread = std::this_thread::get_id();
    use.waits_for_default = true;
    return use;
  }
  // A graph runs on the stream that it is launched on. And the driver refuses the question during a
  // capture, which fails then.
  if (given.graph != nullptr) return use;
  unsigned flags = 0;
  GYRE_TRY(driver.check(driver.stream_flags(given.stream, &flags), "cuStreamGetFlags"));
  use.waits_for_default = (flags & cu::stream_non_blocking) == 0;
  return use;
}

bool wait_for_each_other(const DeviceStreamUse& a, const DeviceStreamUse& b) {
  if (a.stream == b.stream && a.thread == b.thread) return true;
  return (a.stream == cu::default_stream && b.waits_for_default) ||
         (b.stream == cu::default_stream && a.waits_for_default);
}

Status refuse_streams(int rank, const DeviceStreamUse& its, int other,
                      const DeviceStreamUse& others) {
  const char* const given = its.stream != others.stream ? "the default stream and one that waits "
                                                          "for it"
                            : its.stream == cu::default_stream ? "the default stream both"
                                                               : "one stream";
  return invalid_usage(
      fmt::format("ranks {} and {}, of one process and GPU, are given {}: the kernel of one would "
                  "wait for that of the other, which cannot begin before it has ended; give each "
                  "rank a stream of its own, made with cudaStreamNonBlocking",
                  other, rank, given));
}

}  // namespace gyre::comm
