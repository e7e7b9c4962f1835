# Writes over a cable that delays and loses packets arrive whole.
#: seconds 120
#: programs tests/vm/verbs_probe
rxe_pair
netem va delay 2ms loss 1%
netem vb delay 2ms loss 1%
VERBS_PATIENT=1 tests/vm/verbs_probe ra 10.1.0.1 rb 10.1.0.2 immediate empty inline long long &&
  has_dropped va
