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

fail() {
  echo "pages.sh: $*" >&2
  exit 1
}

# A page NAME.1 of the program that the words of $2 start. Examples stay as they are, a line each.
page() { # NAME "WORD..." SUMMARY
  # Nothing of another version that is installed.
  if ! said=$( (PATH='' exec $2 --help) 2>&1 >/dev/null); then
    case $said in *"it is not here"*) return 0 ;; esac
    fail "$2 --help: $said"
  fi
  "$help2man" --help-option=--help-all --no-info --section=1 --name="$3" --source="Trireme $version" --manual="Trireme" --version-string="$version" --include="$include" --output="$folder/$1.raw" "$2" ||
    fail "help2man makes no page of $2"
  awk -v title="$(echo "$1" | tr a-z A-Z)" -v name="$1" '
    /^\.TH / { sub(/^\.TH [^ ]*/, ".TH " title) }
    before == ".SH NAME" { sub(/^[^\\]*/, name " ") }
    /^\./ && plain { print ".fi"; plain = 0 }
    /^\.SH / { examples = /EXAMPLES/ }
    { print; before = $0 }
    examples && /^\.IP/ { print ".nf"; plain = 1 }' "$folder/$1.raw" >"$folder/$1.1"
  rm "$folder/$1.raw"
  grep -q '^\.SH SYNOPSIS' "$folder/$1.1" || fail "the page of $2 has no synopsis"
}

# Pages of all that the help of a command lists.
pages() { # NAME COMMAND HEADING
  all=$(listed "$2" "$3")
  [ "$all" ] || fail "$2 --help lists no $3"
  echo "$all" | while read -r command text; do page "$1-$command" "$2 $command" "$text"; done
}

pages trireme ./trireme Commands
pages trireme-bench "./trireme bench" Kinds
for program; do # those that no command starts
  [ -e "$folder/$program.1" ] || page "$program" "./$program" "$("./$program" --help | sed -n '3s/\.$//p')"
done
