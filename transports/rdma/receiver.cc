#include "transports/rdma/receiver.h"

#include "lib/base/clock.h"
#include "lib/base/units.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <new>

namespace gyre::transport {
namespace {

// A NIC completes what it has acknowledged within microseconds.
constexpr std::int64_t max_completion_ns = ns_per_s;

}  // namespace

RdmaReceiver::RdmaReceiver(const LinkKey& key, std::shared_ptr<FifoMemory> memory,
                           std::vector<RdmaRail> rails, RdmaShared shared, RdmaWindow window,
                           IssuedTicket ticket, Letters letters)
    : RdmaEnd(std::move(memory), std::move(rails), std::move(shared), "rdma from rank", key.peer),
      window_(window),
      ticket_(std::move(ticket)),
      letters_(std::move(letters)),
      arriving_(memory_->view),
      arrivals_(window.messages),
      credited_(memory_->view.shape.first),
      flushed_(credited_),
      flushing_(credited_),
      due_(credited_) {}

RdmaReceiver::~RdmaReceiver() {
  try {
    if (!link_.is_joined()) letters_.refuse();
  } catch (const std::bad_alloc&) {
    // The control plane tells the sender.
  }
  if (error_.ok()) link_.close(arriving_.tail(), std::move(notes_));
}

Result<std::unique_ptr<RdmaReceiver>> RdmaReceiver::make(const LinkKey& key,
                                                         std::shared_ptr<FifoMemory> memory,
                                                         std::vector<RdmaRail> rails,
                                                         RdmaShared shared, RdmaWindow window,
                                                         IssuedTicket ticket, Letters letters) {
  std::unique_ptr<RdmaReceiver> made(new RdmaReceiver(key, std::move(memory), std::move(rails),
                                                      std::move(shared), window, std::move(ticket),
                                                      std::move(letters)));
  GYRE_TRY(
      made->register_memory(window.messages, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE));
  return made;
}

std::vector<RdmaAddress> RdmaReceiver::addresses(const std::string& host_name) const {
  std::vector<RdmaAddress> all;
  for (const RdmaRail& rail : link_.rails()) {
    RdmaAddress& own = all.emplace_back(rail.queues->address(host_name));
    own.window = window_.messages;
    own.planned = rail.planned;
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
  for (std::size_t i = 0; i < rails.size(); ++i)
    asked_about_.push_back(i >= answer->rails.size() || !answer->rails[i]);
  find_note_rail();
  return {};
}

Status RdmaReceiver::turn() {
  if (!ready()) GYRE_TRY(join());
  if (!ready()) return {};
  const std::int64_t now_ns = SystemClock::read();  // before the look: the thread may stop
  GYRE_TRY(link_.take_completions());
  GYRE_TRY(await_due(now_ns));
  if (!questions_.empty() && !is_short()) GYRE_TRY(answer_questions());
  GYRE_TRY(tell_losses());
  GYRE_TRY(give_grant());
  return return_credit();
}

Status RdmaReceiver::take(const ibv_wc& completion, WorkTag tag, std::size_t rail) {
  if (tag.kind == WorkKind::credit && credits_out_ > 0) --credits_out_;
  if (tag.kind == WorkKind::flush && tag.number != RdmaLink::last_flush && --flush_reads_ == 0) {
    flushed_ = flushing_;
    return land_whole();
  }
  if (tag.kind != WorkKind::receive) return {};
  GYRE_TRY(on_notice(completion, rail, tag.pair));
  GYRE_TRY(link_.rails()[rail].queues->post_receives(tag.pair, 1));
  return land_whole();
}

Status RdmaReceiver::on_notice(const ibv_wc& completion, std::size_t rail, std::size_t pair) {
  const std::optional<Notice> notice =
      (completion.wc_flags & IBV_WC_WITH_IMM) != 0 ? Notice::of(completion.imm_data) : std::nullopt;
  if (!notice || notice->kind == NoticeKind::credit || notice->kind == NoticeKind::resume ||
      notice->kind == NoticeKind::grant)
    return Status(Code::RemoteError, "the sender sent a notice that is not ours");
  if (notice->kind == NoticeKind::close) {
    link_.note_closing();
    return note_due(whole_number(notice->number, arriving_.tail()));
  }
  if (notice->kind == NoticeKind::taken) {
    if (notice->round == attempt_) awaits_receipt_ = false;
    return {};
  }
  if (notice->kind == NoticeKind::lost) return on_question(*notice, rail);
  return on_message(*notice, rail == note_rail_ && pair == 0);
}

// A rail that is lost may bring an older question last, which the sender no longer waits for.
Status RdmaReceiver::on_question(const Notice& notice, std::size_t rail) {
  const auto newer = static_cast<std::int8_t>(notice.round - asked_round_);
  if (newer < 0) return {};
  if (newer > 0) questions_.clear();
  asked_round_ = notice.round;
  const auto question = RailQuestion::of(notice.number, arriving_.tail());
  if (question.rail >= link_.rails().size() || question.rail == rail ||
      questions_.size() == max_rails)
    return Status(Code::RemoteError, "the sender asks about a rail that it cannot have lost");
  questions_.push_back(question.rail);
  return note_due(question.head);
}

Status RdmaReceiver::note_due(std::uint64_t next) {
  const auto ahead = static_cast<std::int64_t>(next - arriving_.tail());
  if (ahead > static_cast<std::int64_t>(window_.messages))
    return Status(Code::RemoteError,
                  fmt::format("the sender says that message {} has come; {} were on their way",
                              next - 1, window_.messages));
  if (ahead <= 0) return {};
  due_ = next;
  due_since_ns_ = SystemClock::read();
  return {};
}

// Of which NIC it is, nobody knows.
Status RdmaReceiver::await_due(std::int64_t now_ns) const {
  if (!is_short() || now_ns - due_since_ns_ < max_completion_ns) return {};
  return Status(Code::SystemError,
                fmt::format("message {} has been acknowledged, says its sender, and no NIC of this "
                            "process has completed it for {:.0f} s",
                            arriving_.tail(), static_cast<double>(max_completion_ns) / ns_per_s));
}

Status RdmaReceiver::on_message(const Notice& message, bool is_note) {
  // The peer's NIC may know of a piece before this end does, by another NIC. It is sent again.
  if (message.round != round_) return {};
  const std::uint64_t number = whole_number(message.number, arriving_.tail());
  if (number - arriving_.tail() >= window_.messages)
    return Status(Code::RemoteError,
                  fmt::format("message {} came in place of {}", number, arriving_.tail()));
  MessageArrival& arrival = arrivals_[number & (window_.messages - 1)];
  if (is_note)
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
    const bool is_lent = note.place == PayloadPlace::lent;
    if (is_lent && lent_.memory == nullptr)
      return Status(Code::RemoteError,
                    fmt::format("message {} is in memory that was not lent", note.sequence));
    const auto unflushed = static_cast<std::int64_t>(arriving_.tail() - flushed_);
    if (is_lent && lent_.memory->needs_flush() && unflushed >= 0) return begin_flush();
    if (note.place == PayloadPlace::note)
      std::memcpy(arriving_.place(), place + sizeof note, note.bytes);
    arrival = {};
    arriving_.commit(note.bytes, note.signature,
                     is_lent ? DeliveryMode::push : DeliveryMode::staged);
  }
}

// By each NIC, as none orders what another one has written. All messages that are whole by now are
// flushed with the first.
Status RdmaReceiver::begin_flush() {
  if (flush_reads_ > 0) return {};
  flushing_ = arriving_.tail();
  const auto is_whole = [&](std::uint64_t index) {
    const std::uint64_t place = index & (window_.messages - 1);
    const std::byte* const said = notes_.get().data + place * sizeof(NotePlace);
    return arrivals_[place].is_noted && arrivals_[place].pieces >= copied<RdmaNote>(said).pieces;
  };
  do ++flushing_;
  while (flushing_ - arriving_.tail() < window_.messages && is_whole(flushing_));
  for (std::size_t i = 0; i < link_.rails().size(); ++i) {
    const RdmaRail& rail = link_.rails()[i];
    if (rail.queues == nullptr) continue;
    GYRE_TRY(rail.queues->post_flush(rail.flushed, 0));
    ++flush_reads_;
  }
  return {};
}

// The sender has nothing on its way, and all that it counts as arrived is here. The rest it sends
// again.
Status RdmaReceiver::answer_questions() {
  const std::vector<std::size_t> asked = std::exchange(questions_, {});
  const std::uint8_t round = asked_round_;  // a newer question may come meanwhile
  for (const std::size_t rail : asked)
    GYRE_TRY(link_.lose(rail, Status(Code::RemoteError, "the peer has lost it")));
  GYRE_TRY(link_.take_completions());
  for (const std::size_t rail : asked) asked_about_[rail] = true;
  find_note_rail();
  std::ranges::fill(arrivals_, MessageArrival{});
  round_ = round;
  for (std::size_t i = 0; i < asked.size(); ++i)
    GYRE_TRY(tell(WorkKind::notice,
                  {NoticeKind::resume, static_cast<std::uint32_t>(arriving_.tail()), round_}));
  return {};
}

void RdmaReceiver::find_note_rail() {
  note_rail_ =
      static_cast<std::size_t>(std::ranges::find(asked_about_, false) - asked_about_.begin());
}

// The sender asks in turn, or has asked before. Credits and the grant went over the first rail.
Status RdmaReceiver::tell_losses() {
  while (const auto rail = link_.next_lost()) {
    owes_credit_ = true;
    owes_grant_ = owes_grant_ || std::exchange(awaits_receipt_, false);
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

std::shared_ptr<const void> RdmaReceiver::hold(const void* memory, std::uint64_t bytes) noexcept {
  return error_.ok() ? prepare_loan(memory, bytes) : nullptr;
}

std::shared_ptr<const Registration> RdmaReceiver::prepare_loan(const void* memory,
                                                               std::uint64_t bytes) noexcept {
  std::shared_ptr<const Registration> held = register_lent(memory, bytes);
  if (held == nullptr || !held->needs_flush()) return held;
  try {
    const Status made = make_flushes(*held);
    if (made.ok()) return held;
    refusal_ = made.message();
  } catch (const std::bad_alloc&) {
    // As where the NIC refuses.
  }
  return nullptr;
}

Status RdmaReceiver::make_flushes(const Registration& memory) {
  for (RdmaRail& rail : link_.rails()) {
    if (rail.queues == nullptr) continue;
    rail.flushed = {reinterpret_cast<std::uintptr_t>(memory.range().data),
                    memory.on(rail.queues->device())->rkey};
    if (!rail.queues->has_flush()) GYRE_TRY(rail.queues->make_flush());
  }
  return {};
}

void RdmaReceiver::lend(const Loan& loan, std::uint64_t sequence) noexcept {
  if (!error_.ok() || link_.is_dropped()) return;
  lent_ = {sequence, loan, nullptr};
  if (loan.region != region_staged)
    lent_.memory = prepare_loan(reinterpret_cast<const void*>(loan.offset), loan.bytes);
  owes_grant_ = true;
  if (!ready()) return;
  try {
    Status given = give_grant();
    if (!given.ok()) fail(std::move(given));
  } catch (const std::bad_alloc&) {
    // Only an error takes memory, and the next `progress` meets it again.
  }
}

// One at a time, as the sender reads it where it was written.
Status RdmaReceiver::give_grant() {
  if (!owes_grant_ || awaits_receipt_ || link_.is_closed()) return {};
  RdmaGrant grant{.sequence = lent_.sequence,
                  .signature = lent_.loan.signature,
                  .stores_all = lent_.loan.stores_all};
  if (lent_.memory != nullptr) {
    grant.address = lent_.loan.offset;
    grant.bytes = lent_.loan.bytes;
    for (std::size_t i = 0; i < link_.rails().size(); ++i)
      if (const auto& queues = link_.rails()[i].queues; queues != nullptr)
        grant.keys[i] = lent_.memory->on(queues->device())->rkey;
  }
  std::memcpy(grant_place(++attempt_), &grant, sizeof grant);
  owes_grant_ = false;
  awaits_receipt_ = true;
  for (;;) {
    const std::size_t rail = link_.main();
    ibv_sge part{};
    ibv_send_wr request = grant_request(part);
    Status posted = link_.rails()[rail].queues->post(0, request);
    if (posted.ok()) return posted;
    GYRE_TRY(link_.lose(rail, std::move(posted)));
  }
}

ibv_send_wr RdmaReceiver::grant_request(ibv_sge& part) const {
  const RdmaRail& rail = link_.rails()[link_.main()];
  part = {reinterpret_cast<std::uintptr_t>(grant_place(attempt_)), sizeof(RdmaGrant),
          rail.notes.get()->lkey};
  const auto number = static_cast<std::uint32_t>(lent_.sequence & Notice::mask);
  const Notice notice{NoticeKind::grant, number, attempt_};
  ibv_send_wr request{};
  request.wr_id = WorkTag{WorkKind::grant, 0, notice.number}.to_id();
  request.sg_list = &part;
  request.num_sge = 1;
  request.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  request.send_flags = IBV_SEND_SIGNALED;
  // A grant that is repeated when this end has gone needs no memory here.
  if (part.length <= rail.queues->inline_bytes()) request.send_flags |= IBV_SEND_INLINE;
  request.imm_data = notice.to_immediate();
  request.wr.rdma.remote_addr =
      rail.there.notes.address + attempt_ % grant_places * sizeof(NotePlace);
  request.wr.rdma.rkey = rail.there.notes.key;
  return request;
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
