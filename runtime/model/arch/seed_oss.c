/* SPDX-License-Identifier: Apache-2.0 */
/* Seed-OSS: Llama with a head size of its own, and biases on queries, keys and values. */
#include "runtime/model/arch/rules.h"

static const tri_config_key keys[] = {TRI_KEYS_LLAMA,
                                      TRI_BOOL_KEY("attention_bias", attention.bias),
                                      TRI_BOOL_KEY("attention_out_bias", attention.o_bias),
                                      TRI_BOOL_KEY("mlp_bias", mlp.bias),
                                      TRI_IGNORED_KEYS("residual_dropout"),
                                      {0}};

static const tri_tensor_rule tensors[] = {TRI_RULES_LLAMA, {0}};

const tri_arch tri_arch_seed_oss = {
    .model_type = "seed_oss",
    .class_names = {"SeedOssForCausalLM"},
    .prefix = "model.",
    .keys = keys,
    .tensors = tensors,
    .defaults = {TRI_LLAMA_DEFAULTS, .norm.eps = 1e-6, .attention.num_kv_heads = 8, .attention.head_dim = 128,
                 .attention.bias = true, .max_position_embeddings = 524288},
};
