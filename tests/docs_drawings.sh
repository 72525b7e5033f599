#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The drawings of docs/drawings are what their texts make, and a page shows each.
#   docs_drawings.sh [DIR]        checks a source tree
#   docs_drawings.sh --self-test  checks that a text or a drawing that was changed is found
set -u
drawings=$(cd "$(dirname "$0")/.." && pwd)/scripts/drawings.sh

check() {
  "$drawings" --check "$1" || return 1
  for text in "$1"/docs/drawings/*.dot; do
    name=$(basename "$text" .dot).svg
    grep -rqF "drawings/$name)" "$1"/docs --include='*.md' || { echo "no page shows $name"; return 1; }
  done
}

self_test() {
  dir=$(mktemp -d) || exit 1
  trap 'rm -rf "$dir"' EXIT
  cp -r --parents docs/drawings docs/architecture.md "$dir" || exit 1
  check "$dir" || { echo "refused drawings that are right"; exit 1; }
  echo '// more' >>"$dir/docs/drawings/token.dot"
  check "$dir" | grep -q 'token.svg is older than its text' || { echo "did not find a text that was changed"; exit 1; }
  cp docs/drawings/token.dot "$dir/docs/drawings"
  if command -v dot >/dev/null && "$drawings" "$dir" && cmp -s docs/drawings/token.svg "$dir/docs/drawings/token.svg"; then
    sed -i 's/>client</>customer</' "$dir/docs/drawings/token.svg"
    check "$dir" | grep -q 'token.svg is not what its text makes' || { echo "did not find a drawing that was changed"; exit 1; }
    cp docs/drawings/token.svg "$dir/docs/drawings"
  fi
  sed -i '/drawings\/layers.svg/d' "$dir/docs/architecture.md"
  [ "$(check "$dir")" = "no page shows layers.svg" ] || { echo "did not find a drawing that no page shows"; exit 1; }
  echo "all were found"
}

case ${1-} in
--self-test) cd "$(dirname "$0")/.." && self_test ;;
-*) sed -n '3,5p' "$0"; exit 2 ;;
*) check "${1:-$(dirname "$0")/..}" ;;
esac
