/* SPDX-License-Identifier: Apache-2.0 */
/* GPT-2: LayerNorm, learned positions, weights stored transposed (Conv1D), head tied to the embedding. */
#include "runtime/model/arch/rules.h"

static const tri_config_key keys[] = {
    TRI_KEYS_GPT2,
    TRI_BOOL_KEY("scale_attn_by_inverse_layer_idx", attention.scale_by_layer),
    TRI_IGNORED_KEYS("activation_function"),     /* read with hidden_act */
    TRI_READ_KEY("scale_attn_weights"),          /* read by finish */
    TRI_IGNORED_KEYS("reorder_and_upcast_attn"), /* how a 16-bit product is kept from overflowing */
    {0},
};

static const tri_tensor_rule tensors[] = {
    TRI_RULE("wte.weight", EMBED),
    TRI_RULE("wpe.weight", POSITIONS),
    TRI_RULES_NORM("h.%d.ln_1", NORM1),
    TRI_RULE_TRANSPOSED("h.%d.attn.c_attn.weight", QKV, QKV_CONCAT),
    TRI_RULE_PART("h.%d.attn.c_attn.bias", QKV_BIAS, QKV_CONCAT),
    TRI_RULE_TRANSPOSED("h.%d.attn.c_proj.weight", O, WHOLE),
    TRI_RULE("h.%d.attn.c_proj.bias", O_BIAS),
    TRI_RULES_NORM("h.%d.ln_2", NORM2),
    TRI_RULE_TRANSPOSED("h.%d.mlp.c_fc.weight", UP, WHOLE),
    TRI_RULE("h.%d.mlp.c_fc.bias", UP_BIAS),
    TRI_RULE_TRANSPOSED("h.%d.mlp.c_proj.weight", DOWN, WHOLE),
    TRI_RULE("h.%d.mlp.c_proj.bias", DOWN_BIAS),
    TRI_RULES_NORM("ln_f", FINAL_NORM),
    TRI_RULE("lm_head.weight", HEAD),
    {0},
};

const tri_arch tri_arch_gpt2 = {
    .model_type = "gpt2",
    .class_names = {"GPT2LMHeadModel"},
    .prefix = "transformer.",
    .keys = keys,
    .tensors = tensors,
    .ignored_tensors = {"h.%d.attn.bias", "h.%d.attn.masked_bias"},
    .defaults = {TRI_LAYER_NORM_DEFAULTS, .mlp.act = TRI_ACT_GELU_TANH, .attention.bias = true,
                 .attention.o_bias = true, .mlp.bias = true, .attention.position = TRI_POS_LEARNED,
                 .head.tie_word_embeddings = true, .max_position_embeddings = 1024},
    .finish = tri_config_unscaled,
};
