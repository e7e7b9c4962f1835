// What a CUDA device does under drivers of several versions, by the fake: how kernels are launched.
#include "tests/support/cuda_cases.h"

using namespace gyre;
using namespace gyre::tests;

namespace {

// Calls of two ranks; how many kernels were launched, and of those apart from the caller's.
std::pair<int, int> launches_with(const FakeCudaOptions& options, std::string& shown) {
  OnFake on(options);
  {
    const auto device = comm::process().cuda_device(0);
    REQUIRE(device.ok());
    shown = (*device)->launches_shown();
  }
  Ranks ranks(on, 2);
  REQUIRE(ranks.begun == gyreSuccess);
  for (const Collective& one : collectives()) check_collective(on, ranks, one, 301);
  return {on.fake.launches(), on.fake.launches_apart()};
}

}  // namespace

TEST_CASE("kernels are launched apart from the caller's where driver and GPU can", "[device]") {
  struct Case {
    int driver, capability;
    bool apart;
    const char* shown;
  };
  const Case cases[] = {
      {11080, 90, false, "kernels by cuLaunchKernel"},
      {12000, 80, false, "kernels by cuLaunchKernelEx, at priority -5"},
      {12000, 90, true,
       "kernels by cuLaunchKernelEx, in the remote memory synchronisation domain, at priority -5"},
      {13000, 100, true,
       "kernels by cuLaunchKernelEx, in the remote memory synchronisation domain, at priority -5"},
  };
  for (const Case& one : cases) {
    std::string shown;
    FakeCudaOptions options;
    options.driver = one.driver;
    options.capability = one.capability;
    const auto [all, apart] = launches_with(options, shown);
    INFO("driver " << one.driver << ", sm_" << one.capability);
    CHECK(all > 0);
    CHECK(apart == (one.apart ? all : 0));
    CHECK(shown == one.shown);
  }
}
