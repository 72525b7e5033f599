/* SPDX-License-Identifier: Apache-2.0 */
/* Hy3: Qwen3's attention, DeepSeek-V3's router without groups, an expert for every token, and plain MLPs in the first
 * layers. */
#include "runtime/model/arch/rules.h"

static const tri_config_key keys[] = {TRI_KEYS_LLAMA,
                                      TRI_KEYS_MOE,
                                      TRI_KEY_ATTENTION_BIAS,
                                      TRI_INT_KEY("num_experts", moe.num_experts, 1, 4096),
                                      TRI_INT_KEY("num_local_experts", moe.num_experts, 1, 4096),
                                      TRI_INT_KEY("moe_intermediate_size", moe.intermediate_size, 1, 1 << 24),
                                      TRI_INT_KEY("expert_hidden_dim", moe.intermediate_size, 1, 1 << 24),
                                      TRI_NUM_KEY("router_scaling_factor", moe.scale, 1e-6, 1e6),
                                      TRI_INT_KEY("num_nextn_predict_layers", extra_layers, 0, 64),
                                      TRI_READ_KEY("num_shared_experts"), /* by prepare */
                                      TRI_READ_KEY("mlp_layer_types"),    /* this one and the next: finish */
                                      TRI_READ_KEY("first_k_dense_replace"),
                                      TRI_OFF_KEY("mlp_bias"),
                                      /* in which type a sum is made that is in float32 here */
                                      TRI_IGNORED_KEYS("enable_moe_fp32_combine"),
                                      {0}};

static const tri_tensor_rule tensors[] = {
    TRI_RULES_LLAMA,
    TRI_RULES_QK_NORM,
    TRI_RULE("layers.%d.mlp.router.gate.weight", ROUTER),
    TRI_RULE("layers.%d.mlp.expert_bias", CHOICE_BIAS),
    TRI_RULES_EXPERTS("layers.%d.mlp.experts.%d.", "gate_proj", "up_proj", "down_proj"),
    TRI_RULES_SHARED("layers.%d.mlp.shared_mlp."),
    {0}};

static tri_status prepare(tri_model_config *c, const tri_json *root, tri_error *err) {
  return tri_config_shared_experts(c, root, "num_shared_experts", 1, err);
}

static tri_status finish(tri_model_config *c, const tri_json *root, tri_error *err) {
  return tri_config_dense_layers(c, root, 1, err);
}

const tri_arch tri_arch_hy_v3 = {
    .model_type = "hy_v3",
    .class_names = {"HYV3ForCausalLM"},
    .prefix = "model.",
    .keys = keys,
    .tensors = tensors,
    .defaults = {TRI_LLAMA_DEFAULTS, .norm.eps = 1e-5, .attention.num_kv_heads = 8, .attention.head_dim = 128,
                 .attention.qk_norm = TRI_QK_NORM_HEAD, .attention.rope_theta = 11158840,
                 .moe = {.num_experts = 192,
                         .top_k = 8,
                         .intermediate_size = 1536,
                         .score = TRI_MOE_SIGMOID,
                         .renormalize = true,
                         .choice_bias = true,
                         .scale = 2.826},
                 .max_position_embeddings = 131072},
    .prepare = prepare,
    .finish = finish,
};
