/* SPDX-License-Identifier: Apache-2.0 */
/* Cohere (Command-R): LayerNorm without bias, attention and gated MLP side by side after one norm, rotary pairs,
 * scaled logits; the larger ones norm each head of queries and keys with a gain of its own. Cohere-2 (Command R7B, A):
 * windows in three of four layers; the others do not rotate. */
#include <string.h>

#include "runtime/model/arch/rules.h"

static const tri_config_key keys[] = {TRI_KEYS_LLAMA,
                                      TRI_NUM_KEY("layer_norm_eps", norm.eps, 0, 1),
                                      TRI_NUM_KEY("logit_scale", head.logit_scale, -1e6, 1e6),
                                      TRI_KEY_ATTENTION_BIAS,
                                      TRI_BOOL_KEY("use_qk_norm", attention.has_qk_norm),
                                      {0}};

static const tri_config_key keys2[] = {TRI_KEYS_LLAMA,
                                       TRI_NUM_KEY("layer_norm_eps", norm.eps, 0, 1),
                                       TRI_NUM_KEY("logit_scale", head.logit_scale, -1e6, 1e6),
                                       TRI_KEY_ATTENTION_BIAS,
                                       TRI_KEY_WINDOW,
                                       TRI_KEY_WINDOW_PATTERN,
                                       TRI_READ_KEY("position_embedding_type"), /* both read by finish2 */
                                       TRI_READ_KEY("order_of_interleaved_layers"),
                                       TRI_IGNORED_KEYS("cache_implementation layer_switch use_embedding_sharing "
                                                        "use_gated_activation use_parallel_embedding"),
                                       {0}};

static const tri_tensor_rule tensors[] = {TRI_RULES_LLAMA_ENDS,
                                          TRI_RULES_LLAMA_ATTENTION,
                                          TRI_RULES_QK_NORM,
                                          TRI_RULE("layers.%d.input_layernorm.weight", NORM1),
                                          TRI_RULES_GATED("layers.%d.mlp."),
                                          {0}};

static tri_status finish(tri_model_config *c, const tri_json *root, tri_error *err) {
  (void)root;
  (void)err;
  if (c->attention.has_qk_norm) c->attention.qk_norm = TRI_QK_NORM_EACH_HEAD;
  return TRI_OK;
}

static tri_status expect_word(const tri_json *root, const char *key, const char *word, tri_error *err) {
  const char *said = tri_json_get_str(root, key);
  if (tri_json_kind_of(tri_json_get(root, key)) == TRI_JSON_NULL || (said && !strcmp(said, word))) return TRI_OK;
  return tri_fail(err, TRI_UNSUPPORTED, key, "%s \"%.40s\" is not supported: only %s", key, said ? said : "?", word);
}

/* Without a window no layer would rotate. Releases say what the family has anyway. */
static tri_status finish2(tri_model_config *c, const tri_json *root, tri_error *err) {
  TRI_CHECK(expect_word(root, "position_embedding_type", "rope_gptj", err));
  TRI_CHECK(expect_word(root, "order_of_interleaved_layers", "local_attn_first", err));
  if (c->attention.window) return TRI_OK;
  return tri_fail(err, TRI_UNSUPPORTED, "sliding_window", "cohere2 without a sliding_window is not supported");
}

#define DEFAULTS                                                                                                       \
  .norm.kind = TRI_NORM_LAYER, .norm.eps = 1e-5, .mlp.act = TRI_ACT_SILU, .mlp.gated = true,                           \
  .norm.parallel_residual = true, .norm.one_norm = true, .head.logit_scale = 0.0625, .head.tie_word_embeddings = true, \
  .attention.position = TRI_POS_ROPE, .attention.rope = {.interleaved = true}, .max_position_embeddings = 8192

const tri_arch tri_arch_cohere = {
    .model_type = "cohere",
    .class_names = {"CohereForCausalLM"},
    .prefix = "model.",
    .keys = keys,
    .tensors = tensors,
    .defaults = {DEFAULTS},
    .finish = finish,
};

const tri_arch tri_arch_cohere2 = {
    .model_type = "cohere2",
    .class_names = {"Cohere2ForCausalLM"},
    .prefix = "model.",
    .keys = keys2,
    .tensors = tensors,
    .defaults = {DEFAULTS, .attention.window = 4096, .attention.global_every = 4, .attention.global_no_rope = true},
    .finish = finish2,
};
