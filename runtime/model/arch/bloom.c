/* SPDX-License-Identifier: Apache-2.0 */
/* BLOOM: ALiBi, a norm after the embedding, QKV interleaved by head. */
#include "runtime/model/arch/rules.h"

static const tri_config_key keys[] = {
    TRI_INT_KEY("n_embed", hidden_size, 1, 1 << 20),
    TRI_INT_KEY("n_layer", num_layers, 1, TRI_MAX_LAYERS),
    TRI_INT_KEY("n_head", attention.num_heads, 1, 1 << 16),
    TRI_NUM_KEY("layer_norm_epsilon", norm.eps, 0, 1),
    TRI_INT_KEY("seq_length", max_position_embeddings, 1, 1 << 28),
    TRI_OFF_KEY("apply_residual_connection_post_layernorm"),
    TRI_IGNORED_KEYS("pretraining_tp slow_but_exact n_inner offset_alibi skip_bias_add skip_bias_add_qkv "
                     "attention_softmax_in_fp32 bias_dropout_fusion masked_softmax_fusion"),
    {0},
};

static const tri_tensor_rule tensors[] = {
    TRI_RULE("word_embeddings.weight", EMBED),
    TRI_RULES_NORM("word_embeddings_layernorm", EMBED_NORM),
    TRI_RULES_NORM("h.%d.input_layernorm", NORM1),
    TRI_RULE_PART("h.%d.self_attention.query_key_value.weight", QKV, QKV_INTERLEAVED),
    TRI_RULE_PART("h.%d.self_attention.query_key_value.bias", QKV_BIAS, QKV_INTERLEAVED),
    TRI_RULES_O("h.%d.self_attention.dense"),
    TRI_RULES_NORM("h.%d.post_attention_layernorm", NORM2),
    TRI_RULES_MLP("h.%d.mlp.dense_h_to_4h", "h.%d.mlp.dense_4h_to_h"),
    TRI_RULES_NORM("ln_f", FINAL_NORM),
    TRI_RULE("lm_head.weight", HEAD),
    {0},
};

const tri_arch tri_arch_bloom = {
    .model_type = "bloom",
    .class_names = {"BloomForCausalLM"},
    .prefix = "transformer.",
    .keys = keys,
    .tensors = tensors,
    .defaults = {TRI_LAYER_NORM_DEFAULTS, .embed.norm = true, .mlp.act = TRI_ACT_GELU_TANH, .attention.bias = true,
                 .attention.o_bias = true, .mlp.bias = true, .attention.position = TRI_POS_ALIBI,
                 .head.tie_word_embeddings = true, .max_position_embeddings = 2048},
};
