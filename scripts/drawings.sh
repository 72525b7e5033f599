#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Makes docs/drawings/NAME.svg of each NAME.dot, by Graphviz (scripts/install-deps.sh --dev).
#   drawings.sh [DIR]          makes all of a source tree
#   drawings.sh --check [DIR]  says which SVG is not what its text makes
# Another Graphviz places things a little differently, so each SVG names its maker and the sum of its text: the sums are
# compared everywhere, and whole files where the same Graphviz is here.
set -u

version() { dot -V 2>&1 | sed 's/.*version \([0-9.]*\).*/\1/'; }
sum() { sha256sum <"$1" | cut -c 1-64; }
make() { # TEXT: its SVG
  printf '<!-- SPDX-License-Identifier: Apache-2.0; Graphviz %s; text %s -->\n' "$(version)" "$(sum "$1")"
  dot -Tsvg "$1" | sed -n '/^<svg/,$p'
}

check() {
  for text in docs/drawings/*.dot; do
    svg=${text%.dot}.svg
    head -n 1 "$svg" 2>/dev/null | grep -q "text $(sum "$text") " || { echo "$svg is older than its text: run scripts/drawings.sh"; continue; }
    command -v dot >/dev/null || continue
    head -n 1 "$svg" | grep -q "Graphviz $(version);" || continue
    make "$text" | cmp -s - "$svg" || echo "$svg is not what its text makes: run scripts/drawings.sh"
  done | grep . && return 1
  return 0
}

case ${1-} in
--check) cd "${2:-$(dirname "$0")/..}" && check ;;
-*) sed -n '3,7p' "$0"; exit 2 ;;
*)
  cd "${1:-$(dirname "$0")/..}" || exit 1
  command -v dot >/dev/null || { echo "dot is not here: scripts/install-deps.sh --dev"; exit 1; }
  for text in docs/drawings/*.dot; do make "$text" >"${text%.dot}.svg" || exit 1; done
  ;;
esac
