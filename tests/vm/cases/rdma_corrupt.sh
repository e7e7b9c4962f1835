# RDMA is right over a cable that changes a bit in 1 % of the packets.
#: seconds 240
#: programs tools/gyre bench/all_reduce_perf
rxe_pair
netem va corrupt 1%
netem vb corrupt 1%
export GYRE_TRANSPORT=rdma
gyre run -n 2 "${own_device[@]}" all_reduce_perf -b 4 -e 1M -f 32 -n 2 -w 1
