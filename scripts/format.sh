#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Formats the sources and lints what it can: clang-format, cppcheck, shellcheck (scripts/install-deps.sh --dev has them all), and
# scripts/style.sh.
#   scripts/format.sh           formats in place, then lints
#   scripts/format.sh --check   changes nothing: exit code 1 where the format or a script is wrong, 77 (skipped, with the reason)
#                               without clang-format 14, whose idea of the format counts (versions differ in details)
#   scripts/format.sh --lint    lints alone
set -euo pipefail
cd "$(dirname "$0")/.."

version=14
mode=${1-}
failed=0

sources() {
  for folder in base text runtime kernels comm offload worker tools coordinator client tests; do # git keeps no empty folder
    [ ! -d $folder ] || find $folder \( -name '*.c' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh' \)
  done | sort
}
scripts() {
  find . -path ./build -prune -o -path ./.git -prune -o -type f \( -name '*.sh' -o -path './.ci/run' \) -print | sort
}

find_clang_format() {
  for name in "clang-format-$version" clang-format; do
    command -v "$name" >/dev/null && "$name" --version | grep -q "version $version\." && { echo "$name"; return; }
  done
  return 1
}

lint_scripts() {
  command -v shellcheck >/dev/null || { echo "shellcheck is not here: the scripts were not looked at"; return 0; }
  local script
  while read -r script; do
    # A file that others source has no first line to say which shell it is for.
    if head -c 2 "$script" | grep -q '#!'; then shellcheck -S warning "$script"; else shellcheck -S warning -s bash "$script"; fi ||
      failed=1
  done < <(scripts)
}

lint_sources() {
  scripts/style.sh || failed=1
  command -v cppcheck >/dev/null || { echo "cppcheck is not here: the sources were not looked at"; return 0; }
  # Three false alarms: a loop over ranks that runs at least once, a struct filled where its address is used, an array that
  # vector stores write.
  sources | grep -v '^tests/' | grep '\.c$' | xargs cppcheck --quiet --std=c11 --language=c --inline-suppr -I . -j "$(nproc)" \
    --enable=warning --suppress=missingIncludeSystem --suppress=internalAstError --suppress=funcArgOrderDifferent \
    --suppress=preprocessorErrorDirective --suppress=invalidFunctionArg --suppress=uninitvar:comm/mpi.c \
    --suppress=uninitvar:coordinator/jobs/life.c --suppress=uninitvar:kernels/cpu/kern_rows.h \
    --error-exitcode=1 || failed=1
}

case $mode in
--check)
  lint_scripts
  if ! tool=$(find_clang_format); then
    echo "skipped: clang-format $version is not here (scripts/install-deps.sh --dev, on Debian 12)"
    [ $failed = 0 ] && exit 77
    exit 1
  fi
  wrong=$(sources | xargs "$tool" --dry-run -Werror 2>&1 | sed -n 's/^\([^: ]*\.[ch]u*h*\):[0-9].*/\1/p' | sort -u || true)
  if [ -n "$wrong" ]; then
    printf 'not as clang-format has it (scripts/format.sh puts it right):\n%s\n' "$wrong"
    exit 1
  fi
  ;;
'')
  if tool=$(find_clang_format); then
    sources | xargs "$tool" -i
  else
    echo "clang-format $version is not here: nothing was formatted"
  fi
  lint_scripts
  lint_sources
  ;;
--lint)
  lint_scripts
  lint_sources
  ;;
*)
  sed -n '3,8p' "$0"
  exit 2
  ;;
esac
exit $failed
