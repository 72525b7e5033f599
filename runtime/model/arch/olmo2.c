/* SPDX-License-Identifier: Apache-2.0 */
/* OLMo-2: norms of what each branch gives instead of what it reads, queries and keys normed over all heads. */
#include "runtime/model/arch/rules.h"

static const tri_config_key keys[] = {TRI_KEYS_LLAMA, TRI_KEY_ATTENTION_BIAS, {0}};

static const tri_tensor_rule tensors[] = {TRI_RULES_LLAMA_ENDS,
                                          TRI_RULES_LLAMA_ATTENTION,
                                          TRI_RULES_QK_NORM,
                                          TRI_RULE("layers.%d.post_attention_layernorm.weight", BRANCH_NORM1),
                                          TRI_RULES_GATED("layers.%d.mlp."),
                                          TRI_RULE("layers.%d.post_feedforward_layernorm.weight", BRANCH_NORM2),
                                          {0}};

const tri_arch tri_arch_olmo2 = {
    .model_type = "olmo2",
    .class_names = {"Olmo2ForCausalLM"},
    .prefix = "model.",
    .keys = keys,
    .tensors = tensors,
    .defaults = {TRI_LLAMA_DEFAULTS, .norm.eps = 1e-5, .norm.place = TRI_NORM_RESULT,
                 .attention.qk_norm = TRI_QK_NORM_WHOLE, .max_position_embeddings = 2048},
};
