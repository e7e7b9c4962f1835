# RDMA is right over a cable that changes a bit in 1 % of the packets.
#: seconds 240
#: programs tools/gyre bench/all_reduce_perf
rxe_pair
netem va corrupt 1%
netem vb corrupt 1%
# By default a lost last packet takes 4 s.
export GYRE_TRANSPORT=rdma GYRE_IB_TIMEOUT=14
gyre run -n 2 "${own_end[@]}" all_reduce_perf -b 4 -e 1M -f 32 -n 2 -w 1
