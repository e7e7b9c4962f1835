# Two machines with two ranks each take RDMA between them, and all-reduce by levels.
#: seconds 240
#: hosts 2
#: programs bench/all_reduce_perf
rxe_card
export GYRE_ALGO=allreduce:hierarchical GYRE_DEBUG=INFO GYRE_DEBUG_SUBSYS=GRAPH,TUNING,NET
machine_ranks 2 all_reduce_perf -b 4 -e 4M -f 32 -n 2 -w 1 &&
  grep -q 'choose hierarchical' /tmp/rank.0 && grep -q 'rank . over rdma' /tmp/rank.0
