// A libgyre_cuda.so.0 that lies beside the library: its images are those that were built into it,
// and what cannot be used is refused with a reason.
#include "kernels/cuda/images_beside.h"

#include "tests/support/catch.h"

#include <filesystem>
#include <fstream>
#include <string_view>

namespace images_beside_test {

using namespace gyre;

namespace {

// Beside this program, which is linked with them, so that they are built before.
std::string test_library(const std::string& name) {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path() / "kernels" /
         ("lib" + name + ".so");
}

}  // namespace

TEST_CASE("a library of images brings what it was built with", "[images]") {
  const auto loaded = cuda::load_images(test_library("test_images"));
  REQUIRE(loaded.ok());
  REQUIRE(loaded->images.size() == 2);
  CHECK(loaded->images[0].row == "Float32_Sum");
  CHECK(loaded->images[1].row == "Float32_Product");
  CHECK(static_cast<const char*>(loaded->images[1].data) == std::string_view("product"));
  for (const cuda::KernelImage& image : loaded->images) {
    REQUIRE(image.origin != nullptr);
    CHECK(image.origin->release == 13000);
    CHECK(std::vector<int>(image.origin->code.begin(), image.origin->code.end()) ==
          std::vector<int>{80, 90});
    CHECK(image.origin->ptx == 90);
    CHECK(image.origin->ptx_release == 12030);
  }
}

TEST_CASE("without the library there are no images, and nothing is wrong", "[images]") {
  const auto loaded = cuda::load_images(test_library("none"));
  REQUIRE(loaded.ok());
  CHECK(loaded->images.empty());
  CHECK(cuda::built_in_images().empty());
  CHECK(cuda::why_no_images().ok());
}

TEST_CASE("a library of images that cannot be used is refused", "[images]") {
  const auto refusal = [](const std::string& path) {
    const auto loaded = cuda::load_images(path);
    REQUIRE_FALSE(loaded.ok());
    return std::string(loaded.status().message());
  };
  const std::string old = test_library("test_images_of_old");
  CHECK(refusal(old).find(old + " has the CUDA kernels of Gyre 0.0.1, and this is Gyre ") == 0);
  CHECK(refusal("/proc/self/exe").find("the library of CUDA kernels cannot be loaded: ") == 0);
  const std::string other = test_library("test_no_images");
  CHECK(refusal(other) ==
        other + " has no gyre_cuda_images: it is no library of CUDA kernels of Gyre");
}

}  // namespace images_beside_test
