# TCP is right over a network that loses 1 % of the packets.
#: seconds 180
#: short
#: programs tools/gyre bench/all_reduce_perf
netem lo loss 1%
export GYRE_TRANSPORT=tcp
gyre run -n 3 all_reduce_perf -b 4 -e 4M -f 32 -n 2 -w 1 &&
  has_dropped lo
