#include "tests/vm/verbs_ends.h"

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <poll.h>
#include <thread>

namespace gyre::tests {
namespace {

constexpr std::uint8_t port = 1;
constexpr int depth = 16;
constexpr std::uint32_t most_inline = 64;
// 3 retries after 4.096 us * 2^14 each, as peers that are gone shall be told within a second. rxe
// takes 7 retries for no limit. Loss and delay need the longer values.
constexpr std::uint8_t quick_timeout = 14;
constexpr std::uint8_t quick_retries = 3;
constexpr std::uint8_t patient_timeout = 17;
constexpr std::uint8_t patient_retries = 6;
constexpr double patience_s = 60;

std::byte pattern(std::size_t place, std::uint64_t seed) {
  return static_cast<std::byte>((place * 31 + place / 251 + seed * 97) & 255);
}

// Of IPv4, the address that IPv6 maps it to.
ibv_gid gid_of(const std::string& address) {
  ibv_gid gid{};
  in_addr short_address{};
  if (inet_pton(AF_INET, address.c_str(), &short_address) == 1) {
    gid.raw[10] = gid.raw[11] = 0xff;
    std::memcpy(gid.raw + 12, &short_address, sizeof short_address);
  } else {
    check(inet_pton(AF_INET6, address.c_str(), gid.raw) == 1, address + " is an address");
  }
  return gid;
}

bool is_patient() { return std::getenv("VERBS_PATIENT") != nullptr; }

}  // namespace

void check(bool holds, const std::string& what) {
  if (holds) return;
  std::printf("   NOT SO: %s (errno %d, %s)\n", what.c_str(), errno, std::strerror(errno));
  std::fflush(stdout);
  std::_Exit(1);
}

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void sleep_s(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

End::End(const Place& place) {
  open(place.device);
  find_gid(place.address);
  domain_ = ibv_alloc_pd(context_);
  check(domain_ != nullptr, "a protection domain is made");
  channel_ = ibv_create_comp_channel(context_);
  check(channel_ != nullptr, "a channel for events is made");
  queue_ = ibv_create_cq(context_, 2 * depth, nullptr, channel_, 0);
  check(queue_ != nullptr, "a completion queue is made");
  region_ = ibv_reg_mr(domain_, memory_.data(), memory_.size(),
                       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  check(region_ != nullptr, "memory is registered");
  key_ = region_->rkey;
  make_pair();
}

End::~End() {
  destroy_pair();
  deregister();
  ibv_destroy_cq(queue_);
  ibv_destroy_comp_channel(channel_);
  ibv_dealloc_pd(domain_);
  ibv_close_device(context_);
}

void End::open(const std::string& device) {
  int count = 0;
  ibv_device** const list = ibv_get_device_list(&count);
  check(list != nullptr, "devices are listed");
  for (int i = 0; i < count; ++i)
    if (device == ibv_get_device_name(list[i])) context_ = ibv_open_device(list[i]);
  ibv_free_device_list(list);
  check(context_ != nullptr, "device " + device + " opens");
}

void End::find_gid(const std::string& address) {
  const ibv_gid wanted = gid_of(address);
  std::array<ibv_gid_entry, 64> entries{};
  const ssize_t count = ibv_query_gid_table(context_, entries.data(), entries.size(), 0);
  check(count > 0, "GIDs are listed");
  for (ssize_t i = 0; i < count; ++i) {
    const ibv_gid_entry& entry = entries[static_cast<std::size_t>(i)];
    if (entry.port_num == port && entry.gid_type == IBV_GID_TYPE_ROCE_V2 &&
        std::memcmp(&entry.gid, &wanted, sizeof wanted) == 0)
      gid_ = entry;
  }
  check(gid_.port_num == port, "there is a GID for RoCE v2 with the address " + address);
}

void End::make_pair() {
  ibv_qp_init_attr wanted{};
  wanted.send_cq = queue_;
  wanted.recv_cq = queue_;
  wanted.cap = {.max_send_wr = 4 * depth,
                .max_recv_wr = depth,
                .max_send_sge = 1,
                .max_recv_sge = 1,
                .max_inline_data = most_inline};
  wanted.qp_type = IBV_QPT_RC;
  pair_ = ibv_create_qp(domain_, &wanted);
  check(pair_ != nullptr, "a queue pair is made");
  pair_number_ = pair_->qp_num;
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = port;
  attributes.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
  const int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
  check(ibv_modify_qp(pair_, &attributes, mask) == 0, "the queue pair is initialized");
}

void End::connect(const End& peer) {
  ibv_port_attr attributes_of_port{};
  check(ibv_query_port(context_, port, &attributes_of_port) == 0, "the port is there");
  check(attributes_of_port.state == IBV_PORT_ACTIVE, "and active");
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTR;
  attributes.path_mtu = attributes_of_port.active_mtu;
  attributes.dest_qp_num = peer.pair_number_;
  attributes.max_dest_rd_atomic = 1;
  attributes.min_rnr_timer = 12;  // 0.64 ms
  attributes.ah_attr.is_global = 1;
  attributes.ah_attr.port_num = port;
  attributes.ah_attr.grh.dgid = peer.gid_.gid;
  attributes.ah_attr.grh.sgid_index = static_cast<std::uint8_t>(gid_.gid_index);
  attributes.ah_attr.grh.hop_limit = 64;
  check(ibv_modify_qp(pair_, &attributes,
                      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                          IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0,
        "the queue pair is ready to receive");
  attributes.qp_state = IBV_QPS_RTS;
  attributes.timeout = is_patient() ? patient_timeout : quick_timeout;
  attributes.retry_cnt = is_patient() ? patient_retries : quick_retries;
  attributes.rnr_retry = 1;
  attributes.max_rd_atomic = 1;
  check(ibv_modify_qp(pair_, &attributes,
                      IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                          IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) == 0,
        "and to send");
}

void End::fill(std::size_t begin, std::size_t bytes, std::uint64_t seed) {
  for (std::size_t i = begin; i < begin + bytes; ++i) memory_[i] = pattern(i, seed);
}

bool End::is_filled(std::size_t begin, std::size_t bytes, std::uint64_t seed) const {
  for (std::size_t i = begin; i < begin + bytes; ++i)
    if (memory_[i] != pattern(i, seed)) return false;
  return true;
}

void End::post_receive(std::uint64_t number) {
  ibv_recv_wr wanted{};
  wanted.wr_id = number;
  ibv_recv_wr* bad = nullptr;
  check(ibv_post_recv(pair_, &wanted, &bad) == 0, "a receive is posted");
}

void End::post_write(const End& target, std::size_t begin, std::size_t bytes,
                     const WriteOptions& options) {
  ibv_sge source{reinterpret_cast<std::uintptr_t>(memory_.data() + begin),
                 static_cast<std::uint32_t>(bytes), region_->lkey};
  ibv_send_wr wanted{};
  wanted.sg_list = &source;
  wanted.num_sge = bytes == 0 ? 0 : 1;
  wanted.opcode = options.immediate == 0 ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_WRITE_WITH_IMM;
  wanted.imm_data = htonl(options.immediate);
  wanted.send_flags = IBV_SEND_SIGNALED;
  if (options.is_inline) wanted.send_flags |= IBV_SEND_INLINE;
  wanted.wr.rdma.remote_addr = reinterpret_cast<std::uintptr_t>(target.memory_.data() + begin);
  wanted.wr.rdma.rkey = target.key_ ^ options.key_change;
  ibv_send_wr* bad = nullptr;
  check(ibv_post_send(pair_, &wanted, &bad) == 0, "a write is posted");
}

ibv_wc End::next() {
  ibv_wc got{};
  const double limit = now_s() + patience_s;
  while (now_s() < limit) {
    const int count = ibv_poll_cq(queue_, 1, &got);
    check(count >= 0, "the completion queue is read");
    if (count == 1) {
      if (got.status != IBV_WC_SUCCESS)
        std::printf("   completed with %d, %s\n", got.status, ibv_wc_status_str(got.status));
      return got;
    }
    std::this_thread::yield();
  }
  check(false, "a completion comes");
  return got;
}

void End::ask_for_event() { check(ibv_req_notify_cq(queue_, 0) == 0, "an event is asked for"); }

bool End::has_event(int timeout_ms) {
  pollfd waiting{channel_->fd, POLLIN, 0};
  if (poll(&waiting, 1, timeout_ms) != 1) return false;
  ibv_cq* queue = nullptr;
  void* user = nullptr;
  check(ibv_get_cq_event(channel_, &queue, &user) == 0, "the event is read");
  ibv_ack_cq_events(queue, 1);
  return queue == queue_;
}

ibv_event_type End::async_event(int timeout_ms) {
  pollfd waiting{context_->async_fd, POLLIN, 0};
  check(poll(&waiting, 1, timeout_ms) == 1, "the device tells of an event");
  ibv_async_event event{};
  check(ibv_get_async_event(context_, &event) == 0, "which is read");
  ibv_ack_async_event(&event);
  std::printf("   event: %s\n", ibv_event_type_str(event.event_type));
  return event.event_type;
}

ibv_qp_state End::state() const {
  ibv_qp_attr attributes{};
  ibv_qp_init_attr initial{};
  check(ibv_query_qp(pair_, &attributes, IBV_QP_STATE, &initial) == 0,
        "a queue pair tells its state");
  return attributes.qp_state;
}

int End::registration_error(void* start, std::size_t bytes) const {
  errno = 0;
  ibv_mr* const region = ibv_reg_mr(domain_, start, bytes, IBV_ACCESS_LOCAL_WRITE);
  if (region == nullptr) return errno;
  ibv_dereg_mr(region);
  return 0;
}

void End::set_to_error() {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  check(ibv_modify_qp(pair_, &attributes, IBV_QP_STATE) == 0, "the queue pair is set to error");
}

void End::destroy_pair() {
  if (pair_ != nullptr) ibv_destroy_qp(pair_);
  pair_ = nullptr;
}

void End::deregister() {
  if (region_ != nullptr) ibv_dereg_mr(region_);
  region_ = nullptr;
}

}  // namespace gyre::tests
