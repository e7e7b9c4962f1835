# Every collective is right with every algorithm on every path, in pairs of what it depends on.
#: seconds 600
#: programs tests/all_reduce_test tests/collectives_test
all_reduce_test --rng-seed 1 "all-reduce is right on each pair of*" &&
  collectives_test --rng-seed 1
