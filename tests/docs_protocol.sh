#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# docs/protocol.md names every op and every field of the messages between clients and the coordinator.
#   docs_protocol.sh [DIR]        checks a source tree
#   docs_protocol.sh --self-test  checks that a field without a word is found
set -u

# Names in the tables of messages, and in the lists of numbers and figures that are rows of them.
names() {
  sed -n '/^static const tri_field [a-z_]*fields\[\] = {/,/^}/p; /^#define E[A-Z_]*/,/[^\\]$/p; /^static const tri_message/,/^}/p' comm/wire/client.c |
    sed '/define E_TEXTS/d' | grep -o '"[a-z_]*"\|S_[A-Z0-9]*([a-z_]*, [a-z_]*)\|E_TEXTS([a-z]*)' | sed 's/.*[ (]\([a-z_]*\))$/\1/; s/"//g'
  sed -n 's/.*X(context, [A-Z0-9]*, \([a-z_0-9]*\),.*/\1/p' base/options/sampling_numbers.h comm/wire/status_fields.h
  sed -n '/define TRI_SAMPLING_FIELDS(S)/,/^$/p' comm/wire/sampling.h | grep -o '"[a-z_]*"' | sed 's/"//g'
}

check() {
  cd "$1" || return 1
  silent=$(names | sort -u | while read -r name; do grep -q "\`$name\`" docs/protocol.md || echo "$name"; done)
  [ -z "$silent" ] || printf 'docs/protocol.md has no word of `%s`\n' $silent
  [ -z "$silent" ] && [ "$(names | sort -u | wc -l)" -ge 100 ] # fewer: the tables are not found any more
}

self_test() {
  dir=$(mktemp -d) || exit 1
  trap 'rm -rf "$dir"' EXIT
  cp -r --parents comm/wire base docs/protocol.md "$dir" || exit 1
  (check "$dir") || { echo "refused a document that is whole"; exit 1; }
  for name in models stream temperature queue_ms embedding scheduler_cpu_s echo; do
    sed "s/\`$name\`/$name/g" docs/protocol.md >"$dir/docs/protocol.md"
    [ "$(check "$dir")" = "docs/protocol.md has no word of \`$name\`" ] || { echo "did not find $name"; exit 1; }
  done
}

case ${1-.} in
--self-test) cd "$(dirname "$0")/.." && self_test ;;
*) check "${1-.}" ;;
esac
