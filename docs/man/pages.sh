#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Makes a man page of every command and program from its --help, which comes from its option table: none can fall behind it.
#   pages.sh HELP2MAN BIN VERSION FOLDER PROGRAM...   PROGRAM: beside trireme and its commands, those of BIN
# Commands whose program is not in BIN (only the client was built) have no page.
set -eu
[ $# -ge 4 ] || { sed -n '3,5s/^# //p' "$0" >&2; exit 2; }
help2man=$1 bin=$2 version=$3 folder=$4
shift 4
include=$(realpath "$(dirname "$0")/common.h2m")
rm -rf "$folder"
mkdir -p "$folder"
folder=$(realpath "$folder")
cd "$bin" # whose name may have spaces, at which help2man would take it apart

# "NAME TEXT" of the lines behind "$2:" in the help of the command $1.
listed() {
  $1 --help | sed -n "/^$2:/,/^\$/s/^  \\([a-z]*\\)  *\\(.*\\)/\\1 \\2/p"
}

# A page NAME.1 of the program that the words of $2 start. Examples stay as they are, a line each.
page() { # NAME "WORD..." SUMMARY
  # Nothing of another version that is installed.
  (PATH='' exec $2 --help) >/dev/null 2>&1 || return 0
  "$help2man" --help-option=--help-all --no-info --section=1 --name="$3" --source="Trireme $version" --manual="Trireme" --version-string="$version" --include="$include" "$2" |
    awk -v title="$(echo "$1" | tr a-z A-Z)" -v name="$1" '
      /^\.TH / { sub(/^\.TH [^ ]*/, ".TH " title) }
      before == ".SH NAME" { sub(/^[^\\]*/, name " ") }
      /^\./ && plain { print ".fi"; plain = 0 }
      /^\.SH / { examples = /EXAMPLES/ }
      { print; before = $0 }
      examples && /^\.IP/ { print ".nf"; plain = 1 }' >"$folder/$1.new"
  mv "$folder/$1.new" "$folder/$1.1"
}

listed ./trireme Commands | while read -r command text; do
  page "trireme-$command" "./trireme $command" "$text"
done
listed "./trireme bench" Kinds | while read -r kind text; do
  page "trireme-bench-$kind" "./trireme bench $kind" "$text"
done
for program; do # those that no command starts
  [ -e "$folder/$program.1" ] || page "$program" "./$program" "$("./$program" --help | sed -n '3s/\.$//p')"
done
