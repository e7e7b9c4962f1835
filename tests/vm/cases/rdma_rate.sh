# RDMA is right over a cable that carries 100 Mbit/s.
#: seconds 240
#: programs tools/gyre bench/all_reduce_perf
rxe_pair
netem va rate 100mbit
netem vb rate 100mbit
export GYRE_TRANSPORT=rdma
gyre run -n 2 "${own_end[@]}" all_reduce_perf -b 4 -e 4M -f 32 -n 1 -w 1
