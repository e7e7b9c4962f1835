// A CUDA device under drivers of several versions, by the fake: which images are loaded, and how
// kernels are launched.
#include "tests/support/base/log_file.h"
#include "tests/support/device/cuda_cases.h"

namespace driver_versions_test {

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

// What configures a device, or the text of why not.
std::string opened(const loaded::CudaDriver& driver, const cuda::ImageOrigin& origin) {
  std::vector<cuda::KernelImage> images;
  for (cuda::KernelImage image : FakeCuda::images()) {
    image.origin = &origin;
    images.push_back(image);
  }
  const auto device = exec::CudaDevice::open(driver, 0, images);
  return device.ok() ? "" : std::string(device.status().full_text());
}

// The default device where the images are of a CUDA, and what a communicator on device 0 says.
std::pair<int, std::string> begun_with(const FakeCudaOptions& options,
                                       const cuda::ImageOrigin& origin) {
  OnFake on(options);
  std::vector<cuda::KernelImage> images;
  for (cuda::KernelImage image : FakeCuda::images()) {
    image.origin = &origin;
    images.push_back(image);
  }
  comm::process().use_cuda(on.fake.table(), images);
  const int device = comm::process().default_device();
  Ranks ranks(on, 1);
  return {device, ranks.begun == gyreSuccess ? "" : std::string(gyreGetLastError(nullptr))};
}

constexpr int code[] = {80, 90, 100, 120};
constexpr int releases[] = {13000, 12090};

}  // namespace

TEST_CASE("images of a newer CUDA than the driver's are told by both versions", "[device]") {
  for (const int release : releases)
    for (const int driver : {11080, 12040, 12080, 13000}) {
      FakeCudaOptions options;
      options.driver = driver;
      options.images = release;
      const bool loads = driver / 1000 >= release / 1000;
      const cuda::ImageOrigin origin{release, code, 90, release};
      const auto [device, why] = begun_with(options, origin);
      INFO("images of " << release << ", driver of " << driver << ": " << why);
      CHECK(device == (loads ? 0 : GYRE_DEVICE_HOST));
      CHECK(why.empty() == loads);
      if (loads) continue;
      CHECK(mentions(why, "the driver here is of CUDA " + loaded::shown_as_cuda(driver)));
      CHECK(mentions(why, "were compiled by CUDA " + loaded::shown_as_cuda(release)));
      CHECK(mentions(why, "drivers of CUDA " + std::to_string(release / 1000) + ".0 and later"));
      CHECK(mentions(why, "GYRE_DEVICE_HOST"));
    }
}

TEST_CASE("the default device is one that the kernels are for", "[device]") {
  const cuda::ImageOrigin origin{12090, code, 90, 12030};
  for (const auto& [capability, device] :
       {std::pair(75, GYRE_DEVICE_HOST), std::pair(80, 0), std::pair(110, 0)}) {
    FakeCudaOptions options;
    options.capability = capability;
    CHECK(begun_with(options, origin).first == device);
  }
}

TEST_CASE("a GPU that no code is for has PTX compiled, or is refused", "[device]") {
  struct Case {
    int capability, driver;
    const char* why;  // a word of it; empty: it opens
    bool compiles;
  };
  const Case cases[] = {
      {75, 13000, "is of sm_75, and this build has kernels for sm_80 and later", false},
      {80, 12000, "", false},
      {86, 12000, "", false},
      {90, 12000, "", false},
      {103, 13000, "", false},
      {121, 13000, "", false},
      {110, 13000, "", true},
      {110, 12020, "the PTX is of CUDA 12.3, and the driver of CUDA 12.2", false},
  };
  for (const Case& one : cases) {
    FakeCudaOptions options;
    options.driver = one.driver;
    options.capability = one.capability;
    options.images = 12090;
    OnFake on(options);
    const test::LogFile log;
    const std::string why = opened(*on.driver, {12090, code, 90, 12030});
    INFO("sm_" << one.capability << ", driver of " << one.driver << ": " << why);
    CHECK(why.empty() == (*one.why == '\0'));
    CHECK(mentions(why, one.why));
    REQUIRE(log.lines().size() == (one.compiles ? 1 : 0));
    if (one.compiles) CHECK(mentions(log.lines()[0], "the driver compiles the kernels now"));
  }
}

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
    options.driver = options.images = one.driver;
    options.capability = one.capability;
    const auto [all, apart] = launches_with(options, shown);
    INFO("driver " << one.driver << ", sm_" << one.capability);
    CHECK(all > 0);
    CHECK(apart == (one.apart ? all : 0));
    CHECK(shown == one.shown);
  }
}

}  // namespace driver_versions_test
