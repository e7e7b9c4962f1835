// The Python module gyre_torch._C: makes a Backend, and ends all when Python does.
#include "tools/pytorch/src/backend.h"
#include "tools/pytorch/src/farewell.h"
#include "tools/pytorch/src/shared_memory.h"

#include <pybind11/chrono.h>
#include <torch/csrc/utils/pybind.h>

namespace {

gyre_torch::Backend& gyre_of(const c10::intrusive_ptr<c10d::Backend>& backend) {
  auto* const found = dynamic_cast<gyre_torch::Backend*>(backend.get());
  TORCH_CHECK_TYPE(found != nullptr, "gyre: a backend named ", backend->getBackendName(),
                   " is none of Gyre's");
  return *found;
}

}  // namespace

PYBIND11_MODULE(_C, module) {
  using gyre_torch::Backend;
  // PyTorch asks this of ranks that are not in a new group, where groups are made by splits that
  // take all ranks; ours are not.
  pybind11::class_<Backend, c10d::Backend, c10::intrusive_ptr<Backend>>(module, "Backend")
      .def(
          "perform_nocolor_split", [](Backend&, const at::Device&) {}, pybind11::arg("device"));
  module.def(
      "create",
      [](const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
         std::chrono::milliseconds timeout, const std::string& group) {
        return c10::intrusive_ptr<c10d::Backend>(c10::make_intrusive<Backend>(
            store, rank, size, gyre_torch::timeout_in_force("GYRE_TIMEOUT", timeout), group));
      },
      pybind11::arg("store"), pybind11::arg("rank"), pybind11::arg("size"),
      pybind11::arg("timeout"), pybind11::arg("group") = "",
      pybind11::call_guard<pybind11::gil_scoped_release>());
  module.def("move_to_shared", gyre_torch::move_to_shared, pybind11::arg("tensor"),
             pybind11::call_guard<pybind11::gil_scoped_release>());
  module.def("begin_average",
             [](const c10::intrusive_ptr<c10d::Backend>& backend, const at::Tensor& tensor) {
               gyre_of(backend).begin_average(tensor);
             });
  module.def("finish_averages", [](const c10::intrusive_ptr<c10d::Backend>& backend) {
    gyre_of(backend).finish_averages();
  });
  module.def(
      "say_farewell", [] { gyre_torch::Farewell::shared().say(); },
      pybind11::call_guard<pybind11::gil_scoped_release>());
}
