# SPDX-License-Identifier: Apache-2.0
# Shared by the end-to-end and fault tests: starting a cluster, waiting for it, and leaving nothing behind. Sourced by bash.
set -u
. "${BASH_SOURCE[0]%/*}/wait.sh"
BIN=${BIN:?the folder of the programs}
SRC=${SRC:?the source tree}
# shellcheck disable=SC2034
DATA=$BIN/../tests/data # with the drawn weights
RUN=$(mktemp -d "${TMPDIR:-/tmp}/trireme-test.XXXXXX")
MOUNTED= # a file system that the test has mounted in there
export TRIREME_ENDPOINT=ipc://$RUN/c.sock XDG_STATE_HOME=$RUN/state
export TRIREME_RECONNECT_TIMEOUT_MS=0 # what clients are told at once; attach.sh has clients that wait
export HOLD_STEPS=$RUN/hold # while it is there steps take long: hold_steps
export OMPI_MCA_mpi_yield_when_idle=1
if [ "$(id -u)" = 0 ]; then export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1; fi
MODEL=$SRC/tests/models/abacus
CLUSTER=
HOLD_STEPS_LIBRARY=

fail() {
  echo "FAILED: $*" >&2
  [ -s "$RUN/log" ] && { echo "--- log:" >&2; tail -n 25 "$RUN/log" >&2; }
  exit 1
}

# Processes of this test's cluster, by the run folder in their environment. Prints "PID NAME".
ours() {
  local p
  grep -lE '^(trireme|mpirun$|orted$|prterun$|prted$)' /proc/[0-9]*/comm 2>/dev/null | while read -r p; do
    p=${p%/comm}
    grep -qzxF "TRIREME_ENDPOINT=$TRIREME_ENDPOINT" "$p/environ" 2>/dev/null && ! grep -q '^State:.Z' "$p/status" && echo "${p#/proc/} $(cat "$p/comm")"
  done
  return 0 # whatever the last one was
}

cleanup() {
  local status=$?
  trap - EXIT
  ours | while read -r pid _; do kill -9 "$pid" 2>/dev/null; done
  [ -z "$MOUNTED" ] || umount -l "$MOUNTED"
  rm -rf "$RUN"
  exit $status
}
trap cleanup EXIT
trap 'exit 130' INT TERM

# start_up ARGS...: `trireme up`; start_mpi TP PP ARGS...: one MPI job, of so many SHARDS. Both return when the cluster serves.
start_up() {
  [ "${GOES_ON-}" ] || rm -rf "$XDG_STATE_HOME/trireme/journal" # with what an earlier cluster of the test was killed under
  holdable "$BIN/trireme" up --model "$MODEL" "$@" >>"$RUN/log" 2>&1 &
  CLUSTER=$!
  wait_ready
}
start_mpi() {
  local tp=$1 pp=$2
  shift 2
  local args=(--launch mpi --model "$MODEL" -tp "$tp" -pp "$pp" "$@")
  holdable mpirun --bind-to none --oversubscribe --timeout 600 -n 1 "$BIN/trireme-coordinator" "${args[@]}" : -n $((tp * pp * ${SHARDS:-1})) "$BIN/trireme-worker" "${args[@]}" >>"$RUN/log" 2>&1 &
  CLUSTER=$!
  wait_ready
}
# hold_steps: until release_steps a step takes a second on every machine (tests/tools/hold_steps.c), so that requests of a hundred
# tokens do not end meanwhile. For clusters that start_up and start_mpi start behind can_hold_steps.
can_hold_steps() { HOLD_STEPS_LIBRARY=$(realpath -e "$BIN/../tests/e2e/libhold_steps.so") || fail "no libhold_steps.so"; }
holdable() { # COMMAND...: in a subshell, which becomes the command
  [ -z "$HOLD_STEPS_LIBRARY" ] || export LD_PRELOAD=$HOLD_STEPS_LIBRARY${LD_PRELOAD:+:$LD_PRELOAD}
  exec "$@"
}
hold_steps() {
  [ -n "$HOLD_STEPS_LIBRARY" ] || fail "no steps are held without can_hold_steps"
  : >"$HOLD_STEPS"
}
release_steps() { rm -f "$HOLD_STEPS"; }
wait_ready() {
  for _ in $(seq $LOOKS); do
    "$BIN/trireme" status --json --connect-timeout-ms 500 2>/dev/null | grep -q '"state": *"serving"' && return 0
    kill -0 "$CLUSTER" 2>/dev/null || fail "the cluster ended before it was ready"
    sleep 0.05
  done
  fail "the cluster was not ready in time"
}
# wait_end: returns the exit code of the cluster, which ends.
wait_end() {
  local since
  since=$(now_ms)
  while kill -0 "$CLUSTER" 2>/dev/null; do
    ! hung "$since" || fail "the cluster does not end"
    sleep 0.02
  done
  wait "$CLUSTER"
}
# stop_cluster SIGNAL: drains and checks the exit status and that nothing stays.
stop_cluster() {
  kill "-$1" "$CLUSTER" || fail "the cluster was gone already"
  wait_end
  local code=$?
  [ $code = 0 ] || fail "the cluster ended with $code after SIG$1"
  nothing_left
}
nothing_left() {
  for _ in $(seq $LOOKS); do
    [ -z "$(ours)" ] && return 0
    sleep 0.05
  done
  fail "still running: $(ours | tr '\n' ';')"
}
# The bundled model with experts instead of MLPs, which answers the same: MODEL from now on.
use_experts() { # EXPERTS [HOT]
  mkdir -p "$RUN/experts"
  cp "$SRC"/tests/models/abacus/{generation_config,tokenizer,tokenizer_config}.json "$SRC/tests/models/abacus/questions.jsonl" "$RUN/experts" || fail "no model"
  sed 's/"model_type": "llama"/"model_type": "mixtral", "num_local_experts": '"$1"', "num_experts_per_tok": 2/; s/LlamaForCausalLM/MixtralForCausalLM/; /attention_bias\|mlp_bias\|pretraining_tp/d' \
    "$SRC/tests/models/abacus/config.json" >"$RUN/experts/config.json"
  "$BIN/make_experts" "$SRC/tests/models/abacus" "$RUN/experts" "$@" || fail "no experts"
  MODEL=$RUN/experts
}
# until_holds WHAT COMMAND...: waits until a command succeeds.
until_holds() {
  local what=$1
  shift
  for _ in $(seq $LOOKS); do
    "$@" && return 0
    sleep 0.05
  done
  fail "$what"
}
# until_reported: every rank has reported since the call, as it does once a second.
until_reported() { until_holds "a rank does not report" reported_since "$(now_ms)"; }
reported_since() { # MS
  local ms=$(($(now_ms) - $1))
  "$BIN/trireme" status --json | grep -o '"seconds_since_report":[0-9.e+-]*' | awk -F: -v ms=$ms '{ n++; late += $2 * 1000 >= ms } END { exit !n || late }'
}
json_field() { sed -n "s/.*\"$1\": *\"\([^\"]*\)\".*/\1/p"; }
