#include "tests/campaign/rank_life.h"

#include "tests/campaign/diary.h"
#include "tests/campaign/meeting_file.h"

#include <algorithm>
#include <chrono>
#include <thread>

namespace gyre::campaign {
namespace {

// What the place of a handle holds once its call has failed.
const auto untouched = reinterpret_cast<gyreComm_t>(0x7);

void rest(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

gyreConfig_t config_of(const Errands& errands) {
  gyreConfig_t config = GYRE_CONFIG_INITIALIZER;
  config.blocking = errands.blocking ? 1 : 0;
  config.device = GYRE_DEVICE_HOST;
  config.commName = "campaign";
  return config;
}

}  // namespace

RankLife::RankLife(const Errands& errands, int rank, std::function<void(int, int)> on_begin)
    : errands_(errands), rank_(rank), on_begin_(std::move(on_begin)) {
  std::size_t in = 1, out = 1;
  for (const Errand& errand : errands.list) {
    const std::size_t size = errands.comms.at(errand.comm).size();
    in = std::max(in, in_elements(errand, size));
    out = std::max(out, out_elements(errand, size));
  }
  for (const bool lent : {false, true})
    for (int parity = 0; parity < 2; ++parity) {
      slates_.push_back(std::make_unique<Slate>(in, lent));
      slates_.push_back(std::make_unique<Slate>(out, lent));
    }
  if (errands.uses(Queue::stream)) (void)gyreStreamCreate(&stream_);
  if (errands.uses(Queue::by_caller))
    (void)gyreStreamCreateWithFlags(&by_caller_, GYRE_STREAM_BY_CALLER);
}

void RankLife::run() {
  if (!join()) return aftermath();
  for (int number = 1; number < errands_.destroy(); ++number) {
    const Errand& errand = errands_.list[static_cast<std::size_t>(number)];
    if (!holds(errand.ranks, rank_)) continue;
    if (errand.leaver == rank_) {
      begin(number);
      destroy_all();
      has_left_ = true;
      return note(rank_, "left %d", number);
    }
    if (!carry_out(errand, number)) return aftermath();
  }
  begin(errands_.destroy());
  destroy_all();
  note(rank_, "end %d %d", errands_.destroy(), 0);
  note(rank_, "idle");
}

void RankLife::begin(int number) {
  note(rank_, "begin %d", number);
  on_begin_(rank_, number);
}

bool RankLife::is_well(int number, gyreResult_t result, gyreComm_t comm) {
  note(rank_, "end %d %d", number, result);
  if (result == gyreSuccess) return true;
  broken_ = comm;
  note(rank_, "told %d %d %s", number, result, gyreGetLastError(comm));
  return false;
}

gyreComm_t RankLife::comm_of(int comm) {
  const std::lock_guard lock(comms_mutex_);
  const auto found = comms_.find(comm);
  return found == comms_.end() ? nullptr : found->second;
}

// ------------------------------------------------------------------------------ errands

bool RankLife::join() {
  gyreUniqueId id;
  if (rank_ == 0) {
    const gyreResult_t made = gyreGetUniqueId(&id);
    write_meeting("id", made == gyreSuccess ? &id : nullptr);
    if (made != gyreSuccess) return is_well(0, made, nullptr);
  } else if (!read_meeting("id", &id)) {
    note(rank_, "stranded");
    return false;
  }
  const Errand& first = errands_.list.at(0);
  if (first.late_rank == rank_) rest(first.late_ms);
  gyreConfig_t config = config_of(errands_);
  gyreComm_t comm = nullptr;
  begin(0);
  gyreResult_t result = gyreCommInitRankConfig(&comm, errands_.ranks(), id, rank_, &config);
  {
    const std::lock_guard lock(comms_mutex_);
    if (comm != nullptr) comms_[0] = comm;
  }
  if (result == gyreInProgress) result = awaited(result, comm, nullptr);
  return is_well(0, result, comm);
}

bool RankLife::carry_out(const Errand& errand, int number) {
  if (errand.late_rank == rank_) rest(errand.late_ms);
  if (errand.verb == "split") return split(errand, number);
  const CallKind* kind = call_kind(errand.verb);
  if (kind != nullptr) return call(errand, number, *kind);
  begin(number);
  rest(errand.rest_ms);
  note(rank_, "end %d %d", number, 0);
  return true;
}

bool RankLife::split(const Errand& errand, int number) {
  const std::vector<int>& members = errands_.comms.at(errand.comm);
  const auto member = std::ranges::find(members, rank_) - members.begin();
  const int child = errand.children[static_cast<std::size_t>(member)];
  const gyreComm_t parent = comm_of(errand.comm);
  gyreComm_t& made = places_[number];
  begin(number);
  gyreResult_t result = gyreCommSplit(parent, child, rank_, &made, nullptr);
  result = awaited(result, parent, nullptr);
  // It is there though the parent failed right afterwards, and has to be ended as well.
  const bool is_made = made != nullptr && made != untouched;
  if (is_made) {
    const std::lock_guard lock(comms_mutex_);
    comms_[child] = made;
  } else if (result != gyreSuccess) {
    made = untouched;
    failed_split_ = number;
  }
  int size = 0;
  if (result == gyreSuccess && child >= 0 && made == nullptr) {
    note(rank_, "wrong %d no communicator of a split that went well", number);
    return false;
  }
  if (result == gyreSuccess && child >= 0 &&
      (gyreCommCount(made, &size) != gyreSuccess ||
       size != static_cast<int>(errands_.comms.at(child).size())))
    note(rank_, "wrong %d a communicator of %d ranks", number, size);
  return is_well(number, result, parent);
}

// The result of what was begun.
gyreResult_t RankLife::awaited(gyreResult_t begun, gyreComm_t comm, gyreStream_t stream) {
  if (begun != gyreSuccess && begun != gyreInProgress) return begun;
  gyreResult_t result = gyreSuccess;
  if (stream != nullptr) result = gyreStreamSynchronize(stream);
  if (result != gyreSuccess || errands_.blocking) return result;
  gyreResult_t state = gyreInProgress;
  while (state == gyreInProgress) {
    if (const gyreResult_t asked = gyreCommGetAsyncError(comm, &state); asked != gyreSuccess)
      return asked;
    if (state == gyreInProgress) std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  return state;
}

bool RankLife::call(const Errand& errand, int number, const CallKind& kind) {
  const Pen pen = pen_of(errand.lent, errand.in_place, number);
  look_at(*pen.in, number);
  look_at(*pen.out, number);
  CallSite site = site_of(errand, number, pen);
  const std::size_t given_here = in_elements(errand, static_cast<std::size_t>(site.size));
  for (std::size_t i = 0; i < given_here; ++i) site.in[i] = given(number, site.member, i);
  begin(number);
  {
    const std::lock_guard lock(comms_mutex_);
    site.in_group.swap(in_group_);
  }
  const gyreResult_t result = awaited(kind.make(site), site.comm, site.stream);
  const bool well = is_well(number, result, site.comm);
  if (well) verify(site, kind);
  pen.in->wipe();
  pen.out->wipe();
  return well;
}

RankLife::Pen RankLife::pen_of(bool lent, bool in_place, int number) {
  const std::size_t first = (lent ? 4 : 0) + (number % 2 == 0 ? 0 : 2);
  Slate* out = slates_[first + 1].get();
  return {in_place ? out : slates_[first].get(), out};
}

CallSite RankLife::site_of(const Errand& errand, int number, const Pen& pen) {
  const std::vector<int>& members = errands_.comms.at(errand.comm);
  const auto member_of = [&](int rank) {
    return static_cast<int>(std::ranges::find(members, rank) - members.begin());
  };
  std::vector<int> takers;
  for (const int rank : errand.ranks) takers.push_back(member_of(rank));
  gyreStream_t stream = nullptr;
  if (errand.queue == Queue::stream) stream = stream_;
  if (errand.queue == Queue::by_caller) stream = by_caller_;
  return {errand,           number,
          member_of(rank_), static_cast<int>(members.size()),
          takers,           comm_of(errand.comm),
          stream,           pen.in->begin(),
          pen.out->begin()};
}

void RankLife::verify(const CallSite& site, const CallKind& kind) {
  const std::size_t many = out_elements(site.errand, static_cast<std::size_t>(site.size));
  for (std::size_t i = 0; i < many; ++i) {
    const std::optional<std::uint32_t> due = kind.expected(site, i);
    if (!due || *due == site.out[i]) continue;
    return note(rank_, "wrong %d element %zu of %zu is %08x, not %08x", site.number, i, many,
                site.out[i], *due);
  }
}

void RankLife::look_at(const Slate& slate, int number) {
  const std::ptrdiff_t place = slate.touched();
  if (place >= 0)
    note(rank_, "touched %d element %td of %s memory", number, place,
         slate.lent() ? "lent" : "heap");
}

// ------------------------------------------------------------------------------ the end

void RankLife::destroy_all() {
  for (;;) {
    gyreComm_t comm = nullptr;
    {
      const std::lock_guard lock(comms_mutex_);
      if (comms_.empty()) return;
      comm = comms_.rbegin()->second;
      comms_.erase(std::prev(comms_.end()));
    }
    (void)gyreCommDestroy(comm);
  }
}

void RankLife::abort_all() {
  std::map<int, gyreComm_t> comms;
  {
    const std::lock_guard lock(comms_mutex_);
    comms.swap(comms_);
    was_aborted_ = true;
  }
  for (const auto& [number, comm] : comms) {
    const std::int64_t start = now_ns();
    const gyreResult_t result = gyreCommAbort(comm);
    note(rank_, "aborted %d %lld", result, static_cast<long long>(now_ns() - start));
  }
}

void RankLife::prepare_fork(std::function<void()> act) {
  const std::lock_guard lock(comms_mutex_);
  in_group_ = std::move(act);
}

gyreResult_t RankLife::call_in_child() {
  const std::unique_lock lock(comms_mutex_, std::try_to_lock);
  std::uint32_t value = 1;
  // Before the first has come to be, and after the last, there is none to call on; nor while
  // another thread was changing what there is.
  if (!lock.owns_lock() || comms_.empty()) return gyreInvalidUsage;
  const gyreComm_t comm = comms_.begin()->second;
  return gyreAllReduce(&value, &value, 1, gyreUint32, gyreSum, comm, nullptr);
}

void RankLife::aftermath() {
  // The next call on what is broken has to say so too, and at once.
  gyreResult_t state = gyreSuccess;
  if (broken_ != nullptr && !was_aborted_ &&
      gyreCommGetAsyncError(broken_, &state) == gyreSuccess && state != gyreSuccess) {
    begin(-1);
    note(rank_, "end -1 %d", awaited(gyreBarrier(broken_, nullptr), broken_, nullptr));
  }
  if (errands_.aftermath == "destroy") destroy_all();
  if (errands_.aftermath == "abort" || errands_.aftermath == "recover") abort_all();
  if (errands_.aftermath == "recover" && holds(errands_.survivors, rank_)) meet_again();
  note(rank_, "idle");
}

// Those who are left meet anew, and talk.
void RankLife::meet_again() {
  const int size = static_cast<int>(errands_.survivors.size());
  const int place =
      static_cast<int>(std::ranges::find(errands_.survivors, rank_) - errands_.survivors.begin());
  gyreUniqueId id;
  if (place == 0) {
    if (gyreGetUniqueId(&id) != gyreSuccess) return note(rank_, "unrecovered no id");
    write_meeting("id-again", &id);
  } else if (!read_meeting("id-again", &id)) {
    return note(rank_, "unrecovered nobody made an id");
  }
  gyreConfig_t config = config_of(errands_);
  gyreComm_t comm = nullptr;
  gyreResult_t result = gyreCommInitRankConfig(&comm, size, id, place, &config);
  result = awaited(result, comm, nullptr);
  Errand errand;
  errand.verb = "all-reduce";
  for (int turn = 0; turn < 4 && result == gyreSuccess; ++turn) {
    const Pen pen = pen_of(turn % 2 == 0, false, turn);
    const std::size_t count = std::min(pen.in->elements(), pen.out->elements());
    CallSite site{errand,  1000 + turn,     place,           size, {}, comm,
                  nullptr, pen.in->begin(), pen.out->begin()};
    errand.count = count;
    for (std::size_t i = 0; i < count; ++i) site.in[i] = given(site.number, place, i);
    const CallKind& kind = *call_kind(errand.verb);
    result = awaited(kind.make(site), comm, nullptr);
    if (result == gyreSuccess) verify(site, kind);
    pen.in->wipe();
    pen.out->wipe();
  }
  if (result == gyreSuccess)
    note(rank_, "recovered");
  else
    note(rank_, "unrecovered %d %s", result, gyreGetLastError(comm));
  if (comm != nullptr) (void)gyreCommDestroy(comm);
}

void RankLife::end() {
  for (int turn = 0; turn < 2; ++turn) {
    for (const auto& slate : slates_) look_at(*slate, -1);
    if (failed_split_ >= 0 && places_[failed_split_] != untouched)
      note(rank_, "touched %d the place of a handle", failed_split_);
    if (turn == 0 && errands_.aftermath != "none") destroy_all();
  }
  if (stream_ != nullptr) (void)gyreStreamDestroy(stream_);
  if (by_caller_ != nullptr) (void)gyreStreamDestroy(by_caller_);
}

}  // namespace gyre::campaign
