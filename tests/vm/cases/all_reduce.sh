# All-reduce is right on each type with each operation, over rdma too.
#: seconds 120
#: short
#: programs tests/all_reduce_test
rxe_one
all_reduce_test --rng-seed 1 "all-reduce is right on each type with each op"
