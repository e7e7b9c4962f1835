#include "tests/support/device/device_ranks.h"

namespace gyre::tests {

std::vector<Collective> collectives() {
  const auto at = [](int rank, std::size_t block, std::size_t i, std::size_t count) {
    return brought(rank, block * count + i % count);
  };
  return {
      {"all_reduce", 1, 1,
       [](const void* in, void* out, std::size_t count, gyreComm_t comm, gyreStream_t stream) {
         return gyreAllReduce(in, out, count, gyreInt32, gyreSum, comm, stream);
       },
       [](int n, int, std::size_t i, std::size_t) { return sum_of_all(n, i); }},
      {"reduce", 1, 1,
       [](const void* in, void* out, std::size_t count, gyreComm_t comm, gyreStream_t stream) {
         return gyreReduce(in, out, count, gyreInt32, gyreSum, 0, comm, stream);
       },
       [](int n, int, std::size_t i, std::size_t) { return sum_of_all(n, i); }, true},
      {"broadcast", 1, 1,
       [](const void* in, void* out, std::size_t count, gyreComm_t comm, gyreStream_t stream) {
         return gyreBroadcast(in, out, count, gyreInt32, 0, comm, stream);
       },
       [](int, int, std::size_t i, std::size_t) { return brought(0, i); }},
      {"reduce_scatter", -1, 1,
       [](const void* in, void* out, std::size_t count, gyreComm_t comm, gyreStream_t stream) {
         return gyreReduceScatter(in, out, count, gyreInt32, gyreSum, comm, stream);
       },
       [](int n, int rank, std::size_t i, std::size_t count) {
         return sum_of_all(n, static_cast<std::size_t>(rank) * count + i);
       }},
      {"all_gather", 1, -1,
       [](const void* in, void* out, std::size_t count, gyreComm_t comm, gyreStream_t stream) {
         return gyreAllGather(in, out, count, gyreInt32, comm, stream);
       },
       [at](int, int, std::size_t i, std::size_t count) {
         return at(static_cast<int>(i / count), 0, i, count);
       }},
      {"all_to_all", -1, -1,
       [](const void* in, void* out, std::size_t count, gyreComm_t comm, gyreStream_t stream) {
         return gyreAlltoAll(in, out, count, gyreInt32, comm, stream);
       },
       [at](int, int rank, std::size_t i, std::size_t count) {
         return at(static_cast<int>(i / count), static_cast<std::size_t>(rank), i, count);
       }},
      {"gather", 1, -1,
       [](const void* in, void* out, std::size_t count, gyreComm_t comm, gyreStream_t stream) {
         return gyreGather(in, out, count, gyreInt32, 0, comm, stream);
       },
       [at](int, int, std::size_t i, std::size_t count) {
         return at(static_cast<int>(i / count), 0, i, count);
       },
       true},
      {"scatter", -1, 1,
       [](const void* in, void* out, std::size_t count, gyreComm_t comm, gyreStream_t stream) {
         return gyreScatter(in, out, count, gyreInt32, 0, comm, stream);
       },
       [at](int, int rank, std::size_t i, std::size_t count) {
         return at(0, static_cast<std::size_t>(rank), i, count);
       }},
  };
}

void check_collective(const OnCuda& on, Ranks& ranks, const Collective& one, std::size_t count) {
  const int n = static_cast<int>(ranks.comms.size());
  const auto elements = [&](int blocks) {
    return count * static_cast<std::size_t>(blocks < 0 ? n : blocks);
  };
  std::vector<DeviceInts> in, out;
  for (int rank = 0; rank < n; ++rank) {
    in.emplace_back(on, elements(one.brings));
    out.emplace_back(on, elements(one.gets));
    in.back().fill([rank](std::size_t i) { return brought(rank, i); });
  }
  const gyreResult_t called = ranks.call([&](int rank, gyreComm_t comm, gyreStream_t stream) {
    const auto at = static_cast<std::size_t>(rank);
    return one.call(in[at].data(), out[at].data(), count, comm, stream);
  });
  INFO(one.name << " of " << n << " ranks, " << count << " elements: " << last_error());
  REQUIRE(called == gyreSuccess);
  ranks.synchronize();
  for (int rank = 0; rank < (one.root_only ? 1 : n); ++rank) {
    std::size_t wrong = 0;
    const std::vector<std::int32_t> got = out[static_cast<std::size_t>(rank)].values();
    for (std::size_t i = 0; i < got.size(); ++i) wrong += got[i] != one.wanted(n, rank, i, count);
    INFO("rank " << rank);
    CHECK(wrong == 0);
  }
}

}  // namespace gyre::tests
