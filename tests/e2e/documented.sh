#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every option of every program is in trireme.1, in the program's own page, and is completed by bash, zsh and fish (by those of them that
# are here), and none of these knows an option that no program has. Every file of cluster-configs can be planned.
# Usage: documented.sh BIN SRC PAGES PROGRAM...    PAGES: the folder of the made pages, or nothing where there is no help2man
set -u
bin=$1 src=$2 pages=$3 failures=0
shift 3
programs=("$@")
man=$src/docs/man/trireme.1.scd
here=$(dirname "$0")
PATH=$bin:$PATH
failed() {
  echo "FAILED: $*"
  failures=$((failures + 1))
}
# The names that a program's table has: what begins a line of --help, [no-] taken apart.
spelled() {
  awk '{
    while (match($0, /--(\[no-\])?[a-z0-9][a-z0-9-]*/)) {
      name = substr($0, RSTART, RLENGTH); $0 = substr($0, RSTART + RLENGTH)
      if (name ~ /\[no-\]/) { sub(/\[no-\]/, "", name); print name; sub(/^--/, "--no-", name) }
      print name
    }
  }' | sort -u
}
names() { "$@" --help-all | sed -n 's/^  -/-/p' | sed 's/   *[^ ].*//' | spelled; }
# The same of a page, whose entries stand behind .TP.
page_names() { sed -n '/^\.TP/{n;/^\\fB\\-/p}' "$1" | sed 's/\\f[BIR]//g; s/\\,//g; s/\\\///g; s/\\-/-/g' | spelled; }
same() { # same PROGRAM WHERE GIVEN FOUND: lists of names, a line each
  local differ
  differ=$(comm -3 <(sort -u <<<"$3") <(sort -u <<<"$4") | tr -d '\t' | tr '\n' ' ')
  [[ -z $differ ]] || failed "$1: --help and $2 differ in $differ"
}

# The shells are asked once for all programs: lines "PROGRAM WORD...<tab>NAME".
complete_bash() { # PROGRAM WORD...
  local function=_trireme_program
  [[ $1 != trireme ]] || function=_trireme
  complete -p "$1" | grep -q -- "-F $function " || failed "bash does not complete $1"
  COMP_WORDS=("$@" --) COMP_CWORD=$#
  $function
  printf '%s\n' "${COMPREPLY[@]}"
}
run_zsh() { # lines of words
  # shellcheck disable=SC2016
  zsh -f -c '
    _files() { : }
    compadd() { [[ $1 != -a ]] || printf "$said\t%s\n" ${(P)2} }
    _describe() { printf "$said\t%s\n" ${(P)2} }
    words=(trireme) CURRENT=1
    source $1 || exit 1
    while read -r said; do
      words=(${=said} --) CURRENT=${#words}
      _trireme
    done' zsh "$src/client/completion/_trireme"
}
run_fish() {
  # shellcheck disable=SC2016
  fish --no-config -c 'source $argv[1]
    while read -l line
      for name in (complete -C "$line --" | string match -r -- "^--[^\t]*")
        printf "%s\t%s\n" $line $name
      end
    end' "$src/client/completion/trireme.fish"
}

# shellcheck source=/dev/null
. "$src/client/completion/trireme.bash"
commands='serve up gateway submit chat embed classify status top cancel plan pack doctor journal template grammar eval keygen'
kinds='serve throughput latency load stream'
all=$(for c in $commands; do echo "trireme $c"; done; for k in $kinds; do echo "trireme bench $k"; done; printf '%s\n' "${programs[@]}")
listed=$(trireme --help | sed -n '/^Commands:/,/^$/s/^  \([a-z]*\) .*/\1/p' | grep -v bench | tr '\n' ' ')
[[ $listed == "$commands " ]] || failed "the commands are $listed"
shells=bash
for shell in zsh fish; do
  command -v $shell >/dev/null || { echo "$shell is not here: its completion was not run"; continue; }
  shells+=" $shell"
  printf -v "by_$shell" %s "$(run_$shell <<<"$all")"
done

declare -A written
for name in $(grep -o '\*--[^* ]*\*' "$man" | spelled); do written[$name]=1; done

count=0 known=''
while read -r line; do
  read -ra words <<<"$line"
  given=$(names "${words[@]}")
  [[ -n $given ]] || failed "$line: no options in --help"
  if [[ $line != 'trireme keygen' ]]; then # keygen's argument is a file
    same "$line" "bash's completion" "$given" "$(complete_bash "${words[@]}")"
    for shell in ${shells#bash}; do
      found=by_$shell
      same "$line" "$shell's completion" "$given" "$(grep "^$line"$'\t' <<<"${!found}" | cut -f 2)"
    done
  fi
  if [[ -n $pages ]]; then
    page=$pages/${line// /-}.1
    [[ -s $page ]] || { failed "$line has no page"; continue; }
    same "$line" "${page##*/}" "$given" "$(page_names "$page")"
  fi
  for name in $given; do
    count=$((count + 1))
    [[ -n ${written[$name]-}${written[--no-${name#--}]-}${written[--${name#--no-}]-} ]] || failed "$line: $name is not in trireme.1"
  done
  known+=" ${given//$'\n'/ } "
done <<<"$all"
[[ -n $pages ]] || echo "no help2man: there are no pages to compare"

# The other way round: what trireme.1 has entries for, and the names that are written out in the completions.
for name in $(grep '^\*-' "$man" | grep -o -e '--[a-z][a-z0-9-]*' | sort -u) $(grep -v '^#' "$src/client/completion/trireme.bash" | grep -o -e '[ |]--[a-z][a-z0-9-]*' | tr -d ' |' | sort -u); do
  [[ $known == *" $name "* ]] || failed "$name is written of, and no program has it"
done
for word in $commands bench; do
  grep -q "^    '$word:" "$src/client/completion/_trireme" || failed "zsh does not complete the command $word"
  COMP_WORDS=(trireme "$word") COMP_CWORD=1
  _trireme
  [[ " ${COMPREPLY[*]} " == *" $word "* ]] || failed "bash does not complete the command $word"
done

shapes=$(mktemp -d) || exit 1
trap 'rm -rf "$shapes"' EXIT
"$here/../bench/peers/run.sh" "$bin" --shapes "$shapes" || failed "no shapes of models"
for config in "$src"/cluster-configs/*.yaml; do
  model=8b
  [[ $config = *experts* ]] && model=qwen3-30b
  said=$("$bin/trireme" plan --config "$config" --model "$shapes/$model" --memory-per-rank 80G --nvme-path "$shapes" 2>&1) ||
    failed "$config cannot be planned: $(tail -n 1 <<<"$said")"
done
((failures == 0)) && echo "$count options are in the man pages and in the completions of $shells"
exit $((failures > 0))
