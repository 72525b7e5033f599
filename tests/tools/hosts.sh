#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Emulated hosts: namespaces on this machine with a name, processes and a network address of their own, joined by a bridge. For
# what crosses a network between hosts: mpirun over several of them, addresses that are not loopback, a host that dies.
#
#   hosts.sh up N             makes h1 ... hN (an earlier set goes away)
#   hosts.sh down             takes all of it back
#   hosts.sh run hI CMD...    runs a command inside host I
#   hosts.sh env              prints what mpirun needs: eval "$(hosts.sh env)"; mpirun --host h1:2,h2:2 ...
#
# mpirun itself runs outside the hosts and starts its daemons inside them through `hosts.sh agent` in place of ssh. Host I has the
# address $net.I, this side $net.254. The file system is shared, so programs and models need no copying.
#   a host dies:    kill -9 "$(cat $state/hI.pid)"         its pid namespace, and so every process in it, goes with it
#   a link is cut:  ip link set trihI down                 ... up
#   a slow link:    tc qdisc add dev trihI root tbf rate 1gbit burst 64k latency 5ms
# Exit code 77 (skipped, with the reason) where this cannot work: not root, no unshare or ip, namespaces forbidden.
#
# Seen with Open MPI 4.1.4 on Debian 12: mpirun over two hosts starts in about 1 s. It does not notice a cut link by itself; with
# --mca oob_tcp_keepalive_time 2 --mca oob_tcp_keepalive_intvl 1 --mca oob_tcp_keepalive_probes 3 it does after 3-4 s. A lost host
# ends the job.
set -euo pipefail

state=${TRIREME_HOSTS_DIR:-/tmp/trireme-hosts}
net=${TRIREME_HOSTS_NET:-10.213.7}
bridge=tribr0
self=$(readlink -f "$0")

skip() {
  echo "hosts.sh: skipped: $*" >&2
  exit 77
}

check_possible() {
  [ "$(id -u)" = 0 ] || skip "emulated hosts need root"
  for tool in unshare nsenter ip; do
    command -v "$tool" >/dev/null || skip "$tool is missing (scripts/install-deps.sh --test)"
  done
  unshare --net --uts --mount --pid --fork true 2>/dev/null || skip "this kernel or container forbids namespaces"
}

# The process that is number 1 inside the host.
first_process() {
  local name=$1
  [ -r "$state/$name.pid" ] || { echo "hosts.sh: there is no host $name: hosts.sh up N" >&2; return 1; }
  cat "$state/$name.pid"
}

enter() {
  local name=$1 pid
  shift
  case $name in "$net".*) name=h${name##*.} ;; esac
  pid=$(first_process "$name")
  exec nsenter --target "$pid" --net --uts --mount --pid -- "$@"
}

make_host() {
  local i=$1 outer inner=
  setsid unshare --net --uts --mount --pid --fork --mount-proc --propagation private \
    sh -c "hostname h$i && ip link set lo up && exec sleep infinity" </dev/null >/dev/null 2>&1 &
  outer=$!
  for _ in $(seq 100); do
    inner=$(tr -d ' ' <"/proc/$outer/task/$outer/children" 2>/dev/null) || true
    # Ready once it has its name.
    if [ -n "$inner" ] && [ "$(nsenter --target "$inner" --uts hostname 2>/dev/null)" = "h$i" ]; then break; fi
    inner=
    sleep 0.05
  done
  [ -n "$inner" ] || { echo "hosts.sh: host $i did not start" >&2; return 1; }
  echo "$inner" >"$state/h$i.pid"
  ip link add "trih$i" type veth peer name eth0 netns "$inner"
  ip link set "trih$i" master "$bridge" up
  nsenter --target "$inner" --net sh -c \
    "ip addr add $net.$i/24 dev eth0 && ip link set eth0 up && ip route add default via $net.254"
}

up() {
  local n=$1
  check_possible
  case $n in '' | *[!0-9]*) usage ;; esac
  down
  mkdir -p "$state"
  ip link add "$bridge" type bridge || skip "this kernel has no bridges"
  ip addr add "$net.254/24" dev "$bridge"
  ip link set "$bridge" up
  for i in $(seq "$n"); do make_host "$i"; done
  printf '#!/bin/sh\nexec %s agent "$@"\n' "$self" >"$state/agent"
  chmod 755 "$state/agent"
}

down() {
  for file in "$state"/h*.pid; do
    [ -e "$file" ] || continue
    kill -9 "$(cat "$file")" 2>/dev/null || true
    ip link del "tri$(basename "$file" .pid)" 2>/dev/null || true
    rm -f "$file"
  done
  ip link del "$bridge" 2>/dev/null || true
  rm -f "$state/agent"
  rmdir "$state" 2>/dev/null || true
}

# What mpirun calls instead of ssh: [options] HOST COMMAND...
agent() {
  while [[ ${1-} == -* ]]; do shift; done
  local name=$1
  shift
  enter "$name" /bin/sh -c "$*"
}

print_env() {
  local net24=$net.0/24
  cat <<TEXT
export OMPI_MCA_plm_rsh_agent=$state/agent OMPI_MCA_btl_tcp_if_include=$net24 OMPI_MCA_oob_tcp_if_include=$net24
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
TEXT
}

usage() {
  sed -n '2,18p' "$self"
  exit 2
}

case ${1-} in
up) up "${2-}" ;;
down) down ;;
run) shift; [ $# -ge 2 ] || usage; enter "$@" ;;
agent) shift; agent "$@" ;;
env) print_env ;;
*) usage ;;
esac
