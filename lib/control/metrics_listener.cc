#include "lib/control/metrics_listener.h"

#include "lib/base/clock.h"
#include "lib/base/log.h"
#include "lib/trust/address.h"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <fcntl.h>
#include <filesystem>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

namespace gyre::control {
namespace {

constexpr std::size_t max_clients = 8;
constexpr int backlog = 256;
constexpr std::int64_t client_patience_ns = 2 * ns_per_s;
// So long is nobody pushed out: a request is on its way when its connection is accepted.
constexpr std::int64_t min_stay_ns = 100 * ns_per_ms;
// Without descriptors or memory nobody is accepted for so long.
constexpr std::int64_t metrics_deaf_ns = 100 * ns_per_ms;
constexpr std::int64_t max_turn_ns = ns_per_s;
// Read and dropped behind a request, so that closing does not take the answer back.
constexpr std::size_t max_ignored = 64 << 10;

std::string answer_to(RequestKind asked, const MetricsListener::MakeText& text) {
  std::string_view status, body, more;
  std::string metrics;
  switch (asked) {
    case RequestKind::metrics:
      status = "200 OK";
      body = metrics = text();
      break;
    case RequestKind::other_path:
      status = "404 Not Found";
      body = "there is only /metrics here\n";
      break;
    case RequestKind::other_method:
      status = "405 Method Not Allowed";
      more = "Allow: GET\r\n";
      body = "only GET is answered here\n";
      break;
    default:
      status = "400 Bad Request";
      body = "this is not an HTTP/1 request, or it has more than 2 KiB\n";
  }
  return fmt::format(
      "HTTP/1.0 {}\r\n{}Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
      "Content-Length: {}\r\nConnection: close\r\n\r\n{}",
      status, more, body.size(), body);
}

bool try_later(int error) { return error == EAGAIN || error == EINTR; }

Status taken(const std::string& name, std::string_view how) {
  return invalid_usage(fmt::format(
      "GYRE_METRICS: {} is taken: {}. Give each process of a host its own (GYRE_LOCAL_RANK is "
      "added to a port, %p in a path becomes the process id), or port 0",
      name, how));
}

Status cannot_bind(const std::string& name) {
  return Status::from_errno(fmt::format("binding {} for GYRE_METRICS", name), errno);
}

Status cannot_listen(const std::string& name) {
  return Status::from_errno(fmt::format("listening at {} for GYRE_METRICS", name), errno);
}

int bind_error(const FileDescriptor& socket, const MetricsPlace& place) {
  return ::bind(socket.get(), place.address.get(), place.address.length) == 0 ? 0 : errno;
}

// Processes that clear away what is left and bind there do so in turn, or one would take another's
// new socket for what was left. Others may hold the folder's lock for ever, so that the turn comes
// after a second at the latest.
FileDescriptor take_turn(const std::filesystem::path& folder) {
  FileDescriptor turn(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const std::int64_t end_ns = SystemClock::read() + max_turn_ns;
  while (turn.has_value() && ::flock(turn.get(), LOCK_EX | LOCK_NB) != 0 &&
         SystemClock::read() < end_ns)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return turn;
}

// Success: what a process left that is gone now, of our own user, is no longer there.
Status clear_away(const MetricsPlace& place) {
  struct stat file {};
  if (lstat(place.path.c_str(), &file) != 0)
    return errno == ENOENT ? Status() : cannot_bind(place.path);
  if (!S_ISSOCK(file.st_mode)) return taken(place.path, "the file there is not a socket");
  if (file.st_uid != geteuid())
    return taken(place.path,
                 fmt::format("a socket of another user (uid {}) is there", file.st_uid));
  const FileDescriptor probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!probe.has_value()) return Status::from_errno("socket for GYRE_METRICS", errno);
  const bool refused = ::connect(probe.get(), place.address.get(), place.address.length) != 0 &&
                       errno == ECONNREFUSED;
  if (!refused) return taken(place.path, "a process serves there");
  if (::unlink(place.path.c_str()) != 0 && errno != ENOENT)
    return Status::from_errno(
        fmt::format("removing {}, the socket of a process that was killed", place.path), errno);
  log_info(Subsystem::init, "GYRE_METRICS: replaced {}, the socket of a process that was killed",
           place.path);
  return {};
}

}  // namespace

Result<std::unique_ptr<MetricsListener>> MetricsListener::open(ControlThread& thread,
                                                               const MetricsPlace& place,
                                                               MakeText text) {
  std::unique_ptr<MetricsListener> listener(new MetricsListener(thread, std::move(text)));
  GYRE_TRY(listener->listen(place));
  return listener;
}

Status MetricsListener::listen(const MetricsPlace& place) {
  const bool local = !place.path.empty();
  name_ = local ? place.path : trust::format_address(place.address);
  const int family = place.address.family();
  listener_ = FileDescriptor(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!listener_.has_value()) return Status::from_errno("socket for GYRE_METRICS", errno);
  return local ? listen_at_path(place) : listen_at_port(place);
}

Status MetricsListener::listen_at_port(const MetricsPlace& place) {
  // A process before this one may have left connections that nobody uses any more; two that listen
  // at once are refused all the same.
  const int one = 1;
  ::setsockopt(listener_.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  if (::bind(listener_.get(), place.address.get(), place.address.length) != 0)
    return errno == EADDRINUSE ? taken(name_, "others hold it") : cannot_bind(name_);
  if (::listen(listener_.get(), backlog) != 0)
    return errno == EADDRINUSE ? taken(name_, "others listen there") : cannot_listen(name_);
  trust::SocketAddress bound;
  bound.length = sizeof bound.storage;
  if (getsockname(listener_.get(), bound.get(), &bound.length) != 0)
    return Status::from_errno("getsockname", errno);
  name_ = trust::format_address(bound);
  return {};
}

Status MetricsListener::listen_at_path(const MetricsPlace& place) {
  // The file gets this mode: only who runs the job may ask.
  if (fchmod(listener_.get(), 0600) != 0)
    return Status::from_errno("fchmod of the socket for GYRE_METRICS", errno);
  const FileDescriptor turn = take_turn(std::filesystem::path(place.path).parent_path());
  int error = bind_error(listener_, place);
  if (error == EADDRINUSE) {
    GYRE_TRY(clear_away(place));
    error = bind_error(listener_, place);
  }
  if (error == EADDRINUSE) return taken(name_, "another process has just begun to serve there");
  errno = error;
  if (error != 0) return cannot_bind(name_);
  struct stat file {};
  if (lstat(place.path.c_str(), &file) != 0)
    return Status::from_errno(fmt::format("stat of {}", place.path), errno);
  path_ = place.path;
  device_ = file.st_dev;
  inode_ = file.st_ino;
  return ::listen(listener_.get(), backlog) == 0 ? Status() : cannot_listen(name_);
}

// Its file goes with it, unless somebody has put another one there.
MetricsListener::~MetricsListener() {
  struct stat file {};
  if (path_.empty() || lstat(path_.c_str(), &file) != 0) return;
  if (file.st_dev == device_ && file.st_ino == inode_) ::unlink(path_.c_str());
}

Status MetricsListener::serve() {
  GYRE_ASSIGN(watch_,
              thread_.watch(listener_.get(), EPOLLIN, [this](std::uint32_t) { accept_some(); }));
  return {};
}

// As many as may be in, so that the job's own news is not kept waiting.
void MetricsListener::accept_some() {
  for (std::size_t i = 0; i < max_clients; ++i) {
    if (clients_.size() >= max_clients && !make_room()) return;
    FileDescriptor socket = trust::accept_at(listener_);
    if (socket.has_value()) {
      let_in(std::move(socket));
      continue;
    }
    if (errno == EINTR || errno == ECONNABORTED) continue;
    if (errno != EAGAIN) rest_until(SystemClock::read() + metrics_deaf_ns);
    return;  // a connection that still waits wakes us again
  }
}

bool MetricsListener::make_room() {
  const std::int64_t earliest_ns = clients_.front().since_ns + min_stay_ns;
  if (SystemClock::read() < earliest_ns) {
    rest_until(earliest_ns);
    return false;
  }
  leave(clients_.begin());
  return true;
}

void MetricsListener::rest_until(std::int64_t time_ns) {
  watch_.change(0);
  deaf_until_ns_ = time_ns;
  thread_.due_at(time_ns);
}

void MetricsListener::let_in(FileDescriptor socket) {
  const int descriptor = socket.get();
  const ClientIterator client = clients_.emplace(clients_.end());
  client->socket = std::move(socket);
  client->since_ns = SystemClock::read();
  thread_.due_at(client->since_ns + client_patience_ns);
  auto watch =
      thread_.watch(descriptor, EPOLLIN, [this, client](std::uint32_t) { on_event(client); });
  if (!watch.ok()) return leave(client);
  client->watch = std::move(*watch);
  read_request(client);  // it is often there already
}

void MetricsListener::on_event(ClientIterator client) {
  if (client->answer.empty()) return read_request(client);
  if (client->sent < client->answer.size()) return write_answer(client);
  see_off(client);
}

void MetricsListener::read_request(ClientIterator client) {
  char bytes[max_request_bytes];
  const std::size_t room = max_request_bytes - client->request.size();
  const ssize_t got = ::recv(client->socket.get(), bytes, room, MSG_DONTWAIT);
  if (got < 0 && try_later(errno)) return;
  if (got <= 0) return leave(client);
  client->request.append(bytes, static_cast<std::size_t>(got));
  const RequestKind asked = judge_request(client->request);
  if (asked == RequestKind::unclear) return;
  client->answer = answer_to(asked, text_);
  write_answer(client);
}

void MetricsListener::write_answer(ClientIterator client) {
  const std::string_view left = std::string_view(client->answer).substr(client->sent);
  const ssize_t sent =
      ::send(client->socket.get(), left.data(), left.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent < 0 && !try_later(errno)) return leave(client);
  client->sent += static_cast<std::size_t>(std::max<ssize_t>(sent, 0));
  if (client->sent < client->answer.size()) return client->watch.change(EPOLLOUT);
  ::shutdown(client->socket.get(), SHUT_WR);
  client->watch.change(EPOLLIN);
}

// Until it closes its end, or its time is up.
void MetricsListener::see_off(ClientIterator client) {
  char bytes[max_request_bytes];
  const ssize_t got = ::recv(client->socket.get(), bytes, sizeof bytes, MSG_DONTWAIT);
  if (got < 0 && try_later(errno)) return;
  if (got <= 0) return leave(client);
  client->ignored += static_cast<std::size_t>(got);
  if (client->ignored > max_ignored) leave(client);
}

void MetricsListener::leave(ClientIterator client) {
  // A forked child may hold the same connection.
  ::shutdown(client->socket.get(), SHUT_RDWR);
  client->watch.reset();
  clients_.erase(client);
  deaf_until_ns_ = 0;
  watch_.change(EPOLLIN);
}

std::int64_t MetricsListener::tick(std::int64_t now_ns) {
  while (!clients_.empty() && clients_.front().since_ns + client_patience_ns <= now_ns)
    leave(clients_.begin());
  if (deaf_until_ns_ != 0 && deaf_until_ns_ <= now_ns) {
    deaf_until_ns_ = 0;
    watch_.change(EPOLLIN);
  }
  const std::int64_t next =
      clients_.empty() ? never_ns : clients_.front().since_ns + client_patience_ns;
  return deaf_until_ns_ == 0 ? next : std::min(next, deaf_until_ns_);
}

}  // namespace gyre::control
