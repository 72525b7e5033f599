/* Llama: RMSNorm, rotary halves, grouped-query attention, gated MLP, tied or untied head. */
#include "runtime/model/arch/rules.h"

static const char *const classes[] = {"LlamaForCausalLM", NULL};

static const tri_config_key keys[] = {
    TRI_KEYS_LLAMA, TRI_BOOL_KEY("attention_bias", attention.bias), TRI_BOOL_KEY("mlp_bias", mlp.bias), {0}};

static const tri_tensor_rule tensors[] = {TRI_RULES_LLAMA, {0}};

static const char *const ignored[] = {"layers.%d.self_attn.rotary_emb.inv_freq", NULL};

static tri_status finish(tri_model_config *c, const tri_json *root, tri_error *err) {
  (void)root;
  (void)err;
  c->attention.o_bias = c->attention.bias; /* one switch for all four projections */
  return TRI_OK;
}

const tri_arch tri_arch_llama = {
    .model_type = "llama",
    .class_names = classes,
    .prefix = "model.",
    .keys = keys,
    .tensors = tensors,
    .ignored_tensors = ignored,
    .defaults = {.norm.kind = TRI_NORM_RMS,
                 .norm.eps = 1e-6,
                 .mlp.act = TRI_ACT_SILU,
                 .mlp.gated = true,
                 .attention.position = TRI_POS_ROPE,
                 .max_position_embeddings = 2048},
    .finish = finish,
};
