/* SPDX-License-Identifier: Apache-2.0 */
/* Llama: RMSNorm, rotary halves, grouped-query attention, gated MLP, tied or untied head. */
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
