#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every system call on a model's files fails once, with an input/output error and, where it reads, with the end of the file.
# Right is: the program ends with words that name the file, or with the answer that it has undisturbed; never with a signal, and it does
# not hang. strace is what makes calls fail.
. "$(dirname "$0")/../e2e/wait.sh"
: "${BIN:?the folder of the programs}" "${SRC:?the source folder}"
command -v strace >/dev/null || { echo "skipped: strace is missing (scripts/install-deps.sh --test)" && exit 77; }
strace -o /dev/null true 2>/dev/null || { echo "skipped: nothing may be traced here" && exit 77; }
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0 # which needs to trace by itself
RUN=$(mktemp -d) || exit 1
trap 'rm -rf "$RUN"' EXIT
fail() {
  echo "FAILED: $*" >&2
  cat "$RUN/out" "$RUN/err" >&2
  exit 1
}
mkdir "$RUN/model" && cp "$SRC"/tests/models/abacus/*.json* "$SRC"/tests/models/abacus/*.safetensors "$SRC"/tests/models/abacus/*.jinja "$RUN/model"
paths=(-P "$RUN/model")
for file in "$RUN"/model/*; do paths+=(-P "$file"); done
calls=(access newfstatat openat read pread64 getdents64)
echo '[{"role": "user", "content": "37+48="}]' >"$RUN/messages"
number=0 refused=0 right=0

run() { # ARGS OF STRACE... -- PROGRAM...
  timeout "$HANG_S" strace -f -o "$RUN/trace" "${paths[@]}" "$@" >"$RUN/out" 2>"$RUN/err"
}
# each NAME PROGRAM...: one call after the other fails.
each() {
  local name=$1 call how n code
  shift
  run "$@" || fail "$name without a fault"
  cp "$RUN/out" "$RUN/$name.whole"
  for call in "${calls[@]}"; do
    for how in error=EIO retval=0; do
      [ $how = error=EIO ] || [[ $call = *read* ]] || continue
      for ((n = 1; n < 200; n++)); do
        run -e inject="$call:$how:when=$n" "$@"
        code=$?
        grep -q INJECTED "$RUN/trace" || break
        number=$((number + 1))
        if [ $code = 0 ]; then
          cmp -s "$RUN/out" "$RUN/$name.whole" || fail "$name: $call number $n, $how: another answer"
          right=$((right + 1))
        else
          [ $code -lt 100 ] || fail "$name: $call number $n, $how: exit code $code"
          grep -qE "$RUN/model|\.(json|safetensors|jinja)|cannot be read" "$RUN/err" || fail "$name: $call number $n, $how: no word of what cannot be read"
          refused=$((refused + 1))
        fi
      done
    done
  done
}

each plan "$BIN/trireme" plan --model "$RUN/model" --memory-per-rank 2G --json
each weights "$BIN/modelcheck" "$RUN/model"
each template "$BIN/trireme" template --model "$RUN/model" "$RUN/messages"
[ $number -gt 40 ] || fail "only $number calls failed"
echo "$number calls failed: $refused refused with words, $right as undisturbed"
