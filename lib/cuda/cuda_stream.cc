#include "lib/cuda/cuda_stream.h"

namespace gyre::exec {

namespace cu = loaded::cu;

Result<StreamState> StreamState::ask(const loaded::CudaDriver& driver, loaded::CuStream stream) {
  StreamState state;
  state.stream = stream;
  int status = cu::capture_none;
  const loaded::CuResult asked =
      driver.stream_capture_info(stream, &status, &state.capture, &state.graph, nullptr, nullptr);
  if (asked == cu::capture_implicit)
    return invalid_usage(
        "the default stream cannot be used while another stream of the device is captured: give "
        "the call the stream that is captured");
  GYRE_TRY(driver.check(asked, "cuStreamGetCaptureInfo"));
  state.spoiled = status == cu::capture_invalidated;
  if (status != cu::capture_active) state.graph = nullptr;
  return state;
}

}  // namespace gyre::exec
