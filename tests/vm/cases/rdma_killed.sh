# A rank that is killed in an all-reduce over RDMA is named to its peers, within a second.
#: seconds 120
#: programs bench/all_reduce_perf
rxe_pair
export GYRE_TRANSPORT=rdma
start_ranks 3 "${own_end[@]}" all_reduce_perf -b 256K -e 256K -n 1000000 -w 1
kill -9 "${rank_pids[1]}"
fails_within 0 3 'rank 1'
fails_within 2 3 'rank 1'
