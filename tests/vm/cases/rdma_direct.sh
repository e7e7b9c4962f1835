# Large calls on lent memory go without copies, with the right results; where ranks may lock too
# little memory, they say so and copy.
#: seconds 600
#: programs tools/gyre bench/all_gather_perf bench/all_reduce_perf bench/sendrecv_perf
rxe_pair 2
export GYRE_TRANSPORT=rdma
for program in all_gather_perf all_reduce_perf sendrecv_perf; do
  gyre run -n 2 --timeout 240 --env GYRE_DEBUG=INFO --env GYRE_DEBUG_SUBSYS=NET "${own_end[@]}" \
    "$program" -b 4M -e 4M -n 2 -w 1 >/tmp/output 2>&1 || { cat /tmp/output; fail "$program"; }
  grep -q 'without copies from here on' /tmp/output || { cat /tmp/output; fail "$program copied"; }
  gyre run -n 2 --timeout 240 --env GYRE_DEBUG=INFO --env GYRE_DEBUG_SUBSYS=NET "${own_end[@]}" \
    "$program" -b 4M -e 4M -n 2 -w 1 --plain_memory >/tmp/output 2>&1 || fail "$program, malloc"
  grep -q 'without copies from here on' /tmp/output && fail "$program: memory of malloc was kept"
done
ulimit -l 6144
as_nobody gyre run -n 2 --timeout 240 "${own_end[@]}" all_gather_perf -b 8M -e 8M -n 2 -w 0 \
  >/tmp/output 2>&1 || { cat /tmp/output; fail "too little memory to lock is no failure"; }
grep -q 'calls copy memory that the NIC could reach' /tmp/output || fail "nothing was said"
grep -q 'ulimit -l' /tmp/output || fail "no remedy was named"
