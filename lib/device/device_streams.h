// Checks the streams that ranks of one communicator are given in one process and on one GPU. Their
// kernels wait for each other, so their streams must not. One stream for two ranks would hang, and
// so would the default stream beside a stream that waits for it.
#pragma once

#include "lib/cuda/cuda_stream.h"

#include <functional>
#include <memory>
#include <thread>

namespace gyre::comm {

// A stream as a rank's call was given it.
struct DeviceStreamUse {
  loaded::CuStream stream = nullptr;  // the default one by its name
  std::thread::id thread = {};        // where each thread has one of that name
  bool waits_for_default = false;     // and the default one for it
  bool is_pending = true;             // the call's kernel has not been launched
  // Whether a kernel of the rank has not ended. What has to live while it is asked goes into
  // `held`: its end may take locks of the caller's.
  std::function<bool(std::shared_ptr<const void>& held)> is_running;
};
Result<DeviceStreamUse> ask_stream(const loaded::CudaDriver& driver,
                                   const exec::StreamState& given);

bool wait_for_each_other(const DeviceStreamUse& a, const DeviceStreamUse& b);
Status refuse_streams(int rank, const DeviceStreamUse& its, int other,
                      const DeviceStreamUse& others);

}  // namespace gyre::comm
