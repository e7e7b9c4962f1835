#include "transports/rdma/receiver.h"

#include "transports/rdma/private_pages.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

namespace gyre::transport {

RdmaReceiver::RdmaReceiver(const LinkKey& key, std::shared_ptr<FifoMemory> memory,
                           std::unique_ptr<RdmaQueues> queues,
                           std::shared_ptr<RdmaFarewell> farewell, RdmaWindow window,
                           IssuedTicket ticket, Letters letters)
    : key_(key),
      window_(window),
      memory_(std::move(memory)),
      ticket_(std::move(ticket)),
      letters_(std::move(letters)),
      arriving_(memory_->view),
      arrivals_(window.messages),
      credited_(memory_->view.shape.first),
      link_(std::move(queues), std::move(farewell), "rdma from rank", key.peer) {}

RdmaReceiver::~RdmaReceiver() {
  if (!link_.is_joined()) letters_.refuse();
  if (error_.ok()) link_.close(arriving_.tail());
}

Result<std::unique_ptr<RdmaReceiver>> RdmaReceiver::make(const LinkKey& key,
                                                         std::shared_ptr<FifoMemory> memory,
                                                         std::unique_ptr<RdmaQueues> queues,
                                                         std::shared_ptr<RdmaFarewell> farewell,
                                                         RdmaWindow window, IssuedTicket ticket,
                                                         Letters letters) {
  std::unique_ptr<RdmaReceiver> made(new RdmaReceiver(key, std::move(memory), std::move(queues),
                                                      std::move(farewell), window,
                                                      std::move(ticket), std::move(letters)));
  GYRE_TRY(made->prepare());
  return made;
}

Status RdmaReceiver::prepare() {
  const RdmaDevice& device = link_.queues().device();
  const FifoView& fifo = memory_->view;
  constexpr int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
  GYRE_ASSIGN(notes_, private_pages(window_.messages * sizeof(NotePlace)));
  GYRE_ASSIGN(
      slots_memory_,
      device.register_memory({fifo.slots, fifo.shape.slot_count * fifo.shape.slot_bytes}, access));
  GYRE_ASSIGN(notes_memory_,
              device.register_memory({notes_.get().data, notes_.get().bytes}, access));
  return {};
}

RdmaAddress RdmaReceiver::address(std::string place) const {
  RdmaAddress own = link_.queues().address(std::move(place));
  own.window = window_.messages;
  own.slots = {reinterpret_cast<std::uintptr_t>(memory_->view.slots), slots_memory_.get()->rkey};
  own.notes = {reinterpret_cast<std::uintptr_t>(notes_.get().data), notes_memory_.get()->rkey};
  return own;
}

Status RdmaReceiver::progress() {
  if (!error_.ok()) return error_;
  Status status = ready() ? Status() : join();
  if (status.ok() && ready()) {
    status = link_.take_completions(
        [this](const ibv_wc& completion, WorkTag tag) { return on_completion(completion, tag); });
    if (status.ok()) status = return_credit();
  }
  if (!status.ok()) fail(std::move(status));
  return error_;
}

void RdmaReceiver::fail(Status status) { error_ = link_.broken(std::move(status)); }

// The first credit says that this end is ready.
Status RdmaReceiver::join() {
  const auto bytes = letters_.take_answer();
  if (!bytes) return {};
  const std::optional<RdmaAnswer> answer = decode_rdma_answer(*bytes);
  if (!answer) return Status(Code::RemoteError, "the sender's answer is malformed");
  if (answer->ticket != ticket_.get().ticket)
    return Status(Code::RemoteError, "the sender's answer shows another ticket");
  const RdmaAddress own = link_.queues().address({});
  if (answer->address.network != own.network || answer->address.pairs.size() != own.pairs.size())
    return Status(Code::RemoteError,
                  fmt::format("the sender's answer is for {} queue pairs on {}; here are {} on {}",
                              answer->address.pairs.size(), network_text(answer->address.network),
                              own.pairs.size(), network_text(own.network)));
  GYRE_TRY(link_.join(answer->address));
  ++credits_out_;
  return link_.queues().post_notice(WorkKind::credit,
                                    {NoticeKind::credit, static_cast<std::uint32_t>(credited_)});
}

Status RdmaReceiver::on_completion(const ibv_wc& completion, WorkTag tag) {
  if (tag.kind == WorkKind::credit) --credits_out_;
  if (tag.kind != WorkKind::receive) return {};
  GYRE_TRY(on_notice(completion, tag.pair));
  GYRE_TRY(link_.queues().post_receives(tag.pair, 1));
  return land_whole();
}

Status RdmaReceiver::on_notice(const ibv_wc& completion, std::size_t pair) {
  const std::optional<Notice> notice =
      (completion.wc_flags & IBV_WC_WITH_IMM) != 0 ? Notice::of(completion.imm_data) : std::nullopt;
  if (!notice || notice->kind == NoticeKind::credit)
    return Status(Code::RemoteError, "the sender sent a notice that is not ours");
  if (notice->kind == NoticeKind::close) {
    link_.note_closing();
    return {};
  }
  const std::uint64_t number = whole_number(notice->number, arriving_.tail());
  if (number - arriving_.tail() >= window_.messages)
    return Status(Code::RemoteError,
                  fmt::format("message {} came in place of {}", number, arriving_.tail()));
  MessageArrival& arrival = arrivals_[number & (window_.messages - 1)];
  if (pair > 0)
    ++arrival.pieces;
  else
    arrival.is_noted = true;
  return {};
}

// In order: what came over other queue pairs may be early.
Status RdmaReceiver::land_whole() {
  for (;;) {
    MessageArrival& arrival = arrivals_[arriving_.tail() & (window_.messages - 1)];
    if (!arrival.is_noted) return {};
    const std::byte* const place =
        notes_.get().data + (arriving_.tail() & (window_.messages - 1)) * sizeof(NotePlace);
    const auto note = copied<RdmaNote>(place);
    const std::string fault =
        note_fault(note, arriving_.tail(), memory_->view.shape.slot_bytes, link_.queues().size());
    if (!fault.empty())
      return Status(Code::RemoteError, "a message with a note that is not ours: " + fault);
    if (arrival.pieces < note.pieces) return {};
    if (arrival.pieces > note.pieces || !arriving_.has_credit())
      return Status(Code::RemoteError,
                    fmt::format("more has come of message {} than it has", note.sequence));
    if (note.is_packed == 1) std::memcpy(arriving_.place(), place + sizeof note, note.bytes);
    arrival = {};
    arriving_.commit(note.bytes, note.signature, DeliveryMode::staged);
  }
}

Status RdmaReceiver::return_credit() {
  if (head() == credited_ || link_.is_closed() || credits_out_ >= window_.messages) return {};
  credited_ = head();
  ++credits_out_;
  return link_.queues().post_notice(WorkKind::credit,
                                    {NoticeKind::credit, static_cast<std::uint32_t>(credited_)});
}

std::uint64_t RdmaReceiver::head() const {
  // This process's: it is read where its thread wrote it.
  return memory_->view.control->head.value.load(std::memory_order_relaxed);
}

Status RdmaReceiver::look_at_peer(std::int64_t now_ns, std::int64_t limit_ns) {
  GYRE_TRY(progress());
  Status looked = link_.look_at_peer(now_ns, limit_ns);
  if (!looked.ok()) fail(std::move(looked));
  return error_;
}

void RdmaReceiver::arm(WaitSet& set) {
  if (!error_.ok()) return;
  Status armed = link_.queues().arm(set);
  if (!armed.ok()) return fail(std::move(armed));
  (void)progress();  // the error stays, and the next call tells of it
  // This end waits for a message that will not come.
  if (error_.ok() && at_end()) fail(Status(Code::RemoteError, "the peer closed the connection"));
}

}  // namespace gyre::transport
