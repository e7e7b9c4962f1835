# What a guest runs: the cases that /job/order names, one after the other, each in a shell of its
# own with the functions of functions.sh. Output and result are left in /job.

# Ends what a case has left running: all but this shell, the first process and the kernel's threads,
# which have no command line.
kill_left() {
  local one words
  for one in /proc/[0-9]*; do
    one=${one#/proc/}
    [ "$one" != 1 ] && [ "$one" != $$ ] || continue
    words=
    read -r -d '' words <"/proc/$one/cmdline"
    [ -z "$words" ] || kill -9 "$one"
  done 2>/dev/null
}

# Takes away what it has laid.
clean_up() {
  local one
  for one in $(rdma link 2>/dev/null | sed -nE 's/^link ([^/ ]+)\/.*/\1/p'); do
    rdma link delete "$one"
  done
  for one in dummy0 va vc; do ip link del "$one" 2>/dev/null; done
  [ ! -e /sys/class/net/eth0 ] || { ip addr flush dev eth0 && ip link set eth0 down; }
  [ -n "$(ip rule list pref 0)" ] || ip rule add pref 0 lookup local
  for one in 10 11 12 13 20 21 22 23 30; do ip rule del pref $one 2>/dev/null; done
  tc qdisc del dev lo root 2>/dev/null
  ip link set lo mtu 65536 up
  dmesg -c >/dev/null
}

run_case() {
  local name=$1 seconds=$2 began code
  touch "/job/begun.$name"
  began=$(cut -d ' ' -f 1 /proc/uptime)
  # shellcheck disable=SC2016  # the case's shell
  timeout -k 5 "$seconds" bash -c 'case_name=$1; . /job/functions.sh; . "/job/cases/$1"' \
    case "$name" >"/job/output.$name" 2>&1 </dev/null
  code=$?
  dmesg >"/job/kernel.$name"
  kill_left
  clean_up
  echo "$code $began $(cut -d ' ' -f 1 /proc/uptime)" >/job/result.new
  mv /job/result.new "/job/result.$name"
}

. /job/settings
hostname "guest-$host"
sysctl -qw kernel.printk='3 3 3 3'
dmesg -c >/dev/null
while read -r name seconds; do run_case "$name" "$seconds"; done </job/order
