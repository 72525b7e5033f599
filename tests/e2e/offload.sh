#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Weights that come from files in every step: what a start says of them, what it refuses, packs, and files that change while they are
# in use.
here=$(dirname "$0")
. "$here/lib.sh"
mkdir "$RUN/packs" "$RUN/trireme"
export XDG_CACHE_HOME=$RUN

refused() { # EXIT WORD ARGS...
  local code=$1 word=$2
  shift 2
  timeout $HANG_S "$BIN/trireme" up --model "$MODEL" "$@" >"$RUN/refused" 2>&1
  local got=$?
  [ $got = "$code" ] || fail "$* ended with $got, not $code: $(tail -3 "$RUN/refused")"
  grep -q -- "$word" "$RUN/refused" || fail "$* does not say '$word': $(tail -3 "$RUN/refused")"
}
refused 2 'give one of them' --gpu-layers 1 --cpu-offload-gb 0.001
refused 2 'keeps all weights' --offload-weights none --gpu-layers 1
refused 3 "this host's memory" --offload-weights cpu --gpu-layers 0 --backend cpu
"$BIN/trireme" plan --model "$MODEL" --offload-weights cpu --gpu-layers 0 --backend cpu >"$RUN/plan" 2>&1 && fail "plan says that it fits: $(cat "$RUN/plan")"
refused 3 'give --nvme-path DIR' --gpu-layers 0 --quantization int8 --backend cpu
refused 3 'max-in-cpu 32.1 MiB is less than the 32.9 MiB that weights take at least: 0.2 MiB that stay (embeddings, norms), a ring of 0.7 MiB for the others, and buffers of 32.1 MiB for reads' --max-in-cpu 32900K --backend cpu
refused 3 "there is no folder .*packs/none" --gpu-layers 0 --quantization int8 --nvme-path "$RUN/packs/none" --backend cpu
refused 3 "there is no folder .*packs/none" --gpu-layers 0 --quantization int8 --nvme-path "$RUN/packs,$RUN/packs/none" --backend cpu
refused 3 "the folder .*packs for packs is named twice" --gpu-layers 0 --quantization int8 --nvme-path "$RUN/packs,$RUN/packs" --backend cpu

# More memory would not help, and plan does not say so.
"$BIN/trireme" plan --model "$MODEL" --max-in-cpu 33400K --backend cpu >"$RUN/plan" 2>&1
grep -q -- '--max-in-cpu .* for reads$' "$RUN/plan" || fail "plan does not name what is too small: $(cat "$RUN/plan")"

# Nothing is asked for, and the model has no room: what stays, what is read, and how long that takes. plan says the same.
"$BIN/trireme" plan --model "$MODEL" --memory-per-rank 240M --backend cpu >"$RUN/plan" || fail "no plan: $(cat "$RUN/plan")"
grep -q 'MiB stay and .* MiB are a ring buffer for .* MiB streamed in every step' "$RUN/plan" && fail "weights leave that have room: $(cat "$RUN/plan")"
"$BIN/trireme" plan --model "$MODEL" --max-in-cpu 34M --backend cpu >"$RUN/plan" || fail "no plan: $(cat "$RUN/plan")"
grep -q 'MiB stay and .* MiB are a ring buffer for .* MiB streamed in every step' "$RUN/plan" || fail "plan does not say what streams: $(cat "$RUN/plan")"
# With figures that are given, all is known beforehand. 0.78 MB of weights for the bundled model's two layers that leave.
predict() { "$BIN/trireme" plan --model "$MODEL" --gpu-layers 2 --backend cpu --read-bandwidth 1e12 --flops 1e12 "$@" 2>&1; }
predict --disk-bandwidth 1e8 >"$RUN/plan"
for line in '^weights of the rank: [0-9.]* MiB stay, [0-9.]* MiB are a ring, [0-9.]* MiB from the checkpoint in every step$' \
  '^a step reads them in 0.0[0-9]* s at least: the disk gives 0.1 GB/s (as given)$' \
  '^predicted, with 1024 keys for each sequence: 1 sequence 0.0[0-9]* s a step, [0-9.]* tokens/s; 64 sequences .* tokens/s; [0-9]* sequences .* tokens/s$' \
  '^compute hides the reads in steps of [0-9]* tokens and more$'; do
  grep -q "$line" "$RUN/plan" || fail "plan has no line '$line': $(cat "$RUN/plan")"
done
# Steps are as large as hides the reads, unless their size is given or prompts have a limit of their own.
for line in ' 5120 tokens per step$' '^steps therefore have up to 5120 tokens instead of 512$'; do
  grep -q "$line" "$RUN/plan" || fail "plan has no line '$line': $(cat "$RUN/plan")"
done
predict --disk-bandwidth 1e8 --gpu-layers 0 -pp 2 | grep -q '^steps therefore have up to [0-9]* tokens instead of 512$' || fail "stages do not hide their weights: $(predict --disk-bandwidth 1e8 --gpu-layers 0 -pp 2)"
for given in "--max-num-batched-tokens 512" "--prompt-micro-batch-tokens 64" "--disk-bandwidth 1e10"; do
  # shellcheck disable=SC2086
  predict --disk-bandwidth 1e8 $given | grep -q ' 512 tokens per step$' || fail "another step with $given: $(predict --disk-bandwidth 1e8 $given)"
done
predict --disk-bandwidth 1.5GB | grep -q 'the disk gives 1.5 GB/s (as given)$' || fail "a bandwidth with a unit: $(predict --disk-bandwidth 1.5GB)"
predict --disk-bandwidth 1e8 --json | grep -q '"source":"the checkpoint","disk_bandwidth":1e+08,"disk_bandwidth_source":"as given","disks":1,"ranks_per_disk":1,"pass_seconds":0.0[0-9]*,"hiding_tokens":[0-9]*,"step_tokens":5120,' || fail "plan --json: $(predict --disk-bandwidth 1e8 --json)"
predict -q w8a8 --nvme-path "$RUN/packs" | grep -q 'MiB from a pack in every step$' || fail "no word of a pack: $(predict -q w8a8 --nvme-path "$RUN/packs")"
# Without a folder for packs nothing fits, in the words of a start.
predict -q w8a8 >"$RUN/plan"
[ $? = 3 ] || fail "plan says that what needs a pack fits: $(cat "$RUN/plan")"
for line in 'give --nvme-path DIR, where' '^no max_model_len fits$'; do
  grep -q "$line" "$RUN/plan" || fail "plan has no line '$line': $(cat "$RUN/plan")"
done
predict -q w8a8 --json | grep -q '"fits":false,.*"reason":".*give --nvme-path DIR, where' || fail "plan --json: $(predict -q w8a8 --json)"
# Nor with one that is not there, may not be written to or has no room, unless the hosts are others, of which nobody here knows.
plan_refuses() { # WORDS ARGS...
  local words=$1
  shift
  predict "$@" >"$RUN/plan"
  [ $? = 3 ] || fail "plan says that $* fits: $(cat "$RUN/plan")"
  grep -q -- "$words" "$RUN/plan" || fail "plan does not say '$words' with $*: $(cat "$RUN/plan")"
}
plan_refuses 'there is no folder .*packs/none for packs: --nvme-path makes none$' -q w8a8 --nvme-path "$RUN/packs/none"
plan_refuses 'there is no folder .*packs/none for packs: --nvme-path makes none$' --nvme-path "$RUN/packs/none" # as a start, which needs no pack
predict -q w8a8 --nvme-path "$RUN/packs/none" --hosts a:1 --disk-bandwidth 1e8 >"$RUN/plan" || fail "plan looks at another host's folder: $(cat "$RUN/plan")"
mkdir -m 500 "$RUN/closed"
if ! touch "$RUN/closed/file" 2>/dev/null; then # root may
  plan_refuses 'closed/.*\.pack\.part cannot be made, and there is no pack that fits: Permission denied' -q w8a8 --nvme-path "$RUN/closed"
fi
rm -rf "$RUN/closed" "$RUN/huge"
mkdir "$RUN/huge"
sed 's/"num_hidden_layers": *[0-9]*/"num_hidden_layers": 4096/; s/"hidden_size": *[0-9]*/"hidden_size": 65536/; s/"intermediate_size": *[0-9]*/"intermediate_size": 262144/' "$MODEL/config.json" >"$RUN/huge/config.json"
plan_refuses 'the pack .*packs/.*\.pack needs [0-9]* bytes, its file system has [0-9]* free: No space left on device' --model "$RUN/huge" --load-format dummy --nvme-path "$RUN/packs" --memory-per-rank 1000T --disk-bandwidth 1e8
predict -tp 2 --nvme-path "$RUN/packs" --disk-bandwidth 1e8 | grep -q '(as given), which 2 ranks share$' || fail "two ranks: $(predict -tp 2 --nvme-path "$RUN/packs" --disk-bandwidth 1e8)"
predict | grep -q 'the disk gives .* GB/s (measured now, [0-9.]* MiB of the checkpoint' || fail "nothing was measured: $(predict)"
echo "{\"disk $(stat -L -c '%Hd:%Ld' "$MODEL/model.safetensors") of $(uname -n)\": {\"disk_bytes_per_s\": 7e9}}" >"$RUN/trireme/machine.json"
predict | grep -q 'the disk gives 7 GB/s (measured by a worker)$' || fail "what a worker has measured is not used: $(predict)"
# So slow a disk that a start, too, makes steps as large as can be.
sed -i 's/7e9/1e5/' "$RUN/trireme/machine.json"
# Of stages on CPUs each has its own disk to hide: prompts are not cut into less than that takes.
start_up --gpu-layers 0 --backend cpu -pp 2
grep -q 'engine: weights are streamed: to hide them, a step wants 8192 tokens; it has 8192 (512 are usual)' "$RUN/log" || fail "the log does not say how large a step of two stages is"
grep -q 'worker: micro-batches have up to 8192 prompt tokens: 8192 hide the streamed weights' "$RUN/log" || fail "the log does not say how large prompts of two stages are"
[ "$("$BIN/trireme" submit --temperature 0 "37+48=")" = 85 ] || fail "a wrong answer of two stages"
stop_cluster TERM
: >"$RUN/log"
start_up --max-in-cpu 34M --backend cpu
rm "$RUN/trireme/machine.json"
grep -q 'engine: weights: .* MiB stay, .* MiB are read from the checkpoint in every step' "$RUN/log" || fail "the log does not say what streams"
grep -q 'engine: weights are streamed: to hide them, a step wants 8192 tokens; it has 8192 (512 are usual)' "$RUN/log" || fail "the log does not say how large a step is"
[ "$("$BIN/trireme" submit --temperature 0 "37+48=")" = 85 ] || fail "a wrong answer"
for _ in $(seq $LOOKS); do # reports come once a second
  "$BIN/trireme" status --stats >"$RUN/stats"
  grep -q '^trireme:stream_pass_seconds.* 0\.' "$RUN/stats" && break
  sleep 0.05
done
grep -q '^trireme:streamed_bytes_total{group="0",rank="0",tier="nvme"} [1-9]' "$RUN/stats" || fail "no metrics of what streams: $(cat "$RUN/stats")"
"$BIN/trireme" status | grep -q '^replica 0 streams 0.0[0-9] GB of weights in every step, at [0-9.]* GB/s; the last two ended [0-9.]* s apart, ' || fail "status does not say what streams: $("$BIN/trireme" status)"
locked() { awk '/^VmLck:/ { print $2 }' "/proc/$("$BIN/trireme" status --json | grep -o '"rank":0,[^}]*"pid":[0-9]*' | grep -o '[0-9]*$')/status"; }
rooted=$(awk '/^CapEff:/ { print substr($2, length($2) - 3, 1) }' /proc/self/status) # CAP_IPC_LOCK is 4 of this digit
may_lock() { [ "$(ulimit -l)" = unlimited ] || [ "$(ulimit -l)" -ge 4096 ] || [[ $rooted == [4-7c-f] ]]; }
if may_lock; then
  [ "$(locked)" -ge 1024 ] || fail "what stays of the weights is not locked: $(locked) KiB"
  grep -q 'may be swapped out' "$RUN/log" && fail "the log says that what is locked is not"
fi
stop_cluster TERM

# Where it may not lock so much, it says so once and serves.
limits=(prlimit --memlock=65536:65536)
[[ $rooted == [4-7c-f] ]] && limits+=(setpriv --bounding-set=-ipc_lock --inh-caps=-ipc_lock)
if "${limits[@]}" true 2>/dev/null; then
  : >"$RUN/log"
  "${limits[@]}" "$BIN/trireme" up --model "$MODEL" --max-in-cpu 34M --backend cpu >>"$RUN/log" 2>&1 &
  CLUSTER=$!
  wait_ready
  [ "$("$BIN/trireme" submit --temperature 0 "37+48=")" = 85 ] || fail "a wrong answer of weights that are not locked"
  [ "$(locked)" -le 64 ] || fail "more is locked than may be: $(locked) KiB"
  [ "$(grep -c 'may be swapped out: they cannot be locked (.*), as ulimit -l allows 0.1 MiB' "$RUN/log")" = 1 ] || fail "the log does not say once that weights are not locked"
  stop_cluster TERM
fi

# A pack is made once; another start takes it, one of other types makes its own.
pack_start() { # FRESH ARGS...
  local fresh=$1
  shift
  : >"$RUN/log"
  start_up --gpu-layers 0 --nvme-path "$RUN/packs" --backend cpu "$@"
  [ "$("$BIN/trireme" submit --temperature 0 "37+48=")" = 85 ] || fail "a wrong answer from a pack: $*"
  grep -c 'the pack .* (just made).* in every step' "$RUN/log" | grep -q "^$fresh\$" || fail "not $fresh packs made with $*"
  stop_cluster TERM
}
pack_start 1 --quantization int8
pack_start 0 --quantization int8 --max-num-seqs 7
truncate -s -4096 "$RUN"/packs/*.pack
pack_start 1 --quantization int8
# Some bytes of a part are others: no request sees them.
printf 'damage' | dd of="$(ls "$RUN"/packs/*.pack)" bs=1 seek=$((2 * 1024 * 1024 + 1000)) conv=notrunc status=none
pack_start 1 --quantization int8
grep -q 'is damaged' "$RUN/log" || fail "the log does not say that the pack was damaged"
"$BIN/trireme" pack --model "$MODEL" --nvme-path "$RUN/packs" -tp 2 >"$RUN/made" 2>&1 || fail "trireme pack failed: $(cat "$RUN/made")"
[ "$(grep -c 'pack made' "$RUN/made")" = 2 ] || fail "not two packs ahead of time: $(cat "$RUN/made")"
pack_start 0 -tp 2
[ "$(find "$RUN/packs" -type f | wc -l)" = 3 ] || fail "not three packs: $(ls "$RUN/packs")"

# Spread over two folders: the order does not matter, and one that was emptied is filled again. Here both are on one disk.
mkdir "$RUN/drive1" "$RUN/drive2"
"$BIN/trireme" pack --model "$MODEL" --nvme-path "$RUN/drive1,$RUN/drive2" -tp 2 >"$RUN/spread" 2>&1 || fail "trireme pack failed: $(cat "$RUN/spread")"
drives=("$RUN/drive1" "$RUN/drive2")
pack_start_on() { # FRESH FOLDERS
  : >"$RUN/log"
  start_up --gpu-layers 0 --backend cpu -tp 2 --nvme-path "$2"
  [ "$("$BIN/trireme" submit --temperature 0 "37+48=")" = 85 ] || fail "a wrong answer from a pack in $2"
  grep -c 'in 2 folders' "$RUN/log" | grep -q '^2$' || fail "the log does not say that packs lie in $2"
  grep -c 'just made' "$RUN/log" | grep -q "^$1\$" || fail "not $1 packs made in $2"
  stop_cluster TERM
}
pack_start_on 0 "${drives[1]},${drives[0]}"
rm "${drives[1]}"/*
pack_start_on 2 "${drives[0]},${drives[1]}"
for drive in "${drives[@]}"; do
  [ "$(find "$drive" -type f | wc -l)" = 2 ] || fail "not a file for each rank: $(ls "$drive")"
done
"$BIN/trireme" status --stats --connect-timeout-ms 300 >/dev/null 2>&1 && fail "something still serves"
# Packs of the same ranks that share a folder, alone in it or with another one before it, leave each other's files alone.
mkdir "$RUN/drive0"
for folders in "$RUN/drive1" "$RUN/drive0,$RUN/drive1" "$RUN/drive1,$RUN/drive2" "$RUN/drive1"; do
  "$BIN/trireme" pack --model "$MODEL" --nvme-path "$folders" -tp 2 >>"$RUN/shared" 2>&1 || fail "trireme pack failed in $folders: $(cat "$RUN/shared")"
done
[ "$(grep -c 'pack made' "$RUN/shared") $(grep -c 'pack was there' "$RUN/shared")" = "4 4" ] || fail "packs of one folder replace each other: $(cat "$RUN/shared")"
rm -r "$RUN/drive0"
predict -tp 2 --nvme-path "$RUN/drive1,$RUN/drive2" --disk-bandwidth 1e8 | grep -q 'the disk gives 0.1 GB/s (as given), which 2 ranks share$' || fail "two folders of one disk: $(predict -tp 2 --nvme-path "$RUN/drive1,$RUN/drive2" --disk-bandwidth 1e8)"
refused 3 'is one folder more\|has no name' -tp 2 --gpu-layers 0 --nvme-path "$RUN/drive1," --backend cpu

# One rank makes its pack for longer than --start-timeout while the other, who has one, waits: the start goes on. A writer that holds
# the file's lock is what such a pack is to both.
slow=$(sed -n 's/^rank 1: \(.*\.pack\) made$/\1/p' "$RUN/made")
rm "$slow"
(
  flock 9
  for _ in $(seq 20); do
    echo >&9
    sleep 0.5
  done
) 9>"$slow.part" &
pack_start 1 -tp 2 --start-timeout 6 --max-restarts 0
grep -q 'is being written by another process' "$RUN/log" || fail "nobody has waited for the pack $slow"

# Another maker of the pack $slow, which has not come far, and does not come much further while anybody waits here.
write_slowly() {
  (
    flock 9
    for _ in $(seq 1200); do
      echo >&9
      sleep 0.5
    done
  ) 9>"$slow.part" &
  writer=$!
}
end_writer() {
  kill $writer
  wait $writer 2>/dev/null
}

# A start that is ended while a pack is made ends at once, and says so.
rm "$slow"
write_slowly
: >"$RUN/log"
"$BIN/trireme" up --model "$MODEL" -tp 2 --gpu-layers 0 --nvme-path "$RUN/packs" --backend cpu >>"$RUN/log" 2>&1 &
CLUSTER=$!
for _ in $(seq $LOOKS); do
  grep -q 'is being written by another process' "$RUN/log" && break
  sleep 0.05
done
stop_cluster TERM
grep -q 'told to exit before it was ready: the pack .* is not made: Trireme stops' "$RUN/log" || fail "the log does not say why there is no pack: $(tail -5 "$RUN/log")"
end_writer

# A rank that fails does not wait for one that packs, and every start is refused for its reason.
rm "$RUN"/packs/*.pack
write_slowly
printf '#!/bin/sh\n[ "$OMPI_COMM_WORLD_RANK" = 0 ] && ulimit -f 12000\nexec "$@"\n' >"$RUN/limited"
chmod 755 "$RUN/limited"
refused 3 'rank 0: the pack .* needs .* bytes' -tp 2 --gpu-layers 0 --nvme-path "$RUN/packs" --backend cpu --launcher-args "$RUN/limited"
end_writer
nothing_left
rm -f "$RUN"/packs/*

# Shards take a step as a whole, and the log says so.
dense=$MODEL
use_experts 4
shards=$(predict --gpu-layers 0 -dp 2 -ep 2 --disk-bandwidth 1e8)
echo "$shards" | grep -q ' in every step; it reads 1/2 of the 0.7 MiB that the 2 data-parallel ranks of its host share$' || fail "plan does not say what shards read once: $shards"
: >"$RUN/log"
start_up --gpu-layers 0 --nvme-path "$RUN/packs" --backend cpu -dp 2 -ep 2
grep -q 'steps are not split, and have up to 512 tokens, because of several data-parallel ranks' "$RUN/log" || fail "the log does not say how shards take a step: $(grep streamed "$RUN/log")"
[ "$("$BIN/trireme" submit --temperature 0 "37+48=")" = 85 ] || fail "a wrong answer of streamed shards"
grep -q 'are the same on the 2 data-parallel ranks of this host: each reads 1/2 of them' "$RUN/log" || fail "the log does not say that shards share reads: $(grep streamed "$RUN/log")"
# shellcheck disable=SC2317 # until_holds runs it
peers_read() { "$BIN/trireme" status --stats | grep -q '^trireme:streamed_bytes_total{group="0",rank="1",tier="peer"} [1-9]'; }
until_holds "no metrics of what shards read for each other" peers_read # ranks tell once a second
"$BIN/trireme" status | grep -q ' for [0-9.]* GB, [0-9.]* of them read by other data-parallel ranks$' || fail "status does not say what shards read for each other: $("$BIN/trireme" status)"
stop_cluster TERM
MODEL=$dense
rm -f "$RUN"/packs/*

# Shards of a model without experts have all in common.
: >"$RUN/log"
start_up --gpu-layers 0 --backend cpu -dp 2 --replicas 1
[ "$(grep -c ' 2.7 MiB of these are the same on the 2 data-parallel ranks of this host: each reads 1/2 of them' "$RUN/log")" = 2 ] || fail "the log does not say that shards share reads: $(grep streamed "$RUN/log")"
[ "$("$BIN/trireme" submit --temperature 0 "37+48=")" = 85 ] || fail "a wrong answer of shards without experts"
stop_cluster TERM

# A device's weights: in the host's memory, and what has no room there from files; in the host's alone, where that is asked for. The
# imitation computes on the host, and says that its memory is its own.
if [ -n "${1-}" ]; then
  programs=$BIN
  mkdir "$RUN/bin" "$RUN/device" && cp "$BIN/trireme" "$BIN"/trireme-{up,coordinator,worker,plan,pack} "$RUN/bin" && cp "$1" "$RUN/bin/libtrireme-cuda.so" || fail "no copies of the programs"
  cp "$1" "$RUN/bin/libcuda.so.1" # a driver's library that nobody calls
  libraries=${LD_LIBRARY_PATH-}
  export LD_LIBRARY_PATH=$RUN/bin${libraries:+:$libraries} FAKE_MEMORY=4000000000
  BIN=$RUN/bin
  on_device() { # WORDS-OF-THE-LOG ARGS...
    local words=$1
    shift
    : >"$RUN/log"
    start_up --backend cuda --gpu-layers 0 "$@"
    [ "$("$BIN/trireme" submit --temperature 0 "37+48=")" = 85 ] || fail "a wrong answer of a device: $*"
    grep -q "$words" "$RUN/log" || fail "the log has no '$words' with $*"
    stop_cluster TERM
  }
  on_device "are read from host memory in every step"
  on_device "are read from host memory (.* MiB) and the checkpoint in every step" --max-in-cpu 2M
  on_device "are read from the checkpoint in every step" --max-in-cpu 1K
  on_device "are read from the pack .*just made" --max-in-cpu 1K --quantization int8 --nvme-path "$RUN/device"
  # Shards bring half of what they have in common each, where their devices reach each other.
  on_device "each brings over its own link 1/2 of them, and copies the rest from the others' GPUs" -dp 2 --replicas 1 --max-in-cpu 1M
  predict --backend cuda --gpu-layers 0 -dp 2 --replicas 1 | grep -q '; it copies over its own link 1/2 of the [0-9.]* MiB that the 2 data-parallel ranks of its host share$' || fail "plan does not say what devices bring for each other: $(predict --backend cuda --gpu-layers 0 -dp 2 --replicas 1)"
  refused 3 "MiB of host memory are available for them" --backend cuda --gpu-layers 0 --offload-weights cpu --max-in-cpu 2M
  # Nothing is said, and the memory has room for two parts of layers at a time: in every layout a start streams, warns and answers.
  for layout in "-tp 1" "-tp 2" "-pp 2" "-dp 2 --replicas 1"; do
    export FAKE_MEMORY=4000000000
    # shellcheck disable=SC2086
    FAKE_MEMORY=$("$BIN/trireme" plan --model "$MODEL" --backend cuda --json --memory-per-rank 4G --gpu-layers 0 --offload-prefetch-step 2 --max-num-batched-tokens 8192 --dtype float32 $layout | python3 -c '
import json, sys
ranks = json.load(sys.stdin)["ranks"]
lines = "weights", "activations", "workspace", "reserve"
print(max(sum(r[l] for l in lines) + r["kv_cache"] * 1024 // r["kv_tokens"] for r in ranks))')
    : >"$RUN/log"
    # shellcheck disable=SC2086
    start_up --backend cuda --dtype float32 $layout
    [ "$("$BIN/trireme" submit --temperature 0 "37+48=")" = 85 ] || fail "a wrong answer of a device that is too small: $layout"
    grep -q 'WARN .*engine: weights do not fit next to the KV cache of one sequence of max_model_len 1024, and are streamed: .*--offload-weights none refuses' "$RUN/log" ||
      fail "no warning of weights that leave: $layout"
    stop_cluster TERM
  done
  refused 3 'exceed the .* that this rank may use: .* for one sequence of max_model_len 1024; no max_model_len fits: give --max-num-batched-tokens 2048, --offload-weights auto' --backend cuda --dtype float32 --offload-weights none
  unset FAKE_MEMORY
  export LD_LIBRARY_PATH=$libraries
  BIN=$programs
fi

# The checkpoint is cut while requests run: they end with the reason, the file is named, and nothing stays.
cp -r "$MODEL" "$RUN/model"
chmod -R u+w "$RUN/model"
MODEL=$RUN/model
: >"$RUN/log"
start_up --gpu-layers 0 --backend cpu --max-restarts 0
for i in $(seq 300); do echo '{"prompt": "'"$i"'+1=", "ignore_eos": true, "max_tokens": 900}'; done >"$RUN/many.jsonl"
"$BIN/trireme" submit --file "$RUN/many.jsonl" --output "$RUN/many.out" >"$RUN/out" 2>&1 &
client=$!
for _ in $(seq $LOOKS); do
  [[ $("$BIN/trireme" status --json) == *'"running":0,'* ]] || break
  sleep 0.05
done
truncate -s 5000 "$RUN/model/model.safetensors"
start=$(now_ms)
wait $client && fail "all requests have ended well without weights: $(cat "$RUN/out")"
grep -q 'model.safetensors' "$RUN/out" "$RUN/many.out" || fail "the client does not hear of the file: $(head -3 "$RUN/out")"
told_ms=$(($(now_ms) - start))
grep -q 'model.safetensors' "$RUN/log" || fail "the log does not name the file"
kill -TERM "$CLUSTER" 2>/dev/null
wait "$CLUSTER"
nothing_left
echo "plan, log, packs: right; a file that changes, told after $told_ms ms: $(grep -o '[^/]*model.safetensors.*' "$RUN/log" | head -1)"
