# A rank that is killed in an all-reduce by UCX over RDMA devices is named to its peers.
#: seconds 120
#: programs bench/all_reduce_perf
has_ucx
rxe_pair
ucx_by 4 ra
export GYRE_TRANSPORT=ucx
start_ranks 3 "${own_ucx_end[@]}" all_reduce_perf -b 256K -e 256K -n 1000000 -w 1
kill -9 "${rank_pids[1]}"
fails_within 0 3 'rank 1'
fails_within 2 3 'rank 1'
