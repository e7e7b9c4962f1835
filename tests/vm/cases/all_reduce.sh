# All-reduce is right on each type with each operation.
#: seconds 60
#: short
#: programs tests/all_reduce_test
all_reduce_test --rng-seed 1 "all-reduce is right on each type with each op"
