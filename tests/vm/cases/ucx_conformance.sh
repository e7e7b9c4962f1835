# ucx keeps the contract of transports over an RDMA device, by UCX's reliable connections.
#: seconds 400
#: programs tests/transports_tests
has_ucx
rxe_one
ucx_by 6 rxe0
UCX_NET_DEVICES=rxe0:1 transports_tests --of transport_conformance_test --rng-seed 1
