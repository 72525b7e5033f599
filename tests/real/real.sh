#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Real weights (scripts/real-models.sh) against answers of transformers in float32 (tests/real/make_references.py).
#   real.sh MODEL WHAT     MODEL: smollm2, gemma3
#     short     some prompts on one rank; skipped unless the model is in the cache
#     answers   30 prompts one at a time and together, a text's perplexity, the whole context, where answers end
#     layouts   the same tokens over tensor, pipeline and data-parallel ranks, and with weights from the file in every step
#     chats     20 turns with and without the prefix cache, 32 requests at once and alone to the bit, a worker that is killed
# Skipped (77) where there is no network and no cached model. The references of SmolLM2 are tests/real/MODEL.json; those of Gemma,
# which are not in the project, are made first, with the Python of REFERENCE_PYTHON, and kept beside the cached model. Without it
# `answers` is skipped, and layouts are compared with one rank.
here=$(realpath "$(dirname "$0")")
. "$here/../fault/lib.sh"
name=$1 what=$2
skip() {
  echo "SKIPPED: $*"
  exit 77
}
fetch=("$SRC/scripts/real-models.sh" "$name")
[ "$what" = short ] && fetch+=(--cached)
MODEL=$("${fetch[@]}" 2>"$RUN/fetch")
case $? in
0) ;;
77) skip "$(tail -n 1 "$RUN/fetch")" ;;
*) fail "$(cat "$RUN/fetch")" ;;
esac

# check WHAT ARGS...
check() { python3 "$here/check.py" "$@" --url "$url" || fail "$name: $layout: check.py $*"; }
# serve LAYOUT [ARGS...]: with float32 weights, as the references have them; sets url.
serve() {
  layout=$1
  : >"$RUN/log"
  start_up --dtype float32 --http 127.0.0.1:0 "${@:2}"
  until_holds "no gateway" grep -q 'gateway: http' "$RUN/log"
  url=$(sed -n 's|.*gateway: \(http://127.0.0.1:[0-9]*\)$|\1|p' "$RUN/log")
}

# Sets ref; without references it is what one rank answers.
references() {
  ref=$here/$name.json
  [ -e "$ref" ] && return
  ref=${MODEL%.gguf}.references.json
  [ -e "$ref" ] && return
  if [ -n "${REFERENCE_PYTHON-}" ]; then
    "$REFERENCE_PYTHON" "$here/make_references.py" "$name" "$MODEL" "$ref" >"$RUN/made" 2>&1 || fail "make_references.py: $(tail -n 3 "$RUN/made")"
    return
  fi
  ref=
}

short() {
  references
  [ -n "$ref" ] || skip "there are no references of $name"
  serve "one rank"
  check answers "$ref" --only chat_river,code_c,digits,sums,german,mixed,one_word --tokens 16 --parallel 8
  stop_cluster TERM
}

answers() {
  references
  [ -n "$ref" ] || skip "there are no references of $name: REFERENCE_PYTHON names a Python with torch and transformers to make them with"
  serve "one rank"
  check answers "$ref"
  check answers "$ref" --parallel 32 --no-tokenizer
  if [ "$name" = smollm2 ]; then check ends "$ref" --must-stop; else check ends "$ref"; fi
  check context "$ref"
  stop_cluster TERM
}

layouts() {
  references
  if [ -z "$ref" ]; then
    serve "one rank"
    ref=$RUN/recorded.json
    check record "$ref" --model "$name" --parallel 8
    stop_cluster TERM
  fi
  local tensor=3
  [ "$name" = smollm2 ] || tensor=4 # query heads 9 over 3, and 4 over 1
  serve "tensor parallel $tensor" -tp $tensor
  check answers "$ref" --parallel 8 --no-tokenizer
  stop_cluster TERM
  serve "pipeline parallel 2" -pp 2
  check answers "$ref" --parallel 8 --no-tokenizer
  stop_cluster TERM
  serve "data parallel 2" -dp 2
  check answers "$ref" --parallel 8 --no-tokenizer
  stop_cluster TERM
  mkdir "$RUN/packs" # blocks of 4 bits are no float32 weights: a pack of these is written first
  serve "streamed" --gpu-layers 0 --nvme-path "$RUN/packs"
  [ -n "$(find "$RUN/packs" -size +1M)" ] || fail "no pack was written: the weights are not streamed"
  check answers "$ref" --parallel 16 --no-tokenizer
  stop_cluster TERM
}

# The same answers to the bit, however their prompts are computed.
chats() {
  serve "prefix cache" --deterministic
  check turns "$RUN/with.json" | tee "$RUN/said"
  grep -q 'from the prefix cache: [1-9]' "$RUN/said" || fail "nothing came from the prefix cache"
  check same --parallel 32 --tokens 32
  stop_cluster TERM
  serve "no prefix cache" --deterministic --no-enable-prefix-caching
  check turns "$RUN/without.json" | tee "$RUN/said"
  grep -q 'from the prefix cache: 0$' "$RUN/said" || fail "something came from a prefix cache that is off"
  cmp -s "$RUN/with.json" "$RUN/without.json" || fail "the turns differ without the prefix cache: $(diff "$RUN/with.json" "$RUN/without.json" | head -5)"
  stop_cluster TERM
  [ "$name" = smollm2 ] || return 0 # a base model has no chat template
  killed
}

# A rank of two is killed while an answer is streamed: the stream goes on where it was, to the same end.
killed() {
  local epoch before
  serve "two ranks" -pp 2
  check stream "$RUN/whole" --tokens 60
  epoch=$(epoch_of 0)
  before=$(replayed)
  hold_steps
  python3 "$here/check.py" stream "$RUN/streamed" --url "$url" --tokens 60 2>"$RUN/stream.err" &
  local reader=$!
  until_holds "the stream does not begin: $(cat "$RUN/stream.err")" test -s "$RUN/streamed"
  kill -9 "$(rank_pid 0 1)"
  until_lost "$(now_ms)" "$epoch"
  release_steps
  wait $reader || fail "the stream: $(cat "$RUN/stream.err")"
  cmp -s "$RUN/whole" "$RUN/streamed" || fail "the stream says something else after the fault: $(cat "$RUN/streamed")"
  [ $(($(replayed) - before)) = 1 ] || fail "the request was not run again: the fault came too late"
  echo "a worker was killed under a chat: the same $(wc -c <"$RUN/whole") bytes"
  stop_cluster TERM
}

case $what in
short | answers | layouts | chats) $what ;;
*) fail "real.sh MODEL short|answers|layouts|chats" ;;
esac
