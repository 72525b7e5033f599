/* SPDX-License-Identifier: Apache-2.0 */
/* StableLM: Llama with LayerNorm and partial rotary halves; some attend and compute side by side. */
#include "runtime/model/arch/rules.h"

static const tri_config_key keys[] = {TRI_KEYS_LLAMA,
                                      TRI_NUM_KEY("layer_norm_eps", norm.eps, 0, 1),
                                      TRI_BOOL_KEY("use_qkv_bias", attention.bias),
                                      TRI_BOOL_KEY("use_parallel_residual", norm.parallel_residual),
                                      TRI_OFF_KEY("qk_layernorm"),
                                      {0}};

static const tri_tensor_rule tensors[] = {TRI_RULES_LLAMA_ENDS,
                                          TRI_RULES_LLAMA_ATTENTION,
                                          TRI_RULES_NORM("layers.%d.input_layernorm", NORM1),
                                          TRI_RULES_UNLESS("layers.%d.post_attention_layernorm", NORM2, norm.one_norm),
                                          TRI_RULES_GATED("layers.%d.mlp."),
                                          {0}};

static tri_status finish(tri_model_config *c, const tri_json *root, tri_error *err) {
  (void)root;
  (void)err;
  c->norm.one_norm = c->norm.parallel_residual;
  return TRI_OK;
}

const tri_arch tri_arch_stablelm = {
    .model_type = "stablelm",
    .class_names = {"StableLmForCausalLM"},
    .prefix = "model.",
    .keys = keys,
    .tensors = tensors,
    .defaults = {TRI_LAYER_NORM_DEFAULTS, .mlp.act = TRI_ACT_SILU, .mlp.gated = true,
                 .attention.position = TRI_POS_ROPE, .attention.partial_rotary_factor = 0.25,
                 .max_position_embeddings = 4096},
    .finish = finish,
};
