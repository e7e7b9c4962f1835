# TCP is right over a network that delays each packet by 5 ms, and not each by the same.
#: seconds 120
#: short
#: programs tools/gyre bench/all_reduce_perf
netem lo delay 5ms 2ms
export GYRE_TRANSPORT=tcp
gyre run -n 3 all_reduce_perf -b 4 -e 4M -f 32 -n 2 -w 1
