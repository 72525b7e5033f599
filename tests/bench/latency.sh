#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What `trireme bench latency` says of a decoder and of an encoder; times are not looked at.
# Usage: latency.sh TRIREME CHECKPOINTS
set -u
trireme=$(realpath "$1") checkpoints=$(realpath "$2")
failures=0

shows() { # PATTERN OPTION...
  local pattern=$1 out
  shift
  out=$("$trireme" bench latency "$@" 2>&1)
  grep -q -- "$pattern" <<<"$out" || { echo "FAILED: bench latency $*: $out"; failures=$((failures + 1)); }
}
run=(--num-iters 2 --threads 1 --backend cpu --input-len)

shows '"prefill_ms":.*"prefill_ratio":.*"decode_ms":.*"decode_ratio":' --model "$checkpoints/llama" "${run[@]}" 8 --output-len 2 --json
shows 'decode 3 sequences.*floor .*(memory read, .*GB/s)' --model "$checkpoints/llama" "${run[@]}" 8 --output-len 2 --batch-size 3
shows '"input_len":8,"batch_size":3,"embed_ms":.*"embed_floor_ms":.*"embed_ratio":' --model "$checkpoints/bert" "${run[@]}" 8 --batch-size 3 --json
shows 'embed 3 x 8 tokens:.*floor' --model "$checkpoints/bert_odd" "${run[@]}" 8 --batch-size 3
# The default is what fits.
shows '"input_len":256,' --model "$checkpoints/bert" --num-iters 2 --threads 1 --backend cpu --json
shows '"input_len":100,' --model "$checkpoints/llama" --num-iters 2 --threads 1 --backend cpu --max-model-len 103 --output-len 2 --json
shows 'the limit is --max-model-len 3$' --model "$checkpoints/llama" --max-model-len 3 --output-len 3
shows 'the limit is the model.s [0-9]' --model "$checkpoints/bert" "${run[@]}" 4096
shows 'encoder-decoder' --model "$checkpoints/t5_plain" "${run[@]}" 8
exit $((failures > 0))
