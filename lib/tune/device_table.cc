// The shipped table's part for GPUs.
#include "lib/tune/table.h"

namespace gyre::tune {
namespace {

using plan::Protocol;

// Reasoned, not measured here: a GPU's hop costs microseconds and its links are wide, so that a
// step less is worth bytes for far longer than on a host. NVIDIA measured one-shot ahead of
// everything to 128 KiB with 4 GPUs and 32 KiB with 8 (contrib/custom_algos/allreduce of NCCL
// 2.30); its model gives LL half of the bandwidth and LL128 nine tenths (src/graph/tuning.cc).
constexpr Row device_all_reduce_rows[] = {
    {true, 64 << 10, 4, "oneshot", Protocol::line},
    {true, 32 << 10, 16, "oneshot", Protocol::line},
    {true, 1 << 20, 16, "twoshot", Protocol::line128},
    {true, 256 << 10, 16, "twoshot", Protocol::line},
    {true, any_bytes, 16, "twoshot", Protocol::direct},
    {true, 64 << 10, any_ranks, "doubling", Protocol::line},
    {true, any_bytes, any_ranks, "ring", Protocol::simple},
};

constexpr Row device_scattered_rows[] = {
    {true, 64 << 10, 16, "twoshot", Protocol::line},
    {true, 1 << 20, 16, "twoshot", Protocol::line128},
    {true, any_bytes, 16, "twoshot", Protocol::direct},
    {true, 64 << 10, any_ranks, "window", Protocol::line},
    {true, any_bytes, any_ranks, "ring", Protocol::simple},
};

constexpr Row device_broadcast_rows[] = {
    {true, 64 << 10, any_ranks, "binomial", Protocol::line},
    {true, 512 << 10, any_ranks, "binomial", Protocol::line128},
    {true, any_bytes, 2, "twoshot", Protocol::direct},
    {true, any_bytes, 16, "star", Protocol::direct},
    {true, any_bytes, any_ranks, "chain", Protocol::simple},
};

constexpr Row device_reduce_rows[] = {
    {true, 64 << 10, any_ranks, "binomial", Protocol::line},
    {true, 512 << 10, any_ranks, "binomial", Protocol::line128},
    {true, any_bytes, 16, "twoshot", Protocol::direct},
    {true, any_bytes, any_ranks, "chain", Protocol::simple},
};

constexpr Row device_all_to_all_rows[] = {
    {true, 64 << 10, any_ranks, "pairwise", Protocol::line},
    {true, 512 << 10, any_ranks, "pairwise", Protocol::line128},
    {true, any_bytes, any_ranks, "pairwise", Protocol::direct},
};

constexpr Row device_linear_rows[] = {
    {true, 64 << 10, any_ranks, "linear", Protocol::line},
    {true, 512 << 10, any_ranks, "linear", Protocol::line128},
    {true, any_bytes, any_ranks, "linear", Protocol::direct},
};

}  // namespace

constinit const Table device_table = {
    device_all_reduce_rows, device_scattered_rows, device_broadcast_rows, device_reduce_rows,
    device_all_to_all_rows, device_linear_rows,    device_linear_rows};

}  // namespace gyre::tune
