# Every transport keeps the contract of transports on this kernel, rdma among them.
#: seconds 400
#: short
#: programs tests/transport_conformance_test
rxe_one
transport_conformance_test --rng-seed 1
