#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The reference of libtrireme is made of its header without a warning, and has every function and struct.
#   docs_reference.sh [DIR]        checks a source tree
#   docs_reference.sh --self-test  checks that a comment that is wrong is found
# Exit code 77: doxygen is not here (scripts/install-deps.sh --dev).
set -u
command -v doxygen >/dev/null || { echo "SKIPPED: doxygen is not here"; exit 77; }
out=$(mktemp -d) || exit 1
trap 'rm -rf "$out"' EXIT

check() { # DIR
  (cd "$1" && { cat docs/Doxyfile; echo "OUTPUT_DIRECTORY = $out"; } | doxygen -) || return 1
  grep -o 'trireme_[a-z_]*(' "$1/client/trireme.h" | tr -d '(' | sort -u | while read -r name; do
    grep -q "$name" "$out/html/trireme_8h.html" || echo "$name is not in the reference"
  done >"$out/missing"
  cat "$out/missing"
  [ ! -s "$out/missing" ] && [ -e "$out/html/structtrireme__request.html" ]
}

case ${1-} in
--self-test)
  src=$(dirname "$0")/..
  mkdir -p "$out/src/docs" "$out/src/client"
  cp "$src/docs/Doxyfile" "$src/docs/doxygen.sed" "$out/src/docs"
  sed 's|^void trireme_close(|/* @param nobody is no parameter. */\n&|' "$src/client/trireme.h" >"$out/src/client/trireme.h"
  check "$out/src" 2>/dev/null && { echo "a parameter that is not there was not found"; exit 1; }
  echo "a parameter that is not there was found"
  ;;
-*) sed -n '3,6p' "$0"; exit 2 ;;
*) check "${1:-$(dirname "$0")/..}" ;;
esac
