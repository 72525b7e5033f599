/* SPDX-License-Identifier: Apache-2.0 */
/* StarCoder2: LayerNorm, rotary halves, grouped-query attention with a sliding window, a plain MLP, biases. */
#include "runtime/model/arch/rules.h"

static const tri_config_key keys[] = {
    TRI_NUM_KEY("norm_epsilon", norm.eps, 0, 1),
    TRI_INT_KEY("num_key_value_heads", attention.num_kv_heads, 1, 1 << 16),
    TRI_INT_KEY("head_dim", attention.head_dim, 1, 1024),
    TRI_KEY_WINDOW,
    TRI_BOOL_KEY("use_bias", attention.bias),
    TRI_IGNORED_KEYS("embedding_dropout residual_dropout"),
    {0},
};

static const tri_tensor_rule tensors[] = {
    TRI_RULES_LLAMA_ENDS,
    TRI_RULES_LLAMA_ATTENTION,
    TRI_RULES_NORM("layers.%d.input_layernorm", NORM1),
    TRI_RULES_NORM("layers.%d.post_attention_layernorm", NORM2),
    TRI_RULES_MLP("layers.%d.mlp.c_fc", "layers.%d.mlp.c_proj"),
    {0},
};

/* use_bias is one switch for all projections. */
static tri_status finish(tri_model_config *c, const tri_json *root, tri_error *err) {
  (void)root;
  (void)err;
  c->attention.o_bias = c->mlp.bias = c->attention.bias;
  return TRI_OK;
}

const tri_arch tri_arch_starcoder2 = {
    .model_type = "starcoder2",
    .class_names = {"Starcoder2ForCausalLM"},
    .prefix = "model.",
    .keys = keys,
    .tensors = tensors,
    .defaults = {TRI_LAYER_NORM_DEFAULTS, .mlp.act = TRI_ACT_GELU_TANH, .attention.num_kv_heads = 2,
                 .attention.bias = true, .attention.window_every = 1, .head.tie_word_embeddings = true,
                 .attention.position = TRI_POS_ROPE, .max_position_embeddings = 4096},
    .finish = finish,
};
