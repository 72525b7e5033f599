/* SPDX-License-Identifier: Apache-2.0 */
/* MiMo-V2-Flash: values shorter than keys and scaled; layers with a window have twice the KV heads of the others,
 * and query heads of a number of their own, rotary angles of their own and sinks. DeepSeek-V3's router without groups
 * or an expert for every token; the first layer has one MLP. */
#include "runtime/model/arch/rules.h"

static const tri_config_key keys[] = {
    TRI_KEYS_MOE,
    TRI_KEY_WINDOW,
    TRI_NUM_KEY("rms_norm_eps", norm.eps, 0, 1),
    TRI_NUM_KEY("layernorm_epsilon", norm.eps, 0, 1),
    TRI_INT_KEY("num_attention_heads", attention.global_heads, 1, 1 << 16),
    TRI_INT_KEY("swa_num_attention_heads", attention.num_heads, 1, 1 << 16),
    TRI_INT_KEY("num_key_value_heads", attention.global_kv_heads, 1, 1 << 16),
    TRI_INT_KEY("swa_num_key_value_heads", attention.num_kv_heads, 1, 1 << 16),
    TRI_INT_KEY("head_dim", attention.head_dim, 1, 1024),
    TRI_INT_KEY("v_head_dim", attention.value_dim, 1, 1024),
    TRI_NUM_KEY("attention_value_scale", attention.value_scale, 1e-6, 1e6),
    TRI_NUM_KEY("swa_rope_theta", attention.local_rope_theta, 1, 1e12),
    TRI_BOOL_KEY("attention_bias", attention.bias),
    TRI_BOOL_KEY("add_swa_attention_sink_bias", attention.has_sinks),
    TRI_OFF_KEY("add_full_attention_sink_bias"),
    TRI_INT_KEY("n_routed_experts", moe.num_experts, 1, 4096),
    TRI_INT_KEY("num_local_experts", moe.num_experts, 1, 4096),
    TRI_INT_KEY("moe_intermediate_size", moe.intermediate_size, 1, 1 << 24),
    TRI_INT_KEY("n_group", moe.num_groups, 1, 4096),
    TRI_INT_KEY("topk_group", moe.top_groups, 1, 4096),
    TRI_NUM_KEY("routed_scaling_factor", moe.scale, 1e-6, 1e6),
    TRI_BOOL_KEY("norm_topk_prob", moe.renormalize),
    TRI_READ_KEY("sliding_window_size"), /* this and the next: prepare */
    TRI_READ_KEY("hybrid_layer_pattern"),
    TRI_READ_KEY("swa_head_dim"), /* this and the next: check_equal */
    TRI_READ_KEY("swa_v_head_dim"),
    TRI_READ_KEY("mlp_layer_types"), /* this and the next: finish */
    TRI_READ_KEY("moe_layer_freq"),
    TRI_IGNORED_KEYS("attention_chunk_size hybrid_block_size"), /* nothing reads them */
    {0}};

static const tri_tensor_rule tensors[] = {
    TRI_RULES_LLAMA,
    {.name = "layers.%d.self_attn.attention_sink_bias",
     .weight = TRI_W_SINKS,
     .flags = TRI_TENSOR_LOCAL,
     .if_field = TRI_IF(attention.has_sinks)},
    TRI_RULE("layers.%d.mlp.gate.weight", ROUTER),
    TRI_RULE("layers.%d.mlp.gate.e_score_correction_bias", CHOICE_BIAS),
    TRI_RULES_EXPERTS("layers.%d.mlp.experts.%d.", "gate_proj", "up_proj", "down_proj"),
    {0}};

/* Layers with a window have heads of the same sizes. */
static tri_status check_equal(const tri_json *root, const char *key, int64_t value, tri_error *err) {
  double n = (double)value;
  TRI_CHECK(tri_config_number(root, key, 1, 1 << 16, &n, err));
  if (n == (double)value) return TRI_OK;
  return tri_fail(err, TRI_UNSUPPORTED, key, "%s is %.15g: only %lld, as in other layers, is supported", key, n,
                  (long long)value);
}

/* Sets a flag of the layers for which a list has a 1 instead of a 0. */
static tri_status read_flags(tri_model_config *c, const tri_json *list, const char *key, uint8_t flag, tri_error *err) {
  if (tri_json_kind_of(list) != TRI_JSON_ARRAY || tri_json_size(list) != (size_t)c->num_layers)
    return tri_fail(err, TRI_INVALID_ARGUMENT, key, "%s must be a list of %lld numbers", key, (long long)c->num_layers);
  for (size_t l = 0; l < (size_t)c->num_layers; l++) {
    int64_t on;
    if (!tri_json_as_int(tri_json_at(list, l), &on) || on < 0 || on > 1)
      return tri_fail(err, TRI_INVALID_ARGUMENT, key, "%s[%zu] must be 0 or 1", key, l);
    if (on) c->layer_flags[l] |= flag;
  }
  return TRI_OK;
}

/* Without a list, the first layer and every sixth one have no window. */
static tri_status set_windows(tri_model_config *c, const tri_json *root, tri_error *err) {
  static const char key[] = "hybrid_layer_pattern";
  const tri_json *pattern = tri_json_get(root, key);
  if (tri_json_kind_of(tri_json_get(root, "layer_types")) != TRI_JSON_NULL) return TRI_OK;
  if (tri_json_kind_of(pattern) != TRI_JSON_NULL) return read_flags(c, pattern, key, TRI_LAYER_LOCAL, err);
  for (int64_t l = 1; l < c->num_layers; l++)
    if ((l + 1) % 6) c->layer_flags[l] |= TRI_LAYER_LOCAL;
  return TRI_OK;
}

/* A window of sliding_window_size counts the keys before a query's own. A scale of null is none. */
static tri_status prepare(tri_model_config *c, const tri_json *root, tri_error *err) {
  tri_attention_config *a = &c->attention;
  const tri_json *scale = tri_json_get(root, "attention_value_scale");
  double before = (double)a->window - 1;
  TRI_CHECK(tri_config_number(root, "sliding_window_size", 0, 1 << 30, &before, err));
  a->window = (int64_t)before + 1;
  if (scale && tri_json_kind_of(scale) == TRI_JSON_NULL) a->value_scale = 0;
  if (!a->global_heads)
    return tri_fail(err, TRI_INVALID_ARGUMENT, "num_attention_heads", "there is no num_attention_heads");
  if (!a->num_heads) a->num_heads = a->global_heads;
  if (!a->num_kv_heads) a->num_kv_heads = 2 * a->global_kv_heads;
  TRI_CHECK(check_equal(root, "swa_head_dim", a->head_dim, err));
  TRI_CHECK(check_equal(root, "swa_v_head_dim", a->value_dim, err));
  if (a->value_dim > a->head_dim)
    return tri_fail(err, TRI_UNSUPPORTED, "v_head_dim",
                    "v_head_dim is %lld: more than head_dim, %lld, is not supported", (long long)a->value_dim,
                    (long long)a->head_dim);
  if (a->value_dim == a->head_dim) a->value_dim = 0;
  return set_windows(c, root, err);
}

static tri_status finish(tri_model_config *c, const tri_json *root, tri_error *err) {
  static const char key[] = "moe_layer_freq";
  const tri_json *list = tri_json_get(root, key);
  bool listed = tri_json_kind_of(tri_json_get(root, "mlp_layer_types")) == TRI_JSON_NULL;
  if (listed && tri_json_kind_of(list) != TRI_JSON_NULL) return read_flags(c, list, key, TRI_LAYER_SPARSE, err);
  return tri_config_dense_layers(c, root, 1, err);
}

const tri_arch tri_arch_mimo_v2_flash = {
    .model_type = "mimo_v2_flash",
    .class_names = {"MiMoV2FlashForCausalLM"},
    .prefix = "model.",
    .keys = keys,
    .ignored_tensors = {"mtp.*"},
    .tensors = tensors,
    .defaults = {TRI_LLAMA_DEFAULTS, .norm.eps = 1e-5, .attention.global_kv_heads = 4, .attention.head_dim = 192,
                 .attention.value_dim = 128, .attention.value_scale = 0.707, .attention.window = 129,
                 .attention.has_sinks = true, .attention.local_sinks = true, .attention.has_local_rope = true,
                 .attention.rope_theta = 5e6, .attention.local_rope_theta = 1e4,
                 .attention.partial_rotary_factor = 0.334,
                 .moe = {.num_experts = 256,
                         .top_k = 8,
                         .intermediate_size = 2048,
                         .score = TRI_MOE_SIGMOID,
                         .renormalize = true,
                         .choice_bias = true,
                         .num_groups = 1,
                         .top_groups = 1,
                         .group_best = 2},
                 .max_position_embeddings = 131072},
    .prepare = prepare,
    .finish = finish,
};
