# Collectives and sends by UCX over two RDMA devices, whose ends a cable joins, are right on each
# pair of program, bytes, ranks, type and family of addresses. The log says what carries them.
#: seconds 1500
#: rows ucx
#: programs tools/gyre bench/all_reduce_perf bench/all_gather_perf
#: programs bench/reduce_scatter_perf bench/broadcast_perf bench/alltoall_perf bench/sendrecv_perf
has_ucx
rxe_pair
sleep 2  # for addresses of IPv6
export GYRE_TRANSPORT=ucx
# shellcheck disable=SC2154  # of the row
run_row() {
  ucx_by "$family" ra
  gyre run -n "$ranks" --timeout 240 "${own_ucx_end[@]}" \
    "$program" -b "$bytes" -e "$bytes" -i 1 -d "$type" -n 1 -w 0 >/tmp/output 2>&1
}
failed=0
each_row ucx run_row || failed=1
GYRE_DEBUG=INFO GYRE_DEBUG_SUBSYS=NET gyre run -n 2 --timeout 240 "${own_ucx_end[@]}" \
  all_reduce_perf -b 8 -e 8 -n 1 -w 0 >/tmp/output 2>&1
grep -q 'ucx to rank 1: UCX .* by .*rc_verbs/ra:1' /tmp/output || {
  cat /tmp/output
  fail "the log does not say that rc_verbs on ra carries the bytes"
}
exit $failed
