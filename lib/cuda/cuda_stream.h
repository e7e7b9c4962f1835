// StreamState: the state of a caller's stream during one call, asked of the driver once.
#pragma once

#include "lib/loaded/cuda.h"

namespace gyre::exec {

struct StreamState {
  loaded::CuStream stream = nullptr;  // null: the default one, which cannot be captured
  bool spoiled = false;               // the capture that it is part of has failed
  loaded::CuGraph graph = nullptr;    // that it is captured into; null: what is put there runs
  std::uint64_t capture = 0;          // that capture's number

  // The device's context is current.
  static Result<StreamState> ask(const loaded::CudaDriver& driver, loaded::CuStream stream);
};

}  // namespace gyre::exec
