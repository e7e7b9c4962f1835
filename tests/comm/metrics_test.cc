// Metrics: how requests are read, where the listener may be, the text of the answer, and a listener
// that unauthenticated clients cannot block.
#include "lib/comm/metrics.h"

#include "lib/control/metrics_place.h"
#include "lib/control/metrics_request.h"
#include "tests/support/control/meeting.h"

#include <fmt/core.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

namespace metrics_test {

using namespace gyre;
using namespace gyre::control;
using namespace gyre::test;

TEST_CASE("only GET /metrics of HTTP/1 asks for metrics", "[metrics]") {
  const struct {
    std::string_view request;
    RequestKind asked;
  } cases[] = {
      {"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", RequestKind::metrics},
      {"GET /metrics HTTP/1.0\n\n", RequestKind::metrics},
      {"GET /metrics?a=b HTTP/1.1\r\n\r\n", RequestKind::metrics},
      {"GET /metrics HTTP/1.1\r\n\r\nmore", RequestKind::metrics},
      {"GET /metrics HTTP/1.1\r\n", RequestKind::unclear},
      {"", RequestKind::unclear},
      {"GET / HTTP/1.1\r\n\r\n", RequestKind::other_path},
      {"GET /metrics/ HTTP/1.1\r\n\r\n", RequestKind::other_path},
      {"HEAD /metrics HTTP/1.1\r\n\r\n", RequestKind::other_method},
      {"get /metrics HTTP/1.1\r\n\r\n", RequestKind::other_method},
      {"GET /metrics HTTP/2.0\r\n\r\n", RequestKind::malformed},
      {"GET /metrics\r\n\r\n", RequestKind::malformed},
      {"GET /metrics HTTP/1.1 \r\n\r\n", RequestKind::malformed},
      {"GET /metrics HTTP/1.1\r\nno field\r\n\r\n", RequestKind::malformed},
      {"\r\n\r\n", RequestKind::malformed},
      {"\x16\x03\x01\n", RequestKind::malformed},
  };
  for (const auto& one : cases) {
    INFO(one.request);
    CHECK(judge_request(one.request) == one.asked);
  }
  CHECK(judge_request(std::string(max_request_bytes - 1, 'x')) == RequestKind::unclear);
  CHECK(judge_request(std::string(max_request_bytes, 'x')) == RequestKind::malformed);
}

TEST_CASE("a place is a port, an address with one, or a path; others are refused", "[metrics]") {
  const struct {
    const char* text;
    int local_rank;
    const char* shown;  // null: refused
  } cases[] = {
      {"9400", 0, "127.0.0.1:9400"},
      {"9400", 3, "127.0.0.1:9403"},
      {"9400", -1, "127.0.0.1:9400"},
      {"0", 3, "127.0.0.1:0"},
      {"0.0.0.0:9400", 1, "0.0.0.0:9401"},
      {"[::1]:9400", 1, "[::1]:9401"},
      {"65535", 0, "127.0.0.1:65535"},
      {"65535", 1, nullptr},
      {"65536", 0, nullptr},
      {"-1", 0, nullptr},
      {"94 00", 0, nullptr},
      {"on", 0, nullptr},
      {"localhost:9400", 0, nullptr},
      {"127.0.0.1:", 0, nullptr},
      {"unix:", 0, nullptr},
      {"unix:relative", 0, nullptr},
  };
  for (const auto& one : cases) {
    INFO(one.text);
    const auto place = read_metrics_place(one.text, one.local_rank);
    REQUIRE(place.ok() == (one.shown != nullptr));
    if (place.ok())
      CHECK(trust::format_address(place->address) == one.shown);
    else
      CHECK(place.status().message().find("1.2.3.4:port, [::1]:port, or unix:/path") !=
            std::string_view::npos);
  }
  CHECK(read_metrics_place("unix:/run/a-%p", 2)->path == "/run/a-" + std::to_string(getpid()));
  CHECK(read_metrics_place("unix:/" + std::string(106, 'x'), 0).ok());
  CHECK_FALSE(read_metrics_place("unix:/" + std::string(107, 'x'), 0).ok());
}

namespace {

RankSummary head(std::string_view name, int rank) {
  RankSummary one;
  one.identity.name = FixedText<16>(name);
  one.identity.rank = rank;
  one.identity.size = 4;
  one.has_met = true;
  return one;
}

bool has_line(const std::string& text, const std::string& line) {
  return ("\n" + text).find("\n" + line + "\n") != std::string::npos;
}

}  // namespace

TEST_CASE("labels escape what would end them", "[metrics]") {
  CHECK(comm::label_value("a \"b\" \\ c\nd") == R"(a \"b\" \\ c\nd)");
  CHECK(comm::label_value("\x01\x7f\xc3\xa9\t") == "?????");
  RankSummary one = head("0123abcd", 0);
  one.identity.label = FixedText<64>("x\"} 1\ny\\");
  CHECK(
      has_line(comm::metrics_text("1", {one}, 0),
               R"(gyre_communicator_info{communicator="0123abcd",rank="0",name="x\"} 1\ny\\"} 1)"));
}

TEST_CASE("the text has each sample once, and waits as long as they last", "[metrics]") {
  RankSummary one = head("0123abcd", 1);
  one.done[0] = {3, 96};
  one.done[15] = {1, 8};
  one.long_waits = 7;
  WaitRecord wait;
  wait.phase = WaitPhase::moving;
  wait.what = BlockedOn::data;
  wait.peer = 2;
  wait.since_ns = 9 * ns_per_s;
  one.waits = {wait, wait};
  one.waits[1].since_ns = 8 * ns_per_s;
  one.failure = FailureRecord();
  one.failure->code = 6;
  RankSummary joins = head("meeting", 0);
  joins.has_met = false;
  const std::string text =
      comm::metrics_text("1.2.3", {one, head("4567", 0), joins}, 10 * ns_per_s);
  INFO(text);
  const std::string rank = R"({communicator="0123abcd",rank="1")";
  CHECK(has_line(text, R"(gyre_build_info{version="1.2.3"} 1)"));
  CHECK(has_line(text, "gyre_communicators 2"));
  CHECK(has_line(text, "gyre_communicator_size" + rank + "} 4"));
  CHECK(has_line(text, "gyre_communicator_failed" + rank + R"(,code="RemoteError"} 1)"));
  CHECK(
      has_line(text, R"(gyre_communicator_failed{communicator="4567",rank="0",code="Success"} 0)"));
  CHECK(has_line(text, "gyre_operations_total" + rank + R"(,collective="AllReduce"} 3)"));
  CHECK(has_line(text, "gyre_operation_bytes_total" + rank + R"(,collective="AllReduce"} 96)"));
  CHECK(has_line(text, "gyre_operations_total" + rank + R"(,collective="SendAndRecv"} 1)"));
  CHECK(has_line(text, "gyre_long_waits_total" + rank + "} 7"));
  CHECK(has_line(text, "gyre_wait_seconds" + rank + R"(,phase="moving",what="data",peer="2"} 2)"));
  CHECK(text.find("meeting") == std::string::npos);
}

namespace {

// The body is long enough to fill the buffers of a visitor who does not read.
struct Served {
  std::unique_ptr<ControlPlane> plane = start_plane();
  std::string path;
  explicit Served(std::string body = "gyre 1\n") {
    char folder[] = "/tmp/gyre-metrics-XXXXXX";
    REQUIRE(mkdtemp(folder) != nullptr);
    path = std::string(folder) + "/door";
    const Status served = plane->serve_metrics("unix:" + path, 3, [body] { return body; });
    INFO(served.full_text());
    REQUIRE(served.ok());
  }
  ~Served() { std::filesystem::remove_all(std::filesystem::path(path).parent_path()); }

  FileDescriptor visit() const {
    const auto place = read_metrics_place("unix:" + path, 0);
    FileDescriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    REQUIRE(connect(socket.get(), place->address.get(), place->address.length) == 0);
    return socket;
  }
};

void say(const FileDescriptor& socket, std::string_view text) {
  (void)::send(socket.get(), text.data(), text.size(), MSG_NOSIGNAL);
}

// All that comes until the other end closes or `seconds` are over.
std::string hear(const FileDescriptor& socket, double seconds = 20) {
  std::string all;
  const std::int64_t until = SystemClock::read() + static_cast<std::int64_t>(seconds * 1e9);
  while (SystemClock::read() < until) {
    pollfd ready{socket.get(), POLLIN, 0};
    if (poll(&ready, 1, 50) <= 0) continue;
    char bytes[65536];
    const ssize_t got = ::recv(socket.get(), bytes, sizeof bytes, 0);
    if (got <= 0) return all;
    all.append(bytes, static_cast<std::size_t>(got));
  }
  return all + "[still open]";
}

constexpr std::string_view request = "GET /metrics HTTP/1.0\r\n\r\n";

}  // namespace

TEST_CASE("the listener answers with a length, closes, and says what it does not answer",
          "[metrics]") {
  const Served served;
  const struct {
    std::string_view request, status;
  } cases[] = {
      {request, "HTTP/1.0 200 OK\r\n"},
      {"GET / HTTP/1.1\r\n\r\n", "HTTP/1.0 404 Not Found\r\n"},
      {"POST /metrics HTTP/1.1\r\n\r\nbody", "HTTP/1.0 405 Method Not Allowed\r\nAllow: GET\r\n"},
      {"nonsense\r\n\r\n", "HTTP/1.0 400 Bad Request\r\n"},
  };
  for (const auto& one : cases) {
    const FileDescriptor visitor = served.visit();
    say(visitor, one.request);
    const std::string heard = hear(visitor);
    INFO(heard);
    CHECK(heard.starts_with(one.status));
    const std::size_t body = heard.find("\r\n\r\n") + 4;
    CHECK(heard.find(fmt::format("\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                                 heard.size() - body)) != std::string::npos);
  }
}

TEST_CASE("a request may come byte by byte, a long answer is read slowly", "[metrics]") {
  const std::string body(4 << 20, 'x');
  const Served served(body);
  const FileDescriptor visitor = served.visit();
  for (const char c : request) {
    say(visitor, std::string_view(&c, 1));
    usleep(1000);
  }
  usleep(100'000);
  CHECK(hear(visitor).ends_with("\r\n\r\n" + body));
}

TEST_CASE("who says nothing, or reads nothing, is out after two seconds", "[metrics]") {
  const Served served(std::string(8 << 20, 'x'));
  const std::int64_t start = SystemClock::read();
  const FileDescriptor silent = served.visit(), deaf = served.visit();
  say(deaf, request);
  CHECK(hear(silent).empty());
  const double seconds = static_cast<double>(SystemClock::read() - start) / 1e9;
  CHECK(seconds > 1.5);
  CHECK(seconds < 6);
  usleep(100'000);
  const std::string heard = hear(deaf);
  CHECK(heard.size() < 8 << 20);
  CHECK(heard.find("[still open]") == std::string::npos);
}

TEST_CASE("silent visitors make room for who comes after them", "[metrics]") {
  const Served served;
  std::vector<FileDescriptor> silent;
  for (int i = 0; i < 8; ++i) silent.push_back(served.visit());
  const std::int64_t start = SystemClock::read();
  const FileDescriptor visitor = served.visit();
  say(visitor, request);
  CHECK(hear(visitor).starts_with("HTTP/1.0 200 OK"));
  // Without making room it would be the two seconds of the silent ones.
  CHECK(SystemClock::read() - start < 1'500 * ns_per_ms);
  CHECK(hear(silent[0], 1).empty());
  CHECK(hear(silent[7], 0.2) == "[still open]");
}

TEST_CASE("a place that is taken is refused by its name, and free again at the end", "[metrics]") {
  std::string path;
  {
    Served first;
    path = first.path;
    const auto second = start_plane();
    const Status taken = second->serve_metrics("unix:" + path, 0, [] { return std::string(); });
    CHECK(taken.code() == Code::InvalidUsage);
    CHECK(taken.message().find(path + " is taken") != std::string_view::npos);
    struct stat file {};
    REQUIRE(stat(path.c_str(), &file) == 0);
    CHECK((file.st_mode & 0777) == 0600);
    first.plane.reset();
    CHECK(stat(path.c_str(), &file) != 0);
  }
  const FileDescriptor other(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const auto any = trust::parse_address("127.0.0.1:0");
  REQUIRE(bind(other.get(), any->get(), any->length) == 0);
  REQUIRE(listen(other.get(), 1) == 0);
  trust::SocketAddress bound;
  bound.length = sizeof bound.storage;
  REQUIRE(getsockname(other.get(), bound.get(), &bound.length) == 0);
  const std::string name = trust::format_address(bound);
  const auto plane = start_plane();
  const Status taken = plane->serve_metrics(name, 0, [] { return std::string(); });
  CHECK(taken.message().find(name + " is taken") != std::string_view::npos);
  CHECK(plane->serve_metrics("0", 5, [] { return std::string(); }).ok());
  CHECK_FALSE(plane->serve_metrics("0", 5, [] { return std::string(); }).ok());
}

namespace {

// A socket's file as a process leaves it that is killed.
void leave_socket(const std::string& path) {
  const auto place = read_metrics_place("unix:" + path, 0);
  const FileDescriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  REQUIRE(bind(socket.get(), place->address.get(), place->address.length) == 0);
  REQUIRE(listen(socket.get(), 1) == 0);
}

std::string refusal(const std::string& path) {
  const auto plane = start_plane();
  const Status served = plane->serve_metrics("unix:" + path, 0, [] { return std::string(); });
  return served.ok() ? "" : std::string(served.message());
}

}  // namespace

TEST_CASE("what a killed process left of its listener does not keep the next one out",
          "[metrics]") {
  Served first;
  const std::string path = std::filesystem::path(first.path).replace_filename("left");
  leave_socket(path);
  CHECK(refusal(path).empty());
  CHECK_FALSE(std::filesystem::exists(path));  // it went with its plane

  leave_socket(path);
  std::atomic<int> served = 0, refused = 0;
  std::vector<std::unique_ptr<ControlPlane>> planes(8);
  std::vector<std::thread> threads;
  for (auto& plane : planes)
    threads.emplace_back([&] {
      plane = std::move(ControlPlane::start(loopback_settings())).value();
      const Status status = plane->serve_metrics("unix:" + path, 0, [] { return std::string(); });
      ++(status.ok() ? served : refused);
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(served == 1);
  CHECK(refused == 7);
}

TEST_CASE("what is not a dead socket of ours is left where it is", "[metrics]") {
  Served first;
  const auto folder = std::filesystem::path(first.path).parent_path();
  CHECK(refusal(first.path).find("a process serves there") != std::string::npos);
  const std::string file = folder / "file", link = folder / "link", left = folder / "left";
  std::ofstream(file) << "mine";
  CHECK(refusal(file).find("not a socket") != std::string::npos);
  leave_socket(left);
  std::filesystem::create_symlink(left, link);
  CHECK(refusal(link).find("not a socket") != std::string::npos);
  if (geteuid() == 0) {
    REQUIRE(chown(left.c_str(), 65534, 65534) == 0);
    CHECK(refusal(left).find("another user (uid 65534)") != std::string::npos);
  }
  CHECK(std::distance(std::filesystem::directory_iterator(folder), {}) == 4);
}

}  // namespace metrics_test
