/* SPDX-License-Identifier: Apache-2.0 */
/* GPT-J: rotary pairs on the first part of each head, attention and MLP side by side after one norm. Pairs are
 * neighbours (2i, 2i + 1), unlike halves (i, i + dim/2) of most families. */
#include "runtime/model/arch/rules.h"

static const tri_config_key keys[] = {
    TRI_KEYS_GPT2,
    TRI_INT_KEY("rotary_dim", attention.rotary_dim, 2, TRI_MAX_ROTARY),
    TRI_IGNORED_KEYS("rotary"),
    TRI_IGNORED_KEYS("scale_attn_weights"), /* of an early file; the scores are always scaled */
    {0},
};

static const tri_tensor_rule tensors[] = {
    TRI_RULE("wte.weight", EMBED),
    TRI_RULES_NORM("h.%d.ln_1", NORM1),
    TRI_RULES_QKV("h.%d.attn."),
    TRI_RULES_O("h.%d.attn.out_proj"),
    TRI_RULES_MLP("h.%d.mlp.fc_in", "h.%d.mlp.fc_out"),
    TRI_RULES_NORM("ln_f", FINAL_NORM),
    TRI_RULE("lm_head.weight", HEAD),
    TRI_RULE("lm_head.bias", HEAD_BIAS),
    {0},
};

const tri_arch tri_arch_gptj = {
    .model_type = "gptj",
    .class_names = {"GPTJForCausalLM"},
    .prefix = "transformer.",
    .keys = keys,
    .tensors = tensors,
    .ignored_tensors = {"h.%d.attn.bias", "h.%d.attn.masked_bias", "h.%d.attn.embed_positions"},
    .defaults = {TRI_LAYER_NORM_DEFAULTS, .mlp.act = TRI_ACT_GELU_TANH, .norm.parallel_residual = true,
                 .norm.one_norm = true, .mlp.bias = true, .head.bias = true, .attention.position = TRI_POS_ROPE,
                 .attention.rope = {.interleaved = true}, .attention.rotary_dim = 64, .max_position_embeddings = 2048},
};
