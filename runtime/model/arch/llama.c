/* Llama: RMSNorm, rotary halves, grouped-query attention, gated MLP, tied or untied head. */
#include "runtime/model/arch.h"

static const char *const classes[] = {"LlamaForCausalLM", NULL};

static const tri_config_key keys[] = {
    TRI_NUM_KEY("rms_norm_eps", norm_eps, 0, 1),
    TRI_INT_KEY("num_key_value_heads", num_kv_heads, 1, 1 << 16),
    TRI_INT_KEY("head_dim", head_dim, 1, 1024),
    TRI_BOOL_KEY("attention_bias", attention_bias),
    TRI_BOOL_KEY("mlp_bias", mlp_bias),
    TRI_IGNORED_KEY("pretraining_tp"), /* how the training was sliced; the products are the same */
    {0},
};

static const tri_tensor_rule tensors[] = {
    {.name = "embed_tokens.weight", .weight = TRI_W_EMBED},
    {.name = "layers.%d.input_layernorm.weight", .weight = TRI_W_NORM1},
    {.name = "layers.%d.self_attn.q_proj.weight", .weight = TRI_W_QKV, .part = TRI_PART_Q},
    {.name = "layers.%d.self_attn.k_proj.weight", .weight = TRI_W_QKV, .part = TRI_PART_K},
    {.name = "layers.%d.self_attn.v_proj.weight", .weight = TRI_W_QKV, .part = TRI_PART_V},
    {.name = "layers.%d.self_attn.q_proj.bias",
     .weight = TRI_W_QKV_BIAS,
     .part = TRI_PART_Q,
     .if_field = TRI_IF(attention_bias)},
    {.name = "layers.%d.self_attn.k_proj.bias",
     .weight = TRI_W_QKV_BIAS,
     .part = TRI_PART_K,
     .if_field = TRI_IF(attention_bias)},
    {.name = "layers.%d.self_attn.v_proj.bias",
     .weight = TRI_W_QKV_BIAS,
     .part = TRI_PART_V,
     .if_field = TRI_IF(attention_bias)},
    {.name = "layers.%d.self_attn.o_proj.weight", .weight = TRI_W_O},
    {.name = "layers.%d.self_attn.o_proj.bias", .weight = TRI_W_O_BIAS, .if_field = TRI_IF(o_bias)},
    {.name = "layers.%d.post_attention_layernorm.weight", .weight = TRI_W_NORM2},
    {.name = "layers.%d.mlp.gate_proj.weight", .weight = TRI_W_UP, .part = TRI_PART_GATE},
    {.name = "layers.%d.mlp.up_proj.weight", .weight = TRI_W_UP, .part = TRI_PART_UP},
    {.name = "layers.%d.mlp.down_proj.weight", .weight = TRI_W_DOWN},
    {.name = "layers.%d.mlp.gate_proj.bias",
     .weight = TRI_W_UP_BIAS,
     .part = TRI_PART_GATE,
     .if_field = TRI_IF(mlp_bias)},
    {.name = "layers.%d.mlp.up_proj.bias", .weight = TRI_W_UP_BIAS, .part = TRI_PART_UP, .if_field = TRI_IF(mlp_bias)},
    {.name = "layers.%d.mlp.down_proj.bias", .weight = TRI_W_DOWN_BIAS, .if_field = TRI_IF(mlp_bias)},
    {.name = "norm.weight", .weight = TRI_W_FINAL_NORM},
    {.name = "lm_head.weight", .weight = TRI_W_HEAD},
    {0},
};

static const char *const ignored[] = {"layers.%d.self_attn.rotary_emb.inv_freq", NULL};

static tri_status finish(tri_model_config *c, const tri_json *root, tri_error *err) {
  (void)root, (void)err;
  c->o_bias = c->attention_bias; /* one switch for all four projections */
  return TRI_OK;
}

const tri_arch tri_arch_llama = {
    .model_type = "llama",
    .class_names = classes,
    .prefix = "model.",
    .keys = keys,
    .tensors = tensors,
    .ignored_tensors = ignored,
    .defaults = {.norm = TRI_NORM_RMS,
                 .norm_eps = 1e-6,
                 .act = TRI_ACT_SILU,
                 .gated = true,
                 .position = TRI_POS_ROPE,
                 .max_position_embeddings = 2048},
    .finish = finish,
};
