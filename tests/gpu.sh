#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Tests for a machine with an NVIDIA device, where the CUDA toolkit and the packages of scripts/install-deps.sh are:
#   tests/gpu.sh quick     builds; every op against the reference, every checkpoint in every type, and with streamed weights
#   tests/gpu.sh replays   builds; 10,000 decode steps of every decoder, most of them replayed, give the same bits
#   tests/gpu.sh sanitize  builds; every op on small shapes under compute-sanitizer (memcheck, initcheck, racecheck)
#   tests/gpu.sh multi     builds; all-reduces, transfers and the exchange of rows over two devices, and over four and eight where they are; every checkpoint in float32
#                          over two devices, tensor and pipeline parallel, and over four where they are, and in bfloat16 with sums of it
#   tests/gpu.sh serve     builds; a cluster on one device, and over two where they are, answers the bundled model's questions; over two, also many
#                          prompts at once of a model with 8 billion parameters, and questions whose group is killed
#   tests/gpu.sh killed [LAYOUT...]  builds; that last one alone, over two groups of a layout (one rank each): killed -tp 2
# TRIREME_GPU_BIN=FOLDER takes the programs and the module from there instead of building them. Exit code 77: no device.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
bin=${TRIREME_GPU_BIN:-build/gpu/bin}

build() {
  [ -z "${TRIREME_GPU_BIN:-}" ] || return 0
  mkdir -p build
  cmake -S . -B build/gpu -G Ninja -DTRIREME_CUDA=ON -DTRIREME_WERROR=ON -DTRIREME_CUDA_ARCHITECTURES="${TRIREME_CUDA_ARCHITECTURES:-native}" >build/gpu.cmake.log 2>&1 || { cat build/gpu.cmake.log; return 1; }
  cmake --build build/gpu -j "$(nproc)" >build/gpu.build.log || { tail -40 build/gpu.build.log; return 1; }
}

# The checkpoints with their weights: those of the build, or drawn by it.
checkpoints() {
  [ -d "$bin/../tests/data" ] || tests/models/data.sh "$(realpath "$bin/draw_weights")" "$(realpath "$bin/..")/tests/data" || return
  echo "$bin/../tests/data/checkpoints"
}

quick() {
  local data
  data=$(checkpoints) || return
  "$bin/opcheck" --backend cuda --cases 60 || return
  tests/modelcheck/all.sh "$bin/modelcheck" "$data" cuda || return
  tests/modelcheck/all.sh "$bin/modelcheck" "$data" cuda-streamed || return
  tests/modelcheck/all.sh "$bin/modelcheck" "$data" cuda-host-experts
}

replays() {
  local data
  data=$(checkpoints) || return
  tests/modelcheck/all.sh "$bin/modelcheck" "$data" cuda-replays
}

sanitize() {
  local tool
  for tool in memcheck initcheck racecheck; do
    echo "== $tool"
    compute-sanitizer --tool "$tool" --error-exitcode 1 "$bin/opcheck" --backend cuda --cases 8 | tail -3 || return
  done
}

multi() {
  local data devices ranks layout failed=0
  data=$(checkpoints) || return
  devices=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU')
  [ "$devices" -ge 2 ] || { echo "two devices are needed, $devices found"; return 77; }
  for ranks in 2 4 8; do
    [ "$ranks" -le "$devices" ] || continue
    echo "== all-reduces, transfers and experts' rows over $ranks devices"
    "$bin/device_comm" --fork "$ranks" || failed=1
  done
  for layout in 2x1 1x2 2x2 4x1; do
    [ $((${layout%x*} * ${layout#*x})) -le "$devices" ] || continue
    echo "== tensor x pipeline parallel $layout"
    tests/modelcheck/all.sh "$bin/modelcheck" "$data" "cuda-$layout" || failed=1
  done
  for n in 2 4; do
    [ "$devices" -ge $n ] || continue
    tests/modelcheck/all.sh "$bin/modelcheck" "$data" "cuda-bf16-sums-$n" || failed=1
    tests/modelcheck/all.sh "$bin/modelcheck" "$data" "cuda-experts-$n" || failed=1
  done
  return $failed
}

# Answers are those of the reference in float32; in 16 bits they may differ, but not be worse.
serve() {
  local devices failed=0
  export BIN=$bin SRC=$PWD
  devices=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU')
  tests/e2e/answers.sh up 1 1 --backend cuda --dtype float32 || failed=1
  [ "$devices" -lt 2 ] && return $failed
  tests/e2e/answers.sh up 2 1 --backend cuda --dtype float32 || failed=1
  SAMPLING='"temperature": 0.7, "top_k": 20, "top_p": 0.001' tests/e2e/answers.sh up 2 1 --backend cuda --dtype float32 || failed=1
  tests/e2e/answers.sh up 1 2 --backend cuda --dtype float32 || failed=1
  crowd -tp 2 || failed=1
  crowd -pp 2 || failed=1
  killed || failed=1
  [ "$devices" -lt 4 ] && return $failed
  killed -tp 2 || failed=1
  killed -pp 2 || failed=1
  return $failed
}

# kill -9 of a rank of one of two groups, the last one of several, under 60,000 questions: each is answered as by the reference.
killed() { # LAYOUT
  local run up answers rank status result=1 model=tests/models/abacus
  run=$(mktemp -d) || return
  export XDG_RUNTIME_DIR=$run XDG_STATE_HOME=$run/state TRIREME_ENDPOINT=ipc://$run/c.sock
  for _ in $(seq 300); do cat "$model/questions.jsonl"; done >"$run/questions"
  sed 's/^{"prompt": *\("[^"]*"\).*/{"prompt": \1, "temperature": 0, "max_tokens": 200}/' "$run/questions" >"$run/prompts"
  "$bin/trireme" up --model "$model" --dtype float32 --backend "${BACKEND:-cuda}" -dp 2 "$@" >"$run/log" 2>&1 &
  up=$!
  "$bin/trireme" status --wait 60 >/dev/null
  "$bin/trireme" submit --file "$run/prompts" --output "$run/answers" --concurrency 256 2>"$run/served" &
  answers=$!
  until [ -s "$run/answers" ] || ! kill -0 $answers 2>/dev/null; do sleep 0.1; done
  status=$("$bin/trireme" status --json)
  rank=$(grep -o '"group":1,"rank":[0-9]*,"host":"[^"]*","pid":[0-9]*' <<<"$status" | sort -t: -k3n | tail -1)
  kill -9 "${rank##*:}"
  wait $answers
  diff <(sed 's/.*"reference": *"\([^"]*\)".*/\1/' "$run/questions") <(sed 's/.*"text": *"\([^"]*\)".*/\1/' "$run/answers") >"$run/diff" && grep -Eq 'replica 1 .*killed by signal 9' "$run/log" && result=0
  [ $result = 0 ] && echo "a group killed under questions, ${*:-one rank}: $(tail -1 "$run/served"), all as the reference"
  [ $result = 0 ] || { echo "a group killed under questions, ${*:-one rank}: FAILED"; head -4 "$run/diff"; tail "$run/log"; }
  kill -INT $up && wait $up
  rm -rf "$run"
  return $result
}

# Many long prompts at once in a deep model: steps of many launches, and plans that are longer than what goes at once.
crowd() { # LAYOUT
  local run up result=1
  run=$(mktemp -d) || return
  tests/bench/peers/run.sh "$bin" --shapes "$run" || { rm -rf "$run"; return 1; }
  export XDG_RUNTIME_DIR=$run XDG_STATE_HOME=$run/state
  "$bin/trireme" up --model "$run/8b" --load-format dummy --dtype bfloat16 --backend cuda --max-model-len 1024 --max-num-seqs 64 "$@" >"$run/log" 2>&1 &
  up=$!
  for _ in $(seq 300); do
    grep -q 'coordinator: serving' "$run/log" && break
    sleep 0.1
  done
  timeout 100 "$bin/trireme" bench serve --num-prompts 192 --random-input-len 512 --random-output-len 64 --no-floors >"$run/served"
  grep -q '192 done, 0 failed' "$run/served" && result=0
  [ $result = 0 ] || { echo "many prompts at once, $*: FAILED"; cat "$run/served" "$run/log"; }
  kill -INT $up && wait $up
  rm -rf "$run"
  return $result
}

case ${1:-} in
quick | replays | sanitize | multi | serve) build && "$1" ;;
killed) build && "$@" ;;
*) sed -n '3,13s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
