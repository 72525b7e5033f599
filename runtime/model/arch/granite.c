/* SPDX-License-Identifier: Apache-2.0 */
/* Granite: Llama with factors on the embedding, the scores, what each branch adds, and the logits. */
#include "runtime/model/arch/rules.h"

static const tri_config_key keys[] = {TRI_KEYS_LLAMA,
                                      TRI_KEY_ATTENTION_BIAS,
                                      TRI_BOOL_KEY("mlp_bias", mlp.bias),
                                      TRI_NUM_KEY("embedding_multiplier", embed.scale, -1e6, 1e6),
                                      TRI_NUM_KEY("attention_multiplier", attention.scale, 1e-6, 1e6),
                                      TRI_NUM_KEY("residual_multiplier", norm.residual_scale, -1e6, 1e6),
                                      TRI_READ_KEY("logits_scaling"), /* read by finish */
                                      {0}};

static const tri_tensor_rule tensors[] = {TRI_RULES_LLAMA, {0}};

/* The file's number divides the logits, the config's multiplies them. */
static tri_status finish(tri_model_config *c, const tri_json *root, tri_error *err) {
  double scaling = 1;
  tri_status st = tri_config_number(root, "logits_scaling", 1e-6, 1e6, &scaling, err);
  c->head.logit_scale = 1 / scaling;
  return st;
}

const tri_arch tri_arch_granite = {
    .model_type = "granite",
    .class_names = {"GraniteForCausalLM"},
    .prefix = "model.",
    .keys = keys,
    .tensors = tensors,
    .defaults = {TRI_LLAMA_DEFAULTS, .norm.eps = 1e-6, .attention.scale = 1, .max_position_embeddings = 2048},
    .finish = finish,
};
