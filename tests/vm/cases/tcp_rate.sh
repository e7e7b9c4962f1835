# TCP is right over a network of 50 Mbit/s with a short queue, which drops what does not fit.
#: seconds 120
#: programs tools/gyre bench/all_reduce_perf
ip link set lo mtu 1500
modprobe sch_tbf
tc qdisc add dev lo root tbf rate 50mbit burst 16kb latency 10ms
export GYRE_TRANSPORT=tcp
gyre run -n 3 all_reduce_perf -b 4 -e 1M -f 32 -n 2 -w 1 &&
  has_dropped lo
