#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What docs/performance.md says of `memory_bench`, for the lengths of seed 0, and how it is used.
# Usage: memory.sh MEMORY_BENCH CHECKPOINTS
set -u
bench=$(realpath "$1") checkpoints=$(realpath "$2")
failures=0 json=

fail() {
  echo "FAILED: $*"
  failures=$((failures + 1))
}
measure() { # OPTION...
  what="memory_bench $*"
  json=$("$bench" --json "$@") || fail "$what: exit code $?"
}
total() { sed -n "s/.*\"$1\":\([0-9.]*\).*/\1/p" <<<"$json"; }
value() { sed -n "s/.*\"name\":\"$1\",[^}]*\"$2\":\([0-9.]*\).*/\1/p" <<<"$json"; }
want() { # EXPRESSION of awk
  awk "BEGIN { exit !($1) }" || fail "$what: $1"
}
refused() { # CODE PATTERN OPTION...
  local code=$1 pattern=$2 out got
  shift 2
  out=$("$bench" "$@" 2>&1)
  got=$?
  if [[ $got != "$code" ]] || ! grep -q -- "$pattern" <<<"$out"; then fail "memory_bench $*: exit code $got: $out"; fi
}

for batch in 1 8 32; do
  measure --batch $batch
  floor=$(total floor_peak_bytes)
  for name in chunks chunks_paper caching greedy_grow greedy_exact; do
    want "$(value $name peak_bytes) >= $floor && $(value $name mean_bytes) >= $(total floor_mean_bytes)"
  done
  want "$(value chunks peak_bytes) <= 1.3 * $(value greedy_exact peak_bytes)"
  want "$(value chunks peak_bytes) < $(value chunks_paper peak_bytes)"
  want "$(total arena_bytes) >= $floor && $(total arena_bytes) < 0.6 * $(total apart_bytes)"
  want "$(value chunks peak_bytes) < $(value caching peak_bytes)"
  for name in chunks_paper caching greedy_grow greedy_exact; do
    want "$(value chunks alloc_bytes) < $(value $name alloc_bytes)"
  done
  # Released soon, chunks follow the lengths: less is held on average, and more is asked for.
  kept=$(value chunks mean_bytes) asked=$(value chunks alloc_bytes)
  measure --batch $batch --release-after 2
  want "$(value chunks mean_bytes) < $kept && $(value chunks alloc_bytes) > $asked"
done

measure --min-len 100 --max-len 100 --batch 4 --requests 50
for name in chunks chunks_paper caching greedy_grow greedy_exact; do
  want "$(value $name allocs) <= 3 && $(value $name frees) == 0"
done
want "$(total arena_bytes) == $(total floor_peak_bytes)"

measure --requests 20 --seed 1
counts=$(sed 's/,"plan_us[^}]*//g' <<<"$json")
measure --requests 20 --seed 1
[[ $counts == "$(sed 's/,"plan_us[^}]*//g' <<<"$json")" ]] || fail "the same seed gives other counts"
measure --requests 20 --seed 2
[[ $counts != "$(sed 's/,"plan_us[^}]*//g' <<<"$json")" ]] || fail "the seed changes nothing"

for model in bert albert distilbert_tokens t5_odd marian_odd; do
  measure --model "$checkpoints/$model" --max-len 60 --requests 20
  want "$(value chunks peak_bytes) >= $(total floor_peak_bytes)"
done

refused 2 'min-len 9 is above' --min-len 9 --max-len 5
refused 2 'batch' --batch 0
refused 3 '--max-len 600 exceeds the model.s 512 positions' --max-len 600
refused 3 'a decoder' --model "$checkpoints/llama"
refused 3 'no folder' --model /nonexistent
refused 0 'Usage: memory_bench' --help
exit $((failures > 0))
