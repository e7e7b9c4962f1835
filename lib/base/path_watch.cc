#include "lib/base/path_watch.h"

#include "lib/base/clock.h"

#include <algorithm>
#include <climits>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#ifndef TCP_RTO_MAX_MS
#define TCP_RTO_MAX_MS 44  // linux/tcp.h, since Linux 6.15
#endif

namespace gyre {
namespace {

constexpr int kernels_repeat_ms = 120'000;  // TCP_RTO_MAX

void set(int socket, int level, int option, int value) {
  // What the kernel does not know, or a sandbox forbids, stays as it is: the path is found cut
  // later then, by the kernel's own repeats.
  (void)setsockopt(socket, level, option, &value, sizeof value);
}

}  // namespace

std::optional<PathSight> look_at_path(int socket) {
  tcp_info info{};
  socklen_t length = sizeof info;
  if (getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return std::nullopt;
  PathSight sight;
  sight.has_questions = info.tcpi_unacked > 0 || info.tcpi_probes > 0;
  sight.has_sent_nothing_else = info.tcpi_unacked == 0 && info.tcpi_notsent_bytes > 0;
  sight.probes = info.tcpi_probes;
  sight.repeats = info.tcpi_retransmits;
  sight.heard_ago_ns =
      std::int64_t{std::min(info.tcpi_last_ack_recv, info.tcpi_last_data_recv)} * ns_per_ms;
  sight.answered_bytes = info.tcpi_bytes_acked;
  return sight;
}

std::optional<std::int64_t> PathWatch::find_cut(int socket, std::int64_t now_ns,
                                                std::int64_t limit_ns) {
  const auto sight = look_at_path(socket);
  if (!sight) return std::nullopt;
  const auto silent_ns = judge(*sight, now_ns, limit_ns);
  set(socket, IPPROTO_TCP, TCP_RTO_MAX_MS, max_repeat_ms(now_ns, limit_ns));
  return silent_ns;
}

int PathWatch::max_repeat_ms(std::int64_t now_ns, std::int64_t limit_ns) const {
  constexpr std::int64_t doubt_ns = 500 * ns_per_ms;
  if (!is_asking() || now_ns - asked_since_ns_ < doubt_ns) return kernels_repeat_ms;
  return static_cast<int>(
      std::clamp<std::int64_t>(limit_ns / ns_per_ms / 7, 1000, kernels_repeat_ms));
}

std::optional<std::int64_t> PathWatch::judge(const PathSight& sight, std::int64_t now_ns,
                                             std::int64_t limit_ns) {
  if (!sight.has_questions) {
    asked_since_ns_ = 0;
    return std::nullopt;
  }
  // Packets that come may be no answers: where those of one way are lost, the other end goes on for
  // a while.
  if (asked_since_ns_ == 0 || sight.answered_bytes != answered_bytes_) asked_since_ns_ = now_ns;
  answered_bytes_ = sight.answered_bytes;
  // One probe may be lost, and the next one come minutes later.
  if (sight.has_sent_nothing_else && sight.probes < 2) return std::nullopt;
  const std::int64_t asked_ns = now_ns - asked_since_ns_;
  const bool is_silent = asked_ns >= limit_ns / 2 && sight.heard_ago_ns >= limit_ns;
  const bool is_unanswered = asked_ns >= limit_ns && sight.repeats > 1;
  if (!is_silent && !is_unanswered) return std::nullopt;
  return std::max(asked_ns, sight.heard_ago_ns);
}

void set_path_questions(int socket, std::int64_t limit_ns) {
  constexpr int max_idle_s = 5, max_questions = 127, max_interval_s = 32767;  // of the kernel
  const auto limit_s = static_cast<int>(std::min<std::int64_t>(limit_ns / ns_per_s, INT_MAX / 2));
  set(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set(socket, IPPROTO_TCP, TCP_KEEPIDLE, std::clamp(limit_s / 3, 1, max_idle_s));
  set(socket, IPPROTO_TCP, TCP_KEEPINTVL, std::min(1 + limit_s / max_questions, max_interval_s));
  set(socket, IPPROTO_TCP, TCP_KEEPCNT, max_questions);
}

void end_path_watch(int socket) { set(socket, IPPROTO_TCP, TCP_RTO_MAX_MS, kernels_repeat_ms); }

}  // namespace gyre
