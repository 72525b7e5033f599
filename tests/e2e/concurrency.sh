#!/usr/bin/env bash
# 64 streams of mixed lengths at a time give the same text as each alone, with sampling and penalties too; and with few KV blocks, where
# sequences are preempted.
here=$(dirname "$0")
. "$here/lib.sh"
awk 'NR <= 96' "$MODEL/questions.jsonl" | sed 's/^{"prompt": *\("[^"]*"\).*/\1/' | awk '{
  printf "{\"prompt\": %s, \"max_tokens\": %d, \"ignore_eos\": true, \"temperature\": %s, \"seed\": %d%s}\n", $0, 8 + NR * 37 % 120, NR % 3 ? "0" : "0.8", NR,
    NR % 5 ? "" : ", \"repetition_penalty\": 1.1, \"top_p\": 0.9, \"n\": 3" }' >"$RUN/prompts.jsonl"
texts() { sed 's/"[a-z_]*_ms": *[0-9.e+-]*//g; s/"preemptions": *[0-9]*//g; s/"request_id": *"[0-9a-f]*"//g' "$1"; }

start_up --deterministic --threads 2
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
sleep 1.5
before=$(preemptions)
for i in $(seq 24); do
  "$BIN/trireme" submit --json --temperature 0 --ignore-eos --max-tokens 120 "$i+$i=" >"$RUN/told.$i" &
  jobs[i]=$!
done
wait "${jobs[@]}"
told=$(sed -n 's/.*"preemptions": *\([0-9]*\).*/\1/p' "$RUN"/told.* | awk '{ n += $1 } END { print n + 0 }')
[ "$told" -gt 0 ] || fail "no answer tells of a preemption"
for _ in $(seq 30); do
  total=$(preemptions)
  [ "$total" = $((before + told)) ] && break
  sleep 0.1
done
[ "$total" = $((before + told)) ] || fail "the answers tell of $told preemptions, the workers of $((total - before))"
stop_cluster TERM

# Without --deterministic greedy texts agree.
grep '"temperature": 0,' "$RUN/prompts.jsonl" >"$RUN/greedy.jsonl"
start_up -tp 2 -pp 2
"$BIN/trireme" submit --file "$RUN/greedy.jsonl" --output "$RUN/one" --concurrency 1 || fail "one at a time"
"$BIN/trireme" submit --file "$RUN/greedy.jsonl" --output "$RUN/many" --concurrency 64 || fail "64 at a time"
diff <(texts "$RUN/one") <(texts "$RUN/many") >"$RUN/diff" || fail "tp 2 pp 2: 64 at a time differ from one at a time: $(head -c 600 "$RUN/diff")"
# Half a second after a job every rank has told of its last step. One round may be late on a busy machine.
equal=0
for _ in $(seq 8); do
  "$BIN/trireme" submit --temperature 0 --ignore-eos --max-tokens 30 "37+48=" >/dev/null || fail "a short job"
  sleep 0.5
  "$BIN/trireme" status --json | grep -o '"pid":[0-9]*,"step":[0-9]*' | sed 's/.*://' | sort -u >"$RUN/steps"
  [ "$(wc -l <"$RUN/steps")" = 1 ] && equal=$((equal + 1))
done
[ $equal -ge 7 ] || fail "the ranks' steps were equal in status after $equal of 8 jobs: $("$BIN/trireme" status)"
stop_cluster TERM
echo "96 requests alone and 64 at a time: the same texts, also with $preempted preemptions"
