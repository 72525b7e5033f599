#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Ports of a group on one host: its ranks have none that the network reaches, however it was launched. mpirun has two (Open MPI 4); a byte that is
# held there keeps it from seeing its ranks end, and neither answers nor the end of the cluster may wait for it.
here=$(dirname "$0")
. "$here/lib.sh"

# ports NAME: where processes of this name listen beyond this host, as port numbers.
ports() {
  local pid inodes
  ours | awk -v name="$1" '$2 == name { print $1 }' | while read -r pid; do
    inodes=$(find "/proc/$pid/fd" -type l -lname 'socket:*' -printf '%l\n' 2>/dev/null | tr -dc '0-9\n')
    awk -v inodes="$inodes" 'BEGIN { n = split(inodes, i, "\n"); while (n) mine[i[n--]] } $4 == "0A" && $10 in mine { split($2, at, ":"); if (at[1] !~ /0100007F$/) print at[2] }' \
      "/proc/$pid/net/tcp" "/proc/$pid/net/tcp6" | while read -r hex; do echo $((16#$hex)); done
  done
}

start_up -tp 2
[ "$("$BIN/trireme" submit --temperature 0 "37+48=")" = 85 ] || fail "37+48"
[ -z "$(ports trireme-worker)" ] || fail "ranks of one host listen on ports $(ports trireme-worker | tr '\n' ' ')"
held=0
for port in $(ports mpirun); do
  { exec {fd}<>"/dev/tcp/127.0.0.1/$port"; } 2>/dev/null && printf O >&"$fd" && held=$((held + 1))
done
sleep 0.3
since=$(date +%s%3N)
[ "$(timeout $HANG_S "$BIN/trireme" submit --temperature 0 "37+48=")" = 85 ] || fail "no answer while a byte is held at mpirun's ports"
answered=$(($(date +%s%3N) - since))
since=$(date +%s%3N)
stop_cluster TERM
took=$(($(date +%s%3N) - since))
grep "took too long" "$RUN/log" && fail "the end has waited for a byte that is held at mpirun's ports"
echo "up: no ports of ranks; a byte held at $held of mpirun's: an answer in $answered ms, the end in $took ms"

start_mpi 2 1
[ -z "$(ports trireme-worker; ports trireme-coordin)" ] || fail "one MPI job on one host listens on ports $(ports trireme-worker | tr '\n' ' ')"
stop_cluster USR1
