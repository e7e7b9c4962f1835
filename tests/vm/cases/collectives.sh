# Every collective is right with every algorithm on every path, rdma among them.
#: seconds 900
#: programs tests/all_reduce_test tests/collectives_test
rxe_one
all_reduce_test --rng-seed 1 "all-reduce is right on each pair of*" &&
  collectives_test --rng-seed 1
