#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What `trireme bench stream` says, of weights from a checkpoint as it is and from a pack; times are not looked at.
# Usage: stream.sh TRIREME CHECKPOINTS
set -u
trireme=$(realpath "$1") checkpoints=$(realpath "$2")
packs=$(mktemp -d) || exit 1
trap 'rm -rf "$packs"' EXIT
failures=0

shows() { # EXIT PATTERN OPTION...
  local code=$1 pattern=$2 out got
  shift 2
  out=$("$trireme" bench stream "$@" 2>&1)
  got=$?
  if [[ $got != "$code" ]] || ! grep -q -- "$pattern" <<<"$out"; then
    echo "FAILED: bench stream $*: exit code $got: $out"
    failures=$((failures + 1))
  fi
}
run=(--num-iters 2 --threads 1 --backend cpu --gpu-layers 0 --model)

shows 0 '"file_bytes":[1-9][0-9]*,"host_memory_bytes":0,"source":"checkpoint","prompts":false,"step_s":.*"reader_s":.*"compute_s":[0-9.e-]*,"floor_s":.*"ratio":' "${run[@]}" "$checkpoints/llama" --json
shows 0 '^step of 3 sequences: .* s   waits for weights .* tokens/s$' "${run[@]}" "$checkpoints/llama" --batch-size 3 --input-len 5
shows 0 '^step of 3 prompts: .* tokens/s$' "${run[@]}" "$checkpoints/llama" --batch-size 3 --input-len 5 --prompts
shows 0 '"prompts":true,"step_s":' "${run[@]}" "$checkpoints/llama" --batch-size 2 --input-len 40 --prompts --json
shows 0 '^  from files: .* GB/s (the checkpoint)$' "${run[@]}" "$checkpoints/llama"
shows 0 '^floor, the bare reader: .* GB/s' "${run[@]}" "$checkpoints/llama"
shows 0 '"source":"pack"' "${run[@]}" "$checkpoints/gpt2" --nvme-path "$packs" --json
shows 0 '^verified: [1-9][0-9]* parts, 2 times, [0-9.]* MB from the checkpoint$' "${run[@]}" "$checkpoints/llama" --verify
shows 0 '"verified":true,.*"source":"pack"' "${run[@]}" "$checkpoints/gpt2" --nvme-path "$packs" --verify --json
mkdir "$packs/a" "$packs/b"
shows 0 '"verified":true,.*"source":"pack"' "${run[@]}" "$checkpoints/gpt2" --nvme-path "$packs/b,$packs/a" --verify --json
shows 0 '^  from files: .* GB/s (the pack .*/a/[^/]*\.pack, in 2 folders)$' "${run[@]}" "$checkpoints/gpt2" --nvme-path "$packs/a,$packs/b"
shows 3 "there is no folder $packs/none for packs" "${run[@]}" "$checkpoints/gpt2" --nvme-path "$packs/a,$packs/none"
# Two shards of a group, which read for each other what they stream.
out=$("$(dirname "$0")/../comm/ranks.sh" 2 60 "$(dirname "$trireme")/trireme-bench-stream" "${run[@]}" "$checkpoints/llama" -dp 2 --replicas 1 --json 2>&1)
got=$?
[[ $got = 77 ]] || grep -q '"ranks":2,"peer_bytes":[1-9][0-9]*,"link_s":0,"reader_s":.*"ratio":' <<<"$out" || { echo "FAILED: two shards: $out" && failures=$((failures + 1)); }
# Two slices of every layer, each from a pack of its own.
mkdir "$packs/slices"
out=$("$(dirname "$0")/../comm/ranks.sh" 2 60 "$(dirname "$trireme")/trireme-bench-stream" "${run[@]}" "$checkpoints/llama" -tp 2 --nvme-path "$packs/slices" --json 2>&1)
got=$?
[[ $got = 77 ]] || grep -q '"source":"pack",.*"ranks":2,"peer_bytes":0,.*"ratio":' <<<"$out" || { echo "FAILED: two slices: $out" && failures=$((failures + 1)); }
# One bit of a part that lies in the pack's middle: no run goes on with it, and the next one makes the pack anew.
pack=$(echo "$packs"/*.pack) at=$(($(stat -c %s "$packs"/*.pack) / 2))
byte=$(od -An -tu1 -j "$at" -N 1 "$pack")
printf "\\x$(printf %x $((byte ^ 1)))" | dd of="$pack" bs=1 seek="$at" conv=notrunc 2>/dev/null
shows 1 '\.pack is damaged: the [0-9]* bytes at [0-9]*, of part' "${run[@]}" "$checkpoints/gpt2" --nvme-path "$packs" --verify
pack=$(echo "$packs"/b/*.pack)
printf 'damage' | dd of="$pack" bs=1 seek=$((2 * 1024 * 1024)) conv=notrunc 2>/dev/null
shows 1 '/b/[^/]*\.pack is damaged: the [0-9]* bytes at [0-9]*, of part' "${run[@]}" "$checkpoints/gpt2" --nvme-path "$packs/a,$packs/b" --verify
[[ ! -e $pack && -e $(echo "$packs"/a/*.pack) ]] || { echo "FAILED: not the damaged file alone is gone" && failures=$((failures + 1)); }
shows 0 '"verified":true' "${run[@]}" "$checkpoints/gpt2" --nvme-path "$packs/a,$packs/b" --verify --json
shows 2 'all weights stay in memory' --threads 1 --backend cpu --model "$checkpoints/llama"
shows 2 'can only be 1' "${run[@]}" "$checkpoints/llama" -tp 2
shows 3 'only the weights of decoders' "${run[@]}" "$checkpoints/t5_plain"
shows 2 'model is missing' --num-iters 1
shows 0 'Usage: trireme bench stream' --help
exit $((failures > 0))
