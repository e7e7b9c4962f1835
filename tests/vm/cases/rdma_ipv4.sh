# A port with IPv4 alone is taken by its GID for IPv4.
#: seconds 120
#: programs tools/gyre bench/all_reduce_perf
load_rxe
ip link add dummy0 type dummy
sysctl -qw net.ipv6.conf.dummy0.disable_ipv6=1
ip addr add 10.0.0.1/24 dev dummy0
ip link set dummy0 mtu 4200 up
rdma link add rxe0 type rxe netdev dummy0
sleep 1
export GYRE_TRANSPORT=rdma GYRE_DEBUG=INFO GYRE_DEBUG_SUBSYS=GRAPH,NET
gyre run -n 2 all_reduce_perf -b 4 -e 64K -f 64 -n 2 -w 1 >/tmp/output 2>&1
code=$?
cat /tmp/output
[ $code = 0 ] && grep -q 'RoCE v2, IPv4' /tmp/output
