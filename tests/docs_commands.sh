#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Every block of shell commands in README.md and docs is run by a test or says what it needs, in a comment above it:
#   <!-- run by tests/e2e/readme.sh -->     these tests have all subcommands and options of its trireme commands,
#                                           or take them from the page
#   <!-- needs: two nodes of eight GPUs --> no test runs it
# and no command, in a block or within a line, has a subcommand or an option that does not exist.
#   docs_commands.sh [DIR [BIN]]  checks a source tree; without the programs of BIN no options are looked at
#   docs_commands.sh --list       shows the blocks and their marks
#   docs_commands.sh --self-test  checks that what is wrong is found
set -u
starts='^(\$ )?([A-Z_]+=[^ ]* )*(trireme|mpirun|srun|sbatch|scancel|cmake|ctest|ninja|cd|sh|bash|sudo|apt-get|git|pip|python3|curl|cc|echo|export|sed|grep|kill|\./|scripts/|tests/|docs/|build/)'

# Marks of pages that are not to be touched for it: page, how the block's first command begins, mark.
elsewhere='docs/guide/operations.md|trireme status|run by tests/e2e/command.sh
docs/guide/operations.md|trireme bench serve|run by tests/e2e/command.sh tests/bench/load.sh tests/bench/stream.sh tests/bench/latency.sh
docs/reliability.md|./test.sh|needs: hours, for the longer ones'

# FILE:LINE <tab> MARK <tab> COMMAND of each line of a block that has a command; indented blocks and fenced ones of a shell.
commands() {
  find README.md docs -name '*.md' | sort | while read -r page; do
    awk -v page="$page" -v starts="$starts" '
      function flush(i) { if (is_shell) for (i = 1; i <= n; i++) print page ":" where[i] "\t" (mark == "" ? "-" : mark) "\t" line[i]; n = is_shell = 0 }
      function take(text) {
        if (text ~ starts && !go_on) is_shell = 1
        if (go_on) line[n] = substr(line[n], 1, length(line[n]) - 1) " " text
        else { line[++n] = text; where[n] = FNR }
        go_on = text ~ /\\$/
      }
      /^ *```/ {
        if (fenced) { flush(); fenced = 0; mark = ""; next }
        flush(); fenced = 1; shell = $0 ~ /^ *```(sh|bash|console)? *$/; next
      }
      fenced { if (shell && NF) { sub(/^ +/, ""); take($0) } next }
      /^ *<!-- (run by|needs:).*-->$/ { flush(); mark = $0; sub(/^ *<!-- /, "", mark); sub(/ -->$/, "", mark); next }
      /^    +[^ |*-]/ && (n || blank) || go_on { sub(/^ +/, ""); take($0); blank = 0; next }
      !NF { blank = 1; next }
      { flush(); mark = ""; blank = go_on = 0 }
      END { flush() }' "$page"
  done | while IFS='	' read -r where mark command; do
    page=${where%:*}
    if [ "$mark" = - ]; then # of the first command of a block the mark holds for those behind it
      found=$(printf '%s\n' "$elsewhere" | while IFS='|' read -r p begin m; do [ "$p" = "$page" ] && [ "${command#"$begin"}" != "$command" ] && echo "$m"; done)
      [ -n "$found" ] && kept=$found kept_page=$page
      [ "${kept_page-}" = "$page" ] && mark=${kept:--}
    fi
    printf '%s\t%s\t%s\n' "$where" "$mark" "$command"
  done
}

# The trireme commands of a line, one a line, each from its program on.
invocations() { sed 's/  *#.*//; s/"[^"]*"//g; s/'"'"'[^'"'"']*'"'"'//g; s/&&\|[|;&<>]\| : /\n/g' | grep -oE '(^| |bin/)trireme(-[a-z]+)?( .*)?$' | sed 's/^ *//; s/^bin.//'; }
inline() { grep -rnoE '`trireme(-[a-z]+)? [^`]*`' README.md docs --include='*.md' | sed 's/^\([^:]*:[0-9]*\):`\(.*\)`$/\1\t\2/'; }

# The command that --help is asked of: `trireme bench serve`, `trireme-worker`.
name_of() { # WORDS
  local name=$1
  [ "$1" = trireme ] && case ${2-} in bench) name="trireme bench ${3-}" ;; [a-z]*) name="trireme $2" ;; esac
  echo "$name"
}

options_of() { tr ' [' '\n\n' | sed -n 's/[],:.)]*$//; s/=.*//; /^--*[a-z]/p' | grep -v '^-[0-9]'; }

check_marks() {
  commands | {
    wrong=0
    while IFS='	' read -r where mark command; do
      case $mark in
      "needs: "?*) ;;
      "run by "?*)
        tests=$(printf '%s\n' "${mark#run by }" | tr ', ' '\n\n' | grep '^tests/\|^docs/\|^\.ci/')
        for t in $tests; do
          [ -e "$t" ] || { echo "$where: there is no test $t"; wrong=1; continue 2; }
          grep -qF "SRC/${where%:*}" "$t" && continue 2 # it takes its commands from the page
        done
        while read -r invocation; do
          [ -n "$invocation" ] || continue
          # shellcheck disable=SC2086
          name=$(name_of $invocation)
          for word in "${name##* }" $(printf '%s\n' "$invocation" | options_of); do
            # shellcheck disable=SC2086
            grep -qE -- "(^|[^a-z-])(trireme-)?${word#trireme-}([^a-z-]|$)" $tests || { echo "$where: $word is in none of the tests that are to run it"; wrong=1; }
          done
        done < <(printf '%s\n' "$command" | invocations)
        ;;
      *) echo "$where: neither 'run by' nor 'needs' stands above: $command"; wrong=1 ;;
      esac
    done
    return $wrong
  }
}

check_options() { # BIN
  declare -A help
  local wrong=0 where invocation name option text
  while IFS='	' read -r where invocation; do
    set -f
    # shellcheck disable=SC2086
    name=$(name_of $invocation)
    set +f
    case $name in *...* | *[A-Z]* | "trireme bench ") continue ;; esac
    if [ -z "${help[$name]-}" ]; then
      # shellcheck disable=SC2086
      text=$("$1"/$name --help-all 2>/dev/null </dev/null) || { echo "$where: there is no '$name'"; wrong=1; text=gone; }
      help[$name]=$(printf '%s\n' "$text" | sed 's/\[no-\]\([a-z0-9-]*\)/\1 --no-\1/g')
    fi
    [ "${help[$name]}" = gone ] && continue
    while read -r option; do
      [ -z "$option" ] || printf '%s\n' "${help[$name]}" | grep -qE -- "(^|[ ,])${option}([ ,=]|$)" || { echo "$where: '$name' has no $option"; wrong=1; }
    done < <(printf '%s\n' "$invocation" | options_of)
  done < <(
    commands | while IFS='	' read -r where _ command; do printf '%s\n' "$command" | invocations | sed "s|^|$where\t|"; done
    inline | while IFS='	' read -r where command; do printf '%s\n' "$command" | invocations | sed "s|^|$where\t|"; done
  )
  return $wrong
}

check() { # DIR [BIN]
  cd "$1" || return 1
  local wrong=0 bin=${2-}
  [ "$(commands | wc -l)" -ge 60 ] || [ -n "${FEW-}" ] || { echo "the blocks are not found any more"; return 1; }
  check_marks || wrong=1
  if [ -x "$bin/trireme" ] && { [ -n "${FEW-}" ] || [ -x "$bin/trireme-worker" ]; }; then check_options "$bin" || wrong=1; else echo "no programs: options were not looked at"; fi
  return $wrong
}

self_test() {
  dir=$(mktemp -d) || exit 1
  trap 'rm -rf "$dir"' EXIT
  FEW=1 elsewhere=
  mkdir -p "$dir/docs" "$dir/tests" "$dir/bin"
  echo 'trireme up --model x -tp 2' >"$dir/tests/t.sh"
  # shellcheck disable=SC2016
  printf '#!/bin/sh\ncase $1 in up) echo "  -tp, --tp N  --model DIR  --[no-]http" ;; *) exit 2 ;; esac\n' >"$dir/bin/trireme"
  chmod +x "$dir/bin/trireme"
  wrong=0
  while IFS='|' read -r finds text; do
    printf '%b\n' "$text" >"$dir/docs/a.md"
    : >"$dir/README.md"
    found=$( (check "$dir" "$dir/bin") | sed 's/^[^ ]*: //' | tr '\n' ';')
    case $finds in "") [ -z "$found" ] ;; *) [ "${found#*"$finds"}" != "$found" ] ;; esac || { echo "found '$found', not '$finds': $text"; wrong=1; }
  done <<'CASES'
|<!-- run by tests/t.sh -->\n\n    trireme up --model DIR -tp 4   # with --words\n
|<!-- needs: a GPU -->\n\n    trireme up --no-http "--what" | sh --other\n
|Text.\n\n    base\n      < worker\n
|<!-- needs: a GPU -->\n\n```sh\ntrireme up \\\n  --model DIR\n```\n
|```c\ntrireme();\n```\n
neither 'run by'|Text:\n\n    trireme up\n
neither 'run by'|<!-- needs: a GPU -->\n\n    trireme up\n\nText:\n\n    ./demo.sh\n
neither 'run by'|```sh\ntrireme up\n```\n
there is no test tests/u.sh|<!-- run by tests/u.sh -->\n\n    trireme up\n
--http is in none|<!-- run by tests/t.sh -->\n\n    trireme up --http\n
'trireme up' has no --nothing|<!-- needs: a GPU -->\n\n    trireme up --nothing 4\n
'trireme up' has no --nothing|<!-- needs: a GPU -->\n\n    trireme up \\\n      --nothing 4\n
there is no 'trireme down'|<!-- needs: a GPU -->\n\n    trireme down\n
'trireme up' has no --nothing|Text `trireme up --nothing` and more.\n
CASES
  [ $wrong = 0 ] && echo "what is wrong was found, and nothing else"
  exit $wrong
}

case ${1-} in
--self-test) self_test ;;
--list) cd "$(dirname "$0")/.." && commands ;;
-*) sed -n '3,10p' "$0"; exit 2 ;;
*) check "${1:-$(dirname "$0")/..}" "${2:+$(realpath -m "$2")}" ;;
esac
