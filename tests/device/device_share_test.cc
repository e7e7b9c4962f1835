// The share of a GPU that communicators take and give back: its computation from ranks' messages,
// and communicators of threads over the fake driver.
#include "lib/device/device_share.h"

#include "lib/device/device_holdings.h"
#include "tests/support/device/device_ranks.h"

#include <fmt/core.h>

#include <chrono>
#include <memory>
#include <utility>
#include <vector>

namespace device_share_test {

using namespace gyre;
using namespace gyre::tests;
using comm::DeviceHolding;
using comm::DeviceShare;
using comm::GpuInfo;

namespace {

// Of a GPU with 132 multiprocessors.
GpuInfo note_of(const std::string& uuid, std::vector<DeviceHolding> held = {}) {
  GpuInfo note;
  note.uuid = uuid;
  note.blocks = 124;
  note.connections = 8;
  note.channels = cuda::max_channels;
  note.free_mib = 100'000;
  note.capability = 86;
  note.bus_id = "0000:1b:00.0";
  note.held = std::move(held);
  return note;
}

// Each rank a process of its own.
Result<DeviceShare> share(const std::vector<GpuInfo>& notes, std::uint64_t slot_bytes = 0) {
  std::vector<std::uint32_t> processes;
  for (std::size_t rank = 0; rank < notes.size(); ++rank)
    processes.push_back(static_cast<std::uint32_t>(rank));
  return share_devices(notes, processes, {slot_bytes, false});
}

}  // namespace

TEST_CASE("eight communicators fit a GPU, and the first get the most", "[device]") {
  const std::uint32_t ranks = GENERATE(1U, 2U);
  std::vector<DeviceHolding> held;
  std::uint32_t before = UINT32_MAX, sum = 0;
  for (int i = 0; i < 8; ++i) {
    const auto made = share(std::vector<GpuInfo>(ranks, note_of("GPU-00", held)));
    INFO("communicator " << i << " of " << ranks << " ranks");
    REQUIRE(made.ok());
    CHECK(made->blocks >= 4);
    CHECK(made->blocks <= before);
    if (i == 0) CHECK(made->channels == 16);
    before = made->blocks;
    sum += ranks * made->blocks;
    held.push_back({fmt::format("comm{}", i), ranks, ranks * made->blocks});
  }
  CHECK(sum <= 124);
  Result<DeviceShare> more = share(std::vector<GpuInfo>(ranks, note_of("GPU-00", held)));
  for (; more.ok(); more = share(std::vector<GpuInfo>(ranks, note_of("GPU-00", held))))
    held.push_back({fmt::format("more{}", held.size()), ranks, ranks * more->blocks});
  const std::string text(more.status().message());
  CHECK(mentions(text, " communicators hold "));
  CHECK(mentions(text, fmt::format("comm0: {} ranks, ", ranks)));
  CHECK(mentions(text, "GYRE_MAX_CTAS"));
  CHECK(more.status().code() == Code::InvalidUsage);
}

TEST_CASE("what one rank's GPU has left decides for all ranks", "[device]") {
  const auto alone = share({note_of("GPU-00"), note_of("GPU-01")});
  const DeviceHolding large{"large", 1, 118};
  const auto crowded = share({note_of("GPU-00"), note_of("GPU-01", {large})});
  REQUIRE((alone.ok() && crowded.ok()));
  CHECK(alone->blocks == 48);
  CHECK(crowded->blocks == 4);
}

TEST_CASE("what several processes say of one communicator counts once", "[device]") {
  const DeviceHolding both{"both", 2, 60}, mine{"mine", 1, 30}, yours{"yours", 1, 26};
  const auto fits = share({note_of("GPU-00", {both, mine}), note_of("GPU-00", {both, yours})});
  REQUIRE(fits.ok());
  CHECK(fits->blocks == 4);
  const DeviceHolding another{"another", 1, 1};
  const auto too_much =
      share({note_of("GPU-00", {both, mine, another}), note_of("GPU-00", {both, yours})});
  REQUIRE_FALSE(too_much.ok());
  CHECK(
      mentions(std::string(too_much.status().message()), "4 communicators hold 117 of 124 blocks"));
}

TEST_CASE("a communicator takes what its settings say, as far as there is room", "[device]") {
  GpuInfo few = note_of("GPU-00"), many = note_of("GPU-00");
  few.channels = 2;
  CHECK(share({few, few})->blocks == 8);  // four lanes a channel
  many.min_channels = 16;
  CHECK(share({many, many})->blocks == 62);  // all of it
  CHECK(share({few, many})->blocks == 8);
}

TEST_CASE("what memory is free bounds channels, and too little is refused", "[device]") {
  const auto with = [](std::uint32_t free_mib) {
    GpuInfo note = note_of("GPU-00");
    note.free_mib = free_mib;
    return share({note, note});
  };
  std::uint32_t before = 16;
  for (const std::uint32_t free_mib : {400U, 200U, 100U, 50U}) {
    const auto made = with(free_mib);
    REQUIRE(made.ok());
    CHECK(made->channels <= before);
    CHECK(2 * device_bytes(*made, {}, 2, 2) <= std::uint64_t{free_mib} << 20);
    before = made->channels;
  }
  CHECK(before < 16);
  const auto refused = with(10);
  REQUIRE_FALSE(refused.ok());
  CHECK(mentions(std::string(refused.status().message()), "and 10 MiB are free"));
}

TEST_CASE("a note that says what is held is read as it was written", "[device]") {
  GpuInfo note = note_of("GPU-00", {{"0123abcd", 2, 34}, {"????????", 1, 0}});
  const auto read = comm::read_gpu_info(encode(note));
  REQUIRE(read);
  CHECK(read->held == note.held);
  CHECK(read->free_mib == 100'000);
  CHECK(read->capability == 86);
  REQUIRE(comm::read_gpu_info("GPU-00 1 1 1 1 1 86 a -"));
  for (const char* bad :
       {"GPU-00 1 1 1 1 1 86 a", "GPU-00 1 1 1 1 1 86 a x", "GPU-00 1 1 1 1 1 86 a x:1",
        "GPU-00 1 1 1 1 1 86 a x:1:1,", "GPU-00 1 1 1 0 1 86 a -", "GPU-00 1 1 1 1 1 a -",
        "GPU-00 1 1 1 1 1 86000 a -"})
    CHECK_FALSE(comm::read_gpu_info(bad));
}

namespace {

const std::string gpu = "GPU-face0000-0000-0000-0000-000000000000";

// What communicators of this process hold of the fake's first device.
std::vector<DeviceHolding> held() {
  auto& holdings = comm::process().device_holdings;
  return holdings.claim(gpu, "the test", 1000, comm::estimate_holding).others;
}

std::uint32_t blocks_held() {
  std::uint32_t sum = 0;
  for (const DeviceHolding& one : held()) sum += one.blocks;
  return sum;
}

bool soon_nothing_is_held() {
  for (int i = 0; i < 10'000 && blocks_held() > 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return blocks_held() == 0;
}

// Two ranks of device 0.
std::vector<gyreComm_t> make_pair(gyreResult_t& result) {
  gyreUniqueId id;
  REQUIRE(gyreGetUniqueId(&id) == gyreSuccess);
  std::vector<gyreComm_t> comms(2, nullptr);
  gyreConfig_t config = GYRE_CONFIG_INITIALIZER;
  config.device = 0;
  (void)gyreGroupStart();
  for (int rank = 0; rank < 2; ++rank)
    (void)gyreCommInitRankConfig(&comms[static_cast<std::size_t>(rank)], 2, id, rank, &config);
  result = gyreGroupEnd();
  return comms;
}

void destroy(std::vector<gyreComm_t>& comms) {
  for (gyreComm_t& comm : comms)
    if (comm != nullptr) CHECK(gyreCommDestroy(std::exchange(comm, nullptr)) == gyreSuccess);
}

}  // namespace

TEST_CASE("whoever is the last to hold a rank's kernels may give back its share", "[device]") {
  struct Kernels {
    std::shared_ptr<comm::DeviceHoldings::Claim> claim;
  };
  comm::DeviceHoldings holdings;
  const auto claim = [&] {
    return holdings
        .claim("GPU-1", "a communicator", 100,
               [](std::uint32_t, const std::vector<DeviceHolding>&) { return 1U; })
        .claim;
  };
  const auto own = claim();
  auto other = std::make_shared<Kernels>(Kernels{claim()});
  comm::DeviceStreamUse use;
  use.is_pending = false;
  use.is_running = [&other](std::shared_ptr<const void>& held) {
    held = std::exchange(other, nullptr);  // its rank is destroyed meanwhile
    return false;
  };
  REQUIRE(other->claim->use_stream(1, use).ok());
  CHECK(own->use_stream(0, use).ok());
  CHECK(other == nullptr);
  CHECK(own->here().ranks == 1);
}

TEST_CASE("eight communicators of two threads run on one GPU at one time", "[device]") {
  OnFake on({.multiprocessors = 132});
  std::vector<std::vector<gyreComm_t>> pairs;
  for (int i = 0; i < 8; ++i) {
    gyreResult_t made = gyreSuccess;
    pairs.push_back(make_pair(made));
    INFO(last_error());
    REQUIRE(made == gyreSuccess);
  }
  CHECK(held().size() == 8);
  CHECK(blocks_held() <= 124);
  std::vector<DeviceInts> data;
  std::vector<loaded::CuStream> streams(16);
  for (loaded::CuStream& stream : streams) {
    REQUIRE(on.driver->stream_create(&stream, loaded::cu::stream_non_blocking) ==
            loaded::cu::success);
    data.emplace_back(on, 20'000);
    data.back().fill([](std::size_t i) { return static_cast<int>(i); });
  }
  const auto call = [&](std::size_t pair, std::size_t rank) {
    const std::size_t at = 2 * pair + rank;
    return gyreAllReduce(data[at].data(), data[at].data(), 20'000, gyreInt32, gyreSum,
                         pairs[pair][rank], reinterpret_cast<gyreStream_t>(streams[at]));
  };
  for (std::size_t pair = 0; pair < 8; ++pair) {  // links open together
    (void)gyreGroupStart();
    for (const std::size_t rank : {std::size_t{0}, std::size_t{1}}) (void)call(pair, rank);
    REQUIRE(gyreGroupEnd() == gyreSuccess);
  }
  // Each waits for one that comes last.
  for (const std::size_t rank : {std::size_t{0}, std::size_t{1}})
    for (std::size_t pair = 0; pair < 8; ++pair) REQUIRE(call(pair, rank) == gyreSuccess);
  for (loaded::CuStream stream : streams)
    REQUIRE(on.driver->stream_synchronize(stream) == loaded::cu::success);
  for (const DeviceInts& one : data) CHECK(one.values()[19'999] == 4 * 19'999);
  for (auto& pair : pairs) destroy(pair);
  for (loaded::CuStream stream : streams) (void)on.driver->stream_destroy(stream);
  CHECK(blocks_held() == 0);
}

TEST_CASE("what does not fit beside others is refused, and fits when one has gone", "[device]") {
  OnFake on({.multiprocessors = 32});  // two are spare
  gyreResult_t made = gyreSuccess;
  std::vector<std::vector<gyreComm_t>> pairs;
  for (int i = 0; i < 3; ++i) {
    pairs.push_back(make_pair(made));
    REQUIRE(made == gyreSuccess);
  }
  CHECK(blocks_held() == 24);
  std::vector<gyreComm_t> fourth = make_pair(made);
  CHECK(made == gyreInvalidUsage);
  CHECK(
      mentions(last_error(), "kernels may have 30 blocks at one time there, of which 6 are left"));
  CHECK(mentions(last_error(), "3 communicators hold 24 of 30 blocks"));
  CHECK(mentions(last_error(), ": 2 ranks, 8; "));
  destroy(fourth);
  CHECK(blocks_held() == 24);  // the others are whole
  destroy(pairs[1]);
  CHECK(blocks_held() == 16);
  pairs[1] = make_pair(made);
  CHECK(made == gyreSuccess);
  CHECK(blocks_held() == 24);
  for (auto& pair : pairs) destroy(pair);
}

TEST_CASE("a communicator that comes after others have gone gets as much as the first",
          "[device]") {
  OnFake on;
  gyreResult_t made = gyreSuccess;
  std::vector<gyreComm_t> first = make_pair(made);
  const std::uint32_t alone = blocks_held();
  std::vector<gyreComm_t> second = make_pair(made);
  const std::uint32_t beside = blocks_held() - alone;
  CHECK(beside < alone);
  destroy(first), destroy(second);
  first = make_pair(made);
  CHECK(blocks_held() == alone);
  destroy(first);
}

TEST_CASE("communicators that are made at one time and do not fit together are refused",
          "[device]") {
  OnFake on({.multiprocessors = 132});
  gyreUniqueId id;
  REQUIRE(gyreGetUniqueId(&id) == gyreSuccess);
  gyreComm_t comm = nullptr;
  gyreConfig_t config = device_config(0);
  REQUIRE(gyreGroupStart() == gyreSuccess);
  REQUIRE(gyreCommInitRankConfig(&comm, 1, id, 0, &config) == gyreSuccess);
  // Its note is on its way, and says nothing of this one.
  auto late = comm::process().device_holdings.claim(gpu, "late", 124, comm::estimate_holding);
  late.claim->settle(2, 120);
  CHECK(gyreGroupEnd() == gyreInvalidUsage);
  CHECK(mentions(last_error(), "made at the same time do not fit"));
  CHECK(mentions(last_error(), "2 communicators hold 128 of 124 blocks"));
  if (comm != nullptr) CHECK(gyreCommDestroy(comm) == gyreSuccess);
}

TEST_CASE("a graph holds its share until it is destroyed", "[device][graph]") {
  OnFake on;
  Ranks ranks(on, 1);
  DeviceInts data(on, 100);
  loaded::CuGraph graph = nullptr;
  REQUIRE(on.driver->stream_begin_capture(ranks.streams[0], loaded::cu::capture_global) ==
          loaded::cu::success);
  CHECK(gyreAllReduce(data.data(), data.data(), 100, gyreInt32, gyreSum, ranks.comms[0],
                      ranks.stream(0)) == gyreSuccess);
  REQUIRE(on.driver->stream_end_capture(ranks.streams[0], &graph) == loaded::cu::success);
  const std::uint32_t before = blocks_held();
  CHECK(before > 0);
  destroy(ranks.comms);
  CHECK(blocks_held() == before);
  REQUIRE(on.driver->graph_destroy(graph) == loaded::cu::success);
  CHECK(soon_nothing_is_held());
}

TEST_CASE("a communicator that has failed gives its share back before it is destroyed",
          "[device]") {
  OnFake on;
  gyreResult_t made = gyreSuccess;
  std::vector<gyreComm_t> pair = make_pair(made);
  REQUIRE(made == gyreSuccess);
  CHECK(gyreCommAbort(std::exchange(pair[1], nullptr)) == gyreSuccess);
  CHECK(soon_nothing_is_held());
  CHECK(gyreCommAbort(pair[0]) == gyreSuccess);
}

}  // namespace device_share_test
