/* SPDX-License-Identifier: Apache-2.0 */
/* GPT-NeoX and Pythia: LayerNorm, partial rotary halves, parallel or sequential residual, QKV interleaved by head. */
#include "runtime/model/arch/rules.h"

static const tri_config_key keys[] = {
    TRI_NUM_KEY("layer_norm_eps", norm.eps, 0, 1),
    TRI_BOOL_KEY("use_parallel_residual", norm.parallel_residual),
    TRI_KEY_ATTENTION_BIAS,
    TRI_NUM_KEY("rotary_pct", attention.partial_rotary_factor, 0, 1),
    TRI_NUM_KEY("rotary_emb_base", attention.rope_theta, 1, 1e12),
    TRI_IGNORED_KEYS("classifier_dropout"),
    {0},
};

static const tri_tensor_rule tensors[] = {
    TRI_RULE("embed_in.weight", EMBED),
    TRI_RULES_NORM("layers.%d.input_layernorm", NORM1),
    TRI_RULE_PART("layers.%d.attention.query_key_value.weight", QKV, QKV_INTERLEAVED),
    TRI_RULE_PART_IF("layers.%d.attention.query_key_value.bias", QKV_BIAS, QKV_INTERLEAVED, attention.bias),
    TRI_RULES_O("layers.%d.attention.dense"),
    TRI_RULES_NORM("layers.%d.post_attention_layernorm", NORM2),
    TRI_RULES_MLP("layers.%d.mlp.dense_h_to_4h", "layers.%d.mlp.dense_4h_to_h"),
    TRI_RULES_NORM("final_layer_norm", FINAL_NORM),
    TRI_RULE("embed_out.weight", HEAD),
    {0},
};

const tri_arch tri_arch_gpt_neox = {
    .model_type = "gpt_neox",
    .class_names = {"GPTNeoXForCausalLM"},
    .prefix = "gpt_neox.",
    .keys = keys,
    .tensors = tensors,
    .ignored_tensors = {"layers.%d.attention.masked_bias", "layers.%d.attention.bias",
                        "layers.%d.attention.rotary_emb.inv_freq"},
    .defaults = {TRI_LAYER_NORM_DEFAULTS, .mlp.act = TRI_ACT_GELU_ERF, .norm.parallel_residual = true,
                 .attention.bias = true, .attention.o_bias = true, .mlp.bias = true, .attention.position = TRI_POS_ROPE,
                 .max_position_embeddings = 2048, .attention.partial_rotary_factor = 0.25},
};
