#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2034 # CLUSTER is of lib.sh
# Each rank has a key of its own: whoever has another one can neither come as the rank nor speak for it, and no process of a rank has two.
. "$(dirname "$0")/lib.sh"
HOSTILE_RANK=${HOSTILE_RANK:?the program that has one key}

ranks() { for g in 0 1; do echo "$(epoch_of $g) $(rank_pid $g 0) $(rank_pid $g 1);"; done; }
# told KEY AS EPOCH WANT: whoever has that key and says to be that rank of that epoch hears this.
told() {
  local said
  said=$("$HOSTILE_RANK" "$BOOT" as "$1" "$2" "$3" 2) || fail "the hostile rank: $said"
  [[ $said == "$4"* ]] || fail "the key of $1, as rank $2 of epoch $3: '$said' instead of '$4'"
}
# own_key_alone: of the ranks' processes, each has its own secret key in its memory and no other; the coordinator has none.
own_key_alone() {
  local g r pid found code
  for g in 0 1; do
    for r in 0 1; do
      pid=$(rank_pid $g $r)
      found=$("$HOSTILE_RANK" "$BOOT" keys "$pid")
      code=$?
      [ $code = 77 ] && echo "not looked into the memory of ranks: the system forbids it" && return
      [ "$code $found" = "0 $g.$r" ] || fail "the process of rank $g.$r has the keys of: $found (code $code)"
      grep -aq trireme-boot "/proc/$pid/environ" && fail "the environment of rank $g.$r has keys"
    done
  done
  found=$("$HOSTILE_RANK" "$BOOT" keys "$(pid_of trireme-coordin)") || fail "cannot look into the coordinator"
  [ -z "$found" ] || fail "the coordinator has the secret keys of: $found"
  echo "each process of a rank has its own key alone, and the coordinator none"
}

start_up -tp 2 --replicas 2
groups_ready 2
learn_answer
BOOT=$(echo "$RUN"/trireme-up-*/boot)
[ "$(stat -c %a "$BOOT")" = 600 ] || fail "the mode of the boot file is $(stat -c %a "$BOOT")"
before=$(ranks)
own_key_alone

clients_start 4 $TOKENS
SINCE=$(now_ms)
key="refused: the key of this connection is not that of the rank"
told none 0.1 1 "no connection"
told 0.1 0.0 1 "$key"          # its leader
told 0.0 0.1 1 "$key"          # a leader's key is none of its ranks
told 0.1 1.1 1 "$key"          # another group
told 0.1 0.0 2 "$key"          # before the next start of the group
told 1.0 0.0 99 "$key"
told 0.1 0.1 2 "refused: the replica was not started with this epoch"
told 0.1 0.1 18446744073709551615 "refused: the replica was not started with this epoch"
told 0.1 0.1 1 "refused: this rank of the replica has registered over another connection"
release_steps
clients_end "$SINCE"
[ "$WRONG" = 0 ] || fail "$WRONG clients had an error: $WORDS"
[ "$(ranks)" = "$before" ] || fail "groups were lost: $before, now $(ranks)"
grep -q "so a stranger says\|is lost" "$RUN/log" && fail "the stranger was believed"
echo "strangers with one key: refused in every part that they played, and all clients had their answers"

# The place of a rank that has died is not free for others.
kill -9 "$(rank_pid 0 1)"
SINCE=$(now_ms)
for _ in 1 2 3 4 5; do
  said=$("$HOSTILE_RANK" "$BOOT" as 1.1 0.1 2 2)
  [ "$said" = "$key" ] || fail "in the place of a rank that has died: $said"
done
until_lost "$SINCE" 1
groups_ready 2
[ "$(epoch_of 0)" = 2 ] || fail "group 0 has epoch $(epoch_of 0)"
told 0.1 0.1 1 "refused: this start of the replica is over"
told 0.1 0.1 3 "refused: the replica was not started with this epoch"

# Nor do others have it under the next coordinator, which knows the same keys.
before=$(ranks)
coordinator_killed
groups_ready 2
told 0.1 0.0 2 "$key"
told 0.1 1.0 1 "$key"
told none 0.1 2 "no connection"
told 0.1 0.1 3 "refused: the replica was not started with this epoch"
[ "$(ranks)" = "$before" ] || fail "groups were lost: $before, now $(ranks)"
own_key_alone
[ "$(client submit --temperature 0 "37+48=")" = 85 ] || fail "no right answer at the end"
stop_cluster TERM

echo "rank keys: all as expected"

# ---- connections without any key, more than there are files ----

port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
(ulimit -n 256 && exec "$BIN/trireme" up --model "$MODEL" --backend cpu --threads 1 --worker-endpoint "tcp://127.0.0.1:$port" >>"$RUN/log" 2>&1) &
CLUSTER=$!
wait_ready
python3 - "$port" <<'EOF' &
import socket, sys, time
held = []
end = time.monotonic() + 6
while time.monotonic() < end:
    try:
        held.append(socket.create_connection(("127.0.0.1", int(sys.argv[1])), 0.2))
    except OSError:
        time.sleep(0.01)
    if len(held) > 500:
        held.pop(0).close()
EOF
FLOOD=$!
while kill -0 $FLOOD 2>/dev/null; do LIMIT_S=2 client submit --temperature 0 --max-tokens 4 "37+48=" >/dev/null 2>&1; done
wait $FLOOD || fail "the flood of connections"
[ "$(client submit --temperature 0 "37+48=")" = 85 ] || fail "no answer behind a flood of connections: $(tail -5 "$RUN/log")"
stop_cluster TERM
echo "a flood of connections to the workers' port: the cluster serves on"
