#include "lib/control/peer_processes.h"

#include "lib/trust/peer_process.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

namespace gyre::control {
namespace {

pid_t process_behind(int socket) {
  ucred peer = {};
  socklen_t length = sizeof peer;
  return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 ? peer.pid : 0;
}

bool has_ended(const FileDescriptor& process) {
  pollfd state{process.get(), POLLIN, 0};
  return poll(&state, 1, 0) > 0;
}

}  // namespace

std::shared_ptr<PeerProcesses::PeerProcess> PeerProcesses::find(int socket) {
  const pid_t pid = process_behind(socket);
  const auto known = peers_.find(pid);
  // One that has ended is another process than the one at this socket: the number came again.
  if (pid > 0 && known != peers_.end() && !has_ended(known->second->descriptor))
    return known->second;
  auto peer = std::make_shared<PeerProcess>();
  peer->key = pid > 0 ? pid : -static_cast<std::int64_t>(next_id_);
  peer->descriptor = trust::open_peer_process(socket);
  if (!peer->descriptor.has_value()) return nullptr;
  auto watch = thread_.watch(peer->descriptor.get(), EPOLLIN,
                             [this, kept = std::weak_ptr(peer)](std::uint32_t) {
                               if (const auto ended = kept.lock()) tell(ended);
                             });
  if (!watch.ok()) return nullptr;
  peer->watch = std::move(*watch);
  peers_[peer->key] = peer;
  return peer;
}

PeerProcesses::Watch PeerProcesses::watch(int socket, OnEnd on_end) {
  Watch watch;
  watch.owner_ = this;
  watch.peer_ = find(socket);
  if (watch.peer_ == nullptr) return watch;
  watch.id_ = next_id_++;
  watch.peer_->listeners.emplace(watch.id_, std::move(on_end));
  return watch;
}

// Whoever is told may end its own watch and others'.
void PeerProcesses::tell(const std::shared_ptr<PeerProcess>& peer) {
  drop(peer);
  while (!peer->listeners.empty()) peer->listeners.extract(peer->listeners.begin()).mapped()();
}

void PeerProcesses::forget(const std::shared_ptr<PeerProcess>& peer, std::uint64_t id) {
  peer->listeners.erase(id);
  if (peer->listeners.empty()) drop(peer);
}

void PeerProcesses::drop(const std::shared_ptr<PeerProcess>& peer) {
  peer->watch.reset();
  const auto found = peers_.find(peer->key);
  if (found != peers_.end() && found->second == peer) peers_.erase(found);
}

}  // namespace gyre::control
