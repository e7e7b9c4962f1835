// The network of the fake: how a posted request becomes bytes in the peer's memory and completions
// at both ends.
#include "tests/support/fake_verbs/fake_verbs_state.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <iterator>
#include <sys/eventfd.h>
#include <unistd.h>

namespace gyre::tests {
namespace {

bool has_immediate(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}
bool is_write(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_RDMA_WRITE || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

std::uint64_t bytes_of(const FakeRequest& request) {
  std::uint64_t bytes = request.inline_bytes.size();
  for (const ibv_sge& part : request.parts) bytes += part.length;
  return bytes;
}

// The completion of the receive request that a message takes.
ibv_wc received(FakePair& peer, const FakeRequest& by, ibv_wc_status status) {
  ibv_wc completion{};
  completion.wr_id = peer.receives.front();
  completion.status = status;
  completion.opcode = is_write(by.request.opcode) ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV;
  completion.byte_len = static_cast<std::uint32_t>(bytes_of(by));
  completion.imm_data = by.request.imm_data;
  completion.wc_flags = IBV_WC_WITH_IMM;
  peer.receives.pop_front();
  return completion;
}

bool is_active(const FakePair& pair) {
  return FakeVerbs::State::port_of(pair).state == IBV_PORT_ACTIVE;
}

// InfiniBand's packets stay in their subnet.
bool is_in_reach(const FakePair& pair, const FakePair& peer) {
  const FakePortOptions& here = FakeVerbs::State::port_of(pair);
  const FakePortOptions& there = FakeVerbs::State::port_of(peer);
  if (here.link_layer != there.link_layer) return false;
  return here.link_layer != IBV_LINK_LAYER_INFINIBAND ||
         parsed_gid(here.gids.front()).global.subnet_prefix ==
             parsed_gid(there.gids.front()).global.subnet_prefix;
}

}  // namespace

const FakePortOptions& FakeVerbs::State::port_of(const FakePair& pair) {
  const auto& context = static_cast<const FakeContext&>(*pair.context);
  return context.nic->options.ports[static_cast<std::size_t>(pair.attributes.port_num - 1)];
}

// The queue pair that a pair is joined with, if that is joined with it as well, by its numbers.
FakePair* FakeVerbs::State::find_peer(const FakePair& pair) {
  const auto found = pairs.find(pair.attributes.dest_qp_num);
  if (found == pairs.end()) return nullptr;
  FakePair& peer = *found->second;
  const bool receives = peer.state == IBV_QPS_RTR || peer.state == IBV_QPS_RTS;
  const bool is_ours = receives && peer.attributes.dest_qp_num == pair.qp_num &&
                       peer.expected_packet == pair.next_packet && is_in_reach(pair, peer);
  return is_ours ? &peer : nullptr;
}

bool FakeVerbs::State::check_local(const FakePair& pair, const FakeRequest& request) const {
  return std::ranges::all_of(request.parts, [&](const ibv_sge& part) {
    const auto found = regions.find(part.lkey);
    if (found == regions.end() || found->second->pd != pair.pd) return false;
    const auto start = reinterpret_cast<std::uintptr_t>(found->second->addr);
    return part.addr >= start && part.addr + part.length <= start + found->second->length;
  });
}

bool FakeVerbs::State::check_remote(const FakePair& peer, std::uint64_t address,
                                    std::uint64_t bytes, std::uint32_t key, int access) const {
  if (bytes == 0) return true;
  const auto found = regions.find(key);
  if (found == regions.end() || found->second->pd != peer.pd || found->second->is_revoked)
    return false;
  const bool is_allowed = (found->second->access & access) != 0 &&
                          (peer.attributes.qp_access_flags & static_cast<unsigned>(access)) != 0;
  const auto start = reinterpret_cast<std::uintptr_t>(found->second->addr);
  return is_allowed && address >= start && address + bytes <= start + found->second->length;
}

void FakeVerbs::State::post_event(ibv_context* context, ibv_async_event event) {
  static_cast<FakeContext*>(context)->events.push_back(event);
  (void)eventfd_write(context->async_fd, 1);
}

void FakeVerbs::State::overrun(FakeCompletions& queue) {
  queue.is_overrun = true;
  queue.entries.clear();
  ibv_async_event event{};
  event.event_type = IBV_EVENT_CQ_ERR;
  event.element.cq = &queue;
  post_event(queue.context, event);
}

void FakeVerbs::State::complete(FakePair& pair, ibv_wc completion, std::uint32_t requests) {
  auto& queue = static_cast<FakeCompletions&>(*pair.send_cq);
  if (queue.is_overrun) return;
  if (queue.entries.size() == static_cast<std::size_t>(queue.cqe)) return overrun(queue);
  completion.qp_num = pair.qp_num;
  const bool is_arrival =
      completion.status == IBV_WC_SUCCESS && (completion.opcode & IBV_WC_RECV) != 0;
  const bool is_held = is_arrival && static_cast<FakeContext*>(pair.context)->nic->holds_arrivals;
  queue.entries.push_back({completion, requests, is_held});
  if (queue.is_armed) {
    queue.is_armed = false;
    (void)eventfd_write(queue.channel->fd, 1);
  }
}

void FakeVerbs::State::finish(FakePair& pair, const FakeRequest& request, ibv_wc_status status) {
  ++pair.unsignaled;
  const bool is_told =
      status != IBV_WC_SUCCESS || (request.request.send_flags & IBV_SEND_SIGNALED) != 0;
  if (!is_told) return;
  ++completions;
  if (status == IBV_WC_SUCCESS && completions == failing_completion) status = failing_status;
  ibv_wc completion{};
  completion.wr_id = request.request.wr_id;
  completion.status = status;
  completion.opcode = is_write(request.request.opcode)             ? IBV_WC_RDMA_WRITE
                      : request.request.opcode == IBV_WR_RDMA_READ ? IBV_WC_RDMA_READ
                                                                   : IBV_WC_SEND;
  complete(pair, completion, std::exchange(pair.unsignaled, 0));
  if (status != IBV_WC_SUCCESS && pair.state != IBV_QPS_ERR)
    put_into_error(pair, IBV_WC_WR_FLUSH_ERR);
}

void FakeVerbs::State::show(FakeCompletions& queue) {
  for (FakeCompletions::Entry& entry : queue.entries) entry.is_held = false;
}

void FakeVerbs::State::put_into_error(FakePair& pair, ibv_wc_status first) {
  pair.state = IBV_QPS_ERR;
  auto& queue = static_cast<FakeCompletions&>(*pair.send_cq);
  if (std::ranges::any_of(queue.entries, &FakeCompletions::Entry::is_held)) queue.empty_polls = 3;
  std::deque<FakeRequest> sends = std::exchange(pair.sends, {});
  for (const FakeRequest& request : sends)
    finish(pair, request, std::exchange(first, IBV_WC_WR_FLUSH_ERR));
  for (const std::uint64_t id : std::exchange(pair.receives, {})) {
    ibv_wc completion{};
    completion.wr_id = id;
    completion.status = IBV_WC_WR_FLUSH_ERR;
    completion.opcode = IBV_WC_RECV;
    complete(pair, completion, 1);
  }
}

void FakeVerbs::State::write(FakePair& peer, const FakeRequest& request) {
  const FakeRegion& target = *regions.at(request.request.wr.rdma.rkey);
  std::vector<std::byte> bytes = request.inline_bytes;
  for (const ibv_sge& part : request.parts) {
    const FakeRegion& source = *regions.at(part.lkey);
    const std::byte* const from = source.at(part.addr);
    bytes.insert(bytes.end(), from, from + part.length);
    read[source.addr] += part.length;
  }
  written[target.addr] += bytes.size();
  std::byte* const to = target.at(request.request.wr.rdma.remote_addr);
  if (target.is_of_gpu && gpus.delays_writes)
    static_cast<FakeContext*>(peer.context)
        ->nic->gpu_writes.push_back({target.rkey, to, std::move(bytes)});
  else
    std::ranges::copy(bytes, to);
}

// What the NIC reads at a GPU comes behind all that it has written there.
void FakeVerbs::State::read_into(FakePair& peer, const FakeRequest& request) {
  const FakeRegion& source = *regions.at(request.request.wr.rdma.rkey);
  if (source.is_of_gpu) land(*static_cast<FakeContext*>(peer.context)->nic);
  const std::byte* from = source.at(request.request.wr.rdma.remote_addr);
  for (const ibv_sge& part : request.parts) {
    std::copy_n(from, part.length, regions.at(part.lkey)->at(part.addr));
    from += part.length;
  }
}

void FakeVerbs::State::land(FakeNic& nic) {
  for (const FakeNic::GpuWrite& one : std::exchange(nic.gpu_writes, {}))
    std::ranges::copy(one.bytes, one.to);
}

void FakeVerbs::State::land(const FakeRegion& region) {
  for (const auto& nic : nics)
    std::erase_if(nic->gpu_writes, [&](const FakeNic::GpuWrite& one) {
      if (one.key == region.rkey) std::ranges::copy(one.bytes, one.to);
      return one.key == region.rkey;
    });
}

// False if the first request has to wait.
bool FakeVerbs::State::carry_out_first(FakePair& pair) {
  FakeRequest& first = pair.sends.front();
  const ibv_send_wr& request = first.request;
  if (!check_local(pair, first)) return put_into_error(pair, IBV_WC_LOC_PROT_ERR), false;
  FakePair* const peer = find_peer(pair);
  pair.has_lost = !is_active(pair) || (peer != nullptr && !is_active(*peer));
  if (pair.has_lost) return false;
  if (peer == nullptr) return put_into_error(pair, IBV_WC_RETRY_EXC_ERR), false;
  const bool takes_receive = has_immediate(request.opcode);
  if (takes_receive && peer->receives.empty()) return ++unexpected, false;
  const std::uint64_t bytes = bytes_of(first);
  const bool is_read = request.opcode == IBV_WR_RDMA_READ;
  if ((is_write(request.opcode) || is_read) &&
      !check_remote(*peer, request.wr.rdma.remote_addr, bytes, request.wr.rdma.rkey,
                    is_read ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_WRITE)) {
    put_into_error(pair, IBV_WC_REM_ACCESS_ERR);
    put_into_error(*peer, IBV_WC_WR_FLUSH_ERR);
    return false;
  }
  if (is_read)
    read_into(*peer, first);
  else if (bytes > 0)
    write(*peer, first);
  static_cast<FakeContext*>(pair.context)->nic->bytes += bytes;
  ++pair.next_packet;
  ++peer->expected_packet;
  if (takes_receive && ++completions == failing_completion) {
    // The receiver's NIC fails, and says so.
    complete(*peer, received(*peer, first, failing_status), 1);
    put_into_error(*peer, IBV_WC_WR_FLUSH_ERR);
    return put_into_error(pair, IBV_WC_REM_OP_ERR), false;
  }
  const FakeRequest done = std::move(pair.sends.front());
  pair.sends.pop_front();
  if (takes_receive) complete(*peer, received(*peer, done, IBV_WC_SUCCESS), 1);
  finish(pair, done, IBV_WC_SUCCESS);
  return true;
}

void FakeVerbs::State::carry_out(FakePair& pair) {
  while (pair.state == IBV_QPS_RTS && !pair.sends.empty() && carry_out_first(pair)) {
  }
}

void FakeVerbs::State::kick(FakePair& pair) {
  if (is_late)
    changed.notify_all();
  else
    carry_out(pair);
}

void FakeVerbs::State::run() {
  std::unique_lock lock(mutex);
  while (!ends) {
    std::vector<FakePair*> ready;
    for (const auto& [number, pair] : pairs)
      if (pair->state == IBV_QPS_RTS && !pair->sends.empty() && !pair->has_lost)
        ready.push_back(pair);
    if (ready.empty()) {
      changed.wait(lock);
      continue;
    }
    FakePair& drawn = *ready[random() % ready.size()];
    if (!carry_out_first(drawn) && drawn.state == IBV_QPS_RTS)
      changed.wait_for(lock, std::chrono::milliseconds(1));
    lock.unlock();
    std::this_thread::yield();
    lock.lock();
  }
}

}  // namespace gyre::tests
