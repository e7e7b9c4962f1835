#include "lib/control/trunks.h"

#include "lib/base/log.h"

#include <algorithm>

namespace gyre::control {

Trunks::Trunks(ControlThread& thread, const trust::Tls& tls, const trust::ProcessIdentity& self,
               LinkTaker& taker)
    : thread_(thread), tls_(tls), self_(self), taker_(taker) {}

Trunk* Trunks::find(const trust::Token& host, const std::string& listener_name) const {
  if (listener_name.empty()) return nullptr;
  const auto found = std::find_if(trunks_.begin(), trunks_.end(), [&](const auto& trunk) {
    const auto& peer = trunk->peer();
    return peer && peer->host == host && peer->listener_name == listener_name;
  });
  return found == trunks_.end() ? nullptr : found->get();
}

Trunk* Trunks::adopt(std::unique_ptr<trust::SecureSession> session, trust::SessionRole role,
                     bool separate) {
  TrunkOwner& owner = *this;
  auto trunk = std::make_unique<Trunk>(thread_, owner, std::move(session), role, separate);
  const Status opened = trunk->open(processes_, self_);
  if (!opened.ok()) {
    log_warn("a control connection cannot be served: {}", opened.message());
    return nullptr;
  }
  trunks_.push_back(std::move(trunk));
  return trunks_.back().get();
}

// Two that dialed one process at a time would each keep a trunk: the later one yields.
void Trunks::on_greeting(Trunk& trunk) {
  const trust::ProcessIdentity& peer = *trunk.peer();
  Trunk* other = trunk.is_separate() ? nullptr : find(peer.host, peer.listener_name);
  if (other == nullptr || other == &trunk) return trunk.ask_waiting();
  for (Trunk::PendingLink& opening : trunk.take_waiting()) other->open_link(std::move(opening));
}

void Trunks::on_end(Trunk& trunk) {
  const auto found = std::find_if(trunks_.begin(), trunks_.end(),
                                  [&](const auto& known) { return known.get() == &trunk; });
  if (found == trunks_.end()) return;
  thread_.retire(std::move(*found));
  trunks_.erase(found);
}

std::int64_t Trunks::tick(std::int64_t now_ns, std::int64_t overslept_ns) {
  // One that ends takes itself out of the list.
  std::vector<Trunk*> trunks;
  for (const auto& trunk : trunks_) trunks.push_back(trunk.get());
  std::int64_t next = never_ns;
  for (Trunk* trunk : trunks) next = std::min(next, trunk->tick(now_ns, overslept_ns));
  return next;
}

bool Trunks::flushed() const {
  return std::all_of(trunks_.begin(), trunks_.end(),
                     [](const auto& trunk) { return trunk->flushed(); });
}

}  // namespace gyre::control
