#include "tests/support/device/cuda_cases.h"

#include "tests/support/device/cuda_draw.h"

#include <fmt/core.h>

#include <chrono>
#include <deque>
#include <optional>

namespace gyre::tests {
namespace {

// A collective of all ranks whose buffers lie on the device.
class PlacedCase {
 public:
  PlacedCase(const OnCuda& on, const CollectiveCase& one) : on_(on), case_(one), buffers_(one) {
    for (std::size_t i = 0; i < buffers_.blocks(); ++i) {
      const std::span<std::byte> block = buffers_.block(i);
      if (block.empty()) continue;
      const loaded::CuDevicePointer at = allocate((i + one.count) % 2 == 0, block.size());
      placed_.emplace_back(i, at);
      on.write(at, block.data(), block.size());
      buffers_.place(i, reinterpret_cast<std::byte*>(at));
    }
  }
  ~PlacedCase() {
    for (void* memory : given_) CHECK(gyreMemFree(memory) == gyreSuccess);
  }
  PlacedCase(const PlacedCase&) = delete;
  PlacedCase& operator=(const PlacedCase&) = delete;
  gyreResult_t call(int rank, gyreComm_t comm, gyreStream_t stream) {
    return buffers_.call(rank, comm, stream);
  }
  // After the call: what is wrong with its outcome.
  std::string wrong() {
    for (const auto& [index, at] : placed_) {
      const std::span<std::byte> block = buffers_.block(index);
      on_.read(block.data(), at, block.size());
    }
    for (int rank = 0; rank < case_.ranks; ++rank)
      if (std::string wrong = buffers_.wrong(rank); !wrong.empty())
        return case_.shown() + ": " + wrong;
    return "";
  }

 private:
  // The driver's memory, or Gyre's own.
  loaded::CuDevicePointer allocate(bool from_gyre, std::size_t bytes) {
    if (!from_gyre) return memory_.emplace_back(on_, bytes).address();
    REQUIRE(gyreMemAllocOn(&given_.emplace_back(), bytes, 0) == gyreSuccess);
    return reinterpret_cast<loaded::CuDevicePointer>(given_.back());
  }

  const OnCuda& on_;
  const CollectiveCase case_;
  CaseBuffers buffers_;
  std::vector<DeviceBytes> memory_;
  std::vector<void*> given_;
  std::vector<std::pair<std::size_t, loaded::CuDevicePointer>> placed_;  // blocks
};

class PlacedMessage {
 public:
  PlacedMessage(const OnCuda& on, const Message& one, std::size_t number)
      : message_(one), number_(number), out_(on, one.count + 1), in_(on, one.count + 1) {
    out_.fill([=](std::size_t i) { return Message::element(number, i); });
    in_.fill([](std::size_t) { return -1; });
  }
  void call(int rank, gyreComm_t comm, gyreStream_t stream) const {
    if (message_.from == rank)
      (void)gyreSend(out_.data(), message_.count, gyreInt32, message_.to, comm, stream);
    if (message_.to == rank)
      (void)gyreRecv(in_.data(), message_.count, gyreInt32, message_.from, comm, stream);
  }
  std::string wrong() const {
    const std::vector<std::int32_t> got = in_.values();
    for (std::size_t i = 0; i <= message_.count; ++i)
      if (got[i] != (i < message_.count ? Message::element(number_, i) : -1))
        return fmt::format("element {} of {} from rank {} to rank {}", i, message_.count,
                           message_.from, message_.to);
    return "";
  }

 private:
  const Message message_;
  const std::size_t number_;
  DeviceInts out_, in_;
};

// One call of all ranks on device memory; what is wrong with its outcome.
std::string outcome_of(const OnCuda& on, Ranks& ranks, const CollectiveCase& one) {
  PlacedCase placed(on, one);
  const std::string wrong =
      ranks.call_in_threads([&](int rank, gyreComm_t comm, gyreStream_t stream) {
        return placed.call(rank, comm, stream);
      });
  return wrong.empty() ? placed.wrong() : one.shown() + ": " + wrong;
}

// Collectives, and sends and receives, in one group of each rank.
std::string outcome_of(const OnCuda& on, Ranks& ranks, const std::vector<CollectiveCase>& cases,
                       const std::vector<Message>& messages) {
  std::deque<PlacedCase> collectives;
  std::deque<PlacedMessage> sent;
  for (const CollectiveCase& one : cases) collectives.emplace_back(on, one);
  for (const Message& one : messages) sent.emplace_back(on, one, sent.size());
  std::string wrong = ranks.call_in_threads([&](int rank, gyreComm_t comm, gyreStream_t stream) {
    (void)gyreGroupStart();
    for (PlacedCase& one : collectives) (void)one.call(rank, comm, stream);
    for (const PlacedMessage& one : sent) one.call(rank, comm, stream);
    return gyreGroupEnd();
  });
  for (PlacedCase& one : collectives)
    if (wrong.empty()) wrong = one.wrong();
  for (const PlacedMessage& one : sent)
    if (wrong.empty()) wrong = one.wrong();
  if (wrong.empty()) return "";
  return fmt::format("a group of {} collectives and {} messages: {}", cases.size(), messages.size(),
                     wrong);
}

void check_way(const OnCuda& on, const CudaWay& way, int n, const CudaSweep& sweep) {
  const WithVariables variables(way.variables());
  INFO(way.shown() << ", " << n << " ranks, seed " << sweep.seed);
  Ranks ranks(on, n);
  INFO(last_error());
  REQUIRE(ranks.begun == gyreSuccess);
  std::mt19937_64 random(sweep.seed + static_cast<std::uint64_t>(n));
  for (const Function function : way.functions())
    for (std::size_t k = 0; k < sweep.cases_each; ++k) {
      const std::string wrong =
          outcome_of(on, ranks, drawn_case(function, n, sweep.counts, random));
      INFO(wrong);
      REQUIRE(wrong.empty());
    }
}

// A collective alone, several in a group, messages in a group, or both.
std::string random_operation(const OnCuda& on, Ranks& ranks, const CudaSoak& soak,
                             std::mt19937_64& random) {
  const int n = static_cast<int>(ranks.comms.size());
  const auto kind = random() % 4;
  const auto drawn = [&] { return drawn_case(drawn_function(random), n, soak.counts, random); };
  if (kind == 0) return outcome_of(on, ranks, drawn());
  std::vector<CollectiveCase> cases;
  std::vector<Message> messages;
  if (kind != 2)
    for (std::uint64_t i = random() % 4 + 1; i > 0; --i) cases.push_back(drawn());
  if (kind != 1) messages = drawn_messages(n, soak.counts, 6, random);
  return outcome_of(on, ranks, cases, messages);
}

}  // namespace

void check_schedules(const OnCuda& on, const CudaSweep& sweep) {
  std::size_t number = sweep.seed % sweep.stride;
  for (const int n : sweep.ranks)
    for (const CudaWay& way : every_way())
      if (number++ % sweep.stride == 0) check_way(on, way, n, sweep);
}

void check_random_operations(const OnCuda& on, const CudaSoak& soak) {
  std::mt19937_64 random(soak.seed);
  std::optional<Ranks> ranks;
  for (std::size_t i = 0; i < soak.operations; ++i) {
    if (i % soak.each_lasts == 0) {
      ranks.reset();
      ranks.emplace(on, soak.ranks[random() % soak.ranks.size()]);
      INFO(last_error());
      REQUIRE(ranks->begun == gyreSuccess);
    }
    const std::string wrong = random_operation(on, *ranks, soak, random);
    INFO("operation " << i << " of seed " << soak.seed << ": " << wrong);
    REQUIRE(wrong.empty());
  }
}

void check_deadline(const OnCuda& on, int timeout_ms) {
  Pair pair(on, timeout_ms);
  CHECK(pair.call(0, 10) == gyreSuccess);  // it is only on the stream
  CHECK(pair.ranks.await_error(0) == gyreTimeout);
  CHECK(mentions(last_error(pair.ranks.comms[0]), "from rank 1"));
  pair.ranks.synchronize();
  CHECK(pair.call(0, 10) == gyreTimeout);
}

void check_abort(const OnCuda& on, double max_seconds) {
  Pair pair(on);
  REQUIRE(pair.call(0, 10) == gyreSuccess);
  const auto begin = std::chrono::steady_clock::now();
  CHECK(gyreCommAbort(std::exchange(pair.ranks.comms[1], nullptr)) == gyreSuccess);
  pair.ranks.synchronize();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  CHECK(took.count() < max_seconds);
  CHECK(pair.ranks.await_error(0) == gyreRemoteError);
  CHECK(gyreCommAbort(std::exchange(pair.ranks.comms[0], nullptr)) == gyreSuccess);
}

void check_mismatch(const OnCuda& on) {
  Pair pair(on);
  REQUIRE(pair.call(0, 40) == gyreSuccess);
  // The call itself is told if rank 0 has asked for it before.
  const gyreResult_t second = pair.call(1, 41);
  REQUIRE((second == gyreSuccess || second == gyreMismatch));
  // Whoever sees that the stream has passed the call is not told that it went well.
  pair.ranks.synchronize();
  for (gyreComm_t comm : pair.ranks.comms) {
    gyreResult_t found = gyreSuccess;
    REQUIRE(gyreCommGetAsyncError(comm, &found) == gyreSuccess);
    CHECK(found != gyreSuccess);
  }
  CHECK(pair.ranks.await_error(0) == gyreMismatch);
  CHECK(mentions(last_error(pair.ranks.comms[0]), "40"));
  CHECK(mentions(last_error(pair.ranks.comms[0]), "41"));
}

void check_refusals(const OnCuda& on) {
  Ranks ranks(on, 1);
  REQUIRE(ranks.begun == gyreSuccess);
  gyreComm_t comm = ranks.comms[0];
  DeviceInts good(on, 100);
  std::vector<std::int32_t> host(100);
  const auto refused = [&](void* buffer, std::size_t count, gyreStream_t stream,
                           const std::string& word) {
    CHECK(gyreAllReduce(buffer, buffer, count, gyreInt32, gyreSum, comm, stream) ==
          gyreInvalidArgument);
    CHECK(mentions(last_error(comm), word));
  };
  refused(host.data(), 100, nullptr, "host memory that CUDA does not know");
  // An allocation may be longer than what was asked for; this is longer than any.
  refused(good.data(), std::size_t{1} << 40, nullptr, "4398046511104");
  void* freed = nullptr;
  {
    DeviceInts gone(on, 16 << 20);  // so large that it is an allocation of its own
    freed = gone.data();
  }
  refused(freed, 100, nullptr, "it was freed, or never allocated");
  int devices = 0;
  REQUIRE(on.driver->device_count(&devices) == loaded::cu::success);
  if (devices < 2) {
    WARN("one device: its streams and memory were not mixed up with another's");
  } else {
    loaded::CuContext other = nullptr;
    REQUIRE(on.driver->primary_retain(&other, 1) == loaded::cu::success);
    {
      const loaded::CurrentContext scope(*on.driver, other);
      DeviceInts far(on, 100);
      refused(far.data(), 100, nullptr, "is memory of CUDA device 1");
      loaded::CuStream foreign = nullptr;
      REQUIRE(on.driver->stream_create(&foreign, loaded::cu::stream_non_blocking) ==
              loaded::cu::success);
      refused(good.data(), 100, reinterpret_cast<gyreStream_t>(foreign),
              "belongs to another device");
      (void)on.driver->stream_destroy(foreign);
    }
    (void)on.driver->primary_release(1);
  }
  gyreStream_t host_stream = nullptr;
  REQUIRE(gyreStreamCreate(&host_stream) == gyreSuccess);
  refused(good.data(), 100, host_stream, "a host stream");
  CHECK(gyreStreamDestroy(host_stream) == gyreSuccess);
  // None of it broke the communicator.
  CHECK(gyreAllReduce(good.data(), good.data(), 100, gyreInt32, gyreSum, comm, ranks.stream(0)) ==
        gyreSuccess);
  ranks.synchronize();
}

}  // namespace gyre::tests
