#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# table.sh MODELCHECK CHECKPOINTS: runs modelcheck on every checkpoint under every layout and prints docs/models.md.
# table.sh --listed DOC CHECKPOINTS: whether DOC has a row for each of them.
if [ "$1" = --listed ]; then
  for dir in "$3"/*/; do
    grep -q "^| [^|]*| \`$(basename "$dir")\`" "$2" || { echo "$2 has no row for $(basename "$dir"): run tests/modelcheck/table.sh"; missing=1; }
  done
  exit ${missing:-0}
fi
modelcheck=$1 checkpoints=$2
ranks=$(dirname "$0")/../comm/ranks.sh
layouts="1x1 2x1 1x2 2x2 4x1"

cat <<'TEXT'
# Model families

Written by `tests/modelcheck/table.sh` from a run of modelcheck; not by hand. Each row is a small random checkpoint with what Hugging Face
transformers answers for it in float32 (`tests/data/checkpoints`): four prompts of 19, 7, 33 and 1 tokens, the logits at every position, the state
before every layer, and 24 greedy tokens each; of encoders the last state at every position, the pooled one, or the logits of the classes; of encoder-decoders
(which are not cut into stages) also the encoder's last states, 16 greedy tokens and three beam searches per source. The error is the worst normalised squared
error of the logits or states (the sum of squared differences over the sum of squared references) of all prompts, under each layout, tensor x pipeline parallel; a
layout is listed when it is at most 1e-11 and every greedy token and beam search is the reference's.

"Stored as" is the type of the weights, or the method by which they are quantized already.
Of such a checkpoint the reference has the widened weights.
These formats load, resident and streamed, in every layout, and `--quantization int8` rounds them while they are read:

| `quant_method` | weights | what is refused |
|---|---|---|
| `fp8`, `fbgemm_fp8` | FP8 e4m3 with a scale for each block (DeepSeek-V3: 128 x 128), row or matrix | e5m2 |
| `mxfp4` | gpt-oss's experts | |
| `compressed-tensors` | `float-quantized` FP8 by tensor, channel or block; `pack-quantized` integers of 4 or 8 bits by channel or group, with or without zero points and `weight_g_idx`; `int-quantized` int8 | other numbers of bits, FP4, sparsity, rotations (`transform_config`), weights that are not compressed yet |
| `gptq` | 4 or 8 bits, `checkpoint_format` gptq and gptq_v2, any `group_size`, `desc_act` | 2 and 3 bits, Marlin's packing |
| `awq` | 4 bits, version gemm | gemv and others |

A layer that its release left as it was (`modules_to_not_convert`, `ignore`) has plain tensors, and is read as such.
GGUF files, bitsandbytes and all other methods are refused with the way out.

| family | checkpoint | stored as | worst error | greedy tokens | beam searches | layouts (tp x pp) that are right |
|---|---|---|---|---|---|---|
TEXT
failed=0
for dir in "$checkpoints"/*/; do
  name=$(basename "$dir")
  family=$(sed -n 's/.*"model_type": *"\([^"]*\)".*/\1/p' "$dir/config.json" | head -n 1)
  stored=$(sed -n 's/.*"\(torch_\)\{0,1\}dtype": *"\([^"]*\)".*/\2/p' "$dir/config.json" | head -n 1)
  method=$(sed -n 's/.*"quant_method": *"\([^"]*\)".*/\1/p' "$dir/config.json" | head -n 1)
  stored=${method:-$stored}
  worst=0 right='' tokens='' beams=''
  for layout in $layouts; do
    tp=${layout%x*} pp=${layout#*x}
    out=$("$ranks" $((tp * pp)) 60 "$modelcheck" -tp "$tp" -pp "$pp" "$dir" 2>&1)
    verdict=$(printf '%s\n' "$out" | grep '^RIGHT\|^WRONG')
    error=$(printf '%s\n' "$verdict" | sed -n 's/.*worst nmse \([^ ]*\).*/\1/p')
    [ -n "$error" ] && worst=$(printf '%s\n%s\n' "$worst" "$error" | sort -g | tail -n 1)
    case $verdict in
    RIGHT*) right="$right $layout" ;;
    *) printf '%s\n' "$out" | grep -q 'an encoder-decoder is not cut into stages' || failed=1 ;;
    esac
    [ $layout = 1x1 ] && tokens=$(printf '%s\n' "$out" | sed -n 's/.*greedy \([0-9]*\) of \([0-9]*\).*/\1 \2/p' | awk '{ a += $1; b += $2 } END { print b ? a " of " b : "-" }')
    [ $layout = 1x1 ] && beams=$(printf '%s\n' "$out" | sed -n 's/.*searches \([0-9]*\) of \([0-9]*\).*/\1 \2/p' | awk '{ a += $1; b += $2 } END { print b ? a " of " b : "-" }')
  done
  echo "| $family | \`$name\` | $stored | $worst | $tokens | $beams |$right |"
done
exit $failed
