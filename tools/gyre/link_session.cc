#include "tools/gyre/link_session.h"

#include "lib/base/clock.h"
#include "tools/gyre/link_pattern.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <vector>

namespace gyre::tools {
namespace {

enum class SessionVerb : std::uint64_t { hello, echo, take, give, both, end };

constexpr std::size_t echo_bytes = 8;
constexpr std::uint64_t echoes_at_once = 20, max_echoes = 400;
constexpr std::uint64_t min_message_bytes = 64 << 10;
constexpr int leader_rank = 0, follower_rank = 1;
// Shares of the time for the work: latency, each direction, both at once.
constexpr double echo_share = 0.15, way_share = 0.25;
// Of the time for latency: from there on, waits for processors decide it.
constexpr double crowded_share = 0.25;

double seconds_since(std::int64_t ns) {
  return static_cast<double>(SystemClock::read() - ns) / static_cast<double>(ns_per_s);
}

// How long this thread was ready to run while others had its processor; 0 if the kernel does not
// count it.
std::uint64_t processor_wait_ns() {
  std::ifstream file("/proc/thread-self/schedstat");
  std::uint64_t ran_ns = 0, waited_ns = 0;
  return file >> ran_ns >> waited_ns ? waited_ns : 0;
}

// Nearest rank.
double quantile(const std::vector<double>& sorted, double share) {
  const auto last = static_cast<double>(sorted.size() - 1);
  return sorted[static_cast<std::size_t>(share * last + 0.5)];
}

void add(LinkDamage& sum, const LinkDamage& more) {
  if (more.bytes == 0) return;
  LinkDamage all = sum.bytes == 0 ? more : sum;  // the earlier one's first byte
  all.messages = sum.messages + more.messages;
  all.bytes = sum.bytes + more.bytes;
  all.bits = sum.bits + more.bits;
  sum = all;
}

// The follower's word on a message: how long it took, what was wrong with it, and what the
// follower's machine says of the link.
struct FollowersWord {
  double seconds = 0;
  double known_bytes_per_s = 0;
  LinkDamage damage;
  std::uint64_t processor_wait_ns = 0;  // so far

  TalkWords words() const {
    return {std::bit_cast<std::uint64_t>(seconds),
            std::bit_cast<std::uint64_t>(known_bytes_per_s),
            damage.messages,
            damage.bytes,
            damage.bits,
            damage.first_message,
            damage.first_offset,
            std::uint64_t{damage.sent} << 8 | damage.received,
            processor_wait_ns};
  }
  static FollowersWord read(const TalkWords& words) {
    return {
        sound_figure(std::bit_cast<double>(words[0])),
        sound_figure(std::bit_cast<double>(words[1])),
        LinkDamage{words[2], words[3], words[4], words[5], words[6],
                   static_cast<std::uint8_t>(words[7] >> 8), static_cast<std::uint8_t>(words[7])},
        words[8]};
  }
};

// What both ends do alike.
class SessionEnd {
 public:
  SessionEnd(const SessionTask& task, int peer, LinkMeasurement& into, std::string& doing)
      : task_(task), peer_(peer), into_(into), doing_(doing) {}

 protected:
  Status send(std::span<const std::byte> bytes) const {
    return checked_call(gyreSend(bytes.data(), bytes.size(), gyreUint8, peer_, task_.comm, nullptr),
                        task_.comm, "gyreSend");
  }
  Status receive(std::span<std::byte> bytes) const {
    return checked_call(gyreRecv(bytes.data(), bytes.size(), gyreUint8, peer_, task_.comm, nullptr),
                        task_.comm, "gyreRecv");
  }
  Status exchange(std::span<const std::byte> out, std::span<std::byte> in) const {
    GYRE_TRY(checked_call(gyreGroupStart(), task_.comm, "gyreGroupStart"));
    const Status sends = send(out);
    const Status receives = receive(in);
    const Status ends = checked_call(gyreGroupEnd(), task_.comm, "gyreGroupEnd");
    GYRE_TRY(Status(sends));
    GYRE_TRY(Status(receives));
    return ends;
  }
  Status say(const TalkWords& words) const { return send_talk(task_.comm, peer_, words); }
  Result<TalkWords> hear() const {
    TalkWords words{};
    bool came_whole = false;
    GYRE_TRY(receive_talk(task_.comm, peer_, words, came_whole));
    if (came_whole) return words;
    into_.has_garbled_talk = true;
    return Status(Code::RemoteError, "a message of the other rank's program came damaged");
  }
  // Each direction of each message has bytes of its own.
  std::uint64_t seed_of(std::uint64_t number, bool is_up) const {
    return task_.seed + 2 * number + (is_up ? 0 : 1);
  }
  bool is_late() const { return SystemClock::read() > task_.until_ns; }

  const SessionTask& task_;
  const int peer_;
  LinkMeasurement& into_;
  std::string& doing_;
};

class LeadingEnd final : SessionEnd {
 public:
  LeadingEnd(const SessionTask& task, LinkMeasurement& into, std::string& doing)
      : SessionEnd(task, follower_rank, into, doing) {}

  Status run() {
    doing_ = "opening the link";
    GYRE_ASSIGN(const FollowersWord hello, greet());
    if (into_.known_bytes_per_s <= 0)
      into_.known_bytes_per_s = hello.known_bytes_per_s;
    else if (hello.known_bytes_per_s > 0)
      into_.known_bytes_per_s = std::min(into_.known_bytes_per_s, hello.known_bytes_per_s);
    doing_ = "measuring latency";
    GYRE_TRY(measure_latency(hello.processor_wait_ns));
    doing_ = fmt::format("sending from rank {} to {}", into_.pair.low, into_.pair.high);
    GYRE_TRY(measure_rate(SessionVerb::take, into_.up.bytes_per_s, &into_.up.message_bytes));
    doing_ = fmt::format("sending from rank {} to {}", into_.pair.high, into_.pair.low);
    GYRE_TRY(measure_rate(SessionVerb::give, into_.down.bytes_per_s, &into_.down.message_bytes));
    doing_ = "sending both ways at once";
    GYRE_TRY(measure_rate(SessionVerb::both, into_.both_bytes_per_s, nullptr));
    doing_ = "ending";
    return say(figures());
  }

 private:
  // So that both can report.
  TalkWords figures() const {
    const auto word_of = [](double figure) { return std::bit_cast<std::uint64_t>(figure); };
    return {static_cast<std::uint64_t>(SessionVerb::end),
            word_of(into_.latency_us),
            word_of(into_.latency_p99_us),
            word_of(into_.up.bytes_per_s),
            word_of(into_.down.bytes_per_s),
            word_of(into_.both_bytes_per_s),
            into_.up.message_bytes,
            into_.down.message_bytes,
            into_.down.checked_bytes,
            into_.down.damage.bytes,
            into_.down.damage.messages,
            word_of(into_.best_latency_us),
            into_.is_crowded ? 1U : 0U};
  }
  Status command(SessionVerb verb, std::uint64_t count) const {
    return say({static_cast<std::uint64_t>(verb), count, number_});
  }
  Result<FollowersWord> greet() const {
    GYRE_TRY(command(SessionVerb::hello, 0));
    return word();
  }
  Result<FollowersWord> word() const {
    GYRE_ASSIGN(const TalkWords words, hear());
    return FollowersWord::read(words);
  }

  Status measure_latency(std::uint64_t followers_wait_ns) {
    const std::int64_t begun_ns = SystemClock::read();
    const std::uint64_t own_wait_ns = processor_wait_ns();
    const double limit_s = echo_share * static_cast<double>(task_.work_ns) / ns_per_s;
    std::vector<double> half_us;
    std::array<std::byte, echo_bytes> sent, came;
    while (half_us.size() < max_echoes && !is_late() &&
           (half_us.empty() || seconds_since(begun_ns) < limit_s)) {
      GYRE_TRY(command(SessionVerb::echo, echoes_at_once));
      for (std::uint64_t i = 0; i < echoes_at_once; ++i) {
        fill_pattern(sent, seed_of(++number_, true));
        const std::int64_t at_ns = SystemClock::read();
        GYRE_TRY(send(sent));
        GYRE_TRY(receive(came));
        half_us.push_back(seconds_since(at_ns) * 1e6 / 2);
        if (came != sent) into_.has_garbled_talk = true;
      }
    }
    std::ranges::sort(half_us);
    if (half_us.empty()) return Status(Code::Timeout, "there was no time for it");
    into_.best_latency_us = quantile(half_us, 0.1);
    into_.latency_us = quantile(half_us, 0.5);
    into_.latency_p99_us = quantile(half_us, 0.99);
    GYRE_ASSIGN(const FollowersWord follower, greet());
    const std::uint64_t waited_ns =
        processor_wait_ns() - own_wait_ns + follower.processor_wait_ns - followers_wait_ns;
    into_.is_crowded =
        static_cast<double>(waited_ns) / ns_per_s > crowded_share * seconds_since(begun_ns);
    return {};
  }

  // Messages grow while the link carries them in a part of the time; the largest ones count.
  Status measure_rate(SessionVerb verb, double& bytes_per_s, std::uint64_t* message_bytes) {
    const std::int64_t begun_ns = SystemClock::read();
    const double limit_s = way_share * static_cast<double>(task_.work_ns) / ns_per_s;
    const std::uint64_t max_bytes = task_.outgoing.size();
    std::uint64_t bytes = std::min(min_message_bytes, max_bytes);
    std::vector<double> rates;
    for (;;) {
      GYRE_ASSIGN(const double seconds, transfer(verb, bytes));
      const double moved = static_cast<double>(bytes) * (verb == SessionVerb::both ? 2 : 1);
      rates.push_back(moved / std::max(seconds, 1e-9));
      const double left_s = limit_s - seconds_since(begun_ns);
      if (left_s <= 0 || is_late()) break;
      if (bytes < max_bytes && seconds * 8 <= left_s) {
        bytes = std::min(bytes * 4, max_bytes);
        rates.clear();
      }
    }
    std::ranges::sort(rates);
    bytes_per_s = quantile(rates, 0.5);
    if (message_bytes != nullptr) *message_bytes = bytes;
    return {};
  }

  // Seconds from the moment when both were ready.
  Result<double> transfer(SessionVerb verb, std::uint64_t bytes) {
    ++number_;
    const bool sends = verb != SessionVerb::give, receives = verb != SessionVerb::take;
    const std::span out = task_.outgoing.first(sends ? bytes : 0);
    const std::span in = task_.incoming.first(receives ? bytes : 0);
    fill_pattern(out, seed_of(number_, true));
    GYRE_TRY(command(verb, bytes));
    if (receives) GYRE_TRY(word().status());  // it has filled its message
    const std::int64_t begun_ns = SystemClock::read();
    GYRE_TRY(sends && receives ? exchange(out, in) : sends ? send(out) : receive(in));
    double seconds = seconds_since(begun_ns);
    if (receives) {
      check_pattern(in, seed_of(number_, false), number_, into_.down.damage);
      into_.down.checked_bytes += bytes;
    }
    if (!sends) return seconds;
    GYRE_ASSIGN(const FollowersWord told, word());
    add(into_.up.damage, told.damage);
    into_.up.checked_bytes += bytes;
    return receives ? std::max(seconds, told.seconds) : told.seconds;
  }

  std::uint64_t number_ = 0;  // of the last message
};

class FollowingEnd final : SessionEnd {
 public:
  FollowingEnd(const SessionTask& task, LinkMeasurement& into, std::string& doing)
      : SessionEnd(task, leader_rank, into, doing) {}

  Status run() {
    doing_ = "opening the link";
    for (;;) {
      GYRE_ASSIGN(const TalkWords words, hear());
      doing_ = "measuring";
      const std::uint64_t count = words[1], number = words[2];
      const auto verb = static_cast<SessionVerb>(words[0]);
      switch (verb) {
        case SessionVerb::hello:
          GYRE_TRY(say(told({})));
          break;
        case SessionVerb::echo:
          GYRE_TRY(echo(count));
          break;
        case SessionVerb::take:
        case SessionVerb::give:
        case SessionVerb::both:
          GYRE_TRY(transfer(verb, count, number));
          break;
        case SessionVerb::end:
          take_figures(words);
          return {};
        default:
          return wrong(words[0], count);
      }
      if (is_late()) return Status(Code::Timeout, "there was no time for more");
    }
  }

 private:
  static Status wrong(std::uint64_t verb, std::uint64_t count) {
    return invalid_argument(fmt::format(
        "the leading rank's program says {} of {}, which this one does not know", verb, count));
  }
  void take_figures(const TalkWords& words) {
    const auto figure = [&](std::size_t i) {
      return sound_figure(std::bit_cast<double>(words[i]));
    };
    into_.latency_us = figure(1);
    into_.latency_p99_us = figure(2);
    into_.up.bytes_per_s = figure(3);
    into_.down.bytes_per_s = figure(4);
    into_.both_bytes_per_s = figure(5);
    into_.up.message_bytes = words[6];
    into_.down.message_bytes = words[7];
    into_.down.checked_bytes = words[8];
    into_.down.damage.bytes = words[9];
    into_.down.damage.messages = words[10];
    into_.best_latency_us = figure(11);
    into_.is_crowded = words[12] != 0;
  }
  TalkWords told(FollowersWord word) const {
    word.known_bytes_per_s = into_.known_bytes_per_s;
    word.processor_wait_ns = processor_wait_ns();
    return word.words();
  }

  Status echo(std::uint64_t count) {
    if (count > max_echoes) return wrong(static_cast<std::uint64_t>(SessionVerb::echo), count);
    std::array<std::byte, echo_bytes> came;
    for (std::uint64_t i = 0; i < count; ++i) {
      GYRE_TRY(receive(came));
      GYRE_TRY(send(came));
    }
    return {};
  }

  Status transfer(SessionVerb verb, std::uint64_t bytes, std::uint64_t number) {
    if (bytes > task_.incoming.size()) return wrong(static_cast<std::uint64_t>(verb), bytes);
    const bool sends = verb != SessionVerb::take, receives = verb != SessionVerb::give;
    const std::span out = task_.outgoing.first(sends ? bytes : 0);
    const std::span in = task_.incoming.first(receives ? bytes : 0);
    FollowersWord word;
    fill_pattern(out, seed_of(number, false));
    if (sends) GYRE_TRY(say(told(word)));
    const std::int64_t begun_ns = SystemClock::read();
    GYRE_TRY(sends && receives ? exchange(out, in) : sends ? send(out) : receive(in));
    word.seconds = seconds_since(begun_ns);
    if (!receives) return {};
    check_pattern(in, seed_of(number, true), number, word.damage);
    add(into_.up.damage, word.damage);
    into_.up.checked_bytes += bytes;
    return say(told(word));
  }
};

// The words, and their hash.
using SealedTalk = std::array<std::uint64_t, talk_words + 1>;

}  // namespace

double sound_figure(double figure) { return std::isfinite(figure) && figure > 0 ? figure : 0; }

std::uint64_t hash_of(std::span<const std::byte> bytes) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;  // FNV-1a
  for (const std::byte byte : bytes)
    hash = (hash ^ std::to_integer<std::uint64_t>(byte)) * 0x100000001b3ULL;
  return hash;
}

Status checked_call(gyreResult_t result, gyreComm_t comm, std::string_view function) {
  if (result == gyreSuccess) return {};
  return Status(static_cast<Code>(result), fmt::format("{}: {}", function, gyreGetLastError(comm)));
}

Status send_talk(gyreComm_t comm, int peer, const TalkWords& words) {
  SealedTalk sealed{};
  std::ranges::copy(words, sealed.begin());
  sealed.back() = hash_of(std::as_bytes(std::span(words)));
  return checked_call(gyreSend(sealed.data(), sealed.size(), gyreUint64, peer, comm, nullptr), comm,
                      "gyreSend");
}

Status receive_talk(gyreComm_t comm, int peer, TalkWords& words, bool& came_whole) {
  SealedTalk sealed{};
  GYRE_TRY(checked_call(gyreRecv(sealed.data(), sealed.size(), gyreUint64, peer, comm, nullptr),
                        comm, "gyreRecv"));
  std::copy_n(sealed.begin(), words.size(), words.begin());
  came_whole = sealed.back() == hash_of(std::as_bytes(std::span(words)));
  return {};
}

Status lead_session(const SessionTask& task, LinkMeasurement& into, std::string& doing) {
  return LeadingEnd(task, into, doing).run();
}
Status follow_session(const SessionTask& task, LinkMeasurement& into, std::string& doing) {
  return FollowingEnd(task, into, doing).run();
}

}  // namespace gyre::tools
