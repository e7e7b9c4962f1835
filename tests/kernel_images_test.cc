// The images that nvcc made and this build brings along: one for each row of the table of kernels,
// and in each the kernels under the names by which an executor looks them up. Images are read as
// nvcc packs them: a head, and then entries with a cubin or PTX each, compressed by zstd.
#include "kernels/cuda/kernel_name.h"

#include <catch2/catch.hpp>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <regex>
#include <set>
#include <string>
#include <unistd.h>
#include <vector>

using namespace gyre;

namespace {

// As nvcc 13.0 writes them; NVIDIA documents neither.
struct ImageHead {
  std::uint32_t magic;
  std::uint16_t version, head_bytes;
  std::uint64_t entries_bytes;
};
struct EntryHead {
  std::uint16_t kind, version;
  std::uint32_t head_bytes;
  std::uint64_t payload_bytes;
  std::uint32_t compressed_bytes, unknown;
  std::uint16_t minor, major;
  std::uint32_t architecture;
};
static_assert(sizeof(ImageHead) == 16 && sizeof(EntryHead) == 32);
constexpr std::uint32_t image_magic = 0xba55ed50;
constexpr std::uint16_t kind_ptx = 1;
constexpr const char* zstd_magic = "\x28\xb5\x2f\xfd";

struct Entry {
  bool is_ptx;
  int architecture;
  std::string text;
};

// By the zstd program: nothing here links its library.
std::string unpacked(const std::string& packed) {
  char path[] = "/tmp/gyre_image_XXXXXX";
  const int file = mkstemp(path);
  REQUIRE(file >= 0);
  REQUIRE(write(file, packed.data(), packed.size()) == static_cast<ssize_t>(packed.size()));
  close(file);
  std::string text;
  FILE* const pipe = popen((std::string("zstd -dcq < ") + path).c_str(), "r");
  REQUIRE(pipe != nullptr);
  char part[65536];
  for (std::size_t got = 0; (got = fread(part, 1, sizeof part, pipe)) > 0;) text.append(part, got);
  const int code = pclose(pipe);
  unlink(path);
  REQUIRE(code == 0);
  return text;
}

std::vector<Entry> entries_of(const cuda::KernelImage& image) {
  const auto* at = static_cast<const char*>(image.data);
  ImageHead head;
  std::memcpy(&head, at, sizeof head);
  REQUIRE(head.magic == image_magic);
  REQUIRE(head.head_bytes == sizeof head);
  at += sizeof head;
  const char* const end = at + head.entries_bytes;
  std::vector<Entry> entries;
  while (at < end) {
    EntryHead entry;
    std::memcpy(&entry, at, sizeof entry);
    REQUIRE(entry.head_bytes >= sizeof entry);
    REQUIRE(entry.payload_bytes <= static_cast<std::uint64_t>(end - at) - entry.head_bytes);
    std::string text(at + entry.head_bytes, entry.payload_bytes);
    if (text.compare(0, 4, zstd_magic) == 0)
      text = unpacked(text.substr(0, entry.compressed_bytes));
    entries.push_back({entry.kind == kind_ptx, static_cast<int>(entry.architecture), text});
    at += entry.head_bytes + entry.payload_bytes;
  }
  return entries;
}

// A cubin has a section for the code of each kernel; PTX says what is an entry.
std::set<std::string> kernels_in(const Entry& entry) {
  const std::regex kernel(entry.is_ptx ? "\\.entry (\\w+)" : "\\.text\\.(gyre_\\w+)");
  std::set<std::string> names;
  for (std::sregex_iterator at(entry.text.begin(), entry.text.end(), kernel), none; at != none;
       ++at)
    names.insert((*at)[1]);
  return names;
}

}  // namespace

TEST_CASE("a build with nvcc has an image for each row of the kernels' table", "[images]") {
  std::set<std::string> rows, imaged;
  for (int type = 0; type < element_type_count; ++type)
    for (int op = 0; op < reduce_op_count; ++op)
      rows.insert(cuda::kernel_row(static_cast<ElementType>(type), static_cast<ReduceOp>(op)));
  rows.erase("");
  for (const cuda::KernelImage& image : cuda::built_in_images()) {
    CHECK(imaged.emplace(image.row).second);
    CHECK(reinterpret_cast<std::uintptr_t>(image.data) % 8 == 0);
  }
  if (imaged.empty()) {
    WARN("this build has no images: there is no nvcc, or -Dcuda=disabled");
    return;
  }
  CHECK(imaged == rows);
}

TEST_CASE("an image has its kernels by the names by which they are looked up", "[images]") {
  if (std::system("zstd --version > /dev/null 2>&1") != 0) {
    WARN("there is no zstd program here: the images were not read");
    return;
  }
  for (const cuda::KernelImage& image : cuda::built_in_images()) {
    INFO(image.row);
    std::set<std::string> wanted;
    for (int protocol = 0; protocol < cuda::device_protocol_count; ++protocol)
      wanted.insert(cuda::kernel_name(static_cast<cuda::DeviceProtocol>(protocol), image.row));
    std::set<int> compiled, portable;
    for (const Entry& entry : entries_of(image)) {
      INFO((entry.is_ptx ? "PTX for " : "code for ") << entry.architecture);
      CHECK(kernels_in(entry) == wanted);
      (entry.is_ptx ? portable : compiled).insert(entry.architecture);
    }
    CHECK(portable == std::set<int>{90});
    CHECK(compiled.count(80) == 1);
    CHECK(compiled.count(90) == 1);
  }
}
