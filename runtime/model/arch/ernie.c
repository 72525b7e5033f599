/* SPDX-License-Identifier: Apache-2.0 */
/* ERNIE 4.5: Llama whose pairs of neighbours rotate. Its MoE form has experts in a range of layers, chosen by a softmax
 * with a bias that balances their load, and experts for every token. */
#include "runtime/model/arch/rules.h"

static const tri_config_key keys[] = {TRI_KEYS_LLAMA, TRI_BOOL_KEYS("use_bias", attention.bias, mlp.bias), {0}};
static const tri_config_key moe_keys[] = {TRI_KEYS_LLAMA,
                                          TRI_KEYS_MOE,
                                          TRI_INT_KEY("moe_num_experts", moe.num_experts, 1, 4096),
                                          TRI_INT_KEY("moe_k", moe.top_k, 1, 256),
                                          TRI_INT_KEY("moe_intermediate_size", moe.intermediate_size, 1, 1 << 24),
                                          TRI_INT_KEY("num_nextn_predict_layers", extra_layers, 0, 64),
                                          TRI_READ_KEY("moe_num_shared_experts"), /* by prepare_moe */
                                          TRI_READ_KEY("moe_layer_start_index"),  /* this and the rest: finish_moe */
                                          TRI_READ_KEY("moe_layer_end_index"),
                                          TRI_READ_KEY("moe_layer_interval"),
                                          TRI_READ_KEY("moe_norm_min"),
                                          TRI_READ_KEY("moe_use_aux_free"),
                                          TRI_READ_KEY("moe_gate"),
                                          TRI_OFF_KEY("use_bias"),
                                          TRI_IGNORED_KEYS("moe_capacity"), /* of the training */
                                          {0}};

static const tri_tensor_rule tensors[] = {TRI_RULES_LLAMA, {0}};
static const tri_tensor_rule moe_tensors[] = {
    TRI_RULES_LLAMA,
    TRI_RULE("layers.%d.mlp.gate.weight", ROUTER),
    TRI_RULE("layers.%d.mlp.moe_statics.e_score_correction_bias", CHOICE_BIAS),
    TRI_RULES_EXPERTS("layers.%d.mlp.experts.%d.", "gate_proj", "up_proj", "down_proj"),
    TRI_RULES_SHARED("layers.%d.mlp.shared_experts."),
    {0}};

/* use_bias is one switch for all projections. */
static tri_status prepare(tri_model_config *c, const tri_json *root, tri_error *err) {
  (void)root;
  (void)err;
  c->attention.o_bias = c->attention.bias;
  return TRI_OK;
}

static tri_status prepare_moe(tri_model_config *c, const tri_json *root, tri_error *err) {
  return tri_config_shared_experts(c, root, "moe_num_shared_experts", 2, err);
}

/* Refuses what the router does not do. Weights are divided by their sum, or by moe_norm_min where that is more: no sum
 * of chosen softmax scores comes near to one that is as little as in the releases. */
static tri_status check_router(const tri_json *root, tri_error *err) {
  double least = 1e-12;
  bool balanced = true;
  TRI_CHECK(tri_config_number(root, "moe_norm_min", 0, 1e-12, &least, err));
  TRI_CHECK(tri_config_must_be(root, "moe_gate", "topk", err));
  TRI_CHECK(tri_config_bool(root, "moe_use_aux_free", &balanced, err));
  if (balanced) return TRI_OK;
  return tri_fail(err, TRI_UNSUPPORTED, "moe_use_aux_free", "moe_use_aux_free false is not supported");
}

/* Every Nth layer has experts, counted from the model's first one, if it lies between the start and the end. An end of
 * -1 is the last layer. */
static tri_status finish_moe(tri_model_config *c, const tri_json *root, tri_error *err) {
  double first = 1, last = -1, every = 1;
  TRI_CHECK(tri_config_number(root, "moe_layer_start_index", 0, TRI_MAX_LAYERS, &first, err));
  TRI_CHECK(tri_config_number(root, "moe_layer_end_index", -1, TRI_MAX_LAYERS, &last, err));
  TRI_CHECK(tri_config_number(root, "moe_layer_interval", 1, TRI_MAX_LAYERS, &every, err));
  tri_config_sparse_layers(c, (int)every - 1, (int)every);
  for (int l = 0; l < c->num_layers; l++)
    if (l < first || (last >= 0 && l > last)) c->layer_flags[l] &= (uint8_t)~TRI_LAYER_SPARSE;
  return check_router(root, err);
}

#define DEFAULTS                                                                                                       \
  TRI_LLAMA_DEFAULTS, .norm.eps = 1e-5, .attention.rope = {.interleaved = true}, .attention.rope_theta = 5e5,          \
                      .head.tie_word_embeddings = true, .max_position_embeddings = 131072

const tri_arch tri_arch_ernie4_5 = {
    .model_type = "ernie4_5",
    .class_names = {"Ernie4_5ForCausalLM"},
    .prefix = "model.",
    .keys = keys,
    .tensors = tensors,
    .defaults = {DEFAULTS, .attention.num_kv_heads = 2, .attention.head_dim = 128},
    .prepare = prepare,
};

const tri_arch tri_arch_ernie4_5_moe = {
    .model_type = "ernie4_5_moe",
    .class_names = {"Ernie4_5_MoeForCausalLM"},
    .prefix = "model.",
    .keys = moe_keys,
    .tensors = moe_tensors,
    .defaults = {DEFAULTS, .attention.num_kv_heads = 4,
                 .moe = {.num_experts = 64,
                         .top_k = 6,
                         .intermediate_size = 1536,
                         .score = TRI_MOE_SOFTMAX,
                         .renormalize = true,
                         .choice_bias = true}},
    .prepare = prepare_moe,
    .finish = finish_moe,
};
