#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# `trireme plan --devices`: two models with figures that are given, so that every number is known beforehand, and what it refuses.
# shellcheck source=/dev/null disable=SC2154
. "$(dirname "$0")/lib.sh"
export XDG_CACHE_HOME=$RUN
plan=("$BIN/trireme" plan --backend cuda --read-bandwidth 1e12 --flops 1e14)

# same NAME ARGS...: the output is that of standard input, warnings apart
same() {
  local name=$1
  shift
  "${plan[@]}" "$@" >"$RUN/got" 2>"$RUN/said" || fail "$name ended with $?: $(cat "$RUN/said")"
  diff - "$RUN/got" || fail "$name"
}
# want CODE TEXT ARGS...
want() {
  local code=$1 text=$2
  shift 2
  "${plan[@]}" "$@" >"$RUN/got" 2>&1
  local got=$?
  [ $got = "$code" ] || fail "$*: exit code $got, not $code: $(cat "$RUN/got")"
  grep -q -- "$text" "$RUN/got" || fail "$*: no '$text' in: $(cat "$RUN/got")"
}

llama=$DATA/checkpoints/llama experts=$DATA/checkpoints/mixtral_odd
same llama --model "$llama" --devices 4 --memory-per-rank 1GiB --gpu-memory-utilization 1 <<'TABLE'
assumed: NVIDIA H200, a rank may use 1024.0 MiB (--memory-per-rank); rates as measured on one; --device h200, h100, a100, l40s or b200 plans for another
llama: 4 layers, hidden 64, 8 heads over 2 KV heads, vocabulary 509
backend cuda: 4 devices on 1 host, 1024.0 MiB for each rank, 256 tokens per sequence
machine: a rank reads 1000 GB/s at best (as given), products 100 TFLOP/s (as given)
         sums 1.7 us + 0.2 us a rank + bytes at 214 GB/s; exchange 3.8 us + 0.47 us a rank + bytes at 214 GB/s; transfers 11 us + bytes at 280 GB/s
predicted, with 256 keys for each sequence that decodes:

                                                       MiB a rank  KV tokens ms/token                          ms/prompt
  layout                                               without KV     in all   1 seq. 32 seqs.        tokens/s          
* -tp 1 --replicas 4                                          413     262144    0.087    0.088  2646287 at 256      0.09
  -tp 1 -pp 2 --replicas 2                                    415     131072    0.098    0.106  2247533 at 256      0.10
  -tp 2 --replicas 2                                          403     131072    0.108    0.109  2153879 at 256      0.11
  -tp 4                                                       398      65536    0.112    0.114  1917025 at 256      0.12
  -tp 2 -pp 2                                                 405      65536    0.119    0.126  1879583 at 256      0.12
  -tp 1 -pp 4                                                 418      65536    0.120    0.132  1817927 at 256      0.12

* the most tokens per second; a prompt has 256 tokens
TABLE
same experts --model "$experts" --devices 8 --nnodes 2 --memory-per-rank 1GiB --gpu-memory-utilization 1 <<'TABLE'
assumed: NVIDIA H200, a rank may use 1024.0 MiB (--memory-per-rank); rates as measured on one; --device h200, h100, a100, l40s or b200 plans for another
mixtral: 3 layers, hidden 96, 6 heads over 3 KV heads, vocabulary 331, 5 experts, 2 for each token
backend cuda: 8 devices on 2 hosts, 1024.0 MiB for each rank, 192 tokens per sequence
machine: a rank reads 1000 GB/s at best (as given), products 100 TFLOP/s (as given)
         sums 1.7 us + 0.2 us a rank + bytes at 214 GB/s; exchange 3.8 us + 0.47 us a rank + bytes at 214 GB/s; transfers 11 us + bytes at 280 GB/s
         between hosts, not measured: sums and exchange 10 us + 1 us a rank + bytes at 50 GB/s; transfers 15 us + bytes at 50 GB/s
predicted, with 192 keys for each sequence that decodes:

                                                       MiB a rank  KV tokens ms/token                          ms/prompt
  layout                                               without KV     in all   1 seq. 32 seqs.        tokens/s          
* -tp 1 --replicas 8                                          427     393216    0.089    0.090  2851949 at 256      0.09
  -tp 1 -pp 2 --replicas 4                                    430     196608    0.100    0.133  1915134 at 256      0.10
  -tp 2 --replicas 4                                          424     196608    0.106    0.106  2388115 at 256      0.11
  -tp 2 --enable-expert-parallel --replicas 4                 427     196608    0.106    0.106  2386959 at 256      0.11
  -tp 4 --replicas 2                                          422      98304    0.109    0.109  2296957 at 256      0.11
  -tp 4 -ep 2 --replicas 2                                    424      98304    0.109    0.109  2296366 at 256      0.11
  -tp 4 --enable-expert-parallel --replicas 2                 427      98304    0.109    0.109  2295183 at 256      0.11
  -tp 2 -pp 2 --replicas 2                                    426      98304    0.117    0.154  1645550 at 256      0.12
  -tp 2 -pp 2 --enable-expert-parallel --replicas 2           429      98304    0.117    0.154  1644818 at 256      0.12
  -tp 1 -dp 2 --enable-expert-parallel --replicas 4           430     393216    0.118    0.118  2166929 at 256      0.12

* the most tokens per second; a prompt has 192 tokens
predictions for data-parallel ranks (-dp) are measured on two GPUs only
10 of 23 layouts that fit; --all shows the others
TABLE

want 0 '"fits":true,"fits_streamed":true,"layouts":\[{"flags":"-tp 1 --replicas 4"' --model "$llama" --devices 4 --memory-per-rank 1GiB --json
want 0 '"sequences":1,"seconds":[0-9.e-]*,"tokens_per_s":[0-9.]*,"terms":{"reads":' --model "$llama" --devices 4 --memory-per-rank 1GiB --json
[ "$("${plan[@]}" --model "$experts" --devices 24 --memory-per-rank 1GiB | grep -c '^[* ][! ]-tp')" = 10 ] || fail "not ten rows"
rows=$("${plan[@]}" --model "$experts" --devices 24 --memory-per-rank 1GiB --all | grep -c '^[* ][! ]-tp')
[ "$rows" -gt 20 ] || fail "--all has $rows rows"
want 0 '^ !-tp 8 ' --model "$llama" --devices 8 --nnodes 2 --memory-per-rank 1GiB
grep -q '^! a tensor-parallel group spans several hosts$' "$RUN/got" || fail "no word of the mark"

# What cannot be, with the field; what fits nowhere says what is missing.
want 2 '-tp is part of one' --model "$llama" --devices 4 -tp 2
want 2 '--enable-expert-parallel is part of one' --model "$experts" --devices 4 --enable-expert-parallel
want 2 '--hosts is part of one' --model "$llama" --devices 4 --hosts a:4
want 2 '4 GPUs cannot be divided equally over 3 hosts (nnodes)' --model "$llama" --devices 4 --nnodes 3
want 2 '--nnodes 2 goes with --devices' --model "$llama" --nnodes 2
want 2 '--context-len 100000 exceeds max_model_len' --model "$llama" --devices 4 --memory-per-rank 1GiB --context-len 100000
want 2 'devices is 2000; allowed are 0 to 1024' --model "$llama" --devices 2000
want 3 'only steps of decoders are predicted, and bert is none (devices)' --model "$DATA/checkpoints/bert" --devices 2
want 3 'the nearest, -tp [0-9]*.*, lacks [0-9.]* MiB a rank[^(]*$' --model "$llama" --devices 4 --memory-per-rank 100MiB
want 3 '"fits":false,"fits_streamed":false,"layouts":\[{"flags":"[^"]*",[^{]*"fits":false,"missing":[1-9]' --model "$llama" --devices 4 --memory-per-rank 100MiB --json
want 0 '^assumed: NVIDIA H200, a rank may use 128102.4 MiB; ' --model "$llama" --devices 4

# Devices that are not here, by their kind: the first line says what is taken for granted.
plan=("$BIN/trireme" plan)
want 0 '^for NVIDIA H100 (80 GB), a rank may use 71884.8 MiB; rates as measured on one$' --model "$llama" --devices 2 --device h100
grep -q '^machine: a rank reads 3010 GB/s at best (NVIDIA H100 (80 GB), as measured), products 806 TFLOP/s ' "$RUN/got" || fail "not an H100's rates"
want 0 '^for NVIDIA A100 (80 GB), .*; rates by its data sheet$' --model "$llama" --devices 2 --device a100
want 0 '^for NVIDIA H100 (80 GB), a rank may use 9000.0 MiB (--memory-per-rank)' --model "$llama" --device h100 --memory-per-rank 10000MiB
want 2 'device is "tpu"; it can be h200, h100, a100, l40s, b200' --model "$llama" --device tpu
want 2 'device h100 is a GPU, and --backend is cpu$' --model "$llama" --device h100 --backend cpu
want 0 '^assumed: NVIDIA H200, ' --model "$llama" --devices 2 # GPUs without a word of a backend

# Models larger than the memory, by the shapes of published ones: with defaults they are streamed, and plan says so.
shape() { # NAME KEYS
  mkdir "$RUN/$1"
  echo "{\"torch_dtype\": \"bfloat16\", \"hidden_act\": \"silu\", \"tie_word_embeddings\": false, \"num_key_value_heads\": 8, $2}" >"$RUN/$1/config.json"
}
shape l70 '"model_type": "llama", "vocab_size": 128256, "hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80, "num_attention_heads": 64, "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "rope_theta": 5e5'
shape l8 '"model_type": "llama", "vocab_size": 128256, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32, "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "rope_theta": 5e5'
shape mixtral '"model_type": "mixtral", "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32, "max_position_embeddings": 32768, "rms_norm_eps": 1e-5, "rope_theta": 1e6, "num_local_experts": 8, "num_experts_per_tok": 2'
cp -r "$RUN/l70" "$RUN/l 70"
disk=(--max-in-cpu 200G)
want 0 '^fits streamed, [0-9.]* s a step at least: ' --model "$RUN/l70" --device h100 "${disk[@]}"
want 0 '^fits streamed, with an unknown time of a step (give --disk-bandwidth): ' --model "$RUN/l70" --device h100 --max-in-cpu 20G
want 0 '^with all weights in memory it is 29376$' --model "$RUN/l8" --backend cuda --memory-per-rank 24GB "${disk[@]}"
want 0 '"streamed":true,"fits":true,' --model "$RUN/l8" --backend cuda --memory-per-rank 24GB "${disk[@]}" --json
want 3 'plan: does not fit: .* exceed the 20599.4 MiB that this rank may use: weights .*; the longest max_model_len that fits with all weights in memory is 29376: give --max-model-len 29376, --offload-weights auto' \
  --model "$RUN/l8" --backend cuda --memory-per-rank 24GB --offload-weights none
want 0 '^no layout keeps all weights in memory; -tp 2 fits streamed: each step reads [0-9.]* MiB of a rank.s weights$' --model "$RUN/l70" --devices 2 --device h100
# The command that this names next answers.
grep -q '^  trireme plan --model .*/l70 --device h100 --disk-bandwidth 7GB -tp 2$' "$RUN/got" || fail "no command: $(cat "$RUN/got")"
next=$(grep '^  trireme plan ' "$RUN/got")
eval "\"\$BIN/trireme\" ${next#  trireme }" >"$RUN/got" 2>&1 || fail "$next: $(cat "$RUN/got")"
grep -q '^fits streamed, [0-9.]* s a step at least: ' "$RUN/got" || fail "$next: $(cat "$RUN/got")"
want 0 "^  trireme plan --model '.*/l 70' --max-model-len=4096 --disk-bandwidth 3e9 --device h200 -tp 1\$" \
  --model "$RUN/l 70" --devices=1 --max-model-len=4096 --all --disk-bandwidth 3e9
want 3 'no layout of 2 GPUs fits' --model "$RUN/l70" --devices 2 --device h100 --offload-weights none

# Weights that are made up lie in no file: as a start, and some length may fit with a pack.
want 3 'dummy weights (--load-format dummy) are in no file .*--nvme-path DIR' --model "$RUN/l70" --device h100 --max-in-cpu 20G --load-format dummy
grep -q '^no max_model_len fits with all weights in memory$' "$RUN/got" || fail "$(cat "$RUN/got")"
want 0 '^fits streamed, ' --model "$RUN/l70" --device h100 --load-format dummy "${disk[@]}"
# Both lengths are named, first the one that streams nothing.
want 3 'that fits with all weights in memory is 1920 ([0-9]* with weights streamed): give --max-model-len 1920 or [0-9]*, ' \
  --model "$RUN/l8" --backend cuda --memory-per-rank 20GB

# Experts in the memory of a host that is not this one are taken to have room there.
want 0 "^host memory is assumed to suffice; this host has [0-9.]* MiB free for all ranks\$" --model "$RUN/mixtral" --device l40s --cpu-moe
grep -q "^its bandwidth is assumed to be this host's: --host-bandwidth BYTES/S sets another\$" "$RUN/got" || fail "$(cat "$RUN/got")"
want 0 '"host_memory_assumed":true,' --model "$RUN/mixtral" --device l40s --cpu-moe --host-bandwidth 200GB --json

# The shipped files start with the models that they name.
configs=$SRC/cluster-configs
want 0 '^fits streamed, ' --config "$configs/streamed-gpu.yaml" --model "$RUN/l70" --device h200 "${disk[@]}"
want 0 '^fits streamed, ' --config "$configs/streamed-gpu.yaml" --model "$RUN/l70" --device h100 "${disk[@]}"
want 0 '^fits streamed, ' --config "$configs/streamed-nvme.yaml" --model "$RUN/l70" --device h100 --hosts a:1 --disk-bandwidth 7GB
want 0 '^fits streamed, ' --config "$configs/streamed-cpu.yaml" --model "$RUN/l8" --memory-per-rank 16GB --max-model-len 8192 --hosts a:1 --disk-bandwidth 3GB
want 0 '^fits: ' --config "$configs/experts-24gb.yaml" --model "$RUN/mixtral" --device h100 --memory-per-rank 24G --host-bandwidth 200GB
want 0 '^fits: ' --config "$configs/experts-1node.yaml" --model "$RUN/mixtral" --device h100
want 0 '^fits: ' --config "$configs/1node-8ranks.yaml" --model "$RUN/l70" --device h100
want 0 '^fits: ' --config "$configs/2node-tp8-pp2.yaml" --model "$RUN/l70" --device h100

# Of this host what it measures itself, in a moment; without --devices all is as ever.
"$BIN/trireme" plan --backend cpu --model "$llama" --devices 2 >"$RUN/got" || fail "no layouts for a CPU"
grep -q '^machine: a rank reads [0-9.]* GB/s at best (measured now, in equal parts)' "$RUN/got" || fail "$(cat "$RUN/got")"
"$BIN/trireme" plan --backend cpu --model "$llama" -tp 2 | grep -q '^fits: ' || fail "a plan without --devices"
echo "layouts are ranked, and what cannot be is refused"
