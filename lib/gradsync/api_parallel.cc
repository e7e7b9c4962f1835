// The C functions of one model that several threads work on.
#include "kernels/cpu/elementwise.h"
#include "lib/gradsync/gradsync_api.h"

namespace gyre::gradsync {
namespace {

Status create(gyreGradParallel_t* parallel, int threads, const gyreGradTensor_t tensors[],
              std::size_t count) {
  constexpr int max_threads = 1024;
  if (parallel == nullptr) return invalid_argument("parallel is NULL");
  *parallel = nullptr;
  if (threads < 1 || threads > max_threads)
    return invalid_argument(fmt::format("threads = {} is not from 1 to {}", threads, max_threads));
  GYRE_ASSIGN(auto list, read_tensors(tensors, count));
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (list[i].gradient == nullptr)
      return invalid_argument(
          fmt::format("{} has no memory for the batch's gradient", call_by_name(list, i)));
    if (!kernels::has_elementwise(list[i].type))
      return invalid_argument(fmt::format("{} is {}: float16, bfloat16 or float32 is needed",
                                          call_by_name(list, i), element_name(list[i].type)));
  }
  GYRE_ASSIGN(auto made, Parallel::create(threads, std::move(list)));
  return keep(handles().parallels, std::move(made), parallel, "parallel models");
}

}  // namespace
}  // namespace gyre::gradsync

using namespace gyre;
using namespace gyre::gradsync;

gyreResult_t gyreGradParallelCreate(gyreGradParallel_t* parallel, int threads,
                                    const gyreGradTensor_t tensors[], size_t count) {
  return guarded([&] {
    return create(parallel, threads, tensors, count).while_doing("gyreGradParallelCreate");
  });
}

gyreResult_t gyreGradParallelDestroy(gyreGradParallel_t parallel) {
  return destroy(handles().parallels, parallel, "the parallel model");
}

gyreResult_t gyreGradParallelStep(gyreGradParallel_t parallel, size_t samples, gyreGradBody_t body,
                                  void* user) {
  return on(handles().parallels, parallel, "the parallel model", "gyreGradParallelStep",
            [&](Parallel& model) -> Status {
              if (body == nullptr) return invalid_argument("body is NULL");
              if (samples == 0) return invalid_argument("samples is 0: there is no gradient");
              return model.step(samples, [&](const gyreGradPart_t& part) {
                return checked(body(user, &part)).while_doing("in the body");
              });
            });
}
