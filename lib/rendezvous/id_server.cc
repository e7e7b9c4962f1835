#include "lib/rendezvous/id_server.h"

#include "lib/trust/address.h"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>

namespace gyre::rendezvous {
namespace {

constexpr std::int64_t max_visit_ns = 2 * ns_per_s;
constexpr std::int64_t tick_ns = ns_per_s / 4;
constexpr int accepts_at_once = 64;
constexpr std::uint64_t listener_key = 0, timer_key = 1, first_client_key = 2;

}  // namespace

Result<std::shared_ptr<IdServer>> IdServer::start(FileDescriptor listener,
                                                  const RendezvousAddress& point,
                                                  const IdExchange& meeting) {
  std::shared_ptr<IdServer> server(new IdServer);
  server->epoll_ = FileDescriptor(epoll_create1(EPOLL_CLOEXEC));
  server->timer_ = FileDescriptor(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
  if (!server->epoll_.has_value() || !server->timer_.has_value())
    return Status::from_errno("preparing to hand out the id", errno);
  const itimerspec every = {{0, tick_ns}, {0, tick_ns}};
  timerfd_settime(server->timer_.get(), 0, &every, nullptr);
  server->listener_ = std::move(listener);
  server->point_ = point;
  server->meeting_ = meeting;
  server->next_key_ = first_client_key;
  GYRE_ASSIGN(const auto id, trust::encode(meeting.id));
  server->answer_ = encode_id(id);
  GYRE_TRY(server->watch(EPOLL_CTL_ADD, server->listener_.get(), EPOLLIN, listener_key));
  GYRE_TRY(server->watch(EPOLL_CTL_ADD, server->timer_.get(), EPOLLIN, timer_key));
  return server;
}

Status IdServer::watch(int operation, int descriptor, std::uint32_t events, std::uint64_t key) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = key;
  if (epoll_ctl(epoll_.get(), operation, descriptor, &event) == 0) return Status();
  return Status::from_errno("epoll_ctl for the server of the id", errno);
}

bool IdServer::serve() {
  epoll_event events[32];
  const int count = epoll_wait(epoll_.get(), events, 32, 0);
  for (int i = 0; i < count; ++i) {
    const std::uint64_t key = events[i].data.u64;
    if (key == listener_key) accept_some();
    if (key == timer_key) tick();
    if (const auto visit = clients_.find(key); visit != clients_.end()) look_after(visit);
  }
  return !done();
}

void IdServer::look_after(IdClients::iterator visit) {
  IdClient& client = visit->second;
  if (!attend(client)) return leave(visit);
  // Edges: what it has said so far stays in the kernel, and says nothing new.
  if (client.line.is_unnamed()) return;
  const std::uint32_t wanted = client.line.wants_to_write() ? EPOLLIN | EPOLLOUT : EPOLLIN;
  (void)watch(EPOLL_CTL_MOD, client.line.descriptor(), wanted, visit->first);
}

// Few at a time, so that what else the control thread does is not kept waiting.
void IdServer::accept_some() {
  for (int i = 0; i < accepts_at_once; ++i) {
    FileDescriptor socket = trust::accept_at(listener_);
    if (socket.has_value()) {
      admit(std::move(socket));
      continue;
    }
    if (errno == EINTR || errno == ECONNABORTED) continue;
    if (errno == EAGAIN) return;
    const Status why = Status::from_errno(fmt::format("accepting at {}", point_.text), errno);
    warnings_.write(why.message());
    if (make_room()) return;  // a connection that still waits wakes us again
    // Out of descriptors or memory: no use in being told of it again before the next tick.
    accepting_ = !watch(EPOLL_CTL_MOD, listener_.get(), 0, listener_key).ok();
    return;
  }
}

// The oldest goes who has not named our key; if there is none, the oldest without an answer.
bool IdServer::make_room() {
  const auto oldest = [&](auto&& fits) {
    return std::find_if(clients_.begin(), clients_.end(),
                        [&](const auto& visit) { return fits(visit.second); });
  };
  auto found = oldest([](const IdClient& client) { return client.line.is_unnamed(); });
  if (found == clients_.end())
    found = oldest([](const IdClient& client) { return !client.answered; });
  if (found == clients_.end()) return false;
  clients_.erase(found);
  return true;
}

void IdServer::admit(FileDescriptor socket) {
  if (!point_.network)
    if (const Status same = check_same_user(socket.get()); !same.ok())
      return warnings_.write(fmt::format("{}: {}", point_.text, same.message()));
  const std::size_t most = 2 * std::size_t{meeting_.size} + 64;
  if (clients_.size() >= most && !make_room()) return;
  auto line = IdConnection::make(IdConnection::Side::answering, std::move(socket), point_.network);
  const std::uint64_t key = next_key_++;
  if (!line.ok() ||
      !watch(EPOLL_CTL_ADD, line->descriptor(), EPOLLIN | EPOLLRDHUP | EPOLLET, key).ok())
    return;
  // What it wants is often there already, and then it is no unauthenticated client to those who
  // come next.
  look_after(
      clients_.emplace(key, IdClient{std::move(*line), SystemClock::read() + max_visit_ns}).first);
}

bool IdServer::attend(IdClient& client) {
  const Status flushed = client.line.flush();
  const auto message = client.line.receive();
  if (client.answered) return flushed.ok() && message.ok() && !message->has_value();
  Status status = flushed.ok() ? message.status() : flushed;
  if (status.ok() && !message->has_value()) return true;
  if (status.ok()) status = reply(client, **message);
  if (!status.ok()) note_end(client, status);
  return status.ok();
}

void IdServer::note_end(const IdClient& client, const Status& why) {
  // One of us that was killed, or is ahead of us: no unauthenticated client, and if it lives it
  // asks again.
  if (client.known || client.line.departed())
    return log_info(Subsystem::bootstrap, "{}: a rank left without the id: {}", point_.text,
                    why.message());
  warnings_.write(
      fmt::format("turned an unauthenticated client away at {}: {}", point_.text, why.message()));
}

Status IdServer::reply(IdClient& client, const IdMessage& message) {
  const auto request = decode_id_request(message);
  if (!request.ok() && request.status().code() != Code::Mismatch) return request.status();
  client.known = request.ok();
  // A rank that is ahead of us finds the next meeting when it asks again.
  if (request.ok() && request->meeting != meeting_.number)
    return Status(Code::RemoteError, "it asked for another meeting");
  const std::string why =
      request.ok() ? objection(*request) : std::string(request.status().message());
  client.answered = true;
  if (!why.empty()) {
    log_warn("{}: refused a rank: {}", point_.text, why);
    return client.line.send(encode_refusal(why));
  }
  process_of_[request->rank] = request->process;
  GYRE_TRY(client.line.send(answer_));
  client.rank = request->rank;
  return Status();
}

std::string IdServer::objection(const IdRequest& request) const {
  if (request.size != meeting_.size)
    return fmt::format("this job has {} ranks, but you were started as rank {} of {}",
                       meeting_.size, request.rank, request.size);
  if (request.rank == 0 || request.rank >= meeting_.size)
    return fmt::format("you cannot be rank {} of {}", request.rank, meeting_.size);
  const auto known = process_of_.find(request.rank);
  if (known != process_of_.end() && known->second != request.process)
    return fmt::format(
        "another process already met as rank {}. If two jobs run at once, give each "
        "its own GYRE_JOB_ID",
        request.rank);
  return {};
}

void IdServer::leave(IdClients::iterator visit) {
  if (visit->second.rank) served_.insert(*visit->second.rank);
  clients_.erase(visit);
}

void IdServer::tick() {
  std::uint64_t ticks = 0;
  (void)!::read(timer_.get(), &ticks, sizeof ticks);
  const std::int64_t now_ns = SystemClock::read();
  for (auto visit = clients_.begin(); visit != clients_.end();) {
    const auto current = visit++;
    if (now_ns >= current->second.end_ns) leave(current);
  }
  if (!std::exchange(accepting_, true))
    accepting_ = watch(EPOLL_CTL_MOD, listener_.get(), EPOLLIN, listener_key).ok();
  over_ = now_ns >= meeting_.deadline_ns;
}

namespace {

// One visit. Nothing: rank 0 is not there, or not yet able to answer.
Result<std::optional<trust::UniqueId>> visit(const RendezvousAddress& point,
                                             const IdRequest& request, Wait& wait,
                                             std::string* reason) {
  GYRE_ASSIGN(FileDescriptor socket, connect_to_address(point, wait, reason));
  if (!socket.has_value()) return std::optional<trust::UniqueId>();
  GYRE_ASSIGN(IdConnection line,
              IdConnection::make(IdConnection::Side::asking, std::move(socket), point.network));
  *reason = "connected, but no answer";
  Status status = line.send(encode(request));
  while (status.ok()) {
    auto message = line.receive();
    status = message.status();
    if (status.ok() && message->has_value()) {
      auto id = decode_answer(**message);
      trust::wipe(**message);
      if (!id.ok()) return std::move(id).status();
      return std::optional(*id);
    }
    const short events = line.wants_to_write() ? POLLIN | POLLOUT : POLLIN;
    if (status.ok() && !rest(wait, line.descriptor(), events))
      return std::optional<trust::UniqueId>();
  }
  *reason = fmt::format("connected, but {}", status.message());
  return std::optional<trust::UniqueId>();
}

}  // namespace

Result<trust::UniqueId> ask_for_id(const RendezvousAddress& point, const IdRequest& request,
                                   const std::optional<trust::UniqueId>& tried,
                                   std::int64_t timeout_s, Wait& wait) {
  std::string reason = "not tried", last_said;
  do {
    GYRE_ASSIGN(const std::optional<trust::UniqueId> id, visit(point, request, wait, &reason));
    const bool was_tried = id && tried && id->secret == tried->secret;
    if (id && !was_tried) return *id;
    if (was_tried) reason = "connected, but it gave the id of a meeting that has failed";
    // Somebody is there, but it is not the rank 0 that we look for, or not with our secret.
    if (reason.starts_with("connected, but ") && std::exchange(last_said, reason) != reason)
      log_info(Subsystem::bootstrap, "{}: {}; trying again", point.text, reason);
  } while (rest(wait));
  const bool refused = !reason.starts_with("connected");
  return Status(
             Code::Timeout,
             fmt::format(
                 "rank 0 has not {} at {} within {} s (last attempt: {}). {}",
                 refused ? "opened the meeting" : "answered", point.text, timeout_s, reason,
                 point.network
                     ? "Is rank 0 running at this address, with the same secret file?"
                     : "Is rank 0 running on this host and in this network namespace, as the same "
                       "user and with the same job id?"))
      .blame({0});
}

}  // namespace gyre::rendezvous
