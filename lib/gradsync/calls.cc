#include "lib/gradsync/calls.h"

#include "lib/base/thread_state.h"

#include <string>

namespace gyre::gradsync {
namespace {

struct LastError {
  std::string text = "no error";
  std::string shown;  // what gyreGradGetLastError returned
};

}  // namespace

Handles& handles() {
  static Handles& all = *new Handles;  // other threads may be inside when the process ends
  return all;
}

gyreResult_t answer(const Status& status) {
  if (!status.ok()) thread_state<LastError>().text = status.message();
  return static_cast<gyreResult_t>(status.code());
}

Status in_range(const char* field, std::int64_t value, std::int64_t least, std::int64_t most) {
  if (value >= least && value <= most) return {};
  return invalid_argument(
      fmt::format("config.{} = {} is not from {} to {}", field, value, least, most));
}

Status check_communicator(gyreComm_t comm) {
  int device = GYRE_DEVICE_HOST;
  GYRE_TRY(checked(gyreCommCuDevice(comm, &device)));
  if (device == GYRE_DEVICE_HOST) return {};
  return invalid_usage(fmt::format(
      "comm works on memory of CUDA device {}; gradient sync works on host memory", device));
}

}  // namespace gyre::gradsync

const char* gyreGradGetLastError(void) {
  auto& last = gyre::thread_state<gyre::gradsync::LastError>();
  last.shown = last.text;
  return last.shown.c_str();
}
