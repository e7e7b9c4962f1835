# Every transport keeps the contract of transports on this kernel, rdma among them.
#: seconds 400
#: short
#: programs tests/transports_tests
rxe_one
transports_tests --of transport_conformance_test --rng-seed 1
