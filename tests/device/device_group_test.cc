// Groups on CUDA devices over the fake driver: calls that are merged into one kernel, and sends and
// receives, alone and in groups.
#include "tests/support/base/slowness.h"
#include "tests/support/device/device_ranks.h"

#include <random>

namespace device_group_test {

using namespace gyre;
using namespace gyre::tests;

namespace {

struct Message {
  int from, to;
  std::size_t count;
};

// What a message's element is, so that no two are alike.
int element(const Message& message, std::size_t number, std::size_t i) {
  return static_cast<int>(number * 1'000'003 + i * 7) + message.from * 13 + message.to;
}

gyreResult_t send(const DeviceInts& from, const Message& one, gyreComm_t comm,
                  gyreStream_t stream) {
  return gyreSend(from.data(), one.count, gyreInt32, one.to, comm, stream);
}
gyreResult_t receive(const DeviceInts& to, const Message& one, gyreComm_t comm,
                     gyreStream_t stream) {
  return gyreRecv(to.data(), one.count, gyreInt32, one.from, comm, stream);
}

// All messages in one group of all ranks; what is wrong afterwards is counted.
void check_messages(OnFake& on, Ranks& ranks, const std::vector<Message>& messages) {
  std::vector<DeviceInts> out, in;
  for (std::size_t k = 0; k < messages.size(); ++k) {
    out.emplace_back(on, messages[k].count + 1);
    in.emplace_back(on, messages[k].count + 1);
    for (std::size_t i = 0; i < messages[k].count; ++i)
      out[k].data()[i] = element(messages[k], k, i);
    in[k].data()[messages[k].count] = -1;
  }
  const gyreResult_t called = ranks.call([&](int rank, gyreComm_t comm, gyreStream_t stream) {
    for (std::size_t k = 0; k < messages.size(); ++k) {
      if (messages[k].from == rank) (void)send(out[k], messages[k], comm, stream);
      if (messages[k].to == rank) (void)receive(in[k], messages[k], comm, stream);
    }
    return gyreSuccess;
  });
  INFO(last_error());
  REQUIRE(called == gyreSuccess);
  ranks.synchronize();
  for (std::size_t k = 0; k < messages.size(); ++k) {
    std::size_t wrong = in[k].data()[messages[k].count] != -1;
    for (std::size_t i = 0; i < messages[k].count; ++i)
      wrong += in[k].data()[i] != element(messages[k], k, i);
    INFO("message " << k << " of " << messages[k].count << " from " << messages[k].from << " to "
                    << messages[k].to);
    CHECK(wrong == 0);
  }
}

std::vector<Message> random_messages(std::mt19937_64& random, int ranks, std::size_t most) {
  constexpr std::size_t counts[] = {0, 1, 3, 1024, 1025, 4096, 70001};
  std::vector<Message> messages(1 + random() % most);
  for (Message& one : messages) {
    one.from = static_cast<int>(random() % static_cast<unsigned>(ranks));
    one.to = static_cast<int>(random() % static_cast<unsigned>(ranks));
    one.count = counts[random() % std::size(counts)];
  }
  return messages;
}

// Five buffers of three ranks, and groups of all-reduces on them.
class Groups {
 public:
  static constexpr std::size_t buffers = 5, count = 2000;
  Groups() : ranks_(on_, 3) {
    for (std::size_t i = 0; i < 3 * buffers; ++i) all_.emplace_back(on_, count);
  }
  std::int32_t* at(int rank, std::size_t buffer) const {
    return all_[static_cast<std::size_t>(rank) * buffers + buffer].data();
  }
  gyreResult_t all_reduce(int rank, std::size_t from, std::size_t to, gyreComm_t comm,
                          gyreStream_t stream) const {
    return gyreAllReduce(at(rank, from), at(rank, to), count, gyreInt32, gyreSum, comm, stream);
  }
  // Kernels that a group of what `act` calls on each rank came to; buffers are filled first.
  template <typename Act>
  int kernels_of(Act&& act) {
    for (int rank = 0; rank < 3; ++rank)
      for (std::size_t buffer = 0; buffer < buffers; ++buffer)
        for (std::size_t i = 0; i < count; ++i)
          at(rank, buffer)[i] = brought(rank, i) + static_cast<int>(buffer);
    const int before = on_.fake.launches();
    REQUIRE(ranks_.call([&](int rank, gyreComm_t comm, gyreStream_t stream) {
      act(rank, comm, stream);
      return gyreSuccess;
    }) == gyreSuccess);
    ranks_.synchronize();
    return on_.fake.launches() - before;
  }
  // Elements that are not so many times the sum of buffer `from` of all ranks.
  std::size_t wrong_in(std::size_t buffer, int from, int times) const {
    std::size_t wrong = 0;
    for (int rank = 0; rank < 3; ++rank)
      for (std::size_t i = 0; i < count; ++i)
        wrong += at(rank, buffer)[i] != times * (sum_of_all(3, i) + 3 * from);
    return wrong;
  }

 private:
  OnFake on_;
  Ranks ranks_;
  std::vector<DeviceInts> all_;
};

}  // namespace

TEST_CASE("sends and receives of a group arrive, whoever they are between", "[device]") {
  const int n = GENERATE(1, 2, 3, 5);
  OnFake on;
  Ranks ranks(on, n);
  REQUIRE(ranks.begun == gyreSuccess);
  std::mt19937_64 random(rng_seed());
  for (int round = 0; round < 8; ++round) check_messages(on, ranks, random_messages(random, n, 12));
}

TEST_CASE("more links than a rank has blocks are served in several kernels", "[device]") {
  OnFake on({.multiprocessors = 33});  // 31 blocks, 5 for each of six ranks; ten ways, and the own
  Ranks ranks(on, 6);
  REQUIRE(ranks.begun == gyreSuccess);
  std::vector<Message> all;
  for (int from = 0; from < 6; ++from)
    for (int to = 0; to < 6; ++to) all.push_back({from, to, 3000});
  const int before = on.fake.launches();
  check_messages(on, ranks, all);
  CHECK(on.fake.launches() - before == 6 * 3);
}

TEST_CASE("a group's sends and receives are one kernel on each rank", "[device]") {
  OnFake on;
  Ranks ranks(on, 3);
  const std::vector<Message> all = {{0, 1, 100}, {1, 2, 5000}, {2, 0, 7}, {0, 2, 10}, {2, 1, 9000}};
  check_messages(on, ranks, all);
  const int before = on.fake.launches(), allocated = on.fake.allocations();
  const int synchronising = on.fake.synchronising_calls();
  check_messages(on, ranks, all);
  CHECK(on.fake.launches() - before == 3);
  CHECK(on.fake.synchronising_calls() == synchronising);
  CHECK(on.fake.allocations() - allocated == 2 * 5);  // the test's own
}

TEST_CASE("messages of a pair meet in their order, grouped on one side alone", "[device]") {
  OnFake on;
  Ranks ranks(on, 2);
  const Message messages[] = {{0, 1, 20000}, {0, 1, 3}, {0, 1, 9000}};
  std::vector<DeviceInts> out, in;
  for (const Message& one : messages) {
    out.emplace_back(on, one.count);
    in.emplace_back(on, one.count);
    for (std::size_t i = 0; i < one.count; ++i) out.back().data()[i] = element(one, out.size(), i);
  }
  // Opening a link takes both ranks, so the first meets in a group of both.
  check_messages(on, ranks, {{0, 1, 1}});
  (void)gyreGroupStart();
  for (std::size_t k = 0; k < 3; ++k)
    (void)send(out[k], messages[k], ranks.comms[0], ranks.stream(0));
  REQUIRE(gyreGroupEnd() == gyreSuccess);
  for (std::size_t k = 0; k < 3; ++k)
    REQUIRE(receive(in[k], messages[k], ranks.comms[1], ranks.stream(1)) == gyreSuccess);
  ranks.synchronize();
  for (std::size_t k = 0; k < 3; ++k)
    CHECK(in[k].data()[messages[k].count - 1] ==
          element(messages[k], k + 1, messages[k].count - 1));
}

TEST_CASE("a send and a receive of other lengths are an error that names both", "[device]") {
  OnFake on;
  Ranks ranks(on, 2);
  check_messages(on, ranks, {{0, 1, 1}});
  DeviceInts out(on, 100), in(on, 100);
  REQUIRE(send(out, {0, 1, 50}, ranks.comms[0], ranks.stream(0)) == gyreSuccess);
  REQUIRE(receive(in, {0, 1, 60}, ranks.comms[1], ranks.stream(1)) == gyreSuccess);
  CHECK(ranks.await_error(1) == gyreMismatch);
  CHECK(mentions(last_error(ranks.comms[1]), "a send of rank 0 has another length"));
  ranks.synchronize();
}

TEST_CASE("a receive that nobody sends for ends by its deadline and names the sender", "[device]") {
  OnFake on;
  Ranks ranks(on, 2, 1, 300);
  check_messages(on, ranks, {{1, 0, 1}});
  DeviceInts in(on, 10);
  REQUIRE(receive(in, {1, 0, 10}, ranks.comms[0], ranks.stream(0)) == gyreSuccess);
  CHECK(ranks.await_error(0) == gyreTimeout);
  CHECK(mentions(last_error(ranks.comms[0]), "sends and receives"));
  CHECK(mentions(last_error(ranks.comms[0]), "from rank 1"));
  ranks.synchronize();
}

TEST_CASE("tags and any source are refused on a device", "[device]") {
  OnFake on;
  Ranks ranks(on, 1);
  DeviceInts in(on, 10);
  gyreComm_t comm = ranks.comms[0];
  CHECK(gyreSendTagged(in.data(), 10, gyreInt32, 0, 3, comm, nullptr) == gyreInvalidUsage);
  CHECK(mentions(last_error(comm), "tags and GYRE_ANY_SOURCE"));
  CHECK(gyreRecvTagged(in.data(), 10, gyreInt32, GYRE_ANY_SOURCE, 0, nullptr, nullptr, comm,
                       nullptr) == gyreInvalidUsage);
}

TEST_CASE("collectives of a group that are alike go in one kernel", "[device]") {
  Groups groups;
  CHECK(groups.kernels_of([&](int rank, gyreComm_t comm, gyreStream_t stream) {
    for (std::size_t i = 0; i < Groups::buffers; ++i)
      (void)groups.all_reduce(rank, i, i, comm, stream);
  }) == 3);
  for (std::size_t i = 0; i < Groups::buffers; ++i)
    CHECK(groups.wrong_in(i, static_cast<int>(i), 1) == 0);
}

TEST_CASE("a call of a group that needs what another one gives comes after it", "[device]") {
  Groups groups;
  CHECK(groups.kernels_of([&](int rank, gyreComm_t comm, gyreStream_t stream) {
    (void)groups.all_reduce(rank, 0, 1, comm, stream);
    (void)groups.all_reduce(rank, 1, 2, comm, stream);
    (void)groups.all_reduce(rank, 3, 3, comm, stream);
  }) == 2 * 3);
  CHECK(groups.wrong_in(1, 0, 1) == 0);
  CHECK(groups.wrong_in(2, 0, 3) == 0);
  CHECK(groups.wrong_in(3, 3, 1) == 0);
}

TEST_CASE("calls of other kinds, sends and receives may stand in a group too", "[device]") {
  Groups groups;
  CHECK(groups.kernels_of([&](int rank, gyreComm_t comm, gyreStream_t stream) {
    (void)gyreSend(groups.at(rank, 4), 10, gyreInt32, (rank + 1) % 3, comm, stream);
    (void)groups.all_reduce(rank, 0, 0, comm, stream);
    (void)gyreBroadcast(groups.at(rank, 1), groups.at(rank, 1), Groups::count, gyreInt32, 2, comm,
                        stream);
    (void)groups.all_reduce(rank, 2, 2, comm, stream);
    (void)gyreRecv(groups.at(rank, 3), 10, gyreInt32, (rank + 2) % 3, comm, stream);
  }) == 4 * 3);
  CHECK(groups.wrong_in(0, 0, 1) == 0);
  CHECK(groups.wrong_in(2, 2, 1) == 0);
  for (int rank = 0; rank < 3; ++rank) {
    CHECK(groups.at(rank, 1)[7] == brought(2, 7) + 1);
    CHECK(groups.at(rank, 3)[7] == brought((rank + 2) % 3, 7) + 4);
  }
}

TEST_CASE("ranks that group the same calls otherwise still meet", "[device]") {
  OnFake on;
  Ranks ranks(on, 2);
  constexpr std::size_t calls = 4;
  std::vector<DeviceInts> buffers;
  for (std::size_t i = 0; i < 2 * calls; ++i) {
    buffers.emplace_back(on, 500);
    std::fill_n(buffers.back().data(), 500, static_cast<int>(i));
  }
  const auto call = [&](std::size_t rank, std::size_t number) {
    auto* const data = buffers[rank * calls + number].data();
    return gyreAllReduce(data, data, 500, gyreInt32, gyreSum, ranks.comms[rank],
                         ranks.stream(rank));
  };
  // The plan is opened by all first.
  REQUIRE(ranks.call([&](int rank, gyreComm_t, gyreStream_t) {
    return call(static_cast<std::size_t>(rank), 0);
  }) == gyreSuccess);
  (void)gyreGroupStart();
  for (std::size_t number = 1; number < calls; ++number) (void)call(0, number);
  REQUIRE(gyreGroupEnd() == gyreSuccess);
  for (std::size_t number = 1; number < calls; ++number) REQUIRE(call(1, number) == gyreSuccess);
  ranks.synchronize();
  for (std::size_t i = 0; i < 2 * calls; ++i)
    CHECK(buffers[i].data()[499] == static_cast<int>(2 * (i % calls) + calls));
}

// Rank 0 makes both calls in a group, rank 1 one after the other, and waits for the first.
TEST_CASE("a call of a group runs while the next one waits to be opened", "[device]") {
  OnFake on;
  Ranks ranks(on, 2, 1, slowness * 5'000);
  std::vector<DeviceInts> sums, told;
  for (int rank = 0; rank < 2; ++rank) {
    sums.emplace_back(on, 100);
    told.emplace_back(on, 100);
    std::fill_n(sums.back().data(), 100, 1);
    std::fill_n(told.back().data(), 100, rank);
  }
  const auto sum = [&](int rank, gyreComm_t comm, gyreStream_t stream) {
    auto* const data = sums[static_cast<std::size_t>(rank)].data();
    return gyreAllReduce(data, data, 100, gyreInt32, gyreSum, comm, stream);
  };
  const auto tell = [&](int rank, gyreComm_t comm, gyreStream_t stream) {
    auto* const data = told[static_cast<std::size_t>(rank)].data();
    return gyreBroadcast(data, data, 100, gyreInt32, 1, comm, stream);
  };
  REQUIRE(ranks.call(sum) == gyreSuccess);  // opens its plan
  CHECK(ranks.call_in_threads([&](int rank, gyreComm_t comm, gyreStream_t stream) {
    if (rank == 0) {
      (void)gyreGroupStart();
      (void)sum(rank, comm, stream);
      (void)tell(rank, comm, stream);
      return gyreGroupEnd();
    }
    if (const gyreResult_t summed = sum(rank, comm, stream); summed != gyreSuccess) return summed;
    (void)on.driver->stream_synchronize(ranks.streams[1]);
    return tell(rank, comm, stream);
  }) == "");
  CHECK((sums[0].data()[99] == 4 && sums[1].data()[99] == 4));
  CHECK((told[0].data()[99] == 1 && told[1].data()[99] == 1));
}

TEST_CASE("a call of a group runs though the next one is refused", "[device]") {
  OnFake on({}, {{"GYRE_ALGO", "allgather:tree"}});
  Ranks ranks(on, 2);
  const DeviceInts first(on, 100), second(on, 100), blocks(on, 400);
  const auto sum = [&](int rank, gyreComm_t comm, gyreStream_t stream) {
    auto* const data = (rank == 0 ? first : second).data();
    return gyreAllReduce(data, data, 100, gyreInt32, gyreSum, comm, stream);
  };
  for (const DeviceInts* one : {&first, &second}) one->fill([](std::size_t) { return 1; });
  CHECK(ranks.call([&](int rank, gyreComm_t comm, gyreStream_t stream) {
    (void)sum(rank, comm, stream);
    return gyreAllGather(first.data(), blocks.data() + 200 * rank, 100, gyreInt32, comm, stream);
  }) == gyreInvalidUsage);
  ranks.synchronize();
  CHECK((first.values()[99] == 2 && second.values()[99] == 2));
  CHECK(ranks.call(sum) == gyreSuccess);
  ranks.synchronize();
  CHECK((first.values()[99] == 4 && second.values()[99] == 4));
}

TEST_CASE("a group tells its communicator what a device watch found before it ended", "[device]") {
  OnFake on;
  Ranks ranks(on, 2);
  const auto pin =
      comm::process().communicators.pin(reinterpret_cast<std::uintptr_t>(ranks.comms[0]));
  REQUIRE(bool(pin));
  (void)pin->fail(Status(Code::RemoteError, "rank 1 was seen to fall"));
  DeviceInts data(on, 10);
  const auto call = [&] {
    return gyreAllReduce(data.data(), data.data(), 10, gyreInt32, gyreSum, ranks.comms[0],
                         ranks.stream(0));
  };
  REQUIRE(gyreGroupStart() == gyreSuccess);
  CHECK(call() == gyreSuccess);
  CHECK(gyreGroupEnd() == gyreRemoteError);
  CHECK(mentions(last_error(ranks.comms[0]), "rank 1 was seen to fall"));
}

}  // namespace device_group_test
