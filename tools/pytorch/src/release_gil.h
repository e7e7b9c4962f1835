// ReleaseGil: releases Python's lock, if this thread holds it, for a wait on threads that may need
// it. PyTorch calls backends both with and without the lock.
#pragma once

#include <optional>
#include <pybind11/pybind11.h>

namespace gyre_torch {

class ReleaseGil {
 public:
  ReleaseGil() {
    if (Py_IsInitialized() && PyGILState_Check()) released_.emplace();
  }

 private:
  std::optional<pybind11::gil_scoped_release> released_;
};

}  // namespace gyre_torch
