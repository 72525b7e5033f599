#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What `trireme bench load` says, by every way of reading; times are not looked at.
# Usage: load.sh TRIREME CHECKPOINTS
set -u
trireme=$(realpath "$1") checkpoints=$(realpath "$2")
failures=0

shows() { # EXIT PATTERN OPTION...
  local code=$1 pattern=$2 out got
  shift 2
  out=$("$trireme" bench load "$@" 2>&1)
  got=$?
  if [[ $got != "$code" ]] || ! grep -q -- "$pattern" <<<"$out"; then
    echo "FAILED: bench load $*: exit code $got: $out"
    failures=$((failures + 1))
  fi
}
run=(--num-iters 2 --threads 2 --backend cpu --model)

shows 0 '"read_bytes":[1-9].*"bytes_per_s":[1-9].*"floor_bytes_per_s":[1-9].*"ratio":' "${run[@]}" "$checkpoints/llama" --json
shows 0 '^load: .*GB/s' "${run[@]}" "$checkpoints/llama_odd"
shows 0 '^floor: .*GB/s.*ratio' "${run[@]}" "$checkpoints/llama_odd" -tp 2
shows 0 'threads, 3 reads of 1 MiB' "${run[@]}" "$checkpoints/gpt2" --io threads --queue-depth 3 --piece-size 1
shows 0 'through the page cache' "${run[@]}" "$checkpoints/gpt2" --no-direct
shows 0 '"floor_bytes"' "${run[@]}" "$checkpoints/mixtral_odd" --quantization int8 --dtype float32 --json
shows 3 'encoder-decoder' "${run[@]}" "$checkpoints/t5_plain"
shows 3 'neither model.safetensors' "${run[@]}" "$checkpoints/../configs/llama-100m"
shows 2 'model is missing' --num-iters 1
shows 0 'Usage: trireme bench load' --help
exit $((failures > 0))
