// Work: one task of a communicator: a join, a request, or a Resumable (a split, a group's calls).
#pragma once

#include "lib/call/request.h"
#include "lib/comm/resumable.h"

#include <memory>

namespace gyre::comm {

struct Work {
  bool joins = false;
  std::shared_ptr<Resumable> resumable = nullptr;
  Request request = {};
  bool has_transfers = false;  // the resumable, beside others

  bool is_collective() const { return !joins && resumable == nullptr; }
  // Sends and receives alone, and those or some among others.
  bool is_exchange() const { return request.transfers != nullptr; }
  bool exchanges() const { return is_exchange() || has_transfers; }
};

}  // namespace gyre::comm
