// Rendezvous for tests: ranks are forked processes, each with a small control plane of its own. So
// every way of passing the id is tried with real sockets, files and deadlines.
#pragma once

#include "lib/rendezvous/id_connection.h"
#include "lib/rendezvous/rendezvous.h"
#include "lib/rendezvous/rendezvous_address.h"
#include "lib/trust/derive.h"
#include "tests/support/catch.h"

#include <fmt/core.h>

#include <chrono>
#include <fcntl.h>
#include <mutex>
#include <netinet/in.h>
#include <poll.h>
#include <sys/wait.h>
#include <thread>

namespace gyre::rendezvous::test {

using namespace control;

// What meet() needs of a control plane: ids, an identity, and a thread that watches descriptors.
class SmallPlane final : public ControlPlane {
 public:
  ~SmallPlane() override {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }
  const trust::ProcessIdentity& identity() const override { return identity_; }
  trust::TicketBook& tickets() override { return tickets_; }
  Result<trust::UniqueId> create_unique_id(Audience, const Settings&) override {
    GYRE_ASSIGN(const trust::Secret secret, trust::random_secret());
    return create_root(secret);
  }
  Result<trust::UniqueId> create_root(const trust::Secret& secret) override {
    if (!fails.ok()) return fails;
    return trust::id_on_this_host(secret);
  }
  Result<std::string> listen_on_this_host(const Settings&) override {
    return internal_error("this plane listens nowhere");
  }
  Result<std::shared_ptr<Membership>> join(const trust::UniqueId&, int, int, MessageBytes,
                                           const Settings&) override {
    return internal_error("this plane joins nobody");
  }
  void renounce(const trust::UniqueId&, const Status&) override {}
  Status end_failed_meetings() override { return {}; }
  Status watch(const trust::UniqueId&, int descriptor, std::function<bool()> on_readable) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    watches_.push_back({descriptor, std::move(on_readable)});
    if (!thread_.joinable()) thread_ = std::thread([this] { serve(); });
    return Status();
  }
  Status serve_metrics(const std::string&, int, std::function<std::string()>) override {
    return internal_error("this plane serves no metrics");
  }
  void close() override {}
  bool idle() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return watches_.empty();
  }

  Status fails;

 private:
  struct Watch {
    int descriptor;
    std::function<bool()> on_readable;
  };
  void serve() {
    while (!stop_) {
      {
        const std::lock_guard<std::mutex> lock(mutex_);
        std::erase_if(watches_, [](Watch& watch) {
          pollfd ready{watch.descriptor, POLLIN, 0};
          return poll(&ready, 1, 0) == 1 && !watch.on_readable();
        });
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  trust::ProcessIdentity identity_ = *trust::describe_this_process();
  trust::TicketBook tickets_;
  std::mutex mutex_;
  std::vector<Watch> watches_;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

inline std::string test_name(const char* what) { return fmt::format("test {} {}", getpid(), what); }

inline LaunchPlace place_of(int rank, int size, const std::string& job) {
  LaunchPlace place;
  place.rank = place.local_rank = rank;
  place.size = place.local_size = size;
  place.job_id = job;
  return place;
}

inline Settings with_timeout(int seconds) {
  Settings settings;
  settings.init_timeout_s = seconds;
  return settings;
}

inline std::string report(const Result<trust::UniqueId>& id) {
  if (!id.ok())
    return fmt::format("{}: {}", static_cast<int>(id.status().code()), id.status().message());
  return "id " + trust::hexadecimal(*trust::encode(*id));
}

struct Child {
  pid_t pid;
  FileDescriptor report;
};

// A process that runs `body` and sends what it returns. It ends by itself, at the latest by
// SIGALRM.
inline Child start(const std::function<std::string()>& body) {
  int ends[2] = {-1, -1};
  REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
  FileDescriptor reading(ends[0]), writing(ends[1]);
  const pid_t pid = fork();
  REQUIRE(pid >= 0);
  if (pid == 0) {
    alarm(30);
    const std::string text = body();
    const ssize_t put = write(writing.get(), text.data(), text.size());
    _exit(put == static_cast<ssize_t>(text.size()) ? 0 : 1);
  }
  return {pid, std::move(reading)};
}

inline std::string finish(Child child) {
  std::string text;
  char piece[512];
  for (ssize_t got; (got = read(child.report.get(), piece, sizeof piece)) > 0;)
    text.append(piece, static_cast<std::size_t>(got));
  int status = 0;
  waitpid(child.pid, &status, 0);
  return status == 0 ? text : fmt::format("ended with {}: {}", status, text);
}

inline std::string meet_and_stay(const Settings& settings, const LaunchPlace& place) {
  SmallPlane plane;
  const auto id = meet(plane, settings, place);
  // Rank 0 stays until it has nothing left to hand out, as a real job's does until all have joined.
  for (int i = 0; i < 25000 && !plane.idle() && settings.rendezvous_file.empty(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return report(id);
}

// What each rank of a job reports; ranks start from the last to the first.
inline std::vector<std::string> run_job(int size,
                                        const std::function<std::string(int rank)>& body) {
  std::vector<Child> children;
  for (int rank = size - 1; rank >= 0; --rank)
    children.push_back(start([&] { return body(rank); }));
  std::vector<std::string> reports(static_cast<std::size_t>(size));
  for (int i = 0; i < size; ++i)
    reports[static_cast<std::size_t>(size - 1 - i)] =
        finish(std::move(children[static_cast<std::size_t>(i)]));
  return reports;
}

inline void check_same_id(const std::vector<std::string>& reports) {
  for (const std::string& text : reports) {
    CHECK(text.substr(0, 3) == "id ");
    CHECK(text == reports[0]);
  }
}

inline bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != text.npos;
}

inline FileDescriptor connect_to(const RendezvousAddress& point) {
  const trust::SocketAddress& address = point.addresses.front();
  FileDescriptor socket(::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
  for (int i = 0; i < 5000; ++i) {
    if (connect(socket.get(), address.get(), address.length) == 0) return socket;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return {};
}

// What the other end says until it closes or a whole message is there; "timeout" after 10 s.
inline std::string hear(int socket) {
  std::string text;
  char piece[256];
  pollfd ready{socket, POLLIN, 0};
  while (text.empty() || text.size() <= static_cast<unsigned char>(text[0])) {
    if (poll(&ready, 1, 10000) != 1) return "timeout";
    const ssize_t got = recv(socket, piece, sizeof piece, 0);
    if (got <= 0) return text;
    text.append(piece, static_cast<std::size_t>(got));
  }
  return text;
}

inline void say(int socket, std::string_view text) {
  (void)(send(socket, text.data(), text.size(), MSG_NOSIGNAL) < 0);
}

inline std::string as_text(const IdMessage& message) {
  return std::string(1, static_cast<char>(message.size())) +
         std::string(message.begin(), message.end());
}

// A port that nothing listens at. Not one of those that the kernel gives to clients, which would
// take it, or even connect to themselves, before it is used.
inline int free_port() {
  static int next = getpid();
  for (int i = 0; i < 1000; ++i) {
    const int port = 20000 + ++next % 10000;
    const FileDescriptor probe(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (bind(probe.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) return port;
  }
  FAIL("no port is free");
  return 0;
}

inline std::string id_bytes() {
  const auto bytes = *trust::encode(*trust::id_on_this_host(*trust::random_secret()));
  return {bytes.begin(), bytes.end()};
}

}  // namespace gyre::rendezvous::test
