/* SPDX-License-Identifier: Apache-2.0 */
/* Qwen2: Llama with biases on queries, keys and values. Qwen3: without them, with a norm of each head of queries and
 * keys, and a head size of its own. Their MoE forms have experts in some or all layers, Qwen2-MoE with a gated expert
 * for every token in addition.
 *
 * Qwen2.5-VL's text part is Qwen2, that of Qwen3-VL is Qwen3, where experts are stacked: as released transposed, as
 * transformers 5 writes new ones not. What images add to some of its layers (deepstack), a text does not have. */
#include "runtime/model/arch/rules.h"

#define KEYS                                                                                                           \
  TRI_KEYS_LLAMA, TRI_KEY_WINDOW, TRI_READ_KEY("use_sliding_window"),                                                  \
      TRI_READ_KEY("max_window_layers") /* both read by prepare */
#define EXPERT_KEYS                                                                                                    \
  TRI_KEYS_MOE, TRI_INT_KEY("num_experts", moe.num_experts, 1, 4096),                                                  \
      TRI_INT_KEY("num_local_experts", moe.num_experts, 1, 4096),                                                      \
      TRI_INT_KEY("moe_intermediate_size", moe.intermediate_size, 1, 1 << 24),                                         \
      TRI_BOOL_KEY("norm_topk_prob", moe.renormalize), TRI_READ_KEY("decoder_sparse_step"),                            \
      TRI_READ_KEY("mlp_only_layers") /* both read by finish_moe */
#define MOE_KEYS KEYS, EXPERT_KEYS

static const tri_config_key keys2[] = {KEYS, {0}};
static const tri_config_key keys3[] = {KEYS, TRI_KEY_ATTENTION_BIAS, {0}};
static const tri_config_key moe_keys2[] = {MOE_KEYS,
                                           TRI_BOOL_KEY("qkv_bias", attention.bias),
                                           TRI_INT_KEY("shared_expert_intermediate_size", moe.shared_size, 1, 1 << 24),
                                           {0}};
static const tri_config_key moe_keys3[] = {MOE_KEYS, TRI_KEY_ATTENTION_BIAS, {0}};
static const tri_config_key vl_keys3[] = {TRI_KEYS_LLAMA, TRI_KEY_ATTENTION_BIAS, {0}};
static const tri_config_key vl_moe_keys3[] = {TRI_KEYS_LLAMA, TRI_KEY_ATTENTION_BIAS, EXPERT_KEYS, {0}};

static const tri_tensor_rule tensors[] = {TRI_RULES_LLAMA, TRI_RULES_QK_NORM, {0}};
static const tri_tensor_rule moe_tensors[] = {
    TRI_RULES_LLAMA,
    TRI_RULES_QK_NORM,
    TRI_RULE("layers.%d.mlp.gate.weight", ROUTER),
    TRI_RULES_EXPERTS("layers.%d.mlp.experts.%d.", "gate_proj", "up_proj", "down_proj"),
    TRI_RULES_SHARED("layers.%d.mlp.shared_expert."),
    TRI_RULE_IF("layers.%d.mlp.shared_expert_gate.weight", SHARED_GATE, moe.shared_gate),
    {0}};

#define STACKED(n, w, p)                                                                                               \
  {                                                                                                                    \
    .name = "layers.%d.mlp.experts." n, .weight = TRI_W_##w, .part = TRI_PART_##p,                                     \
    .flags = TRI_TENSOR_STACKED | TRI_TENSOR_TRANSPOSED | TRI_TENSOR_EITHER                                            \
  }
static const tri_tensor_rule vl_moe_tensors[] = {TRI_RULES_LLAMA,
                                                 TRI_RULES_QK_NORM,
                                                 TRI_RULE("layers.%d.mlp.gate.weight", ROUTER),
                                                 STACKED("gate_up_proj", EXPERT_UP, GATE_UP_CONCAT),
                                                 STACKED("down_proj", EXPERT_DOWN, WHOLE),
                                                 {0}};

/* The window counts only where use_sliding_window says so, and then for the layers above max_window_layers. */
static tri_status prepare(tri_model_config *c, const tri_json *root, tri_error *err) {
  bool on = false;
  double from = 28;
  tri_status st = tri_config_bool(root, "use_sliding_window", &on, err);
  if (st == TRI_OK) st = tri_config_number(root, "max_window_layers", 0, TRI_MAX_LAYERS, &from, err);
  if (!on) c->attention.window = 0;
  if (st == TRI_OK) tri_config_local_layers(c, root, (int)from, 1);
  return st;
}

/* Every decoder_sparse_step-th layer has experts, but for those of mlp_only_layers. */
static tri_status finish_moe(tri_model_config *c, const tri_json *root, tri_error *err) {
  double step = 1;
  tri_status st = tri_config_number(root, "decoder_sparse_step", 1, TRI_MAX_LAYERS, &step, err);
  const tri_json *dense = tri_json_get(root, "mlp_only_layers");
  if (st == TRI_OK) tri_config_sparse_layers(c, (int)step - 1, (int)step);
  for (size_t i = 0; st == TRI_OK && i < tri_json_size(dense); i++) {
    int64_t layer;
    if (!tri_json_as_int(tri_json_at(dense, i), &layer) || layer < 0 || layer >= c->num_layers)
      return tri_fail(err, TRI_OUT_OF_RANGE, "mlp_only_layers", "mlp_only_layers[%zu] is not a layer", i);
    c->layer_flags[layer] &= (uint8_t)~TRI_LAYER_SPARSE;
  }
  return st;
}

/* Weights are renormalized, and no release says otherwise. */
static tri_status finish_vl_moe(tri_model_config *c, const tri_json *root, tri_error *err) {
  if (!c->moe.renormalize)
    return tri_fail(err, TRI_UNSUPPORTED, "norm_topk_prob", "norm_topk_prob false is not supported, only true");
  return finish_moe(c, root, err);
}

/* The window of the files counts only with use_sliding_window; prepare takes it away without. */
#define DEFAULTS_BUT_EPS TRI_LLAMA_DEFAULTS, .attention.window = 4096, .max_position_embeddings = 32768
#define DEFAULTS DEFAULTS_BUT_EPS, .norm.eps = 1e-6

const tri_arch tri_arch_qwen2 = {
    .model_type = "qwen2",
    .class_names = {"Qwen2ForCausalLM"},
    .prefix = "model.",
    .keys = keys2,
    .tensors = tensors,
    .defaults = {DEFAULTS, .attention.bias = true, .attention.num_kv_heads = 32},
    .prepare = prepare,
};

const tri_arch tri_arch_qwen3 = {
    .model_type = "qwen3",
    .class_names = {"Qwen3ForCausalLM"},
    .prefix = "model.",
    .keys = keys3,
    .tensors = tensors,
    .defaults = {DEFAULTS, .attention.num_kv_heads = 32, .attention.head_dim = 128,
                 .attention.qk_norm = TRI_QK_NORM_HEAD},
    .prepare = prepare,
};

const tri_arch tri_arch_qwen2_moe = {
    .model_type = "qwen2_moe",
    .class_names = {"Qwen2MoeForCausalLM"},
    .prefix = "model.",
    .keys = moe_keys2,
    .tensors = moe_tensors,
    .defaults = {DEFAULTS, .attention.bias = true, .attention.num_kv_heads = 16,
                 .moe = {.num_experts = 60,
                         .top_k = 4,
                         .intermediate_size = 1408,
                         .shared_size = 5632,
                         .has_shared = true,
                         .shared_gate = true}},
    .prepare = prepare,
    .finish = finish_moe,
};

const tri_arch tri_arch_qwen3_moe = {
    .model_type = "qwen3_moe",
    .class_names = {"Qwen3MoeForCausalLM"},
    .prefix = "model.",
    .keys = moe_keys3,
    .tensors = moe_tensors,
    .defaults = {DEFAULTS, .attention.num_kv_heads = 4, .attention.head_dim = 128,
                 .attention.qk_norm = TRI_QK_NORM_HEAD,
                 .moe = {.num_experts = 128, .top_k = 8, .intermediate_size = 768}},
    .prepare = prepare,
    .finish = finish_moe,
};

const tri_arch tri_arch_qwen2_5_vl_text = {
    .model_type = "qwen2_5_vl_text",
    .class_names = {"Qwen2_5_VLForConditionalGeneration"},
    .multimodal_type = "qwen2_5_vl",
    .multimodal_class = "Qwen2_5_VLForConditionalGeneration",
    .multimodal_flat = true,
    .prefix = "model.",
    .keys = keys2,
    .tensors = tensors,
    .defaults = {DEFAULTS_BUT_EPS, .norm.eps = 1e-5, .attention.bias = true, .attention.num_kv_heads = 8,
                 .attention.rope_theta = 1e6, .attention.has_mrope = true},
    .prepare = prepare,
};

#define VL_DEFAULTS                                                                                                    \
  TRI_LLAMA_DEFAULTS, .norm.eps = 1e-6, .attention.rope_theta = 500000, .attention.has_mrope = true,                   \
                      .attention.qk_norm = TRI_QK_NORM_HEAD, .max_position_embeddings = 128000

const tri_arch tri_arch_qwen3_vl_text = {
    .model_type = "qwen3_vl_text",
    .class_names = {"Qwen3VLForConditionalGeneration"},
    .multimodal_type = "qwen3_vl",
    .multimodal_class = "Qwen3VLForConditionalGeneration",
    .prefix = "model.",
    .keys = vl_keys3,
    .tensors = tensors,
    .defaults = {VL_DEFAULTS, .attention.num_kv_heads = 32, .attention.head_dim = 128},
};

const tri_arch tri_arch_qwen3_vl_moe_text = {
    .model_type = "qwen3_vl_moe_text",
    .class_names = {"Qwen3VLMoeForConditionalGeneration"},
    .multimodal_type = "qwen3_vl_moe",
    .multimodal_class = "Qwen3VLMoeForConditionalGeneration",
    .prefix = "model.",
    .keys = vl_moe_keys3,
    .tensors = vl_moe_tensors,
    .defaults = {VL_DEFAULTS, .attention.num_kv_heads = 16,
                 .moe = {.num_experts = 60, .top_k = 4, .intermediate_size = 1408, .renormalize = true}},
    .finish = finish_vl_moe,
};
