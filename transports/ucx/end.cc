#include "transports/ucx/end.h"

#include <fmt/core.h>

#include <utility>

namespace gyre::transport {

UcpEnd::UcpEnd(std::string_view toward, int peer_rank, std::shared_ptr<UcpEngine> engine,
               std::shared_ptr<FifoMemory> memory, std::string listener)
    : toward_(toward),
      peer_rank_(peer_rank),
      engine_(std::move(engine)),
      memory_(std::move(memory)),
      process_(std::move(listener)) {}

Status UcpEnd::join_engine() {
  const auto held = engine_->hold();
  GYRE_ASSIGN(link_, engine_->join(*this));
  return {};
}

Status UcpEnd::progress() {
  if (!error_.ok()) return error_;
  const auto held = engine_->hold();
  Status status = needs_no_news() ? turn() : Status();
  if (status.ok() && !needs_no_news()) {
    engine_->progress_since(seen_turns_);
    status = turn();
  }
  if (!status.ok()) fail(std::move(status));
  return error_;
}

void UcpEnd::fail(Status status) {
  const std::string_view way = peer_ != nullptr ? std::string_view(peer_->way) : "not connected";
  error_ = link_failure(std::move(status), fmt::format("{} {} ({})", toward_, peer_rank_, way),
                        peer_rank_);
}

UcpNotice UcpEnd::notice(UcpNoticeKind kind, std::uint64_t number) const {
  UcpNotice made;
  made.kind = kind;
  made.link = peers_link_;
  made.number = number;
  return made;
}

void UcpEnd::arm(WaitSet& set) {
  if (!error_.ok()) return;
  const auto held = engine_->hold();
  // What a turn gives to UCX may have to wait there: so UCX is asked after it.
  constexpr int max_tries = 20;
  for (int i = 0; i < max_tries; ++i) {
    Status status = turn();
    if (!status.ok()) return fail(std::move(status));
    if (engine_->arm(set)) return;
    engine_->progress();
  }
  engine_->stay_awake(set);
}

Status UcpEnd::look_at_peer(std::int64_t now_ns, std::int64_t limit_ns) {
  GYRE_TRY(error_);
  const auto is_closed = [this] {
    const auto held = engine_->hold();
    engine_->progress();
    return is_closed_;
  }();
  GYRE_TRY(progress());
  if (is_closed) return {};
  Status looked = process_.look();
  if (looked.ok()) looked = look_at_host(now_ns, limit_ns);
  if (!looked.ok()) fail(std::move(looked));
  return error_;
}

Status UcpEnd::look_at_host(std::int64_t now_ns, std::int64_t limit_ns) {
  const auto held = engine_->hold();
  if (peer_ == nullptr) return {};
  for (const std::shared_ptr<HostLine>& line : peer_->lines) GYRE_TRY(line->look(now_ns, limit_ns));
  return {};
}

}  // namespace gyre::transport
