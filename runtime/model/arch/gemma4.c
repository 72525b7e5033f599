/* SPDX-License-Identifier: Apache-2.0 */
/* Gemma 4: scores without a scale, a norm of each head of queries, keys and values, and layers without a window whose
 * heads are larger and fewer, whose values are what becomes keys, and of whose pairs a quarter rotates. The stream
 * after each layer is multiplied with a stored number. Mixtures have experts next to the MLP of each layer, which is
 * described as an expert that every token takes; all of these have norms of their own.
 *
 * Small models (E2B, E4B) add an input of its own to each layer, and their last layers read keys and values of earlier
 * ones, which leaves room for a wider MLP. */
#include <math.h>
#include <stdio.h>

#include "runtime/model/arch/rules.h"

static const tri_config_key keys[] = {
    TRI_KEYS_LLAMA,
    TRI_KEY_WINDOW,
    TRI_OFF_KEY("attention_bias"),
    TRI_INT_KEY("global_head_dim", attention.global_head_dim, 1, 1024),
    TRI_INT_KEY("num_global_key_value_heads", attention.global_kv_heads, 1, 1 << 16),
    TRI_BOOL_KEY("attention_k_eq_v", attention.keys_are_values),
    TRI_NUM_KEY("final_logit_softcapping", head.logit_softcap, 0, 1e6),
    TRI_BOOL_KEYS("enable_moe_block", moe.own_norms, moe.has_shared),
    TRI_INT_KEY("num_experts", moe.num_experts, 1, 4096),
    TRI_INT_KEY("top_k_experts", moe.top_k, 1, 256),
    TRI_INT_KEY("moe_intermediate_size", moe.intermediate_size, 1, 1 << 24),
    TRI_INT_KEY("hidden_size_per_layer_input", embed.layer_width, 0, 1 << 16),
    TRI_INT_KEY("num_kv_shared_layers", attention.shared_kv_layers, 0, TRI_MAX_LAYERS),
    TRI_READ_KEY("use_bidirectional_attention"), /* this and the next two: prepare */
    TRI_READ_KEY("use_double_wide_mlp"),
    TRI_READ_KEY("vocab_size_per_layer_input"),
    TRI_READ_KEY("per_layer_config"), /* prepare and finish */
    {0}};

#define IN_LAYERS(kind, n, p)                                                                                          \
  .name = "layers.%d.self_attn." n ".weight", .weight = TRI_W_QKV, .part = TRI_PART_##p, .flags = TRI_TENSOR_##kind
static const tri_tensor_rule tensors[] = {
    TRI_RULES_LLAMA_ENDS,
    TRI_RULE_PART("layers.%d.self_attn.q_proj.weight", QKV, Q),
    TRI_RULE_PART("layers.%d.self_attn.k_proj.weight", QKV, K),
    {IN_LAYERS(LOCAL, "v_proj", V)},
    {IN_LAYERS(GLOBAL, "v_proj", V), .unless_field = TRI_IF(attention.keys_are_values)},
    {IN_LAYERS(GLOBAL, "k_proj", V), .if_field = TRI_IF(attention.keys_are_values)},
    TRI_RULES_O("layers.%d.self_attn.o_proj"),
    TRI_RULES_QK_NORM,
    TRI_RULES_GATED("layers.%d.mlp."),
    TRI_RULES_SHARED("layers.%d.mlp."),
    TRI_RULE("layers.%d.input_layernorm.weight", NORM1),
    TRI_RULE("layers.%d.post_attention_layernorm.weight", BRANCH_NORM1),
    TRI_RULE("layers.%d.pre_feedforward_layernorm.weight", NORM2),
    TRI_RULE("layers.%d.post_feedforward_layernorm.weight", BRANCH_NORM2),
    TRI_RULE("layers.%d.layer_scalar", LAYER_SCALE),
    TRI_RULE_IF("embed_tokens_per_layer.weight", LAYER_EMBED, embed.has_layer_inputs),
    TRI_RULE_IF("per_layer_model_projection.weight", LAYER_PROJECT, embed.has_layer_inputs),
    TRI_RULE_IF("per_layer_projection_norm.weight", LAYER_PROJECT_NORM, embed.has_layer_inputs),
    TRI_RULE_IF("layers.%d.per_layer_input_gate.weight", INPUT_GATE, embed.has_layer_inputs),
    TRI_RULE_IF("layers.%d.per_layer_projection.weight", INPUT_PROJECT, embed.has_layer_inputs),
    TRI_RULE_IF("layers.%d.post_per_layer_input_norm.weight", INPUT_NORM, embed.has_layer_inputs),
    TRI_RULE_IF("layers.%d.post_feedforward_layernorm_1.weight", SHARED_BRANCH_NORM, moe.own_norms),
    TRI_RULE_IF("layers.%d.pre_feedforward_layernorm_2.weight", EXPERT_NORM, moe.own_norms),
    TRI_RULE_IF("layers.%d.post_feedforward_layernorm_2.weight", EXPERT_BRANCH_NORM, moe.own_norms),
    TRI_RULE_IF("layers.%d.router.scale", ROUTER_NORM, moe.own_norms),
    TRI_RULE("layers.%d.router.proj.weight", ROUTER),
    TRI_RULE_IF("layers.%d.router.per_expert_scale", EXPERT_SCALE, moe.own_norms),
    {.name = "layers.%d.experts.gate_up_proj",
     .weight = TRI_W_EXPERT_UP,
     .part = TRI_PART_GATE_UP_CONCAT,
     .flags = TRI_TENSOR_STACKED},
    {.name = "layers.%d.experts.down_proj", .weight = TRI_W_EXPERT_DOWN, .flags = TRI_TENSOR_STACKED},
    {0}};

/* Inputs of layers are of the same tokens. */
static tri_status check_inputs(const tri_model_config *c, const tri_json *root, tri_error *err) {
  static const char key[] = "vocab_size_per_layer_input";
  double n = 262144;
  TRI_CHECK(tri_config_number(root, key, 1, 1 << 28, &n, err));
  if (!c->embed.layer_width || n == (double)c->vocab_size) return TRI_OK;
  return tri_fail(err, TRI_UNSUPPORTED, key, "%s is %.15g: only vocab_size, %lld, is supported", key, n,
                  (long long)c->vocab_size);
}

/* Layers that share keys and values may have an MLP of twice the units. */
static tri_status read_shared_size(tri_model_config *c, const tri_json *root, tri_error *err) {
  static const char key[] = "use_double_wide_mlp";
  bool twice = false;
  TRI_CHECK(tri_config_bool(root, key, &twice, err));
  if (!twice || !c->attention.shared_kv_layers) return TRI_OK;
  if (c->moe.own_norms) return tri_fail(err, TRI_UNSUPPORTED, key, "%s is not supported with enable_moe_block", key);
  c->mlp.shared_kv_size = 2 * c->mlp.intermediate_size;
  return TRI_OK;
}

/* Layers of each kind that share keys and values need one of that kind before them. */
static tri_status share_keys(tri_model_config *c, tri_error *err) {
  static const char key[] = "num_kv_shared_layers";
  int64_t n = c->attention.shared_kv_layers;
  if (n >= c->num_layers)
    return tri_fail(err, TRI_OUT_OF_RANGE, key, "%s is %lld of %lld layers", key, (long long)n,
                    (long long)c->num_layers);
  for (int64_t l = c->num_layers - n; l < c->num_layers; l++) c->layer_flags[l] |= TRI_LAYER_SHARED_KV;
  for (int l = (int)(c->num_layers - n); l < c->num_layers; l++) {
    int from = tri_kv_source(c, l);
    if (c->layer_flags[from] & TRI_LAYER_SHARED_KV || (c->layer_flags[from] ^ c->layer_flags[l]) & TRI_LAYER_LOCAL)
      return tri_fail(err, TRI_INVALID_ARGUMENT, key,
                      "%s is %lld, but no layer of the kind of layer %d (layer_types) has keys and values of its own",
                      key, (long long)n, l);
  }
  return TRI_OK;
}

/* Images alone see what follows them, or nothing does. */
static tri_status check_direction(const tri_json *root, tri_error *err) {
  static const char key[] = "use_bidirectional_attention";
  bool on;
  const tri_json *v = tri_json_get(root, key);
  if (tri_json_as_bool(v, &on) && !on) return TRI_OK;
  return tri_config_must_be(root, key, "vision", err);
}

/* Mixtures have experts in every layer; others may name their sizes all the same. */
static tri_status set_experts(tri_model_config *c, tri_error *err) {
  tri_moe *m = &c->moe;
  if (!m->own_norms) {
    m->num_experts = m->top_k = m->intermediate_size = 0;
    return TRI_OK;
  }
  if (!m->num_experts || !m->top_k || !m->intermediate_size)
    return tri_fail(err, TRI_INVALID_ARGUMENT, "enable_moe_block",
                    "enable_moe_block needs num_experts, top_k_experts and moe_intermediate_size");
  m->expert_scale = true;
  m->shared_size = c->mlp.intermediate_size;
  m->router_scale = 1 / sqrt((double)c->hidden_size);
  return TRI_OK;
}

struct by_layer {
  tri_model_config *c;
  size_t num_read;
  tri_error *err;
};

/* A layer's entry of per_layer_config: its head size, its KV heads, or both. What it leaves out is as in layers with a
 * window. */
static tri_status read_layer(void *ctx, const char *key, const tri_json *entry) {
  struct by_layer *b = ctx;
  tri_attention_config *a = &b->c->attention;
  const tri_json *dim = tri_json_get(entry, "head_dim"), *kv = tri_json_get(entry, "num_key_value_heads");
  int64_t head_dim = a->head_dim, kv_heads = a->num_kv_heads;
  bool read = tri_json_size(entry) == (size_t)(!!dim + !!kv);
  read = read && (!dim || tri_json_as_int(dim, &head_dim)) && (!kv || tri_json_as_int(kv, &kv_heads));
  if (!read || head_dim < 1 || head_dim > 1024 || kv_heads < 1 || kv_heads > 1 << 16)
    return tri_fail(b->err, TRI_UNSUPPORTED, "per_layer_config",
                    "per_layer_config[\"%.20s\"]: only a head_dim of 1 to 1024 and num_key_value_heads are supported",
                    key);
  if (b->num_read++ && (head_dim != a->global_head_dim || kv_heads != a->global_kv_heads))
    return tri_fail(b->err, TRI_UNSUPPORTED, "per_layer_config",
                    "per_layer_config[\"%.20s\"]: only the sizes of the other layers in it are supported", key);
  a->global_head_dim = head_dim;
  a->global_kv_heads = kv_heads;
  return TRI_OK;
}

/* transformers 5 saves the sizes of layers without a window so, instead of global_head_dim and
 * num_global_key_value_heads. */
static tri_status read_by_layer(tri_model_config *c, const tri_json *root, tri_error *err) {
  const tri_json *all = tri_json_get(root, "per_layer_config");
  struct by_layer b = {c, 0, err};
  if (tri_json_kind_of(all) == TRI_JSON_NULL) return TRI_OK;
  if (tri_json_kind_of(all) != TRI_JSON_OBJECT)
    return tri_fail(err, TRI_INVALID_ARGUMENT, "per_layer_config", "per_layer_config must be an object");
  c->attention.global_head_dim = c->attention.head_dim;
  c->attention.global_kv_heads = c->attention.num_kv_heads;
  return tri_json_each(all, read_layer, &b);
}

/* The layers in it are those without a window. */
static tri_status check_by_layer(const tri_model_config *c, const tri_json *root, tri_error *err) {
  const tri_json *all = tri_json_get(root, "per_layer_config");
  char name[8];
  size_t named = 0;
  for (int l = 0; l < c->num_layers && tri_json_size(all); l++) {
    snprintf(name, sizeof name, "%d", l);
    bool global = !(c->layer_flags[l] & TRI_LAYER_LOCAL), has = tri_json_get(all, name) != NULL;
    named += has;
    if (global != has)
      return tri_fail(err, TRI_UNSUPPORTED, "per_layer_config",
                      "layer %d: only layers without a window, and all of them, can be in per_layer_config", l);
  }
  if (named == tri_json_size(all)) return TRI_OK;
  return tri_fail(err, TRI_INVALID_ARGUMENT, "per_layer_config", "per_layer_config names layers that do not exist");
}

static tri_status prepare(tri_model_config *c, const tri_json *root, tri_error *err) {
  TRI_CHECK(check_direction(root, err));
  c->embed.has_layer_inputs = c->embed.layer_width > 0;
  TRI_CHECK(check_inputs(c, root, err));
  if (tri_json_kind_of(tri_json_get(root, "rope_parameters")) == TRI_JSON_NULL)
    return tri_fail(err, TRI_INVALID_ARGUMENT, "rope_parameters", "there are no rope_parameters");
  /* The number of KV heads is another one where they are values, too. */
  if (!c->attention.keys_are_values) c->attention.global_kv_heads = 0;
  TRI_CHECK(read_by_layer(c, root, err));
  return set_experts(c, err);
}

/* The last layer has no window, whatever the file says. */
static tri_status finish(tri_model_config *c, const tri_json *root, tri_error *err) {
  TRI_CHECK(read_shared_size(c, root, err));
  c->embed.scale = sqrt((double)c->hidden_size);
  c->layer_flags[c->num_layers - 1] &= (uint8_t)~TRI_LAYER_LOCAL;
  TRI_CHECK(check_by_layer(c, root, err));
  if (c->moe.own_norms) tri_config_sparse_layers(c, 0, 1);
  return share_keys(c, err);
}

const tri_arch tri_arch_gemma4_text = {
    .model_type = "gemma4_text",
    .class_names = {"Gemma4ForCausalLM"},
    .multimodal_type = "gemma4",
    .multimodal_class = "Gemma4ForConditionalGeneration",
    .prefix = "model.",
    .keys = keys,
    /* Releases may store these of layers that share them, where they have no effect. */
    .ignored_tensors = {"layers.%d.self_attn.k_proj.weight", "layers.%d.self_attn.v_proj.weight",
                        "layers.%d.self_attn.k_norm.weight"},
    .tensors = tensors,
    .defaults = {.norm.kind = TRI_NORM_RMS,
                 .norm.eps = 1e-6,
                 .norm.place = TRI_NORM_BOTH,
                 .norm.layer_scale = true,
                 .mlp.act = TRI_ACT_GELU_TANH,
                 .mlp.gated = true,
                 .head.tie_word_embeddings = true,
                 .vocab_size = 262144,
                 .embed.layer_width = 256,
                 .attention.num_heads = 8,
                 .attention.num_kv_heads = 4,
                 .attention.head_dim = 256,
                 .attention.global_head_dim = 512,
                 .attention.scale = 1,
                 .attention.qk_norm = TRI_QK_NORM_HEAD,
                 .attention.norm_values = true,
                 .attention.window = 512,
                 .attention.global_every = 6,
                 .attention.position = TRI_POS_ROPE,
                 .attention.has_local_rope = true,
                 .attention.rope_theta = 1e6,
                 .attention.local_rope_theta = 1e4,
                 .moe = {.score = TRI_MOE_SOFTMAX, .renormalize = true},
                 .max_position_embeddings = 131072},
    .prepare = prepare,
    .finish = finish,
};
