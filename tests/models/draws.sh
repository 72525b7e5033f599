#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# draws.sh DRAW_WEIGHTS FIND_DRAWS DATA: what find_draws finds in checkpoints is what their weights.txt say, bits and doubled rows
# included, and a recipe that is wrong is refused.
draw=$1 find=$2 data=$3/checkpoints
for name in llama_bias albert_sequences t5_odd gpt2_bare seed_oss; do
  recipe=$data/$name/weights.txt
  "$find" "$data/$name" "$(sed -n 's/^seed //p' "$recipe")" | cmp - "$recipe" || exit 1
done
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
refused() { # SED-SCRIPT: what makes the recipe wrong
  sed "$1" "$data/llama_bias/weights.txt" >"$dir/weights.txt"
  "$draw" "$dir" 2>/dev/null
  [ $? = 1 ] && [ ! -e "$dir/model.safetensors" ] || { echo "not refused: $1"; exit 1; }
}
refused 's/^seed 1003/seed 1004/'
refused 's/ normal 0 0 0.6/ normal 0 0 0.600001/'
refused 's/ normal 0 0 0.6/ uniform 0 0 0.6/'
refused 's/ normal 0 0 0.6/ bits 00ff/'
refused 's/ normal 0 0 0.6/ bytes 0 255/'
refused 's/ normal 0 0 0.6/ order 0 32/'
refused 's/ normal 0 0 0.6/ normal 0 0 0.6 ends 1 -1 2/'
refused 's/^tensor F16 211,64/tensor F16 211,99999999999/'
"$draw" "$data/llama_bias" || exit 1
echo "recipes are found again, and wrong ones refused"
