// PyTorch's registry of works, for compiled code: it keeps a work by its tensor until somebody
// waits for it. In the context allow_inflight_collective_as_graph_input this holds for works of
// plain collectives too, and the backend's wait is to take them out.
#pragma once

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

namespace gyre_torch {

inline void unregister(c10d::Work& work) {
  if (c10d::allow_inflight_collective_as_graph_input())
    c10d::unregister_work(c10::intrusive_ptr<c10d::Work>::unsafe_reclaim_from_nonowning(&work));
}

}  // namespace gyre_torch
