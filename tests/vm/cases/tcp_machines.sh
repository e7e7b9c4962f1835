# Two machines with two ranks each take TCP between them, and all-reduce by levels.
#: seconds 120
#: hosts 2
#: programs bench/all_reduce_perf
card_up
export GYRE_ALGO=allreduce:hierarchical GYRE_DEBUG=INFO GYRE_DEBUG_SUBSYS=GRAPH,TUNING
machine_ranks 2 all_reduce_perf -b 4 -e 4M -f 32 -n 2 -w 1 &&
  grep -q 'choose hierarchical' /tmp/rank.0 && grep -q 'over tcp (shm does not reach' /tmp/rank.0
