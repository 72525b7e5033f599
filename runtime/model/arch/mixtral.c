/* SPDX-License-Identifier: Apache-2.0 */
/* Mixtral: Mistral with experts in every layer, the weights of the chosen ones summing to one. */
#include "runtime/model/arch/rules.h"

static const tri_config_key keys[] = {
    TRI_KEYS_LLAMA, TRI_KEYS_MOE, TRI_KEY_WINDOW, TRI_INT_KEY("num_local_experts", moe.num_experts, 1, 4096), {0}};

static const tri_tensor_rule tensors[] = {TRI_RULES_LLAMA_ENDS,
                                          TRI_RULES_LLAMA_ATTENTION,
                                          TRI_RULES_LLAMA_NORMS,
                                          TRI_RULE("layers.%d.block_sparse_moe.gate.weight", ROUTER),
                                          TRI_RULES_EXPERTS("layers.%d.block_sparse_moe.experts.%d.", "w1", "w3", "w2"),
                                          {0}};

const tri_arch tri_arch_mixtral = {
    .model_type = "mixtral",
    .class_names = {"MixtralForCausalLM"},
    .prefix = "model.",
    .keys = keys,
    .tensors = tensors,
    .defaults =
        {TRI_LLAMA_DEFAULTS, .norm.eps = 1e-5, .attention.num_kv_heads = 8, .attention.window_every = 1,
         .moe = {.all_layers = true, .num_experts = 8, .top_k = 2, .score = TRI_MOE_SOFTMAX, .renormalize = true},
         .max_position_embeddings = 4096 * 32},
};
