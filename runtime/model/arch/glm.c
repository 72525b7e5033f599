/* SPDX-License-Identifier: Apache-2.0 */
/* GLM-4 (0414): norms before and after each branch, pairs of half of each head rotate, biases on queries, keys and
 * values. GLM-4.5 to 4.7: Llama's norms, halves of half of each head, DeepSeek-V3's router and shared expert, and in
 * the larger ones a norm of each head of queries and keys. */
#include "runtime/model/arch/rules.h"

/* Without the bias of o_proj, which neither has. */
#define KEYS TRI_KEYS_LLAMA, TRI_BOOL_KEY("attention_bias", attention.bias)

static const tri_config_key keys[] = {KEYS, {0}};
static const tri_config_key moe_keys[] = {KEYS,
                                          TRI_KEYS_MOE,
                                          TRI_INT_KEY("n_routed_experts", moe.num_experts, 1, 4096),
                                          TRI_INT_KEY("num_local_experts", moe.num_experts, 1, 4096),
                                          TRI_INT_KEY("moe_intermediate_size", moe.intermediate_size, 1, 1 << 24),
                                          TRI_INT_KEY("n_group", moe.num_groups, 1, 4096),
                                          TRI_INT_KEY("topk_group", moe.top_groups, 1, 4096),
                                          TRI_BOOL_KEY("norm_topk_prob", moe.renormalize),
                                          TRI_NUM_KEY("routed_scaling_factor", moe.scale, 1e-6, 1e6),
                                          TRI_BOOL_KEY("use_qk_norm", attention.has_qk_norm),
                                          TRI_INT_KEY("num_nextn_predict_layers", extra_layers, 0, 64),
                                          TRI_INT_KEY("num_mtp_layers", extra_layers, 0, 64),
                                          TRI_READ_KEY("n_shared_experts"),      /* by prepare_moe */
                                          TRI_READ_KEY("first_k_dense_replace"), /* this and the next two: finish_moe */
                                          TRI_READ_KEY("scoring_func"),
                                          TRI_READ_KEY("topk_method"),
                                          {0}};

static const tri_tensor_rule tensors[] = {
    TRI_RULES_LLAMA_ENDS,
    TRI_RULES_LLAMA_ATTENTION,
    TRI_RULE("layers.%d.input_layernorm.weight", NORM1),
    TRI_RULE("layers.%d.post_self_attn_layernorm.weight", BRANCH_NORM1),
    TRI_RULE("layers.%d.post_attention_layernorm.weight", NORM2),
    TRI_RULE("layers.%d.post_mlp_layernorm.weight", BRANCH_NORM2),
    TRI_RULE_PART("layers.%d.mlp.gate_up_proj.weight", UP, GATE_UP_CONCAT),
    TRI_RULE("layers.%d.mlp.down_proj.weight", DOWN),
    {0},
};
static const tri_tensor_rule moe_tensors[] = {
    TRI_RULES_LLAMA,
    TRI_RULES_QK_NORM,
    TRI_RULE("layers.%d.mlp.gate.weight", ROUTER),
    TRI_RULE("layers.%d.mlp.gate.e_score_correction_bias", CHOICE_BIAS),
    TRI_RULES_EXPERTS("layers.%d.mlp.experts.%d.", "gate_proj", "up_proj", "down_proj"),
    TRI_RULES_SHARED("layers.%d.mlp.shared_experts."),
    {0},
};

static tri_status prepare_moe(tri_model_config *c, const tri_json *root, tri_error *err) {
  return tri_config_shared_experts(c, root, "n_shared_experts", 1, err);
}

/* The first layers are dense. */
static tri_status finish_moe(tri_model_config *c, const tri_json *root, tri_error *err) {
  double dense = 1;
  TRI_CHECK(tri_config_number(root, "first_k_dense_replace", 0, TRI_MAX_LAYERS, &dense, err));
  TRI_CHECK(tri_config_must_be(root, "scoring_func", "sigmoid", err));
  TRI_CHECK(tri_config_must_be(root, "topk_method", "noaux_tc", err));
  if (c->attention.has_qk_norm) c->attention.qk_norm = TRI_QK_NORM_HEAD;
  tri_config_sparse_layers(c, (int)dense, 1);
  return TRI_OK;
}

const tri_arch tri_arch_glm4 = {
    .model_type = "glm4",
    .class_names = {"Glm4ForCausalLM"},
    .prefix = "model.",
    .keys = keys,
    .tensors = tensors,
    .defaults = {TRI_LLAMA_DEFAULTS, .norm.eps = 1.5625e-7, .norm.place = TRI_NORM_BOTH, .attention.num_kv_heads = 2,
                 .attention.head_dim = 128, .attention.bias = true, .attention.rope = {.interleaved = true},
                 .attention.partial_rotary_factor = 0.5, .max_position_embeddings = 131072},
};

const tri_arch tri_arch_glm4_moe = {
    .model_type = "glm4_moe",
    .class_names = {"Glm4MoeForCausalLM"},
    .prefix = "model.",
    .keys = moe_keys,
    .tensors = moe_tensors,
    .defaults = {TRI_LLAMA_DEFAULTS, .norm.eps = 1e-5, .attention.num_kv_heads = 8,
                 .attention.partial_rotary_factor = 0.5,
                 .moe = {.num_experts = 128,
                         .top_k = 8,
                         .intermediate_size = 1408,
                         .score = TRI_MOE_SIGMOID,
                         .renormalize = true,
                         .choice_bias = true,
                         .top_groups = 1,
                         .group_best = 2},
                 .max_position_embeddings = 131072},
    .prepare = prepare_moe,
    .finish = finish_moe,
};
