// Writes the seeds into a corpus: fuzz_seeds FOLDER. With --check it compares instead: exit code 1
// if a seed is missing or differs, because a format changed and the seeds were not written again.
#include "tests/fuzz/seeds.h"

#include "lib/command_line/command_line.h"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

using namespace gyre::fuzz;

namespace {

namespace fs = std::filesystem;

Bytes content(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

bool write(const fs::path& path, const Bytes& bytes) {
  fs::create_directories(path.parent_path());
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  return file.flush().good();
}

}  // namespace

Script& Script::append(const void* data, std::size_t size) {
  const auto* bytes = static_cast<const std::uint8_t*>(data);
  bytes_.insert(bytes_.end(), bytes, bytes + size);
  return *this;
}

int main(int count, char** arguments) {
  bool check = false;
  std::string place;
  gyre::command_line::CommandLine line(
      "fuzz_seeds", "Write the seeds of the fuzz targets into a folder, one folder for each.");
  line.add_flag("--check", check,
                "write nothing: exit code 1 if a seed is missing there, or differs");
  line.add_option("folder", place, gyre::command_line::any_text(), "FOLDER",
                  "the corpus: tests/fuzz/corpus")
      .is_required = true;
  if (const auto ended = line.read(count, arguments)) return *ended;
  const fs::path folder = place;
  Seeds seeds;
  for (const auto add :
       {add_trust_seeds, add_bootstrap_seeds, add_job_seeds, add_transport_seeds, add_memory_seeds,
        add_relay_seeds, add_state_page_seeds, add_environment_seeds, add_metrics_seeds,
        add_training_seeds, add_topology_seeds, add_rdma_seeds, add_ucx_seeds})
    add(seeds);
  int wrong = 0;
  for (const auto& [name, bytes] : seeds.files()) {
    const fs::path path = folder / name;
    const bool good = check ? fs::exists(path) && content(path) == bytes : write(path, bytes);
    if (good) continue;
    ++wrong;
    std::printf("%s: %s\n", name.c_str(), check ? "not as it would be written" : "not written");
  }
  std::printf("%zu seeds, %d wrong\n", seeds.files().size(), wrong);
  return wrong == 0 ? 0 : 1;
}
