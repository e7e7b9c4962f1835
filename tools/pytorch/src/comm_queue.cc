#include "tools/pytorch/src/comm_queue.h"

#include <algorithm>
#include <c10/util/Exception.h>
#include <thread>

namespace gyre_torch {

Operation together(std::vector<Operation> parts) {
  if (parts.size() == 1) return std::move(parts[0]);
  Operation all;
  bool delivers = false;
  for (const Operation& part : parts) {
    all.inputs.insert(all.inputs.end(), part.inputs.begin(), part.inputs.end());
    all.outputs.insert(all.outputs.end(), part.outputs.begin(), part.outputs.end());
    delivers |= static_cast<bool>(part.deliver);
  }
  const auto kept = std::make_shared<const std::vector<Operation>>(std::move(parts));
  all.call = [kept](gyreComm_t comm, gyreStream_t stream) {
    for (const Operation& part : *kept)
      if (const gyreResult_t result = part.call(comm, stream); result != gyreSuccess) return result;
    return gyreSuccess;
  };
  if (delivers)
    all.deliver = [kept] {
      for (const Operation& part : *kept)
        if (part.deliver) part.deliver();
    };
  return all;
}

at::Device device_of(const Operation& operation) {
  std::optional<at::Device> found;
  for (const Tensors* tensors : {&operation.inputs, &operation.outputs})
    for (const at::Tensor& tensor : *tensors) {
      if (!found) found = tensor.device();
      TORCH_CHECK_VALUE(*found == tensor.device(),
                        "gyre: an operation takes tensors on one device,", " not on ", *found,
                        " and ", tensor.device());
    }
  return found.value_or(operation.device);
}

std::chrono::milliseconds left_until(std::chrono::steady_clock::time_point until) {
  using std::chrono::milliseconds;
  return std::max(
      std::chrono::duration_cast<milliseconds>(until - std::chrono::steady_clock::now()),
      milliseconds(0));
}

gyreResult_t CommQueue::call(const Operation& operation, gyreComm_t comm, gyreStream_t stream) {
  const gyreResult_t begun = gyreGroupStart();
  if (begun != gyreSuccess) return begun;
  gyreResult_t called = gyreSuccess;
  try {
    called = operation.call(comm, stream);
  } catch (...) {
    // The group has to end, or this thread's later calls would be gathered for ever; and a call
    // that is refused keeps what was gathered from being carried out.
    (void)gyreSend(nullptr, 1, gyreInt8, -1, comm, stream);
    (void)gyreGroupEnd();
    throw;
  }
  const gyreResult_t ended = gyreGroupEnd();
  return called != gyreSuccess ? called : ended;
}

bool CommQueue::drain(std::chrono::milliseconds most) {
  const auto until = std::chrono::steady_clock::now() + most;
  while (!has_ended()) {
    if (std::chrono::steady_clock::now() >= until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

void CommQueue::tell_of_abort(const StoreCommunicator& communicator, const std::string& doing) {
  TORCH_WARN("gyre: rank ", communicator.membership().rank, ": the process group ends while ",
             doing, " is under way: it is aborted");
}

}  // namespace gyre_torch
