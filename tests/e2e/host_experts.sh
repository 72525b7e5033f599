#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Experts that the host computes beside a device: what is refused, what backend cpu makes of the options, and a device's answers. The
# device computes on the host with the reference's kernels, and says that its memory is its own.
# Usage: host_experts.sh MODULE
here=$(dirname "$0")
. "$here/lib.sh"
dense=$MODEL
use_experts 6

refused() { # EXIT WORD ARGS...
  local code=$1 word=$2
  shift 2
  timeout $HANG_S "$BIN/trireme" up "$@" >"$RUN/refused" 2>&1
  local got=$?
  [ $got = "$code" ] || fail "$* ended with $got, not $code: $(tail -3 "$RUN/refused")"
  grep -q -- "$word" "$RUN/refused" || fail "$* does not say '$word': $(tail -3 "$RUN/refused")"
}
refused 3 'cpu-moe and --n-cpu-moe are about experts, and llama has none' --model "$dense" --cpu-moe --backend cpu
refused 2 'give one of them' --model "$MODEL" --cpu-moe --n-cpu-moe 1 --backend cpu
refused 3 'give --cpu-moe or --n-cpu-moe' --model "$MODEL" --hot-experts 2 --backend cpu
refused 3 'cannot be combined with --deterministic' --model "$MODEL" --cpu-moe --hot-experts 2 --deterministic --backend cpu
refused 2 'hot-experts' --model "$MODEL" --cpu-moe --hot-experts -2 --backend cpu
refused 3 'cannot be combined with --data-parallel-size 2' --model "$MODEL" --cpu-moe -dp 2 -ep 2 --backend cpu --threads 1
for word in 'are about experts' 'cpu-moe'; do
  "$BIN/trireme" plan --model "$dense" --n-cpu-moe 1 2>&1 | grep -q "$word" || fail "plan does not say '$word'"
done
"$BIN/trireme" plan --model "$MODEL" --cpu-moe --devices 2 >"$RUN/plan" 2>&1
[ $? = 2 ] || fail "plan ranks layouts with experts on the host: $(cat "$RUN/plan")"
"$BIN/trireme" plan --model "$MODEL" --hot-experts 2 2>&1 | grep -q 'give --cpu-moe or --n-cpu-moe' || fail "plan has hot experts without a host's"

# One memory: the option is taken, and said to do nothing, once.
start_up --backend cpu --cpu-moe -tp 2 --threads 1
[ "$("$BIN/trireme" submit --temperature 0 "37+48=")" = 85 ] || fail "a wrong answer on backend cpu"
[ "$(grep -c 'cpu-moe has no effect: on backend cpu all weights are in host memory' "$RUN/log")" = 1 ] || fail "the log does not say once that nothing comes of it"
stop_cluster TERM
"$BIN/trireme" plan --model "$MODEL" --backend cpu --cpu-moe | grep -q "host memory" && fail "plan has experts beside a host's memory"

mkdir "$RUN/bin" && cp "$BIN/trireme" "$BIN"/trireme-{up,coordinator,worker,plan} "$RUN/bin" && cp "$1" "$RUN/bin/libtrireme-cuda.so" || fail "no copies of the programs"
cp "$1" "$RUN/bin/libcuda.so.1" # a driver's library that nobody calls
export LD_LIBRARY_PATH=$RUN/bin${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
BIN=$RUN/bin

# What plan counts: experts leave the device's memory for the host's, byte for byte.
field() { grep -o "\"$1\":[0-9.e+-]*" <<<"$2" | head -1 | cut -d: -f2; }
planned() { FAKE_MEMORY=4000000000 "$BIN/trireme" plan --model "$MODEL" --backend cuda --json --host-bandwidth 1e9 "$@" || fail "plan $*"; }
all=$(field weights "$(planned)")
said=$(planned --cpu-moe --hot-experts 0)
host=$(field host_experts "$said") rest=$(field weights "$said")
[ "${host:-0}" -gt 0 ] && [ "$all" = $((host + rest)) ] || fail "$all bytes of weights are not $rest and $host"
[ "$(field host_experts "$(planned --n-cpu-moe 1)")" -lt "$host" ] || fail "one layer has as many experts as all: $(planned --n-cpu-moe 1)"
token=$(field token_bytes "$said") # 2 of 6 experts
awk -v token="$token" -v host="$host" -v said="$(field token_seconds "$said")" 'BEGIN { exit !(token < host / 3 * 1.01 && token > host / 3 * 0.99 && said > token / 1e9 && said < token / 8e8) }' ||
  fail "a token reads $token bytes of $host: $said"
# Of 6 experts 2 on the device, too: the host reads two thirds of a token's, and a step takes that much less.
hot=$(planned --cpu-moe --hot-experts 2)
[ "$(field hot_experts "$hot")" = 2 ] && [ "$(field weights "$hot")" = "$rest" ] || fail "no experts on the device: $hot"
awk -v host="$host" -v hot="$(field hot_bytes "$hot")" -v all="$token" -v token="$(field token_bytes "$hot")" -v step="$(field seconds "$hot")" \
  -v without="$(field without_hot_seconds "$hot")" -v before="$(field seconds "$said")" \
  'BEGIN { exit !(hot > host / 3 * 0.99 && hot < host / 3 * 1.01 && token > all * 0.66 && token < all * 0.67 && step < without && without > before * 0.99 && without < before * 1.01) }' ||
  fail "two experts on the device, beside $said: $hot"
[ "$(field hot_experts "$(planned --cpu-moe)")" = 6 ] || fail "not all experts in a memory that has room for them: $(planned --cpu-moe)"
FAKE_MEMORY=4000000000 "$BIN/trireme" plan --model "$MODEL" --backend cuda --cpu-moe --hot-experts 2 --host-bandwidth 1e9 >"$RUN/plan" || fail "no plan"
for line in 'of the total [0-9.]* MiB for 2 of the 6 experts of each such layer, which the GPU computes$' \
  '^the GPU also holds and computes 2 of the 6 experts of each such layer' '^without them a step of 1 sequence would take [0-9.e-]* s$'; do
  grep -q "$line" "$RUN/plan" || fail "plan has no line '$line': $(cat "$RUN/plan")"
done
FAKE_MEMORY=4000000000 "$BIN/trireme" plan --model "$MODEL" --backend cuda --cpu-moe --hot-experts 0 --host-bandwidth 1e9 >"$RUN/plan" || fail "no plan: $(cat "$RUN/plan")"
for line in "of host memory [0-9.]* MiB for experts, which the CPU computes\$" ' 512 tokens per step$' \
  "^experts of the rank: [0-9.]* MiB stay in host memory; a token reads [0-9.]* MiB of them in [0-9.]* s, at 0.9[0-9]* GB/s (as given)\$" \
  '^predicted, with [0-9]* keys for each sequence: 1 sequence [0-9.]* s a step, [0-9.]* tokens/s$'; do
  grep -q "$line" "$RUN/plan" || fail "plan has no line '$line': $(cat "$RUN/plan")"
done
FAKE_MEMORY=4000000000 "$BIN/trireme" plan --model "$MODEL" --backend cuda --cpu-moe --hot-experts 0 >"$RUN/plan"
for line in '(measured now)$' '; [0-9]* sequences [0-9.]* s a step' '^predicted for a prompt: 512 tokens in [0-9.e-]* s$'; do
  grep -q "$line" "$RUN/plan" || fail "a host that was measured has no line '$line': $(cat "$RUN/plan")"
done

# Experts in the host's memory need room there where the plan is for this host's own devices.
mkdir "$RUN/huge"
echo '{"model_type": "mixtral", "torch_dtype": "bfloat16", "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 32768, "rms_norm_eps": 1e-5, "num_local_experts": 1024, "num_experts_per_tok": 2}' >"$RUN/huge/config.json"
FAKE_MEMORY=80000000000 "$BIN/trireme" plan "$RUN/huge" --backend cuda --cpu-moe -c 1024 >"$RUN/plan" 2>&1
[ $? = 3 ] || fail "more experts than any host has memory for: $(cat "$RUN/plan")"
grep -q "each rank needs [0-9.]* MiB of host memory for experts, and [0-9.]* MiB are free for it: give a smaller --n-cpu-moe, " "$RUN/plan" || fail "$(cat "$RUN/plan")"

# A device without room for the experts serves with them on the host, and not without; steps end behind their launch, two at a time.
# What memory it has beside the KV cache has some of them, too.
head -12 "$MODEL/questions.jsonl" >"$RUN/questions"
sed 's/^{"prompt": *\("[^"]*"\).*/{"prompt": \1, "temperature": 0, "max_tokens": 200}/' "$RUN/questions" >"$RUN/prompts"
sed 's/.*"reference": *"\([^"]*\)".*/\1/' "$RUN/questions" >"$RUN/reference"
few=(--kv-cache-dtype float32 --kv-cache-memory-bytes 8M --max-num-seqs 8 --max-num-batched-tokens 64 --gpu-memory-utilization 1)
said=$(planned --cpu-moe --hot-experts 1 "${few[@]}") # with the workspace of experts
memory=$((host / 2))
for part in weights activations kv_cache workspace reserve; do memory=$((memory + $(field $part "$said"))); done
export FAKE_EVENTS=1
FAKE_MEMORY=$memory refused 3 'exceed the .* that this rank may use' --model "$MODEL" --backend cuda --offload-weights none "${few[@]}"
# hot SLOTS: so many experts of each layer are on the device, where rows have come to them, and fewer than all
hot() {
  "$BIN/trireme" status --experts >"$RUN/rows" 2>&1 || fail "$layout: $(cat "$RUN/rows")"
  local here all
  here=$(field device_rows "$(cat "$RUN/rows")")
  all=$(sed -n '/"hot_experts"/s/.*"rows":\([0-9]*\),.*/\1/p' "$RUN/rows")
  [ "$(field slots "$(cat "$RUN/rows")")" = "$1" ] && [ "${here:-0}" -gt 0 ] && [ "$here" -lt "$all" ] || fail "$layout: $(cat "$RUN/rows")"
  "$BIN/trireme" status --stats | grep -q "^trireme:device_expert_rows_total{group=\"0\",rank=\"0\"} [1-9]" || fail "$layout: no metric"
}

for layout in "--offload-weights none --cpu-moe" "--cpu-moe -tp 2 --hot-experts 2" "--n-cpu-moe 2 -tp 2 -pp 2" "--cpu-moe --gpu-layers 1" "--cpu-moe --quantization int8 --hot-experts 0"; do
  : >"$RUN/log"
  # shellcheck disable=SC2086
  FAKE_MEMORY=$memory start_up --threads 1 --backend cuda "${few[@]}" $layout
  memory=4000000000 # layouts with experts on the device want more
  grep -q "MiB of experts stay in host memory: 1 threads with" "$RUN/log" || fail "$layout: the log does not say where the experts are"
  "$BIN/trireme" submit --file "$RUN/prompts" --output "$RUN/answers.jsonl" >"$RUN/submit.log" 2>&1 || fail "$layout: $(tail -3 "$RUN/submit.log")"
  case $layout in
  *none*) hot 2 ;; # half of them would want tables, too
  *'hot-experts 2') hot 2 ;;
  *pp*) grep -q 'the GPU also holds 6 of the 6 experts of each such layer' "$RUN/log" || fail "$layout: not all experts are on the device" ;;
  *) grep -q 'the GPU also holds' "$RUN/log" && fail "$layout: experts are on the device" ;;
  esac
  stop_cluster TERM
  json_field text <"$RUN/answers.jsonl" | cmp -s - "$RUN/reference" || fail "$layout: other answers"
  rm "$RUN/answers.jsonl"
done
