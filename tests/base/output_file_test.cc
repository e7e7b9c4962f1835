// Files that the library writes for people (GYRE_DEBUG_FILE, GYRE_FLIGHT_FILE): which kinds of file
// it writes to, and which it refuses at once and leaves unchanged.
#include "lib/base/file_pattern.h"
#include "lib/base/flight_file.h"
#include "lib/base/log.h"
#include "lib/base/state_page_reader.h"
#include "tests/support/catch.h"

#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

namespace output_file_test {

using namespace gyre;

namespace {

// Ends the test, by SIGALRM, if something in it waits for ever.
class AtOnce {
 public:
  AtOnce() { alarm(20); }
  ~AtOnce() { alarm(0); }
  AtOnce(const AtOnce&) = delete;
  AtOnce& operator=(const AtOnce&) = delete;
};

class Folder {
 public:
  Folder() {
    char name[] = "/tmp/gyre-test-output-XXXXXX";
    path_ = mkdtemp(name);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

Status log_to(const std::string& path) {
  Status configured = configure_log(LogLevel::warn, path);
  if (configured.ok()) log_warn("a line");
  (void)configure_log(LogLevel::warn, "/dev/null");
  return configured;
}

Status write_flights(const std::string& path) {
  return write_flight_file(path, StatePageHead(), RankSnapshot()).status();
}

// Both of them.
void check_refused(const std::string& path, const std::string& why) {
  const AtOnce limit;
  for (const Status& refused : {log_to(path), write_flights(path)}) {
    INFO(refused.full_text());
    CHECK_FALSE(refused.ok());
    CHECK(refused.message().find(path + " " + why) != std::string::npos);
  }
}

}  // namespace

TEST_CASE("a new file is this user's alone, and an old one is appended to", "[output]") {
  const Folder folder;
  const std::string path = folder / "new";
  for (int lines = 1; lines <= 2; ++lines) {
    REQUIRE(log_to(path).ok());
    const std::string text = text_of(path);
    CHECK(std::count(text.begin(), text.end(), '\n') == lines);
  }
  CHECK(std::filesystem::status(path).permissions() == std::filesystem::perms(0600));
  REQUIRE(write_flights(path).ok());
  CHECK(text_of(path).find("a line") != std::string::npos);
  CHECK(text_of(path).find("gyre_flights") != std::string::npos);
}

TEST_CASE("a FIFO is refused at once, with a reader and without", "[output]") {
  const Folder folder;
  const std::string path = folder / "fifo";
  REQUIRE(mkfifo(path.c_str(), 0600) == 0);
  check_refused(path, "is a FIFO");
  const FileDescriptor reader(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  REQUIRE(reader.has_value());
  check_refused(path, "is neither a file nor a character device");
}

TEST_CASE("what another name leads to is refused and left as it was", "[output]") {
  const Folder folder;
  std::ofstream(folder / "precious") << "precious";
  REQUIRE(symlink((folder / "precious").c_str(), (folder / "symbolic").c_str()) == 0);
  REQUIRE(symlink((folder / "nothing").c_str(), (folder / "dangling").c_str()) == 0);
  REQUIRE(link((folder / "precious").c_str(), (folder / "hard").c_str()) == 0);
  check_refused(folder / "symbolic", "is a symbolic link");
  check_refused(folder / "dangling", "is a symbolic link");
  check_refused(folder / "hard", "has 2 names");
  CHECK(text_of(folder / "precious") == "precious");
  CHECK_FALSE(std::filesystem::exists(folder / "nothing"));
}

TEST_CASE("a folder and a socket are refused", "[output]") {
  const Folder folder;
  check_refused(folder / ".", "is a folder");
  const FileDescriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  (folder / "socket").copy(address.sun_path, sizeof address.sun_path - 1);
  REQUIRE(bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  check_refused(folder / "socket", "is a FIFO or a socket");
}

TEST_CASE("another user's file is refused though this process may write to it", "[output]") {
  if (geteuid() != 0) return;  // nobody else's files can be made then
  const Folder folder;
  const std::string path = folder / "foreign";
  std::ofstream(path) << "foreign";
  REQUIRE(chown(path.c_str(), 65534, 65534) == 0);
  check_refused(path, "belongs to user 65534");
  CHECK(text_of(path) == "foreign");
}

TEST_CASE("a character device will do, and a full one is an error", "[output]") {
  const AtOnce limit;
  CHECK(log_to("/dev/null").ok());
  CHECK(write_flights("/dev/null").ok());
  CHECK(log_to("/dev/full").ok());
  const Status full = write_flights("/dev/full");
  CHECK(full.code() == Code::SystemError);
  CHECK(full.message().find("ENOSPC") != std::string::npos);
}

TEST_CASE("an output file keeps its old text only where that is meant", "[output]") {
  const Folder folder;
  const std::string path = folder / "file";
  std::ofstream(path) << "old";
  CHECK(open_output_file(path, OldText::stays).ok());
  CHECK(text_of(path) == "old");
  CHECK(open_output_file(path, OldText::goes).ok());
  CHECK(text_of(path).empty());
  CHECK(open_output_file("/dev/null", OldText::goes).ok());
}

}  // namespace output_file_test
