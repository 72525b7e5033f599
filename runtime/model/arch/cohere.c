/* SPDX-License-Identifier: Apache-2.0 */
/* Cohere (Command-R): LayerNorm without bias, attention and gated MLP side by side after one norm, rotary pairs,
 * scaled logits; the larger ones norm each head of queries and keys with a gain of its own. */
#include "runtime/model/arch/rules.h"

static const tri_config_key keys[] = {TRI_KEYS_LLAMA,
                                      TRI_NUM_KEY("layer_norm_eps", norm.eps, 0, 1),
                                      TRI_NUM_KEY("logit_scale", head.logit_scale, -1e6, 1e6),
                                      TRI_KEY_ATTENTION_BIAS,
                                      TRI_BOOL_KEY("use_qk_norm", attention.has_qk_norm),
                                      {0}};

static const tri_tensor_rule tensors[] = {TRI_RULES_LLAMA_ENDS,
                                          TRI_RULES_LLAMA_ATTENTION,
                                          TRI_RULES_QK_NORM,
                                          TRI_RULE("layers.%d.input_layernorm.weight", NORM1),
                                          TRI_RULES_GATED("layers.%d.mlp."),
                                          {0}};

static tri_status finish(tri_model_config *c, const tri_json *root, tri_error *err) {
  (void)root;
  (void)err;
  if (c->attention.has_qk_norm) c->attention.qk_norm = TRI_QK_NORM_EACH_HEAD;
  return TRI_OK;
}

const tri_arch tri_arch_cohere = {
    .model_type = "cohere",
    .class_names = {"CohereForCausalLM"},
    .prefix = "model.",
    .keys = keys,
    .tensors = tensors,
    .defaults = {.norm.kind = TRI_NORM_LAYER,
                 .norm.eps = 1e-5,
                 .mlp.act = TRI_ACT_SILU,
                 .mlp.gated = true,
                 .norm.parallel_residual = true,
                 .norm.one_norm = true,
                 .head.logit_scale = 0.0625,
                 .head.tie_word_embeddings = true,
                 .attention.position = TRI_POS_ROPE,
                 .attention.rope = {.interleaved = true},
                 .max_position_embeddings = 8192},
    .finish = finish,
};
