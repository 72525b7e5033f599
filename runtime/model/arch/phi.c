/* SPDX-License-Identifier: Apache-2.0 */
/* Phi (1, 1.5, 2): LayerNorm, partial rotary halves, attention and MLP side by side after one norm, biases throughout.
 * Phi-3 and Phi-4: Llama with fused projections, a sliding window and LongRoPE. Phi-3.5-MoE: Mixtral with LayerNorm and
 * biases, whose router gives each choice its part of what was close to it (TRI_MOE_SPARSEMIXER). */
#include "runtime/model/arch/rules.h"

static const tri_config_key keys[] = {
    TRI_NUM_KEY("layer_norm_eps", norm.eps, 0, 1),
    TRI_INT_KEY("num_key_value_heads", attention.num_kv_heads, 1, 1 << 16),
    TRI_OFF_KEY("qk_layernorm"),
    TRI_IGNORED_KEYS("embd_pdrop resid_pdrop"),
    {0},
};
static const tri_config_key keys3[] = {
    TRI_KEYS_LLAMA, TRI_KEY_WINDOW, TRI_IGNORED_KEYS("embd_pdrop resid_pdrop"), TRI_OFF_KEY("attention_bias"), {0}};

static const tri_tensor_rule tensors[] = {
    TRI_RULE("embed_tokens.weight", EMBED),
    TRI_RULES_NORM("layers.%d.input_layernorm", NORM1),
    TRI_RULES_QKV("layers.%d.self_attn."),
    TRI_RULES_O("layers.%d.self_attn.dense"),
    TRI_RULES_MLP("layers.%d.mlp.fc1", "layers.%d.mlp.fc2"),
    TRI_RULES_NORM("final_layernorm", FINAL_NORM),
    TRI_RULE("lm_head.weight", HEAD),
    TRI_RULE("lm_head.bias", HEAD_BIAS),
    {0},
};
static const tri_tensor_rule tensors3[] = {
    TRI_RULES_LLAMA_ENDS,
    TRI_RULE("layers.%d.input_layernorm.weight", NORM1),
    TRI_RULE_PART("layers.%d.self_attn.qkv_proj.weight", QKV, QKV_CONCAT),
    TRI_RULE("layers.%d.self_attn.o_proj.weight", O),
    TRI_RULE("layers.%d.post_attention_layernorm.weight", NORM2),
    TRI_RULE_PART("layers.%d.mlp.gate_up_proj.weight", UP, GATE_UP_CONCAT),
    TRI_RULE("layers.%d.mlp.down_proj.weight", DOWN),
    {0},
};

const tri_arch tri_arch_phi = {
    .model_type = "phi",
    .class_names = {"PhiForCausalLM"},
    .prefix = "model.",
    .keys = keys,
    .tensors = tensors,
    .defaults = {TRI_LAYER_NORM_DEFAULTS, .mlp.act = TRI_ACT_GELU_TANH, .norm.parallel_residual = true,
                 .norm.one_norm = true, .attention.bias = true, .attention.o_bias = true, .mlp.bias = true,
                 .head.bias = true, .attention.position = TRI_POS_ROPE, .attention.partial_rotary_factor = 0.5,
                 .max_position_embeddings = 2048},
};

const tri_arch tri_arch_phi3 = {
    .model_type = "phi3",
    .class_names = {"Phi3ForCausalLM"},
    .prefix = "model.",
    .keys = keys3,
    .tensors = tensors3,
    .defaults = {TRI_LLAMA_DEFAULTS, .norm.eps = 1e-5, .attention.window_every = 1, .max_position_embeddings = 4096},
};

/* The router makes two choices, whatever the number. */
static const tri_config_key moe_keys[] = {
    TRI_KEYS_LLAMA,
    TRI_INT_KEY("num_experts_per_tok", moe.top_k, 2, 2),
    TRI_NUM_KEY("router_jitter_noise", moe.jitter, 0, 1),
    TRI_KEY_WINDOW,
    TRI_KEY_ATTENTION_BIAS,
    TRI_BOOL_KEY("lm_head_bias", head.bias),
    TRI_INT_KEY("num_local_experts", moe.num_experts, 1, 4096),
    TRI_IGNORED_KEYS("output_router_logits router_aux_loss_coef input_jitter_noise"), /* of training */
    {0}};

static const tri_tensor_rule moe_tensors[] = {
    TRI_RULES_LLAMA_ENDS,
    TRI_RULE_IF("lm_head.bias", HEAD_BIAS, head.bias),
    TRI_RULES_LLAMA_ATTENTION,
    TRI_RULES_LLAMA_NORMS,
    TRI_RULE("layers.%d.block_sparse_moe.gate.weight", ROUTER),
    TRI_RULES_EXPERTS("layers.%d.block_sparse_moe.experts.%d.", "w1", "w3", "w2"),
    {0},
};

const tri_arch tri_arch_phimoe = {
    .model_type = "phimoe",
    .class_names = {"PhimoeForCausalLM", "PhiMoEForCausalLM"},
    .prefix = "model.",
    .keys = moe_keys,
    .tensors = moe_tensors,
    .defaults =
        {TRI_LAYER_NORM_DEFAULTS, .mlp.act = TRI_ACT_SILU, .mlp.gated = true, .attention.position = TRI_POS_ROPE,
         .attention.num_kv_heads = 8, .attention.rope_theta = 1e6, .attention.window_every = 1,
         .attention.has_rope_mscales = true,
         .moe = {.all_layers = true, .num_experts = 16, .top_k = 2, .score = TRI_MOE_SPARSEMIXER, .jitter = 0.01},
         .max_position_embeddings = 4096 * 32},
};
