# RDMA is right over a cable that loses 1 % of the packets.
#: seconds 240
#: programs tools/gyre bench/all_reduce_perf
rxe_pair
netem va loss 1%
netem vb loss 1%
# By default a lost last packet takes 4 s.
export GYRE_TRANSPORT=rdma GYRE_IB_TIMEOUT=14
gyre run -n 2 "${own_end[@]}" all_reduce_perf -b 4 -e 4M -f 32 -n 2 -w 1 &&
  has_dropped va && has_dropped vb
