# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034,SC2154
# Of `storm.sh MINUTES SEED hosts`: two emulated hosts, and links that are cut. Sourced behind lib.sh, in a network and a mount namespace.
# The first host has room for three ranks, the second for one: a group lies on the first host, the other group on both, so that a cut of
# the first host's link takes the coordinator from both groups and splits one of them; a cut of the second one's splits that group alone.
ip link set lo up
export TRIREME_HOSTS_DIR=$RUN/hosts TRIREME_HOSTS_NET=10.213.9
hosts_tool=$SRC/tests/tools/hosts.sh

hosts_end() {
  local status=$?
  "$hosts_tool" down
  (exit $status)
  cleanup
}
trap hosts_end EXIT
"$hosts_tool" up 2 || exit $?
eval "$("$hosts_tool" env)"
unset OMPI_MCA_btl_tcp_if_include # the product finds the network by itself
layout=(-pp 2 -dp 2 --hosts "h1:3,h2:1")
more_kinds=(cut cut)

# The processes of a host have numbers of their own.
on_host_of() { # GROUP RANK; sets HOST_COMMAND
  HOST_COMMAND=("$hosts_tool" run "$(field "\"group\":$1,\"rank\":$2,\"host\":\"h[12]\"" | grep -o 'h[12]')")
}

can_cut() { [ ! -e "$RUN/cut" ]; }
cut_link() { # HOST SECONDS; in the background
  touch "$RUN/cut"
  ip link set "trih$1" down
  sleep "$2"
  ip link set "trih$1" up
  rm -f "$RUN/cut"
}
