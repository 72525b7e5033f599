#!/usr/bin/env bash
# Groups that cannot start: a reason, the right exit code, no endless restarting, nothing left.
. "$(dirname "$0")/lib.sh"

# ends_with CODE PATTERN SECONDS: the cluster ends by itself
ends_with() {
  local code since
  since=$(now_ms)
  while kill -0 "$CLUSTER" 2>/dev/null; do
    [ $(($(now_ms) - since)) -lt $(($3 * 1000)) ] || fail "still running after $3 s"
    sleep 0.05
  done
  wait "$CLUSTER"
  code=$?
  all_gone "$(now_ms)"
  [ "$code" = "$1" ] || fail "exit code $code, expected $1"
  grep -q -- "$2" "$RUN/log" || fail "no word of '$2' in the log"
  ENDED=$(($(now_ms) - since))
  [ -z "$(find /tmp "${XDG_RUNTIME_DIR:-/tmp}" -maxdepth 1 -name 'trireme-up-*' -newer "$RUN/begin" 2>/dev/null)" ] || fail "its run folder stays"
}
up() {
  : >"$RUN/log"
  "$BIN/trireme" up "$@" >>"$RUN/log" 2>&1 &
  CLUSTER=$!
}
starts() { grep -c "worker: .* ranks" "$RUN/log"; }
touch "$RUN/begin"

# Refused from the start.
up --model "$RUN/nothing" -tp 2
ends_with 1 "$RUN/nothing" 10
echo "no such model: code 1 after $ENDED ms"
mkdir "$RUN/odd"
cp "$MODEL"/*.json "$MODEL"/*.safetensors "$RUN/odd"
sed -i 's/{/{"quantization_config": {"quant_method": "gptq"},/' "$RUN/odd/config.json"
up --model "$RUN/odd" -tp 2
ends_with 3 quantization_config 10
echo "a config that is not understood: code 3 after $ENDED ms"
up --model "$MODEL" -tp 2 --kv-cache-memory-bytes 1000
ends_with 3 "kv-cache-memory\|KV" 10
echo "too small a KV cache: code 3 after $ENDED ms"
up --model "$MODEL" -tp 1 --no-such-option
ends_with 2 "no-such-option" 10

# The model goes away while the cluster serves, and then a worker dies.
mkdir "$RUN/model"
cp "$MODEL"/*.json "$MODEL"/*.safetensors "$RUN/model"
up --model "$RUN/model" -tp 2 --max-restarts 2
wait_ready
mv "$RUN/model" "$RUN/away"
kill -9 "$(rank_pid 0 1)"
ends_with 1 "giving up" 20
[ "$(starts)" -le 4 ] || fail "$(starts) starts with --max-restarts 2"
grep -q "$RUN/model" "$RUN/log" || fail "the log does not name the folder"
echo "model removed: gave up $ENDED ms after a worker's death, $(grep -c 'starting it again' "$RUN/log") restarts"

# A worker that ends at once.
mkdir "$RUN/bin"
cp "$BIN"/trireme-up "$BIN"/trireme-coordinator "$RUN/bin"
printf '#!/bin/sh\necho started >>%s/starts\nexit 1\n' "$RUN" >"$RUN/bin/trireme-worker"
chmod +x "$RUN/bin/trireme-worker"
: >"$RUN/log"
"$RUN/bin/trireme-up" --model "$MODEL" --max-restarts 2 >>"$RUN/log" 2>&1 &
CLUSTER=$!
ends_with 1 "giving up" 20
[ "$(wc -l <"$RUN/starts")" = 3 ] || fail "$(wc -l <"$RUN/starts") starts, expected 3"
echo "a worker that ends at once: gave up after 3 starts and $ENDED ms"
