# Whoever is not root reaches a device, and registers no more than the limit of locked memory.
#: seconds 30
#: short
#: programs tests/vm/verbs_probe
rxe_one
ulimit -l 32768
as_nobody tests/vm/verbs_probe rxe0 10.0.0.1 rxe0 10.0.0.1 immediate memlock
