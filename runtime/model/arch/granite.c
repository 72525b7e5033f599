/* SPDX-License-Identifier: Apache-2.0 */
/* Granite: Llama with factors on the embedding, the scores, what each branch adds, and the logits. Granite-MoE: with
 * experts in every layer, all of one layer in one tensor. */
#include "runtime/model/arch/rules.h"

/* logits_scaling is read by finish. */
#define KEYS                                                                                                           \
  TRI_KEYS_LLAMA, TRI_KEY_ATTENTION_BIAS, TRI_NUM_KEY("embedding_multiplier", embed.scale, -1e6, 1e6),                 \
      TRI_NUM_KEY("attention_multiplier", attention.scale, 1e-6, 1e6),                                                 \
      TRI_NUM_KEY("residual_multiplier", norm.residual_scale, -1e6, 1e6), TRI_READ_KEY("logits_scaling")

static const tri_config_key keys[] = {KEYS, TRI_BOOL_KEY("mlp_bias", mlp.bias), {0}};
static const tri_config_key moe_keys[] = {
    KEYS, TRI_KEYS_MOE, TRI_INT_KEY("num_local_experts", moe.num_experts, 1, 4096), {0}};

static const tri_tensor_rule tensors[] = {TRI_RULES_LLAMA, {0}};
static const tri_tensor_rule moe_tensors[] = {TRI_RULES_LLAMA_ENDS,
                                              TRI_RULES_LLAMA_ATTENTION,
                                              TRI_RULES_LLAMA_NORMS,
                                              TRI_RULE("layers.%d.block_sparse_moe.router.layer.weight", ROUTER),
                                              {.name = "layers.%d.block_sparse_moe.input_linear.weight",
                                               .weight = TRI_W_EXPERT_UP,
                                               .part = TRI_PART_GATE_UP_CONCAT,
                                               .flags = TRI_TENSOR_STACKED},
                                              {.name = "layers.%d.block_sparse_moe.output_linear.weight",
                                               .weight = TRI_W_EXPERT_DOWN,
                                               .flags = TRI_TENSOR_STACKED},
                                              {0}};

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

const tri_arch tri_arch_granitemoe = {
    .model_type = "granitemoe",
    .class_names = {"GraniteMoeForCausalLM"},
    .prefix = "model.",
    .keys = moe_keys,
    .tensors = moe_tensors,
    .defaults = {TRI_LLAMA_DEFAULTS, .norm.eps = 1e-6, .attention.scale = 1,
                 .moe = {.all_layers = true, .num_experts = 8, .top_k = 2, .score = TRI_MOE_TOPK_SOFTMAX},
                 .max_position_embeddings = 2048},
    .finish = finish,
};
