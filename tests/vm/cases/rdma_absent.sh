# Without devices, with a port that is down, and without libibverbs the log says why in a line, and
# TCP is taken.
#: seconds 120
#: programs tools/gyre bench/all_reduce_perf
export GYRE_SHM_DISABLE=1 GYRE_DEBUG=INFO GYRE_DEBUG_SUBSYS=GRAPH
takes_tcp() { # takes_tcp REASON COMMAND...: under the command, if there is one
  "${@:2}" gyre run -n 2 all_reduce_perf -b 4 -e 4K -f 32 -n 1 -w 0 >/tmp/output 2>&1 || fail "$1"
  grep 'rank 0 to rank 1' /tmp/output
  grep -qE "rank 0 to rank 1: tcp: .*not rdma: .*$1" /tmp/output || fail "the log does not say $1"
}
takes_tcp 'no RDMA' # device, or in the kernel
rxe_one
ip link set dummy0 down
sleep 1
takes_tcp 'rxe0:1: down'
gyre topo | grep rxe0
# shellcheck disable=SC2016  # the inner shell
without_library=(unshare -m bash -c
  'for one in /usr/lib/*/libibverbs.so.1 /lib/*/libibverbs.so.1; do
     [ ! -e "$one" ] || mount --bind /dev/null "$one"
   done; exec "$@"' without)
takes_tcp 'libibverbs.so.1' "${without_library[@]}"
