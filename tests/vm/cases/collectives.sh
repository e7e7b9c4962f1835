# Every collective is right with every algorithm on every path, rdma among them.
#: seconds 900
#: programs tests/comm_tests
rxe_one
# UCX 1.13 does not connect by an IPv4 address of rxe (see ucx_by): it keeps to what else it has.
export UCX_TLS=tcp,sm,self
comm_tests --of all_reduce_test --rng-seed 1 "all-reduce is right on each pair of*" &&
  comm_tests --of collectives_test --rng-seed 1
