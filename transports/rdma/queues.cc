#include "transports/rdma/queues.h"

#include "lib/base/clock.h"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <endian.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/random.h>

namespace gyre::transport {
namespace {

// Packets may be lost for as long as timeout and retries say; a receiver that has posted too little
// is a bug of ours, and waits for it without end (7).
constexpr std::uint8_t wait_for_receiver = 7;
constexpr std::uint8_t receiver_timer = 12;  // 0.64 ms (IBTA volume 1, table 45)
constexpr std::uint8_t hop_limit = 64;
// Of the packets that a small message takes; devices that can do less say so.
constexpr std::uint32_t wanted_inline_bytes = 256;

// A packet of an earlier connection should not fit, nor one of somebody else.
std::uint32_t random_packet_number() {
  std::uint32_t number = 0;
  if (getrandom(&number, sizeof number, 0) != static_cast<ssize_t>(sizeof number))
    number = static_cast<std::uint32_t>(SystemClock::read());
  return number & 0xffffff;
}

int last_error(int otherwise) { return errno != 0 ? errno : otherwise; }

template <typename Handle, typename Object>
Status adopt(Handle& handle, const loaded::Verbs& verbs, Object* made, const char* what) {
  if (made == nullptr) return Status::from_errno(what, last_error(ENOMEM));
  handle = Handle({&verbs, made});
  return {};
}

}  // namespace

std::uint32_t Notice::to_immediate() const {
  return htobe32(std::uint32_t{static_cast<std::uint8_t>(kind)} << 29 |
                 std::uint32_t{round} << number_bits | (number & mask));
}

std::optional<Notice> Notice::of(std::uint32_t immediate) {
  const std::uint32_t word = be32toh(immediate);
  if (word >> 29 > static_cast<std::uint32_t>(NoticeKind::taken)) return std::nullopt;
  return Notice{static_cast<NoticeKind>(word >> 29), word & mask,
                static_cast<std::uint8_t>(word >> number_bits)};
}

Result<std::unique_ptr<RdmaQueues>> RdmaQueues::make(std::shared_ptr<RdmaDevice> device,
                                                     const RdmaGid& gid, std::size_t pairs,
                                                     QueueDepth depth) {
  std::unique_ptr<RdmaQueues> made(new RdmaQueues(std::move(device), gid));
  GYRE_TRY(made->make_completions(completion_entries(pairs, depth)));
  for (std::size_t i = 0; i < pairs; ++i) {
    GYRE_TRY(made->make_pair(depth));
    GYRE_TRY(made->post_receives(i, depth.receive));
  }
  return made;
}

std::uint32_t RdmaQueues::completion_entries(std::size_t pairs, QueueDepth depth) {
  return static_cast<std::uint32_t>(pairs) * (depth.send + depth.receive) + max_flushes;
}

Status RdmaQueues::make_completions(std::uint32_t entries) {
  const loaded::Verbs& verbs = device_->verbs();
  errno = 0;
  GYRE_TRY(adopt(channel_, verbs, verbs.create_comp_channel(device_->context()),
                 "making a channel of RDMA events"));
  const int descriptor = channel_.get()->fd;
  const int flags = fcntl(descriptor, F_GETFL);
  if (flags < 0 || fcntl(descriptor, F_SETFL, flags | O_NONBLOCK) != 0)
    return Status::from_errno("fcntl of a channel of RDMA events", errno);
  errno = 0;
  return adopt(completions_, verbs,
               verbs.create_cq(device_->context(), static_cast<int>(entries), &is_overflowed_,
                               channel_.get().object, 0),
               "making a completion queue");
}

// Devices round up what they are asked for, or refuse: then nothing is inline.
Status RdmaQueues::make_pair(QueueDepth depth) {
  const loaded::Verbs& verbs = device_->verbs();
  ibv_qp_init_attr wanted{};
  ibv_qp* made = nullptr;
  for (const std::uint32_t inline_bytes : {wanted_inline_bytes, 0U}) {
    wanted = {};
    wanted.send_cq = wanted.recv_cq = completions_.get().object;
    wanted.cap = {depth.send, depth.receive, 1, 1, inline_bytes};
    wanted.qp_type = IBV_QPT_RC;
    wanted.sq_sig_all = 0;
    errno = 0;
    made = verbs.create_qp(device_->domain(), &wanted);
    if (made != nullptr || errno != EINVAL) break;
  }
  loaded::VerbsPair pair;
  GYRE_TRY(adopt(pair, verbs, made, "making a queue pair"));
  inline_bytes_ = pairs_.empty() ? wanted.cap.max_inline_data
                                 : std::min(inline_bytes_, wanted.cap.max_inline_data);
  GYRE_TRY(prepare(pair.get().object, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE));
  first_packets_.push_back(random_packet_number());
  pairs_.push_back(std::move(pair));
  return {};
}

Status RdmaQueues::prepare(ibv_qp* pair, unsigned access) {
  ibv_qp_attr fresh{};
  fresh.qp_state = IBV_QPS_INIT;
  fresh.pkey_index = 0;
  fresh.port_num = device_->port().number;
  fresh.qp_access_flags = access;
  constexpr int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
  const int failed = device_->verbs().modify_qp(pair, &fresh, mask);
  return failed == 0 ? Status() : Status::from_errno("preparing a queue pair", failed);
}

RdmaAddress RdmaQueues::address(const std::string& host_name) const {
  RdmaAddress own;
  own.network = gid_.network;
  own.mtu = static_cast<std::uint8_t>(device_->port().attributes.active_mtu);
  own.lid = device_->port().attributes.lid;
  own.gid = gid_.gid;
  own.probed = device_->probed();
  for (std::size_t i = 0; i < pairs_.size(); ++i)
    own.pairs.push_back({number_of(i), first_packets_[i]});
  own.place = fmt::format("{} of host {}", device_->port().name(), host_name);
  return own;
}

ibv_qp_attr RdmaQueues::receiving(const RdmaAddress& peer, const QueuePairNumbers& other) const {
  const RdmaOptions& options = device_->options();
  const ibv_port_attr& port = device_->port().attributes;
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTR;
  attributes.path_mtu =
      std::min(static_cast<ibv_mtu>(peer.mtu), static_cast<ibv_mtu>(port.active_mtu));
  attributes.dest_qp_num = other.pair;
  attributes.rq_psn = other.first_packet;
  attributes.max_dest_rd_atomic = 1;
  attributes.min_rnr_timer = receiver_timer;
  ibv_ah_attr& way = attributes.ah_attr;
  way.sl = static_cast<std::uint8_t>(options.service_level);
  way.port_num = device_->port().number;
  way.dlid = peer.lid;
  const bool needs_route =
      gid_.network != RdmaNetwork::infiniband || (port.flags & IBV_QPF_GRH_REQUIRED) != 0;
  if (!needs_route) return attributes;
  way.is_global = 1;
  way.grh.dgid = peer.gid;
  way.grh.sgid_index = gid_.index;
  way.grh.hop_limit = hop_limit;
  way.grh.traffic_class = static_cast<std::uint8_t>(options.traffic_class);
  return attributes;
}

Status RdmaQueues::join(const RdmaAddress& peer) {
  for (std::size_t i = 0; i < pairs_.size(); ++i)
    GYRE_TRY(join(pairs_[i].get().object, peer, peer.pairs[i], first_packets_[i]));
  return {};
}

Status RdmaQueues::join(ibv_qp* pair, const RdmaAddress& peer, const QueuePairNumbers& other,
                        std::uint32_t first_packet) {
  const loaded::Verbs& verbs = device_->verbs();
  const RdmaOptions& options = device_->options();
  const auto doing = [&] {
    return fmt::format("joining port {} with {} ({})", device_->port().name(), gid_text(peer.gid),
                       peer.place);
  };
  ibv_qp_attr to_receive = receiving(peer, other);
  constexpr int receive_mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                               IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  if (const int failed = verbs.modify_qp(pair, &to_receive, receive_mask); failed != 0)
    return failure_on_the_way("finding the way to the peer's GID", failed).while_doing(doing());
  ibv_qp_attr to_send{};
  to_send.qp_state = IBV_QPS_RTS;
  to_send.timeout = static_cast<std::uint8_t>(options.timeout);
  to_send.retry_cnt = static_cast<std::uint8_t>(options.retry_count);
  to_send.rnr_retry = wait_for_receiver;
  to_send.sq_psn = first_packet;
  to_send.max_rd_atomic = 1;
  constexpr int send_mask = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                            IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;
  if (const int failed = verbs.modify_qp(pair, &to_send, send_mask); failed != 0)
    return Status::from_errno("allowing a queue pair to send", failed).while_doing(doing());
  return {};
}

// Of the flush queue pair nothing is inline, and one that answers its own reads needs no receive
// requests. Its packets never leave the NIC.
Status RdmaQueues::make_flush() {
  const loaded::Verbs& verbs = device_->verbs();
  ibv_qp_init_attr wanted{};
  wanted.send_cq = wanted.recv_cq = completions_.get().object;
  wanted.cap = {max_flushes, 1, 1, 1, 0};
  wanted.qp_type = IBV_QPT_RC;
  errno = 0;
  loaded::VerbsPair made;
  GYRE_TRY(adopt(made, verbs, verbs.create_qp(device_->domain(), &wanted),
                 "making a queue pair for flushes"));
  GYRE_TRY(prepare(made.get().object, IBV_ACCESS_REMOTE_READ));
  const QueuePairNumbers own{made.get()->qp_num, random_packet_number()};
  GYRE_TRY(join(made.get().object, address("this host"), own, own.first_packet));
  flush_ = std::move(made);
  return {};
}

Status RdmaQueues::post_flush(const RemoteMemory& word, std::uint64_t number) {
  ibv_sge sink = device_->sink();
  ibv_send_wr request{};
  request.wr_id =
      WorkTag{WorkKind::flush, static_cast<std::uint8_t>(pairs_.size() - 1), number}.to_id();
  request.sg_list = &sink;
  request.num_sge = 1;
  request.opcode = IBV_WR_RDMA_READ;
  request.send_flags = IBV_SEND_SIGNALED;
  request.wr.rdma.remote_addr = word.address;
  request.wr.rdma.rkey = word.key;
  ibv_send_wr* bad = nullptr;
  if (const int failed = device_->verbs().post_send(flush_.get().object, &request, &bad);
      failed != 0)
    return Status::from_errno("posting a read that flushes writes to a GPU's memory", failed);
  ++flushes_;
  return {};
}

Status RdmaQueues::post_receives(std::size_t pair, std::uint32_t count) {
  // A notice brings no bytes of its own, so a request without memory takes it.
  ibv_recv_wr request{};
  request.wr_id = WorkTag{WorkKind::receive, static_cast<std::uint8_t>(pair)}.to_id();
  for (std::uint32_t i = 0; i < count; ++i) {
    ibv_recv_wr* bad = nullptr;
    if (const int failed = device_->verbs().post_recv(pairs_[pair].get().object, &request, &bad);
        failed != 0)
      return Status::from_errno("posting a receive request", failed);
    ++receives_;
  }
  return {};
}

Status RdmaQueues::post(std::size_t pair, ibv_send_wr& first) {
  ibv_send_wr* bad = nullptr;
  const int failed = device_->verbs().post_send(pairs_[pair].get().object, &first, &bad);
  return failed == 0 ? Status() : Status::from_errno("posting a send request", failed);
}

Status RdmaQueues::post_notice(WorkKind kind, Notice notice) {
  ibv_send_wr request{};
  request.wr_id = WorkTag{kind, 0, notice.number}.to_id();
  request.opcode = IBV_WR_SEND_WITH_IMM;
  request.send_flags = IBV_SEND_SIGNALED;
  request.imm_data = notice.to_immediate();
  return post(0, request);
}

int RdmaQueues::poll_now() {
  return device_->verbs().poll_cq(completions_.get().object, static_cast<int>(polled_.size()),
                                  polled_.data());
}

Result<std::span<const ibv_wc>> RdmaQueues::poll() {
  const int count = poll_now();
  if (count < 0) {
    const std::string trouble = device_->trouble();
    return Status(Code::SystemError, fmt::format("polling the completion queue failed{}{}",
                                                 trouble.empty() ? "" : ": ", trouble));
  }
  const std::span<const ibv_wc> found(polled_.data(), static_cast<std::size_t>(count));
  for (const ibv_wc& one : found) note_done(one);
  return found;
}

void RdmaQueues::note_done(const ibv_wc& completion) {
  const WorkKind kind = WorkTag::of(completion.wr_id).kind;
  if (kind == WorkKind::receive) --receives_;
  if (kind != WorkKind::flush) return;
  --flushes_;
  has_flush_failed_ |= completion.status != IBV_WC_SUCCESS;
}

Status RdmaQueues::arm(WaitSet& set) {
  const loaded::Verbs& verbs = device_->verbs();
  ibv_cq* queue = nullptr;
  void* user = nullptr;
  unsigned events = 0;
  while (verbs.get_cq_event(channel_.get().object, &queue, &user) == 0) ++events;
  if (events > 0) verbs.ack_cq_events(completions_.get().object, events);
  if (const int failed = verbs.req_notify_cq(completions_.get().object, 0); failed != 0)
    return Status::from_errno("asking for RDMA events", failed);
  set.add_descriptor(channel_.get()->fd, POLLIN);
  return {};
}

Status RdmaQueues::overflow() {
  device_->take_events();
  if (!is_overflowed_.load(std::memory_order_relaxed)) return {};
  return Status(Code::SystemError,
                fmt::format("the completion queue of port {} has overflowed (IBV_EVENT_CQ_ERR), so "
                            "this process does not know what has arrived: report it with the "
                            "output of GYRE_DEBUG=INFO",
                            device_->port().name()));
}

bool RdmaQueues::stop() {
  ibv_qp_attr failed{};
  failed.qp_state = IBV_QPS_ERR;
  bool stopped = true;
  for (const loaded::VerbsPair& pair : pairs_)
    stopped &= device_->verbs().modify_qp(pair.get().object, &failed, IBV_QP_STATE) == 0;
  return stopped;
}

bool RdmaQueues::has_closed() {
  for (;;) {
    const int count = poll_now();
    if (count < 0) return true;
    for (const ibv_wc& completion : std::span(polled_).first(static_cast<std::size_t>(count)))
      if (completion.status != IBV_WC_SUCCESS ||
          WorkTag::of(completion.wr_id).kind == WorkKind::close)
        return true;
    if (static_cast<std::size_t>(count) < polled_.size()) return false;
  }
}

}  // namespace gyre::transport
