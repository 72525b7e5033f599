#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# "Where to find things" in docs/architecture.md has every file of product code, and none that is gone.
#   docs_files.sh [DIR]        checks a source tree
#   docs_files.sh --self-test  checks that a missing and a stale row are found
set -u

# The files of the table's rows: `a/b.[ch]` is two of them, `a/*.c` a folder's.
rows() {
  sed -n 's/^| `\([a-z]*\/[^`]*\)` |.*/\1/p' docs/architecture.md | grep '\.' | while read -r row; do
    case $row in
    *.\[ch\]) printf '%s\n' "${row%\[ch\]}c" "${row%\[ch\]}h" ;;
    *) printf '%s\n' $row ;; # a folder's files, or the row as it is
    esac
  done | sort
}

check() {
  cd "$1" || return 1
  found=$(mktemp) && named=$(mktemp) || return 1
  rows >"$named"
  find base text runtime kernels comm offload worker tools coordinator client \( -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' \) | sort >"$found"
  missing=$(comm -23 "$found" "$named")
  gone=$(while read -r file; do [ -e "$file" ] || echo "$file"; done <"$named")
  twice=$(uniq -d "$named")
  rm -f "$found" "$named"
  [ -z "$missing" ] || printf 'docs/architecture.md has no row for %s\n' $missing
  [ -z "$gone" ] || printf 'docs/architecture.md has a row for %s, which does not exist\n' $gone
  [ -z "$twice" ] || printf 'docs/architecture.md has more than one row for %s\n' $twice
  [ -z "$missing$gone$twice" ]
}

self_test() {
  dir=$(mktemp -d) || exit 1
  trap 'rm -rf "$dir"' EXIT
  mkdir -p "$dir/docs" "$dir/base" "$dir/text" "$dir/tools" "$dir/worker" "$dir/runtime/arch" "$dir/kernels" "$dir/comm" "$dir/offload" "$dir/coordinator" "$dir/client"
  touch "$dir/worker/a.c" "$dir/worker/a.h" "$dir/runtime/arch/x.c" "$dir/kernels/k.cu"
  printf '| `%s` | x |\n' 'worker/a.[ch]' 'runtime/arch/*.c' 'kernels/k.cu' 'kernels/' >"$dir/docs/architecture.md"
  (check "$dir") || { echo "refused a table that is whole"; exit 1; }
  touch "$dir/worker/b.c"
  (check "$dir") >/dev/null && { echo "did not find a file without a row"; exit 1; }
  rm "$dir/worker/b.c" "$dir/worker/a.h"
  (check "$dir") >/dev/null && { echo "did not find a row without a file"; exit 1; }
  echo "both were found"
}

case ${1-} in
--self-test) self_test ;;
-*) sed -n '3,5p' "$0"; exit 2 ;;
*) check "${1:-$(dirname "$0")/..}" ;;
esac
