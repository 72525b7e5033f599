# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034
# Shared by the fault tests: clients that stream in the background, and when things end. Sourced by bash.
. "$(dirname "$0")/../e2e/lib.sh"
can_hold_steps
export XDG_STATE_HOME=$RUN/state
export XDG_RUNTIME_DIR=$RUN # where `trireme up` keeps its folder: kill -9 leaves that behind
NUMBER=0

WHOLE_S=400 # for whole answers, where a busy machine takes seconds for a token
client() { timeout -k 1 "${LIMIT_S:-100}" "$BIN/trireme" "$@"; }

# clients_start N TOKENS [ARGS...]: N streams, and returns when each has received something. Steps are held from now on, so that none
# ends before release_steps. Each leaves its answer, its words on stderr, its exit code and the time of its end.
clients_start() {
  local i tokens=$2
  NUMBER=$1
  shift 2
  hold_steps
  rm -f "$RUN"/job.*
  for i in $(seq "$NUMBER"); do
    {
      LIMIT_S=$WHOLE_S client submit --ignore-eos --max-tokens "$tokens" --temperature 0 "$@" "count 1 to 40=" >"$RUN/job.$i.out" 2>"$RUN/job.$i.err"
      echo "$? $(now_ms)" >"$RUN/job.$i.end.new"
      mv "$RUN/job.$i.end.new" "$RUN/job.$i.end"
    } &
  done
  for _ in $(seq $LOOKS); do
    [ "$(find "$RUN" -name 'job.*.out' -size +0c | wc -l)" = "$NUMBER" ] && return
    sleep 0.05
  done
  fail "the $NUMBER clients did not all begin to receive: $(cat "$RUN"/job.*.err)"
}

# learn_answer: the whole answer to such a request, once from an undisturbed cluster. Its TOKENS take longer than any wait where steps are
# held, and not long otherwise, even where the machine is busy and ranks that wait for each other are slow.
TOKENS=100
learn_answer() {
  release_steps
  LIMIT_S=$WHOLE_S client submit --ignore-eos --max-tokens $TOKENS --temperature 0 "count 1 to 40=" >"$RUN/whole" || fail "no answer from an undisturbed cluster"
}

# clients_end SINCE: every client ends, with the whole answer or with words about what is wrong; they hang when for long none has received
# anything. Sets RIGHT, WRONG (how many ended so) and LAST (ms from SINCE to the last end; of those with an error, LAST_ERROR).
clients_end() {
  local i code end bytes=0 received since=$1 last=$1
  RIGHT=0 WRONG=0 LAST=0 LAST_ERROR=0 WORDS=
  for i in $(seq "$NUMBER"); do
    while [ ! -e "$RUN/job.$i.end" ]; do
      received=$(cat "$RUN"/job.*.out | wc -c)
      [ "$received" = "$bytes" ] || last=$(now_ms)
      bytes=$received
      ! hung "$last" || fail "client $i hangs"
      sleep 0.05
    done
    read -r code end <"$RUN/job.$i.end"
    [ $((end - since)) -le "$LAST" ] || LAST=$((end - since))
    if [ "$code" = 0 ]; then
      cmp -s "$RUN/whole" "$RUN/job.$i.out" || fail "client $i ended well with an answer that is not whole: $(tail -c 80 "$RUN/job.$i.out")"
      RIGHT=$((RIGHT + 1))
    else
      [ "$code" -lt 100 ] || fail "client $i ended with code $code"
      [ -s "$RUN/job.$i.err" ] || fail "client $i failed without a word"
      WORDS=$(head -1 "$RUN/job.$i.err")
      WRONG=$((WRONG + 1))
      [ $((end - since)) -le $LAST_ERROR ] || LAST_ERROR=$((end - since))
    fi
  done
}

# until_lost SINCE EPOCH [GROUP]: the group of that epoch is not ready any more, or there is a newer one. Sets LOST (ms).
until_lost() {
  local status
  while
    status=$(client status --json) # empty where there is no answer
    [[ $status != *'"state":'* || $status == *"\"group\":${3:-0},\"epoch\":$2,\"state\":\"ready\""* ]]
  do
    ! hung "$1" || fail "the fault is not noticed"
    sleep 0.02
  done
  LOST=$(($(now_ms) - $1))
}

# clients_go_on SINCE BEFORE: steps are held no longer, and every client gets the whole answer, though the group that ran its job was lost; BEFORE is what `replayed` said
# in front of the fault. Sets REPLAYED (jobs that were given to a group again since).
clients_go_on() {
  release_steps
  clients_end "$1"
  [ "$WRONG" = 0 ] || fail "$WRONG of $NUMBER clients had an error: $WORDS"
  REPLAYED=$(($(replayed) - $2))
  [ "$REPLAYED" -gt 0 ] || fail "no job was run again: the fault came too late"
}

field() { client status --json | grep -o "$1" | head -1; }
rank_pid() { field "\"group\":$1,\"rank\":$2,\"host\":\"[^\"]*\",\"pid\":[0-9]*" | grep -o '[0-9]*$'; } # GROUP RANK
epoch_of() { field "\"group\":$1,\"epoch\":[0-9]*" | grep -o '[0-9]*$'; }                             # GROUP
replayed() { field '"requests_replayed":[0-9]*' | grep -o '[0-9]*$'; }
pid_of() { ours | awk -v name="$1" '$2 == name { print $1; exit }'; }

groups_ready() { # N
  for _ in $(seq $LOOKS); do
    [ "$(client status --json | grep -o '"state":"ready"' | wc -l)" = "$1" ] && return
    sleep 0.05
  done
  fail "$1 groups are not ready: $(client status --json)"
}

# Is the process gone, or only waiting to be reaped?
gone() {
  case $(awk '{ print $3 }' "/proc/$1/stat" 2>/dev/null) in '' | Z | X) return 0 ;; esac
  return 1
}

# coordinator_killed: kill -9, and returns when the next one listens. coordinator_again N: it does so for the Nth time in this log.
coordinator_killed() {
  local n
  n=$(grep -c 'up: the coordinator listens again' "$RUN/log")
  kill -9 "$(pid_of trireme-coordin)" || fail "there is no coordinator to be killed"
  coordinator_again $((n + 1))
}
coordinator_again() {
  for _ in $(seq $LOOKS); do
    [ "$(grep -c 'up: the coordinator listens again' "$RUN/log")" -ge "$1" ] && return
    sleep 0.05
  done
  fail "no coordinator comes back"
}

# serves_again SINCE: steps are held no longer, and the cluster gives the right answer after the fault. Sets SERVED (ms).
serves_again() {
  release_steps
  while [ "$(LIMIT_S=20 client submit --temperature 0 "37+48=" 2>/dev/null)" != 85 ]; do
    ! hung "$1" || fail "no right answer after the fault"
    sleep 0.05
  done
  SERVED=$(($(now_ms) - $1))
}

# all_gone SINCE: nothing of ours runs any more. Sets GONE (ms).
all_gone() {
  while [ -n "$(ours)" ]; do
    ! hung "$1" || fail "still running: $(ours | tr '\n' ';')"
    sleep 0.02
  done
  GONE=$(($(now_ms) - $1))
}
