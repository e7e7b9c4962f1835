# RDMA is right over a cable that delays each packet by 2 ms.
#: seconds 240
#: programs tools/gyre bench/all_reduce_perf
rxe_pair
netem va delay 2ms
netem vb delay 2ms
export GYRE_TRANSPORT=rdma
gyre run -n 2 "${own_end[@]}" all_reduce_perf -b 4 -e 4M -f 32 -n 2 -w 1
