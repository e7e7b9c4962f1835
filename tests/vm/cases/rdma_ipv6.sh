# A port with IPv6 alone is taken by its GID for IPv6.
#: seconds 120
#: programs tools/gyre bench/all_reduce_perf
load_rxe
ip link add dummy0 type dummy
ip addr add fd00::1/64 dev dummy0 nodad
ip link set dummy0 mtu 4200 up
rdma link add rxe0 type rxe netdev dummy0
sleep 2
export GYRE_TRANSPORT=rdma GYRE_DEBUG=INFO GYRE_DEBUG_SUBSYS=GRAPH,NET
gyre run -n 2 all_reduce_perf -b 4 -e 64K -f 64 -n 2 -w 1 >/tmp/output 2>&1
code=$?
cat /tmp/output
[ $code = 0 ] && grep -q 'RoCE v2, IPv6' /tmp/output && grep -q 'to fd00::1' /tmp/output
