// PeerProcesses: the processes of this host at the other ends of local sockets. The kernel reports
// their end even if another process still holds the socket. One descriptor for each process,
// whatever the number of communicators with it. On the control thread only.
#pragma once

#include "lib/control/control_thread.h"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>

namespace gyre::control {

class PeerProcesses {
  struct PeerProcess;

 public:
  using OnEnd = std::function<void()>;

  explicit PeerProcesses(ControlThread& thread) : thread_(thread) {}
  PeerProcesses(const PeerProcesses&) = delete;
  PeerProcesses& operator=(const PeerProcesses&) = delete;

  class Watch {
   public:
    Watch() = default;
    Watch(Watch&& other) noexcept { *this = std::move(other); }
    Watch& operator=(Watch&& other) noexcept {
      reset();
      owner_ = other.owner_;
      peer_ = std::exchange(other.peer_, nullptr);
      id_ = other.id_;
      return *this;
    }
    ~Watch() { reset(); }
    void reset() {
      if (peer_ != nullptr) owner_->forget(std::exchange(peer_, nullptr), id_);
    }

   private:
    friend class PeerProcesses;
    PeerProcesses* owner_ = nullptr;
    std::shared_ptr<PeerProcess> peer_;
    std::uint64_t id_ = 0;
  };

  // Calls `on_end` once, when the process that `socket` leads to has ended. A Watch of nothing if
  // the kernel does not tell.
  Watch watch(int socket, OnEnd on_end);
  // How many processes are watched.
  std::size_t size() const { return peers_.size(); }

 private:
  struct PeerProcess {
    std::int64_t key = 0;  // the process id; below zero where there is none that we can see
    FileDescriptor descriptor;
    ControlThread::Watch watch;
    std::map<std::uint64_t, OnEnd> listeners;
  };
  std::shared_ptr<PeerProcess> find(int socket);
  void tell(const std::shared_ptr<PeerProcess>& peer);
  void forget(const std::shared_ptr<PeerProcess>& peer, std::uint64_t id);
  void drop(const std::shared_ptr<PeerProcess>& peer);

  ControlThread& thread_;
  std::map<std::int64_t, std::shared_ptr<PeerProcess>> peers_;  // by key
  std::uint64_t next_id_ = 1;
};

}  // namespace gyre::control
