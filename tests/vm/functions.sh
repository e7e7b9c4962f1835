# The functions of cases. `case_name` is the case's. `gyre_build` is the folder of the programs
# under test, as on the host. `host` is 1, or 1 and 2 on machines of two.
. /job/settings
export gyre_build host PATH="$gyre_build/tools:$gyre_build/bench:$gyre_build/tests:$PATH"
export GYRE_SOCKET_IFNAME=lo
cd "$gyre_build" || exit

# A case that cannot run here says why.
skip() {
  echo "skipped: $*"
  exit 77
}

fail() {
  echo "failed: $*"
  exit 1
}

# --- devices ---

load_rxe() {
  modprobe dummy numdummies=0
  modprobe -a crc32_generic rdma_rxe rdma_ucm veth
}

# One device rxe0. Its GIDs are of a link's own address, of 10.0.0.1 and of fd00::1.
rxe_one() {
  load_rxe
  ip link add dummy0 type dummy
  ip addr add 10.0.0.1/24 dev dummy0
  ip addr add fd00::1/64 dev dummy0 nodad
  ip link set dummy0 mtu 4200 up
  rdma link add rxe0 type rxe netdev dummy0
  sleep 1
}

# rxe_cable NUMBER: two interfaces that a cable joins, with a device each, in one network namespace,
# as rxe knows only the first: va and vb with ra and rb at 10.1.0.1 and 10.1.0.2, or vc and vd with
# rc and rd at 10.1.0.3 and 10.1.0.4. The rules send what goes from one to the other over the cable,
# where netem and tbf see it.
rxe_cable() {
  local letters=(a b c d) first=$((2 * $1 - 2)) i one own other
  ip link add "v${letters[first]}" type veth peer name "v${letters[first + 1]}"
  for i in $first $((first + 1)); do
    one=v${letters[i]} own=10.1.0.$((i + 1)) other=10.1.0.$(((i ^ 1) + 1))
    ip link set "$one" mtu 4200 up
    sysctl -qw "net.ipv4.conf.$one.accept_local=1" "net.ipv4.conf.$one.rp_filter=0"
    ip addr add "$own/32" dev "$one"
    ip route add "$other" dev "$one" src "$own" table $((101 + i))
    ip rule add pref $((10 + i)) iif "$one" lookup local
    ip rule add pref $((20 + i)) to "$other" lookup $((101 + i))
  done
  for i in $first $((first + 1)); do
    rdma link add "r${letters[i]}" type rxe netdev "v${letters[i]}"
  done
}

# rxe_pair [2]: one such cable, or two.
rxe_pair() {
  local i
  load_rxe
  sysctl -qw net.ipv4.conf.all.rp_filter=0
  for i in $(seq "${1-1}"); do rxe_cable "$i"; done
  ip rule add pref 30 lookup local
  ip rule del pref 0
}

# The card of a machine of two: eth0, at 10.5.0.$host and fd05::$host.
card_up() {
  modprobe virtio_net
  ip addr add "10.5.0.$host/24" dev eth0
  ip addr add "fd05::$host/64" dev eth0 nodad
  ip link set eth0 mtu 4200 up
}

# The same, and its device rxe0.
rxe_card() {
  load_rxe
  card_up
  rdma link add rxe0 type rxe netdev eth0
  sleep 1
}

# netem INTERFACE WORDS...: its own limit of 1000 packets would lose some.
netem() {
  local one=$1
  shift
  modprobe sch_netem
  tc qdisc add dev "$one" root netem limit 100000 "$@"
}

# A case of loss in which nothing was lost shows nothing.
has_dropped() {
  local count
  count=$(tc -s qdisc show dev "$1" | sed -n 's/.*(dropped \([0-9]*\),.*/\1/p' | head -n 1)
  echo "$1 has dropped $count packets"
  [ "$count" -gt 0 ]
}

# Waits until both machines have come to the place of that name in the case.
meet() {
  local place=/shared/$case_name.$1
  touch "$place.$host"
  for _ in $(seq 600); do
    [ ! -e "$place.1" ] || [ ! -e "$place.2" ] || return 0
    sleep 0.2
  done
  fail "the other machine did not come to $1"
}

as_nobody() { setpriv --reuid 65534 --regid 65534 --clear-groups "$@"; }

# machine_ranks COUNT PROGRAM...: so many ranks on each machine of a run of two.
machine_ranks() {
  local count=$1 rank pids=() code=0
  shift
  [ "$host" != 1 ] || head -c 32 /dev/urandom >"/shared/$case_name.secret"
  meet ranks
  # Files of /shared belong to whoever runs the machines.
  (umask 077 && cat "/shared/$case_name.secret" >/tmp/secret)
  export GYRE_SOCKET_IFNAME=eth0 GYRE_SIZE=$((2 * count)) GYRE_LOCAL_SIZE=$count
  export GYRE_RENDEZVOUS_ADDRESS=10.5.0.1:29777 GYRE_RENDEZVOUS_SECRET_FILE=/tmp/secret
  for ((rank = 0; rank < count; ++rank)); do
    GYRE_RANK=$(((host - 1) * count + rank)) GYRE_LOCAL_RANK=$rank "$@" >"/tmp/rank.$rank" 2>&1 &
    pids+=($!)
  done
  for rank in "${!pids[@]}"; do
    wait "${pids[rank]}" || code=$?
    sed "s/^/[$(((host - 1) * count + rank))] /" "/tmp/rank.$rank"
  done
  return "$code"
}

# Ranks with even numbers take the devices at one end of rxe_pair's cables, those with odd ones the
# others: all between such goes over the cables. As in: gyre run -n 2 "${own_end[@]}" PROGRAM...
# shellcheck disable=SC2016,SC2034  # the rank's shell; cases
own_end=(bash -c
  'if [ $((GYRE_RANK % 2)) = 0 ]; then one=ra,rc; else one=rb,rd; fi; GYRE_IB_HCA=$one exec "$@"'
  rank)

# The same for UCX.
# shellcheck disable=SC2016,SC2034  # the rank's shell; cases
own_ucx_end=(bash -c
  'if [ $((GYRE_RANK % 2)) = 0 ]; then one=ra:1; else one=rb:1; fi; UCX_NET_DEVICES=$one exec "$@"'
  rank)

# UCX comes from the machine on which the image was made.
has_ucx() {
  compgen -G '/usr/lib/*/libucp.so.0' >/dev/null || skip "the image has no UCX (libucx0)"
}

# ucx_by FAMILY DEVICE: UCX takes reliable connections, over the device's GIDs of IPv4 or IPv6. It
# begins them by datagrams. UCX 1.13 takes each for one of IPv6 unless an mlx5 device has marked it,
# and drops it, as no address fits: with IPv4 the check has to be off.
ucx_by() {
  local folder=/sys/class/infiniband/$2/ports/1/gids index gid
  unset UCX_IB_GID_INDEX
  for index in $(seq 0 7); do
    gid=$(cat "$folder/$index")
    case "$1 $gid" in
      "4 0000:0000:0000:0000:0000:ffff:"* | "6 f"*) export UCX_IB_GID_INDEX=$index ;;
    esac
  done
  [ -n "$UCX_IB_GID_INDEX" ] || fail "$2 has no GID of IPv$1"
  export UCX_TLS=rc_verbs,ud_verbs UCX_UD_VERBS_ETH_DGID_CHECK=y
  [ "$1" = 6 ] || UCX_UD_VERBS_ETH_DGID_CHECK=n
}

# each_row TABLE COMMAND: COMMAND for each row of the table, whose columns are variables then. Its
# output is in /tmp/output. Says how each ended, and what those said that failed.
each_row() {
  local row code failed=0
  while read -r row; do
    eval "$row"
    "$2"
    code=$?
    if [ $code = 0 ]; then
      echo "ok: $row"
    else
      echo "exit code $code: $row"
      cat /tmp/output
      failed=1
    fi
  done <"/job/rows.$1"
  return $failed
}

# start_ranks COUNT PROGRAM...: ranks that nobody ends when one fails. Their output is in
# /tmp/rank.N; they have begun when rank 0 prints its table.
start_ranks() {
  local count=$1 rank
  shift
  rank_pids=()
  export GYRE_SIZE=$count GYRE_LOCAL_SIZE=$count GYRE_RENDEZVOUS_FILE=/tmp/meeting
  for ((rank = 0; rank < count; ++rank)); do
    GYRE_RANK=$rank GYRE_LOCAL_RANK=$rank "$@" >"/tmp/rank.$rank" 2>&1 &
    rank_pids+=($!)
  done
  for rank in $(seq 600); do
    ! grep -q 'in-place' /tmp/rank.0 || { sleep 1 && return 0; }
    kill -0 "${rank_pids[0]}" 2>/dev/null || break
    sleep 0.1
  done
  tail -n 20 /tmp/rank.*
  fail "the ranks did not begin"
}

# Leaves in `code` how the rank has ended. Not in the time: a failure.
await_end() { # await_end RANK SECONDS
  local rank=$1 seconds=$2 pid=${rank_pids[$1]} began=${EPOCHREALTIME/./}
  code=0
  while kill -0 "$pid" 2>/dev/null; do
    [ $((${EPOCHREALTIME/./} - began)) -lt $((seconds * 1000000)) ] || {
      tail -n 20 "/tmp/rank.$rank"
      fail "rank $rank has not ended in $seconds s"
    }
    sleep 0.05
  done
  wait "$pid" || code=$?
  echo "rank $rank ended after $(((${EPOCHREALTIME/./} - began) / 1000)) ms with exit code $code"
  tail -n 5 "/tmp/rank.$rank"
}

says() { # says RANK WORDS...
  local rank=$1 word
  shift
  for word in "$@"; do
    grep -qE -- "$word" "/tmp/rank.$rank" || fail "rank $rank does not say $word"
  done
}

# fails_within RANK SECONDS WORDS...: the rank ends in that time with an error that has these words.
fails_within() {
  await_end "$1" "$2"
  [ "$code" != 0 ] || fail "rank $1 ended without an error"
  says "$1" "${@:3}"
}

succeeds_within() { # succeeds_within RANK SECONDS WORDS...
  await_end "$1" "$2"
  [ "$code" = 0 ] || fail "rank $1 ended with an error"
  says "$1" "${@:3}"
}
