# Ranks that may lock 8 MiB, and want more, get an error that says what to do.
#: seconds 120
#: programs tools/gyre bench/all_reduce_perf
rxe_one
ulimit -l 8192
export GYRE_TRANSPORT=rdma
as_nobody gyre run -n 2 all_reduce_perf -b 4 -e 64K -f 64 -n 2 -w 1 || fail "8 MiB are too little"
as_nobody gyre run -n 2 --env GYRE_BUFFSIZE=16M all_reduce_perf -b 64M -e 64M -n 1 -w 0 \
  >/tmp/output 2>&1 && fail "nobody was refused"
cat /tmp/output
grep -qE 'ulimit -l|memlock' /tmp/output
