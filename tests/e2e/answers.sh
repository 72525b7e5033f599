#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The bundled model's 200 held-out questions under a layout: at least 98% right, and exactly the reference's answers.
#   answers.sh {up|mpi} TP PP [ARGS...]
# Quantised weights may answer otherwise, but not worse: at most two fewer are right than the reference's.
#   QUANTIZATION={int8|w8a8} answers.sh {up|mpi} TP PP [ARGS...]
# Drawn from several candidates, of which cuts leave the best alone, the answers are the same:
#   SAMPLING='"temperature": 0.7, "top_k": 20, "top_p": 0.001' answers.sh {up|mpi} TP PP [ARGS...]
here=$(dirname "$0")
. "$here/lib.sh"
how=$1 tp=$2 pp=$3
shift 3
quantization=${QUANTIZATION:-none}
set -- --quantization "$quantization" "$@"
questions=$MODEL/questions.jsonl
sed 's/^{"prompt": *\("[^"]*"\).*/{"prompt": \1, '"${SAMPLING:-\"temperature\": 0}"', "max_tokens": 200}/' "$questions" >"$RUN/prompts.jsonl"
sed 's/.*"reference": *"\([^"]*\)".*/\1/' "$questions" >"$RUN/reference"
sed 's/.*"answer": *"\([^"]*\)".*/\1/' "$questions" >"$RUN/truth"
[ "$(wc -l <"$RUN/reference")" = 200 ] || fail "the questions are not 200"

if [ "$how" = up ]; then start_up -tp "$tp" -pp "$pp" "$@"; else start_mpi "$tp" "$pp" "$@"; fi
grep -q "quantization $quantization)" "$RUN/log" || fail "no worker says that its weights have quantization $quantization"
# What was planned is what is served: each rank's weights.
"$BIN/trireme" plan --model "$MODEL" -tp "$tp" -pp "$pp" "$@" | awk '/^ *[0-9]+ +[0-9]+ +[0-9]+ / { print $3, $2, $7 }' | sort >"$RUN/planned"
sed -n 's|.* tp \([0-9]*\)/.* pp \([0-9]*\)/[0-9]*: \([0-9.]*\) MiB weights.*|\1 \2 \3|p' "$RUN/log" | sort >"$RUN/served"
diff "$RUN/planned" "$RUN/served" >"$RUN/diff" && [ "$(wc -l <"$RUN/served")" = $((tp * pp)) ] || fail "planned and served weights differ: $(cat "$RUN/diff")"
"$BIN/trireme" submit --file "$RUN/prompts.jsonl" --output "$RUN/answers.jsonl" || fail "submit --file failed"
json_field text <"$RUN/answers.jsonl" >"$RUN/answers"
[ "$(wc -l <"$RUN/answers")" = 200 ] || fail "$(wc -l <"$RUN/answers") answers to 200 questions: $(head -c 300 "$RUN/answers.jsonl")"
# same FILE FILE: how many lines agree
same() { paste -d'\n' "$1" "$2" | awk 'NR % 2 { t = $0; next } t == $0 { n++ } END { print n + 0 }'; }
right=$(same "$RUN/truth" "$RUN/answers") equal=$(same "$RUN/reference" "$RUN/answers")
if [ "$quantization" = none ]; then
  diff "$RUN/reference" "$RUN/answers" >"$RUN/diff" || fail "answers differ from the reference: $(head -4 "$RUN/diff")"
  [ "$right" -ge 196 ] || fail "$right of 200 right"
else
  wanted=$(($(same "$RUN/truth" "$RUN/reference") - 2))
  [ "$right" -ge "$wanted" ] || fail "$right of 200 right, wanted are $wanted"
fi
# A prompt's log probabilities are those that its tokens had when they were drawn, in every layout and in pieces of a step.
scores_of() { # PATTERN ARGS...: of lines that match, the tokens' own
  "$BIN/trireme" submit --json --temperature 0 --token-ids "${@:2}" | grep "$1" | grep -o '{"id":[0-9]*,"logprob":[^,]*,"token"' | sed 's/.*logprob":\([^,]*\),.*/\1/'
}
ids=506,$(printf 'count 7 to 90=' | od -An -v -tu1 | tr -s ' \n' ',' | sed 's/^,//; s/,$//')
"$BIN/trireme" submit --json --temperature 0 --ignore-eos --max-tokens 60 --token-ids "$ids" | grep -o '"token_ids":\[[0-9,]*\]' | tr -dc '0-9,\n' | paste -sd, >"$RUN/drawn"
scores_of '"event":"tokens"' "$ids" --ignore-eos --max-tokens 60 --logprobs 0 >"$RUN/as_drawn"
scores_of '"of_prompt":true' "$ids,$(cat "$RUN/drawn")" --max-tokens 1 --prompt-logprobs 0 | tail -n 60 >"$RUN/scored"
[ "$(wc -l <"$RUN/as_drawn") $(wc -l <"$RUN/scored")" = "60 60" ] || fail "logprobs: $(wc -l <"$RUN/as_drawn") drawn and $(wc -l <"$RUN/scored") of a prompt"
paste "$RUN/as_drawn" "$RUN/scored" | awk '{ d = $1 - $2; if (d < -1e-4 || d > 1e-4) bad++; if ($1 < -0.01) unsure++ } END { exit bad > 0 || !unsure }' ||
  fail "logprobs of a prompt are not those of its draws: $(paste "$RUN/as_drawn" "$RUN/scored")"
if [ "$how" = up ]; then stop_cluster TERM; else stop_cluster USR1; fi
echo "$how tp $tp pp $pp $*: $right of 200 right, $equal as the reference"
