#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# table.sh MODELCHECK CHECKPOINTS: runs modelcheck on every checkpoint under every layout and prints docs/models.md.
# head.md, beside this script, is the text above the table.
# table.sh --listed DOC CHECKPOINTS: whether DOC has that text, a row for each checkpoint, and one for each family.
if [ "$1" = --listed ]; then
  for dir in "$3"/*/; do
    grep -q "^| [^|]*| \`$(basename "$dir")\` | [^|]* | [0-9]" "$2" || { echo "$2 has no row for $(basename "$dir"): run tests/modelcheck/table.sh"; missing=1; }
  done
  here=$(dirname "$0")
  head -n "$(wc -l <"$here/head.md")" "$2" | cmp -s - "$here/head.md" || { echo "$2 does not begin as $here/head.md"; missing=1; }
  for type in $(sed -n 's/^ *\.model_type = "\([^"]*\)".*/\1/p' "$here"/../../runtime/model/arch/*.c | sort -u); do
    grep -q "^| [^|]*| \`$type\` | [A-Z]" "$2" || { echo "$2 has no row for the family $type"; missing=1; }
  done
  exit ${missing:-0}
fi
modelcheck=$1 checkpoints=$2
ranks=$(dirname "$0")/../comm/ranks.sh
layouts="1x1 2x1 1x2 2x2 4x1"

cat "$(dirname "$0")/head.md"
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
    *) printf '%s\n' "$out" | grep -q 'an encoder-decoder is not cut into stages\|are one pipeline stage' || failed=1 ;;
    esac
    [ $layout = 1x1 ] && tokens=$(printf '%s\n' "$out" | sed -n 's/.*greedy \([0-9]*\) of \([0-9]*\).*/\1 \2/p' | awk '{ a += $1; b += $2 } END { print b ? a " of " b : "-" }')
    [ $layout = 1x1 ] && beams=$(printf '%s\n' "$out" | sed -n 's/.*searches \([0-9]*\) of \([0-9]*\).*/\1 \2/p' | awk '{ a += $1; b += $2 } END { print b ? a " of " b : "-" }')
  done
  echo "| $family | \`$name\` | $stored | $worst | $tokens | $beams |$right |"
done
exit $failed
