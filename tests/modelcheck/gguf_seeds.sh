#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# gguf_seeds.sh MODELCHECK CHECKPOINTS FIRST COUNT STEP: GGUF files of so many seeds (tests/models/mutate_gguf.py). What files may
# differ in changes no bit of the logits; a broken field is refused with its name, or that of what is wrong by it.
modelcheck=$1 checkpoints=$2 first=$3 count=$4 step=$5
here=$(dirname "$0") failed=0 right=0 refused=0
made=$(mktemp -d) || exit 1
trap 'rm -rf "$made"' EXIT

fail() {
  failed=$((failed + 1))
  echo "FAILED: seed $seed: $*"
}

bits() {
  "$modelcheck" --dtype float32 "$1" 2>&1 | sed -n "s/.*logits' bits //p"
}

python3 "$here/../models/mutate_gguf.py" "$checkpoints" "$made" "$first" "$count" "$step" || exit 1
for folder in "$made"/*; do
  seed=${folder##*/}
  { read -r kind name && read -r pattern; } <"$folder/expect"
  for at in "$folder" "$folder/twin"; do [ -d "$at" ] && ln -s "$checkpoints/$name/expected.safetensors" "$at/"; done
  if [ "$kind" = right ]; then
    one=$(bits "$folder") other=$(bits "$folder/twin")
    [ -n "$one" ] && [ "$one" = "$other" ] || fail "$name: bits ${one:-none}, of a plain file ${other:-none}"
    right=$((right + 1))
  else # modelcheck's exit code 3: it could not load the model
    out=$("$modelcheck" --dtype float32 "$folder" 2>&1)
    status=$?
    [ $status = 3 ] && echo "$out" | grep -Eq "$pattern" || fail "$name: exit code $status, no word of $pattern: $(echo "$out" | tail -n 3)"
    case $out in *Sanitizer* | *"runtime error"*) fail "$name: $out" ;; esac
    refused=$((refused + 1))
  fi
done
echo "$right are right, $refused are refused"
[ $((right + refused)) = "$count" ] || fail "of $count files"
exit $((failed != 0))
