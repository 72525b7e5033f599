/* SPDX-License-Identifier: Apache-2.0 */
/* Llama: RMSNorm, rotary halves, grouped-query attention, gated MLP, tied or untied head. SmolLM3: no rotation in every
 * fourth layer. */
#include "runtime/model/arch/rules.h"

static const tri_config_key keys[] = {TRI_KEYS_LLAMA, TRI_KEY_ATTENTION_BIAS, TRI_BOOL_KEY("mlp_bias", mlp.bias), {0}};

static const tri_tensor_rule tensors[] = {TRI_RULES_LLAMA, {0}};

const tri_arch tri_arch_llama = {
    .model_type = "llama",
    .class_names = {"LlamaForCausalLM"},
    .prefix = "model.",
    .keys = keys,
    .tensors = tensors,
    .ignored_tensors = {"layers.%d.self_attn.rotary_emb.inv_freq"},
    .defaults = {TRI_LLAMA_DEFAULTS, .norm.eps = 1e-6, .max_position_embeddings = 2048},
};

/* No release of this family has windows: its configs switch them off. */
static const tri_config_key smollm3_keys[] = {TRI_KEYS_LLAMA,
                                              TRI_KEY_ATTENTION_BIAS,
                                              TRI_BOOL_KEY("mlp_bias", mlp.bias),
                                              TRI_KEY_WINDOW,
                                              TRI_OFF_KEY("use_sliding_window"),
                                              TRI_READ_KEY("no_rope_layers"), /* this and the next: read by prepare */
                                              TRI_READ_KEY("no_rope_layer_interval"),
                                              {0}};

static tri_status prepare_smollm3(tri_model_config *c, const tri_json *root, tri_error *err) {
  c->attention.window = 0;
  return tri_config_no_rope_layers(c, root, 4, err);
}

const tri_arch tri_arch_smollm3 = {
    .model_type = "smollm3",
    .class_names = {"SmolLM3ForCausalLM"},
    .prefix = "model.",
    .keys = smollm3_keys,
    .tensors = tensors,
    .defaults = {TRI_LLAMA_DEFAULTS, .norm.eps = 1e-6, .attention.num_kv_heads = 4, .attention.rope_theta = 2e6,
                 .head.tie_word_embeddings = true, .max_position_embeddings = 32768},
    .prepare = prepare_smollm3,
};
