# An all-reduce over two cables goes on, and stays exact, when one of them drops all.
#: seconds 200
#: programs bench/all_reduce_perf
rxe_pair 2
export GYRE_TRANSPORT=rdma GYRE_LIVENESS_TIMEOUT=4
start_ranks 2 "${own_end[@]}" all_reduce_perf -b 1M -e 1M -n 40 -w 0 -c 10
netem va loss 100%
succeeds_within 0 150 'Out of bounds values : 0 OK' 'ra:1'
succeeds_within 1 10
