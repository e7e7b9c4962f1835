#include "tests/campaign/verb.h"

#include <algorithm>

namespace gyre::campaign {
namespace {

using Value = std::optional<std::uint32_t>;
constexpr gyreDataType_t type = gyreUint32;

std::size_t at(int index) { return static_cast<std::size_t>(index); }
std::size_t none(std::size_t) { return 0; }
std::size_t one(std::size_t) { return 1; }
std::size_t three(std::size_t) { return 3; }
std::size_t each(std::size_t size) { return size; }
std::size_t each_twice(std::size_t size) { return 2 * size; }

std::uint32_t base(int number, std::size_t place) {
  return static_cast<std::uint32_t>(place) * 2654435761U +
         static_cast<std::uint32_t>(number) * 40503U;
}
// base * (1 + 3 + ... + (2 size - 1))
std::uint32_t summed(const CallSite& site, std::size_t place) {
  return base(site.number, place) * static_cast<std::uint32_t>(site.size * site.size);
}

Value sum(const CallSite& site, std::size_t i) { return summed(site, i); }
Value sum_at_root(const CallSite& site, std::size_t i) {
  return site.member == site.errand.root ? Value(summed(site, i)) : Value();
}
Value roots(const CallSite& site, std::size_t i) { return given(site.number, site.errand.root, i); }
Value own_sum(const CallSite& site, std::size_t i) {
  return summed(site, at(site.member) * site.errand.count + i);
}
Value blocks(const CallSite& site, std::size_t i) {
  const std::size_t count = site.errand.count;
  return given(site.number, static_cast<int>(i / count), i % count);
}
Value blocks_at_root(const CallSite& site, std::size_t i) {
  return site.member == site.errand.root ? blocks(site, i) : Value();
}
Value blocks_for_me(const CallSite& site, std::size_t i) {
  const std::size_t count = site.errand.count;
  return given(site.number, static_cast<int>(i / count), at(site.member) * count + i % count);
}
Value roots_for_me(const CallSite& site, std::size_t i) {
  return given(site.number, site.errand.root, at(site.member) * site.errand.count + i);
}
Value nothing(const CallSite&, std::size_t) { return {}; }

// The uneven forms: block b lies at 2 b count, and is at most 2 count long.
Value uneven_for_me(const CallSite& site, std::size_t i) {
  const std::size_t room = 2 * site.errand.count;
  const int from = static_cast<int>(i / room);
  if (i % room >= site.uneven(from, site.member)) return {};
  return given(site.number, from, at(site.member) * room + i % room);
}
Value uneven_blocks(const CallSite& site, std::size_t i) {
  const std::size_t room = 2 * site.errand.count;
  const int from = static_cast<int>(i / room);
  if (i % room >= site.uneven(from, 0)) return {};
  return given(site.number, from, i % room);
}
Value uneven_own_sum(const CallSite& site, std::size_t i) {
  if (i >= site.uneven(site.member, 0)) return {};
  std::size_t first = 0;
  for (int member = 0; member < site.member; ++member) first += site.uneven(member, 0);
  return summed(site, first + i);
}

// Takers, each to the next.
int taker(const CallSite& site, int distance) {
  const int count = static_cast<int>(site.takers.size());
  return site.takers[at((site.place() + distance + count) % count)];
}
Value previous(const CallSite& site, std::size_t i) {
  return given(site.number, taker(site, -1), i);
}
Value previous_of_chain(const CallSite& site, std::size_t i) {
  return site.place() > 0 ? previous(site, i) : Value();
}
int partner(const CallSite& site) {
  const std::size_t place = at(site.place()) ^ 1;
  return place < site.takers.size() ? site.takers[place] : -1;
}
Value partners(const CallSite& site, std::size_t i) {
  return partner(site) >= 0 ? Value(given(site.number, partner(site), i)) : Value();
}
Value anyones(const CallSite& site, std::size_t i) {
  const std::size_t count = site.errand.count;
  if (site.place() != 0 || i / count >= site.sources.size()) return {};
  return given(site.number, site.sources[i / count], i % count);
}
Value two_sums_and_previous(const CallSite& site, std::size_t i) {
  if (i < 2 * site.errand.count) return summed(site, i);
  return given(site.number, taker(site, -1), i);
}

gyreResult_t send(const CallSite& s, int peer, std::size_t first = 0) {
  return gyreSend(s.in + first, s.errand.count, type, peer, s.comm, s.stream);
}
gyreResult_t receive(const CallSite& s, int peer, std::size_t first = 0) {
  return gyreRecv(s.out + first, s.errand.count, type, peer, s.comm, s.stream);
}
// The first that is not gyreSuccess, or a mere begin.
gyreResult_t worse(gyreResult_t first, gyreResult_t second) {
  return first == gyreSuccess || first == gyreInProgress ? second : first;
}

gyreResult_t ring(CallSite& s) {
  (void)gyreGroupStart();
  (void)send(s, taker(s, 1));
  if (s.in_group) s.in_group();
  (void)receive(s, taker(s, -1));
  return gyreGroupEnd();
}
gyreResult_t chain(CallSite& s) {
  gyreResult_t result = gyreSuccess;
  if (s.place() > 0) result = receive(s, taker(s, -1));
  if (s.place() + 1 < static_cast<int>(s.takers.size()) &&
      worse(result, gyreSuccess) == gyreSuccess)
    result = worse(result, send(s, taker(s, 1)));
  return result;
}
gyreResult_t pairs(CallSite& s) {
  if (partner(s) < 0) return gyreSuccess;
  const bool first = s.place() % 2 == 0;
  const gyreResult_t result = first ? send(s, partner(s)) : receive(s, partner(s));
  if (worse(result, gyreSuccess) != gyreSuccess) return result;
  return first ? receive(s, partner(s)) : send(s, partner(s));
}
gyreResult_t from_anyone(CallSite& s) {
  // The tag keeps out what a sender that is ahead sends in a later errand.
  if (s.place() != 0)
    return gyreSendTagged(s.in, s.errand.count, type, s.takers[0], s.number, s.comm, s.stream);
  s.sources.assign(s.takers.size() - 1, -1);
  (void)gyreGroupStart();
  for (std::size_t i = 0; i < s.sources.size(); ++i)
    (void)gyreRecvTagged(s.out + i * s.errand.count, s.errand.count, type, GYRE_ANY_SOURCE,
                         s.number, &s.sources[i], nullptr, s.comm, s.stream);
  return gyreGroupEnd();
}
gyreResult_t grouped(CallSite& s) {
  const std::size_t count = s.errand.count;
  (void)gyreGroupStart();
  for (const std::size_t first : {std::size_t{0}, count})
    (void)gyreAllReduce(s.in + first, s.out + first, count, type, gyreSum, s.comm, s.stream);
  if (s.in_group) s.in_group();
  (void)send(s, taker(s, 1), 2 * count);
  (void)receive(s, taker(s, -1), 2 * count);
  return gyreGroupEnd();
}

// Counts and places of the uneven forms; of all members alike, or with this one.
struct UnevenTables {
  std::vector<std::size_t> counts, places;
};
UnevenTables tables(const CallSite& s, std::size_t (*count)(const CallSite& s, int member)) {
  UnevenTables made;
  for (int member = 0; member < s.size; ++member) {
    made.counts.push_back(count(s, member));
    made.places.push_back(2 * s.errand.count * at(member));
  }
  return made;
}
std::size_t to_member(const CallSite& s, int member) { return s.uneven(s.member, member); }
std::size_t from_member(const CallSite& s, int member) { return s.uneven(member, s.member); }
std::size_t of_member(const CallSite& s, int member) { return s.uneven(member, 0); }

gyreResult_t all_to_all_v(CallSite& s) {
  const UnevenTables to = tables(s, to_member), from = tables(s, from_member);
  return gyreAlltoAllv(s.in, to.counts.data(), to.places.data(), s.out, from.counts.data(),
                       from.places.data(), type, s.comm, s.stream);
}
gyreResult_t all_gather_v(CallSite& s) {
  const UnevenTables all = tables(s, of_member);
  return gyreAllGatherv(s.in, s.uneven(s.member, 0), s.out, all.counts.data(), all.places.data(),
                        type, s.comm, s.stream);
}
gyreResult_t reduce_scatter_v(CallSite& s) {
  const UnevenTables all = tables(s, of_member);
  return gyreReduceScatterv(s.in, s.out, all.counts.data(), type, gyreSum, s.comm, s.stream);
}

// clang-format off
const CallKind kinds[] = {
    {"all-reduce", one, one, [](CallSite& s) { return gyreAllReduce(
         s.in, s.out, s.errand.count, type, gyreSum, s.comm, s.stream); }, sum},
    {"reduce", one, one, [](CallSite& s) { return gyreReduce(
         s.in, s.out, s.errand.count, type, gyreSum, s.errand.root, s.comm, s.stream); },
     sum_at_root},
    {"broadcast", one, one, [](CallSite& s) { return gyreBroadcast(
         s.in, s.out, s.errand.count, type, s.errand.root, s.comm, s.stream); }, roots},
    {"reduce-scatter", each, one, [](CallSite& s) { return gyreReduceScatter(
         s.in, s.out, s.errand.count, type, gyreSum, s.comm, s.stream); }, own_sum},
    {"all-gather", one, each, [](CallSite& s) { return gyreAllGather(
         s.in, s.out, s.errand.count, type, s.comm, s.stream); }, blocks},
    {"all-to-all", each, each, [](CallSite& s) { return gyreAlltoAll(
         s.in, s.out, s.errand.count, type, s.comm, s.stream); }, blocks_for_me},
    {"gather", one, each, [](CallSite& s) { return gyreGather(
         s.in, s.out, s.errand.count, type, s.errand.root, s.comm, s.stream); }, blocks_at_root},
    {"scatter", each, one, [](CallSite& s) { return gyreScatter(
         s.in, s.out, s.errand.count, type, s.errand.root, s.comm, s.stream); }, roots_for_me},
    {"all-to-all-v", each_twice, each_twice, all_to_all_v, uneven_for_me},
    {"all-gather-v", each_twice, each_twice, all_gather_v, uneven_blocks},
    {"reduce-scatter-v", each_twice, each_twice, reduce_scatter_v, uneven_own_sum},
    {"barrier", none, none, [](CallSite& s) { return gyreBarrier(s.comm, s.stream); }, nothing},
    {"ring", one, one, ring, previous},
    {"chain", one, one, chain, previous_of_chain},
    {"pairs", one, one, pairs, partners},
    {"anyone", one, each, from_anyone, anyones},
    {"grouped", three, three, grouped, two_sums_and_previous},
};
// clang-format on

}  // namespace

std::uint32_t given(int number, int member, std::size_t place) {
  return base(number, place) * static_cast<std::uint32_t>(2 * member + 1);
}

int CallSite::place() const {
  return static_cast<int>(std::ranges::find(takers, member) - takers.begin());
}

std::size_t CallSite::uneven(int from, int to) const {
  return errand.count * at((from + 2 * to) % 3);
}

std::span<const CallKind> call_kinds() { return kinds; }

const CallKind* call_kind(const std::string& name) {
  const auto* found =
      std::ranges::find_if(kinds, [&](const CallKind& k) { return k.name == name; });
  return found == std::end(kinds) ? nullptr : found;
}

std::size_t in_elements(const Errand& errand, std::size_t size) {
  const CallKind* kind = call_kind(errand.verb);
  return kind == nullptr ? 0 : kind->in_blocks(size) * errand.count;
}

std::size_t out_elements(const Errand& errand, std::size_t size) {
  const CallKind* kind = call_kind(errand.verb);
  return kind == nullptr ? 0 : kind->out_blocks(size) * errand.count;
}

}  // namespace gyre::campaign
