#include "transports/rdma/sender.h"

#include "lib/base/units.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

namespace gyre::transport {
namespace {

// Less is not worth a request of its own.
constexpr std::uint64_t min_piece_bytes = 16 << 10;
constexpr std::uint64_t piece_alignment = 128;
// Beside messages and credits: first and last notices, a question to the NIC, and for each rail
// that may be lost a question to the peer and its answer.
constexpr std::uint32_t spare_requests = 4 + 2 * max_rails;

std::uint64_t max_write_bytes(const RdmaDevice& device) {
  return std::max<std::uint64_t>(device.port().attributes.max_msg_sz, piece_alignment);
}

}  // namespace

QueueDepth RdmaWindow::depth() const {
  return {messages * (writes + 1) + spare_requests, messages + spare_requests};
}

RdmaWindow fit_window(const FifoShape& shape,
                      const std::vector<std::shared_ptr<RdmaDevice>>& devices, std::size_t pairs) {
  RdmaWindow window{std::min(shape.slot_count, max_window), 1};
  for (const auto& device : devices) {
    const std::uint64_t writes = divide_up(shape.slot_bytes, max_write_bytes(*device));
    window.writes = std::max(window.writes,
                             static_cast<std::uint32_t>(std::min<std::uint64_t>(writes, 1 << 16)));
  }
  const auto fits = [&](const std::shared_ptr<RdmaDevice>& device) {
    const QueueDepth depth = window.depth();
    const std::uint64_t entries = std::uint64_t{pairs} * (depth.send + depth.receive);
    return depth.send <= static_cast<std::uint64_t>(device->limits().max_qp_wr) &&
           entries <= static_cast<std::uint64_t>(device->limits().max_cqe);
  };
  while (window.messages > 0 && !std::ranges::all_of(devices, fits)) window.messages /= 2;
  return window;
}

RdmaSender::RdmaSender(const LinkKey& key, std::shared_ptr<FifoMemory> memory,
                       std::vector<RdmaRail> rails, std::shared_ptr<RdmaFarewell> farewell,
                       RdmaWindow window, std::uint32_t ring, IsRefused is_refused)
    : RdmaEnd(std::move(memory), std::move(rails), std::move(farewell), "rdma to rank", key.peer),
      window_(window),
      ring_(ring),
      is_refused_(std::move(is_refused)),
      leaving_(memory_->view),
      posted_(memory_->view.shape.first),
      credited_(posted_),
      unfinished_(ring, 0),
      requests_(window.writes),
      parts_(window.writes) {}

RdmaSender::~RdmaSender() {
  if (error_.ok() && flushed()) link_.close(posted_);
}

Result<std::unique_ptr<RdmaSender>> RdmaSender::make(const LinkKey& key,
                                                     std::shared_ptr<FifoMemory> memory,
                                                     std::vector<RdmaRail> rails,
                                                     std::shared_ptr<RdmaFarewell> farewell,
                                                     RdmaWindow window, std::uint32_t ring,
                                                     IsRefused is_refused) {
  std::unique_ptr<RdmaSender> made(new RdmaSender(key, std::move(memory), std::move(rails),
                                                  std::move(farewell), window, ring,
                                                  std::move(is_refused)));
  GYRE_TRY(made->prepare());
  return made;
}

Status RdmaSender::prepare() {
  GYRE_TRY(register_memory(ring_, 0));
  std::vector<std::optional<RdmaAddress>> there;
  for (const RdmaRail& rail : link_.rails())
    there.push_back(rail.queues != nullptr ? std::optional(rail.there) : std::nullopt);
  GYRE_TRY(link_.join(there));
  find_paths();
  return {};
}

// By rails first: two pieces go over two ports, not over two queue pairs of one.
void RdmaSender::find_paths() {
  paths_.clear();
  const std::vector<RdmaRail>& rails = link_.rails();
  for (std::size_t pair = 0; pair < max_queue_pairs; ++pair)
    for (std::size_t rail = 0; rail < rails.size(); ++rail)
      if (rails[rail].queues != nullptr && pair < rails[rail].queues->size())
        paths_.push_back({rail, pair, rails[rail].queues->device().port().gigabits_per_s()});
}

Status RdmaSender::turn() {
  GYRE_TRY(link_.take_completions());
  for (const std::size_t rail : std::exchange(told_lost_, {}))
    GYRE_TRY(link_.lose(rail, Status(Code::RemoteError, "the peer has lost it")));
  GYRE_TRY(note_losses());
  if (!is_ready_)
    return is_refused_() ? Status(Code::RemoteError, "the receiver has given the connection up")
                         : Status();
  if (link_.is_closed() && !flushed())
    return Status(Code::RemoteError, "the peer closed the connection");
  if (is_switching_) GYRE_TRY(ask());
  return is_switching_ ? Status() : ship();
}

Status RdmaSender::take(const ibv_wc& completion, WorkTag tag, std::size_t rail) {
  RdmaRail& from = link_.rails()[rail];
  if (tag.kind == WorkKind::receive) {
    GYRE_TRY(on_notice(completion));
    return from.queues->post_receives(tag.pair, 1);
  }
  if (tag.kind != WorkKind::message) return {};
  --from.unfinished;
  --unfinished_[tag.number & (ring_ - 1)];
  release_finished();
  return {};
}

Status RdmaSender::on_notice(const ibv_wc& completion) {
  const std::optional<Notice> notice =
      (completion.wc_flags & IBV_WC_WITH_IMM) != 0 ? Notice::of(completion.imm_data) : std::nullopt;
  if (!notice || notice->kind == NoticeKind::message)
    return Status(Code::RemoteError, "the receiver sent a notice that is not ours");
  if (notice->kind == NoticeKind::resume) return on_resume(*notice);
  if (notice->kind == NoticeKind::lost) {
    if (notice->number >= link_.rails().size())
      return Status(Code::RemoteError, "the receiver has lost a rail that is not there");
    told_lost_.push_back(notice->number);
    return {};
  }
  const std::uint64_t number = whole_number(notice->number, credited_);
  if (number - credited_ > posted_ - credited_)
    return Status(Code::RemoteError,
                  fmt::format("the receiver tells of message {}; {} were sent", number, posted_));
  credited_ = number;
  is_ready_ = true;
  if (notice->kind == NoticeKind::credit) return {};
  // It has all before that number, whether or not its NIC's last acknowledgements come. Its NIC may
  // have acknowledged more.
  link_.note_closing();
  const bool has_more = number - leaving_.head() <= posted_ - leaving_.head();
  while (has_more && leaving_.head() != number) leaving_.release();
  return {};
}

// In order, as the executor's credit is a count.
void RdmaSender::release_finished() {
  while (leaving_.head() != posted_ && unfinished_[leaving_.head() & (ring_ - 1)] == 0)
    leaving_.release();
}

// A loss while answers are due makes all questions anew: an answer may have been lost with it.
Status RdmaSender::note_losses() {
  while (const auto rail = link_.next_lost()) {
    lost_.push_back(*rail);
    is_switching_ = true;
    has_asked_ = false;
    ++question_;
    find_paths();
  }
  return {};
}

// Once nothing is on its way, so that nothing lands at the receiver that it does not know of.
Status RdmaSender::ask() {
  const bool is_quiet =
      std::ranges::all_of(link_.rails(), [](const RdmaRail& rail) { return rail.unfinished == 0; });
  if (has_asked_ || !is_quiet || link_.is_closed()) return {};
  has_asked_ = true;
  answers_due_ = lost_.size();
  for (const std::size_t rail : lost_)
    GYRE_TRY(link_.tell(WorkKind::notice,
                        {NoticeKind::lost, static_cast<std::uint32_t>(rail), question_}));
  return {};
}

Status RdmaSender::on_resume(const Notice& notice) {
  if (notice.question != question_ || answers_due_ == 0 || --answers_due_ > 0) return {};
  const std::uint64_t next = whole_number(notice.number, leaving_.head());
  if (next - leaving_.head() > posted_ - leaving_.head())
    return Status(Code::RemoteError,
                  fmt::format("the receiver waits for message {}; {} were sent", next, posted_));
  std::ranges::fill(unfinished_, 0);
  while (leaving_.head() != next) leaving_.release();
  posted_ = next;
  lost_.clear();
  is_switching_ = false;
  return {};
}

Status RdmaSender::ship() {
  while (posted_ != committed()) {
    // The slot there and the request queues here both have room for the window alone.
    if (posted_ - credited_ >= window_.messages || posted_ - leaving_.head() >= window_.messages)
      return {};
    GYRE_TRY(ship_message(posted_));
    GYRE_TRY(note_losses());
    if (is_switching_) return {};  // this message may have left in part
    ++posted_;
  }
  return {};
}

// Shares by the rates of the ports.
void RdmaSender::cut(std::uint64_t bytes) {
  pieces_.clear();
  const std::size_t count =
      std::clamp<std::size_t>(bytes / min_piece_bytes, std::size_t{1}, paths_.size());
  double weights = 0;
  for (std::size_t i = 0; i < count; ++i) weights += paths_[i].weight;
  std::uint64_t done = 0;
  for (std::size_t i = 0; i < count && done < bytes; ++i) {
    const double share = weights > 0 ? paths_[i].weight / weights : 1;
    std::uint64_t size = round_up(
        static_cast<std::uint64_t>(share * static_cast<double>(bytes)) + 1, piece_alignment);
    if (i + 1 == count) size = bytes;
    size = std::min(size, bytes - done);
    pieces_.push_back({paths_[i].rail, paths_[i].pair, done, size});
    done += size;
  }
}

Status RdmaSender::ship_message(std::uint64_t index) {
  const FifoView& fifo = memory_->view;
  const SlotHeader& said = fifo.note(index);
  if (said.delivery != DeliveryMode::staged || !note_fits(said, fifo.shape))
    return internal_error(fmt::format("message {} of {} bytes with delivery {} over rdma", index,
                                      said.bytes, static_cast<int>(said.delivery)));
  auto& out = reinterpret_cast<NotePlace*>(notes_.get().data)[index & (ring_ - 1)];
  out.note = {.sequence = index, .signature = said.flag, .bytes = said.bytes};
  pieces_.clear();
  if (said.bytes <= out.payload.size()) {
    out.note.is_packed = 1;
    std::memcpy(out.payload.data(), fifo.slot(index), said.bytes);
    return write_note(index, sizeof(RdmaNote) + said.bytes);
  }
  cut(said.bytes);
  out.note.pieces = static_cast<std::uint16_t>(pieces_.size() - 1);
  return write_note(index, sizeof(RdmaNote));
}

Status RdmaSender::write_note(std::uint64_t index, std::size_t note_bytes) {
  unfinished_[index & (ring_ - 1)] =
      std::max<std::uint32_t>(1, static_cast<std::uint32_t>(pieces_.size()));
  ibv_sge part{0, static_cast<std::uint32_t>(note_bytes), 0};
  ibv_send_wr last = note_request(index, part);
  if (pieces_.empty()) return post(paths_[0].rail, 0, last);
  for (std::size_t i = 1; i < pieces_.size(); ++i)
    GYRE_TRY(write_piece(index, pieces_[i], nullptr));
  return write_piece(index, pieces_[0], &last);
}

ibv_send_wr RdmaSender::note_request(std::uint64_t index, ibv_sge& part) const {
  const RdmaRail& rail = link_.rails()[paths_[0].rail];
  const std::uint64_t place = (index & (ring_ - 1)) * sizeof(NotePlace);
  part.addr = reinterpret_cast<std::uintptr_t>(notes_.get().data + place);
  part.lkey = rail.notes.get()->lkey;
  ibv_send_wr request{};
  request.wr_id = WorkTag{WorkKind::message, 0, index}.to_id();
  request.sg_list = &part;
  request.num_sge = 1;
  request.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  request.send_flags = IBV_SEND_SIGNALED;
  if (part.length <= rail.queues->inline_bytes()) request.send_flags |= IBV_SEND_INLINE;
  request.imm_data = Notice{NoticeKind::message, static_cast<std::uint32_t>(index)}.to_immediate();
  request.wr.rdma.remote_addr = rail.there.notes.address + place;
  request.wr.rdma.rkey = rail.there.notes.key;
  return request;
}

Status RdmaSender::write_piece(std::uint64_t index, const RdmaPiece& piece, ibv_send_wr* last) {
  const FifoView& fifo = memory_->view;
  const RdmaRail& rail = link_.rails()[piece.rail];
  if (rail.queues == nullptr) return {};  // lost by a piece before this one
  const std::uint64_t most = max_write_bytes(rail.queues->device());
  const std::uint64_t slot =
      (index & (fifo.shape.slot_count - 1)) * fifo.shape.slot_bytes + piece.offset;
  std::size_t count = 0;
  for (std::uint64_t done = 0; done < piece.bytes; done += most, ++count) {
    parts_[count] = {reinterpret_cast<std::uintptr_t>(fifo.slots + slot + done),
                     static_cast<std::uint32_t>(std::min(most, piece.bytes - done)),
                     rail.slots.get()->lkey};
    ibv_send_wr& request = requests_[count];
    request = {};
    request.wr_id =
        WorkTag{WorkKind::message, static_cast<std::uint8_t>(piece.pair), index}.to_id();
    request.sg_list = &parts_[count];
    request.num_sge = 1;
    request.opcode = IBV_WR_RDMA_WRITE;
    request.wr.rdma.remote_addr = rail.there.slots.address + slot + done;
    request.wr.rdma.rkey = rail.there.slots.key;
    if (count > 0) requests_[count - 1].next = &request;
  }
  ibv_send_wr& tail = requests_[count - 1];
  if (last != nullptr) {
    tail.next = last;
  } else {
    tail.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    tail.send_flags = IBV_SEND_SIGNALED;
    tail.imm_data = Notice{NoticeKind::message, static_cast<std::uint32_t>(index)}.to_immediate();
  }
  return post(piece.rail, piece.pair, requests_[0]);
}

Status RdmaSender::post(std::size_t rail, std::size_t pair, ibv_send_wr& first) {
  RdmaRail& over = link_.rails()[rail];
  if (over.queues == nullptr) return {};
  Status posted = over.queues->post(pair, first);
  if (posted.ok()) {
    ++over.unfinished;
    return posted;
  }
  return link_.lose(rail, std::move(posted));
}

std::uint64_t RdmaSender::committed() const {
  // This end's own memory, and its one thread.
  return memory_->view.control->tail.value.load(std::memory_order_relaxed);
}

}  // namespace gyre::transport
