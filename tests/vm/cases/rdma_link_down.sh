# A link that goes down in an all-reduce over RDMA is an error within the liveness limit and a
# second, which names the peer and the port.
#: seconds 120
#: programs bench/all_reduce_perf
rxe_pair
export GYRE_TRANSPORT=rdma GYRE_LIVENESS_TIMEOUT=4
start_ranks 2 "${own_end[@]}" all_reduce_perf -b 256K -e 256K -n 1000000 -w 1
ip link set va down
fails_within 0 15 'rank 1' 'ra:1'
fails_within 1 15 'rank 0' 'rb:1'
