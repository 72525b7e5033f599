/* SPDX-License-Identifier: Apache-2.0 */
/* Llama 4: layers that rotate see their own chunk of tokens, and norm queries and keys without a gain; every fourth
 * sees all keys without rotation, and scales queries by their position. A sigmoid chooses one expert, and its score
 * multiplies what the expert reads, next to an expert for every token; other layers have one MLP of another size.
 *
 * The norm comes after the rotation, which keeps a head's length: norm and rotation give the same in either order. */
#include "runtime/model/arch/rules.h"

static const tri_config_key keys[] = {TRI_KEYS_LLAMA,
                                      TRI_KEYS_MOE,
                                      TRI_KEY_ATTENTION_BIAS,
                                      TRI_INT_KEY("intermediate_size", moe.intermediate_size, 1, 1 << 24),
                                      TRI_INT_KEY("intermediate_size_mlp", mlp.intermediate_size, 1, 1 << 24),
                                      TRI_INT_KEY("num_local_experts", moe.num_experts, 1, 4096),
                                      TRI_BOOL_KEY("use_qk_norm", attention.has_qk_norm),
                                      TRI_INT_KEY("attention_chunk_size", attention.window, 1, 1 << 30),
                                      TRI_INT_KEY("floor_scale", attention.q_scale.every, 1, 1 << 30),
                                      TRI_NUM_KEY("attn_scale", attention.q_scale.beta, 0, 1e3),
                                      TRI_READ_KEY("attn_temperature_tuning"), /* this and the next two: prepare */
                                      TRI_READ_KEY("no_rope_layers"),
                                      TRI_READ_KEY("no_rope_layer_interval"),
                                      TRI_READ_KEY("moe_layers"), /* this and the next: finish */
                                      TRI_READ_KEY("interleave_moe_layer_step"),
                                      TRI_IGNORED_KEYS("for_llm_compressor"),
                                      {0}};

#define STACKED(n, w, p)                                                                                               \
  {                                                                                                                    \
    .name = "layers.%d.feed_forward.experts." n, .weight = TRI_W_##w, .part = TRI_PART_##p,                            \
    .flags = TRI_TENSOR_STACKED | TRI_TENSOR_TRANSPOSED                                                                \
  }
static const tri_tensor_rule tensors[] = {TRI_RULES_LLAMA_ENDS,
                                          TRI_RULES_LLAMA_ATTENTION,
                                          TRI_RULES_LLAMA_NORMS,
                                          TRI_RULES_GATED("layers.%d.feed_forward."),
                                          TRI_RULE("layers.%d.feed_forward.router.weight", ROUTER),
                                          STACKED("gate_up_proj", EXPERT_UP, GATE_UP_CONCAT),
                                          STACKED("down_proj", EXPERT_DOWN, WHOLE),
                                          TRI_RULES_SHARED("layers.%d.feed_forward.shared_expert."),
                                          {0}};

/* A switch, which early releases have as a number. */
static tri_status read_tuning(tri_model_config *c, const tri_json *root, tri_error *err) {
  static const char key[] = "attn_temperature_tuning";
  const tri_json *v = tri_json_get(root, key);
  bool on = true;
  double number = 1;
  if (tri_json_as_num(v, &number))
    on = number != 0;
  else
    TRI_CHECK(tri_config_bool(root, key, &on, err));
  if (!on) c->attention.q_scale.beta = 0;
  return TRI_OK;
}

static tri_status prepare(tri_model_config *c, const tri_json *root, tri_error *err) {
  TRI_CHECK(read_tuning(c, root, err));
  c->moe.shared_size = c->moe.intermediate_size;
  if (c->attention.has_qk_norm) c->attention.qk_norm = TRI_QK_NORM_BARE;
  return tri_config_no_rope_layers(c, root, 4, err);
}

/* A list of numbers of layers. */
static tri_status read_moe_layers(tri_model_config *c, const tri_json *list, const char *key, tri_error *err) {
  if (tri_json_kind_of(list) != TRI_JSON_ARRAY)
    return tri_fail(err, TRI_INVALID_ARGUMENT, key, "%s must be a list of numbers of layers", key);
  for (size_t i = 0; i < tri_json_size(list); i++) {
    int64_t layer;
    if (!tri_json_as_int(tri_json_at(list, i), &layer) || layer < 0 || layer >= c->num_layers)
      return tri_fail(err, TRI_OUT_OF_RANGE, key, "%s[%zu] must be a number from 0 to %lld", key, i,
                      (long long)c->num_layers - 1);
    c->layer_flags[layer] |= TRI_LAYER_SPARSE;
  }
  return TRI_OK;
}

static tri_status finish(tri_model_config *c, const tri_json *root, tri_error *err) {
  const tri_json *moe = tri_json_get(root, "moe_layers"), *types = tri_json_get(root, "layer_types");
  double step = 1;
  TRI_CHECK(tri_config_number(root, "interleave_moe_layer_step", 1, TRI_MAX_LAYERS, &step, err));
  if (tri_json_kind_of(moe) == TRI_JSON_NULL)
    tri_config_sparse_layers(c, (int)step - 1, (int)step);
  else
    TRI_CHECK(read_moe_layers(c, moe, "moe_layers", err));
  for (int64_t l = 0; l < c->num_layers && c->attention.window && tri_json_kind_of(types) == TRI_JSON_NULL; l++)
    if (!(c->layer_flags[l] & TRI_LAYER_NO_ROPE)) c->layer_flags[l] |= TRI_LAYER_LOCAL;
  if (c->attention.qk_norm == TRI_QK_NORM_BARE && c->attention.rope.attention_scale != 1)
    return tri_fail(err, TRI_UNSUPPORTED, "rope_scaling",
                    "a rotary scaling that changes lengths is not supported with use_qk_norm");
  return TRI_OK;
}

const tri_arch tri_arch_llama4_text = {
    .model_type = "llama4_text",
    .class_names = {"Llama4ForCausalLM"},
    .multimodal_type = "llama4",
    .multimodal_class = "Llama4ForConditionalGeneration",
    .prefix = "model.",
    .keys = keys,
    .tensors = tensors,
    .defaults = {TRI_LLAMA_DEFAULTS, .norm.eps = 1e-5, .mlp.intermediate_size = 16384, .attention.num_kv_heads = 8,
                 .attention.head_dim = 128, .attention.rope_theta = 500000, .attention.rope = {.interleaved = true},
                 .attention.has_qk_norm = true, .attention.window = 8192, .attention.chunked = true,
                 .attention.q_scale = {.beta = 0.1, .offset = 1, .every = 8192, .without_rope = true},
                 .moe = {.num_experts = 16,
                         .top_k = 1,
                         .intermediate_size = 8192,
                         .has_shared = true,
                         .score = TRI_MOE_SIGMOID,
                         .scale_input = true},
                 .max_position_embeddings = 4096 * 32},
    .prepare = prepare,
    .finish = finish,
};
