#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154 # what many_kinds.sh sets
# storm.sh MINUTES [SEED [hosts]]: kills at random under many kinds of requests, with a journal, on two groups of two ranks.
# Each round sends all requests under new request_ids. Faults are kill -9 of a worker, a leader, an mpirun, the coordinator or `up`, and a
# worker that stands still for 1 to 8 s. Clients that lose their coordinator ask again under the same request_id at its next start.
# Each request ends as undisturbed, or with the error of three deaths under it, which is counted apart.
# Beside the kills the journal's disk (a small file system of its own, where the test may mount one) is full or slow to sync, and another
# client sends a burst of requests: storm_faults.sh. A client that is refused before it was accepted asks again.
# With `hosts` the groups lie on two emulated hosts, and links between those and the coordinator are cut for 1 to 8 s, too: storm_hosts.sh.
# Groups may be started 1000 times in a row, and no host is in quarantine.
namespaces=(--mount)
[ "${3-}" != hosts ] || namespaces+=(--net)
if [ ! "${OWN_MOUNTS-}" ]; then
  if unshare "${namespaces[@]}" true 2>/dev/null; then OWN_MOUNTS=1 exec unshare "${namespaces[@]}" bash "$0" "$@"; fi
  [ "${3-}" != hosts ] || { echo "skipped: emulated hosts need root and namespaces" && exit 77; }
fi
# shellcheck source=/dev/null
. "$(dirname "$0")/lib.sh"
# shellcheck disable=SC2034
SLOTS=24 # some wait where a group is away
# shellcheck source=/dev/null
. "$(dirname "$0")/many_kinds.sh"
# shellcheck source=/dev/null
. "$(dirname "$0")/storm_faults.sh"
minutes=${1:?how many minutes}
SEED=${2:-$(($(date +%s) % 30000))}
RANDOM=$SEED
ROUND=0
declare -A faults=()
right=0 poisoned=0
layout=(-tp 2 -dp 2) more_kinds=()
[ "${3-}" != hosts ] || . "$(dirname "$0")/storm_hosts.sh"
kept=(--journal "$RUN/disk/journal" --max-restarts 1000 --quarantine-time 0 --max-queue 400)
echo "seed $SEED"

fail() { # the folder is kept
  rm -f "$RUN/disk/fill"
  echo "FAILED: seed $SEED, round $ROUND: $*" >&2
  [ -s "$RUN/log" ] && tail -n 25 "$RUN/log" >&2
  cp -r "$RUN" "${TMPDIR:-/tmp}/storm.$SEED.$$" 2>/dev/null # sockets are not copied
  echo "kept in ${TMPDIR:-/tmp}/storm.$SEED.$$" >&2
  exit 1
}

# ---- requests ----

starts() { cat "$RUN/starts"; }
# ask submits a request, and again where the coordinator was killed meanwhile, until it ends. It leaves one line in I.end. What was accepted
# must still be known then: run anew, it would have the same answer.
ask() { # FOLDER I DELAY PROMPT ARGS...
  local out=$1/$2 id began prompt=$4 since=$SECONDS accepted=
  id=$(printf '%016x%016x' "$ROUND" "$2")
  sleep "$3"
  shift 4
  while [ $((SECONDS - since)) -lt 150 ]; do
    began=$(starts) # in front of the look: what is down next is counted then
    if [ -e "$RUN/down" ]; then sleep 0.1 && continue; fi
    client submit --json "$@" --request-id "$id" --on-disconnect continue "$prompt" >"$out" 2>"$out.err"
    told "$out" >"$out.told"
    if [ "$accepted" ] && grep -q '"event":"accepted".*"existing":false' "$out"; then echo "lost: accepted, and forgotten by the next start" >"$out.end" && return; fi
    if [ "$accepted" ] && grep -q '"existing":true' "$out"; then echo >>"$RUN/known"; fi
    if grep -q '"event":"accepted"' "$out"; then accepted=1; fi
    case $(grep -c '"event":"done"' "$out") in
    0) ;;
    1)
      if cmp -s "$RUN/whole/${out##*/}.told" "$out.told"; then echo right; else echo wrong; fi >"$out.end"
      return
      ;;
    *) echo "wrong: it ended twice" >"$out.end" && return ;;
    esac
    if grep -q '"code":"no_capacity"' "$out"; then
      if [ "$accepted" ]; then echo "lost: refused when it was accepted: $(cat "$out")" >"$out.end" && return; fi
      cat "$out" >>"$RUN/refused"
      sleep 0.3
      continue
    fi
    if grep -q 'three replicas have died' "$out" "$out.err"; then echo poisoned >"$out.end" && return; fi
    sleep 0.5 # the script counts a kill before it does it
    [ "$(starts)" != "$began" ] || break
    cp "$out.err" "$out.$began.err"
  done
  echo "lost: $(tail -c 300 "$out") $(cat "$out.err")" >"$out.end"
}
send() { # FOLDER: some at once, some later
  local i=0 args prompt
  mkdir -p "$1"
  ASKERS=()
  while IFS=$'\t' read -r args prompt; do
    i=$((i + 1))
    eval "args=($args)"
    ask "$1" $i "$((RANDOM % 3)).$((RANDOM % 10))" "$prompt" "${args[@]}" & # drawn here: a subshell has random numbers of its own
    ASKERS+=($!)
  done <"$RUN/requests"
}
judge() { # FOLDER
  local i end
  for i in $(seq "$COUNT"); do
    end=$(cat "$1/$i.end" 2>/dev/null) || end="silent"
    case $end in
    right) right=$((right + 1)) ;;
    poisoned) poisoned=$((poisoned + 1)) ;;
    *) fail "request $i, $(sed -n "${i}p" "$RUN/requests"): $end: $(diff "$RUN/whole/$i.told" "$1/$i.told" | cut -c 1-600)" ;;
    esac
  done
}

# ---- faults ----

mpirun_of() { # GROUP
  ours | while read -r pid name; do
    [ "$name" = mpirun ] && tr '\0' ' ' <"/proc/$pid/cmdline" | grep -q -- "--group $1 " && echo "$pid" && break
  done
}
# watch writes when the loss of an epoch is noticed and when the group is ready again, unless the coordinator is killed meanwhile.
watch() { # GROUP EPOCH
  local since began status noticed=
  since=$(now_ms) began=$(starts)
  while [ "$(starts)" = "$began" ] && [ $(($(now_ms) - since)) -lt 60000 ]; do
    status=$(LIMIT_S=3 client status --json 2>/dev/null)
    if [[ $status == *'"group":'"$1"',"epoch":'* && $status != *'"group":'"$1"',"epoch":'"$2"',"state":"ready"'* ]]; then
      [ "$noticed" ] || { noticed=$(($(now_ms) - since)) && echo "noticed $noticed" >>"$RUN/times"; }
      [[ $status =~ \"group\":$1,\"epoch\":[0-9]*,\"state\":\"ready\" ]] && echo "ready $(($(now_ms) - since))" >>"$RUN/times" && return
    fi
    sleep 0.05
  done
  [ "$(starts)" != "$began" ] || echo "group $1 of epoch $2: noticed after ${noticed:-never}, not ready after 60 s" >>"$RUN/never"
}
start_kept() { LD_PRELOAD=$BAD_DISK_LIBRARY start_up "${common[@]}" "${layout[@]}" "${kept[@]}"; }
# A daemon of Open MPI that has begun while its host was cut off ends by that library's own time limits.
gone_without_up() {
  local since=$SECONDS left
  while left=$(ours) && [ "$left" ]; do
    [ $((SECONDS - since)) -le "$HANG_S" ] || ! grep -qv orted <<<"$left" || fail "still running though up was killed: $left"
    [ $((SECONDS - since)) -le $((2 * HANG_S)) ] || fail "daemons of Open MPI, though up was killed: $left"
    sleep 0.05
  done
}
# A coordinator comes back by itself.
coordinator() { # PID
  local n
  n=$(grep -c 'up: the coordinator listens again' "$RUN/log")
  touch "$RUN/down"
  echo $(($(starts) + 1)) >"$RUN/starts"
  kill -9 "$1" || fail "nothing to kill"
  coordinator_again $((n + 1))
  rm "$RUN/down"
}
restart() { # PID
  touch "$RUN/down"
  echo $(($(starts) + 1)) >"$RUN/starts"
  kill -9 "$1" || fail "nothing to kill"
  while [ -e "$RUN/cut" ]; do sleep 0.1; done # until then nobody can be told on the other side
  wait "$CLUSTER" 2>/dev/null
  gone_without_up
  start_kept
  rm "$RUN/down"
}
declare -F on_host_of >/dev/null || on_host_of() { HOST_COMMAND=(env); } # GROUP RANK; sets what a command is run by beside that rank
hit() { # KIND GROUP; 1 where there is nothing to hit just now
  local pid epoch seconds rank=1
  case $1 in
  coordinator) pid=$(pid_of trireme-coordin) && [ "$pid" ] || return 1 ;;
  up) pid=$CLUSTER ;;
  worker | stop) pid=$(rank_pid "$2" $rank) ;;
  leader) rank=0 && pid=$(rank_pid "$2" $rank) ;;
  mpirun) pid=$(mpirun_of "$2") ;;
  *) pid=none ;;
  esac
  [ "$pid" ] || return 1
  case $1 in
  coordinator) coordinator "$pid" ;;
  up) restart "$pid" ;;
  full | slow | burst)
    "can_$1" || return 1
    seconds=$((1 + RANDOM % 4))
    [ "$1" != full ] || fill
    "$1" $seconds &
    ;;
  stop)
    seconds=$((1 + RANDOM % 8)) # in front of the subshell, which has random numbers of its own
    on_host_of "$2" $rank
    ("${HOST_COMMAND[@]}" kill -STOP "$pid" && sleep $seconds && "${HOST_COMMAND[@]}" kill -CONT "$pid") 2>/dev/null &
    ;;
  cut)
    can_cut || return 1
    seconds=$((1 + RANDOM % 8))
    cut_link $((1 + $2)) $seconds &
    ;;
  *)
    epoch=$(field "\"group\":$2,\"epoch\":[0-9]*,\"state\":\"ready\"" | sed 's/.*epoch":\([0-9]*\).*/\1/')
    HOST_COMMAND=(env)
    [ "$1" = mpirun ] || on_host_of "$2" $rank
    [ "$epoch" ] && "${HOST_COMMAND[@]}" kill -9 "$pid" 2>/dev/null || return 1
    watch "$2" "$epoch" &
    ;;
  esac
  faults[$1]=$((${faults[$1]:-0} + 1))
}
round() {
  local folder=$RUN/round$ROUND kinds=(worker leader mpirun worker leader mpirun stop coordinator up full slow burst "${more_kinds[@]}") n began=$SECONDS kind did=
  send "$folder"
  n=$((3 + RANDOM % 5))
  while [ $n -gt 0 ]; do
    n=$((n - 1))
    sleep "0.$((RANDOM % 9 + 1))"
    [ "$(find "$folder" -name '*.end' | wc -l)" -lt "$COUNT" ] || break # a fault under no request shows nothing
    kind=${kinds[RANDOM % ${#kinds[@]}]}
    hit "$kind" $((RANDOM % 2)) && did+=" $kind"
  done
  wait "${ASKERS[@]}"
  judge "$folder"
  [ ! -s "$RUN/never" ] || fail "$(cat "$RUN/never")"
  echo "round $ROUND: $((SECONDS - began)) s, right $right, poisoned $poisoned;$did"
}

# ---- all of it ----

own_disk
start_up "${common[@]}" "${layout[@]}"
requests_start whole
requests_end whole
stop_cluster TERM
echo 1 >"$RUN/starts"
: >"$RUN/times"
: >"$RUN/known"
: >"$RUN/refused"
start_kept
end=$(awk -v now=$SECONDS -v m="$minutes" 'BEGIN { printf "%d", now + m * 60 }')
while [ $SECONDS -lt "$end" ]; do
  ROUND=$((ROUND + 1))
  round
done
for pid in $(jobs -p); do
  [ "$pid" = "$CLUSTER" ] || wait "$pid" # what watches a group, and what lets a worker go on
done
[ ! -s "$RUN/never" ] || fail "$(cat "$RUN/never")"
groups_ready 2
stop_cluster TERM
for what in noticed ready quick slow; do
  awk -v what=$what '$1 == what { print $2 }' "$RUN/times" | sort -n |
    awk -v what=$what '{ a[NR] = $1 } END { if (NR) printf "%s after p50 %d, p99 %d, at most %d ms, of %d\n", what, a[int((NR + 1) / 2)], a[int(NR * 0.99 + 0.99)], a[NR], NR }'
done
echo "seed $SEED: $ROUND rounds, $((ROUND * COUNT)) requests: $right right, $poisoned poisoned, 0 wrong, 0 lost; $(wc -l <"$RUN/known") known to the next start; refused first: $(refusals); faults: $(for k in "${!faults[@]}"; do echo -n "$k ${faults[$k]} "; done)$LEFT_OUT"
