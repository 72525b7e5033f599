#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Several hosts, emulated with namespaces: one MPI job and `trireme up` across them, clients on TCP with keys, a lost host, a cut link.
# Usage: hosts.sh [mpi|uneven|groups|shards|up|keys|doctor]...   (all)
set -u
if [ -z "${TRIREME_OWN_NET:-}" ]; then
  [ "$(id -u)" = 0 ] || { echo "skipped: emulated hosts need root" && exit 77; }
  for tool in unshare nsenter ip; do command -v $tool >/dev/null || { echo "skipped: $tool is missing" && exit 77; }; done
  unshare --net --mount true 2>/dev/null || { echo "skipped: namespaces are forbidden here" && exit 77; }
  # In a network of its own: the bridge of the hosts is then the only address besides loopback, and nothing gets out.
  TRIREME_OWN_NET=1 exec unshare --net --mount bash "$0" "$@"
fi
ip link set lo up
# fault/lib.sh looks for its neighbour by $0.
here=$(dirname "$0")
. "$here/../fault/lib.sh"
export TRIREME_HOSTS_DIR=$RUN/hosts TRIREME_HOSTS_NET=10.213.9
tool=$SRC/tests/tools/hosts.sh net=$TRIREME_HOSTS_NET
unset TRIREME_KEY_FILE TRIREME_SERVER_KEY
end() {
  local status=$?
  "$tool" down
  (exit $status)
  cleanup
}
trap end EXIT
"$tool" up 2 || exit $?
eval "$("$tool" env)"
on() { "$tool" run "$@"; }
keepalive=(--mca oob_tcp_keepalive_time 2 --mca oob_tcp_keepalive_intvl 1 --mca oob_tcp_keepalive_probes 3)

# Coordinator and two workers on h1, two workers on h2; stages of two.
start_mpi_hosts() {
  local args=(--launch mpi --model "$MODEL" -tp 2 -pp 2)
  holdable mpirun --bind-to none --timeout 600 "${keepalive[@]}" --host h1:3,h2:2 -n 1 "$BIN/trireme-coordinator" "${args[@]}" : --host h1:3,h2:2 -n 4 "$BIN/trireme-worker" "${args[@]}" >>"$RUN/log" 2>&1 &
  CLUSTER=$!
  wait_ready
  [ "$(client status --json | grep -o '"host":"h[12]"' | sort | uniq -c | tr -d ' \n')" = '2"host":"h1"2"host":"h2"' ] || fail "not two ranks on each host: $(client status --json)"
}

mpi() {
  local since
  start_mpi_hosts
  [ "$(client submit --temperature 0 "37+48=")" = 85 ] || fail "wrong answer across hosts"
  learn_answer
  stop_cluster USR1
  echo "mpirun over two hosts, tp 2 pp 2: answers and drains"

  start_mpi_hosts
  clients_start 12 $TOKENS # so many that they outlast a slow machine
  since=$(now_ms)
  kill -9 "$(cat "$TRIREME_HOSTS_DIR/h2.pid")"
  clients_end "$since"
  all_gone "$since"
  wait $CLUSTER && fail "a lost host: exit code 0"
  echo "mpirun, a host lost: last client ended after $LAST ms ($WRONG with an error: $WORDS), everything gone after $GONE ms"
  "$tool" up 2 || fail "the hosts do not come back"
}

# One host has more threads than cores, the other has not: all must come to the same decisions all the same.
uneven() {
  local threads=$(($(nproc) / 3 + 1))
  start_up -tp 2 -pp 2 --hosts h1:3,h2:1 --threads $threads
  [ "$(client submit --temperature 0 "37+48=")" = 85 ] || fail "wrong answer with more threads than cores on one host"
  stop_cluster TERM
  grep -q "ranks 2 to 3, a tensor-parallel group, are on several hosts" "$RUN/log" || fail "nobody warns of a tensor group on two hosts"
  grep -q "worker: 4 ranks, 3 on this host .*oversubscribed" "$RUN/log" || fail "h1 was to have more threads than cores: $(grep ranks, "$RUN/log")"
  echo "up, 3 ranks of $threads threads on $(nproc) cores of one host, 1 rank on the other: answers and drains"
}

# Ranks answer to the hosts of their group alone: this one, where their launcher runs, has none of them.
closed_to_strangers() {
  local host port ports=0
  for host in 1 2; do
    for port in $(on h$host ss -Hltnp | sed -n 's/.*0\.0\.0\.0:\([0-9]*\) .*trireme-worker.*/\1/p'); do
      ports=$((ports + 1))
      timeout 1 bash -c "exec 3<>/dev/tcp/$net.$host/$port" 2>/dev/null && fail "port $port of a rank on h$host is open to another host"
      on h$((3 - host)) timeout $HANG_S bash -c "exec 3<>/dev/tcp/$net.$host/$port" 2>/dev/null || fail "port $port of a rank on h$host is closed to the group's other host"
    done
  done
  echo "up over two hosts: $ports ports of ranks, closed to a third host and open to the group's"
}

# Groups that fit go to a host of their own.
groups() {
  local where
  start_up -dp 2 --hosts h1:1,h2:1
  for _ in $(seq $LOOKS); do
    where=$(client status --json | grep -o '"group":[01],"rank":0,"host":"h[12]"' | tr -d '\n')
    [ "$where" = '"group":0,"rank":0,"host":"h1""group":1,"rank":0,"host":"h2"' ] && break
    sleep 0.05
  done
  [ "$where" = '"group":0,"rank":0,"host":"h1""group":1,"rank":0,"host":"h2"' ] || fail "not a group on each host: $where"
  stop_cluster TERM
  start_up -tp 2 -dp 2 --hosts h1:4,h2:4
  grep -q "INFO 1:0 worker: 2 ranks, 2 on this host" "$RUN/log" || groups_ready 2
  [ "$(client status --json | grep -o '"rank":[01],"host":"h1"' | wc -l)" = 4 ] || fail "four ranks fit on the first host: $(client status --json)"
  stop_cluster TERM
  echo "up, two groups over two hosts: a host each, or both on the one where they fit"
}

# A shard on each host, which share the experts: the models' answers in the form that is made for hosts, a cluster's, and a rank of the
# other host that dies in the exchange.
shards() {
  local models=() out since epoch model=$MODEL
  for out in mixtral_odd olmoe_odd qwen2_moe_odd qwen3_moe_odd gpt_oss_odd deepseek_v3 deepseek_v3_odd deepseek_v3_direct; do models+=("$DATA/checkpoints/$out"); done
  out=$(mpirun --bind-to none --timeout 600 "${keepalive[@]}" --host h1:2,h2:2 -n 4 "$BIN/modelcheck" -tp 2 -dp 2 -ep 2 --all2all-backend coordinated --chunk 9 "${models[@]}" 2>&1)
  [ "$(grep -c '^RIGHT .* tp 2 pp 1 dp 2 ep 2 ' <<<"$out")" = 8 ] || fail "modelcheck over two hosts: $(grep -E 'WRONG|wrong|ERROR' <<<"$out" | head -5)"
  use_experts 6
  start_up -tp 2 -dp 2 -ep 2 --hosts h1:2,h2:2
  [ "$(client submit --temperature 0 "37+48=")" = 85 ] || fail "wrong answer of shards on two hosts"
  learn_answer
  clients_start 8 $TOKENS
  epoch=$(epoch_of 0)
  since=$(now_ms)
  on h2 kill -9 "$(rank_pid 0 3)" # its number there
  until_lost "$since" "$epoch"
  serves_again "$since"
  clients_go_on "$since" 0
  stop_cluster TERM
  echo "up, a shard on each of two hosts: modelcheck is right, a rank killed: noticed after $LOST ms, served again after $SERVED ms, $REPLAYED jobs were run again; $(grep -o 'all-to-all.*' "$RUN/log" | head -1)"
  MODEL=$model
}

up() {
  local since epoch refused
  refused=$("$BIN/trireme" up --model "$MODEL" -tp 2 -pp 2 --hosts h1:2,h2:2 --interface nosuch0 2>&1) && fail "an interface that is not there is accepted"
  grep -q 'interface "nosuch0" names no network' <<<"$refused" || fail "an interface that is not there: $refused"
  # The networks that tests/tools/hosts.sh names for Open MPI are left out: the product finds its own.
  unset OMPI_MCA_btl_tcp_if_include
  start_up -tp 2 -pp 2 --hosts h1:2,h2:2
  ss -Hltn 2>/dev/null | grep -q "$net.254\]*:" || fail "the coordinator does not listen on the bridge's address: $(ss -Hltn)"
  [ "$(client submit --temperature 0 "37+48=")" = 85 ] || fail "wrong answer across hosts"
  closed_to_strangers
  learn_answer

  # A cut link: the group is given up. It comes back when the link does.
  clients_start 12 $TOKENS # so many that they outlast a slow machine
  epoch=$(epoch_of 0)
  since=$(now_ms)
  ip link set trih2 down
  until_lost "$since" "$epoch"
  echo "up, a link cut: noticed after $LOST ms"
  ip link set trih2 up
  since=$(now_ms)
  while [ "$(LIMIT_S=20 client submit --temperature 0 "37+48=" 2>/dev/null)" != 85 ]; do
    ! hung "$since" || fail "no answer after the link is back"
    sleep 0.1
  done
  [ "$(epoch_of 0)" -gt "$epoch" ] || fail "the same epoch after a cut link"
  clients_go_on "$since" 0
  echo "up, the link is back: all clients answered after $LAST ms ($REPLAYED jobs were run again), epoch $(epoch_of 0)"

  # A lost host: noticed, and the end when it stays away.
  clients_start 12 $TOKENS # so many that they outlast a slow machine
  epoch=$(epoch_of 0)
  since=$(now_ms)
  kill -9 "$(cat "$TRIREME_HOSTS_DIR/h2.pid")"
  until_lost "$since" "$epoch"
  echo "up, a host lost: noticed after $LOST ms"
  kill -TERM "$CLUSTER" # twice: at once, as what waits for a group would be waited for
  sleep 1.2
  kill -TERM "$CLUSTER"
  clients_end "$since"
  [ "$WRONG" -gt 0 ] || fail "all clients were answered: the host was lost too late"
  echo "up, and told to end: last client ended after $LAST ms ($WRONG with an error: $WORDS)"
  # An mpirun that dies while it waits for the lost host's daemon leaves the other host's daemon to Open MPI's own time limits.
  since=$(now_ms)
  while ours | grep -qv orted; do
    ! hung "$since" || fail "still running after SIGTERM: $(ours | tr '\n' ';')"
    sleep 0.05
  done
  wait "$CLUSTER"
  echo "up, SIGTERM while the host is away: code $?, gone after $(($(now_ms) - since)) ms; daemons of Open MPI left: $(ours | grep -c orted)"
  ours | while read -r pid _; do kill -9 "$pid"; done
  "$tool" up 2 || fail "the hosts do not come back"
}

# Clients on another host, with keys.
keys() {
  local server refused
  for k in server other; do "$BIN/trireme" keygen "$RUN/$k.key" >"$RUN/$k.pub" || fail keygen; done
  # A key with a character that begins a comment elsewhere.
  for _ in $(seq 100); do
    rm -f "$RUN/me.key"
    "$BIN/trireme" keygen "$RUN/me.key" >"$RUN/me.pub" || fail keygen
    grep -q "#" "$RUN/me.pub" && break
  done
  { echo "# who may connect" && echo && sed 's/$/ me/' "$RUN/me.pub"; } >"$RUN/allowed"
  server=$(cat "$RUN/server.pub")
  TRIREME_ENDPOINT=tcp://$net.254:5555
  export TRIREME_ENDPOINT
  "$BIN/trireme" up --model "$MODEL" --key-file "$RUN/server.key" --allowed-keys "$RUN/allowed" >>"$RUN/log" 2>&1 &
  CLUSTER=$!
  TRIREME_KEY_FILE=$RUN/me.key TRIREME_SERVER_KEY=$server wait_ready
  from_h2() { on h2 timeout $HANG_S "$BIN/trireme" submit --temperature 0 --connect-timeout-ms "${PATIENCE_MS:-1500}" "$@" "37+48=" 2>&1; }
  allowed() { PATIENCE_MS=$HANG_MS from_h2 --key-file "$RUN/me.key" --server-key "$server"; }
  [ "$(allowed)" = 85 ] || fail "an allowed key is not served: $(allowed)"
  refused=$(from_h2 --key-file "$RUN/other.key" --server-key "$server") && fail "a key that is not on the list is served: $refused"
  echo "another key: $refused"
  refused=$(from_h2) && fail "a client without keys is served: $refused"
  echo "no key: $refused"
  refused=$(from_h2 --key-file "$RUN/me.key" --server-key "$(cat "$RUN/other.pub")") && fail "a wrong server key is accepted: $refused"
  echo "another server's key: $refused"
  [ "$(allowed)" = 85 ] || fail "after the refusals an allowed key is not served"
  stop_cluster TERM
  refused=$("$BIN/trireme" up --model "$MODEL" 2>&1) && fail "tcp:// without keys is served"
  grep -qi "curve\|key" <<<"$refused" || fail "tcp:// without keys: $refused"
  echo "tcp:// without keys: $(head -1 <<<"$refused")"
}

# Every host is looked at, and two ranks meet across them; one that is gone is named, and the other one's findings stay.
doctor() {
  local out
  out=$(client doctor --hosts h1:2,h2:2 --json --model "$MODEL" --timeout $HANG_S) || fail "doctor: $out"
  [ "$(grep -o '"check":"disk","level":"ok"' <<<"$out" | wc -l)" = 2 ] && grep -q '"host":"h2"' <<<"$out" || fail "not two hosts: $out"
  grep -q '"check":"mpi-start","level":"ok","value":"two ranks have met on h1,h2"' <<<"$out" || fail "no start over both: $out"
  echo "doctor: both hosts were looked at, and two ranks met across them"
}

for part in "${@:-mpi}"; do "$part"; done
[ $# -gt 0 ] || { uneven && groups && shards && up && keys && doctor; }
