// The functions of the fake's table.
#include "tests/support/fake_verbs/fake_verbs_state.h"

#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <linux/futex.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <utility>

namespace gyre::tests {
namespace {

using Lock = std::lock_guard<std::mutex>;

template <typename Object>
Object* fail_with(int error) {
  errno = error;
  return nullptr;
}

int make_descriptor() {
  return fake_verbs->fails("descriptor") ? -1 : eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
}

ibv_device** device_list(int* count) {
  const Lock lock(fake_verbs->mutex);
  if (fake_verbs->fails("device_list")) return fail_with<ibv_device*>(EPERM);
  auto** const list = new ibv_device*[fake_verbs->nics.size() + 1]();
  for (std::size_t i = 0; i < fake_verbs->nics.size(); ++i) list[i] = fake_verbs->nics[i].get();
  *count = static_cast<int>(fake_verbs->nics.size());
  return list;
}

void free_device_list(ibv_device** list) { delete[] list; }

const char* device_name(ibv_device* device) { return device->name; }

ibv_context* open_device(ibv_device* device) {
  const Lock lock(fake_verbs->mutex);
  if (fake_verbs->fails("open_device")) return fail_with<ibv_context>(EACCES);
  auto* const context = new FakeContext();
  context->device = device;
  context->nic = static_cast<FakeNic*>(device);
  context->async_fd = make_descriptor();
  fake_verbs->contexts.insert(context);
  return context;
}

int close_device(ibv_context* context) {
  const Lock lock(fake_verbs->mutex);
  auto* const closed = static_cast<FakeContext*>(context);
  fake_verbs->contexts.erase(closed);
  ::close(closed->async_fd);
  delete closed;
  return 0;
}

int query_device(ibv_context* context, ibv_device_attr* attributes) {
  const Lock lock(fake_verbs->mutex);
  if (fake_verbs->fails("query_device")) return EIO;
  const FakeNicOptions& nic = static_cast<FakeContext*>(context)->nic->options;
  *attributes = {};
  attributes->phys_port_cnt = static_cast<std::uint8_t>(nic.ports.size());
  attributes->max_qp_wr = nic.max_requests;
  attributes->max_cqe = nic.max_completions;
  return 0;
}

int query_port(ibv_context* context, std::uint8_t number, ibv_port_attr* attributes) {
  const Lock lock(fake_verbs->mutex);
  if (fake_verbs->fails("query_port")) return EIO;
  const FakePortOptions& port =
      static_cast<FakeContext*>(context)->nic->options.ports[number - std::size_t{1}];
  *attributes = {};
  attributes->state = port.state;
  attributes->link_layer = port.link_layer;
  attributes->active_mtu = IBV_MTU_4096;
  attributes->active_speed = port.speed;
  attributes->active_width = port.width;
  attributes->max_msg_sz = port.max_message;
  attributes->lid = static_cast<std::uint16_t>(number);
  return 0;
}

ssize_t gid_table(ibv_context* context, ibv_gid_entry* entries, std::size_t most, std::uint32_t,
                  std::size_t) {
  const Lock lock(fake_verbs->mutex);
  if (fake_verbs->fails("gid_table")) return -EIO;
  const FakeNicOptions& nic = static_cast<FakeContext*>(context)->nic->options;
  std::size_t count = 0;
  for (std::size_t port = 0; port < nic.ports.size(); ++port)
    for (std::size_t i = 0; i < nic.ports[port].gids.size() && count < most; ++i) {
      ibv_gid_entry entry{};
      entry.port_num = static_cast<std::uint32_t>(port + 1);
      entry.gid_index = static_cast<std::uint32_t>(i);
      const std::string& text = nic.ports[port].gids[i];
      entry.gid = parsed_gid(text);
      entry.gid_type = nic.ports[port].link_layer == IBV_LINK_LAYER_INFINIBAND ? IBV_GID_TYPE_IB
                       : text.starts_with("v1:") ? IBV_GID_TYPE_ROCE_V1
                                                 : IBV_GID_TYPE_ROCE_V2;
      entries[count++] = entry;
    }
  return static_cast<ssize_t>(count);
}

ibv_pd* alloc_pd(ibv_context* context) {
  const Lock lock(fake_verbs->mutex);
  if (fake_verbs->fails("alloc_pd")) return fail_with<ibv_pd>(ENOMEM);
  auto* const domain = new ibv_pd();
  domain->context = context;
  fake_verbs->domains.insert(domain);
  return domain;
}

int dealloc_pd(ibv_pd* domain) {
  const Lock lock(fake_verbs->mutex);
  const auto is_in_it = [domain](const auto& one) { return one.second->pd == domain; };
  if (std::ranges::any_of(fake_verbs->regions, is_in_it)) return EBUSY;
  fake_verbs->domains.erase(domain);
  delete domain;
  return 0;
}

// Whether this process may write there. The kernel makes an atomic or with 0, which changes
// nothing.
bool may_write(const void* start, std::size_t bytes) {
  constexpr std::uintptr_t page = 4096;
  static std::uint32_t nobody = 0;
  const auto begin = reinterpret_cast<std::uintptr_t>(start);
  for (std::uintptr_t at = begin / 4 * 4; at < begin + bytes; at = at / page * page + page)
    if (syscall(SYS_futex, &nobody, FUTEX_WAKE_OP_PRIVATE, 1, std::uintptr_t{1}, at,
                FUTEX_OP(FUTEX_OP_OR, 0, FUTEX_OP_CMP_EQ, 0)) < 0)
      return false;
  return true;
}

FakeRegion* make_region(ibv_pd* domain, void* start, std::size_t bytes, int access) {
  auto* const region = new FakeRegion();
  region->context = domain->context;
  region->pd = domain;
  region->addr = start;
  region->base = static_cast<std::byte*>(start);
  region->length = bytes;
  region->access = access;
  region->lkey = region->rkey = fake_verbs->next_key++;
  fake_verbs->regions[region->lkey] = region;
  return region;
}

ibv_mr* reg_mr(ibv_pd* domain, void* start, std::size_t bytes, int access) {
  const Lock lock(fake_verbs->mutex);
  if (fake_verbs->fails("reg_mr")) return fail_with<ibv_mr>(ENOMEM);
  const FakeGpuMemory& gpus = fake_verbs->gpus;
  const bool is_of_gpu = gpus.is_there != nullptr && gpus.is_there(start);
  if (is_of_gpu && !gpus.by_address) return fail_with<ibv_mr>(EFAULT);
  if ((access & IBV_ACCESS_LOCAL_WRITE) != 0 && !may_write(start, bytes))
    return fail_with<ibv_mr>(EFAULT);
  FakeRegion* const region = make_region(domain, start, bytes, access);
  region->is_of_gpu = is_of_gpu;
  return region;
}

// The descriptor is one of a memory file of the fake driver, whose position is where the dmabuf
// begins.
ibv_mr* reg_dmabuf_mr(ibv_pd* domain, std::uint64_t offset, std::size_t bytes, std::uint64_t start,
                      int file, int access) {
  const Lock lock(fake_verbs->mutex);
  if (fake_verbs->fails("reg_dmabuf_mr")) return fail_with<ibv_mr>(ENOMEM);
  if (!fake_verbs->gpus.by_dmabuf) return fail_with<ibv_mr>(EOPNOTSUPP);
  const off_t begin = lseek(file, 0, SEEK_CUR);
  if (begin < 0) return fail_with<ibv_mr>(EBADF);
  void* const mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file,
                            begin + static_cast<off_t>(offset));
  if (mapped == MAP_FAILED) return fail_with<ibv_mr>(EINVAL);
  FakeRegion* const region = make_region(domain, reinterpret_cast<void*>(start), bytes, access);
  region->base = static_cast<std::byte*>(mapped);
  region->is_of_gpu = region->is_mapped = true;
  return region;
}

int dereg_mr(ibv_mr* region) {
  const Lock lock(fake_verbs->mutex);
  ++fake_verbs->calls["dereg_mr"];
  fake_verbs->regions.erase(region->lkey);
  auto* const gone = static_cast<FakeRegion*>(region);
  fake_verbs->land(*gone);
  if (gone->is_mapped) munmap(gone->base, gone->length);
  delete gone;
  return 0;
}

ibv_comp_channel* create_comp_channel(ibv_context* context) {
  const Lock lock(fake_verbs->mutex);
  if (fake_verbs->fails("create_comp_channel")) return fail_with<ibv_comp_channel>(EMFILE);
  auto* const channel = new ibv_comp_channel();
  channel->context = context;
  channel->fd = make_descriptor();
  fake_verbs->channels.insert(channel);
  return channel;
}

int destroy_comp_channel(ibv_comp_channel* channel) {
  const Lock lock(fake_verbs->mutex);
  fake_verbs->channels.erase(channel);
  ::close(channel->fd);
  delete channel;
  return 0;
}

ibv_cq* create_cq(ibv_context* context, int entries, void* user, ibv_comp_channel* channel, int) {
  const Lock lock(fake_verbs->mutex);
  if (fake_verbs->fails("create_cq")) return fail_with<ibv_cq>(ENOMEM);
  if (entries > static_cast<FakeContext*>(context)->nic->options.max_completions)
    return fail_with<ibv_cq>(EINVAL);
  auto* const queue = new FakeCompletions();
  queue->context = context;
  queue->channel = channel;
  queue->cq_context = user;
  queue->cqe = entries;
  fake_verbs->queues.insert(queue);
  return queue;
}

int destroy_cq(ibv_cq* queue) {
  const Lock lock(fake_verbs->mutex);
  fake_verbs->queues.erase(static_cast<FakeCompletions*>(queue));
  std::erase_if(static_cast<FakeContext*>(queue->context)->events, [&](const auto& event) {
    return event.event_type == IBV_EVENT_CQ_ERR && event.element.cq == queue;
  });
  delete static_cast<FakeCompletions*>(queue);
  return 0;
}

// Which queue an event belongs to, its one user knows.
int get_cq_event(ibv_comp_channel* channel, ibv_cq** queue, void** user) {
  const Lock lock(fake_verbs->mutex);
  eventfd_t count = 0;
  if (fake_verbs->fails("get_cq_event") || eventfd_read(channel->fd, &count) != 0) return -1;
  *queue = nullptr;
  *user = nullptr;
  return 0;
}

void ack_cq_events(ibv_cq*, unsigned) {}

int get_async_event(ibv_context* context, ibv_async_event* event) {
  const Lock lock(fake_verbs->mutex);
  eventfd_t count = 0;
  auto& events = static_cast<FakeContext*>(context)->events;
  if (fake_verbs->fails("get_async_event") || eventfd_read(context->async_fd, &count) != 0)
    return -1;
  if (events.empty()) return -1;  // it was about a queue that is gone
  *event = events.front();
  events.pop_front();
  return 0;
}

void ack_async_event(ibv_async_event*) {}

ibv_qp* create_qp(ibv_pd* domain, ibv_qp_init_attr* wanted) {
  const Lock lock(fake_verbs->mutex);
  if (fake_verbs->fails("create_qp")) return fail_with<ibv_qp>(ENOMEM);
  const FakeNicOptions& nic = static_cast<FakeContext*>(domain->context)->nic->options;
  const auto most = static_cast<std::uint32_t>(nic.max_requests);
  if (wanted->cap.max_send_wr > most || wanted->cap.max_recv_wr > most ||
      wanted->cap.max_inline_data > nic.inline_bytes)
    return fail_with<ibv_qp>(EINVAL);
  auto* const pair = new FakePair();
  pair->context = domain->context;
  pair->pd = domain;
  pair->send_cq = wanted->send_cq;
  pair->recv_cq = wanted->recv_cq;
  pair->qp_num = fake_verbs->next_number++;
  pair->state = IBV_QPS_RESET;
  pair->limits = wanted->cap;
  fake_verbs->pairs[pair->qp_num] = pair;
  return pair;
}

int destroy_qp(ibv_qp* pair) {
  const Lock lock(fake_verbs->mutex);
  fake_verbs->pairs.erase(pair->qp_num);
  delete static_cast<FakePair*>(pair);
  return 0;
}

bool has_gid(const FakePair& pair, int index) {
  const auto& gids = FakeVerbs::State::port_of(pair).gids;
  return index >= 0 && static_cast<std::size_t>(index) < gids.size();
}

int modify_qp(ibv_qp* modified, ibv_qp_attr* wanted, int mask) {
  if (wanted->qp_state == IBV_QPS_ERR && fake_verbs->at_stop)
    std::exchange(fake_verbs->at_stop, nullptr)();
  const Lock lock(fake_verbs->mutex);
  if (fake_verbs->fails("modify_qp")) return EIO;
  auto& pair = static_cast<FakePair&>(*modified);
  ibv_qp_attr& now = pair.attributes;
  if (wanted->qp_state == IBV_QPS_ERR) {
    fake_verbs->put_into_error(pair, IBV_WC_WR_FLUSH_ERR);
    return 0;
  }
  if (pair.state == IBV_QPS_RESET && wanted->qp_state == IBV_QPS_INIT) {
    now.port_num = wanted->port_num;
    now.qp_access_flags = wanted->qp_access_flags;
  } else if (pair.state == IBV_QPS_INIT && wanted->qp_state == IBV_QPS_RTR) {
    if ((mask & IBV_QP_DEST_QPN) == 0 || !has_gid(pair, wanted->ah_attr.grh.sgid_index))
      return EINVAL;
    if (!static_cast<FakeContext*>(pair.context)->nic->has_route) return ENETUNREACH;
    now.ah_attr = wanted->ah_attr;
    now.dest_qp_num = wanted->dest_qp_num;
    now.path_mtu = wanted->path_mtu;
    pair.expected_packet = wanted->rq_psn;
  } else if (pair.state == IBV_QPS_RTR && wanted->qp_state == IBV_QPS_RTS) {
    now.timeout = wanted->timeout;
    now.retry_cnt = wanted->retry_cnt;
    pair.next_packet = wanted->sq_psn;
  } else {
    return EINVAL;
  }
  pair.state = wanted->qp_state;
  return 0;
}

const char* status_text(ibv_wc_status) { return "as the fake was told"; }

FakeRequest taken(const ibv_send_wr& posted) {
  FakeRequest request{posted, {posted.sg_list, posted.sg_list + posted.num_sge}, {}};
  if ((posted.send_flags & IBV_SEND_INLINE) == 0) return request;
  for (const ibv_sge& part : request.parts) {
    const auto* const from = reinterpret_cast<const std::byte*>(part.addr);
    request.inline_bytes.insert(request.inline_bytes.end(), from, from + part.length);
  }
  request.parts.clear();
  return request;
}

int post_send(ibv_qp* posted, ibv_send_wr* first, ibv_send_wr** bad) {
  const Lock lock(fake_verbs->mutex);
  auto& pair = static_cast<FakePair&>(*posted);
  *bad = first;
  if (fake_verbs->fails("post_send")) return ENOMEM;
  if (pair.state != IBV_QPS_RTS && pair.state != IBV_QPS_ERR) return EINVAL;
  for (ibv_send_wr* request = first; request != nullptr; request = request->next) {
    *bad = request;
    FakeRequest copy = taken(*request);
    if (copy.inline_bytes.size() > pair.limits.max_inline_data) return EINVAL;
    if (pair.sends_used == pair.limits.max_send_wr) return ENOMEM;
    ++pair.sends_used;
    if (pair.state == IBV_QPS_ERR)
      fake_verbs->finish(pair, copy, IBV_WC_WR_FLUSH_ERR);
    else
      pair.sends.push_back(std::move(copy));
  }
  fake_verbs->kick(pair);
  return 0;
}

int post_recv(ibv_qp* posted, ibv_recv_wr* first, ibv_recv_wr** bad) {
  const Lock lock(fake_verbs->mutex);
  auto& pair = static_cast<FakePair&>(*posted);
  *bad = first;
  if (fake_verbs->fails("post_recv")) return ENOMEM;
  if (pair.state == IBV_QPS_RESET) return EINVAL;
  for (ibv_recv_wr* request = first; request != nullptr; request = request->next) {
    *bad = request;
    if (pair.receives_used == pair.limits.max_recv_wr) return ENOMEM;
    ++pair.receives_used;
    pair.receives.push_back(request->wr_id);
  }
  if (const auto peer = fake_verbs->pairs.find(pair.attributes.dest_qp_num);
      peer != fake_verbs->pairs.end())
    fake_verbs->kick(*peer->second);
  return 0;
}

int poll_cq(ibv_cq* polled, int most, ibv_wc* completions) {
  const Lock lock(fake_verbs->mutex);
  auto& queue = static_cast<FakeCompletions&>(*polled);
  if (fake_verbs->fails("poll_cq") || queue.is_overrun) return -1;
  if (queue.empty_polls > 0 && --queue.empty_polls == 0) fake_verbs->show(queue);
  int count = 0;
  for (; count < most && !queue.entries.empty(); ++count) {
    const FakeCompletions::Entry& entry = queue.entries.front();
    if (entry.is_held) break;
    completions[count] = entry.completion;
    if (const auto pair = fake_verbs->pairs.find(entry.completion.qp_num);
        pair != fake_verbs->pairs.end()) {
      const bool is_receive = (entry.completion.opcode & IBV_WC_RECV) != 0;
      (is_receive ? pair->second->receives_used : pair->second->sends_used) -= entry.requests;
    }
    queue.entries.pop_front();
  }
  return count;
}

int req_notify_cq(ibv_cq* queue, int) {
  const Lock lock(fake_verbs->mutex);
  if (fake_verbs->fails("req_notify_cq")) return EIO;
  static_cast<FakeCompletions*>(queue)->is_armed = true;
  return 0;
}

}  // namespace

ibv_gid parsed_gid(const std::string& text) {
  std::string address = text.starts_with("v1:") ? text.substr(3) : text;
  if (address.find(':') == address.npos) address = "::ffff:" + address;
  ibv_gid gid{};
  if (inet_pton(AF_INET6, address.c_str(), gid.raw) != 1) std::abort();
  return gid;
}

void fill_table(loaded::Verbs& table) {
#define GYRE_FAKE_MEMBER(result, member, symbol, parameters) table.member = member;
  GYRE_VERBS_SYMBOLS(GYRE_FAKE_MEMBER)
  GYRE_VERBS_OPTIONAL_SYMBOLS(GYRE_FAKE_MEMBER)
#undef GYRE_FAKE_MEMBER
  table.query_port = query_port;
  table.post_send = post_send;
  table.post_recv = post_recv;
  table.poll_cq = poll_cq;
  table.req_notify_cq = req_notify_cq;
}

const std::vector<std::string_view>& fallible_verbs() {
  static const std::vector<std::string_view> names = {
      "device_list", "open_device",   "query_device",        "query_port", "gid_table",
      "alloc_pd",    "reg_mr",        "create_comp_channel", "create_cq",  "create_qp",
      "modify_qp",   "get_cq_event",  "get_async_event",     "post_send",  "post_recv",
      "poll_cq",     "req_notify_cq", "descriptor"};
  return names;
}

}  // namespace gyre::tests
