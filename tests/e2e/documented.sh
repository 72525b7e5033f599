#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every option of every program is in the man page and is completed, and neither knows an option that no program has. Every file of
# cluster-configs can be planned.
# Usage: documented.sh BIN SRC
set -u
bin=$1 src=$2 failures=0
man=$src/docs/man/trireme.1.scd
failed() {
  echo "FAILED: $*"
  failures=$((failures + 1))
}
# The names that a program's table has: what begins a line of --help, [no-] taken apart.
names() {
  "$@" --help | awk '/^  -/ {
    sub(/^  /, ""); sub(/   *[^ ].*/, "") # the column of the help text
    while (match($0, /--(\[no-\])?[a-z0-9][a-z0-9-]*/)) {
      name = substr($0, RSTART, RLENGTH); $0 = substr($0, RSTART + RLENGTH)
      if (name ~ /\[no-\]/) { sub(/\[no-\]/, "", name); print name; sub(/^--/, "--no-", name) }
      print name
    }
  }'
}

# shellcheck source=/dev/null
. "$src/client/completion/trireme.bash"
commands='serve up gateway submit chat embed classify status top cancel plan pack doctor template keygen'
kinds='serve throughput latency batching memory load stream'
count=0 all=' '
check() { # check PROGRAM WORD...: a command, with what is completed behind it
  local given name
  given=$(names "$@")
  [[ $(wc -l <<<"$given") -ge 1 && -n $given ]] || failed "$*: no options in --help"
  if [[ $1 == "$bin/trireme" && $2 != keygen ]]; then # keygen's argument is a file
    COMP_WORDS=("$@" --) COMP_CWORD=$#
    _trireme
    for name in $given; do
      [[ " ${COMPREPLY[*]} " == *" $name "* ]] || failed "${*:2}: $name is not completed"
    done
    for name in "${COMPREPLY[@]}"; do
      [[ " ${given//$'\n'/ } " == *" $name "* ]] || failed "${*:2}: $name is completed, and is not in --help"
    done
  fi
  for name in $given; do
    all+="$name " count=$((count + 1))
    grep -q -e "\*$name\*" -e "\*--no-${name#--}\*" -e "\*--\[no-\]${name#--}\*" -e "\*--\[no-\]${name#--no-}\*" -e "\*--${name#--no-}\*" "$man" ||
      failed "${*##*/}: $name is not in the man page"
  done
}
for c in $commands; do check "$bin/trireme" "$c"; done
for k in $kinds; do check "$bin/trireme" bench "$k"; done
for program in trireme-coordinator trireme-worker; do check "$bin/$program"; done

# The other way round: what the man page has entries for, and the names that are written out in the completions.
for name in $(grep '^\*-' "$man" | grep -o -e '--[a-z][a-z0-9-]*' | sort -u) $(grep -v '^#' "$src/client/completion/trireme.bash" | grep -o -e '[ |]--[a-z][a-z0-9-]*' | tr -d ' |' | sort -u); do
  [[ $all == *" $name "* ]] || failed "$name is written of, and no program has it"
done
for word in $commands bench; do
  grep -q "^    '$word:" "$src/client/completion/_trireme" || failed "zsh does not complete the command $word"
done

shapes=$(mktemp -d) || exit 1
trap 'rm -rf "$shapes"' EXIT
"$src/tests/bench/peers/run.sh" "$bin" --shapes "$shapes" || failed "no shapes of models"
for config in "$src"/cluster-configs/*.yaml; do
  model=8b
  [[ $config = *experts* ]] && model=qwen3-30b
  said=$("$bin/trireme" plan --config "$config" --model "$shapes/$model" --memory-per-rank 80G --nvme-path "$shapes" 2>&1) ||
    failed "$config cannot be planned: $(tail -n 1 <<<"$said")"
done
((failures == 0)) && echo "$count options are in the man page and in the completions"
exit $((failures > 0))
