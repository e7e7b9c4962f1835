#include "transports/rdma/link.h"

#include "lib/base/log.h"
#include "transports/rdma/completion.h"

#include <fmt/core.h>

#include <algorithm>

namespace gyre::transport {
namespace {

constexpr std::int64_t questions_within_limit = 8;

std::string_view kind_text(WorkKind kind) {
  switch (kind) {
    case WorkKind::receive:
      return "receive request";
    case WorkKind::message:
      return "write of a message";
    case WorkKind::credit:
      return "notice of free slots";
    case WorkKind::close:
      return "closing notice";
    case WorkKind::probe:
      return "empty write";
  }
  return "request";
}

}  // namespace

Status RdmaLink::join(const RdmaAddress& peer) {
  GYRE_TRY(queues_->join(peer));
  there_ = peer;
  is_joined_ = true;
  log_info(Subsystem::net, "{} {}: {}, queue pairs: {}", toward_, peer_, ends_text(),
           queues_->size());
  return {};
}

std::string RdmaLink::ends_text() const {
  const RdmaPort& port = queues_->device().port();
  return fmt::format("port {} to {} ({})", port.name(), gid_text(there_.gid), there_.place);
}

Status RdmaLink::failure(const ibv_wc& completion) const {
  const WorkTag tag = WorkTag::of(completion.wr_id);
  RdmaDevice& device = queues_->device();
  const std::size_t pair = std::min<std::size_t>(tag.pair, queues_->size() - 1);
  std::string trouble = device.trouble();
  if (!trouble.empty()) trouble = "; " + trouble;
  return Status(is_own_failure(completion.status) ? Code::SystemError : Code::RemoteError,
                fmt::format("{} {} failed on queue pair {:#x}: {}, vendor error {:#x}{}; {}",
                            kind_text(tag.kind), tag.number, queues_->number_of(pair),
                            completion_text(device.verbs(), completion.status),
                            completion.vendor_err, trouble, completion_remedy(completion.status)));
}

Status RdmaLink::look_at_peer(std::int64_t now_ns, std::int64_t limit_ns) {
  if (!is_joined_ || is_closed_) return {};
  if (is_probing_ && is_heard_) asked_ns_ = now_ns;
  is_heard_ = false;
  if (is_probing_ && now_ns - asked_ns_ > limit_ns) {
    std::string trouble = queues_->device().trouble();
    if (trouble.empty()) trouble = "its host is down, or the network to it is cut";
    return Status(Code::RemoteError,
                  fmt::format("the peer's NIC has not answered for {:.1f} s: {}",
                              static_cast<double>(now_ns - asked_ns_) / ns_per_s, trouble));
  }
  if (is_probing_ || now_ns - asked_ns_ < limit_ns / questions_within_limit) return {};
  asked_ns_ = now_ns;
  ibv_send_wr question{};
  question.wr_id = WorkTag{WorkKind::probe}.to_id();
  question.opcode = IBV_WR_RDMA_WRITE;
  question.send_flags = IBV_SEND_SIGNALED;
  question.wr.rdma.remote_addr = there_.probed.address;
  question.wr.rdma.rkey = there_.probed.key;
  GYRE_TRY(queues_->post(0, question));
  is_probing_ = true;
  return {};
}

Status RdmaLink::broken(Status why) {
  const std::string ends = is_joined_ ? ends_text() : "not joined";
  queues_.reset();
  return link_failure(std::move(why), fmt::format("{} {} ({})", toward_, peer_, ends), peer_);
}

void RdmaLink::close(std::uint64_t next) {
  if (queues_ == nullptr || !is_joined_ || is_closed_) return;
  const Notice last{NoticeKind::close, static_cast<std::uint32_t>(next)};
  if (queues_->post_notice(WorkKind::close, last).ok()) farewell_->see_off(std::move(queues_));
}

}  // namespace gyre::transport
