# All-reduce is right on each type with each operation, over rdma too.
#: seconds 120
#: short
#: programs tests/comm_tests
rxe_one
comm_tests --of all_reduce_test --rng-seed 1 "all-reduce is right on each type with each op"
