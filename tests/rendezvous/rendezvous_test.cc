// Rendezvous at an abstract socket, through gyre run's memory and through a store.
#include "lib/rendezvous/rendezvous.h"

#include "tests/support/rendezvous/small_plane.h"

#include <algorithm>
#include <sys/mman.h>

namespace rendezvous_test {

using namespace gyre;
using namespace gyre::control;
using namespace gyre::rendezvous;
using namespace gyre::rendezvous::test;

namespace {

FileDescriptor run_descriptor(std::string content, int seals) {
  FileDescriptor file(memfd_create("gyre-run", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  REQUIRE(write(file.get(), content.data(), content.size()) ==
          static_cast<ssize_t>(content.size()));
  if (seals != 0) REQUIRE(fcntl(file.get(), F_ADD_SEALS, seals) == 0);
  return file;
}
Result<trust::UniqueId> through_store(ControlPlane& plane, const Store& store,
                                      const std::string& key, int rank) {
  return exchange_id_through_store(plane, store, key, rank, Audience::this_host, with_timeout(1));
}

// A store of one process, and a file of secrets of its own.
struct SealedStore {
  explicit SealedStore(const std::string& secret) {
    settings = with_timeout(1);
    settings.rendezvous_secret_file = path;
    const FileDescriptor file(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600));
    REQUIRE(write(file.get(), secret.data(), secret.size()) == static_cast<ssize_t>(secret.size()));
  }
  ~SealedStore() { unlink(path.c_str()); }
  SealedStore(const SealedStore&) = delete;
  SealedStore& operator=(const SealedStore&) = delete;

  const std::string path = fmt::format("/tmp/gyre-store-secret-{}", getpid());
  Settings settings;
};

constexpr int all_seals = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;

}  // namespace

TEST_CASE("ranks of one host meet at an abstract socket of their user and job", "[rendezvous]") {
  const std::string job = test_name("local");
  check_same_id(run_job(
      5, [&](int rank) { return meet_and_stay(with_timeout(20), place_of(rank, 5, job)); }));
  SmallPlane plane;
  CHECK(meet(plane, with_timeout(1), place_of(0, 1, job)).ok());
  CHECK(plane.idle());
}

TEST_CASE("two jobs at once do not meet each other, nor a first meeting a second", "[rendezvous]") {
  const auto reports = run_job(6, [&](int index) {
    LaunchPlace place = place_of(index / 3, 2, test_name(index % 3 == 2 ? "b" : "a"));
    place.job_id = fmt::format("test {} {}", getppid(), index % 3 == 2 ? "b" : "a");
    place.earlier_exchanges = index % 3 == 1;
    return meet_and_stay(with_timeout(20), place);
  });
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(reports[i].substr(0, 3) == "id ");
    CHECK(reports[i] == reports[i + 3]);
  }
  CHECK(reports[0] != reports[1]);
  CHECK(reports[0] != reports[2]);
}

TEST_CASE("a rank that waits in vain says what for", "[rendezvous]") {
  SmallPlane plane;
  LaunchPlace place = place_of(1, 2, test_name("vain"));
  place.one_host = GENERATE(false, true);
  const auto id = meet(plane, with_timeout(1), place);
  REQUIRE_FALSE(id.ok());
  const Status status = id.status();
  INFO(status.message());
  CHECK(status.code() == Code::Timeout);
  CHECK(status.culprits() == std::vector<int>{0});
  CHECK(contains(status.message(), "rank 1 of 2 meeting the others"));
  CHECK(contains(status.message(), "rank 0 has not opened the meeting at abstract socket @gyre-"));
  CHECK(contains(status.message(), "within 1 s (last attempt: ECONNREFUSED)"));
  for (const char* hint : {"GYRE_LOCAL_SIZE", "GYRE_RENDEZVOUS_ADDRESS", "GYRE_RENDEZVOUS_FILE"})
    CHECK(contains(status.message(), hint) == !place.one_host);
}

TEST_CASE("several hosts and no way to meet is an error that says what to set", "[rendezvous]") {
  SmallPlane plane;
  LaunchPlace place = place_of(1, 4, "x");
  place.local_size = 2;
  place.several_hosts = true;
  const Status status = meet(plane, with_timeout(1), place).status();
  CHECK(status.code() == Code::InvalidUsage);
  CHECK(contains(status.message(), "2 of 4"));
  CHECK(contains(status.message(), "GYRE_RENDEZVOUS_FILE"));
  CHECK(contains(status.message(), "GYRE_RENDEZVOUS_ADDRESS"));
  CHECK(contains(status.message(), "GYRE_RENDEZVOUS_SECRET_FILE"));
}

TEST_CASE("rank 0 names who holds its socket", "[rendezvous]") {
  const std::string job = test_name("held");
  const auto point = local_rendezvous("0:" + job);
  REQUIRE(point.ok());
  SystemClock clock;
  Wait wait(clock, {0, 0, ns_per_ms}, ns_per_s);
  const auto listener = listen_at_address(*point, wait);
  REQUIRE(listener.ok());
  SmallPlane plane;
  const Status status = meet(plane, with_timeout(1), place_of(0, 2, job)).status();
  INFO(status.message());
  CHECK(status.code() == Code::InvalidUsage);
  CHECK(contains(status.message(), "an earlier meeting of this process holds it"));
  CHECK(contains(status.message(), "GYRE_JOB_ID"));
}

TEST_CASE("a socket that another user holds is told nothing", "[rendezvous]") {
  if (geteuid() != 0) return;  // only root can become another user
  const std::string job = test_name("squatted");
  const RendezvousAddress point = *local_rendezvous("0:" + job);
  // The child computes nothing itself: its own user would give another name.
  Child squatter = start([&]() -> std::string {
    const trust::SocketAddress& address = point.addresses.front();
    const FileDescriptor listener(socket(AF_UNIX, SOCK_STREAM, 0));
    if (setresuid(65534, 65534, 65534) != 0 ||
        bind(listener.get(), address.get(), address.length) != 0 || listen(listener.get(), 4) != 0)
      return "cannot squat";
    const FileDescriptor visitor(accept(listener.get(), nullptr, nullptr));
    return "heard " + std::to_string(hear(visitor.get()).size());
  });
  SmallPlane plane;
  const Status status = meet(plane, with_timeout(10), place_of(1, 2, job)).status();
  INFO(status.message());
  CHECK(status.code() == Code::RemoteError);
  CHECK(contains(status.message(), "belongs to another user (uid 65534, we are 0)"));
  CHECK(finish(std::move(squatter)) == "heard 0");
}

TEST_CASE("strangers, garbage and impostors at the socket get nothing, and the job meets",
          "[rendezvous]") {
  const std::string job = test_name("strangers");
  const RendezvousAddress point = *local_rendezvous("0:" + job);
  Child root = start([&] { return meet_and_stay(with_timeout(20), place_of(0, 3, job)); });

  // 2 * 3 + 64 are heard at once, for two seconds; the oldest make room for more before that. A
  // machine that stands still for a second in one round does not in the next.
  std::vector<FileDescriptor> holders;  // connect and say nothing
  bool made_room = false;
  for (int round = 0; round < 5 && !made_room; ++round) {
    holders.clear();
    const std::int64_t start_ns = SystemClock::read();
    for (int i = 0; i < 80; ++i) holders.push_back(connect_to(point));
    CHECK(hear(holders.front().get()).empty());
    made_room = SystemClock::read() - start_ns < ns_per_s;
  }
  CHECK(made_room);
  for (const std::string& garbage :
       {std::string("GET / HTTP/1.1\r\n\r\n"), std::string(300, '\0'), std::string(1, '\0'),
        std::string(1 << 16, 'x'), as_text({'G', 'Y', 'R', 'E'}),
        as_text({'G', 'Y', 'R', 'E', 'A', 'S', 'K', 1, 2})}) {
    const FileDescriptor stranger = connect_to(point);
    say(stranger.get(), garbage);
    shutdown(stranger.get(), SHUT_WR);
    CHECK(hear(stranger.get()).empty());
  }
  const auto ask = [&](const IdMessage& question) {
    const FileDescriptor socket = connect_to(point);
    for (const char letter : as_text(question)) say(socket.get(), {&letter, 1});  // byte by byte
    std::string answer = hear(socket.get());
    return answer.size() < 2 ? Status(Code::RemoteError, "no answer")
                             : decode_answer({answer.begin() + 1, answer.end()}).status();
  };
  const auto refused = [&](const IdMessage& question, const char* why) {
    const Status status = ask(question);
    INFO(status.message());
    CHECK(contains(status.message(), why));
  };
  trust::Token token{1};
  refused(encode(IdRequest{1, 4, 0, token}),
          "this job has 3 ranks, but you were started as rank 1 of 4");
  refused(encode(IdRequest{0, 3, 0, token}), "you cannot be rank 0 of 3");
  refused(encode(IdRequest{3, 3, 0, token}), "you cannot be rank 3 of 3");
  refused(encode(IdRequest{1, 3, 1, token}), "no answer");  // another meeting
  IdMessage newer = encode(IdRequest{1, 3, 0, token});
  newer[7] = 2;
  refused(newer, "uses version 2 of the protocol to meet, rank 0's uses version 1");

  const auto others = run_job(
      2, [&](int rank) { return meet_and_stay(with_timeout(20), place_of(rank + 1, 3, job)); });
  CHECK(others[0].substr(0, 3) == "id ");
  CHECK(others[0] == others[1]);
  CHECK(finish(std::move(root)) == others[0]);
}

TEST_CASE("a second process of the same rank is refused and told about job ids", "[rendezvous]") {
  const std::string job = test_name("twice");
  Child root = start([&] { return meet_and_stay(with_timeout(3), place_of(0, 3, job)); });
  const auto as_rank_1 = [&] { return meet_and_stay(with_timeout(20), place_of(1, 3, job)); };
  CHECK(finish(start(as_rank_1)).substr(0, 3) == "id ");
  const std::string second = finish(start(as_rank_1));
  CHECK(contains(second, "another process already met as rank 1"));
  CHECK(contains(second, "GYRE_JOB_ID"));
  CHECK(finish(std::move(root)).substr(0, 3) == "id ");  // and its server ended with its deadline
}

TEST_CASE("ranks of gyre run make the same id from the memory that they inherit", "[rendezvous]") {
  const FileDescriptor file =
      run_descriptor("GYRERUN1" + std::string(32, 's') + std::string(16, 't'), all_seals);
  Settings settings = with_timeout(5);
  settings.rendezvous_fd = file.get();
  check_same_id(
      run_job(3, [&](int rank) { return meet_and_stay(settings, place_of(rank, 3, "run")); }));
  SmallPlane plane;
  LaunchPlace place = place_of(1, 3, "run");
  REQUIRE(fcntl(file.get(), F_SETFD, 0) == 0);  // as `gyre run` leaves it to its ranks
  const std::string first = report(meet(plane, settings, place));
  CHECK((fcntl(file.get(), F_GETFD) & FD_CLOEXEC) != 0);  // what it starts does not inherit it
  place.earlier_exchanges = 1;
  const std::string second = report(meet(plane, settings, place));
  CHECK(second.substr(0, 3) == "id ");
  CHECK(first != second);
  place.several_hosts = true;
  CHECK(contains(report(meet(plane, settings, place)), "set GYRE_RENDEZVOUS_ADDRESS"));
}

TEST_CASE("a descriptor that gyre run did not make is refused", "[rendezvous]") {
  const std::string good = "GYRERUN1" + std::string(48, 's');
  SmallPlane plane;
  const auto refused = [&](int descriptor, const char* why) {
    Settings settings = with_timeout(1);
    settings.rendezvous_fd = descriptor;
    const Status status = meet(plane, settings, place_of(1, 2, "run")).status();
    INFO(status.message());
    CHECK(status.code() == Code::InvalidUsage);
    CHECK(contains(status.message(), why));
    CHECK(contains(status.message(), "GYRE_RENDEZVOUS_FD="));
  };
  refused(1000, "is not an open descriptor");
  refused(run_descriptor(good, 0).get(), "is not the sealed memory");
  refused(run_descriptor(good, F_SEAL_GROW | F_SEAL_SHRINK).get(), "is not the sealed memory");
  refused(run_descriptor(good + "x", all_seals).get(),
          "does not hold what this version's `gyre run` writes");
  refused(run_descriptor(good.substr(1), all_seals).get(),
          "does not hold what this version's `gyre run` writes");
  refused(run_descriptor("GYRERUN2" + good.substr(8), all_seals).get(),
          "does not hold what this version's `gyre run` writes");
  const FileDescriptor plain(open("/tmp", O_RDWR | O_TMPFILE | O_CLOEXEC, 0600));
  if (plain.has_value()) refused(plain.get(), "is not the sealed memory");
}

TEST_CASE("through a store rank 0's id reaches the others", "[rendezvous]") {
  std::map<std::string, std::vector<std::uint8_t>> values;
  Store store;
  store.set = [&](const std::string& key, const std::vector<std::uint8_t>& value) {
    values[key] = value;
    return Status();
  };
  store.get = [&](const std::string& key, std::int64_t) -> Result<std::vector<std::uint8_t>> {
    if (values.contains(key)) return values[key];
    return Status(Code::Timeout, "the key is not set");
  };
  SmallPlane plane;
  const auto late = through_store(plane, store, "gyre/0", 1).status();
  CHECK(late.code() == Code::Timeout);
  CHECK(late.culprits() == std::vector<int>{0});
  CHECK(contains(late.message(), "\"gyre/0\", which rank 0 sets (waited up to 1000 ms)"));

  const std::string id = report(through_store(plane, store, "gyre/0", 0));
  CHECK(id.substr(0, 3) == "id ");
  CHECK(values["gyre/0"].size() == trust::unique_id_bytes);
  CHECK(report(through_store(plane, store, "gyre/0", 3)) == id);

  const std::uint8_t last = values["gyre/0"].back();
  values["gyre/0"].pop_back();
  CHECK(contains(report(through_store(plane, store, "gyre/0", 1)), "has 127 bytes"));
  values["gyre/0"].push_back(last ^ 1);
  CHECK(through_store(plane, store, "gyre/0", 1).status().code() != Code::Success);

  plane.fails = Status(Code::SystemError, "no descriptors left");
  CHECK_FALSE(through_store(plane, store, "gyre/1", 0).ok());
  const Status others = through_store(plane, store, "gyre/1", 1).status();
  CHECK(others.code() == Code::RemoteError);
  CHECK(contains(others.message(), "rank 0 failed: no descriptors left"));
  CHECK(others.culprits() == std::vector<int>{0});
}

TEST_CASE("ranks with a file of secrets put the id into a store encrypted", "[rendezvous]") {
  std::map<std::string, std::vector<std::uint8_t>> held;
  const Store store{[&](const std::string& key, const std::vector<std::uint8_t>& value) {
                      held[key] = value;
                      return Status();
                    },
                    [&](const std::string& key, std::int64_t) -> Result<std::vector<std::uint8_t>> {
                      return held[key];
                    }};
  const auto join = [&](int rank, const Settings& settings) {
    SmallPlane plane;
    return exchange_id_through_store(plane, store, "gyre/0", rank, Audience::this_host, settings);
  };
  const SealedStore sealed(std::string(40, 's'));
  const auto made = join(0, sealed.settings);
  REQUIRE(made.ok());
  const std::vector<std::uint8_t> first = held["gyre/0"];
  CHECK(first.size() == 144);
  const auto& secret = made->secret;
  CHECK(std::search(first.begin(), first.end(), secret.begin(), secret.end()) == first.end());
  CHECK(report(join(1, sealed.settings)) == report(made));
  // Another time it is another text, and another file opens nothing.
  REQUIRE(join(0, sealed.settings).ok());
  CHECK(held["gyre/0"] != first);
  CHECK(contains(report(join(1, with_timeout(1))), "set that here, too"));
  {
    const SealedStore other(std::string(40, 'o'));
    CHECK(contains(report(join(1, other.settings)), "hold the same as rank 0's?"));
    REQUIRE(join(0, with_timeout(1)).ok());
    CHECK(contains(report(join(1, other.settings)), "on all ranks, or on none"));
  }
  // Its file is gone.
  CHECK(contains(report(join(0, sealed.settings)), "GYRE_RENDEZVOUS_SECRET_FILE"));
  CHECK(contains(report(join(1, with_timeout(1))), "rank 0 failed"));
}

}  // namespace rendezvous_test
