#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Several shards in one group, which share the experts: the bundled model with experts answers its 200 questions as the reference, with
# `trireme up` and as one MPI job, with stages and without. Searches, choices, priorities and aborted requests on several shards.
here=$(dirname "$0")
. "$here/lib.sh"
use_experts 7 # shares are not equal
sed 's/^{"prompt": *\("[^"]*"\).*/{"prompt": \1, "temperature": 0, "max_tokens": 200}/' "$MODEL/questions.jsonl" >"$RUN/prompts.jsonl"
sed 's/.*"reference": *"\([^"]*\)".*/\1/' "$MODEL/questions.jsonl" >"$RUN/reference"

answers() { # WHAT
  "$BIN/trireme" submit --file "$RUN/prompts.jsonl" --output "$RUN/answers.jsonl" || fail "$1: submit --file failed"
  json_field text <"$RUN/answers.jsonl" >"$RUN/answers"
  diff "$RUN/reference" "$RUN/answers" >"$RUN/diff" || fail "$1: answers differ from the reference: $(head -4 "$RUN/diff")"
}
# steps RANK: how many the rank has run
steps() { "$BIN/trireme" status --json | grep -o "\"rank\":$1,\"host\":\"[^\"]*\",\"pid\":[0-9]*,\"step\":[0-9]*" | grep -o '[0-9]*$'; }

start_up -tp 2 -dp 2 --enable-expert-parallel --num-kv-blocks-override 100
answers "up, tp 2 dp 2 ep 4"
status=$("$BIN/trireme" status --json)
for word in '"data_parallel_size":2' '"expert_parallel_size":4' '"kv_pages":200'; do
  [[ $status == *"$word"* ]] || fail "status has no $word: $status"
done
grep -o '"rank":[0-9]*,\|"data_parallel_rank":[0-9]*' <<<"$status" | tr -d '\n' | grep -q '"rank":1,"data_parallel_rank":0"rank":2,"data_parallel_rank":1' ||
  fail "status does not say whose shard a rank is of: $status"
"$BIN/trireme" status | grep -q 'LAST REPORT  DP RANK  RUNNING  WAITING' || fail "status has no shards"
grep -q "all-to-all: 4 rows" "$RUN/log" || fail "the log does not say which form the exchange has"
[ "$(grep -c 'worker: dp [01]/2 tp [01]/2 pp 0/1: ' "$RUN/log")" = 4 ] || fail "not four ranks of two shards"

# One request, on one shard: the others step beside it. Then searches and choices on both at a time.
before=$(steps 2)
[ "$("$BIN/trireme" submit --temperature 0 "37+48=")" = 85 ] || fail "a wrong answer of one shard alone"
for _ in $(seq $LOOKS); do # a rank reports once a second
  [ "$(steps 2)" -gt "$before" ] && break
  sleep 0.05
done
[ "$(steps 2)" -gt "$before" ] || fail "the idle shard has not stepped"
for i in $(seq 10); do
  "$BIN/trireme" submit --temperature 0 --num-beams 3 "$i+$i=" >"$RUN/beam.$i" &
  jobs[i]=$!
  "$BIN/trireme" submit --json --temperature 0.9 --seed "$i" --n 3 --max-tokens 30 --ignore-eos "$i+1=" >"$RUN/choices.$i" &
  jobs[i + 10]=$!
done
for i in "${!jobs[@]}"; do wait "${jobs[i]}" || fail "a search or a request for choices failed"; done
for i in $(seq 10); do
  [ "$(head -1 "$RUN/beam.$i")" = $((2 * i)) ] || fail "a search for $i+$i found $(cat "$RUN/beam.$i")"
  [ "$(grep -o '"completion_tokens":30}' "$RUN/choices.$i" | wc -l)" = 3 ] || fail "not three choices: $(tail -n 1 "$RUN/choices.$i")"
done
# Clients that go: nothing of theirs stays.
gone=()
for i in $(seq 12); do
  "$BIN/trireme" submit --ignore-eos --max-tokens 900 "$i=" >"$RUN/gone.$i" 2>&1 &
  gone+=($!)
done
# shellcheck disable=SC2317 # until_holds runs them
all_receive() { [ "$(find "$RUN" -name 'gone.*' -size +0c | wc -l)" = 12 ]; }
# shellcheck disable=SC2317
none_used() { [[ $("$BIN/trireme" status --json) == *'"kv_pages_used":0,'* ]]; }
until_holds "not every client receives something" all_receive
kill -TERM "${gone[@]}" 2>/dev/null # those that have not ended yet
wait "${gone[@]}"
until_holds "KV blocks stay in use" none_used
stop_cluster TERM
echo "up, tp 2 dp 2 ep 4: 200 of 200 as the reference"

# Experts in other slots, one with a copy. What they have had to do: each shard's rows, two experts for each in every layer; a placement
# made of that answers right, too.
start_up -dp 2 -ep 2 --num-redundant-experts 1 --expert-placement-strategy round_robin
answers "copies, dp 2 ep 2"
"$BIN/trireme" status --experts >"$RUN/experts.json" || fail "status --experts failed: $(cat "$RUN/experts.json")"
rows() { sed -n '/"rows":/,$p' "$RUN/experts.json" | tr -d ']}' | sed -n 's/^\[//p'; }
sums=$(rows | sed 's/,$//; s/,/ + /g' | while read -r row; do echo $((row)); done | sort -u)
[[ $sums =~ ^[0-9]+$ ]] && [ "$sums" -gt 2000 ] && [ $((sums % 2)) = 0 ] || fail "layers have other numbers of rows: $sums in $(cat "$RUN/experts.json")"
[[ $(cat "$RUN/experts.json") == *'"num_experts":7,"num_groups":1,"num_slots":8,"expert_parallel_size":2,"balancedness":0.'* ]] || fail "what is in $(cat "$RUN/experts.json")?"
figure=$("$BIN/trireme" status --stats | sed -n 's/^trireme:expert_balancedness //p')
[[ $figure == 0.* ]] || fail "expert_balancedness is '$figure'"
"$BIN/trireme" status --experts | diff "$RUN/experts.json" - >"$RUN/diff" || fail "the rows differ with nothing under way"
stop_cluster TERM
"$BIN/trireme" plan --rebalance "$RUN/experts.json" -ep 2 --num-redundant-experts 1 >"$RUN/location.json" || fail "plan --rebalance failed"
start_up -dp 2 -ep 2 --init-expert-location "$RUN/location.json"
answers "rebalanced, dp 2 ep 2"
"$BIN/trireme" status --experts >"$RUN/rebalanced.json" || fail "status --experts failed"
balance() { sed -n 's/.*"balancedness":\([0-9.]*\).*/\1/p' "$1"; }
awk "BEGIN { exit !($(balance "$RUN/rebalanced.json") >= $(balance "$RUN/experts.json")) }" ||
  fail "rebalanced: $(balance "$RUN/rebalanced.json"), before $(balance "$RUN/experts.json")"
stop_cluster TERM
echo "copies: 200 of 200 as the reference; balancedness $(balance "$RUN/experts.json"), rebalanced $(balance "$RUN/rebalanced.json")"

start_up -dp 2 -ep 2 -pp 2 --all2all-backend coordinated --max-num-seqs 8 --max-num-batched-tokens 16
answers "up, dp 2 ep 2 pp 2"
stop_cluster TERM
SHARDS=3 start_mpi 1 1 -dp 3 -ep 3 --all2all-backend allgather
answers "mpi, dp 3 ep 3"
stop_cluster USR1
echo "up, dp 2 ep 2 pp 2, and mpi, dp 3 ep 3: 200 of 200 as the reference"

# Replica groups of shards; and what is refused, before anything is started.
start_up -dp 2 -ep 2 --replicas 2
answers "two groups of two shards"
[ "$("$BIN/trireme" status --json | grep -o '"data_parallel_size":2' | wc -l)" = 2 ] || fail "not two groups"
stop_cluster TERM
refused() { # WORDS ARGS...
  local words=$1 out
  shift
  out=$("$BIN/trireme" up --model "$MODEL" "$@" 2>&1)
  if [ $? != 3 ] || [[ $out != *"$words"* ]]; then fail "up $*: \"$words\" is not in $out"; fi
  nothing_left
}
refused "-ep 3 does not divide data-parallel 1 x tensor-parallel 4: it could be 1, 2, 4" -tp 4 -ep 3
refused "experts in 2 slices" -dp 2 --moe-tensor-parallel-size 2
refused "the slices must divide tensor-parallel 2" -tp 2 -dp 3 -ep 2
refused "8 shares of 7 experts: -ep can be 7 at most" -tp 8 -ep 8
refused "8 copies of 7 experts in 2 shares, which have each expert once at most: the range is 0 to 7" -tp 2 -ep 2 --num-redundant-experts 8
sed 's/6/9/g' "$RUN/location.json" >"$RUN/wrong.json"
refused "9 is no expert: they are 0 to 6" -tp 2 -ep 2 --init-expert-location "$RUN/wrong.json"
MODEL=$SRC/tests/models/abacus refused "the model has no experts to be shared by 2 ranks" -dp 2 -ep 2

# Experts that move while the group serves, from a placement that knows nothing of them: right answers, every expert in a slot, and the
# shares come closer to each other.
use_experts 8 3
start_up -dp 2 -ep 2 --num-redundant-experts 1 --eplb-step-interval 20
answers "skewed, dp 2 ep 2"
"$BIN/trireme" status --experts >"$RUN/still.json" || fail "status --experts failed"
stop_cluster TERM
start_up -dp 2 -ep 2 --num-redundant-experts 1 --eplb-step-interval 20 --enable-eplb
for i in 1 2 3; do answers "moving experts, dp 2 ep 2, time $i"; done
"$BIN/trireme" status --experts >"$RUN/moved.json" || fail "status --experts failed"
layers() { sed -n '/"layers":/,/"rows":/p' "$1" | tr -d ']},' | sed -n 's/^\[//p'; }
[ "$(layers "$RUN/moved.json" | wc -l)" = 4 ] && [ "$(layers "$RUN/moved.json" | sort -u | wc -l)" -gt 1 ] || fail "no placement of four layers: $(cat "$RUN/moved.json")"
awk "BEGIN { exit !($(balance "$RUN/moved.json") > $(balance "$RUN/still.json") + 0.05) }" ||
  fail "with experts that move the balancedness is $(balance "$RUN/moved.json"), before $(balance "$RUN/still.json")"
sums=$(sed -n '/"rows":/,$p' "$RUN/moved.json" | tr -d ']}' | sed -n 's/^\[//p' | sed 's/,$//; s/,/ + /g' | while read -r row; do echo $((row)); done | sort -u)
[[ $sums =~ ^[0-9]+$ ]] || fail "layers have other numbers of rows: $sums in $(cat "$RUN/moved.json")"
for _ in $(seq $LOOKS); do # a rank reports once a second
  "$BIN/trireme" status --stats >"$RUN/stats"
  moves=$(sed -n 's/^trireme:expert_moves_total{group="0"} //p' "$RUN/stats")
  [ "$moves" != 0 ] && break
  sleep 0.05
done
[ "$moves" -gt 3 ] && grep -q '^trireme:expert_rearrangements_total{group="0"} [1-9]' "$RUN/stats" || fail "$moves experts have moved"
stop_cluster TERM
grep -q "eplb: [0-9]* experts of [1-4] layers have moved in .* ms" "$RUN/log" || fail "the log says nothing of experts that move"
echo "moving experts: 600 of 600 as the reference; balancedness $(balance "$RUN/still.json"), then $(balance "$RUN/moved.json")"
refused "--enable-eplb moves experts between shares, and there is one alone" -tp 2 --enable-eplb
refused "--enable-eplb cannot be combined with --deterministic" -tp 2 -ep 2 --enable-eplb --deterministic
MODEL=$SRC/tests/models/abacus refused "the model has no experts to be placed" -tp 2 --enable-eplb

# Ranks that were started with different options: all end, and say which.
mpirun --bind-to none --oversubscribe --timeout $HANG_S -n 1 "$BIN/trireme-coordinator" --launch mpi --model "$MODEL" -dp 2 -ep 2 : \
  -n 1 "$BIN/trireme-worker" --launch mpi --model "$MODEL" -dp 2 -ep 2 : \
  -n 1 "$BIN/trireme-worker" --launch mpi --model "$MODEL" -dp 2 -ep 2 --max-num-batched-tokens 64 >"$RUN/log" 2>&1 && fail "ranks that disagree: exit code 0"
grep -q "rank 1 was started with another --max-num-batched-tokens than rank 0 (64, not 0)" "$RUN/log" || fail "ranks that disagree are not told so"
nothing_left
echo "layouts that cannot be, and ranks that disagree, are refused"
