// Runs a target on files, or on all files of folders, without a fuzzer, for the default tests and
// the coverage: fuzz_replay TARGET FILE... An empty folder is an error, so that a lost corpus is
// noticed.
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
  const std::string_view name = count > 1 ? arguments[1] : "";
  const auto target = gyre::fuzz::targets().find(name);
  if (target == gyre::fuzz::targets().end()) {
    std::fprintf(stderr, "fuzz_replay: there is no target \"%s\"; there are:\n", name.data());
    for (const auto& [known, take_input] : gyre::fuzz::targets())
      std::fprintf(stderr, "  %s\n", known.data());
    return 1;
  }
  std::size_t runs = 0;
  for (int i = 2; i < count; ++i) {
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
      target->second(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
      ++runs;
    }
  }
  std::printf("%zu inputs\n", runs);
  return runs > 0 ? 0 : 1;
}
