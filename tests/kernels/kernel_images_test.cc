// The kernel images that nvcc made for this build: one for each row of the table of kernels, each
// with the kernels under the names by which an executor looks them up. Images are read as nvcc
// packs them: a header, and then entries with a cubin or PTX each, compressed by zstd or as a block
// of LZ4. No driver has loaded an image in this test.
#include "kernels/cuda/kernel_name.h"
#include "tests/support/catch.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <regex>
#include <set>
#include <string>
#include <unistd.h>
#include <vector>

namespace kernel_images_test {

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
  std::uint64_t unknown_as_well[3];
  std::uint64_t unpacked_bytes;  // 0: it is not compressed
};
static_assert(sizeof(ImageHead) == 16 && sizeof(EntryHead) == 64);
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

// A block of LZ4 (github.com/lz4/lz4, doc/lz4_Block_format.md): runs of bytes, and copies of what
// came before.
std::string unpacked_block(const std::string& packed, std::size_t bytes) {
  std::string text;
  std::size_t at = 0;
  const auto byte = [&] {
    REQUIRE(at < packed.size());
    return static_cast<unsigned char>(packed[at++]);
  };
  const auto length_of = [&](std::size_t nibble) {
    std::size_t length = nibble;
    for (unsigned char more = 255; nibble == 15 && more == 255; length += more) more = byte();
    return length;
  };
  while (at < packed.size()) {
    const unsigned char token = byte();
    const std::size_t literals = length_of(token >> 4);
    REQUIRE(literals <= packed.size() - at);
    text.append(packed, at, literals);
    at += literals;
    if (at == packed.size()) break;
    std::size_t back = byte();
    back |= std::size_t{byte()} << 8;
    REQUIRE((back > 0 && back <= text.size()));
    for (std::size_t left = length_of(token & 15) + 4; left > 0; --left)
      text += text[text.size() - back];
  }
  REQUIRE(text.size() == bytes);
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
    else if (entry.unpacked_bytes > 0)
      text = unpacked_block(text.substr(0, entry.compressed_bytes), entry.unpacked_bytes);
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
    REQUIRE(image.origin != nullptr);
    CHECK(portable == std::set<int>{image.origin->ptx});
    CHECK(compiled == std::set<int>(image.origin->code.begin(), image.origin->code.end()));
    CHECK_FALSE(compiled.empty());
  }
}

namespace {

// What tells a driver whether it knows the code, as seen: that of CUDA 12 for GPUs before sm_100,
// and all that is newer, as 12.8 brought it with sm_100.
struct Abi {
  int os, version;
};
Abi abi_of(int release, int architecture) {
  return release < 13000 && architecture < 100 ? Abi{0x33, 7} : Abi{0x41, 8};
}

// As cuDriverGetVersion counts: the CUDA whose drivers know a version of PTX (PTX ISA, "Release
// Notes"), or an earlier one: 8.3 came with 12.3, and 9.0 with 13.0, but 8.7 with 12.8.
int cuda_of_ptx(int major, int minor) { return 1000 * (major + 4) + 10 * minor; }

}  // namespace

TEST_CASE("images are of the CUDA that they are said to be of", "[images]") {
  for (const cuda::KernelImage& image : cuda::built_in_images()) {
    INFO(image.row);
    REQUIRE(image.origin != nullptr);
    for (const Entry& entry : entries_of(image)) {
      if (!entry.is_ptx) {
        REQUIRE(entry.text.size() > 64);
        INFO("sm_" << entry.architecture);
        const Abi abi = abi_of(image.origin->release, entry.architecture);
        CHECK(int(static_cast<unsigned char>(entry.text[7])) == abi.os);
        CHECK(int(entry.text[8]) == abi.version);
        continue;
      }
      std::smatch version;
      REQUIRE(std::regex_search(entry.text, version, std::regex("\n\\.version (\\d+)\\.(\\d+)")));
      CHECK(cuda_of_ptx(std::stoi(version[1]), std::stoi(version[2])) <= image.origin->ptx_release);
    }
  }
}

}  // namespace kernel_images_test
