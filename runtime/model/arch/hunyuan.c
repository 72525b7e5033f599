/* SPDX-License-Identifier: Apache-2.0 */
/* Hy3: Qwen3's attention, DeepSeek-V3's router without groups, an expert for every token, and plain MLPs in the first
 * layers. */
#include <string.h>

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

/* A list says which layers have experts; without one all but the first have, or but the first few. */
static tri_status finish(tri_model_config *c, const tri_json *root, tri_error *err) {
  static const char key[] = "mlp_layer_types";
  const tri_json *list = tri_json_get(root, key);
  double plain = 1;
  TRI_CHECK(tri_config_number(root, "first_k_dense_replace", 0, TRI_MAX_LAYERS, &plain, err));
  if (tri_json_kind_of(list) == TRI_JSON_NULL) {
    tri_config_sparse_layers(c, (int)plain, 1);
    return TRI_OK;
  }
  if (tri_json_kind_of(list) != TRI_JSON_ARRAY || tri_json_size(list) != (size_t)c->num_layers)
    return tri_fail(err, TRI_INVALID_ARGUMENT, key, "%s must be a list of %lld names", key, (long long)c->num_layers);
  for (size_t l = 0; l < (size_t)c->num_layers; l++) {
    const char *name = tri_json_as_str(tri_json_at(list, l), NULL);
    bool sparse = name && !strcmp(name, "sparse");
    if (!sparse && (!name || strcmp(name, "dense") != 0))
      return tri_fail(err, TRI_UNSUPPORTED, key, "%s[%zu] is \"%.40s\": only dense and sparse are supported", key, l,
                      name ? name : "?");
    if (sparse) c->layer_flags[l] |= TRI_LAYER_SPARSE;
  }
  return TRI_OK;
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
