#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# llamacpp.sh BIN FILE FILES [--rounds N] [--rows PATTERN] [--out LINES]: llama.cpp and `trireme up` on the same GGUF files, one thread
# each, in turn, N (5) times: a table of medians, in CPU time. BIN has Trireme's programs; FILE is SmolLM2-135M-Instruct in Q4_1
# (scripts/real-models.sh); FILES is a folder, in which the other files are made once, of 5 GB.
# PYTHON is a Python with llama-cpp-python, built for this processor, numpy and gguf.
set -uo pipefail
here=$(dirname "$(realpath "$0")")
[[ $# -ge 3 && -d $1 && -f $2 && -d $3 ]] || { sed -n '3,6s/^# \{0,1\}//p' "$0" >&2; exit 2; }
bin=$(realpath "$1") real=$(realpath "$2") files=$(realpath "$3")
shift 3
rounds=5 rows=. out=$files/lines.json
while [[ $# -gt 1 ]]; do
  case $1 in
  --rounds) rounds=$2 ;;
  --rows) rows=$2 ;;
  --out) out=$2 ;;
  *) break ;;
  esac
  shift 2
done
[[ $# = 0 ]] || { echo "llamacpp.sh: $1 is not known, or has no value" >&2; exit 2; }
python=${PYTHON:-python3}
[[ -f $files/1b-q8_0.gguf ]] || "$python" "$here/llamacpp_files.py" "$real" "$files" || exit 1

# Each line: a row's name, what is measured, how much of it, llama.cpp's file (-: it has none), Trireme's file, options.
table() {
  for n in 1 8; do
    echo "decode-$n-bf16 decode $n real-bf16 real-bf16"
    echo "decode-$n-q8_0 decode $n real-q8_0 real-q8_0"
    echo "decode-$n-q8_0-int8 decode $n - real-bf16 -q int8"
    echo "decode-$n-q4_1 decode $n real real"
    echo "decode-$n-q4_1-int8 decode $n - real -q int8"
    echo "decode-$n-w8a8 decode $n - real-bf16 -q w8a8"
  done
  echo "prompt-bf16 prompt 512 real-bf16 real-bf16"
  echo "prompt-q8_0 prompt 512 real-q8_0 real-q8_0"
  echo "prompt-q8_0-int8 prompt 512 - real-bf16 -q int8"
  echo "prompt-q4_1 prompt 512 real real"
  echo "prompt-w8a8 prompt 512 - real-bf16 -q w8a8"
  echo "prompt-1b prompt 2048 1b-bf16 1b-bf16"
  echo "first-1b-bf16 first 16 1b-bf16 1b-bf16"
  echo "first-1b-q8_0 first 16 1b-q8_0 1b-q8_0"
  echo "first-1b-q8_0-int8 first 16 - 1b-bf16 -q int8"
  echo "memory-100m memory 512 100m-bf16 100m-bf16"
  echo "memory-real-bf16 memory 512 real-bf16 real-bf16"
  echo "memory-real-q8_0 memory 512 real-q8_0 real-q8_0"
  echo "memory-1b-q8_0 memory 512 1b-q8_0 1b-q8_0"
}
path() {
  if [[ $1 = real ]]; then echo "$real"; else echo "$files/$1.gguf"; fi
}
measure() { # ROW COMMAND...
  local row=$1
  shift
  "$@" | sed -un "s/^{/{\"row\":\"$row\",/p" | tee -a "$out" >&2
}
: >"$out"
for ((round = 1; round <= rounds; round++)); do
  while read -r row what number theirs ours options; do
    # shellcheck disable=SC2086
    measure "$row" "$python" "$here/trireme.py" "$bin" "$(path "$ours")" "$what" "$number" $options </dev/null
    [[ $theirs = - ]] || measure "$row" "$python" "$here/llamacpp.py" "$(path "$theirs")" "$what" "$number" </dev/null
  done < <(table | grep -E "$rows")
done
"$python" "$here/llamacpp_table.py" "$out"
