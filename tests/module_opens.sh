#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Checks that the CUDA module can be opened by every program that loads it: what it takes from the program is there, by the same name. A
# header of C that C++ takes for its own builds all the same: missing names are looked for when a module is opened.
#   module_opens.sh MODULE PROGRAM...  exit code 77 (skipped) without nm
#   module_opens.sh --self-test CC     a name that is missing, and one that was mangled, must be found
set -u

# The names that a module leaves to its program: ours, and whatever of C++ no library has by a version of its own.
wanted() { nm -D --undefined-only "$1" | awk '$1 == "U" && $2 ~ /^(tri_|_Z)/ && $2 !~ /@/ { print $2 }'; }
given() { nm -D --defined-only "$1" | awk '{ print $NF }'; }

check() {
  module=$1 failed=0
  shift
  wanted=$(wanted "$module")
  [ -n "$wanted" ] || { echo "$module takes nothing from its program"; return 1; }
  for program; do
    missing=$(given "$program" | awk -v wanted="$wanted" '
      { has[$1] }
      END { n = split(wanted, w, "\n"); for (i = 1; i <= n; i++) if (!(w[i] in has)) printf " %s", w[i] }')
    [ -z "$missing" ] && continue
    echo "$program cannot open the module, which wants$missing"
    failed=1
  done
  return $failed
}

self_test() {
  dir=$(mktemp -d) || exit 1
  trap 'rm -rf "$dir"' EXIT
  cd "$dir" || exit 1
  echo 'int tri_a(void) { return 1; } int main(void) { return tri_a(); }' >program.c
  echo 'int tri_a(void); int tri_module(void) { return tri_a(); }' >right.c
  echo 'int tri_a(void), tri_b(void); int tri_module(void) { return tri_a() + tri_b(); }' >missing.c
  echo 'int _Z5tri_av(void); int tri_module(void) { return _Z5tri_av(); }' >mangled.c
  "$1" -rdynamic -o program program.c || exit 1
  for module in right missing mangled; do "$1" -shared -fPIC -o $module.so $module.c || exit 1; done
  check right.so ./program || { echo "refused a module that opens"; exit 1; }
  check missing.so ./program >/dev/null && { echo "did not find a missing name"; exit 1; }
  check mangled.so ./program >/dev/null && { echo "did not find a mangled name"; exit 1; }
  echo "both were found"
}

command -v nm >/dev/null || { echo "no nm here"; exit 77; }
case ${1-} in
--self-test) self_test "$2" ;;
-* | '') sed -n '3,6p' "$0"; exit 2 ;;
*) check "$@" ;;
esac
