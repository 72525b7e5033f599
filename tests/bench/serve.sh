#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What users of a served model see on this machine's devices: a line for each figure of docs/performance.md's table of experts.
#   serve.sh FOLDER OUT [--shapes "mixtral qwen3-30b gpt-oss-20b v2-lite 8b"] [--sequences "1 8 32"] [--prompts "128 2048"]
#            [--together "2048"] [--load N] [--rounds N] [-- OPTION...]
# FOLDER has the programs and the CUDA module. Each shape is served by `trireme up` with random weights, and measured by `trireme bench
# serve`: a token of so many sequences (prompts of 128 random tokens, 128 tokens out) and how many experts they choose, the first token of
# a prompt alone and of eight at once (--together), and N (256; 0: none) requests at once, which are those of `batching_bench`:
# prompts of 32 to 1,024 tokens, answers of 16 to 512. Each round (2) is a line. OUT gets the JSON of bench serve. OPTIONs go to `trireme up`; BACKEND (cuda) and SHAPES, a folder with a config.json in a
# folder for each shape instead of those of peers/run.sh, are taken from the environment.
set -uo pipefail
here=$(dirname "$(realpath "$0")")
shapes="mixtral qwen3-30b gpt-oss-20b v2-lite 8b" sequences="1 8 32" prompts="128 2048" together='' load=256 rounds=2 backend=${BACKEND:-cuda}
[[ $# -ge 2 && -d $1 ]] || { sed -n '3,12s/^# \{0,1\}//p' "$0" >&2; exit 2; }
bin=$(realpath "$1") out=$(realpath "$2")
shift 2
while [[ $# -gt 1 && $1 != -- ]]; do
  case $1 in
  --shapes) shapes=$2 ;;
  --sequences) sequences=$2 ;;
  --prompts) prompts=$2 ;;
  --together) together=$2 ;;
  --load) load=$2 ;;
  --rounds) rounds=$2 ;;
  *) break ;;
  esac
  shift 2
done
[[ ${1:---} = -- ]] || { echo "serve.sh: $1 is not known, or has no value" >&2; exit 2; }
[[ $# = 0 ]] || shift
# shellcheck source=/dev/null
. "$here/up.sh"
# shellcheck disable=SC2154 # work is of up.sh
[[ -d ${SHAPES:-} ]] || { SHAPES=$work; "$here/peers/run.sh" "$bin" --shapes "$work" || exit 1; }

# Draws numbers as the benchmarks do (splitmix64): number = the next one, below LIMIT.
state=0
draw() { # LIMIT
  local z=$((state += 0x9E3779B97F4A7C15))
  z=$(((z ^ (z >> 30 & 0x3FFFFFFFF)) * 0xBF58476D1CE4E5B9))
  z=$(((z ^ (z >> 27 & 0x1FFFFFFFFF)) * 0x94D049BB133111EB))
  z=$((z ^ (z >> 31 & 0x1FFFFFFFF)))
  number=$((((z >> 1 & 0x7FFFFFFFFFFFFFFF) % $1 * 2 + (z & 1)) % $1))
}

requests() { # NUMBER VOCABULARY
  local ids=() ins=() outs=() i
  state=0
  for ((i = 0; i < $1; i++)); do
    draw 993 && ins[i]=$((32 + number))
    draw 497 && outs[i]=$((16 + number))
  done
  for ((i = 0; i < $1 + 1024; i++)); do draw "$2" && ids[i]=$number; done
  for ((i = 0; i < $1; i++)); do
    (IFS=,; echo "{\"token_ids\":[${ids[*]:i:ins[i]}],\"max_tokens\":${outs[i]},\"ignore_eos\":true,\"temperature\":0}")
  done
}

measure() { # WHAT FIELD UNIT ARG...
  local what=$1 field=$2 unit=$3 json
  shift 3
  if ! json=$("$bin/trireme" bench serve --no-floors --json "$@" 2>"$work/complaint"); then
    echo "$shape, $what: FAILED: $(tail -n 2 "$work/complaint")"
    failed=1
    return
  fi
  echo "{\"shape\":\"$shape\",\"what\":\"$what\",${json#\{}" >>"$out"
  printf '%s, %s: %.3f %s\n' "$shape" "$what" "$(sed -n "s/.*\"$field\":\([0-9.]*\).*/\1/p" <<<"$json")" "$unit"
}

# The rows that each expert has had so far, a line for each layer.
rows_of_experts() {
  "$bin/trireme" status --experts 2>/dev/null | awk '/"rows":/ { found = 1; next } found { gsub(/[][}]/, ""); sub(/,$/, ""); print }'
}

# How many experts of a layer that many tokens choose, as the rows between two counts have it: each token by itself.
distinct() { # TOKENS BEFORE AFTER
  awk -F, -v n="$1" -v k="$top_k" '
    NR == FNR { for (i = 1; i <= NF; i++) was[FNR, i] = $i; next }
    {
      sum = 0
      for (i = 1; i <= NF; i++) sum += $i - was[FNR, i]
      for (i = 1; i <= NF && sum > 0; i++) all += 1 - (1 - ($i - was[FNR, i]) * k / sum) ^ n
      layers++
    }
    END { if (layers) printf "%.1f", all / layers }' "$2" "$3"
}

for shape in $shapes; do
  start "$shape" --model "$SHAPES/$shape" --load-format dummy --dtype bfloat16 --backend "$backend" --max-model-len 8320 --max-num-seqs 256 "$@" || continue
  vocabulary=$(tr -d ' \n' <"$SHAPES/$shape/config.json" | sed -n 's/.*"vocab_size":\([0-9]*\).*/\1/p')
  top_k=$(tr -d ' \n' <"$SHAPES/$shape/config.json" | sed -n 's/.*"num_experts_per_tok":\([0-9]*\).*/\1/p')
  for n in $sequences; do
    "$bin/trireme" bench serve --no-floors --num-prompts "$n" --max-concurrency "$n" --random-output-len 8 --seed 5 >/dev/null 2>&1
    rows_of_experts >"$work/before"
    for ((round = 0; round < rounds; round++)); do
      measure "a token of $n sequences" median_tpot_ms ms --num-prompts "$n" --max-concurrency "$n" --seed $((7 + round))
    done
    rows_of_experts >"$work/after"
    [[ -z $top_k ]] || echo "$shape, experts of a layer that $n tokens choose: $(distinct "$n" "$work/before" "$work/after")"
  done
  for n in $prompts; do
    measure "prompt of $n" median_ttft_ms ms --num-prompts 8 --max-concurrency 1 --random-input-len "$n" --random-output-len 1
  done
  for n in $together; do
    measure "8 prompts of $n at once" duration s --num-prompts 8 --max-concurrency 8 --random-input-len "$n" --random-output-len 1
  done
  for ((round = 0; round < rounds && load > 0; round++)); do
    [[ -f $work/$vocabulary ]] || requests "$load" "$vocabulary" >"$work/$vocabulary"
    measure "$load requests at once" duration s --num-prompts "$load" --prompt-file "$work/$vocabulary" --random-output-len 512
  done
  stop
done
exit $failed
