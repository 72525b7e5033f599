#!/bin/sh
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

| family | checkpoint | stored as | worst error | greedy tokens | beam searches | layouts (tp x pp) that are right |
|---|---|---|---|---|---|---|
TEXT
failed=0
for dir in "$checkpoints"/*/; do
  name=$(basename "$dir")
  family=$(sed -n 's/.*"model_type": *"\([^"]*\)".*/\1/p' "$dir/config.json" | head -n 1)
  stored=$(sed -n 's/.*"\(torch_\)\{0,1\}dtype": *"\([^"]*\)".*/\2/p' "$dir/config.json" | head -n 1)
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
