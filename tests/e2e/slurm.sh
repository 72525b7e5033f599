#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# cluster-configs/trireme.sbatch under a real Slurm on this machine: a file of prompts through mpirun and through srun, serving and draining by
# scancel, and cancelling.
here=$(dirname "$0")
for tool in slurmctld slurmd munged sbatch srun scancel; do command -v $tool >/dev/null || { echo "skipped: $tool is missing" && exit 77; }; done
[ "$(id -u)" = 0 ] || { echo "skipped: a Slurm of one's own needs root" && exit 77; }
. "$here/lib.sh"
export TRIREME_SLURM_DIR=$RUN/slurm TRIREME_SLURM_PORT=$((17100 + $$ % 200 * 10))
tool=$SRC/tests/tools/slurm.sh script=$SRC/cluster-configs/trireme.sbatch
end() {
  local status=$?
  "$tool" down
  (exit $status)
  cleanup
}
trap end EXIT
"$tool" up 2 || exit $?
eval "$("$tool" env)"
unset OMPI_MCA_mpi_yield_when_idle
sed 's/^{"prompt": *\("[^"]*"\).*/{"prompt": \1, "temperature": 0, "max_tokens": 200}/; 60q' "$MODEL/questions.jsonl" >"$RUN/prompts.jsonl"
sed 's/.*"reference": *"\([^"]*\)".*/\1/; 60q' "$MODEL/questions.jsonl" >"$RUN/reference"

state() { squeue --noheader --states=all --job "$1" --format=%T 2>/dev/null; }
# submit NAME=VALUE...: prints the job's number. --export of names whose values may hold commas: through the environment.
submit() { env BIN="$BIN" MODEL="$MODEL" ENDPOINT="$TRIREME_ENDPOINT" "$@" sbatch --parsable --export=ALL --ntasks=3 --output="$RUN/log" "$script"; }
# ends JOB STATES
ends() {
  for _ in $(seq $LOOKS); do
    case $(state "$1") in
    PENDING | RUNNING | COMPLETING | CONFIGURING) ;;
    *) break ;;
    esac
    sleep 0.05
  done
  grep -qx "$2" <<<"$(state "$1")" || fail "job $1 is $(state "$1"), expected $2"
}
wait_serving() {
  for _ in $(seq $LOOKS); do
    "$BIN/trireme" status --json --connect-timeout-ms 300 2>/dev/null | grep -q '"state":"serving"' && return
    sleep 0.05
  done
  fail "job $1 does not serve: $(state "$1")"
}

for launcher in mpirun srun; do
  start=$(date +%s%3N)
  job=$(submit TP=2 PP=1 LAUNCHER=$launcher PROMPTS="$RUN/prompts.jsonl" ANSWERS="$RUN/answers.$launcher") || fail "sbatch"
  ends "$job" COMPLETED
  json_field text <"$RUN/answers.$launcher" | diff "$RUN/reference" - >"$RUN/diff" || fail "$launcher: $(head -4 "$RUN/diff")"
  nothing_left
  echo "sbatch, prompts through $launcher: 60 answers, completed after $(($(date +%s%3N) - start)) ms"

  # Serving; a running job ends well when it drains.
  job=$(submit TP=2 PP=1 LAUNCHER=$launcher) || fail "sbatch"
  wait_serving "$job"
  rm -f "$RUN/last"
  "$BIN/trireme" submit --ignore-eos --max-tokens 900 --temperature 0 "count 1 to 40=" >"$RUN/last" &
  client=$!
  for _ in $(seq $LOOKS); do [ -s "$RUN/last" ] && break; sleep 0.05; done
  start=$(date +%s%3N)
  scancel --signal=USR1 --full "$job"
  wait $client || fail "$launcher: a job that ran when the drain began did not finish"
  ends "$job" COMPLETED
  nothing_left
  echo "sbatch, serving through $launcher: drained by scancel --signal=USR1 --full in $(($(date +%s%3N) - start)) ms"

  # Cancelled.
  job=$(submit TP=2 PP=1 LAUNCHER=$launcher) || fail "sbatch"
  wait_serving "$job"
  start=$(date +%s%3N)
  scancel "$job"
  ends "$job" CANCELLED
  nothing_left
  echo "sbatch, serving through $launcher: gone $(($(date +%s%3N) - start)) ms after scancel"
done

# One group over both nodes, of which each has several ranks: those of a node share memory, and not that of the other node's ranks.
for launcher in mpirun srun; do
  job=$(env BIN="$BIN" MODEL="$MODEL" ENDPOINT="$TRIREME_ENDPOINT" TP=2 PP=2 LAUNCHER=$launcher PROMPTS="$RUN/prompts.jsonl" ANSWERS="$RUN/answers.nodes.$launcher" \
    sbatch --parsable --export=ALL --nodes=2 --ntasks=6 --ntasks-per-node=3 --output="$RUN/log" "$script") || fail "sbatch"
  ends "$job" COMPLETED
  json_field text <"$RUN/answers.nodes.$launcher" | diff "$RUN/reference" - >"$RUN/diff" || fail "$launcher, a group over two nodes: $(head -4 "$RUN/diff")"
  grep -q "worker: 4 ranks, 2 on this host" "$RUN/log" || fail "$launcher: the group does not lie on two nodes"
  nothing_left
  echo "sbatch, one group over two nodes through $launcher: 60 answers"
done

# Too few tasks are told at once, with the number that is needed.
job=$(submit TP=2 PP=2 DP=2) || fail "sbatch"
ends "$job" FAILED
grep -q "TP=2 x PP=2 x DP=2 and the coordinator need --ntasks=9, this job has 3" "$RUN/log" || fail "too few tasks: $(cat "$RUN/log")"
echo "sbatch, too few tasks: $(cat "$RUN/log")"
job=$(submit TP=2 PP=1 PROMPTS="$RUN/none.jsonl") || fail "sbatch"
ends "$job" FAILED
grep -q "PROMPTS=$RUN/none.jsonl cannot be read" "$RUN/log" || fail "no file of prompts: $(cat "$RUN/log")"

# OpenAI's API of a job: with keys, and for one group as for several. doctor looks at the nodes of its allocation.
printf 'ann secret\n' >"$RUN/keys" && chmod 600 "$RUN/keys"
port=$((20000 + $$ % 10000))
job=$(submit TP=2 PP=1 HTTP=0.0.0.0:$port GATEWAY="--api-key-file $RUN/keys") || fail "sbatch"
wait_serving "$job"
answer() { curl -s --retry 20 --retry-connrefused --retry-delay 1 -H "Authorization: Bearer $1" -H "Content-Type: application/json" "http://127.0.0.1:$port/v1/completions" -d '{"prompt": "37+48=", "temperature": 0}'; }
answer secret | grep -q '"text":"85"' || fail "HTTP of a job: $(answer secret)"
answer wrong | grep -q '"text"' && fail "HTTP of a job answers without its key"
grep -q "trireme.sbatch: HTTP on n[12], 0.0.0.0:$port" "$RUN/log" || fail "the log does not say where HTTP is"
scancel --signal=USR1 --full "$job"
ends "$job" COMPLETED
nothing_left
[ ! -e "$XDG_STATE_HOME/trireme/journal" ] || fail "a job without a journal has left one: $(ls "$XDG_STATE_HOME/trireme/journal")"
echo "sbatch, HTTP: answers to whoever has a key"
salloc -N 2 "$BIN/trireme" doctor --json --launcher srun --ports "$port" >"$RUN/doctor" 2>/dev/null
[ "$(grep -o '"host":"[^"]*"' "$RUN/doctor" | tr -d '\n')" = '"host":"n1""host":"n2"' ] && grep -q "two ranks have met on n1,n2" "$RUN/doctor" ||
  fail "doctor in an allocation: $(cat "$RUN/doctor")"

# A job that ends with one of its ranks, and one that goes on with its requests: forty, of which all still run.
for i in $(seq 40); do printf '{"prompt": "count %d to 40=", "temperature": 0, "max_tokens": 800, "ignore_eos": true}\n' "$i"; done >"$RUN/long.jsonl"
long() { TRIREME_RECONNECT_TIMEOUT_MS=60000 "$BIN/trireme" submit --file "$RUN/long.jsonl" --output "$1"; }
job=$(submit TP=2 PP=1 JOURNAL="$RUN/journal") || fail "sbatch"
wait_serving "$job"
long "$RUN/long.again" &
client=$!
for _ in $(seq $LOOKS); do "$BIN/trireme" status --json | grep '"running":40' >/dev/null && break; sleep 0.05; done
kill -9 "$(ours | awk '$2 ~ /^trireme-worke/ { print $1; exit }')"
ends "$job" FAILED
kill -0 $client 2>/dev/null || { wait $client; fail "the requests ended with their job: $? $(wc "$RUN/long.again") $(tail -c 300 "$RUN/long.again")"; }
[ -s "$RUN/long.again" ] && fail "a request ended before its job did"
job=$(submit TP=2 PP=1 JOURNAL="$RUN/journal") || fail "sbatch"
wait $client || fail "requests did not go on in the next job"
long "$RUN/long" || fail "the same requests, undisturbed"
diff <(json_field text <"$RUN/long") <(json_field text <"$RUN/long.again") >"$RUN/diff" || fail "requests went on with other words: $(head -4 "$RUN/diff")"
scancel --signal=USR1 --full "$job"
ends "$job" COMPLETED
nothing_left
echo "sbatch, a job that lost a rank, and another one with its journal: its 40 requests went on"

# Two shards that share experts, through both launchers.
shards() { # WHAT NAME=VALUE...
  local what=$1
  shift
  job=$(env BIN="$BIN" MODEL="$RUN/experts" ENDPOINT="$TRIREME_ENDPOINT" TP=1 PP=1 DP=2 EP=2 PROMPTS="$RUN/prompts.jsonl" ANSWERS="$RUN/answers.shards" "$@" \
    sbatch --parsable --export=ALL --ntasks=3 --output="$RUN/log" "$script") || fail "sbatch"
  ends "$job" COMPLETED
  json_field text <"$RUN/answers.shards" | diff "$RUN/reference" - >"$RUN/diff" || fail "$what: $(head -4 "$RUN/diff")"
  grep -q "worker: dp 1/2 tp 0/1" "$RUN/log" || fail "$what: there is no second shard"
  nothing_left
  echo "sbatch, $what: 60 answers"
}
(use_experts 6)
shards "two shards through mpirun" LAUNCHER=mpirun
shards "two shards through srun" LAUNCHER=srun

# An array of two tasks, each with its part of the prompts and answers of its own; two groups of one; options of submit.
sed '30q; s/, "temperature": 0//' "$RUN/prompts.jsonl" >"$RUN/part.1.jsonl"
sed '1,30d; s/, "temperature": 0//' "$RUN/prompts.jsonl" >"$RUN/part.2.jsonl"
job=$(env -u ENDPOINT BIN="$BIN" MODEL="$MODEL" TP=1 PP=1 DP=2 PROMPTS="$RUN/part.%a.jsonl" ANSWERS="$RUN/array" SUBMIT="--temperature 0" \
  sbatch --parsable --export=ALL --array=1-2 --ntasks=3 --output="$RUN/log.%a" "$script") || fail "sbatch"
for part in 1 2; do ends "${job}_$part" COMPLETED; done
cat "$RUN/array.1" "$RUN/array.2" | json_field text | diff "$RUN/reference" - >"$RUN/diff" || fail "an array: $(head -4 "$RUN/diff") $(tail -n 5 "$RUN/log.1" "$RUN/log.2")"
grep -q "1:0 worker: 1 rank" "$RUN/log.1" || fail "DP=2: there is no second group"
echo "sbatch, an array of two jobs with two groups each: 60 answers in files of their own"

# From an installed tree, without BIN and PATH: the programs are those beside the script.
mkdir -p "$RUN/tree/share/trireme/cluster-configs"
cp "$script" "$RUN/tree/share/trireme/cluster-configs/"
ln -s "$BIN" "$RUN/tree/bin"
job=$(env -u BIN MODEL="$MODEL" ENDPOINT="$TRIREME_ENDPOINT" TP=2 PP=1 PROMPTS="$RUN/prompts.jsonl" ANSWERS="$RUN/answers.tree" \
  sbatch --parsable --export=ALL --ntasks=3 --output="$RUN/log" "$RUN/tree/share/trireme/cluster-configs/trireme.sbatch") || fail "sbatch"
ends "$job" COMPLETED
json_field text <"$RUN/answers.tree" | diff "$RUN/reference" - >"$RUN/diff" || fail "an installed tree: $(head -4 "$RUN/diff")"
nothing_left
echo "sbatch with an installed tree's script: 60 answers"

# By hand: one step of two programs.
options="--launch mpi --model $MODEL -tp 2"
printf '0 %s/trireme-coordinator %s\n1-2 %s/trireme-worker %s\n' "$BIN" "$options" "$BIN" "$options" >"$RUN/tasks"
srun -n 3 --mpi=pmix --kill-on-bad-exit=1 --multi-prog "$RUN/tasks" >>"$RUN/log" 2>&1 &
# shellcheck disable=SC2034
CLUSTER=$!
wait_ready
[ "$("$BIN/trireme" submit --temperature 0 "37+48=")" = 85 ] || fail "srun: wrong answer"
stop_cluster USR1
echo "srun --multi-prog: answers and drains on SIGUSR1"

# Groups of `trireme up` go to nodes whole where they fit, with either launcher, and their workers find the coordinator from there.
for launcher in srun mpirun; do
  : >"$RUN/log" # of the launcher before
  salloc -N 2 -n 4 --ntasks-per-node=2 "$BIN/trireme" up --model "$MODEL" --launcher $launcher -tp 2 -dp 2 >>"$RUN/log" 2>&1 &
  # shellcheck disable=SC2034
  CLUSTER=$!
  for _ in $(seq $LOOKS); do
    [ "$(grep -c "replica . is ready" "$RUN/log")" = 2 ] && break
    sleep 0.05
  done
  [ "$(grep -c "INFO [01]:0 worker: 2 ranks, 2 on this host" "$RUN/log")" = 2 ] || fail "$launcher: not a group on each node"
  ours | while read -r pid name; do [ "$name" != trireme-worker ] || tr '\0' '\n' <"/proc/$pid/environ" | grep "^SLURMD_NODENAME="; done | sort >"$RUN/nodes"
  [ "$(tr -d '\n' <"$RUN/nodes")" = "SLURMD_NODENAME=n1SLURMD_NODENAME=n1SLURMD_NODENAME=n2SLURMD_NODENAME=n2" ] || fail "$launcher: workers on $(cat "$RUN/nodes")"
  "$BIN/trireme" submit --temperature 0 "37+48=" >"$RUN/answer"
  [ "$(cat "$RUN/answer")" = 85 ] || fail "$launcher, two groups: wrong answer"
  coordinator=$(ours | awk '$2 == "trireme-coordin" { print $1 }')
  tr '\0' ' ' <"/proc/$coordinator/cmdline" | grep -q -- "--worker-endpoint tcp://" || fail "$launcher: workers on other nodes cannot reach their coordinator"
  kill -TERM "$(ours | awk '$2 == "trireme-up" { print $1 }')"
  wait "$CLUSTER" || fail "$launcher, two groups: code $?"
  nothing_left
  echo "up --launcher $launcher -tp 2 -dp 2 on two nodes: a group on each"
done
