#include "lib/tune/table.h"

namespace gyre::tune {
namespace {

using plan::Protocol;

// Measured with bench/compare/settings.py on two cores that share their last-level cache, with 2, 4
// and 8 ranks (bench/results/settings.jsonl). Where memory reaches, copies of up to 1 or 2 KiB go
// by lines, and sums of up to 512 bytes; what is longer goes through a slot. Buffers that peers can
// map are lent from the size on at which that is faster than two copies; those that they cannot map
// lose little by being offered. Two ranks that write to each other at the same time stay with slots
// up to 128 or 256 KiB: these change hands, and are as fast. A link has 128 lines and 4 slots: with
// more ranks than cores, rooted calls follow closely by lines. Up to 16 ranks everybody talks to
// everybody, which takes one or two hops; what holds beyond is reasoned: links per rank grow with
// log n or stay at two.
constexpr Row all_reduce_rows[] = {
    {true, 256, 2, "oneshot", Protocol::line},
    {true, 128, 16, "oneshot", Protocol::line},
    {true, 8 << 10, 4, "oneshot", Protocol::simple},
    {true, 4 << 10, 16, "oneshot", Protocol::simple},
    {true, 128 << 10, 2, "twoshot", Protocol::simple},
    {true, 64 << 10, 16, "twoshot", Protocol::simple},
    {true, any_bytes, 16, "twoshot", Protocol::direct},
    {true, 512, any_ranks, "doubling", Protocol::line},
    {true, 64 << 10, any_ranks, "doubling", Protocol::simple},
    {true, any_bytes, any_ranks, "ring", Protocol::simple},
    {false, 128 << 10, 2, "oneshot", Protocol::simple},
    {false, 8 << 10, 4, "oneshot", Protocol::simple},
    {false, 32 << 10, any_ranks, "doubling", Protocol::simple},
    {false, 512 << 10, 16, "twoshot", Protocol::simple},
    {false, 512 << 10, any_ranks, "tree", Protocol::simple},
    // Two ranks on each of four hosts (bench/compare/hosts.py): the steps of three phases cost more
    // than fewer bytes save. With more ranks a ring has more steps than hierarchical.
    {false, 1 << 20, 16, "ring", Protocol::simple, true},
    {false, any_bytes, any_ranks, "hierarchical", Protocol::simple, true},
    {false, any_bytes, any_ranks, "ring", Protocol::simple},
};

constexpr Row scattered_rows[] = {
    {true, 1 << 10, 2, "window", Protocol::line},
    {true, 128, 16, "twoshot", Protocol::line},
    {true, 128 << 10, 2, "window", Protocol::simple},
    {true, 256 << 10, 16, "twoshot", Protocol::simple},
    {true, any_bytes, 16, "twoshot", Protocol::direct},
    {true, 512, 64, "window", Protocol::line},
    {true, 64 << 10, any_ranks, "window", Protocol::simple},
    {true, any_bytes, any_ranks, "ring", Protocol::simple},
    {false, 512 << 10, 16, "twoshot", Protocol::simple},
    {false, 64 << 10, any_ranks, "window", Protocol::simple},
    {false, any_bytes, any_ranks, "ring", Protocol::simple},
};

// Through slots a root, or who is far from one, need not wait: many small calls follow closely.
constexpr Row broadcast_rows[] = {
    {true, 512, 2, "binomial", Protocol::line},
    {true, 8 << 10, 2, "twoshot", Protocol::simple},
    {true, any_bytes, 2, "twoshot", Protocol::direct},
    {true, 1 << 10, any_ranks, "binomial", Protocol::line},
    {true, 16 << 10, any_ranks, "binomial", Protocol::simple},
    // Each rank passes its part on at once. 4 and 8 ranks on 2 cores of a Zen 4, 64 KiB, us,
    // binomial and twoshot: 24 and 18, 55 and 27 (bench/results/compare.jsonl).
    {true, 512 << 10, 16, "twoshot", Protocol::simple},
    {true, 256 << 10, any_ranks, "binomial", Protocol::simple},
    // A star has the root write to all, where memory is not lent. 8 ranks, memory from malloc, 2
    // MiB: 847 us by star, 408 by twoshot; lent memory 336 and 421 (Zen 5).
    {true, 4 << 20, 16, "twoshot", Protocol::direct},
    {true, any_bytes, any_ranks, "chain", Protocol::simple},
    {false, 256 << 10, any_ranks, "binomial", Protocol::simple},
    {false, any_bytes, any_ranks, "chain", Protocol::simple},
};

constexpr Row reduce_rows[] = {
    {true, 512, any_ranks, "binomial", Protocol::line},
    {true, 32 << 10, any_ranks, "binomial", Protocol::simple},
    {true, 128 << 10, 2, "star", Protocol::direct},
    {true, any_bytes, 16, "twoshot", Protocol::direct},
    {true, any_bytes, any_ranks, "chain", Protocol::simple},
    {false, 256 << 10, any_ranks, "binomial", Protocol::simple},
    {false, any_bytes, any_ranks, "chain", Protocol::simple},
};

constexpr Row all_to_all_rows[] = {
    {true, 1 << 10, 2, "pairwise", Protocol::line},
    {true, 256 << 10, 2, "pairwise", Protocol::simple},
    {true, 2 << 10, any_ranks, "pairwise", Protocol::line},
    // Lent buffers make ranks that share processors wait for each other once more. From malloc they
    // bring nothing. 4 and 8 ranks on 2 cores, us, lent and by slots: 64 KiB 28 and 15, 151 and 52;
    // 1 MiB 283 and 173, 1225 and 871. From gyreMemAlloc 2 MiB take 0.5 and 0.7 of the time if
    // lent.
    {true, 1 << 20, any_ranks, "pairwise", Protocol::simple},
    {true, any_bytes, any_ranks, "pairwise", Protocol::direct},
    {false, any_bytes, 4, "pairwise", Protocol::simple},
    {false, 64 << 10, any_ranks, "bruck", Protocol::simple},
    {false, any_bytes, any_ranks, "pairwise", Protocol::simple},
};

constexpr Row gather_rows[] = {
    {true, 2 << 10, any_ranks, "linear", Protocol::line},
    {true, 64 << 10, 2, "linear", Protocol::simple},
    {true, any_bytes, 2, "linear", Protocol::direct},
    {true, 1 << 20, any_ranks, "linear", Protocol::simple},
    {true, any_bytes, any_ranks, "linear", Protocol::direct},
    {false, any_bytes, any_ranks, "linear", Protocol::simple},
};

constexpr Row scatter_rows[] = {
    {true, 2 << 10, any_ranks, "linear", Protocol::line},
    {true, 64 << 10, any_ranks, "linear", Protocol::simple},
    {true, any_bytes, any_ranks, "linear", Protocol::direct},
    {false, any_bytes, any_ranks, "linear", Protocol::simple},
};

}  // namespace

constinit const Table host_table = {all_reduce_rows, scattered_rows, broadcast_rows, reduce_rows,
                                    all_to_all_rows, gather_rows,    scatter_rows};

std::span<const Row> Table::rows(plan::Collective collective) const {
  switch (collective) {
    case plan::Collective::reduce_scatter:
    case plan::Collective::all_gather:
      return scattered;
    case plan::Collective::broadcast:
      return broadcast;
    case plan::Collective::reduce:
      return reduce;
    case plan::Collective::all_to_all:
      return all_to_all;
    case plan::Collective::gather:
      return gather;
    case plan::Collective::scatter:
      return scatter;
    case plan::Collective::all_reduce:
      break;
  }
  return all_reduce;
}

}  // namespace gyre::tune
