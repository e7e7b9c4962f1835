// Rendezvous through a file, and files that are refused.
#include "lib/rendezvous/id_file.h"
#include "tests/support/rendezvous/small_plane.h"

#include <chrono>
#include <cstddef>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

namespace rendezvous_file_test {

using namespace gyre;
using namespace gyre::control;
using namespace gyre::rendezvous;
using namespace gyre::rendezvous::test;

namespace {

struct Folder {
  Folder() {
    std::string name = "/tmp/gyre-rendezvous-XXXXXX";
    REQUIRE(mkdtemp(name.data()) != nullptr);
    path = name;
  }
  ~Folder() { std::filesystem::remove_all(path); }
  std::string file(const char* name) const { return path + "/" + name; }
  int entries() const {
    const std::filesystem::directory_iterator all(path);
    return static_cast<int>(std::distance(begin(all), end(all)));
  }
  std::string path;
};

void write_file(const std::string& path, std::string_view content, mode_t mode = 0600) {
  std::ofstream(path, std::ios::binary) << content;
  REQUIRE(chmod(path.c_str(), mode) == 0);
}

Settings by_file(const std::string& path, int seconds) {
  Settings settings = with_timeout(seconds);
  settings.rendezvous_file = path;
  return settings;
}

// Opens when all processes that have it are at it: a pipe ends when its last writer is gone.
struct Gate {
  Gate() {
    int ends[2] = {-1, -1};
    REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
    reading = FileDescriptor(ends[0]);
    writing = FileDescriptor(ends[1]);
  }
  void open() { writing.reset(); }
  void pass() {
    open();
    char letter = 0;
    (void)!read(reading.get(), &letter, 1);
  }
  FileDescriptor reading, writing;
};

// A process that gives a file a name, or takes one away, dies of it, as one that is killed then.
bool die_at(std::uint32_t one_call, std::uint32_t other_call) {
  sock_filter rules[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, one_call, 1, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, other_call, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{std::size(rules), rules};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

bool has_nameless_files(const Folder& folder) {
  return FileDescriptor(::open(folder.path.c_str(), O_RDWR | O_TMPFILE | O_CLOEXEC, 0600))
      .has_value();
}

trust::Token this_host() { return trust::describe_this_process()->host; }

Result<std::shared_ptr<IdFile>> publish(const std::string& path) {
  static const SystemClock clock;
  Wait wait(clock, {0, 0, ns_per_ms}, 20 * ns_per_s);
  return IdFile::publish(path, *trust::id_on_this_host(*trust::random_secret()), this_host(), wait);
}

}  // namespace

TEST_CASE("ranks meet through a file that is gone afterwards", "[rendezvous]") {
  const Folder folder;
  const std::string path = folder.file("id");
  SmallPlane plane;
  const std::string id = report(meet(plane, by_file(path, 1), place_of(0, 3, "")));
  struct stat facts {};
  REQUIRE(lstat(path.c_str(), &facts) == 0);
  CHECK((facts.st_mode & 07777) == 0600);
  CHECK(facts.st_size == 128);
  CHECK(folder.entries() == 1);
  check_same_id(run_job(3, [&](int rank) {
    return rank == 0 ? id : meet_and_stay(by_file(path, 20), place_of(rank, 3, ""));
  }));
  // When nobody can still be waiting for it the file is removed.
  for (int i = 0; i < 10000 && !plane.idle(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  CHECK(folder.entries() == 0);
}

TEST_CASE("a rank 0 that is killed on the way leaves its secret under no name", "[rendezvous]") {
  const Folder folder;
  if (!has_nameless_files(folder)) return;
  const bool before = GENERATE(true, false);
  const pid_t killed = fork();
  REQUIRE(killed >= 0);
  if (killed == 0) {
    const bool armed = before ? die_at(SYS_link, SYS_linkat) : die_at(SYS_unlink, SYS_unlinkat);
    const auto file = publish(folder.file("id"));
    _exit(armed && file.ok() ? 0 : 1);  // without its destructor
  }
  int status = 0;
  REQUIRE(waitpid(killed, &status, 0) == killed);
  if (before) CHECK((WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS));
  if (!before) CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0));
  CHECK(folder.entries() == (before ? 0 : 1));
  CHECK(publish(folder.file("id")).ok());
}

TEST_CASE("ranks that are there before rank 0 wait for its file", "[rendezvous]") {
  const Folder folder;
  const std::string path = folder.file("id");
  std::vector<Child> waiting;
  for (int rank = 1; rank < 3; ++rank)
    waiting.push_back(
        start([&, rank] { return meet_and_stay(by_file(path, 20), place_of(rank, 3, "")); }));
  std::this_thread::sleep_for(std::chrono::milliseconds(150));
  {
    SmallPlane plane;
    const std::string id = report(meet(plane, by_file(path, 20), place_of(0, 3, "")));
    for (Child& child : waiting) CHECK(finish(std::move(child)) == id);
  }
  CHECK(folder.entries() == 0);  // the plane's end removes it too
}

TEST_CASE("a second meeting does not find the file of the first", "[rendezvous]") {
  const Folder folder;
  SmallPlane plane;
  LaunchPlace place = place_of(0, 2, "");
  const std::string first = report(meet(plane, by_file(folder.file("id"), 20), place));
  place.earlier_exchanges = 1;
  const std::string second = report(meet(plane, by_file(folder.file("id"), 20), place));
  place.rank = 1;
  CHECK(report(meet(plane, by_file(folder.file("id"), 20), place)) == second);
  CHECK(first != second);
}

TEST_CASE("a file that is no meeting file is refused and left alone", "[rendezvous]") {
  const Folder folder;
  const std::string path = folder.file("id");
  const std::string good = id_bytes();
  std::string damaged = good;
  damaged[50] ^= 1;
  struct Row {
    const char* what;
    std::function<void()> make;
    const char* text;
  };
  const std::vector<Row> rows = {
      {"too short", [&] { write_file(path, good.substr(1)); }, "has only 127 bytes"},
      {"empty", [&] { write_file(path, ""); }, "has only 0 bytes"},
      {"too long", [&] { write_file(path, good + "x"); }, "has more than 128 bytes"},
      {"open to the group", [&] { write_file(path, good, 0640); }, "has mode 0640"},
      {"open to all", [&] { write_file(path, good, 0604); }, "has mode 0604"},
      {"executable", [&] { write_file(path, good, 0700); }, "has mode 0700"},
      {"damaged", [&] { write_file(path, damaged); }, "damaged"},
      {"something else", [&] { write_file(path, std::string(128, 'x')); }, "not made by"},
      {"a link",
       [&] {
         write_file(folder.file("target"), good);
         REQUIRE(symlink(folder.file("target").c_str(), path.c_str()) == 0);
       },
       "is a symbolic link"},
      {"a FIFO", [&] { REQUIRE(mkfifo(path.c_str(), 0600) == 0); }, "is not a regular file"},
      {"a folder", [&] { REQUIRE(mkdir(path.c_str(), 0700) == 0); }, "is not a regular file"},
  };
  for (const Row& row : rows) {
    INFO(row.what);
    std::filesystem::remove(path);
    row.make();
    for (const int rank : {0, 1}) {
      SmallPlane plane;
      const Status status = meet(plane, by_file(path, 5), place_of(rank, 2, "")).status();
      INFO("rank " << rank << ": " << status.message());
      CHECK((status.code() == Code::InvalidUsage || status.code() == Code::InvalidArgument));
      CHECK(contains(status.message(), path));
      CHECK(contains(status.message(), row.text));
      CHECK(std::filesystem::exists(std::filesystem::symlink_status(path)));
    }
  }
}

TEST_CASE("a file of another user is refused", "[rendezvous]") {
  if (geteuid() != 0) return;  // only root can make one
  const Folder folder;
  write_file(folder.file("id"), id_bytes());
  REQUIRE(chown(folder.file("id").c_str(), 65534, 65534) == 0);
  SmallPlane plane;
  CHECK(contains(report(meet(plane, by_file(folder.file("id"), 5), place_of(1, 2, ""))),
                 "belongs to another user (uid 65534, we are 0)"));
}

TEST_CASE("without rank 0's file the others name the file and the time", "[rendezvous]") {
  const Folder folder;
  SmallPlane plane;
  const Status status = meet(plane, by_file(folder.file("id"), 1), place_of(1, 2, "")).status();
  CHECK(status.code() == Code::Timeout);
  CHECK(status.culprits() == std::vector<int>{0});
  CHECK(contains(status.message(), "rank 0 has not written " + folder.file("id") + " within 1 s"));
  const Status nowhere =
      meet(plane, by_file(folder.file("no/such/id"), 1), place_of(0, 2, "")).status();
  CHECK(contains(nowhere.message(), "making a file in " + folder.file("no/such")));
}

TEST_CASE("what a killed job left is passed over by the others and replaced by rank 0",
          "[rendezvous]") {
  const Folder folder;
  const std::string path = folder.file("id");
  int ends[2] = {-1, -1};
  REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
  const FileDescriptor ready(ends[0]);
  FileDescriptor telling(ends[1]);
  Child dead = start([&]() -> std::string {
    const auto file = publish(path);
    (void)!write(telling.get(), "x", 1);
    while (true) pause();
  });
  char letter = 0;
  REQUIRE(read(ready.get(), &letter, 1) == 1);

  // While it lives: the others read it, another rank 0 must not touch it.
  SmallPlane plane;
  const std::string old_id = report(meet(plane, by_file(path, 5), place_of(1, 2, "")));
  CHECK(old_id.substr(0, 3) == "id ");
  CHECK(contains(report(meet(plane, by_file(path, 5), place_of(0, 2, ""))), "a job that runs"));

  kill(dead.pid, SIGKILL);
  CHECK(contains(finish(std::move(dead)), "ended with"));
  REQUIRE(std::filesystem::exists(path));
  const Status late = meet(plane, by_file(path, 1), place_of(1, 2, "")).status();
  CHECK(late.code() == Code::Timeout);
  CHECK(contains(late.message(), "is the file of a dead job"));

  Child other = start([&] { return meet_and_stay(by_file(path, 20), place_of(1, 2, "")); });
  const std::string new_id = report(meet(plane, by_file(path, 20), place_of(0, 2, "")));
  CHECK(new_id.substr(0, 3) == "id ");
  CHECK(new_id != old_id);
  CHECK(finish(std::move(other)) == new_id);
  CHECK(folder.entries() == 1);
}

TEST_CASE("a file of a job on another host is trusted by the others and kept by rank 0",
          "[rendezvous]") {
  const Folder folder;
  trust::UniqueId id = *trust::id_on_this_host(*trust::random_secret());
  id.root_host[0] ^= 1;
  const auto bytes = *trust::encode(id);
  write_file(folder.file("id"), std::string(bytes.begin(), bytes.end()));
  SmallPlane plane;
  CHECK(report(meet(plane, by_file(folder.file("id"), 5), place_of(1, 2, ""))) == report(id));
  const Status status = meet(plane, by_file(folder.file("id"), 5), place_of(0, 2, "")).status();
  CHECK(status.code() == Code::InvalidUsage);
  CHECK(contains(status.message(), "one on another host"));
  CHECK(folder.entries() == 1);
}

TEST_CASE("of many first ranks at one dead job's file exactly one replaces it", "[rendezvous]") {
  const Folder folder;
  const std::string path = folder.file("id");
  for (int round = 0; round < 25; ++round) {
    std::filesystem::remove(path);
    write_file(path, id_bytes());
    Gate begin, end;
    std::vector<Child> roots;
    for (int i = 0; i < 6; ++i)
      roots.push_back(start([&]() -> std::string {
        begin.pass();
        const auto file = publish(path);
        end.pass();  // whoever published lives until all have tried
        return file.ok() ? "published" : std::string(file.status().message());
      }));
    begin.open();
    end.open();
    int published = 0;
    for (Child& root : roots) {
      const std::string text = finish(std::move(root));
      published += text == "published";
      CHECK((text == "published" || contains(text, "a job that runs")));
    }
    CHECK(published == 1);
    CHECK(folder.entries() == 0);
  }
}

TEST_CASE("a dead job's file is left alone while another rank 0 is about to replace it",
          "[rendezvous]") {
  const Folder folder;
  const std::string path = folder.file("id");
  const std::string dead = id_bytes();
  write_file(path, dead);
  FileDescriptor other(open(path.c_str(), O_RDWR | O_CLOEXEC));
  struct flock removal {};
  removal.l_type = F_WRLCK;
  removal.l_start = 1;
  removal.l_len = 1;
  REQUIRE(fcntl(other.get(), F_OFD_SETLK, &removal) == 0);
  Child root = start([&]() -> std::string {
    other.reset();
    const auto file = publish(path);
    return file.ok() ? "published" : std::string(file.status().message());
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  std::string content(128, 0);
  std::ifstream(path, std::ios::binary).read(content.data(), 128);
  CHECK(content == dead);
  other.reset();
  CHECK(finish(std::move(root)) == "published");
}

TEST_CASE("a forked child of rank 0 does not remove its file", "[rendezvous]") {
  const Folder folder;
  auto file = publish(folder.file("id"));
  REQUIRE(file.ok());
  CHECK(finish(start([&] {
          file->reset();
          return std::string("gone");
        })) == "gone");
  CHECK(folder.entries() == 1);
  file->reset();
  CHECK(folder.entries() == 0);
}

}  // namespace rendezvous_file_test
