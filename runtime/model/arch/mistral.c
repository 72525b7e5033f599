/* SPDX-License-Identifier: Apache-2.0 */
/* Mistral: Llama with a sliding window in every layer. Ministral 3: without windows, and queries beyond the original
 * length are scaled. */
#include "runtime/model/arch/rules.h"

static const tri_config_key keys[] = {TRI_KEYS_LLAMA, TRI_KEY_WINDOW, {0}};
static const tri_tensor_rule tensors[] = {TRI_RULES_LLAMA, {0}};

const tri_arch tri_arch_mistral = {
    .model_type = "mistral",
    .class_names = {"MistralForCausalLM"},
    .multimodal_type = "mistral3",
    .multimodal_class = "Mistral3ForConditionalGeneration",
    .prefix = "model.",
    .keys = keys,
    .tensors = tensors,
    .defaults = {TRI_LLAMA_DEFAULTS, .norm.eps = 1e-6, .attention.num_kv_heads = 8, .attention.window = 4096,
                 .attention.window_every = 1, .max_position_embeddings = 4096 * 32},
};

const tri_arch tri_arch_ministral3 = {
    .model_type = "ministral3",
    .class_names = {"Ministral3ForCausalLM"},
    .multimodal_type = "mistral3",
    .multimodal_class = "Mistral3ForConditionalGeneration",
    .prefix = "model.",
    .keys = keys,
    .tensors = tensors,
    .defaults = {TRI_LLAMA_DEFAULTS, .norm.eps = 1e-5, .attention.num_kv_heads = 8, .attention.head_dim = 128,
                 .attention.window_every = 1, .attention.q_scale.in_rope = true, .max_position_embeddings = 262144},
};
