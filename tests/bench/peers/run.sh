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
shape gemma3-27b '{"torch_dtype":"bfloat16","architectures":["Gemma3ForCausalLM"],"model_type":"gemma3_text","hidden_size":5376,"intermediate_size":21504,
  "num_hidden_layers":62,"num_attention_heads":32,"num_key_value_heads":16,"head_dim":128,"sliding_window":1024,"sliding_window_pattern":6,
  "layer_types":["sliding_attention","sliding_attention","sliding_attention","sliding_attention","sliding_attention","full_attention",
  "sliding_attention","sliding_attention","sliding_attention","sliding_attention","sliding_attention","full_attention","sliding_attention",
  "sliding_attention","sliding_attention","sliding_attention","sliding_attention","full_attention","sliding_attention","sliding_attention",
  "sliding_attention","sliding_attention","sliding_attention","full_attention","sliding_attention","sliding_attention","sliding_attention",
  "sliding_attention","sliding_attention","full_attention","sliding_attention","sliding_attention","sliding_attention","sliding_attention",
  "sliding_attention","full_attention","sliding_attention","sliding_attention","sliding_attention","sliding_attention","sliding_attention",
  "full_attention","sliding_attention","sliding_attention","sliding_attention","sliding_attention","sliding_attention","full_attention",
  "sliding_attention","sliding_attention","sliding_attention","sliding_attention","sliding_attention","full_attention","sliding_attention",
  "sliding_attention","sliding_attention","sliding_attention","sliding_attention","full_attention","sliding_attention","sliding_attention"],
  "vocab_size":262208,"query_pre_attn_scalar":168,"rope_theta":1000000.0,"rope_local_base_freq":10000.0,
  "rope_scaling":{"rope_type":"linear","factor":8.0},"rms_norm_eps":1e-06,"hidden_activation":"gelu_pytorch_tanh",
  "max_position_embeddings":131072,"attention_bias":false,"tie_word_embeddings":true,"attn_logit_softcapping":null,
  "final_logit_softcapping":null}'
shape mistral-small-24b '{"torch_dtype":"bfloat16","architectures":["MistralForCausalLM"],"model_type":"mistral","hidden_size":5120,"intermediate_size":32768,
  "num_hidden_layers":40,"num_attention_heads":32,"num_key_value_heads":8,"head_dim":128,"vocab_size":131072,"rope_theta":100000000.0,
  "rms_norm_eps":1e-05,"hidden_act":"silu","max_position_embeddings":32768,"sliding_window":null,"tie_word_embeddings":false}'
shape gemma4-26b '{"attention_bias":false,"attention_k_eq_v":true,"enable_moe_block":true,"final_logit_softcapping":30.0,"global_head_dim":512,
  "head_dim":256,"hidden_activation":"gelu_pytorch_tanh","hidden_size_per_layer_input":0,"max_position_embeddings":262144,
  "model_type":"gemma4_text","moe_intermediate_size":704,"num_experts":128,"num_kv_shared_layers":0,"rms_norm_eps":1e-06,
  "rope_parameters":{"full_attention":{"partial_rotary_factor":0.25,"rope_theta":1000000.0,"rope_type":"proportional"},
  "sliding_attention":{"rope_theta":10000.0,"rope_type":"default"}},"sliding_window":1024,"tie_word_embeddings":true,"top_k_experts":8,
  "use_bidirectional_attention":"vision","use_double_wide_mlp":false,"vocab_size":262144,"vocab_size_per_layer_input":262144,
  "hidden_size":2816,"num_hidden_layers":30,"num_attention_heads":16,"num_key_value_heads":8,"num_global_key_value_heads":2,
  "intermediate_size":2112,"layer_types":["sliding_attention","sliding_attention","sliding_attention","sliding_attention",
  "sliding_attention","full_attention","sliding_attention","sliding_attention","sliding_attention","sliding_attention","sliding_attention",
  "full_attention","sliding_attention","sliding_attention","sliding_attention","sliding_attention","sliding_attention","full_attention",
  "sliding_attention","sliding_attention","sliding_attention","sliding_attention","sliding_attention","full_attention","sliding_attention",
  "sliding_attention","sliding_attention","sliding_attention","sliding_attention","full_attention"],"torch_dtype":"bfloat16",
  "architectures":["Gemma4ForCausalLM"]}'
shape glm45-air-24 '{"torch_dtype":"bfloat16","architectures":["Glm4MoeForCausalLM"],"model_type":"glm4_moe","hidden_size":4096,"intermediate_size":10944,
  "moe_intermediate_size":1408,"num_hidden_layers":24,"num_attention_heads":96,"num_key_value_heads":8,"head_dim":128,
  "n_routed_experts":128,"n_shared_experts":1,"num_experts_per_tok":8,"first_k_dense_replace":1,"n_group":1,"topk_group":1,
  "norm_topk_prob":true,"routed_scaling_factor":1.0,"partial_rotary_factor":0.5,"attention_bias":true,"use_qk_norm":false,
  "vocab_size":151552,"rope_theta":1000000,"rope_scaling":null,"rms_norm_eps":1e-05,"hidden_act":"silu","max_position_embeddings":131072,
  "tie_word_embeddings":false}'
shape minimax-m2-14 '{"torch_dtype":"bfloat16","architectures":["MiniMaxM2ForCausalLM"],"model_type":"minimax_m2","hidden_size":3072,"intermediate_size":1536,
  "num_hidden_layers":14,"num_attention_heads":48,"num_key_value_heads":8,"head_dim":128,"rotary_dim":64,"num_local_experts":256,
  "num_experts_per_tok":8,"scoring_func":"sigmoid","use_routing_bias":true,"use_qk_norm":true,"qk_norm_type":"per_layer",
  "vocab_size":200064,"rope_theta":5000000,"rms_norm_eps":1e-06,"hidden_act":"silu","max_position_embeddings":196608,
  "tie_word_embeddings":false,"shared_intermediate_size":0}'
shape llama4-scout-24 '{"attention_bias":false,"attention_chunk_size":8192,"attn_scale":0.1,"attn_temperature_tuning":true,"floor_scale":8192,"head_dim":128,
  "hidden_act":"silu","hidden_size":5120,"intermediate_size":8192,"intermediate_size_mlp":16384,"model_type":"llama4_text",
  "no_rope_layers":[1,1,1,0,1,1,1,0,1,1,1,0,1,1,1,0,1,1,1,0,1,1,1,0],"num_attention_heads":40,"num_experts_per_tok":1,
  "num_hidden_layers":24,"num_key_value_heads":8,"rms_norm_eps":1e-05,"rope_theta":500000.0,"torch_dtype":"bfloat16","vocab_size":202048,
  "interleave_moe_layer_step":1,"max_position_embeddings":10485760,"num_local_experts":16,"rope_scaling":{"factor":16.0,
  "high_freq_factor":1.0,"low_freq_factor":1.0,"original_max_position_embeddings":8192,"rope_type":"llama3"},"use_qk_norm":true,
  "architectures":["Llama4ForCausalLM"]}'
shape qwen3-embed-0.6b '{"torch_dtype":"bfloat16","architectures":["Qwen3ForCausalLM"],"model_type":"qwen3","hidden_size":1024,"intermediate_size":3072,
  "num_hidden_layers":28,"num_attention_heads":16,"num_key_value_heads":8,"head_dim":128,"vocab_size":151669,"rope_theta":1000000,
  "rms_norm_eps":1e-06,"hidden_act":"silu","max_position_embeddings":32768,"attention_bias":false,"tie_word_embeddings":true,
  "sliding_window":null,"use_sliding_window":false}'
shape modernbert-base '{"architectures":["ModernBertModel"],"attention_bias":false,"global_attn_every_n_layers":3,"global_rope_theta":160000.0,
  "hidden_activation":"gelu","hidden_size":768,"intermediate_size":1152,"layer_norm_eps":1e-05,"local_attention":128,
  "local_rope_theta":10000.0,"max_position_embeddings":8192,"mlp_bias":false,"model_type":"modernbert","norm_bias":false,"norm_eps":1e-05,
  "num_attention_heads":12,"num_hidden_layers":22,"position_embedding_type":"absolute","tie_word_embeddings":true,"torch_dtype":"float16",
  "vocab_size":50368}'
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
