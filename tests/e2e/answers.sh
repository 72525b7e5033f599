#!/usr/bin/env bash
# The bundled model's 200 held-out questions under a layout: at least 98% right, and exactly the reference's answers.
#   answers.sh {up|mpi} TP PP [ARGS...]
here=$(dirname "$0")
. "$here/lib.sh"
how=$1 tp=$2 pp=$3
shift 3
questions=$MODEL/questions.jsonl
sed 's/^{"prompt": *\("[^"]*"\).*/{"prompt": \1, "temperature": 0, "max_tokens": 200}/' "$questions" >"$RUN/prompts.jsonl"
sed 's/.*"reference": *"\([^"]*\)".*/\1/' "$questions" >"$RUN/reference"
sed 's/.*"answer": *"\([^"]*\)".*/\1/' "$questions" >"$RUN/truth"
[ "$(wc -l <"$RUN/reference")" = 200 ] || fail "the questions are not 200"

if [ "$how" = up ]; then start_up -tp "$tp" -pp "$pp" "$@"; else start_mpi "$tp" "$pp" "$@"; fi
"$BIN/trireme" submit --file "$RUN/prompts.jsonl" --output "$RUN/answers.jsonl" || fail "submit --file failed"
json_field text <"$RUN/answers.jsonl" >"$RUN/answers"
[ "$(wc -l <"$RUN/answers")" = 200 ] || fail "$(wc -l <"$RUN/answers") answers to 200 questions: $(head -c 300 "$RUN/answers.jsonl")"
diff "$RUN/reference" "$RUN/answers" >"$RUN/diff" || fail "answers differ from the reference: $(head -4 "$RUN/diff")"
right=$(paste -d'\n' "$RUN/truth" "$RUN/answers" | awk 'NR % 2 { t = $0; next } t == $0 { n++ } END { print n + 0 }')
[ "$right" -ge 196 ] || fail "$right of 200 right"
if [ "$how" = up ]; then stop_cluster TERM; else stop_cluster USR1; fi
echo "$how tp $tp pp $pp $*: $right of 200 right, all as the reference"
