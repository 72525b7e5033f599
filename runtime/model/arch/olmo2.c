/* OLMo-2: norms of what each branch gives instead of what it reads, queries and keys normed over all heads. */
#include "runtime/model/arch/rules.h"

static const char *const classes[] = {"Olmo2ForCausalLM", NULL};

static const tri_config_key keys[] = {TRI_KEYS_LLAMA, TRI_BOOL_KEY("attention_bias", attention.bias), {0}};

static const tri_tensor_rule tensors[] = {TRI_RULES_LLAMA_ENDS,
                                          TRI_RULES_LLAMA_ATTENTION,
                                          TRI_RULE("layers.%d.self_attn.q_norm.weight", Q_NORM),
                                          TRI_RULE("layers.%d.self_attn.k_norm.weight", K_NORM),
                                          TRI_RULE("layers.%d.post_attention_layernorm.weight", BRANCH_NORM1),
                                          TRI_RULES_GATED("layers.%d.mlp."),
                                          TRI_RULE("layers.%d.post_feedforward_layernorm.weight", BRANCH_NORM2),
                                          {0}};

static tri_status finish(tri_model_config *c, const tri_json *root, tri_error *err) {
  (void)root;
  (void)err;
  c->attention.o_bias = c->attention.bias;
  return TRI_OK;
}

const tri_arch tri_arch_olmo2 = {
    .model_type = "olmo2",
    .class_names = classes,
    .prefix = "model.",
    .keys = keys,
    .tensors = tensors,
    .defaults = {.norm.kind = TRI_NORM_RMS,
                 .norm.eps = 1e-5,
                 .norm.place = TRI_NORM_RESULT,
                 .attention.qk_norm = TRI_QK_NORM_WHOLE,
                 .mlp.act = TRI_ACT_SILU,
                 .mlp.gated = true,
                 .attention.position = TRI_POS_ROPE,
                 .max_position_embeddings = 2048},
    .finish = finish,
};
