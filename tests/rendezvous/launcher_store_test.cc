// Rendezvous through the launcher's key-value space: over PMI's version 1, with a launcher in a
// thread, and over a PMIx of functions.
#include "lib/rendezvous/launcher_store.h"

#include "lib/loaded/pmix.h"
#include "tests/support/rendezvous/small_plane.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <sys/socket.h>

namespace launcher_store_test {

using namespace gyre;
using namespace gyre::rendezvous;
using namespace gyre::rendezvous::test;

namespace {

struct Ends {
  FileDescriptor rank, launcher;
};

Ends pmi_socket() {
  int ends[2] = {-1, -1};
  REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
  return {FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

std::string word_in(const std::string& line, const std::string& name) {
  const std::size_t begin = line.find(name + "=");
  if (begin == line.npos) return {};
  const std::size_t value = begin + name.size() + 1;
  return line.substr(value, std::min(line.find(' ', value), line.size()) - value);
}

// What Hydra and Slurm do with the lines of their ranks, all in one thread.
class SmallLauncher {
 public:
  explicit SmallLauncher(int ranks) {
    for (int rank = 0; rank < ranks; ++rank) ends_.push_back(pmi_socket());
    heard_.resize(ends_.size());
    thread_ = std::thread([this] { serve(); });
  }
  ~SmallLauncher() { stop(); }
  SmallLauncher(const SmallLauncher&) = delete;
  SmallLauncher& operator=(const SmallLauncher&) = delete;

  int descriptor(int rank) const { return ends_[static_cast<std::size_t>(rank)].rank.get(); }
  void stop() {
    over_ = true;
    if (thread_.joinable()) thread_.join();
  }
  // After stop().
  int finished = 0, greeted = 0;
  std::map<std::string, std::string> space;

 private:
  void serve() {
    while (!over_) {
      std::vector<pollfd> ready;
      for (const Ends& each : ends_) ready.push_back({each.launcher.get(), POLLIN, 0});
      if (poll(ready.data(), ready.size(), 1) <= 0) continue;
      for (std::size_t i = 0; i < ready.size(); ++i)
        if ((ready[i].revents & POLLIN) != 0) read_from(i);
    }
  }
  void read_from(std::size_t rank) {
    char piece[512];
    const ssize_t got = recv(ends_[rank].launcher.get(), piece, sizeof piece, MSG_DONTWAIT);
    if (got <= 0) return;
    heard_[rank].append(piece, static_cast<std::size_t>(got));
    for (std::size_t end; (end = heard_[rank].find('\n')) != std::string::npos;) {
      const std::string line = heard_[rank].substr(0, end);
      heard_[rank].erase(0, end + 1);
      answer(rank, line);
    }
  }
  void say_to(std::size_t rank, const std::string& line) {
    // In two pieces: a stream keeps no borders.
    say(ends_[rank].launcher.get(), line.substr(0, 5));
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    say(ends_[rank].launcher.get(), line.substr(5) + "\n");
  }
  void answer(std::size_t rank, const std::string& line) {
    const std::string command = word_in(line, "cmd"), key = word_in(line, "key");
    if (command == "init") {
      ++greeted;
      say_to(rank, "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0");
    } else if (command == "get_my_kvsname") {
      say_to(rank, "cmd=my_kvsname kvsname=kvs_7_0");
    } else if (command == "put") {
      drafts_[key] = word_in(line, "value");
      say_to(rank, "cmd=put_result rc=0 msg=success");
    } else if (command == "barrier_in" && ++arrived_ == ends_.size()) {
      arrived_ = 0;
      space.insert(drafts_.begin(), drafts_.end());
      for (std::size_t i = 0; i < ends_.size(); ++i) say_to(i, "cmd=barrier_out");
    } else if (command == "get" && space.count(key) != 0) {
      say_to(rank, "cmd=get_result rc=0 msg=success value=" + space[key]);
    } else if (command == "get") {
      say_to(rank, "cmd=get_result rc=-1 msg=key_not_found value=unknown");
    } else if (command == "finalize") {
      ++finished;
      say_to(rank, "cmd=finalize_ack");
    }
  }

  std::vector<Ends> ends_;
  std::vector<std::string> heard_;
  std::map<std::string, std::string> drafts_;
  std::size_t arrived_ = 0;
  std::atomic<bool> over_ = false;
  std::thread thread_;
};

LaunchPlace far_place(int rank, int size, int descriptor) {
  LaunchPlace place = place_of(rank, size, "far");
  place.local_rank = 0;
  place.local_size = 1;
  place.several_hosts = true;
  place.pmi_descriptor = descriptor;
  return place;
}

// What each of two ranks says of `meetings` meetings. Their processes end then.
std::vector<std::string> meet_by_pmi(SmallLauncher& launcher, const Settings& settings,
                                     int meetings) {
  std::vector<std::string> reports(2);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 2; ++rank)
    ranks.emplace_back([&, rank] {
      SmallPlane plane;
      LauncherStore store;
      for (int i = 0; i < meetings; ++i)
        reports[static_cast<std::size_t>(rank)] +=
            report(meet(plane, settings, far_place(rank, 2, launcher.descriptor(rank)), &store)) +
            "\n";
      store.finish();
    });
  for (std::thread& each : ranks) each.join();
  launcher.stop();
  return reports;
}

// The error of rank 1, whose launcher answers each line by the next of these and then no more.
Status met_with(const std::vector<std::string>& answers, LauncherStore& store) {
  Ends ends = pmi_socket();
  std::thread launcher([&, far = std::move(ends.launcher)] {
    for (const std::string& text : answers) {
      char line[512];
      pollfd ready{far.get(), POLLIN, 0};
      if (poll(&ready, 1, 3000) != 1 || recv(far.get(), line, sizeof line, 0) <= 0) return;
      say(far.get(), text);
    }
    // Not closed before the rank has gone, unless that is what is tried.
    char rest[512];
    pollfd ready{far.get(), POLLIN, 0};
    while (!answers.back().empty() && poll(&ready, 1, 3000) == 1 &&
           recv(far.get(), rest, sizeof rest, 0) > 0) {
    }
  });
  SmallPlane plane;
  Status status = meet(plane, with_timeout(1), far_place(1, 2, ends.rank.get()), &store).status();
  ::shutdown(ends.rank.get(), SHUT_RDWR);
  launcher.join();
  return status;
}

const std::string greeting = "cmd=response_to_init rc=0\n",
                  space_name = "cmd=my_kvsname kvsname=k\n", barrier = "cmd=barrier_out\n";

// A PMIx library: one process, whose fences are over at once or never.
struct FakePmix {
  std::map<std::string, std::string> space{};
  loaded::PmixStatus init = 0, put = 0, fence = 0, got = 0;
  bool answers = true;
  bool is_text = true;
  int finished = 0;
};
FakePmix fake;

std::unique_ptr<const loaded::Pmix> fake_pmix() {
  auto table = std::make_unique<loaded::Pmix>();
  table->error_text = [](loaded::PmixStatus) { return "UNREACHABLE"; };
  table->init = [](loaded::PmixProcess* self, void*, std::size_t) {
    std::strcpy(self->job, "job.7");
    self->rank = 1;
    return fake.init;
  };
  table->finalize = [](const void*, std::size_t) { return ++fake.finished, 0; };
  table->put = [](std::uint8_t scope, const char* key, loaded::PmixValue* value) {
    if (scope == loaded::pmix::for_all && value->type == loaded::pmix::is_text)
      fake.space[key] = value->text;
    return fake.put;
  };
  table->commit = [] { return 0; };
  table->fence = [](const loaded::PmixProcess*, std::size_t, const void*, std::size_t,
                    loaded::PmixDone done, void* call) {
    if (fake.fence == 0 && fake.answers)
      std::thread([=] {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        done(0, call);
      }).detach();
    return fake.fence;
  };
  table->get = [](const loaded::PmixProcess* process, const char* key, const void*, std::size_t,
                  loaded::PmixGot got, void* call) {
    loaded::PmixValue value{};
    value.type = fake.is_text ? loaded::pmix::is_text : 1;
    const std::string name = key;
    value.text = fake.space[name].c_str();
    if (std::string(process->job) == "job.7" && process->rank == 0) got(fake.got, &value, call);
    return 0;
  };
  return table;
}

}  // namespace

TEST_CASE("ranks of several hosts meet through their launcher's PMI, as often as they want",
          "[rendezvous]") {
  SmallLauncher launcher(2);
  const auto reports = meet_by_pmi(launcher, with_timeout(20), 3);
  INFO(reports[0]);
  CHECK(reports[0] == reports[1]);
  CHECK(reports[0].substr(0, 3) == "id ");
  const std::size_t line = reports[0].size() / 3;
  CHECK(reports[0].substr(0, line) != reports[0].substr(line, line));
  // One greeting each, whatever the number of meetings: Slurm takes no second one.
  CHECK(launcher.greeted == 2);
  CHECK(launcher.finished == 2);
  CHECK(launcher.space.size() == 3);
}

TEST_CASE("with a secret file the launcher sees an encrypted id", "[rendezvous]") {
  const std::string path = fmt::format("/tmp/gyre-launcher-secret-{}", getpid());
  Settings settings = with_timeout(20);
  settings.rendezvous_secret_file = path;
  {
    const FileDescriptor file(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600));
    REQUIRE(write(file.get(), path.data(), 32) == 32);
  }
  SmallLauncher launcher(2);
  const auto reports = meet_by_pmi(launcher, settings, 1);
  unlink(path.c_str());
  CHECK(reports[0].substr(0, 3) == "id ");
  CHECK(reports[0] == reports[1]);
  REQUIRE(launcher.space.size() == 1);
  const std::string id = reports[0].substr(3, 2 * trust::unique_id_bytes);
  CHECK_FALSE(contains(launcher.space.begin()->second, id.substr(0, 32)));
}

TEST_CASE("rank 0 that fails tells the others through the launcher why", "[rendezvous]") {
  SmallLauncher launcher(2);
  std::vector<Status> ends(2);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 2; ++rank)
    ranks.emplace_back([&, rank] {
      SmallPlane plane;
      plane.fails = Status(Code::SystemError, "no descriptors");
      LauncherStore store;
      const LaunchPlace place = far_place(rank, 2, launcher.descriptor(rank));
      ends[static_cast<std::size_t>(rank)] = meet(plane, with_timeout(20), place, &store).status();
    });
  for (std::thread& each : ranks) each.join();
  CHECK(ends[0].code() == Code::SystemError);
  CHECK(ends[1].code() == Code::RemoteError);
  for (const Status& each : ends) CHECK(contains(each.message(), "no descriptors"));
}

TEST_CASE("a launcher that does not speak PMI as it should is an error that says what it said",
          "[rendezvous]") {
  struct Row {
    std::vector<std::string> answers;
    Code code;
    const char* text;
  };
  const std::vector<Row> rows = {
      {{"cmd=response_to_init rc=-1 msg=no\n"},
       Code::RemoteError,
       "the launcher refuses: \"cmd=response_to_init rc=-1 msg=no\""},
      {{"\x1b[31m\n"}, Code::RemoteError, "to answer cmd=response_to_init, and says \"?[31m\""},
      {{"cmd=response_to_init rc=0\ncmd=x\n"}, Code::RemoteError, "is no line"},
      {{std::string(8000, 'x')}, Code::RemoteError, "is no line"},
      {{"cmd=respon"}, Code::Timeout, "the launcher does not answer (PMI_FD)"},
      {{greeting, "cmd=my_kvsname\n"}, Code::RemoteError, "has no kvsname"},
      {{greeting, space_name, ""}, Code::RemoteError, "the launcher closed its end"},
      {{greeting, space_name, barrier, "cmd=get_result rc=1\n"},
       Code::RemoteError,
       "the launcher refuses: \"cmd=get_result rc=1\""},
      {{greeting, space_name, barrier, "cmd=get_result rc=0 value=abc\n"},
       Code::RemoteError,
       "a value that no rank has put"},
      {{greeting, space_name, barrier, "cmd=get_result rc=0 value=xy\n"},
       Code::RemoteError,
       "a value that no rank has put"},
      {{greeting, space_name, barrier, "cmd=get_result rc=0 value=abcd\n"},
       Code::RemoteError,
       "the value has 2 bytes, an id has 128"},
  };
  for (const Row& row : rows) {
    INFO(row.text);
    LauncherStore store;
    const Status status = met_with(row.answers, store);
    INFO(status.message());
    CHECK(status.code() == row.code);
    CHECK(contains(status.message(), row.text));
    CHECK(contains(status.message(), "rank 1 of 2 meeting the others"));
    CHECK(contains(status.message(), "instead of it, set GYRE_RENDEZVOUS_FILE"));
  }
}

TEST_CASE("after a barrier that did not end the launcher is asked no more", "[rendezvous]") {
  LauncherStore store;
  const Status first = met_with({greeting, space_name}, store);
  CHECK(first.code() == Code::Timeout);
  CHECK(contains(first.message(), "waiting for all ranks"));
  // It would hear the answer to that barrier as the one to its own question.
  const Status second = met_with({greeting, space_name, barrier}, store);
  CHECK(second.code() == Code::Timeout);
  CHECK(contains(second.message(), "waiting for all ranks"));
  store.finish();
}

TEST_CASE("a PMI_FD that is not the launcher's is refused, and nothing is written there",
          "[rendezvous]") {
  int ends[2] = {-1, -1};
  REQUIRE(pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0);
  const FileDescriptor reading(ends[0]), writing(ends[1]);
  const FileDescriptor network(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  for (const int descriptor : {writing.get(), network.get(), 1 << 20}) {
    INFO(descriptor);
    SmallPlane plane;
    LauncherStore store;
    const auto id = meet(plane, with_timeout(1), far_place(1, 2, descriptor), &store);
    REQUIRE_FALSE(id.ok());
    CHECK(contains(id.status().message(), "is not the launcher's socket"));
  }
  char byte;
  CHECK(read(reading.get(), &byte, 1) == -1);
}

TEST_CASE("without a launcher's space several hosts need to be told how to meet", "[rendezvous]") {
  SmallPlane plane;
  LauncherStore store;
  const auto id = meet(plane, with_timeout(1), far_place(0, 2, -1), &store);
  REQUIRE_FALSE(id.ok());
  CHECK(id.status().code() == Code::InvalidUsage);
  CHECK(contains(id.status().message(), "srun --mpi=pmi2"));
}

TEST_CASE("ranks meet through PMIx", "[rendezvous]") {
  fake = {};
  LaunchPlace place = far_place(0, 2, -1);
  place.has_pmix = true;
  SmallPlane plane;
  LauncherStore first(std::move(open_pmix(fake_pmix())).value());
  const std::string put = report(meet(plane, with_timeout(20), place, &first));
  CHECK(put.substr(0, 3) == "id ");
  place.rank = 1;
  LauncherStore second(std::move(open_pmix(fake_pmix())).value());
  CHECK(report(meet(plane, with_timeout(20), place, &second)) == put);
  first.finish();
  second.finish();
  second.finish();
  CHECK(fake.finished == 2);
}

TEST_CASE("failures of PMIx are errors with its own text", "[rendezvous]") {
  struct Row {
    FakePmix fake;
    Code code;
    const char* text;
  };
  const std::vector<Row> rows = {
      {{.fence = -25}, Code::RemoteError, "PMIx_Fence_nb failed: UNREACHABLE (-25)"},
      {{.got = -46}, Code::RemoteError, "PMIx_Get_nb failed: UNREACHABLE (-46)"},
      {{.is_text = false}, Code::RemoteError, "PMIx_Get_nb gave no text"},
      {{.answers = false}, Code::Timeout, "the launcher does not answer (PMIx_Fence_nb)"},
  };
  LaunchPlace place = far_place(1, 2, -1);
  place.has_pmix = true;
  for (const Row& row : rows) {
    fake = row.fake;
    SmallPlane plane;
    LauncherStore store(std::move(open_pmix(fake_pmix())).value());
    const auto id = meet(plane, with_timeout(1), place, &store);
    REQUIRE_FALSE(id.ok());
    INFO(id.status().message());
    CHECK(id.status().code() == row.code);
    CHECK(contains(id.status().message(), row.text));
  }
  fake = {.put = -1};
  LauncherStore store(std::move(open_pmix(fake_pmix())).value());
  place.rank = 0;
  SmallPlane plane;
  CHECK(contains(meet(plane, with_timeout(1), place, &store).status().message(),
                 "PMIx_Put failed: UNREACHABLE (-1)"));
  fake = {.init = -25};
  CHECK(contains(open_pmix(fake_pmix()).status().message(), "PMIx_Init failed"));
}

}  // namespace launcher_store_test
