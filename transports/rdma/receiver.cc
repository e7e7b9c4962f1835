#include "transports/rdma/receiver.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

namespace gyre::transport {

RdmaReceiver::RdmaReceiver(const LinkKey& key, std::shared_ptr<FifoMemory> memory,
                           std::vector<RdmaRail> rails, std::shared_ptr<RdmaFarewell> farewell,
                           RdmaWindow window, IssuedTicket ticket, Letters letters)
    : RdmaEnd(std::move(memory), std::move(rails), std::move(farewell), "rdma from rank", key.peer),
      window_(window),
      ticket_(std::move(ticket)),
      letters_(std::move(letters)),
      arriving_(memory_->view),
      arrivals_(window.messages),
      credited_(memory_->view.shape.first) {}

RdmaReceiver::~RdmaReceiver() {
  if (!link_.is_joined()) letters_.refuse();
  if (error_.ok()) link_.close(arriving_.tail());
}

Result<std::unique_ptr<RdmaReceiver>> RdmaReceiver::make(const LinkKey& key,
                                                         std::shared_ptr<FifoMemory> memory,
                                                         std::vector<RdmaRail> rails,
                                                         std::shared_ptr<RdmaFarewell> farewell,
                                                         RdmaWindow window, IssuedTicket ticket,
                                                         Letters letters) {
  std::unique_ptr<RdmaReceiver> made(new RdmaReceiver(key, std::move(memory), std::move(rails),
                                                      std::move(farewell), window,
                                                      std::move(ticket), std::move(letters)));
  GYRE_TRY(
      made->register_memory(window.messages, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE));
  return made;
}

std::vector<RdmaAddress> RdmaReceiver::addresses(const std::string& host_name) const {
  std::vector<RdmaAddress> all;
  for (const RdmaRail& rail : link_.rails()) {
    RdmaAddress& own = all.emplace_back(rail.queues->address(host_name));
    own.window = window_.messages;
    own.slots = {reinterpret_cast<std::uintptr_t>(memory_->view.slots), rail.slots.get()->rkey};
    own.notes = {reinterpret_cast<std::uintptr_t>(notes_.get().data), rail.notes.get()->rkey};
  }
  return all;
}

// The first credit says that this end is ready.
Status RdmaReceiver::join() {
  const auto bytes = letters_.take_answer();
  if (!bytes) return {};
  const std::optional<RdmaAnswer> answer = decode_rdma_answer(*bytes);
  if (!answer) return Status(Code::RemoteError, "the sender's answer is malformed");
  if (answer->ticket != ticket_.get().ticket)
    return Status(Code::RemoteError, "the sender's answer shows another ticket");
  const std::vector<RdmaRail>& rails = link_.rails();
  for (std::size_t i = 0; i < std::min(rails.size(), answer->rails.size()); ++i) {
    if (!answer->rails[i]) continue;
    const RdmaAddress& there = *answer->rails[i];
    const RdmaQueues& here = *rails[i].queues;
    if (there.network != here.network() || there.pairs.size() != here.size())
      return Status(
          Code::RemoteError,
          fmt::format("the sender's answer is for {} queue pairs on {}; here are {} on {}",
                      there.pairs.size(), network_text(there.network), here.size(),
                      network_text(here.network())));
  }
  owes_credit_ = true;
  GYRE_TRY(link_.join(answer->rails));
  for (const RdmaRail& rail : link_.rails()) asked_about_.push_back(rail.queues == nullptr);
  note_rail_ = link_.main();
  return {};
}

Status RdmaReceiver::turn() {
  if (!ready()) GYRE_TRY(join());
  if (!ready()) return {};
  GYRE_TRY(link_.take_completions());
  if (!questions_.empty()) GYRE_TRY(answer_questions());
  GYRE_TRY(tell_losses());
  return return_credit();
}

Status RdmaReceiver::take(const ibv_wc& completion, WorkTag tag, std::size_t rail) {
  if (tag.kind == WorkKind::credit && credits_out_ > 0) --credits_out_;
  if (tag.kind != WorkKind::receive) return {};
  GYRE_TRY(on_notice(completion, rail, tag.pair));
  GYRE_TRY(link_.rails()[rail].queues->post_receives(tag.pair, 1));
  return land_whole();
}

Status RdmaReceiver::on_notice(const ibv_wc& completion, std::size_t rail, std::size_t pair) {
  const std::optional<Notice> notice =
      (completion.wc_flags & IBV_WC_WITH_IMM) != 0 ? Notice::of(completion.imm_data) : std::nullopt;
  if (!notice || notice->kind == NoticeKind::credit || notice->kind == NoticeKind::resume)
    return Status(Code::RemoteError, "the sender sent a notice that is not ours");
  if (notice->kind == NoticeKind::close) {
    link_.note_closing();
    return {};
  }
  if (notice->kind == NoticeKind::lost) {
    if (notice->number >= link_.rails().size() || notice->number == rail ||
        questions_.size() == max_rails)
      return Status(Code::RemoteError, "the sender asks about a rail that it cannot have lost");
    questions_.push_back(*notice);
    return {};
  }
  const std::uint64_t number = whole_number(notice->number, arriving_.tail());
  if (number - arriving_.tail() >= window_.messages)
    return Status(Code::RemoteError,
                  fmt::format("message {} came in place of {}", number, arriving_.tail()));
  MessageArrival& arrival = arrivals_[number & (window_.messages - 1)];
  if (rail == note_rail_ && pair == 0)
    arrival.is_noted = true;
  else
    ++arrival.pieces;
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
    const std::string fault = note_fault(note, arriving_.tail(), memory_->view.shape.slot_bytes);
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

// The sender has nothing on its way, and the peer's NIC knew of all that arrived: so everything
// that it counts as arrived is found here. The rest it sends again.
Status RdmaReceiver::answer_questions() {
  const std::vector<Notice> asked = std::exchange(questions_, {});
  for (const Notice& question : asked)
    GYRE_TRY(link_.lose(question.number, Status(Code::RemoteError, "the peer has lost it")));
  GYRE_TRY(link_.take_completions());
  for (const Notice& question : asked) asked_about_[question.number] = true;
  note_rail_ =
      static_cast<std::size_t>(std::ranges::find(asked_about_, false) - asked_about_.begin());
  std::ranges::fill(arrivals_, MessageArrival{});
  for (const Notice& question : asked)
    GYRE_TRY(tell(
        WorkKind::notice,
        {NoticeKind::resume, static_cast<std::uint32_t>(arriving_.tail()), question.question}));
  return {};
}

// The sender asks in turn, or has asked before. Credits went over the first rail.
Status RdmaReceiver::tell_losses() {
  while (const auto rail = link_.next_lost()) {
    owes_credit_ = true;
    credits_out_ = 0;
    GYRE_TRY(tell(WorkKind::notice, {NoticeKind::lost, static_cast<std::uint32_t>(*rail)}));
  }
  return {};
}

Status RdmaReceiver::return_credit() {
  const bool is_due = owes_credit_ || head() != credited_;
  if (!is_due || link_.is_closed() || credits_out_ >= window_.messages) return {};
  credited_ = head();
  owes_credit_ = false;
  ++credits_out_;
  return tell(WorkKind::credit, {NoticeKind::credit, static_cast<std::uint32_t>(credited_)});
}

Status RdmaReceiver::tell(WorkKind kind, const Notice& notice) {
  return link_.is_closed() ? Status() : link_.tell(kind, notice);
}

std::uint64_t RdmaReceiver::head() const {
  // This process's: it is read where its thread wrote it.
  return memory_->view.control->head.value.load(std::memory_order_relaxed);
}

void RdmaReceiver::arm(WaitSet& set) {
  RdmaEnd::arm(set);
  // This end waits for a message that will not come.
  if (error_.ok() && at_end()) fail(Status(Code::RemoteError, "the peer closed the connection"));
}

}  // namespace gyre::transport
