#include "tests/support/device/cuda_memory_cases.h"

#include "lib/base/clock.h"
#include "tests/support/device/cuda_cases.h"
#include "transports/p2p/virtual_memory.h"

namespace gyre::tests {
namespace {

class SharedInts {
 public:
  SharedInts(const OnCuda& on, std::size_t count) : on_(on) {
    REQUIRE(gyreMemAllocOn(&memory_, (count + 1) * sizeof(std::int32_t), 0) == gyreSuccess);
  }
  ~SharedInts() { CHECK(gyreMemFree(memory_) == gyreSuccess); }
  SharedInts(const SharedInts&) = delete;
  SharedInts& operator=(const SharedInts&) = delete;

  // Not where it begins.
  std::int32_t* data() const { return static_cast<std::int32_t*>(memory_) + 1; }
  loaded::CuDevicePointer address() const {
    return reinterpret_cast<loaded::CuDevicePointer>(data());
  }
  void write(const std::vector<std::int32_t>& all) const {
    on_.write(address(), all.data(), all.size() * sizeof(std::int32_t));
  }
  std::vector<std::int32_t> values(std::size_t count) const {
    std::vector<std::int32_t> all(count);
    on_.read(all.data(), address(), count * sizeof(std::int32_t));
    return all;
  }

 private:
  const OnCuda& on_;
  void* memory_ = nullptr;
};

p2p::MemoryOwner owner_of(const OnCuda& on) { return {*on.driver, on.owner, 0}; }

}  // namespace

void check_allocated_memory(const OnCuda& on, int n, std::size_t count) {
  Ranks ranks(on, n);
  INFO(last_error());
  REQUIRE(ranks.begun == gyreSuccess);
  std::vector<std::unique_ptr<SharedInts>> in, out;
  std::vector<std::int32_t> all(count), wanted(count);
  for (int rank = 0; rank < n; ++rank) {
    in.push_back(std::make_unique<SharedInts>(on, count));
    out.push_back(std::make_unique<SharedInts>(on, count));
    CHECK(in.back()->values(count) == std::vector<std::int32_t>(count, 0));
    for (std::size_t i = 0; i < count; ++i) all[i] = brought(rank, i);
    in.back()->write(all);
  }
  for (std::size_t i = 0; i < count; ++i) wanted[i] = sum_of_all(n, i);
  const std::string wrong = ranks.call_in_threads([&](int rank, gyreComm_t comm,
                                                      gyreStream_t stream) {
    const auto at = static_cast<std::size_t>(rank);
    return gyreAllReduce(in[at]->data(), out[at]->data(), count, gyreInt32, gyreSum, comm, stream);
  });
  CHECK(wrong == "");
  for (int rank = 0; rank < n; ++rank)
    CHECK(out[static_cast<std::size_t>(rank)]->values(count) == wanted);
  std::int32_t* const gone = in[0]->data();
  in[0].reset();
  CHECK(gyreBcast(gone, 1, gyreInt32, 0, ranks.comms[0], ranks.stream(0)) == gyreInvalidArgument);
}

void check_shared_memory(const OnCuda& on, std::size_t bytes) {
  const auto there = p2p::VirtualMemory::is_there(owner_of(on));
  REQUIRE(there.ok());
  if (!*there) {
    WARN("the device has no virtual memory with descriptors: not tried");
    return;
  }
  auto made = p2p::VirtualMemory::make(owner_of(on), bytes);
  INFO(made.status().message());
  REQUIRE(made.ok());
  const std::uint64_t whole = (*made)->bytes();
  auto file = (*made)->export_file();
  INFO(file.status().message());
  REQUIRE(file.ok());
  CHECK_FALSE(p2p::VirtualMemory::import(owner_of(on), *file, 2 * whole).ok());
  auto seen = p2p::VirtualMemory::import(owner_of(on), *file, whole);
  INFO(seen.status().message());
  REQUIRE(seen.ok());
  CHECK((*seen)->begin() != (*made)->begin());
  std::vector<std::uint8_t> written(bytes), read(bytes);
  for (std::size_t i = 0; i < bytes; ++i) written[i] = static_cast<std::uint8_t>(i * 7 + i / 251);
  on.write(reinterpret_cast<loaded::CuDevicePointer>((*made)->begin()), written.data(), bytes);
  (*made).reset();
  on.read(read.data(), reinterpret_cast<loaded::CuDevicePointer>((*seen)->begin()), bytes);
  CHECK(read == written);
}

void check_opening_beside_kernels(const OnCuda& on, double max_seconds) {
  const auto there = p2p::VirtualMemory::is_there(owner_of(on));
  REQUIRE(there.ok());
  if (!*there) return;  // check_shared_memory says so
  Pair pair(on);
  REQUIRE(pair.call(0, 100) == gyreSuccess);  // its kernel waits for rank 1's
  const std::int64_t begun_ns = SystemClock::read();
  auto made = p2p::VirtualMemory::make(owner_of(on), 1 << 20);
  INFO(made.status().message());
  REQUIRE(made.ok());
  auto file = (*made)->export_file();
  REQUIRE(file.ok());
  auto seen = p2p::VirtualMemory::import(owner_of(on), *file, (*made)->bytes());
  REQUIRE(seen.ok());
  const double took_s = static_cast<double>(SystemClock::read() - begun_ns) / 1e9;
  CHECK(took_s < max_seconds);
  REQUIRE(pair.call(1, 100) == gyreSuccess);
  pair.ranks.synchronize();
}

}  // namespace gyre::tests
