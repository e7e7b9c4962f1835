// The part of a sender that makes requests of a message: where it lies, where it goes, and which
// part of it goes over which queue pair.
#include "lib/base/units.h"
#include "transports/rdma/sender.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

namespace gyre::transport {
namespace {

// Less is not worth a request of its own.
constexpr std::uint64_t min_piece_bytes = 16 << 10;
constexpr std::uint64_t piece_alignment = 128;

}  // namespace

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
  GYRE_TRY(find_parts(index, said));
  auto& out = reinterpret_cast<NotePlace*>(notes_.get().data)[index & (ring_ - 1)];
  out.note = {.sequence = index, .signature = said.flag, .bytes = said.bytes};
  pieces_.clear();
  if (said.delivery == DeliveryMode::staged && said.bytes <= out.payload.size()) {
    out.note.place = PayloadPlace::note;
    std::memcpy(out.payload.data(), fifo.slot(index), said.bytes);
    return write_note(index, sizeof(RdmaNote) + said.bytes);
  }
  if (said.delivery == DeliveryMode::push) out.note.place = PayloadPlace::lent;
  cut(said.bytes);
  out.note.pieces = static_cast<std::uint16_t>(pieces_.size() - 1);
  return write_note(index, sizeof(RdmaNote));
}

// Where the message lies here, and where it goes. The room there was the receiver's word as
// the message was made.
Status RdmaSender::find_parts(std::uint64_t index, const SlotHeader& said) {
  const FifoView& fifo = memory_->view;
  const bool lands = said.delivery == DeliveryMode::push;
  parts_ = {};
  if (said.delivery == DeliveryMode::staged)
    (void)parts_.add({fifo.slot(index), 0, said.bytes});
  else
    parts_ = lent_parts(fifo, index);
  // A receiver that has not got all of a call lends nothing to the next one.
  if (lands && index < lent_from_)
    return Status(Code::RemoteError,
                  fmt::format("the receiver lends anew before message {} has left", index));
  const std::uint64_t room = lands ? grant_.bytes : fifo.shape.slot_bytes;
  std::uint64_t whole = 0;
  bool fits = note_fits(said, fifo.shape) && said.delivery <= DeliveryMode::push;
  for (std::size_t i = 0; i < parts_.count; ++i) {
    const LentPart& part = parts_.parts[i];
    fits = fits && part.bytes <= room && part.target <= room - part.bytes;
    whole += part.bytes;
  }
  if (!fits || whole != said.bytes)
    return internal_error(fmt::format("message {} of {} bytes with delivery {} over rdma", index,
                                      said.bytes, static_cast<int>(said.delivery)));
  const std::uint64_t slot = (index & (fifo.shape.slot_count - 1)) * fifo.shape.slot_bytes;
  for (std::size_t i = 0; i < link_.rails().size(); ++i) {
    const RemoteMemory& slots = link_.rails()[i].there.slots;
    targets_[i] = lands ? RemoteMemory{grant_.address, grant_.keys[i]}
                        : RemoteMemory{slots.address + slot, slots.key};
  }
  return {};
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
  request.imm_data = immediate_of(index);
  request.wr.rdma.remote_addr = rail.there.notes.address + place;
  request.wr.rdma.rkey = rail.there.notes.key;
  return request;
}

Status RdmaSender::write_piece(std::uint64_t index, const RdmaPiece& piece, ibv_send_wr* last) {
  const RdmaRail& rail = link_.rails()[piece.rail];
  if (rail.queues == nullptr) return {};  // lost by a piece before this one
  const std::uint64_t most = rail.queues->device().max_write_bytes();
  const std::uint64_t end = piece.offset + piece.bytes;
  request_count_ = 0;
  std::uint64_t begin = 0;  // of the part, in the message
  for (std::size_t i = 0; i < parts_.count; begin += parts_.parts[i++].bytes) {
    const LentPart& part = parts_.parts[i];
    const std::uint64_t stop = std::min(end, begin + part.bytes);
    for (std::uint64_t at = std::max(begin, piece.offset); at < stop; at += most)
      GYRE_TRY(add_write(index, piece, part, at - begin, std::min(most, stop - at)));
  }
  ibv_send_wr& tail = requests_[request_count_ - 1];
  if (last != nullptr) {
    tail.next = last;
  } else {
    tail.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    tail.send_flags = IBV_SEND_SIGNALED;
    tail.imm_data = immediate_of(index);
  }
  return post(piece.rail, piece.pair, requests_[0]);
}

// One more request of the piece: so many bytes of the part, from `skipped` on.
Status RdmaSender::add_write(std::uint64_t index, const RdmaPiece& piece, const LentPart& part,
                             std::uint64_t skipped, std::uint64_t bytes) {
  GYRE_ASSIGN(const std::uint32_t key, local_key(piece.rail, part));
  const RemoteMemory& target = targets_[piece.rail];
  ibv_sge& span = spans_[request_count_];
  span = {reinterpret_cast<std::uintptr_t>(part.source) + skipped,
          static_cast<std::uint32_t>(bytes), key};
  ibv_send_wr& request = requests_[request_count_];
  request = {};
  request.wr_id = WorkTag{WorkKind::message, static_cast<std::uint8_t>(piece.pair), index}.to_id();
  request.sg_list = &span;
  request.num_sge = 1;
  request.opcode = IBV_WR_RDMA_WRITE;
  request.wr.rdma.remote_addr = target.address + part.target + skipped;
  request.wr.rdma.rkey = target.key;
  if (request_count_ > 0) requests_[request_count_ - 1].next = &request;
  ++request_count_;
  return {};
}

// By which the rail's NIC reads the part: a slot, or memory that the caller holds.
Result<std::uint32_t> RdmaSender::local_key(std::size_t index, const LentPart& part) const {
  const RdmaRail& rail = link_.rails()[index];
  const FifoView& fifo = memory_->view;
  const std::byte* const end = fifo.slots + fifo.shape.slot_count * fifo.shape.slot_bytes;
  if (part.source >= fifo.slots && part.source < end) return rail.slots.get()->lkey;
  // The newest one is held longest: messages leave in order.
  for (auto one = held_.rbegin(); one != held_.rend(); ++one) {
    const auto held = one->lock();
    if (held == nullptr || !held->range().holds(part.source, part.bytes)) continue;
    if (const ibv_mr* const memory = held->on(rail.queues->device())) return memory->lkey;
  }
  return internal_error(fmt::format("{} bytes at {} are sent over rdma, and nobody holds them",
                                    part.bytes, static_cast<const void*>(part.source)));
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

}  // namespace gyre::transport
