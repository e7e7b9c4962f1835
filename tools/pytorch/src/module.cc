// The Python module gyre_torch._C: makes a Backend, and ends all operations before Python ends.
#include "tools/pytorch/src/average_hook.h"
#include "tools/pytorch/src/process_group_gyre.h"
#include "tools/pytorch/src/shutdown_hook.h"

#include <array>
#include <cstdint>
#include <optional>
#include <pybind11/chrono.h>
#include <pybind11/stl.h>
#include <torch/csrc/distributed/c10d/reducer.hpp>
#include <torch/csrc/utils/pybind.h>

namespace {

c10::intrusive_ptr<gyre_torch::ProcessGroupGyre> gyre_of(
    const c10::intrusive_ptr<c10d::Backend>& backend) {
  auto found = c10::dynamic_intrusive_pointer_cast<gyre_torch::ProcessGroupGyre>(backend);
  TORCH_CHECK_TYPE(found != nullptr, "gyre: a backend named ", backend->getBackendName(),
                   " is none of Gyre's");
  return found;
}

}  // namespace

PYBIND11_MODULE(_C, module) {
  using gyre_torch::ProcessGroupGyre;
  // PyTorch asks this of ranks that are not in a new group, where groups are made by splits that
  // take all ranks; ours are not.
  pybind11::class_<ProcessGroupGyre, c10d::Backend, c10::intrusive_ptr<ProcessGroupGyre>>(module,
                                                                                          "Backend")
      .def(
          "perform_nocolor_split", [](ProcessGroupGyre&, const at::Device&) {},
          pybind11::arg("device"));
  module.def(
      "create",
      [](const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
         std::chrono::milliseconds timeout, const std::string& group) {
        return c10::intrusive_ptr<c10d::Backend>(c10::make_intrusive<ProcessGroupGyre>(
            store, rank, size, gyre_torch::timeout_in_force("GYRE_TIMEOUT", timeout), group));
      },
      pybind11::arg("store"), pybind11::arg("rank"), pybind11::arg("size"),
      pybind11::arg("timeout"), pybind11::arg("group") = "",
      pybind11::call_guard<pybind11::gil_scoped_release>());
  // `cores`: the fields of RankCores, in their order.
  module.def(
      "average",
      [](c10d::Reducer& reducer, const c10::intrusive_ptr<c10d::Backend>& backend,
         const std::array<std::int64_t, 4>& cores, std::optional<bool> at_the_last) {
        using gyre_torch::AverageHook;
        std::optional<AverageHook::When> when;
        if (at_the_last)
          when = *at_the_last ? AverageHook::When::at_the_last : AverageHook::When::beside;
        const gyre_torch::RankCores own{cores[0], cores[1], cores[2], cores[3]};
        reducer.register_comm_hook(std::make_unique<AverageHook>(gyre_of(backend), own, when));
      },
      pybind11::arg("reducer"), pybind11::arg("backend"), pybind11::arg("cores"),
      pybind11::arg("at_the_last") = std::nullopt);
  module.def(
      "shut_down", [] { gyre_torch::ShutdownHook::shared().say(); },
      pybind11::call_guard<pybind11::gil_scoped_release>());
}
