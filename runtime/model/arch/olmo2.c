/* SPDX-License-Identifier: Apache-2.0 */
/* OLMo-2: norms of what each branch gives instead of what it reads, queries and keys normed over all heads. OLMo-3:
 * windows in three of four layers, whose rotary angles are not scaled. EXAONE 4: OLMo-2's norms with one gain for all
 * heads; where there are windows, the other layers do not rotate. */
#include "runtime/model/arch/rules.h"

static const tri_config_key keys[] = {TRI_KEYS_LLAMA, TRI_KEY_ATTENTION_BIAS, {0}};
static const tri_config_key keys3[] = {TRI_KEYS_LLAMA, TRI_KEY_ATTENTION_BIAS, TRI_KEY_WINDOW, {0}};
static const tri_config_key exaone4_keys[] = {TRI_KEYS_LLAMA, TRI_KEY_WINDOW, TRI_KEY_WINDOW_PATTERN, {0}};

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

const tri_arch tri_arch_olmo3 = {
    .model_type = "olmo3",
    .class_names = {"Olmo3ForCausalLM"},
    .prefix = "model.",
    .keys = keys3,
    .tensors = tensors,
    .defaults = {TRI_LLAMA_DEFAULTS, .norm.eps = 1e-5, .norm.place = TRI_NORM_RESULT,
                 .attention.qk_norm = TRI_QK_NORM_WHOLE, .attention.window = 4096, .attention.global_every = 4,
                 .attention.has_local_rope = true, .max_position_embeddings = 2048},
};

const tri_arch tri_arch_exaone4 = {
    .model_type = "exaone4",
    .class_names = {"Exaone4ForCausalLM"},
    .prefix = "model.",
    .keys = exaone4_keys,
    .tensors = tensors,
    .defaults = {TRI_LLAMA_DEFAULTS, .norm.eps = 1e-5, .norm.place = TRI_NORM_RESULT, .attention.num_kv_heads = 32,
                 .attention.qk_norm = TRI_QK_NORM_HEAD, .attention.window = 4096, .attention.global_every = 4,
                 .attention.global_no_rope = true, .max_position_embeddings = 2048},
};
