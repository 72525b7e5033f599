#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Our programs and transformers in turn, on the same shapes, random weights and one device; prints a table in Markdown.
#   run.sh FOLDER [--seconds N] [--rounds N] [--parts "8b-b1 gpt2 bert-20 ..."] [--out FILE] [--shapes FOLDER]
# FOLDER has trireme-bench-latency and the CUDA module. Each part takes --seconds (220) at most, compiling and all, for the rounds (3)
# that fit into it; figures are medians over those. Every line of JSON is shown as it comes, so that a part that is cut off has said
# what it had, and --out keeps them, with the part's name. --shapes only writes the shapes' config.json files.
# PYTHON and BACKEND are taken from the environment.
set -uo pipefail
here=$(dirname "$(realpath "$0")")
parts="8b-b1 8b-b8 8b-b32 8b-prefill 1b-b1 gpt2 bert-1 bert-20" seconds=220 rounds=3 shapes='' out=
[[ $# -gt 0 && -d $1 ]] || { sed -n '3,8s/^# \{0,1\}//p' "$0" >&2; exit 2; }
bin=$(realpath "$1")
shift
while [[ $# -gt 1 ]]; do
  case $1 in
  --seconds) seconds=$2 ;;
  --rounds) rounds=$2 ;;
  --parts) parts=$2 ;;
  --out) out=$2 ;;
  --shapes) shapes=$2 ;;
  *) break ;;
  esac
  shift 2
done
[[ $# = 0 ]] || { echo "run.sh: $1 is not known, or has no value" >&2; exit 2; }
python=${PYTHON:-python3} backend=${BACKEND:-cuda} work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
: >"${out:=$work/lines}"

shape() { # NAME JSON
  mkdir -p "${shapes:-$work}/$1" && echo "$2" >"${shapes:-$work}/$1/config.json"
}
shape 8b '{"architectures":["LlamaForCausalLM"],"model_type":"llama","hidden_size":4096,"num_hidden_layers":32,"num_attention_heads":32,
  "num_key_value_heads":8,"intermediate_size":14336,"vocab_size":128256,"max_position_embeddings":8192,"rope_theta":500000.0,
  "rms_norm_eps":1e-05,"hidden_act":"silu","tie_word_embeddings":false,"torch_dtype":"bfloat16"}'
shape 1b '{"architectures":["LlamaForCausalLM"],"model_type":"llama","hidden_size":2048,"num_hidden_layers":16,"num_attention_heads":32,
  "num_key_value_heads":8,"head_dim":64,"intermediate_size":8192,"vocab_size":128256,"max_position_embeddings":131072,
  "rope_theta":500000.0,"rope_scaling":{"rope_type":"llama3","factor":32.0,"low_freq_factor":1.0,"high_freq_factor":4.0,
  "original_max_position_embeddings":8192},"rms_norm_eps":1e-05,"hidden_act":"silu","tie_word_embeddings":true,"torch_dtype":"bfloat16"}'
shape gpt2 '{"architectures":["GPT2LMHeadModel"],"model_type":"gpt2","n_embd":768,"n_layer":12,"n_head":12,"n_positions":1024,
  "vocab_size":50257,"activation_function":"gelu_new","layer_norm_epsilon":1e-05,"tie_word_embeddings":true}'
shape bert '{"architectures":["BertModel"],"model_type":"bert","hidden_size":768,"num_hidden_layers":12,"num_attention_heads":12,
  "intermediate_size":3072,"vocab_size":30522,"max_position_embeddings":512,"type_vocab_size":2,"hidden_act":"gelu","pad_token_id":0}'
shape mixtral '{"architectures":["MixtralForCausalLM"],"model_type":"mixtral","hidden_size":4096,"num_hidden_layers":32,
  "num_attention_heads":32,"num_key_value_heads":8,"intermediate_size":14336,"num_local_experts":8,"num_experts_per_tok":2,
  "vocab_size":32000,"max_position_embeddings":32768,"rope_theta":1000000.0,"rms_norm_eps":1e-05,"hidden_act":"silu",
  "sliding_window":null,"tie_word_embeddings":false,"torch_dtype":"bfloat16"}'
shape qwen3-30b '{"architectures":["Qwen3MoeForCausalLM"],"model_type":"qwen3_moe","hidden_size":2048,"num_hidden_layers":48,
  "num_attention_heads":32,"num_key_value_heads":4,"head_dim":128,"intermediate_size":6144,"moe_intermediate_size":768,
  "num_experts":128,"num_experts_per_tok":8,"norm_topk_prob":true,"decoder_sparse_step":1,"mlp_only_layers":[],"vocab_size":151936,
  "max_position_embeddings":40960,"rope_theta":1000000.0,"rms_norm_eps":1e-06,"hidden_act":"silu","tie_word_embeddings":false,
  "attention_bias":false,"torch_dtype":"bfloat16"}'
shape gpt-oss-20b '{"architectures":["GptOssForCausalLM"],"model_type":"gpt_oss","hidden_size":2880,"num_hidden_layers":24,
  "num_attention_heads":64,"num_key_value_heads":8,"head_dim":64,"intermediate_size":2880,"num_local_experts":32,
  "num_experts_per_tok":4,"vocab_size":201088,"max_position_embeddings":131072,"rope_theta":150000.0,"rope_scaling":{"rope_type":"yarn",
  "factor":32.0,"beta_fast":32.0,"beta_slow":1.0,"original_max_position_embeddings":4096,"truncate":false},"sliding_window":128,
  "rms_norm_eps":1e-05,"hidden_act":"silu","swiglu_limit":7.0,"attention_bias":true,"tie_word_embeddings":false,"torch_dtype":"bfloat16"}'
shape moe-128 '{"architectures":["Qwen3MoeForCausalLM"],"model_type":"qwen3_moe","hidden_size":2048,"num_hidden_layers":24,
  "num_attention_heads":16,"num_key_value_heads":16,"head_dim":128,"intermediate_size":5464,"moe_intermediate_size":5464,
  "num_experts":128,"num_experts_per_tok":1,"norm_topk_prob":true,"decoder_sparse_step":2,"mlp_only_layers":[],"vocab_size":51200,
  "max_position_embeddings":8320,"rope_theta":10000.0,"rms_norm_eps":1e-06,"hidden_act":"silu","tie_word_embeddings":true,
  "attention_bias":false,"torch_dtype":"bfloat16"}'
shape v2-lite '{"architectures":["DeepseekV3ForCausalLM"],"model_type":"deepseek_v3","hidden_size":2048,"num_hidden_layers":27,
  "num_attention_heads":16,"num_key_value_heads":16,"kv_lora_rank":512,"q_lora_rank":null,"qk_nope_head_dim":128,"qk_rope_head_dim":64,
  "v_head_dim":128,"intermediate_size":10944,"moe_intermediate_size":1408,"n_routed_experts":64,"n_shared_experts":2,
  "num_experts_per_tok":6,"first_k_dense_replace":1,"moe_layer_freq":1,"topk_method":"noaux_tc","n_group":1,"topk_group":1,
  "norm_topk_prob":false,"scoring_func":"sigmoid","routed_scaling_factor":1.0,"vocab_size":102400,"max_position_embeddings":163840,
  "rope_theta":10000,"rope_scaling":{"type":"yarn","factor":40,"mscale":0.707,"mscale_all_dim":0.707,"beta_fast":32,"beta_slow":1,
  "original_max_position_embeddings":4096},"rms_norm_eps":1e-06,"hidden_act":"silu","tie_word_embeddings":false,"torch_dtype":"bfloat16"}'
[[ -z $shapes ]] || exit 0

begun=0
left() { echo $((seconds - (SECONDS - begun))); }
# Runs a command for what is left of the part's time; each line of its JSON goes to the lines at once, its complaints to a file that is
# shown if it fails.
measure() { # PART COMMAND...
  local part=$1 code now
  shift
  now=$(left)
  [[ $now -gt 0 ]] || return 1
  timeout -k 5 "$now" "$@" 2>"$work/complaints" | sed -un "s/^{/{\"part\":\"$part\",/p" | tee -a "$out" >&2
  code=${PIPESTATUS[0]}
  [[ $code = 0 ]] && return 0
  echo "$part: ${1##*/}: exit code $code" >&2
  [[ $code = 124 ]] || tail -5 "$work/complaints" >&2
  return 1
}

decoder() { # PART SHAPE TYPE BATCH INPUT OUTPUT [PEER OPTION...]
  local part=$1 config=$work/$2 type=$3 batch=$4 input=$5 output=$6
  shift 6
  measure "$part" "$bin/trireme-bench-latency" --model "$config" --load-format dummy --backend "$backend" --dtype "$type" \
    --batch-size "$batch" --input-len "$input" --output-len "$output" --json
  measure "$part" "$python" "$here/decoder.py" --config "$config" --dtype "$type" --batch "$batch" --input-len "$input" \
    --output-len "$output" --compile "$@"
}
encoder() { # PART SHAPE TYPE BATCH LENGTH
  measure "$1" "$bin/trireme-bench-latency" --model "$work/$2" --load-format dummy --backend "$backend" --dtype "$3" --batch-size "$4" \
    --input-len "$5" --num-iters 50 --json
  measure "$1" "$python" "$here/encoder.py" --config "$work/$2" --dtype "$3" --shapes "$4x$5" --compile
}
run() { # PART
  case $1 in
  8b-b1) decoder "$1" 8b bfloat16 1 128 128 ;;
  8b-b8) decoder "$1" 8b bfloat16 8 128 128 ;;
  8b-b32) decoder "$1" 8b bfloat16 32 128 128 ;;
  8b-prefill) decoder "$1" 8b bfloat16 1 2048 8 --no-generate ;;
  1b-b1) decoder "$1" 1b bfloat16 1 128 128 ;;
  gpt2) decoder "$1" gpt2 float16 1 374 300 ;;
  bert-1) encoder "$1" bert float16 1 128 ;;
  bert-20) encoder "$1" bert float16 20 128 ;;
  *) echo "run.sh: no part $1" >&2; return 1 ;;
  esac
}

for part in $parts; do
  begun=$SECONDS
  for ((round = 1; round <= rounds; round++)); do
    echo "$part, round $round" >&2
    run "$part" || break
    # A round that would be cut off has no figures.
    [[ $(((SECONDS - begun) * (round + 1) / round)) -lt $seconds ]] || break
  done
done
"$python" "$here/table.py" "$out"
