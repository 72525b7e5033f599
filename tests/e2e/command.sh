#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The trireme command against tests/tools/fake_coordinator.c: words, exit codes, order of results, interrupts.
# Usage: command.sh TRIREME FAKE_COORDINATOR
# shellcheck source=/dev/null disable=SC2154
. "$(dirname "$0")/fake.sh" "$@"

start
want 0 '^ the oars of three$' "$trireme" submit "hello world" --max-tokens 4
want 0 '^ the oars of three$' "$trireme" submit "hello world" --max_tokens=4 --no-stream
# Who gave no length is told that the answer was cut, beside the answer.
want 0 '^trireme: cut after 16 tokens: --max-tokens says' "$trireme" submit hello
[[ $("$trireme" submit hello 2>/dev/null) != *cut* ]] || failed "a note in the answer"
for c in "--max-tokens 64" --json; do
  # shellcheck disable=SC2086
  "$trireme" submit hello $c 2>&1 | grep -q 'cut after' && failed "submit hello $c: a note about its length"
done
want 0 '^\[2\]  as one' "$trireme" submit "hello" --n 3
want 0 '"event":"done".*"prompt_tokens":2' "$trireme" submit "hello world" --json
want 0 '"logprob":-0.5,"token":" the","bytes":\[32,116,104,101\],"top":\[{"id":0,"logprob":-0.5,"token":"�","bytes":\[195\]}' "$trireme" submit x --json --logprobs 1
want 0 '^trireme: --logprobs shows with --json alone$' "$trireme" submit hello --logprobs 2
want 0 '^ the$' "$trireme" submit --token-ids 1,2,3 --max-tokens 1
want 3 'prompt: asked for' "$trireme" submit "error no_capacity"
want 1 'asked for' "$trireme" submit "error internal"
want 2 'n is 65; allowed are 1 to 64' "$trireme" submit x --n 65
want 2 'did you mean --temperature' "$trireme" submit x --temprature 1
want 2 'n is 0' "$trireme" submit "error out_of_range" --n 0
want 3 'asked for' "$trireme" submit "error out_of_range"
want 3 'asked for' "$trireme" submit "error draining"
# A prompt from a pipe loses one newline at its end, and no more.
want 3 'asked for' "$trireme" submit - < <(echo error no_capacity)
want 3 'asked for' "$trireme" submit - < <(printf 'error no_capacity')
want 1 'asked for' "$trireme" submit - < <(printf 'error no_capacity\n\n')
want 2 'byte 3 of the prompt is not UTF-8' "$trireme" submit $'ab\xff'
want 2 '^trireme cancel: which request' "$trireme" cancel
want 2 '^trireme keygen: which file' "$trireme" keygen
want 2 'what is the prompt' "$trireme" submit
want 2 'did you mean submit' "$trireme" submti
want 2 'there is no command "foo"$' "$trireme" foo
want 2 'cannot open /no/such/file' "$trireme" submit x --config /no/such/file
want 2 'Usage' "$trireme"
want 0 'trireme [0-9]' "$trireme" --version
want 0 '^0 running, 0 waiting; clients with requests: 1 (an HTTP gateway is one); [0-9.]* tokens/s, ' "$trireme" status
want 0 ', coordinator up [0-9]* s, [0-9]* MB$' "$trireme" status
want 0 '^journal: the disk of /var/journal is full: new requests are refused' "$trireme" status
want 0 ' 2 refused, ' "$trireme" status
want 0 '"model":"fake"' "$trireme" status --json
want 0 'KV BLOCKS USED' "$trireme" status
want 0 '^Ranks report once a second' "$trireme" status
want 0 '^replica 0 streams 0.25 GB of weights in every step, at 1.00 GB/s; the last two ended 0.25 s apart, steps have waited 0.2 s in all for 0.5 GB, 0.1 of them read by other data-parallel ranks$' "$trireme" status
want 0 '^replica 0 uses 12 of 400 KV blocks in host memory; 30 sequences were swapped out with 0.05 GB, 28 were swapped in$' "$trireme" status
want 0 '"host_kv_pages":400,"host_kv_pages_used":12,"swaps_out":30,"swaps_in":28,"swapped_out_bytes":50000000,"swapped_in_bytes":40000000,"prefix_cache_queries":2000,"prefix_cache_hits":1500,"prefix_cache_evictions":25' "$trireme" status --json
want 0 '^replica 0 found 1500 of 2000 prompt tokens (75 %) in the prefix cache; 25 blocks were evicted$' "$trireme" status
want 0 '"streamed_bytes":500000000,"stream_pass_bytes":250000000,"stream_pass_s":0.25,"stream_stall_s":0.2,"stream_bytes_per_s":1e+09,"stream_peer_bytes":100000000' "$trireme" status --json
want 0 '"pid":1000,"step":[0-9]*,"block":0,.*"pid":1001,"step":[0-9]*,"block":null,' "$trireme" status --json
want 0 '^trireme:fake 1' "$trireme" status --stats
want 1 'no such request' "$trireme" cancel 00000000000000000000000000000000
want 2 'needs a terminal' "$trireme" top
# Every command and benchmark, which man pages are made of.
names() { "$trireme" $1 --help | sed -n "/^$2:/,/^\$/s/^  \([a-z]*\) .*/\1/p"; }
mapfile -t commands < <(names "" Commands && names bench Kinds | sed 's/^/bench /')
[[ ${#commands[@]} -ge 22 ]] || failed "only ${#commands[@]} commands: ${commands[*]}"
for c in "${commands[@]}"; do
  # shellcheck disable=SC2086
  for help in --help --help-all; do want 0 "^Usage: trireme $c " "$trireme" $c $help; done
  # shellcheck disable=SC2086
  want 0 "^trireme $c [0-9]" "$trireme" $c --version
done

# Programs with many options show the usual ones, a line each.
for c in serve up; do
  "$trireme" $c --help >"usual.$c"
  [ "$(wc -l <"usual.$c")" -le 45 ] || { echo "FAILED: $c --help has $(wc -l <"usual.$c") lines" && failures=$((failures + 1)); }
  [ "$(grep -cE '^  (-[a-z]+, )?--[a-z-]+' "usual.$c")" -ge 20 ] || { echo "FAILED: $c --help has too few options" && failures=$((failures + 1)); }
  want 0 '^  --watchdog-timeout S' "$trireme" $c --help-all
done

# What has no meaning there is understood, as --config is shared, but not offered.
for c in plan "bench latency" "bench stream"; do
  # shellcheck disable=SC2086
  help=$("$trireme" $c --help)
  for option in model dtype quantization max-model-len block-size backend; do
    grep -q -- "--$option " <<<"$help" || { echo "FAILED: $c --help without --$option" && failures=$((failures + 1)); }
  done
  for option in endpoint key-file served-model-name scheduling-policy watchdog-timeout drain-timeout launch event-fd Service Launch; do
    grep -q -- "$option" <<<"$help" && echo "FAILED: $c --help with $option" && failures=$((failures + 1))
  done
done
want 0 '^fits: ' "$trireme" plan --model "$SRC/tests/models/abacus" --endpoint ipc:///x --watchdog-timeout 5

# Values as other servers spell them, and errors under the name that was called.
want 0 '^fits: ' "$trireme" plan "$SRC/tests/models/abacus" --dtype half -c 1K --backend cpu
want 0 ', 900 tokens per sequence, ' "$trireme" plan "$SRC/tests/models/abacus" -c 900 --backend cpu
want 0 ', 1024 tokens per sequence, ' "$trireme" plan "$SRC/tests/models/abacus" --max-model-len=1K --backend cpu
want 2 ' - serve: --model is missing. Usage: trireme serve MODEL \[OPTION\]...$' "$trireme" serve
want 2 ' - up: --model is missing. Usage: trireme up MODEL \[OPTION\]...$' "$trireme" up
want 3 ' - serve: -tp 64: 8 attention heads can be shared by 1 to 8 tensor ranks$' "$trireme" serve "$SRC/tests/models/abacus" --port 0 -tp 64
want 3 ' - serve: there is no folder /nowhere: ' "$trireme" serve /nowhere --reasoning-parser qwen3 --tool-call-parser llama3_json
want 2 'tool-parser is "llama5"; it can be auto, none, hermes, ' "$trireme" serve /nowhere --tool-call-parser llama5

# A folder of a Hugging Face cache, of which one snapshot has the model.
mkdir -p "$dir/hub/models--org--abacus/snapshots"
want 3 'without a snapshot: the model was not fetched' "$trireme" plan --model "$dir/hub/models--org--abacus"
ln -s "$(cd "$SRC/tests/models/abacus" && pwd)" "$dir/hub/models--org--abacus/snapshots/0a1b"
want 0 '^fits: ' "$trireme" plan --model "$dir/hub/models--org--abacus"
HF_HUB_CACHE=$dir/hub want 0 '^fits: ' "$trireme" plan --model org/abacus
want 0 '^<|begin|>37+48=' "$trireme" template --model "$dir/hub/models--org--abacus" <<<'[{"role":"user","content":"37+48="}]'
# Half of an argument for another host would be another one.
want 3 'launcher-args: 40 arguments, the limit is 32' "$trireme" doctor --launcher-args "$(printf 'x %.0s' $(seq 40))"
want 3 'have [0-9]* bytes together, the limit is 3500' "$trireme" doctor --launcher-args "$(printf 'x%.0s' $(seq 4000))"
# Limits that are too small are raised, or said at the start.
want 0 '^decode 1 sequence' bash -c 'ulimit -S -s 64 && exec "$@"' - "$trireme" bench latency --model "$SRC/tests/models/abacus"
want 3 'files may have 10 KiB (ulimit -f), and those of a journal have 16384' bash -c 'ulimit -f 10 && exec "$@"' - \
  "$trireme" up --model "$SRC/tests/models/abacus" --endpoint "ipc://$PWD/limits.sock" --journal "$PWD/limits"

# Journals: one that nobody uses can be removed, with nothing that somebody else has put there.
export XDG_STATE_HOME=$PWD/state
want 3 'no-such-model' "$trireme" up --model "$PWD/no-such-model" --endpoint "ipc://$PWD/none.sock"
want 0 '^there are no journals in .*/state/trireme/journal$' "$trireme" journal
mkdir -p state/trireme/journal/{used,left,mixed}
for name in used left mixed; do head -c 8192 /dev/zero >state/trireme/journal/$name/0000000000000001.journal && : >state/trireme/journal/$name/lock; done
: >state/trireme/journal/mixed/notes
exec 9<>state/trireme/journal/used/lock && flock -x 9
want 0 '^used  *8  .*  yes$' "$trireme" journal ls
want 0 '^left  *8  .*  no$' "$trireme" journal
want 1 '^trireme journal: used: a coordinator uses it$' "$trireme" journal rm used left mixed
want 1 'there is no such journal' "$trireme" journal rm ../journal/used
want 1 'there is no such journal' "$trireme" journal rm left
want 2 'Its name is missing' "$trireme" journal rm
want 2 'it is ls, or rm NAME' "$trireme" journal clear
[[ $(cd state/trireme/journal && find . -type f | sort | xargs) == './mixed/notes ./used/0000000000000001.journal ./used/lock' ]] || failed "what is left of journals: $(find state -type f)"
exec 9>&-
rm state/trireme/journal/used/lock && mkdir state/trireme/journal/used/lock
want 1 '^trireme journal: used: a coordinator uses it$' "$trireme" journal rm used # its lock cannot be had
rmdir state/trireme/journal/used/lock
want 0 '^$' "$trireme" journal rm used
unset XDG_STATE_HOME

# One table of exit codes for all programs: bad usage whatever the model, and what cannot be had.
bin=$(dirname "$trireme")
for c in up plan "bench latency" "bench load" "bench stream"; do
  # shellcheck disable=SC2086
  want 2 'model is missing' "$trireme" $c
done
for c in coordinator worker; do want 2 'model is missing' "$bin/trireme-$c"; done
# The model's folder may stand alone, wherever there is one.
for c in up serve plan pack chat "bench latency" "bench load" "bench stream"; do
  # shellcheck disable=SC2086
  want 2 '^trireme [a-z ]*: here and --model there exclude each other$' "$trireme" $c here --model there
  # shellcheck disable=SC2086
  want 2 '"there" is one argument too many' "$trireme" $c here there
done
want 3 '^trireme chat: the model in here has no chat template' "$trireme" chat here
for c in plan "pack --nvme-path ." "bench latency" "bench load" "bench stream"; do
  # shellcheck disable=SC2086
  want 3 'there is no folder here' "$trireme" $c here
done
want 0 '^fits' "$trireme" plan "$SRC/tests/models/abacus" --backend cpu
for c in up plan "bench latency" "bench load" "bench stream"; do
  # shellcheck disable=SC2086
  want 2 'no-such-option' "$trireme" $c --no-such-option
  # shellcheck disable=SC2086
  want 3 '/nonexistent' "$trireme" $c --model /nonexistent
done
SLURM_JOBID=7 want 2 'SLURM_JOBID names job 7, and SLURM_NODELIST is not set' "$trireme" up --model "$SRC/tests/models/abacus" -tp 2 --no-journal
want 2 'boot-file is missing' "$bin/trireme-worker" --model "$SRC/tests/models/abacus" --launch self
# A variable that is left from another start does not take the place of a file that is named; another variable does not.
worker=("$bin/trireme-worker" --model "$SRC/tests/models/abacus" --launch self)
TRIREME_BOOT=stale want 3 '/ is not a regular file' "${worker[@]}" --boot-file /
TRIREME_BOOT=stale TRIREME_BOOT_FILE=/ want 3 'TRIREME_BOOT is no boot file of use' "${worker[@]}"
want 2 'launch mpi needs' "$bin/trireme-worker" --model "$SRC/tests/models/abacus" --launch mpi
want 2 'can only be 1' "$trireme" bench latency --model "$SRC/tests/models/abacus" -tp 2
want 3 'exceed the 1.0 MiB that this rank may use' "$trireme" plan --model "$SRC/tests/models/abacus" --memory-per-rank 1M
want 3 'exceed the 80 bytes that this rank may use' "$trireme" plan --model "$SRC/tests/models/abacus" --memory-per-rank 80
want 0 '^1 rank with 100.0 MiB each' "$trireme" plan --model "$SRC/tests/models/abacus" --memory-per-rank 100M
want 0 '^2 ranks with 100.0 MiB each' "$trireme" plan --model "$SRC/tests/models/abacus" --memory-per-rank 100M -tp 2
want 3 'blocks of 16 tokens hold less than one sequence' "$trireme" plan --model "$SRC/tests/models/abacus" --num-kv-blocks-override 1
# What is planned for, and how long a sequence may be where the one that was asked for does not fit.
want 0 '^backend cpu ([0-9]* cores\? on this host): weights bfloat16, activations float32, KV cache float32$' "$trireme" plan --model "$SRC/tests/models/abacus" --backend cpu
want 0 'weights int8 (embedding bfloat16), .* KV cache float16$' "$trireme" plan --model "$SRC/tests/models/abacus" -q w8a8 --kv-cache-dtype float16
want 0 '"backend":"cpu",.*"weight_type":"bfloat16","product_type":"float32","kv_cache_type":"float32","has_weights":true,"max_model_len":1024,"longest_max_model_len":1024,' "$trireme" plan --model "$SRC/tests/models/abacus" --backend cpu --json
want 3 '^the longest max_model_len that fits with all weights in memory is 880$' "$trireme" plan --model "$SRC/tests/models/abacus" --backend cpu --memory-per-rank 8MB
want 0 '^the longest max_model_len that fits with all weights in memory is 880$' "$trireme" plan --model "$SRC/tests/models/abacus" --backend cpu --memory-per-rank 8MB --max-model-len 880
want 3 'plan: does not fit: [0-9]* bytes exceed the 8000000 bytes that this rank may use: weights .* for one sequence of max_model_len 881; the longest' "$trireme" plan --model "$SRC/tests/models/abacus" --backend cpu --memory-per-rank 8MB --max-model-len 881
want 3 '^no max_model_len fits$' "$trireme" plan --model "$SRC/tests/models/abacus" --backend cpu --memory-per-rank 1MB
# What would fit with weights of int8, and what would not either.
want 3 'exceed the 6.2 MiB that this rank may use: weights .*; no max_model_len fits: give --quantization int8, ' "$trireme" plan --model "$SRC/tests/models/abacus" --backend cpu --memory-per-rank 6.5MB --max-model-len 32
want 3 'give --max-model-len 880, .* or more memory; --memory-per-rank' "$trireme" plan --model "$SRC/tests/models/abacus" --backend cpu --memory-per-rank 8MB --max-model-len 900
# What a folder without a tokenizer cannot serve.
want 0 'plan: warning: .*/llama/tokenizer.json is missing: prompts must come as token_ids, and answers are token ids; no texts, chats or stop strings are served$' "$trireme" plan --model "$bin/../tests/data/checkpoints/llama" --backend cpu
want 0 'plan: warning: .*/bert/tokenizer.json is missing: texts must come as token_ids$' "$trireme" plan --model "$bin/../tests/data/checkpoints/bert" --backend cpu
# A tokenizer that cannot be read: the file, the key, what it must be and what it is.
mkdir badtok && cp "$SRC/tests/models/abacus/config.json" badtok
echo '{"model":{"type":"BPE","vocab":7,"merges":[]}}' >badtok/tokenizer.json
want 3 'plan: refused: badtok/tokenizer.json: model.vocab: must be an object, and is an integer$' "$trireme" plan --model badtok --backend cpu
echo '{"added_tokens":[]}' >badtok/tokenizer.json
want 3 'plan: refused: badtok/tokenizer.json: model: must be an object, and is missing$' "$trireme" plan --model badtok --backend cpu
# No step with prompts is as short as one without.
for factor in -1 0.5 1 1.09 1001; do
  want 2 "^trireme up: --max-inter-token-factor is $factor; allowed are 0 and 1.1 to 1000" "$trireme" up --model "$SRC/tests/models/abacus" --max-inter-token-factor $factor
done
# Files of keys are read before anything is started.
early() { # CODE PATTERN OPTION...
  local code=$1 pattern=$2 said
  shift 2
  said=$("$trireme" up --model "$SRC/tests/models/abacus" --no-journal "$@" 2>&1)
  [ $? = "$code" ] && grep -q -- "$pattern" <<<"$said" || failed "trireme up $*: $said"
  grep -qv ' - up: ' <<<"$said" && failed "trireme up $* has started something: $said"
}
early 3 'cannot open none.keys: No such file' --http 0 --api-key-file none.keys
touch empty.keys && chmod 600 empty.keys
early 3 'empty.keys has no keys' --http 0 --api-key-file empty.keys
early 1 'none.keys: cannot open the key file: No such file' --key-file none.keys --endpoint 'tcp://127.0.0.1:*' --allowed-keys empty.keys
"$trireme" keygen early.key >early.pub || failed "keygen"
early 1 'cannot open --allowed-keys none.keys: No such file' --key-file early.key --endpoint 'tcp://127.0.0.1:*' --allowed-keys none.keys
echo short >early.bad
early 3 'early.bad:1: ' --key-file early.key --endpoint 'tcp://127.0.0.1:*' --allowed-keys early.bad
# An encoder has no KV cache, and texts instead of sequences.
bert=$bin/../tests/data/checkpoints/bert
want 3 'exceed the 1.0 MiB that this rank may use: weights .* + K and V [0-9.]* KiB for one text of max_model_len 256; no max_model_len fits: give more ranks' "$trireme" plan --model "$bert" --backend cpu --memory-per-rank 1M
want 3 'K and V blocks of 16 tokens hold less than one text of max_model_len 256' "$trireme" plan --model "$bert" --backend cpu --num-kv-blocks-override 1
# A host whose rank streams weights keeps a fifth of its memory for others.
want 3 'there are for weights; where weights are streamed, a fifth of the 34.0 MiB that this rank may use stays free for the host' "$trireme" plan --model "$SRC/tests/models/abacus" --backend cpu --gpu-layers 2 --memory-per-rank 34M
# A folder with config.json alone, as it is before a model is fetched; not one whose weights are of another format.
mkdir bare && cp "$SRC/tests/models/abacus/config.json" bare
want 0 '^no weights are looked at: ' "$trireme" plan --model bare --backend cpu
diff <("$trireme" plan --model bare --backend cpu --memory-per-rank 1G | sed /looked/d) <("$trireme" plan --model "$SRC/tests/models/abacus" --backend cpu --memory-per-rank 1G) ||
  failed "the plan of a config.json is not that of its model"
mkdir fp8 && cp "$SRC/tests/data/checkpoints/fp8_deepseek_v3/config.json" fp8
want 0 '^the checkpoint is FP8 (a scale for 32 x 48 weights); its weights are widened to bfloat16 while' "$trireme" plan --model fp8 --backend cpu -q none
want 0 'widened to float32 while' "$trireme" plan --model fp8 --backend cpu --dtype float32 -q none
want 0 '^the checkpoint is FP8 .*; what is FP8 in it stays so' "$trireme" plan --model fp8 --backend cpu -q fp8
want 0 'blocks of 128 columns: others are widened to bfloat16, and counted so' "$trireme" plan --model fp8 --device h200
want 3 'of GPUs, only Hopper (H100, H200) computes with FP8 weights; with none' "$trireme" plan --model fp8 --device a100 -q fp8
mkdir fp8_wide && sed '/"weight_block_size"/,/]/s/[0-9][0-9]/128/' fp8/config.json >fp8_wide/config.json
want 0 '(a scale for 128 x 128 weights); what is FP8 in it stays so' "$trireme" plan --model fp8_wide --device h200
want 0 '; its weights are widened to bfloat16 while' "$trireme" plan --model fp8_wide --device b200
want 0 'rounded to int8 while' "$trireme" plan --model fp8 --backend cpu -q int8
want 0 '"stored":"FP8 (a scale for 32 x 48 weights)"' "$trireme" plan --model fp8 --backend cpu --json
touch bare/pytorch_model.bin
want 3 "weights in pytorch_model.bin, PyTorch's pickle" "$trireme" plan --model bare
want 3 'can be shared by 1 to 8 tensor ranks' "$trireme" up --model "$SRC/tests/models/abacus" -tp 512
want 0 'warning: max_model_len 5000 exceeds the 1024 positions' "$trireme" plan --model "$SRC/tests/models/abacus" --max-model-len 5000

abacus=$SRC/tests/models/abacus
"$trireme" keygen up.key >/dev/null
# Endpoints that are none, and such that somebody has.
up=(timeout "$HANG_S" "$trireme" up --model "$abacus")
want 2 'foo starts with neither .* -- endpoint$' "${up[@]}" --endpoint foo
want 2 'bar starts with neither .* -- worker_endpoint$' "${up[@]}" --endpoint "ipc://$dir/up.sock" --worker-endpoint bar
want 2 '"x" is no port in tcp://127.0.0.1:x -- endpoint$' "${up[@]}" --endpoint tcp://127.0.0.1:x --insecure-tcp
want 2 'port 80000 of .*; allowed are 0 to 65535 -- endpoint$' "${up[@]}" --endpoint tcp://127.0.0.1:80000 --insecure-tcp
want 2 'port 80000 of .*; allowed are 0 to 65535 -- worker_endpoint$' "${up[@]}" --endpoint "ipc://$dir/up.sock" --worker-endpoint tcp://127.0.0.1:80000
want 2 'without keys would let anybody in' "${up[@]}" --endpoint 'tcp://127.0.0.1:*'
want 2 'needs --allowed-keys' "${up[@]}" --endpoint 'tcp://127.0.0.1:*' --key-file up.key
want 1 't.sock belongs to a server that is running: another one needs another --endpoint$' "${up[@]}"
want 2 'memory-cap is 0; allowed are 16M to 1T' "${up[@]}" --memory-cap 0
want 2 'response_cache is 2147483648, and memory_cap, which it is a part of, 536870912' "${up[@]}" --response-cache 2G
want 2 '--client-share is NAME=WEIGHT,.* not "ann=0"$' "${up[@]}" --endpoint "ipc://$dir/up.sock" --client-share bob=2,ann=0
want 2 'response_cache is 1024; allowed are 0, for none, and 65536 or more' "${up[@]}" --response-cache 1K

# One MPI job of two programs whose options disagree.
two() { # two COORDINATOR_OPTIONS -- N WORKER_OPTIONS
  local first=() n
  while [[ $1 != -- ]]; do first+=("$1") && shift; done
  n=$2
  shift 2
  OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun --bind-to none --oversubscribe --timeout $HANG_S -n 1 "$bin/trireme-coordinator" \
    --launch mpi --endpoint "ipc://$dir/up.sock" "${first[@]}" : -n "$n" "$bin/trireme-worker" --launch mpi "$@"
}
want 1 '(--model .*/checkpoints/llama): the workers. model is another than the coordinator.s, "abacus"$' \
  two --model "$abacus" -- 1 --model "$DATA/checkpoints/llama"
want 1 'the workers were started with -tp 1 -pp 2 -dp 1 -ep 1, the coordinator with -tp 2 -pp 1 -dp 1 -ep 1' \
  two --model "$abacus" -tp 2 -- 2 --model "$abacus" -pp 2

# A checkpoint of which a part is missing does not become whole by another start.
mkdir incomplete deeper
ln -s "$abacus"/*.json incomplete/
ln -s "$abacus"/* deeper/
rm deeper/config.json
sed 's/\("num_hidden_layers": *\)[0-9]*/\199/' "$abacus/config.json" >deeper/config.json
want 3 'incomplete holds neither model.safetensors nor' timeout $HANG_S "$trireme" up --endpoint "ipc://$dir/up.sock" --model incomplete
want 3 'the checkpoint has no tensor model.layers.' timeout $HANG_S "$trireme" up --endpoint "ipc://$dir/up.sock" --model deeper
# A plan says so before, in the same words, of any layout, and of tensors that no model has; without weights it has none to look at.
want 3 'the checkpoint has no tensor model.layers.' "$trireme" plan deeper
want 3 'the checkpoint has no tensor model.layers.' "$trireme" plan deeper --devices 2 --device h100
mkdir other unfetched
ln -s "$abacus"/* other/
rm other/model.safetensors
sed 's/"model.norm.weight"/"model.norm.height"/' "$abacus/model.safetensors" >other/model.safetensors
for program in plan "up --endpoint ipc://$dir/up.sock"; do
  # shellcheck disable=SC2086
  want 3 "the checkpoint's tensor model.norm.height is not a part of" timeout $HANG_S "$trireme" $program --model other
done
cp "$abacus/config.json" unfetched/
want 0 '^fits: ' "$trireme" plan unfetched
# What is wrong with one of the files is said with its path.
mkdir wrong
ln -s "$abacus"/* wrong/
wrong() { # FILE PATTERN PROGRAM...: its text comes from the standard input
  local file=$1 pattern=$2
  shift 2
  rm wrong/"$file"
  cat >wrong/"$file"
  want 3 "$pattern" timeout $HANG_S "$trireme" "$@" --model wrong
  ln -sf "$abacus/$file" wrong/"$file"
}
at=(up --endpoint "ipc://$dir/up.sock")
wrong tokenizer.json 'wrong/tokenizer.json: model: must be an object, and is missing$' "${at[@]}" <<<'{}'
wrong tokenizer.json 'wrong/tokenizer.json: model: must be an object, and is missing$' plan <<<'{}'
wrong tokenizer.json 'wrong/tokenizer.json: model: must be an object, and is missing$' plan --load-format dummy <<<'{}'
wrong tokenizer.json 'wrong/tokenizer.json: model.type: tokenizer model Foo is not supported$' "${at[@]}" <<<'{"model":{"type":"Foo"}}'
wrong tokenizer.json 'wrong/tokenizer.json is a Git LFS pointer' "${at[@]}" <<<'version https://git-lfs.github.com/spec/v1'
wrong generation_config.json 'wrong/generation_config.json: temperature must be a number' plan <<<'{"temperature": "hot"}'
wrong config.json 'wrong/config.json: model_type "mamba" is not supported: docs/models.md lists' plan <<<'{"model_type": "mamba"}'
wrong model.safetensors 'wrong/model.safetensors: 2000000 bytes, but its header wants [0-9]* .*: an incomplete download?' \
  "${at[@]}" < <(head -c 2000000 "$abacus/model.safetensors")
want 3 'no folder meta-llama/Llama-3.1-8B: nothing is downloaded' "$trireme" plan --model meta-llama/Llama-3.1-8B

# The Slurm script without Slurm: what its cluster ended with is its end, with prompts and without.
batch=(env SLURM_JOB_ID=1 TP=1 PP=1 MODEL=/nonexistent OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1)
script=$SRC/cluster-configs/trireme.sbatch
: >"$dir/none.jsonl" # which nobody reads: the model is looked at first
want 3 'no folder /nonexistent' timeout $HANG_S "${batch[@]}" BIN="$bin" ENDPOINT="ipc://$dir/up.sock" PROMPTS=none.jsonl bash "$script"
want 3 'no folder /nonexistent' timeout $HANG_S "${batch[@]}" BIN="$bin" ENDPOINT="ipc://$dir/up.sock" bash "$script"
# shellcheck disable=SC2016
want 3 "$dir/nope" timeout $HANG_S "${batch[@]}" MODEL="$SRC/tests/models/abacus" TMPDIR="$dir" NVME_PATH='$TMPDIR/nope' MAX_IN_CPU=34M EXTRA="--quantization int8 --backend cpu --gpu-layers 0" BIN="$bin" ENDPOINT="ipc://$dir/up.sock" bash "$script"
want 2 'no program "trireme" in BIN (""): set BIN' "${batch[@]}" BIN= PATH=/usr/bin:/bin bash "$script"

# Hosts that are not there, or too few, and a device that is not here.
want 2 '"localhost:3" has places for 3 ranks, but tensor-parallel 2 x pipeline-parallel 2 x data-parallel 1 needs 4' "$trireme" up --model "$SRC/tests/models/abacus" -tp 2 -pp 2 --hosts localhost:3
want 2 'has places for 2 ranks' "$trireme" up --model "$SRC/tests/models/abacus" -tp 3 --hosts localhost,localhost
want 2 'x data-parallel 2 needs 4' "$trireme" up --model "$SRC/tests/models/abacus" -tp 2 -dp 2 --hosts localhost:3
want 0 '^    1    0-3        0-3        4  b$' "$trireme" plan --model "$SRC/tests/models/abacus" -tp 2 -pp 2 -dp 2 --hosts a:4,b:4
want 0 '"places":.{"group":0,"ranks":.0,0.,"host":"a","first":0,"of":1},{"group":1,"ranks":.0,0.,"host":"b"' "$trireme" plan --json --model "$SRC/tests/models/abacus" -dp 2 --hosts a,b
want 2 'has too few places.*needs 4' "$trireme" plan --model "$SRC/tests/models/abacus" -tp 2 -dp 2 --hosts a:3
want 2 '"localhost:x" is no HOST:RANKS' "$trireme" up --model "$SRC/tests/models/abacus" -tp 2 --hosts localhost:1,localhost:x
want 2 '--hosts names "no-such-host.invalid", which has no address' "$trireme" up --model "$SRC/tests/models/abacus" -tp 2 --hosts localhost:1,no-such-host.invalid:1
want 2 'entry without a name' "$trireme" up --model "$SRC/tests/models/abacus" -tp 2 --hosts localhost:1,:1
want 0 '^fits: ' "$trireme" plan --model "$SRC/tests/models/abacus" --backend cuda -tp 2 --memory-per-rank 80G

for i in $(seq 200); do echo "{\"prompt\":\"p $i\",\"max_tokens\":$((i % 7 + 1))}"; done >good.jsonl
echo '{"token_ids":[]}' >empty.jsonl
want 1 'empty.jsonl:1: token_ids is empty' "$trireme" submit --file empty.jsonl
{ cat good.jsonl && echo garbage && echo '{"prompt":"x","n":1000}' && echo '{"prompt":"x","messages":[]}'; } >bad.jsonl
{ echo '{"prompt":"x"}' && echo && echo '{"prompt":"x",}' && printf '{"prompt":"\xff"}\n'; } >wrong.jsonl
want 1 'wrong.jsonl:3: not JSON, column 15' "$trireme" submit --file wrong.jsonl
want 1 'wrong.jsonl:4: byte 12 of the line is not UTF-8' "$trireme" submit --file wrong.jsonl
want 2 'wrong.jsonl:3: not JSON' "$trireme" bench serve --num-prompts 9 --prompt-file wrong.jsonl
want 0 '^trireme: 200 done, 0 failed, [0-9.]* req/s, [0-9]* tok/s$' "$trireme" submit --file good.jsonl --output good.out --concurrency 30
[[ -z $("$trireme" submit --file good.jsonl --output good.out --no-progress 2>&1) ]] || { echo "FAILED: --no-progress" && failures=$((failures + 1)); }
want 1 'bad.jsonl:202: n is 1000' "$trireme" submit --file bad.jsonl --output bad.out
want 1 '^trireme: 0 done, 1 failed, 0.0 req/s, 0 tok/s$' "$trireme" submit --file empty.jsonl # a refusal is nothing done
for c in "submit --file" "embed --file" "bench serve --num-prompts 1 --prompt-file"; do
  # shellcheck disable=SC2086
  want 1 'cannot open missing.jsonl: No such file' "$trireme" $c missing.jsonl
  # shellcheck disable=SC2086
  "$trireme" $c missing.jsonl 2>&1 | grep -q 'Try' && echo "FAILED: $c: help for a missing file" && failures=$((failures + 1))
done
[[ $(sed 's/.*"line":\([0-9]*\),.*/\1/' bad.out | tr '\n' ' ') == "$(seq -s ' ' 203) " ]] || { echo "FAILED: results out of order" && failures=$((failures + 1)); }
want 0 '"completion_tokens":4' sed -n 3p good.out
want 0 '"code":"unsupported"' sed -n 203p bad.out
want 0 '"completed":300,"failed":0' "$trireme" bench serve --num-prompts 300 --random-output-len 20 --json
# 20 prompts of 128 and answers of 10, of which each last token is drawn only: 2760 tokens for the work of 2740
want 0 '"floor_total_token_throughput":503.6' "$trireme" bench serve --num-prompts 20 --random-output-len 10 --json
want 0 '^Limit  *503.65 /s of all tokens, .*on CPUs in float32' "$trireme" bench throughput --num-prompts 20 --random-output-len 10
want 0 '^Floor  *1.000 ms per output token' "$trireme" bench serve --num-prompts 3 --random-output-len 10 --max-concurrency 1
want 0 '^All tokens  *[0-9.]* /s$' "$trireme" bench serve --num-prompts 3 --random-output-len 10 --no-floors
# Ten chats at a time of four turns, each with what was said before in front: 8, 20, 32 and 44 tokens.
want 0 '"completed":40,"failed":0,.*"max_concurrent_requests":10,"total_input_tokens":1040,"total_output_tokens":160,.*"total_cached_tokens":0,"mean_first_turn_ttft_ms":[0-9.]*[1-9],.*"mean_later_turn_ttft_ms":[0-9.]*[1-9],' "$trireme" bench serve --num-prompts 40 --num-turns 4 --random-input-len 8 --random-output-len 4 --json
want 0 '^TTFT of later turns  *[0-9.]' "$trireme" bench serve --num-prompts 4 --num-turns 2 --random-output-len 4
want 2 'makes no whole chats' "$trireme" bench serve --num-prompts 41 --num-turns 4
want 2 '--num-turns excludes' "$trireme" bench serve --num-turns 4 --request-rate 5
# Of the run's own tokens, whatever the processes have cost before.
want 0 '^CPU per token  *2.00 us in the coordinator, 1.00 us in the scheduler$' "$trireme" bench serve --num-prompts 20 --random-output-len 10
want 0 'at most 4 at a time' "$trireme" bench throughput --num-prompts 20 --max-concurrency 4 --prompt-file good.jsonl

# A batch that is longer than the model can be (1024 positions), and one that is as long.
want 3 '--input-len 1020 and --output-len 4 are 1025 tokens .* the limit is the model.s 1024$' \
  "$trireme" bench latency --model "$abacus" --input-len 1020 --output-len 4
want 3 'the limit is --max-model-len 100$' "$trireme" bench latency --model "$abacus" --input-len 96 --output-len 4 --max-model-len 100
"$trireme" bench latency --model "$abacus" --input-len 1019 --output-len 4 --num-iters 1 --json >longest.out 2>&1 & # it measures for 10 s
longest=$!

# An interrupted benchmark tells what it has.
before=$(answered)
"$trireme" bench serve --num-prompts 100000 --max-concurrency 10 --random-output-len 10 >bench.out 2>bench.err &
bench=$!
until_holds "a benchmark's requests are not answered" has_answered $((before + 100))
kill -INT $bench
wait $bench
[[ $? == 1 ]] && grep -q '^Partial results' bench.out && grep -q 'Time to first token' bench.out && grep -q 'of 100000 requests done' bench.err ||
  { echo "FAILED: interrupted benchmark" && cat bench.out bench.err && failures=$((failures + 1)); }

# The first interrupt cancels.
rm -f long.out
"$trireme" submit "a long one" --max-tokens 100000 >long.out 2>long.err &
long=$!
until_holds "no text comes" test -s long.out
kill -INT $long
wait $long
[[ $? == 1 ]] && grep -q cancelled long.err || { echo "FAILED: interrupt" && failures=$((failures + 1)); }
want 0 '1 aborted' "$trireme" status
want 1 'was lost' "$trireme" submit drop
want 1 'was lost each time that this was asked' timeout $HANG_S "$trireme" submit drop --reconnect-timeout-ms 1000

# An error in the middle of a text begins a line of its own.
rm -f long.out
"$trireme" submit "a long one" --max-tokens 100000 >long.out 2>&1 &
long=$!
until_holds "no text comes" test -s long.out
"$trireme" submit drop >/dev/null 2>&1
wait $long
[[ $? == 1 ]] && [[ $(wc -l <long.out) == 2 ]] && tail -1 long.out | grep -q '^trireme: .*was lost' || { echo "FAILED: an error's line" && tail -c 300 long.out && failures=$((failures + 1)); }
stop
[[ ! -e t.sock ]] || { echo "FAILED: the socket file was left behind" && failures=$((failures + 1)); }
want 1 'no socket .*t.sock for 300 ms; `trireme serve DIR` starts one with an HTTP API, `trireme up --model DIR` one without$' timeout $HANG_S "$trireme" status --connect-timeout-ms 300
# Who is there before the coordinator waits for it.
"$trireme" submit "hello world" --max-tokens 4 >early.out 2>&1 &
early=$!
until_holds "a client does not wait for its coordinator" waits $early
start
wait $early
[[ $? == 0 ]] && grep -q '^ the oars of three$' early.out || { echo "FAILED: a client before its coordinator" && cat early.out && failures=$((failures + 1)); }
stop

# A coordinator that does not serve yet has an exit code of its own, and can be waited for, also before it is there.
start --starting-ms 100000
want 4 '^starting, model fake' "$trireme" status
for wait in 0.6 0.7 0.8 0.9 1 2; do # the last question may come with no time left for its answer
  want 4 '"state":"starting"' "$trireme" status --json --wait $wait
done
want 0 '^trireme:fake 1' "$trireme" status --stats
stop
want 1 'no socket .*t.sock' timeout $HANG_S "$trireme" status --wait 0.3
# One that has ended is not waited for: there is no socket any more.
start --starting-ms 100000
timeout $HANG_S "$trireme" status --wait 600 >early.out 2>&1 &
early=$!
sleep 1 # it has met it by then
stop
rm -f t.sock
wait $early
[[ $? == 1 ]] && grep -q 'the coordinator, which was there, has ended' early.out || { echo "FAILED: status --wait of a coordinator that ends" && cat early.out && failures=$((failures + 1)); }
"$trireme" status --wait $HANG_S >early.out 2>&1 &
early=$!
until_holds "status does not wait for its coordinator" waits $early
start --starting-ms 500
wait $early
[[ $? == 0 ]] && grep -q '^serving, model fake' early.out || { echo "FAILED: status --wait before its coordinator" && cat early.out && failures=$((failures + 1)); }
stop

start --task embed
# Many inputs: members that are no fields come with the answer, an output is gone on with, and there is a bar.
for i in $(seq 8); do echo "{\"id\":\"doc-$i\",\"meta\":{\"n\":[$i]},\"token_ids\":[$i]}"; done >texts.jsonl
want 0 '^trireme: 8 done, 0 failed, [0-9.]* req/s$' "$trireme" embed --file texts.jsonl --output vectors --json
want 0 '^{"line":3,"embedding":\[.*,"prompt_tokens":[0-9]*,"id":"doc-3","meta":{"n":\[3\]}}$' cat vectors
sed -n '1,3p' vectors >begun
sed -n 4p vectors | head -c 30 >>begun
cp begun whole
want 0 '^trireme: 5 done, 0 failed, 3 before, ' "$trireme" embed --file texts.jsonl --output whole --json --resume
cmp -s vectors whole || failed "embed --resume makes something else: $(diff vectors whole)"
want 0 '^trireme: 0 done, 0 failed, 8 before, ' "$trireme" embed --file texts.jsonl --output whole --json --resume
want 2 'belongs to --file with --output and --json' "$trireme" embed --file texts.jsonl --output whole --resume
want 1 'there is no request field named "txt"; did you mean text' "$trireme" embed --file - --json <<<'{"txt":"x","token_ids":[1]}'
want 1 'no request field named "line"' "$trireme" embed --file - --json <<<'{"line":7,"token_ids":[1]}'
want 0 '\] 8/8 8 done, 0 failed, ' script -qec "$(printf %q "$trireme") embed --file texts.jsonl --output vectors --json" /dev/null
want 0 'STEPS$' "$trireme" status
want 0 '"task":"embed"' "$trireme" status --json
# A benchmark of an encoder: each answer has its number of tokens, and 3 prompts of 128 have 2 MFLOP for each.
want 0 '^Tokens  *384 in$' "$trireme" bench serve --num-prompts 3
want 0 '^Limit  *500.00 /s of all tokens' "$trireme" bench throughput --num-prompts 3
want 0 '"task":"embed",.*"completed":3,.*"total_input_tokens":384,.*"total_token_throughput":[0-9.]*,"mean_e2el_ms":[0-9.]*,"median_e2el_ms":[0-9.]*,"p90_e2el_ms":[0-9.]*,"p99_e2el_ms":[0-9.]*,"floor_total' \
  "$trireme" bench serve --num-prompts 3 --json
for absent in tpot ttft itl output per_token offered saturated; do
  "$trireme" bench serve --num-prompts 3 --json | grep -q "$absent" && failed "bench serve of an encoder tells of $absent"
done
printf '5\n\n 7 \n12\r\n' >lengths
want 0 '^Tokens  *29 in$' "$trireme" bench serve --num-prompts 4 --input-len-file lengths --no-floors --seed 9
printf '{"token_ids":[1,2,3]}\n\n{"token_ids":[1],"normalize":true}\n' >texts.jsonl
want 0 '^Tokens  *8 in$' "$trireme" bench serve --num-prompts 4 --prompt-file texts.jsonl --no-floors
echo '{"token_ids":[1],"max_tokens":3}' >>texts.jsonl
want 2 'texts.jsonl:4: there is no request field named "max_tokens"' "$trireme" bench serve --num-prompts 4 --prompt-file texts.jsonl
printf '5\n12 x\n' >lengths
want 2 'lengths:2: "12 x" is no length from 1 to 200000' "$trireme" bench serve --input-len-file lengths
for wrong in -18446744073709551615 0 200001 1.5 1e3; do
  echo "$wrong" >lengths
  want 2 "lengths:1: \"$wrong\" is no length" "$trireme" bench serve --input-len-file lengths
done
want 1 'cannot open missing: No such file' "$trireme" bench serve --input-len-file missing
want 2 'holds no lengths' "$trireme" bench serve --input-len-file /dev/null
want 2 'min-input-len 9 is more than --max-input-len 8' "$trireme" bench serve --input-len-distribution normal --min-input-len 9 --max-input-len 8
want 2 'belong to --input-len-distribution uniform or normal' "$trireme" bench serve --max-input-len 8
want 2 'is one length for all prompts' "$trireme" bench serve --input-len-distribution uniform --random-input-len 8
want 2 'exclude each other' "$trireme" bench serve --input-len-distribution uniform --input-len-file lengths
want 2 'exclude each other' "$trireme" bench serve --request-rate 3 --request-rates 3,4
want 2 'exclude each other' "$trireme" bench serve --num-prompts 3 --load-seconds 4
want 2 'needs a --request-rate' "$trireme" bench serve --load-seconds 4
for rates in '3,' ',3' '3,0' '3,inf' '3,x' '3,nan' '3,-1' '3 4' ''; do want 2 'is no list of rates' "$trireme" bench serve --request-rates "$rates"; done
want 2 'more than 64 rates' "$trireme" bench serve --request-rates "$(seq -s, 65)"
want 3 'up to 3000 tokens: the limit is max_model_len 2048' "$trireme" bench serve --input-len-distribution uniform --max-input-len 3000
for option in '--random-output-len 3' '--no-ignore-eos' '--temperature 1'; do
  # shellcheck disable=SC2086
  want 3 "is an encoder: it generates nothing, so that --[a-z-]* has no meaning" "$trireme" bench serve $option
done
stop

# A server of 250 requests a second keeps up with 20, and not with 500. The last of 200 that arrive within 0.4 s gets its answer 0.4 s later:
# what waits in the client for --max-concurrency has waited, though from its sending it takes 4 ms. On a busy machine requests of the
# slow load may be late, too: it comes out so once in twenty tries.
start --task embed --embed-ms 4 --show-ids
rising=(bench serve --request-rates '20,500' --load-seconds 0.4 --max-concurrency 1 --no-floors)
want 0 '^Throughput at saturation: [0-9.]* requests/s, [0-9.]* tokens/s$' "$trireme" "${rising[@]}"
rises() { # the second rate saturates the server, and the latencies are those from the planned arrival
  "$trireme" "${rising[@]}" --json >rising.out || failed "rates that rise"
  [[ $(grep -o '"saturated":[a-z]*' rising.out | cut -d: -f2 | tr '\n' ' ') == "false true true " ]] &&
    sed -n 's/.*"mean_e2el_ms":\([0-9.]*\).*/\1/p' rising.out | awk '{ ms[NR] = $1 } END { exit !(NR == 2 && ms[2] > 100 && ms[1] < ms[2] / 2) }'
}
for try in $(seq 20); do rises && break; done
[[ $try -lt 20 ]] || rises || failed "of a slow and a fast load the fast one saturates a server: $(cat rising.out)"
# Lengths are those of the seed, at every rate, and texts are not: the server may keep some.
"$trireme" bench serve --request-rates '500,1000' --num-prompts 20 --input-len-distribution normal --no-floors --json >rising.out
[[ $(grep -o '"total_input_tokens":[0-9]*' rising.out | sort | uniq -c | awk '{ print $1 }') == 2 ]] || failed "lengths of two rates: $(cat rising.out)"
[[ $(tail -n 40 fake.err | sort -u | wc -l) == 40 ]] || failed "texts of two rates: $(tail -n 40 fake.err | sort | uniq -d | wc -l) of 20 are the same"
for _ in $(seq 20); do "$trireme" bench serve --request-rates 20 --num-prompts 10 --no-floors >rising.out && grep -q '^Not saturated: ' rising.out && break; done
want 0 '^Not saturated: [0-9.]* requests/s, [0-9.]* tokens/s were answered, and more can be$' cat rising.out
stop

start --token-ids-only
want 0 '^0 7 14$' "$trireme" submit --token-ids 1,2,3 --max-tokens 3
want 0 '^\[1\] 31 38$' "$trireme" submit --token-ids 1,2,3 --max-tokens 2 --n 2
stop

# tcp with keys
"$trireme" keygen server.key >server.pub && "$trireme" keygen client.key >client.pub && "$trireme" keygen other.key >/dev/null
start --endpoint 'tcp://127.0.0.1:*' --key-file server.key --allow "$(cat client.pub)"
export TRIREME_ENDPOINT
TRIREME_ENDPOINT=$(cat endpoint)
want 0 '0 running' "$trireme" status --key-file client.key --server-key "$(cat server.pub)"
want 3 'does not let this key in' "$trireme" status --key-file other.key --server-key "$(cat server.pub)"
want 3 'wants keys: --key-file' "$trireme" status
want 1 'cannot bind .*in use -- endpoint$' "${up[@]}" --insecure-tcp
want 2 'CURVE needs both' "$trireme" status --key-file client.key
want 1 '^trireme: client.key: is there already, and is not overwritten$' "$trireme" keygen client.key
want 1 'cannot create the key file: No such file' "$trireme" keygen missing/client.key
chmod 644 client.key
want 3 'lets others read' "$trireme" status --key-file client.key --server-key "$(cat server.pub)"

wait $longest && grep -q '"input_len":1019' longest.out || failed "a batch as long as the model can be: $(cat longest.out)"
((failures == 0)) && echo "all fine"
exit $((failures > 0))
