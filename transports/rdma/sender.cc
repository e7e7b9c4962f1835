#include "transports/rdma/sender.h"

#include "lib/base/units.h"
#include "transports/rdma/private_pages.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cstring>

namespace gyre::transport {
namespace {

// Less is not worth a request of its own.
constexpr std::uint64_t min_piece_bytes = 16 << 10;
constexpr std::uint64_t piece_alignment = 128;
// Beside messages and credits: a first and a last notice, a question, and one to spare.
constexpr std::uint32_t spare_requests = 4;

std::uint64_t max_write_bytes(const RdmaDevice& device) {
  return std::max<std::uint64_t>(device.port().attributes.max_msg_sz, piece_alignment);
}

}  // namespace

QueueDepth RdmaWindow::depth() const {
  return {messages * (writes + 1) + spare_requests, messages + spare_requests};
}

RdmaWindow fit_window(const FifoShape& shape, const RdmaDevice& device, std::size_t pairs) {
  const std::uint64_t writes = divide_up(shape.slot_bytes, max_write_bytes(device));
  RdmaWindow window{shape.slot_count,
                    static_cast<std::uint32_t>(std::min<std::uint64_t>(writes, UINT16_MAX))};
  const auto fits = [&] {
    const QueueDepth depth = window.depth();
    const std::uint64_t entries = std::uint64_t{pairs} * (depth.send + depth.receive);
    return depth.send <= static_cast<std::uint64_t>(device.limits().max_qp_wr) &&
           entries <= static_cast<std::uint64_t>(device.limits().max_cqe);
  };
  while (window.messages > 0 && !fits()) window.messages /= 2;
  return window;
}

RdmaSender::RdmaSender(const LinkKey& key, std::shared_ptr<FifoMemory> memory,
                       std::unique_ptr<RdmaQueues> queues, std::shared_ptr<RdmaFarewell> farewell,
                       const RdmaAddress& there, RdmaWindow window, IsRefused is_refused)
    : key_(key),
      there_(there),
      window_(window),
      is_refused_(std::move(is_refused)),
      memory_(std::move(memory)),
      leaving_(memory_->view),
      posted_(memory_->view.shape.first),
      credited_(posted_),
      unfinished_(there.window, 0),
      link_(std::move(queues), std::move(farewell), "rdma to rank", key.peer) {}

RdmaSender::~RdmaSender() {
  if (error_.ok() && flushed()) link_.close(posted_);
}

Result<std::unique_ptr<RdmaSender>> RdmaSender::make(const LinkKey& key,
                                                     std::shared_ptr<FifoMemory> memory,
                                                     std::unique_ptr<RdmaQueues> queues,
                                                     std::shared_ptr<RdmaFarewell> farewell,
                                                     const RdmaAddress& there, RdmaWindow window,
                                                     IsRefused is_refused) {
  std::unique_ptr<RdmaSender> made(new RdmaSender(key, std::move(memory), std::move(queues),
                                                  std::move(farewell), there, window,
                                                  std::move(is_refused)));
  GYRE_TRY(made->prepare(there));
  return made;
}

Status RdmaSender::prepare(const RdmaAddress& there) {
  const RdmaDevice& device = link_.queues().device();
  const FifoView& fifo = memory_->view;
  GYRE_ASSIGN(notes_, private_pages(there.window * sizeof(NotePlace)));
  GYRE_ASSIGN(slots_memory_, device.register_memory(
                                 {fifo.slots, fifo.shape.slot_count * fifo.shape.slot_bytes}, 0));
  GYRE_ASSIGN(notes_memory_, device.register_memory({notes_.get().data, notes_.get().bytes}, 0));
  requests_.resize(window_.writes);
  parts_.resize(window_.writes);
  return link_.join(there);
}

Status RdmaSender::progress() {
  if (!error_.ok()) return error_;
  Status status = link_.take_completions(
      [this](const ibv_wc& completion, WorkTag tag) { return on_completion(completion, tag); });
  if (status.ok() && is_ready_) status = ship();
  if (status.ok() && !is_ready_ && is_refused_())
    status = Status(Code::RemoteError, "the receiver has given the connection up");
  if (!status.ok()) fail(std::move(status));
  return error_;
}

void RdmaSender::fail(Status status) { error_ = link_.broken(std::move(status)); }

Status RdmaSender::on_completion(const ibv_wc& completion, WorkTag tag) {
  if (tag.kind == WorkKind::receive) {
    GYRE_TRY(on_notice(completion));
    return link_.queues().post_receives(tag.pair, 1);
  }
  if (tag.kind != WorkKind::message) return {};
  --unfinished_[tag.number & (there_.window - 1)];
  release_finished();
  return {};
}

Status RdmaSender::on_notice(const ibv_wc& completion) {
  const std::optional<Notice> notice =
      (completion.wc_flags & IBV_WC_WITH_IMM) != 0 ? Notice::of(completion.imm_data) : std::nullopt;
  if (!notice || notice->kind == NoticeKind::message)
    return Status(Code::RemoteError, "the receiver sent a notice that is not ours");
  const std::uint64_t number = whole_number(notice->number, credited_);
  if (number - credited_ > posted_ - credited_)
    return Status(Code::RemoteError,
                  fmt::format("the receiver tells of message {}; {} were sent", number, posted_));
  credited_ = number;
  is_ready_ = true;
  if (notice->kind == NoticeKind::credit) return {};
  // It has all before that number, whether or not its NIC's last acknowledgements come.
  link_.note_closing();
  while (leaving_.head() != number && leaving_.has_message()) leaving_.release();
  return {};
}

// In order, as the executor's credit is a count.
void RdmaSender::release_finished() {
  while (leaving_.head() != posted_ && unfinished_[leaving_.head() & (there_.window - 1)] == 0)
    leaving_.release();
}

Status RdmaSender::ship() {
  while (posted_ != committed()) {
    if (link_.is_closed()) return Status(Code::RemoteError, "the peer closed the connection");
    // The slot there and the request queues here both have room for the window alone.
    if (posted_ - credited_ >= window_.messages || posted_ - leaving_.head() >= window_.messages)
      return {};
    GYRE_TRY(ship_message(posted_));
    ++posted_;
  }
  return {};
}

Status RdmaSender::ship_message(std::uint64_t index) {
  const FifoView& fifo = memory_->view;
  const SlotHeader& said = fifo.note(index);
  if (said.delivery != DeliveryMode::staged || !note_fits(said, fifo.shape))
    return internal_error(fmt::format("message {} of {} bytes with delivery {} over rdma", index,
                                      said.bytes, static_cast<int>(said.delivery)));
  const std::uint64_t place = index & (there_.window - 1);
  auto& out = reinterpret_cast<NotePlace*>(notes_.get().data)[place];
  out.note = {.sequence = index, .signature = said.flag, .bytes = said.bytes};
  std::size_t note_bytes = sizeof(RdmaNote);
  std::uint64_t pieces = 0;  // on the queue pairs from the first one on
  if (said.bytes <= out.payload.size()) {
    out.note.is_packed = 1;
    std::memcpy(out.payload.data(), fifo.slot(index), said.bytes);
    note_bytes += said.bytes;
  } else {
    pieces = std::clamp<std::uint64_t>(said.bytes / min_piece_bytes, 1, link_.queues().size());
  }
  const std::uint64_t share =
      pieces == 0 ? 0 : round_up(divide_up(said.bytes, pieces), piece_alignment);
  if (pieces > 0) pieces = divide_up(said.bytes, share);
  out.note.pieces = static_cast<std::uint16_t>(pieces > 1 ? pieces - 1 : 0);
  unfinished_[place] = std::max<std::uint32_t>(1, static_cast<std::uint32_t>(pieces));

  ibv_sge part{reinterpret_cast<std::uintptr_t>(&out), static_cast<std::uint32_t>(note_bytes),
               notes_memory_.get()->lkey};
  const Notice notice{NoticeKind::message, static_cast<std::uint32_t>(index)};
  ibv_send_wr last{};
  last.wr_id = WorkTag{WorkKind::message, 0, index}.to_id();
  last.sg_list = &part;
  last.num_sge = 1;
  last.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  last.send_flags = IBV_SEND_SIGNALED;
  if (note_bytes <= link_.queues().inline_bytes()) last.send_flags |= IBV_SEND_INLINE;
  last.imm_data = notice.to_immediate();
  last.wr.rdma.remote_addr = there_.notes.address + place * sizeof(NotePlace);
  last.wr.rdma.rkey = there_.notes.key;
  if (pieces == 0) return link_.queues().post(0, last);
  for (std::size_t pair = 1; pair < pieces; ++pair) {
    const std::uint64_t offset = pair * share;
    GYRE_TRY(write_piece(index, {pair, offset, std::min(share, said.bytes - offset)}, nullptr));
  }
  return write_piece(index, {0, 0, std::min<std::uint64_t>(share, said.bytes)}, &last);
}

Status RdmaSender::write_piece(std::uint64_t index, const RdmaPiece& piece, ibv_send_wr* last) {
  const FifoView& fifo = memory_->view;
  const std::uint64_t most = max_write_bytes(link_.queues().device());
  const std::uint64_t slot =
      (index & (fifo.shape.slot_count - 1)) * fifo.shape.slot_bytes + piece.offset;
  std::size_t count = 0;
  for (std::uint64_t done = 0; done < piece.bytes; done += most, ++count) {
    parts_[count] = {reinterpret_cast<std::uintptr_t>(fifo.slots + slot + done),
                     static_cast<std::uint32_t>(std::min(most, piece.bytes - done)),
                     slots_memory_.get()->lkey};
    ibv_send_wr& request = requests_[count];
    request = {};
    request.wr_id =
        WorkTag{WorkKind::message, static_cast<std::uint8_t>(piece.pair), index}.to_id();
    request.sg_list = &parts_[count];
    request.num_sge = 1;
    request.opcode = IBV_WR_RDMA_WRITE;
    request.wr.rdma.remote_addr = there_.slots.address + slot + done;
    request.wr.rdma.rkey = there_.slots.key;
    if (count > 0) requests_[count - 1].next = &request;
  }
  ibv_send_wr& tail = requests_[count - 1];
  if (last != nullptr) {
    tail.next = last;
  } else {
    const Notice notice{NoticeKind::message, static_cast<std::uint32_t>(index)};
    tail.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    tail.send_flags = IBV_SEND_SIGNALED;
    tail.imm_data = notice.to_immediate();
  }
  return link_.queues().post(piece.pair, requests_[0]);
}

std::uint64_t RdmaSender::committed() const {
  // This end's own memory, and its one thread.
  return memory_->view.control->tail.value.load(std::memory_order_relaxed);
}

Status RdmaSender::look_at_peer(std::int64_t now_ns, std::int64_t limit_ns) {
  GYRE_TRY(progress());
  Status looked = link_.look_at_peer(now_ns, limit_ns);
  if (!looked.ok()) fail(std::move(looked));
  return error_;
}

void RdmaSender::arm(WaitSet& set) {
  if (!error_.ok()) return;
  Status armed = link_.queues().arm(set);
  if (!armed.ok()) return fail(std::move(armed));
  (void)progress();  // the error stays, and the next call tells of it
}

}  // namespace gyre::transport
