/* SPDX-License-Identifier: Apache-2.0 */
/* Step-3.5-Flash, and the text part of Step-3.7: layers with a window have query and KV heads and rotary angles of
 * their own, each head's result is gated, some layers' activations are clamped. DeepSeek-V3's router without groups, an
 * expert for every token, and one MLP in the first layers. */
#include <stdlib.h>
#include <string.h>

#include "runtime/model/arch/rules.h"

/* TRI_READ_KEY: prepare and finish. */
static const tri_config_key keys[] = {
    TRI_KEYS_MOE,
    TRI_KEY_WINDOW,
    TRI_NUM_KEY("rms_norm_eps", norm.eps, 0, 1),
    TRI_INT_KEY("num_attention_heads", attention.global_heads, 1, 1 << 16),
    TRI_INT_KEY("num_sliding_attention_heads", attention.num_heads, 1, 1 << 16),
    TRI_INT_KEY("num_attention_groups", attention.global_kv_heads, 1, 1 << 16),
    TRI_INT_KEY("num_key_value_heads", attention.global_kv_heads, 1, 1 << 16),
    TRI_INT_KEY("head_dim", attention.head_dim, 1, 1024),
    TRI_BOOL_KEY("use_head_wise_attn_gate", attention.head_gate),
    TRI_INT_KEY("moe_num_experts", moe.num_experts, 1, 4096),
    TRI_INT_KEY("n_routed_experts", moe.num_experts, 1, 4096),
    TRI_INT_KEY("num_local_experts", moe.num_experts, 1, 4096),
    TRI_INT_KEY("moe_top_k", moe.top_k, 1, 256),
    TRI_INT_KEY("moe_intermediate_size", moe.intermediate_size, 1, 1 << 24),
    TRI_INT_KEY("share_expert_dim", moe.shared_size, 1, 1 << 24),
    TRI_INT_KEY("share_expert_dims", moe.shared_size, 1, 1 << 24),
    TRI_NUM_KEY("moe_router_scaling_factor", moe.scale, 1e-6, 1e6),
    TRI_BOOL_KEY("use_moe_router_bias", moe.choice_bias),
    TRI_INT_KEY("num_nextn_predict_layers", extra_layers, 0, 64),
    TRI_INT_KEY("num_mtp_layers", extra_layers, 0, 64),
    TRI_READ_KEY("attention_other_setting"),
    TRI_READ_KEY("per_layer_config"),
    TRI_READ_KEY("rope_theta"),
    TRI_READ_KEY("partial_rotary_factors"),
    TRI_READ_KEY("yarn_only_types"),
    TRI_READ_KEY("use_rope_layers"),
    TRI_READ_KEY("swiglu_limits"),
    TRI_READ_KEY("swiglu_limits_shared"),
    TRI_READ_KEY("moe_layers_enum"),
    TRI_READ_KEY("mlp_layer_types"),
    TRI_READ_KEY("moe_router_activation"),
    TRI_READ_KEY("att_impl_type"),
    TRI_READ_KEY("norm_expert_weight"), /* this and the next three: check_switches */
    TRI_READ_KEY("use_moe"),
    TRI_READ_KEY("zero_centered"),
    TRI_READ_KEY("use_qk_norm"),
    TRI_READ_KEY("moe_dynamic_exp_p"),
    TRI_OFF_KEY("sink"),
    TRI_OFF_KEY("use_mfa"),
    TRI_OFF_KEY("attention_bias"),
    TRI_OFF_KEY("mlp_bias"),
    /* Types of draft layers, lengths that max_position_embeddings says, the type of the router's logits, and numbers
     * that moe_layers_enum overrules. */
    TRI_IGNORED_KEYS("mtp_layer_types mtp_mlp_layer_types max_seq_len need_fp32_gate gating moe_layer_offset "
                     "moe_every_n_layer"),
    {0}};

#define STACKED(n, w, p)                                                                                               \
  { .name = n, .weight = TRI_W_##w, .part = TRI_PART_##p, .flags = TRI_TENSOR_STACKED }

static const tri_tensor_rule tensors[] = {
    TRI_RULES_LLAMA,
    TRI_RULES_QK_NORM,
    TRI_RULE_IF("layers.%d.self_attn.g_proj.weight", ATTENTION_GATE, attention.head_gate),
    TRI_RULE("layers.%d.moe.gate.weight", ROUTER),
    TRI_RULE_IF("layers.%d.moe.router_bias", CHOICE_BIAS, moe.choice_bias),
    STACKED("layers.%d.moe.gate_proj.weight", EXPERT_UP, GATE),
    STACKED("layers.%d.moe.up_proj.weight", EXPERT_UP, UP),
    STACKED("layers.%d.moe.down_proj.weight", EXPERT_DOWN, WHOLE),
    TRI_RULES_SHARED("layers.%d.share_expert."),
    {0}};

/* Switches that are on in every layer of this family. */
static tri_status check_switches(const tri_json *root, tri_error *err) {
  static const char *const names[] = {"norm_expert_weight", "use_moe", "zero_centered", "use_qk_norm"};
  double dynamic = 1;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    bool on = true;
    TRI_CHECK(tri_config_bool(root, names[i], &on, err));
    if (!on) return tri_fail(err, TRI_UNSUPPORTED, names[i], "%s must be true", names[i]);
  }
  TRI_CHECK(tri_config_number(root, "moe_dynamic_exp_p", 0, 1, &dynamic, err));
  if (dynamic != 1) return tri_fail(err, TRI_UNSUPPORTED, "moe_dynamic_exp_p", "moe_dynamic_exp_p must be 1");
  TRI_CHECK(tri_config_must_be(root, "att_impl_type", "GQA", err));
  return tri_config_must_be(root, "moe_router_activation", "sigmoid", err);
}

/* An integer of the section for layers with a window. */
static tri_status read_other(const tri_json *section, const char *key, int64_t most, int64_t *to, tri_error *err) {
  double n = (double)*to;
  TRI_CHECK(tri_config_number(section, key, 1, (double)most, &n, err));
  if (n != (double)(int64_t)n)
    return tri_fail(err, TRI_INVALID_ARGUMENT, key, "attention_other_setting.%s must be an integer", key);
  *to = (int64_t)n;
  return TRI_OK;
}

/* Heads of layers with a window: those of the section, else as in the other layers. */
static tri_status read_heads(tri_model_config *c, const tri_json *root, tri_error *err) {
  static const char key[] = "attention_other_setting";
  static const char *const dims[] = {"head_dim", "true_head_dim"};
  tri_attention_config *a = &c->attention;
  const tri_json *other = tri_json_get(root, key);
  bool there = tri_json_kind_of(other) != TRI_JSON_NULL;
  if (!a->global_heads)
    return tri_fail(err, TRI_INVALID_ARGUMENT, "num_attention_heads", "there is no num_attention_heads");
  if (there && tri_json_kind_of(other) != TRI_JSON_OBJECT)
    return tri_fail(err, TRI_INVALID_ARGUMENT, key, "%s must be an object", key);
  if (!a->num_heads) {
    a->num_heads = a->global_heads;
    TRI_CHECK(read_other(other, "num_attention_heads", 1 << 16, &a->num_heads, err));
  }
  a->num_kv_heads = a->global_kv_heads;
  TRI_CHECK(read_other(other, "num_attention_groups", 1 << 16, &a->num_kv_heads, err));
  TRI_CHECK(tri_config_must_be(other, "attention_type", "sliding_attention", err));
  for (int i = 0; i < 2; i++) {
    int64_t dim = a->head_dim;
    TRI_CHECK(read_other(other, dims[i], 1024, &dim, err));
    if (dim != a->head_dim)
      return tri_fail(err, TRI_UNSUPPORTED, key, "%s.%s is %lld: only %lld, as in other layers, is supported", key,
                      dims[i], (long long)dim, (long long)a->head_dim);
  }
  return TRI_OK;
}

struct by_layer {
  tri_model_config *c;
  tri_error *err;
};

/* A layer's entry of per_layer_config: the query heads of one with a window. */
static tri_status check_layer(void *ctx, const char *key, const tri_json *entry) {
  static const char name[] = "per_layer_config";
  const struct by_layer *b = ctx;
  char *end;
  long layer = strtol(key, &end, 10);
  int64_t heads = 0;
  bool local =
      end != key && !*end && layer >= 0 && layer < b->c->num_layers && b->c->layer_flags[layer] & TRI_LAYER_LOCAL;
  bool alone = tri_json_size(entry) == 1 && tri_json_as_int(tri_json_get(entry, "num_attention_heads"), &heads);
  if (local && alone && heads == b->c->attention.num_heads) return TRI_OK;
  return tri_fail(b->err, TRI_UNSUPPORTED, name,
                  "%s[\"%.20s\"]: only num_attention_heads of %lld in a layer with a window is supported", name, key,
                  (long long)b->c->attention.num_heads);
}

/* transformers writes this key in addition to num_sliding_attention_heads. */
static tri_status check_by_layer(tri_model_config *c, const tri_json *root, tri_error *err) {
  static const char key[] = "per_layer_config";
  const tri_json *all = tri_json_get(root, key);
  struct by_layer b = {c, err};
  if (tri_json_kind_of(all) == TRI_JSON_NULL) return TRI_OK;
  if (tri_json_kind_of(all) != TRI_JSON_OBJECT)
    return tri_fail(err, TRI_INVALID_ARGUMENT, key, "%s must be an object", key);
  return tri_json_each(all, check_layer, &b);
}

/* Positions are stretched in layers without a window alone: a section for both kinds must say so. */
static tri_status check_stretched(const tri_json *root, tri_error *err) {
  static const char key[] = "yarn_only_types";
  const tri_json *list = tri_json_get(root, key), *scaling = tri_json_get(root, "rope_scaling");
  const char *only = tri_json_as_str(tri_json_at(list, 0), NULL);
  bool full =
      tri_json_kind_of(list) == TRI_JSON_ARRAY && tri_json_size(list) == 1 && only && !strcmp(only, "full_attention");
  if (tri_json_kind_of(scaling) == TRI_JSON_NULL || full) return TRI_OK;
  return tri_fail(err, TRI_UNSUPPORTED, key, "%s must be [\"full_attention\"] where there is a rope_scaling", key);
}

/* Every layer rotates: a list that says which do is empty or has no false. */
static tri_status check_rotation(const tri_json *root, tri_error *err) {
  static const char key[] = "use_rope_layers";
  const tri_json *list = tri_json_get(root, key);
  if (tri_json_kind_of(list) == TRI_JSON_NULL) return TRI_OK;
  if (tri_json_kind_of(list) != TRI_JSON_ARRAY)
    return tri_fail(err, TRI_INVALID_ARGUMENT, key, "%s must be a list", key);
  for (size_t i = 0; i < tri_json_size(list); i++) {
    bool on = false;
    if (!tri_json_as_bool(tri_json_at(list, i), &on) || !on)
      return tri_fail(err, TRI_UNSUPPORTED, key, "%s[%zu]: only true is supported", key, i);
  }
  return TRI_OK;
}

/* Kinds of layers are found here already: lists have numbers by layer. */
static tri_status prepare(tri_model_config *c, const tri_json *root, tri_error *err) {
  tri_attention_config *a = &c->attention;
  TRI_CHECK(check_switches(root, err));
  TRI_CHECK(read_heads(c, root, err));
  TRI_CHECK(check_stretched(root, err));
  TRI_CHECK(check_rotation(root, err));
  TRI_CHECK(tri_config_layer_kinds(c, root, err));
  TRI_CHECK(check_by_layer(c, root, err));
  TRI_CHECK(tri_config_by_kind(c, root, "rope_theta", 1, 1e12, &a->rope_theta, &a->local_rope_theta, err));
  TRI_CHECK(tri_config_by_kind(c, root, "partial_rotary_factors", 0, 1, &a->partial_rotary_factor,
                               &a->local_partial_rotary_factor, err));
  return tri_config_glu_limits(c, root, "swiglu_limits", "swiglu_limits_shared", err);
}

static tri_status set_sparse(tri_model_config *c, const char *key, int64_t layer, tri_error *err) {
  if (layer < 0 || layer >= c->num_layers + c->extra_layers)
    return tri_fail(err, TRI_OUT_OF_RANGE, key, "%s has %lld, the range is 0 to %lld", key, (long long)layer,
                    (long long)(c->num_layers + c->extra_layers - 1));
  if (layer < c->num_layers) c->layer_flags[layer] |= TRI_LAYER_SPARSE;
  return TRI_OK;
}

/* "3,4,5" or [3, 4, 5] are the layers with experts. */
static tri_status read_sparse(tri_model_config *c, const tri_json *list, const char *key, tri_error *err) {
  const char *at = tri_json_as_str(list, NULL);
  for (size_t i = 0; !at && i < tri_json_size(list); i++) {
    int64_t layer;
    if (!tri_json_as_int(tri_json_at(list, i), &layer))
      return tri_fail(err, TRI_INVALID_ARGUMENT, key, "%s[%zu] must be an integer", key, i);
    TRI_CHECK(set_sparse(c, key, layer, err));
  }
  while (at && *at) {
    char *end;
    long layer = strtol(at, &end, 10);
    end += strspn(end, " ");
    if (end == at || (*end && *end != ','))
      return tri_fail(err, TRI_INVALID_ARGUMENT, key, "%s must be numbers with commas between them", key);
    TRI_CHECK(set_sparse(c, key, layer, err));
    at = *end ? end + 1 : end;
  }
  return TRI_OK;
}

static tri_status finish(tri_model_config *c, const tri_json *root, tri_error *err) {
  static const char key[] = "moe_layers_enum";
  const tri_json *list = tri_json_get(root, key);
  tri_json_kind kind = tri_json_kind_of(list);
  c->moe.has_shared = c->moe.shared_size > 0;
  if (tri_json_kind_of(tri_json_get(root, "mlp_layer_types")) != TRI_JSON_NULL)
    return tri_config_dense_layers(c, root, 0, err);
  if (kind == TRI_JSON_STRING || kind == TRI_JSON_ARRAY) return read_sparse(c, list, key, err);
  return tri_fail(err, TRI_INVALID_ARGUMENT, key, "%s must say which layers have experts", key);
}

const tri_arch tri_arch_step3p5 = {
    .model_type = "step3p5",
    .class_names = {"Step3p5ForCausalLM"},
    .multimodal_type = "step3p7",
    .multimodal_class = "Step3p7ForConditionalGeneration",
    .prefix = "model.",
    .keys = keys,
    .tensors = tensors,
    .defaults = {TRI_LLAMA_DEFAULTS, .norm.eps = 1e-5, .norm.weight_offset = 1, .attention.global_kv_heads = 8,
                 .attention.head_dim = 128, .attention.head_gate = true, .attention.qk_norm = TRI_QK_NORM_HEAD,
                 .attention.has_local_rope = true,
                 .moe = {.num_experts = 288,
                         .top_k = 8,
                         .intermediate_size = 1280,
                         .shared_size = 1280,
                         .score = TRI_MOE_SIGMOID,
                         .renormalize = true,
                         .choice_bias = true,
                         .num_groups = 1,
                         .top_groups = 1,
                         .group_best = 2},
                 .max_position_embeddings = 128000},
    .prepare = prepare,
    .finish = finish,
};
