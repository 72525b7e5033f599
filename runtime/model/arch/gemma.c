/* SPDX-License-Identifier: Apache-2.0 */
/* Gemma, Gemma-2 and Gemma-3: scaled embeddings, gains stored as their difference from one. Gemma-2: norms before and
 * after each branch, soft caps on attention scores and logits, a sliding window in every second layer. Gemma-3: no soft
 * caps, a norm of each head of queries and keys, windows in all layers but every sixth, and for them rotary angles of
 * their own. EmbeddingGemma: Gemma-3 as an encoder, whose tokens see those after them, too. */
#include <math.h>

#include "runtime/model/arch/rules.h"

static const tri_config_key keys[] = {TRI_KEYS_LLAMA, TRI_KEY_ATTENTION_BIAS, {0}};
static const tri_config_key keys2[] = {TRI_KEYS_LLAMA,
                                       TRI_KEY_WINDOW,
                                       TRI_KEY_ATTENTION_BIAS,
                                       TRI_NUM_KEY("attn_logit_softcapping", attention.softcap, 0, 1e6),
                                       TRI_NUM_KEY("final_logit_softcapping", head.logit_softcap, 0, 1e6),
                                       TRI_READ_KEY("query_pre_attn_scalar"), /* read by finish */
                                       TRI_IGNORED_KEYS("cache_implementation"),
                                       {0}};
#define GEMMA3_KEYS                                                                                                    \
  TRI_KEYS_LLAMA, TRI_KEY_WINDOW, TRI_KEY_WINDOW_PATTERN, TRI_KEY_ATTENTION_BIAS,                                      \
      TRI_NUM_KEY("attn_logit_softcapping", attention.softcap, 0, 1e6),                                                \
      TRI_NUM_KEY("final_logit_softcapping", head.logit_softcap, 0, 1e6),                                              \
      TRI_NUM_KEY("rope_local_base_freq", attention.local_rope_theta, 1, 1e12),                                        \
      TRI_READ_KEY("query_pre_attn_scalar") /* read by finish2 */
static const tri_config_key keys3[] = {
    GEMMA3_KEYS, TRI_BOOL_KEY("use_bidirectional_attention", attention.bidirectional), {0}};

static const tri_tensor_rule tensors[] = {TRI_RULES_LLAMA, {0}};
static const tri_tensor_rule tensors2[] = {TRI_RULES_LLAMA_ENDS,
                                           TRI_RULES_LLAMA_ATTENTION,
                                           TRI_RULES_QK_NORM,
                                           TRI_RULES_GATED("layers.%d.mlp."),
                                           TRI_RULE("layers.%d.input_layernorm.weight", NORM1),
                                           TRI_RULE("layers.%d.post_attention_layernorm.weight", BRANCH_NORM1),
                                           TRI_RULE("layers.%d.pre_feedforward_layernorm.weight", NORM2),
                                           TRI_RULE("layers.%d.post_feedforward_layernorm.weight", BRANCH_NORM2),
                                           {0}};

/* The factor of embeddings is not in the file. */
static tri_status finish(tri_model_config *c, const tri_json *root, tri_error *err) {
  (void)err;
  c->embed.scale = sqrt((double)c->hidden_size);
  /* Early files say hidden_act "gelu" and mean the tanh form, which is what the models were trained with. */
  if (tri_json_kind_of(tri_json_get(root, "hidden_activation")) == TRI_JSON_NULL && c->mlp.act == TRI_ACT_GELU_ERF)
    c->mlp.act = TRI_ACT_GELU_TANH;
  return TRI_OK;
}

/* Gemma-2 and Gemma-3 divide scores by the root of query_pre_attn_scalar instead of the head's size; the rest is
 * Gemma's. */
static tri_status finish2(tri_model_config *c, const tri_json *root, tri_error *err) {
  double scalar = 256;
  TRI_CHECK(tri_config_number(root, "query_pre_attn_scalar", 1e-3, 1e6, &scalar, err));
  c->attention.scale = 1 / sqrt(scalar);
  return finish(c, root, err);
}

/* EmbeddingGemma's window counts the neighbours on both sides. */
static tri_status finish3(tri_model_config *c, const tri_json *root, tri_error *err) {
  if (c->attention.bidirectional && c->attention.window) c->attention.window = c->attention.window / 2 + 1;
  return finish2(c, root, err);
}

#define GEMMA_DEFAULTS                                                                                                 \
  .norm.kind = TRI_NORM_RMS, .norm.weight_offset = 1, .norm.eps = 1e-6, .mlp.act = TRI_ACT_GELU_TANH,                  \
  .mlp.gated = true, .attention.head_dim = 256, .head.tie_word_embeddings = true, .attention.position = TRI_POS_ROPE

const tri_arch tri_arch_gemma = {
    .model_type = "gemma",
    .class_names = {"GemmaForCausalLM"},
    .prefix = "model.",
    .keys = keys,
    .tensors = tensors,
    .defaults = {GEMMA_DEFAULTS, .attention.num_kv_heads = 16, .max_position_embeddings = 8192},
    .finish = finish,
};

const tri_arch tri_arch_gemma2 = {
    .model_type = "gemma2",
    .class_names = {"Gemma2ForCausalLM"},
    .prefix = "model.",
    .keys = keys2,
    .tensors = tensors2,
    .defaults = {GEMMA_DEFAULTS, .attention.num_kv_heads = 4, .norm.place = TRI_NORM_BOTH, .attention.window = 4096,
                 .attention.window_every = 2, .attention.softcap = 50, .head.logit_softcap = 30,
                 .max_position_embeddings = 8192},
    .finish = finish2,
};

const tri_arch tri_arch_gemma3_text = {
    .model_type = "gemma3_text",
    .class_names = {"Gemma3ForCausalLM"},
    .multimodal_type = "gemma3",
    .multimodal_class = "Gemma3ForConditionalGeneration",
    .prefix = "model.",
    .keys = keys3,
    .tensors = tensors2,
    .defaults = {GEMMA_DEFAULTS, .vocab_size = 262208, .attention.num_heads = 8, .attention.num_kv_heads = 4,
                 .norm.place = TRI_NORM_BOTH, .attention.qk_norm = TRI_QK_NORM_HEAD, .attention.window = 4096,
                 .attention.global_every = 6, .attention.has_local_rope = true, .attention.rope_theta = 1e6,
                 .attention.local_rope_theta = 1e4, .max_position_embeddings = 131072},
    .finish = finish3,
};
