/* SPDX-License-Identifier: Apache-2.0 */
/* OLMoE: Llama with experts in every layer, queries and keys normed over all heads. clip_qkv is not in the table of
 * keys: refused where it is not null. */
#include "runtime/model/arch/rules.h"

static const tri_config_key keys[] = {TRI_KEYS_LLAMA,
                                      TRI_KEYS_MOE,
                                      TRI_INT_KEY("num_experts", moe.num_experts, 1, 4096),
                                      TRI_BOOL_KEY("norm_topk_prob", moe.renormalize),
                                      TRI_KEY_ATTENTION_BIAS,
                                      {0}};

static const tri_tensor_rule tensors[] = {
    TRI_RULES_LLAMA_ENDS,
    TRI_RULES_LLAMA_ATTENTION,
    TRI_RULES_QK_NORM,
    TRI_RULES_LLAMA_NORMS,
    TRI_RULE("layers.%d.mlp.gate.weight", ROUTER),
    TRI_RULES_EXPERTS("layers.%d.mlp.experts.%d.", "gate_proj", "up_proj", "down_proj"),
    {0}};

const tri_arch tri_arch_olmoe = {
    .model_type = "olmoe",
    .class_names = {"OlmoeForCausalLM"},
    .prefix = "model.",
    .keys = keys,
    .tensors = tensors,
    .defaults = {TRI_LLAMA_DEFAULTS, .norm.eps = 1e-5, .attention.qk_norm = TRI_QK_NORM_WHOLE,
                 .moe = {.all_layers = true, .num_experts = 64, .top_k = 8, .score = TRI_MOE_SOFTMAX},
                 .max_position_embeddings = 4096},
};
