#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# 64 streams of mixed lengths at a time give the same text as each alone, with sampling and penalties too; and with few KV blocks, where
# sequences are preempted; and prompts that begin alike, behind blocks that hold what they share.
here=$(dirname "$0")
. "$here/lib.sh"
awk 'NR <= 96' "$MODEL/questions.jsonl" | sed 's/^{"prompt": *\("[^"]*"\).*/\1/' | awk '{
  printf "{\"prompt\": %s, \"max_tokens\": %d, \"ignore_eos\": true, \"temperature\": %s, \"seed\": %d%s}\n", $0, 8 + NR * 37 % 120, NR % 3 ? "0" : "0.8", NR,
    NR % 5 ? "" : ", \"repetition_penalty\": 1.1, \"top_p\": 0.9, \"n\": 3" }' >"$RUN/prompts.jsonl"
texts() { sed 's/"[a-z_]*_ms": *[0-9.e+-]*//g; s/"preemptions": *[0-9]*//g; s/"request_id": *"[0-9a-f]*"//g' "$1"; }

# Turns of chats: each prompt is the one before and some more. Under a salt of its own each is computed as a whole.
awk 'NR <= 24' "$MODEL/questions.jsonl" | sed 's/^{"prompt": *"\([^"]*\)".*/\1/' | awk '{
  if (NR % 6 == 1) text = ""
  text = text (text == "" ? "" : " ") $0
  printf "{\"prompt\": \"%s\", \"max_tokens\": 12, \"ignore_eos\": true, \"logprobs\": 2, \"temperature\": %s, \"seed\": %d%s}\n", text, NR % 2 ? "0" : "0.9", NR,
    NR % 4 ? "" : ", \"repetition_penalty\": 1.1, \"n\": 2" }' >"$RUN/turns.jsonl"
sed 's/}$/, "cache_salt": "NR"}/' "$RUN/turns.jsonl" | awk '{ sub(/"NR"/, "\"" NR "\""); print }' >"$RUN/salted.jsonl"
# Prints how many tokens were found so far, once the leader has reported all that were looked for.
cached() {
  for _ in $(seq $LOOKS); do
    "$BIN/trireme" status --stats >"$RUN/stats"
    awk '$1 == "trireme:prefix_cache_queries_total" { looked = $2 } $1 == "trireme:prompt_tokens_total" { came = $2 } END { exit !(looked + 0 == came + 0) }' "$RUN/stats" && break
    sleep 0.05
  done
  sed -n 's/^trireme:prefix_cache_hits_total //p' "$RUN/stats"
}
compare_turns() { # WHERE TEXTS: what of an answer must be the same
  local before whole turns again
  before=$(cached)
  "$BIN/trireme" submit --file "$RUN/salted.jsonl" --output "$RUN/whole" --concurrency 8 || fail "$1: turns as a whole"
  whole=$(cached)
  "$BIN/trireme" submit --file "$RUN/turns.jsonl" --output "$RUN/turns" --concurrency 1 || fail "$1: turns"
  turns=$(cached)
  "$BIN/trireme" submit --file "$RUN/turns.jsonl" --output "$RUN/again" --concurrency 24 || fail "$1: turns again"
  again=$(cached)
  [ $((whole - ${before:-0})) = 0 ] || fail "$1: salts share $((whole - before)) tokens"
  [ $((turns - whole)) -gt 100 ] && [ $((again - turns)) -gt $((turns - whole)) ] || fail "$1: $((turns - whole)) and $((again - turns)) tokens were there"
  for f in turns again; do diff <($2 "$RUN/whole") <($2 "$RUN/$f") >"$RUN/diff" || fail "$1: behind blocks of others ($f) the texts differ: $(head -c 600 "$RUN/diff")"; done
}

start_up --deterministic --threads 2
compare_turns deterministic texts
"$BIN/trireme" submit --file "$RUN/prompts.jsonl" --output "$RUN/one" --concurrency 1 || fail "one at a time"
"$BIN/trireme" submit --file "$RUN/prompts.jsonl" --output "$RUN/many" --concurrency 64 || fail "64 at a time"
diff <(texts "$RUN/one") <(texts "$RUN/many") >"$RUN/diff" || fail "64 at a time differ from one at a time: $(head -c 600 "$RUN/diff")"
stop_cluster TERM

start_up --deterministic --threads 2 --num-kv-blocks-override 64 --max-num-batched-tokens 128
"$BIN/trireme" submit --file "$RUN/prompts.jsonl" --output "$RUN/few" --concurrency 64 || fail "with few KV blocks"
diff <(texts "$RUN/one") <(texts "$RUN/few") >"$RUN/diff" || fail "with few KV blocks the texts differ: $(head -c 600 "$RUN/diff")"
# They are few only where some sequence had to give its KV blocks back.
preempted=$("$BIN/trireme" status --stats | sed -n 's/^trireme:num_preemptions_total //p')
[ "${preempted:-0}" -gt 0 ] || fail "no sequence was preempted with few KV blocks: \"$preempted\""
# Each answer says how often it was preempted itself. A leader reports its counters once a second.
preemptions() { "$BIN/trireme" status --stats | sed -n 's/^trireme:num_preemptions_total //p'; }
until_reported
before=$(preemptions)
for i in $(seq 24); do
  "$BIN/trireme" submit --json --temperature 0 --ignore-eos --max-tokens 120 "$i+$i=" >"$RUN/told.$i" &
  jobs[i]=$!
done
wait "${jobs[@]}"
told=$(sed -n 's/.*"preemptions": *\([0-9]*\).*/\1/p' "$RUN"/told.* | awk '{ n += $1 } END { print n + 0 }')
[ "$told" -gt 0 ] || fail "no answer tells of a preemption"
for _ in $(seq $LOOKS); do
  total=$(preemptions)
  [ "$total" = $((before + told)) ] && break
  sleep 0.05
done
[ "$total" = $((before + told)) ] || fail "the answers tell of $told preemptions, the workers of $((total - before))"
stop_cluster TERM

# Without --deterministic greedy texts agree.
grep '"temperature": 0,' "$RUN/prompts.jsonl" >"$RUN/greedy.jsonl"
start_up -tp 2 -pp 2
"$BIN/trireme" submit --file "$RUN/greedy.jsonl" --output "$RUN/one" --concurrency 1 || fail "one at a time"
"$BIN/trireme" submit --file "$RUN/greedy.jsonl" --output "$RUN/many" --concurrency 64 || fail "64 at a time"
diff <(texts "$RUN/one") <(texts "$RUN/many") >"$RUN/diff" || fail "tp 2 pp 2: 64 at a time differ from one at a time: $(head -c 600 "$RUN/diff")"
without_logprobs() { texts "$1" | sed 's/"logprobs":\[.*\]//'; }
compare_turns "tp 2 pp 2" without_logprobs
# Behind a job every rank tells of its last step, which all have taken.
steps_of_ranks() { "$BIN/trireme" status --json | grep -o '"pid":[0-9]*,"step":[0-9]*' | sed 's/.*://' | sort -nu; }
# shellcheck disable=SC2317 # until_holds runs it
steps_agree() { # BEFORE: they are equal, and by a job's 30 tokens more
  local steps
  steps=$(steps_of_ranks)
  [ "$(wc -l <<<"$steps")" = 1 ] && [ "$steps" -ge $(($1 + 30)) ]
}
slowest=0
for _ in $(seq 8); do
  before=$(steps_of_ranks | tail -n 1)
  "$BIN/trireme" submit --temperature 0 --ignore-eos --max-tokens 30 "37+48=" >/dev/null || fail "a short job"
  since=$(now_ms)
  until_holds "the ranks' steps are not equal in status" steps_agree "$before"
  took=$(($(now_ms) - since))
  [ $took -le $slowest ] || slowest=$took
done
echo "the ranks' steps were equal in status within $slowest ms of a job's end"
stop_cluster TERM
echo "96 requests alone and 64 at a time: the same texts, also with $preempted preemptions and behind blocks of others"
