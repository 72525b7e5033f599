#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The kernels of one step on a device, in their order, with the time of each by itself (ncu: caches are cold, and nothing overlaps).
#   kernels.sh FOLDER SHAPE [--layers N] [--batch-size N] [--input-len N] [--prompt] [-- OPTION...]
# FOLDER has the programs and the CUDA module. SHAPE is one of peers/run.sh's (8b, mixtral, qwen3-30b ...), of which so many layers (4) are
# made. The step is the last one that `trireme bench latency` takes, of 1 sequence behind 128 tokens; with --prompt the last prompt.
# OPTIONs go to bench latency.
set -euo pipefail
here=$(dirname "$(realpath "$0")") layers=4 batch=1 input=128 prompt=0
[[ $# -ge 2 && -d $1 ]] || { sed -n '3,7s/^# \{0,1\}//p' "$0" >&2; exit 2; }
bin=$(realpath "$1") shape=$2
shift 2
while [[ $# -gt 0 && $1 != -- ]]; do
  case $1 in
  --prompt) prompt=1 && shift && continue ;;
  --layers) layers=${2:?} ;;
  --batch-size) batch=${2:?} ;;
  --input-len) input=${2:?} ;;
  *) echo "kernels.sh: $1 is not known" >&2; exit 2 ;;
  esac
  shift 2
done
[[ $# = 0 ]] || shift
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$here/peers/run.sh" "$bin" --shapes "$work"
config=$work/$shape/config.json
[[ -f $config ]] || { echo "kernels.sh: no shape $shape" >&2; exit 2; }
sed -i "s/\"num_hidden_layers\":[0-9]*/\"num_hidden_layers\":$layers/" "$config"
ncu --clock-control none --graph-profiling node --metrics gpu__time_duration.sum --csv --target-processes all "$bin/trireme-bench-latency" --model "$work/$shape" \
  --load-format dummy --dtype bfloat16 --backend cuda --batch-size "$batch" --input-len "$input" --output-len 2 --num-iters 1 "$@" >"$work/csv"

# A step begins with the lookup of its tokens. Columns: ... name, context, stream, block, grid ... unit, value.
awk -F '","' -v prompt="$prompt" -v rows=$((batch * input)) '
  /^"[0-9]/ {
    if ($5 ~ /^embed_kernel/) { step++; grid = $9; gsub(/[^0-9,]/, "", grid); sub(/,.*/, "", grid); tokens[step] = grid }
    value = $NF; gsub(/[",]/, "", value)
    if ($(NF - 1) ~ /^n/) value /= 1000
    line[step, ++count[step]] = sprintf("%9.2f us  %-18s %-14s %s", value, $9, $8, substr($5, 1, 90)); sum[step] += value
  }
  END {
    for (s = step; s > 1 && prompt && tokens[s] != rows; s--);
    for (i = 1; i <= count[s]; i++) print line[s, i]
    printf "%9.2f us  %d kernels\n", sum[s], count[s]
  }' "$work/csv"
