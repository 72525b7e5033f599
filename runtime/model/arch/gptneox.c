/* GPT-NeoX and Pythia: LayerNorm, partial rotary halves, parallel or sequential residual, QKV interleaved by head. */
#include "runtime/model/arch.h"

static const char *const classes[] = {"GPTNeoXForCausalLM", NULL};

static const tri_config_key keys[] = {
    TRI_NUM_KEY("layer_norm_eps", norm.eps, 0, 1),
    TRI_BOOL_KEY("use_parallel_residual", norm.parallel_residual),
    TRI_BOOL_KEY("attention_bias", attention.bias),
    TRI_NUM_KEY("rotary_pct", attention.partial_rotary_factor, 0, 1),
    TRI_NUM_KEY("rotary_emb_base", attention.rope_theta, 1, 1e12),
    TRI_IGNORED_KEY("classifier_dropout"),
    {0},
};

static const tri_tensor_rule tensors[] = {
    {.name = "embed_in.weight", .weight = TRI_W_EMBED},
    {.name = "layers.%d.input_layernorm.weight", .weight = TRI_W_NORM1},
    {.name = "layers.%d.input_layernorm.bias", .weight = TRI_W_NORM1_BIAS},
    {.name = "layers.%d.attention.query_key_value.weight", .weight = TRI_W_QKV, .part = TRI_PART_QKV_INTERLEAVED},
    {.name = "layers.%d.attention.query_key_value.bias",
     .weight = TRI_W_QKV_BIAS,
     .part = TRI_PART_QKV_INTERLEAVED,
     .if_field = TRI_IF(attention.bias)},
    {.name = "layers.%d.attention.dense.weight", .weight = TRI_W_O},
    {.name = "layers.%d.attention.dense.bias", .weight = TRI_W_O_BIAS, .if_field = TRI_IF(attention.bias)},
    {.name = "layers.%d.post_attention_layernorm.weight", .weight = TRI_W_NORM2},
    {.name = "layers.%d.post_attention_layernorm.bias", .weight = TRI_W_NORM2_BIAS},
    {.name = "layers.%d.mlp.dense_h_to_4h.weight", .weight = TRI_W_UP},
    {.name = "layers.%d.mlp.dense_h_to_4h.bias", .weight = TRI_W_UP_BIAS},
    {.name = "layers.%d.mlp.dense_4h_to_h.weight", .weight = TRI_W_DOWN},
    {.name = "layers.%d.mlp.dense_4h_to_h.bias", .weight = TRI_W_DOWN_BIAS},
    {.name = "final_layer_norm.weight", .weight = TRI_W_FINAL_NORM},
    {.name = "final_layer_norm.bias", .weight = TRI_W_FINAL_NORM_BIAS},
    {.name = "embed_out.weight", .weight = TRI_W_HEAD},
    {0},
};

static const char *const ignored[] = {"layers.%d.attention.masked_bias", "layers.%d.attention.bias",
                                      "layers.%d.attention.rotary_emb.inv_freq", NULL};

static tri_status finish(tri_model_config *c, const tri_json *root, tri_error *err) {
  (void)root;
  (void)err;
  c->attention.o_bias = c->attention.bias;
  return TRI_OK;
}

const tri_arch tri_arch_gpt_neox = {
    .model_type = "gpt_neox",
    .class_names = classes,
    .prefix = "gpt_neox.",
    .keys = keys,
    .tensors = tensors,
    .ignored_tensors = ignored,
    .defaults = {.norm.kind = TRI_NORM_LAYER,
                 .norm.bias = true,
                 .norm.eps = 1e-5,
                 .mlp.act = TRI_ACT_GELU_ERF,
                 .norm.parallel_residual = true,
                 .attention.bias = true,
                 .mlp.bias = true,
                 .attention.position = TRI_POS_ROPE,
                 .max_position_embeddings = 2048,
                 .attention.partial_rotary_factor = 0.25},
    .finish = finish,
};
