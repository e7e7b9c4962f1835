// Runs a target on files, or on all files of folders, without a fuzzer, for the default tests and
// the coverage. An empty folder is an error, so that a lost corpus is noticed.
#include "tests/fuzz/input.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

namespace {

namespace fs = std::filesystem;

std::vector<fs::path> files_of(const char* argument) {
  if (!fs::is_directory(argument)) return {argument};
  std::vector<fs::path> paths;
  for (const auto& entry : fs::directory_iterator(argument))
    if (entry.is_regular_file()) paths.push_back(entry.path());
  std::ranges::sort(paths);
  return paths;
}

}  // namespace

int main(int count, char** arguments) {
  std::size_t runs = 0;
  for (int i = 1; i < count; ++i) {
    for (const fs::path& path : files_of(arguments[i])) {
      std::ifstream file(path, std::ios::binary);
      const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
      if (!file.is_open()) {
        std::fprintf(stderr, "%s: cannot be read\n", path.c_str());
        return 1;
      }
      // Told first, so that the one that ends the process is known.
      std::printf("%s\n", path.c_str());
      std::fflush(stdout);
      LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
      ++runs;
    }
  }
  std::printf("%zu inputs\n", runs);
  return runs > 0 ? 0 : 1;
}
