# Every transport keeps the contract of transports on this kernel.
#: seconds 200
#: short
#: programs tests/transport_conformance_test
transport_conformance_test --rng-seed 1
