#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2034 # CLUSTER is of lib.sh
# Groups that cannot start: a reason, the right exit code, no endless restarting, nothing left.
. "$(dirname "$0")/lib.sh"

# ends_with CODE PATTERN: the cluster ends by itself
ends_with() {
  local code since
  since=$(now_ms)
  wait_end
  code=$?
  all_gone "$(now_ms)"
  [ "$code" = "$1" ] || fail "exit code $code, expected $1"
  grep -q -- "$2" "$RUN/log" || fail "no word of '$2' in the log"
  ENDED=$(($(now_ms) - since))
  [ -z "$(find "${XDG_RUNTIME_DIR:?fault/lib.sh sets it}" -maxdepth 1 -name 'trireme-up-*' -newer "$RUN/begin" 2>/dev/null)" ] || fail "its run folder stays"
}
up() {
  : >"$RUN/log"
  "$BIN/trireme" up "$@" >>"$RUN/log" 2>&1 &
  CLUSTER=$!
}
starts() { grep -c "worker: .* ranks" "$RUN/log"; }
touch "$RUN/begin"

# What a supervisor that was killed has left goes when the next one starts; what is young, or somebody's, stays.
base=${XDG_RUNTIME_DIR:-/tmp}
[ -w "$base" ] || base=/tmp
mkdir "$base/trireme-up-testA1" "$base/trireme-up-testB1"
touch "$base/trireme-up-testA1/boot" "$base/trireme-up-testB1/workers"
exec 7<"$base/trireme-up-testB1"
flock -x 7
sleep 11.1
mkdir "$base/trireme-up-testC1"
touch "$RUN/begin"

# Refused from the start.
up --model "$MODEL" --endpoint 'tcp://127.0.0.1:*'
ends_with 2 "without keys.*--key-file.*--allowed-keys"
[ ! -e "$base/trireme-up-testA1" ] || fail "a dead supervisor's folder stays"
[ -e "$base/trireme-up-testB1/workers" ] || fail "a living supervisor's folder is gone"
[ -e "$base/trireme-up-testC1" ] || fail "a young folder is gone"
flock -u 7
exec 7<&-
rm -r "$base/trireme-up-testB1" "$base/trireme-up-testC1"
"$BIN/trireme" keygen "$RUN/server.key" >"$RUN/server.pub"
{ echo "# clients" && echo && sed 's/$/ me/' "$RUN/server.pub" && echo "no-key"; } >"$RUN/allowed"
up --model "$MODEL" --endpoint 'tcp://127.0.0.1:*' --key-file "$RUN/server.key" --allowed-keys "$RUN/allowed"
ends_with 3 "$RUN/allowed:4: a key is 40 characters"
up --model "$MODEL" --launch mpi
ends_with 2 "launch"
echo "tcp without keys, a wrong list of keys, an option of another program: refused by name"
"$BIN/trireme" plan --model "$MODEL" --memory-per-rank 10000 >"$RUN/plan" 2>&1
[ $? = 3 ] && grep -q -- "--memory-per-rank" "$RUN/plan" || fail "the plan's refusal does not name --memory-per-rank: $(tail -1 "$RUN/plan")"
"$BIN/trireme" bench latency --model "$MODEL" -tp 2 >"$RUN/plan" 2>&1
[ $? = 2 ] && grep -q -- "--tensor-parallel-size" "$RUN/plan" || fail "bench latency takes -tp 2"
up --model "$RUN/nothing" -tp 2
ends_with 3 "$RUN/nothing"
echo "no such model: code 3 after $ENDED ms"
mkdir "$RUN/odd"
cp "$MODEL"/*.json "$MODEL"/*.safetensors "$RUN/odd"
sed -i 's/{/{"quantization_config": {"quant_method": "bitsandbytes"},/' "$RUN/odd/config.json"
up --model "$RUN/odd" -tp 2
ends_with 3 quantization_config
echo "a config that is not understood: code 3 after $ENDED ms"
up --model "$MODEL" -tp 2 --kv-cache-memory-bytes 1000
ends_with 3 "kv-cache-memory\|KV"
echo "too small a KV cache: code 3 after $ENDED ms"
up --model "$MODEL" -tp 1 --no-such-option
ends_with 2 "no-such-option"

# The model goes away while the cluster serves, and then a worker dies.
mkdir "$RUN/model"
cp "$MODEL"/*.json "$MODEL"/*.safetensors "$RUN/model"
up --model "$RUN/model" -tp 2 --max-restarts 2
wait_ready
mv "$RUN/model" "$RUN/away"
kill -9 "$(rank_pid 0 1)"
ends_with 1 "giving up"
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
ends_with 1 "giving up"
[ "$(wc -l <"$RUN/starts")" = 2 ] || fail "$(wc -l <"$RUN/starts") starts, expected 2"
echo "a worker that ends at once: gave up after 2 starts and $ENDED ms"

# A launcher that refuses its options.
up --model "$MODEL" -tp 2 --launcher-args "--no-such-option"
ends_with 1 "no rank of it has ever come up"
[ "$(grep -c 'starting it again' "$RUN/log")" = 1 ] || fail "$(grep -c 'starting it again' "$RUN/log") restarts of a launcher that does not work"
echo "a launcher that does not work: gave up after $ENDED ms"
up --model "$MODEL" -tp 2 --launcher-args "$(printf -- '-x A%.0s ' $(seq 300))"
ends_with 3 "launcher-args: 1500 bytes, the limit is 1023"
up --model "$MODEL" -tp 2 --launcher-args "$(printf -- 'a %.0s' $(seq 500))"
ends_with 3 "launcher-args: 500 arguments, the limit is 4"
