#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# One command from a fresh clone to streaming tokens: installs what is missing, builds, starts a cluster of four workers (tensor parallel 2,
# pipeline parallel 2) on this machine, asks it questions over ZeroMQ and over HTTP, and stops everything again.
#   ./demo.sh
#   ./demo.sh --chat    talks with a real model instead, SmolLM2 135M, which it fetches first (98 MB, scripts/real-models.sh)
set -euo pipefail
cd "$(dirname "$0")"
case $#${1-} in
0) chat=0 ;;
1--chat) chat=1 ;;
*)
  sed -n '5,6p' "$0" | sed 's/^# \{0,1\}//' >&2
  exit 2
  ;;
esac

tp=${TP:-2} pp=${PP:-2} model=${MODEL:-tests/models/abacus}
run=$(mktemp -d "${TMPDIR:-/tmp}/trireme-demo.XXXXXX")
bin=build/demo/bin
up_pid=

stop() {
  status=$?
  trap - EXIT INT TERM
  if [ -n "$up_pid" ] && kill -0 "$up_pid" 2>/dev/null; then
    kill -TERM "$up_pid" 2>/dev/null || true
    wait "$up_pid" || true
  fi
  if [ "$status" -ne 0 ] && [ -s "$run/cluster.log" ]; then
    echo "--- the cluster's log:" >&2
    tail -n 30 "$run/cluster.log" >&2
  fi
  rm -rf "$run"
  exit "$status"
}
trap stop EXIT
trap 'exit 130' INT TERM

say() { printf '\n\033[1m== %s\033[0m\n' "$*"; }

say "Libraries"
scripts/install-deps.sh
if [ $chat = 1 ]; then
  python3 -m pip --version >/dev/null 2>&1 || scripts/install-deps.sh --models
  say "Model"
  model=$(scripts/real-models.sh smollm2)
  echo "$model"
fi

say "Build"
# Kernels for NVIDIA devices take minutes to compile, and a machine without one would not run them.
cuda=AUTO
[ -e /dev/nvidiactl ] || cuda=OFF
cmake -S . -B build/demo -G Ninja -DCMAKE_BUILD_TYPE=Release -DTRIREME_CUDA=$cuda >"$run/configure.log" 2>&1 || { cat "$run/configure.log"; exit 1; }
cmake --build build/demo --target programs

export TRIREME_ENDPOINT="ipc://$run/trireme.sock" XDG_STATE_HOME="$run/state"
wait_ready() {
  until "$bin/trireme" status --wait 1 >/dev/null 2>&1; do
    kill -0 "$up_pid" 2>/dev/null || { echo "the cluster ended before it was ready" >&2; exit 1; }
  done
}
find_url() { url=$(sed -n 's/.*gateway: \(http:[^ ]*\)$/\1/p' "$run/cluster.log"); }
post() { curl -sS "$url$1" -H 'Content-Type: application/json' -d "$2" && echo; }
stop_cluster() {
  say "Stop"
  kill -TERM "$up_pid"
  wait "$up_pid"
  up_pid=
  echo "everything that was started has ended"
}

if [ $chat = 1 ]; then
  say "Start: $(basename "$model"), one worker"
  "$bin/trireme" serve "$model" --port 0 --tool-parser hermes >"$run/cluster.log" 2>&1 & # a free port, which the log names
  up_pid=$!
  wait_ready
  say "A chat of three turns: tokens appear as they are made"
  # The model is small and has 4 bits a weight: it is fluent, and often wrong. A turn is said when the last one was answered.
  turns() {
    local said=0 line
    for line in "Hello! Who are you?" "Tell me about the sea in two sentences." "Now say that in one sentence."; do
      printf '\n\033[1m> %s\033[0m\n' "$line" >&2
      echo "$line"
      said=$((said + 1))
      for _ in $(seq 600); do
        "$bin/trireme" status --json | grep -q "\"requests_done\": *${said}[,}]" && break
        sleep 0.1
      done
      sleep 0.2
    done
  }
  turns | "$bin/trireme" chat "$model" --temperature 0 --max-tokens 120
  say "A call of a function over HTTP: its arguments fit the schema, whatever the model is like"
  find_url
  post /v1/chat/completions '{"messages": [{"role": "user", "content": "What is the weather in Paris, in celsius?"}], "temperature": 0,
    "tool_choice": "required", "parallel_tool_calls": false, "tools": [{"type": "function", "function": {"name": "get_weather", "parameters":
    {"type": "object", "properties": {"city": {"type": "string"}, "unit": {"enum": ["celsius", "fahrenheit"]}}, "required": ["city", "unit"]}}}]}'
  stop_cluster
  exit 0
fi

say "Start: $((tp * pp)) workers, tensor parallel $tp x pipeline parallel $pp, model $(basename "$model")"
"$bin/trireme" plan --model "$model" -tp "$tp" -pp "$pp"
"$bin/trireme" up --model "$model" -tp "$tp" -pp "$pp" --http 0 >"$run/cluster.log" 2>&1 & # a free port, which the log names
up_pid=$!
wait_ready
"$bin/trireme" status

say "Questions over ZeroMQ: tokens appear as they are made"
ask() {
  printf '%s ' "$1"
  "$bin/trireme" submit --temperature 0 --max-tokens 160 "$1"
}
ask "37+48="
ask "reverse stone="
ask "sort 52914="
ask "count 7 to 40="

find_url
say "The same over OpenAI's HTTP API, at $url"
post /v1/completions '{"prompt": "reverse stone=", "temperature": 0}'
post /v1/chat/completions '{"messages": [{"role": "user", "content": "37+48="}], "temperature": 0}'

say "64 questions at a time"
# The file also holds the answers, which are not for the cluster.
sed 's/^\({"prompt": *"[^"]*"\).*/\1}/' "$model/questions.jsonl" >"$run/prompts.jsonl"
"$bin/trireme" bench serve --prompt-file "$run/prompts.jsonl" --num-prompts 400 --max-concurrency 64 --temperature 0 --no-ignore-eos \
  --random-output-len 200

say "Layout"
sleep 0.5 # every rank has reported
"$bin/trireme" status
stop_cluster
