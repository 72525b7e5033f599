#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Measures on this machine's device with which tactic the products of common models are fastest, for the table that comes with the product.
#   tune.sh FOLDER FILE [--parts "8b 1b gpt2 bert 70b-tp2"]
# FOLDER has trireme-bench-latency and the CUDA module. FILE (kernels/cuda/linear/gemm_tactics.txt) gets the lines for this device and version of
# cuBLAS in the place of those that it had for them; other devices' stay. Weights are random, and models have as many layers as it takes
# to fill the caches. Nothing that was measured before is looked at. Under three minutes.
# Ship what whole steps were timed with: 70b-tp2 is not among the parts otherwise.
set -euo pipefail
here=$(dirname "$(realpath "$0")") parts="8b 1b gpt2 bert"
[[ $# -ge 2 && -d $1 ]] || { sed -n '3,9s/^# \{0,1\}//p' "$0" >&2; exit 2; }
bin=$(realpath "$1") file=$2
if [[ ${3:-} = --parts && $# = 4 ]]; then parts=$4; elif [[ $# -gt 2 ]]; then echo "tune.sh: $3 is not known, or has no value" >&2; exit 2; fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Copies of the programs have no table beside them.
mkdir "$work/bin" && cp "$bin/trireme-bench-latency" "$bin/libtrireme-cuda.so" "$work/bin"
"$here/peers/run.sh" "$bin" --shapes "$work"
# What a rank of two has of Llama-3-70B, as a model of its own.
mkdir "$work/70b-tp2"
cat >"$work/70b-tp2/config.json" <<'JSON'
{"architectures":["LlamaForCausalLM"],"model_type":"llama","hidden_size":8192,"num_hidden_layers":4,"num_attention_heads":32,
 "num_key_value_heads":4,"head_dim":128,"intermediate_size":14336,"vocab_size":64128,"max_position_embeddings":8192,"rope_theta":500000.0,
 "rms_norm_eps":1e-05,"hidden_act":"silu","tie_word_embeddings":false,"torch_dtype":"bfloat16"}
JSON
sed -i 's/"num_hidden_layers":32/"num_hidden_layers":4/' "$work/8b/config.json"

export XDG_CACHE_HOME=$work/cache
measure() { # SHAPE TYPE TOKENS
  echo "$1:" >&2
  "$work/bin/trireme-bench-latency" --model "$work/$1" --load-format dummy --backend cuda --dtype "$2" --batch-size 1 --input-len 64 --output-len 2 \
    --num-iters 1 --autotune --max-num-seqs 256 --max-num-batched-tokens "$3" >/dev/null
}
for part in $parts; do
  case $part in
  8b | 1b | 70b-tp2) measure "$part" bfloat16 2048 ;;
  gpt2) measure "$part" float16 2048 ;;
  bert) measure "$part" float16 4096 ;;
  *) echo "tune.sh: no part $part" >&2; exit 1 ;;
  esac
done

measured=("$work"/cache/trireme/tactics-*.txt)
[[ ${#measured[@]} = 1 && -f ${measured[0]} ]] || { echo "tune.sh: nothing was measured" >&2; exit 1; }
for_line=$(sed -n 2p "${measured[0]}")
[[ -f $file ]] || { sed -n 1p "${measured[0]}" >"$file"; }
FOR=$for_line awk '/^for / { drop = $0 == ENVIRON["FOR"] } !drop' "$file" >"$work/merged"
tail -n +2 "${measured[0]}" >>"$work/merged"
cp "$work/merged" "$file"
echo "$file: $(grep -c '^linear' "${measured[0]}") tactics ${for_line}, $(grep -c ' use algo ' "${measured[0]}") of them algorithms" >&2
