# Ranks that are not root take RDMA.
#: seconds 120
#: short
#: programs tools/gyre bench/all_reduce_perf
rxe_one
export GYRE_TRANSPORT=rdma
as_nobody gyre run -n 2 all_reduce_perf -b 4 -e 1M -f 64 -n 2 -w 1
