# An rxe device does what the rdma transport relies on, by IPv4 and by IPv6.
#: seconds 60
#: short
#: programs tests/vm/verbs_probe
rxe_one
sound='immediate empty inline long event'
faults='bad_key revoked_key gone not_ready flush overflow'
# shellcheck disable=SC2086  # words
tests/vm/verbs_probe rxe0 10.0.0.1 rxe0 10.0.0.1 $sound $faults &&
  tests/vm/verbs_probe rxe0 fd00::1 rxe0 fd00::1 $sound gone
