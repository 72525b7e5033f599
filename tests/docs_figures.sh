#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The plots of docs/performance.md are what their lines make, and the page has every value that they show.
#   docs_figures.sh [DIR]        checks a source tree
#   docs_figures.sh --self-test  checks that a value that was changed is found
# Exit code 77: python3 is not here.
set -u
command -v python3 >/dev/null || { echo "SKIPPED: python3 is not here"; exit 77; }
figures=$(cd "$(dirname "$0")/.." && pwd)/scripts/figures.py

self_test() {
  dir=$(mktemp -d) || exit 1
  trap 'rm -rf "$dir"' EXIT
  cp -r --parents docs/figures docs/performance.md "$dir" || exit 1
  "$figures" --check "$dir" || { echo "refused plots that are right"; exit 1; }
  sed -i 's/4\.84}/4.25}/' "$dir/docs/figures/dense-vllm.jsonl"
  [ "$("$figures" --check "$dir")" = "dense-vllm.svg is not what its lines make: run scripts/figures.py" ] || { echo "did not find an old plot"; exit 1; }
  sed -i 's/4\.25}/4.2399}/' "$dir/docs/figures/dense-vllm.jsonl"
  "$figures" "$dir"
  [ "$("$figures" --check "$dir")" = "dense-vllm.jsonl: 4.2399 is not in docs/performance.md" ] || { echo "did not find a value that the page does not have"; exit 1; }
  sed -i '/figures\/idle.svg/d' "$dir/docs/performance.md"
  "$figures" --check "$dir" | grep -q 'does not show idle.svg' || { echo "did not find a plot that is not shown"; exit 1; }
  echo "all three were found"
}

case ${1-} in
--self-test) cd "$(dirname "$0")/.." && self_test ;;
-*) sed -n '3,6p' "$0"; exit 2 ;;
*) "$figures" --check "${1:-$(dirname "$0")/..}" ;;
esac
