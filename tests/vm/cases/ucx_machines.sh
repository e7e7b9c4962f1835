# Two machines with two ranks each take UCX's reliable connections between them, and shared memory
# within.
#: seconds 240
#: hosts 2
#: programs bench/all_reduce_perf
has_ucx
rxe_card
ucx_by 6 rxe0
export GYRE_TRANSPORT=shm,ucx UCX_NET_DEVICES=rxe0:1 GYRE_DEBUG=INFO GYRE_DEBUG_SUBSYS=GRAPH,NET
machine_ranks 2 all_reduce_perf -b 4 -e 4M -f 32 -n 2 -w 1 &&
  grep -q 'UCX .* by rc_verbs/rxe0:1' /tmp/rank.*
