# What a device and a peer's may do wrong is an error of the transport within the liveness limit and
# a second: queue pairs that stop, keys that are withdrawn, queues without room.
#: seconds 200
#: programs tests/vm/device_faults_test
rxe_one
tests/vm/device_faults_test
