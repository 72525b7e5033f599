#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# An encoder's throughput against the rate of requests, for several ways to make batches of texts: the figure of section 6.3 of
# TurboTransformers (Fang et al., PPoPP 2021).
#   encoder_batching.sh FOLDER OUT [--model DIR] [--strategies "packed dp-hungry dp-lazy naive none"] [--rates "50,100,..."] [--seconds N]
#                       [--distribution NAME] [--min-len N] [--max-len N] [--seed N] [--title TEXT] [-- OPTION...]
# FOLDER has the programs. Each strategy is served by `trireme up` with random weights, and measured by `trireme bench serve` at each rate
# for N (10) seconds of Poisson arrivals, the same ones for each strategy, with lengths of that distribution (uniform) from 5 to 500
# tokens. Without --model it is BERT-base where there is a device, and else BERT-mini. OPTIONs go to `trireme up`.
# The folder OUT gets lines.jsonl, the JSON of bench serve with the strategy; table.md; figure.svg.
# STRATEGY_OPTION (--encoder-batching) is taken from the environment; empty: `up` is not told of strategies, which all are the same then.
set -uo pipefail
here=$(dirname "$(realpath "$0")")
strategies="packed dp-hungry dp-lazy naive none" rates='' seconds=10 distribution=uniform min=5 max=500 seed=0 model='' title=''
[[ $# -ge 2 && -d $1 ]] || { sed -n '3,13s/^# \{0,1\}//p' "$0" >&2; exit 2; }
mkdir -p "$2" || exit 1
bin=$(realpath "$1") out=$(realpath "$2") strategy_option=${STRATEGY_OPTION---encoder-batching}
shift 2
while [[ $# -gt 1 && $1 != -- ]]; do
  case $1 in
  --model) model=$(realpath "$2") ;;
  --strategies) strategies=$2 ;;
  --rates) rates=$2 ;;
  --seconds) seconds=$2 ;;
  --distribution) distribution=$2 ;;
  --min-len) min=$2 ;;
  --max-len) max=$2 ;;
  --seed) seed=$2 ;;
  --title) title=$2 ;;
  *) break ;;
  esac
  shift 2
done
[[ ${1:---} = -- ]] || { echo "encoder_batching.sh: $1 is not known, or has no value" >&2; exit 2; }
[[ $# = 0 ]] || shift
# shellcheck source=/dev/null
. "$here/up.sh"

# The shapes of BERT-base, and of BERT-mini (Turc et al. 2019).
# shellcheck disable=SC2154 # work is of up.sh
if [[ -z $model ]] && nvidia-smi -L >/dev/null 2>&1; then
  "$here/peers/run.sh" "$bin" --shapes "$work" || exit 1
  model=$work/bert name=BERT-base rates=${rates:-100,200,400,600,800,1200,1600,2400,3200}
elif [[ -z $model ]]; then
  model=$work/bert-mini name=BERT-mini
  mkdir "$model"
  echo '{"architectures":["BertModel"],"model_type":"bert","hidden_size":256,"num_hidden_layers":4,"num_attention_heads":4,
    "intermediate_size":1024,"vocab_size":30522,"max_position_embeddings":512,"type_vocab_size":2,"hidden_act":"gelu","pad_token_id":0}' \
    >"$model/config.json"
else
  name=$(basename "$model")
fi
rates=${rates:-10,20,40,60,80,100,150,200}
title=${title:-$name, texts of $min to $max tokens ($distribution)}

lengths=(--input-len-distribution "$distribution" --min-input-len "$min" --max-input-len "$max")
load() { # OPTION...
  "$bin/trireme" bench serve --no-floors --json --seed "$seed" "${lengths[@]}" "$@" 2>"$work/complaint"
}

: >"$out/lines.jsonl"
for strategy in $strategies; do
  start "$strategy" --model "$model" --load-format dummy --max-queue 1048576 --max-queue-bytes 8G ${strategy_option:+"$strategy_option" "$strategy"} "$@" >&2 || continue
  load --num-prompts 64 >/dev/null # buffers, graphs and whatever else comes with the first texts
  if ! load --request-rates "$rates" --load-seconds "$seconds" | sed -u "s/^{/{\"strategy\":\"$strategy\",/" | tee -a "$out/lines.jsonl" >"$work/lines"; then
    echo "$strategy: $(tail -n 2 "$work/complaint")" >&2
    failed=1
  fi
  sed -n 's/.*"request_rate":\([0-9.]*\).*"request_throughput":\([0-9.]*\).*"mean_e2el_ms":\([0-9.]*\).*"p99_e2el_ms":\([0-9.]*\).*/\1 \2 \3 \4/p' "$work/lines" |
    while read -r rate throughput mean p99; do
      printf '%s, %s /s: %.1f answered /s, mean %.1f ms, p99 %.1f ms\n' "$strategy" "$rate" "$throughput" "$mean" "$p99"
    done
  stop
done

# A row for each strategy and a column for each rate.
awk -v title="$title" '
  function value(field, text) {
    if (!match($0, "\"" field "\":[^,}]*")) return ""
    text = substr($0, RSTART + length(field) + 3, RLENGTH - length(field) - 3)
    gsub(/"/, "", text)
    return text
  }
  value("request_rate") != "" {
    strategy = value("strategy")
    rate = value("request_rate")
    if (!(strategy in known)) { known[strategy] = 1; strategies[++num_strategies] = strategy }
    if (!(rate in column)) { column[rate] = 1; rates[++num_rates] = rate }
    cell[strategy, rate] = sprintf("%.1f%s (%.1f, %.1f)", value("request_throughput"), value("saturated") == "true" ? "\\*" : "",
      value("mean_e2el_ms"), value("p99_e2el_ms"))
  }
  END {
    printf "%s: requests answered per second (mean and 99th percentile of their latency in ms) at each rate of arrivals.\n", title
    printf "\\*: saturated, answers came at less than 95 %% of the rate of arrivals.\n\n| strategy |"
    for (r = 1; r <= num_rates; r++) printf " %s /s |", rates[r]
    printf "\n|---|"
    for (r = 1; r <= num_rates; r++) printf "---|"
    for (s = 1; s <= num_strategies; s++) {
      printf "\n| %s |", strategies[s]
      for (r = 1; r <= num_rates; r++) printf " %s |", cell[strategies[s], rates[r]]
    }
    print ""
  }' "$out/lines.jsonl" >"$out/table.md" || failed=1
[[ ! -s $out/lines.jsonl ]] && exit 1
"$here/../../scripts/plot_lines.py" "$out/lines.jsonl" --x offered_rate --y request_throughput --series strategy --title "$title" \
  --x-label "request rate" --x-unit "requests/s" --y-label "response throughput" --y-unit "responses/s" --diagonal "all answered" \
  --output "$out/figure.svg" || failed=1
exit $failed
