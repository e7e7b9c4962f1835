# All-reduce is right on each type with each operation, over rdma too.
#: seconds 120
#: short
#: programs tests/comm_tests
rxe_one
# UCX 1.13 does not connect by an IPv4 address of rxe (see ucx_by): it keeps to what else it has.
export UCX_TLS=tcp,sm,self
comm_tests --of all_reduce_test --rng-seed 1 "all-reduce is right on each type with each op"
