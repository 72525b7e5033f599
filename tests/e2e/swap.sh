#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# With few KV blocks preempted sequences leave what they have computed in the host's memory and come back to it: the same texts, to the
# last bit of each draw, as with enough blocks; on one rank, in stages and on shards. What plan, status and the metrics say of it.
#   swap.sh [FAKE_DEVICE]    with the imitation of a device also on it, on tensor ranks, with streamed weights and with little room
here=$(dirname "$0")
. "$here/lib.sh"
awk 'NR <= 48' "$MODEL/questions.jsonl" | sed 's/^{"prompt": *\("[^"]*"\).*/\1/' | awk '{
  printf "{\"prompt\": %s, \"max_tokens\": %d, \"ignore_eos\": true, \"temperature\": %s, \"seed\": %d, \"logprobs\": 2%s}\n", $0, 40 + NR * 37 % 90, NR % 3 ? "0" : "0.8", NR,
    NR % 5 ? "" : ", \"repetition_penalty\": 1.1, \"top_p\": 0.9, \"n\": 3" }' >"$RUN/prompts.jsonl"
texts() { sed 's/"[a-z_]*_ms": *[0-9.e+-]*//g; s/"preemptions": *[0-9]*//g; s/"request_id": *"[0-9a-f]*"//g' "$1"; }
metric() { sed -n "s/^trireme:$1 //p" "$RUN/stats"; }
refused() { # WORD ARGS...
  local word=$1
  shift
  timeout $HANG_S "$BIN/trireme" up --model "$MODEL" "$@" >"$RUN/refused" 2>&1
  [ $? = 3 ] || fail "$* was not refused: $(tail -3 "$RUN/refused")"
  grep -q -- "$word" "$RUN/refused" || fail "$* does not say '$word': $(tail -3 "$RUN/refused")"
}
bits=(--deterministic)
few=(--num-kv-blocks-override 64 --max-num-batched-tokens 128)

# compare TP PP GIB ARGS...: with enough blocks, then with few and a pool of so many GiB.
compare() {
  local tp=$1 pp=$2 gib=$3
  shift 3
  start_up "${bits[@]}" -tp "$tp" -pp "$pp" "$@"
  "$BIN/trireme" submit --file "$RUN/prompts.jsonl" --output "$RUN/enough" --concurrency 48 || fail "with enough KV blocks"
  "$BIN/trireme" status --stats | grep -q '^trireme:host_kv' && fail "metrics of a pool that is not there"
  stop_cluster TERM
  start_up "${bits[@]}" -tp "$tp" -pp "$pp" "${few[@]}" --kv-offloading-size "$gib" "$@"
  "$BIN/trireme" submit --file "$RUN/prompts.jsonl" --output "$RUN/few" --concurrency 48 || fail "with few KV blocks"
  diff <(texts "$RUN/enough") <(texts "$RUN/few") >"$RUN/diff" || fail "tp $tp pp $pp: with few KV blocks the texts differ: $(head -c 600 "$RUN/diff")"
  # shellcheck disable=SC2317 # until_holds runs it
  all_back() { "$BIN/trireme" status --stats >"$RUN/stats" && [ "$(metric 'swaps_total{direction="out"}')" -gt 0 ] && [ "$(metric 'swaps_total{direction="out"}')" = "$(metric 'swaps_total{direction="in"}')" ]; }
  until_holds "tp $tp pp $pp: not as many sequences come back as leave" all_back # a leader reports its counters once a second
  out=$(metric 'swaps_total{direction="out"}')
  [ "${out:-0}" -gt 0 ] || fail "tp $tp pp $pp: no sequence was swapped: $(cat "$RUN/stats")"
  [ "$out" = "$(metric 'swaps_total{direction="in"}')" ] || fail "tp $tp pp $pp: $out sequences have left, $(metric 'swaps_total{direction="in"}') have come back"
  [ "$(metric host_kv_blocks_used)" = 0 ] || fail "tp $tp pp $pp: blocks of the host are in use when nothing runs"
  [ "$(metric 'swapped_bytes_total{direction="in"}')" = "$(metric 'swapped_bytes_total{direction="out"}')" ] || fail "tp $tp pp $pp: not all bytes have come back"
}
compare 1 1 0.02 --threads 2
grep -q 'a block of 16 tokens is swapped out and in in [0-9.]*[1-9][0-9.]* us, a token is computed again in [0-9.]*[1-9][0-9.]* us, the first 0 for free' "$RUN/log" || fail "no prediction of what swaps cost"
blocks=$(metric host_kv_blocks)
"$BIN/trireme" status | grep -q "^replica 0 uses 0 of $blocks KV blocks in host memory; $out sequences were swapped out" || fail "status: $("$BIN/trireme" status)"
"$BIN/trireme" status --json | grep -q "\"host_kv_pages\":$blocks,\"host_kv_pages_used\":0,\"swaps_out\":$out,\"swaps_in\":$out," || fail "status --json: $("$BIN/trireme" status --json)"
"$BIN/trireme" plan --model "$MODEL" "${few[@]}" --kv-offloading-size 0.02 --json | grep -q "\"num_host_kv_blocks\":$blocks" || fail "plan counts other blocks than the $blocks that are served"
"$BIN/trireme" plan --model "$MODEL" "${few[@]}" --kv-offloading-size 0.02 | grep -q "of the total 20.5 MiB for $blocks KV blocks of preempted sequences" || fail "plan: $("$BIN/trireme" plan --model "$MODEL" --kv-offloading-size 0.02)"

# A job that is cancelled while it waits gives its blocks of the host back.
for i in $(seq 24); do
  timeout -s INT 3 "$BIN/trireme" submit --temperature 0 --ignore-eos --max-tokens 1500 "$i+$i=" >/dev/null 2>&1 &
  jobs[i]=$!
done
wait "${jobs[@]}"
for _ in $(seq $LOOKS); do
  "$BIN/trireme" status --stats >"$RUN/stats"
  [ "$(metric host_kv_blocks_used)" = 0 ] && [ "$(metric num_requests_running)" = 0 ] && break
  sleep 0.05
done
[ "$(metric host_kv_blocks_used)" = 0 ] || fail "cancelled jobs keep blocks of the host: $(cat "$RUN/stats")"
stop_cluster TERM
swapped=$out

if [ -n "${1-}" ]; then
  compare 2 1 0.02
  stop_cluster TERM
fi
compare 1 2 0.02
# Sequences of the lane that is idle leave and come back to their slots, which is no preemption.
[ "$out" -gt $((10 * $(metric num_preemptions_total))) ] || fail "of idle lanes hardly any sequence has left: $out in all, $(metric num_preemptions_total) preempted: $(grep 'idle micro-batches' "$RUN/log")"
stop_cluster TERM
if [ -n "${1-}" ]; then
  # Steps that wait for their weights compute some tokens for nothing.
  compare 1 1 0.02 --threads 2 --gpu-layers 2
  grep -q 'is computed again in [0-9.]* us, the first [1-9][0-9]* for free' "$RUN/log" || fail "no tokens hide behind streamed weights"
  stop_cluster TERM
  # Little room: some are computed again.
  compare 1 1 0.002 --threads 2
  stop_cluster TERM
fi

# Shards have pools of their own.
use_experts 4
compare 1 1 0.02 -dp 2 --enable-expert-parallel
stop_cluster TERM
MODEL=$SRC/tests/models/abacus

refused 'exceed the .* KV blocks of preempted sequences ' --kv-offloading-size 1000000
refused "a rank's part of --kv-offloading-size is 10 bytes, and its KV blocks of 16 tokens have" --kv-offloading-size 1e-8
refused "a rank's part of --kv-offloading-size is 1 bytes" --kv-offloading-size 1e-12

# Steps that end behind their launch: of one rank a lane's next one is composed before the draws are known, of stages two lanes have
# steps under way. The imitation of a device computes each row by itself.
if [ -n "${1-}" ]; then
  programs=$BIN libraries=${LD_LIBRARY_PATH-}
  mkdir "$RUN/bin" && cp "$BIN/trireme" "$BIN"/trireme-{up,coordinator,worker,plan} "$RUN/bin" && cp "$1" "$RUN/bin/libtrireme-cuda.so" || fail "no copies of the programs"
  cp "$1" "$RUN/bin/libcuda.so.1" # a driver's library that nobody calls
  export LD_LIBRARY_PATH=$RUN/bin${libraries:+:$libraries} FAKE_MEMORY=4000000000 FAKE_EVENTS=1
  BIN=$RUN/bin bits=(--backend cuda --block-size 16)
  few=(--max-model-len 96 --num-kv-blocks-override 7 --max-num-batched-tokens 64) # it is slow
  for i in $(seq 4); do
    echo "{\"prompt\": \"$i+$i=\", \"max_tokens\": 45, \"ignore_eos\": true, \"temperature\": 0.8, \"seed\": $i, \"repetition_penalty\": 1.1}"
  done >"$RUN/prompts.jsonl"
  compare 1 1 0.02 --threads 2
  "$BIN/trireme" plan --model "$MODEL" "${bits[@]}" "${few[@]}" --kv-offloading-size 0.02 | grep -q "of host memory 20.5 MiB for" || fail "plan: $("$BIN/trireme" plan --model "$MODEL" "${bits[@]}" --kv-offloading-size 0.02)"
  stop_cluster TERM
  compare 1 2 0.02
  for rank in 0 1; do # which are measured alone, too, since they might share a link
    grep -q "rank $rank swaps KV blocks at [0-9.]* GB/s alone and [0-9.]* GB/s together with the others of the 2 on its host: in [12] turns" "$RUN/log" || fail "rank $rank does not say in how many turns it moves"
  done
  stop_cluster TERM
  refused "are wanted for KV blocks of each rank, and each may use" --backend cuda --kv-offloading-size 1000000
  MODEL=$DATA/checkpoints/bert # no sequence of an encoder waits with what it has computed
  start_up --backend cuda --kv-offloading-size 1000000
  grep -q -- '--kv-offloading-size has no effect' "$RUN/log" || fail "no word of an option without effect"
  stop_cluster TERM
  unset FAKE_MEMORY FAKE_EVENTS
  export LD_LIBRARY_PATH=$libraries
  BIN=$programs
fi
echo "48 requests with few KV blocks: the same texts with $swapped swaps on one rank, and with stages and shards"
