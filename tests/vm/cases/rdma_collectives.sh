# Collectives over RDMA are right on each pair of program, bytes, ranks, type, memory, queue pairs
# and devices.
#: seconds 1500
#: rows rdma
#: programs tools/gyre bench/all_reduce_perf bench/all_gather_perf
#: programs bench/reduce_scatter_perf bench/broadcast_perf bench/reduce_perf
#: programs bench/gather_perf bench/scatter_perf bench/alltoall_perf
#: programs bench/alltoallv_perf bench/sendrecv_perf
rxe_pair 2
export GYRE_TRANSPORT=rdma
# shellcheck disable=SC2154  # of the row
run_row() {
  local way=("${own_end[@]}")
  [ "$devices" = 2 ] || way=(env GYRE_IB_HCA=ra)
  gyre run -n "$ranks" --timeout 240 --env "GYRE_IB_QPS_PER_CONNECTION=$pairs" "${way[@]}" \
    "$program" -b "$bytes" -e "$bytes" -i 1 -d "$type" "$memory" -n 1 -w 0 >/tmp/output 2>&1
}
each_row rdma run_row
