/* SPDX-License-Identifier: Apache-2.0 */
/* Rows that many tables of tensors share. Each macro ends without a comma. n, q, k, v, up, down: names in the
 * checkpoint. w: a weight without TRI_W_. p: a part without TRI_PART_, or the beginning of names. `field` is a bool of
 * tri_model_config: a model has the tensor where it is true (_IF) or false (_UNLESS). */
#ifndef TRI_RUNTIME_MODEL_ARCH_RULES_H
#define TRI_RUNTIME_MODEL_ARCH_RULES_H

#include "runtime/model/arch.h"

#define TRI_RULE(n, w)                                                                                                 \
  { .name = n, .weight = TRI_W_##w }
#define TRI_RULE_IF(n, w, field)                                                                                       \
  { .name = n, .weight = TRI_W_##w, .if_field = TRI_IF(field) }
#define TRI_RULE_UNLESS(n, w, field)                                                                                   \
  { .name = n, .weight = TRI_W_##w, .unless_field = TRI_IF(field) }
/* Both tensors of what some models have and others have not. */
#define TRI_RULES_IF(n, w, field) TRI_RULE_IF(n ".weight", w, field), TRI_RULE_IF(n ".bias", w##_BIAS, field)
#define TRI_RULES_UNLESS(n, w, field)                                                                                  \
  TRI_RULE_UNLESS(n ".weight", w, field), TRI_RULE_UNLESS(n ".bias", w##_BIAS, field)
#define TRI_RULE_PART(n, w, p)                                                                                         \
  { .name = n, .weight = TRI_W_##w, .part = TRI_PART_##p }
#define TRI_RULE_PART_IF(n, w, p, field)                                                                               \
  { .name = n, .weight = TRI_W_##w, .part = TRI_PART_##p, .if_field = TRI_IF(field) }
#define TRI_RULE_TRANSPOSED(n, w, p)                                                                                   \
  { .name = n, .weight = TRI_W_##w, .part = TRI_PART_##p, .flags = TRI_TENSOR_TRANSPOSED }

/* A norm and, where the model's norms have one, its bias. */
#define TRI_RULES_NORM(n, w) TRI_RULE(n ".weight", w), TRI_RULE_IF(n ".bias", w##_BIAS, norm.bias)

/* Separate projections of queries, keys and values. */
#define TRI_RULES_QKV_NAMED(q, k, v)                                                                                   \
  TRI_RULE_PART(q ".weight", QKV, Q), TRI_RULE_PART(k ".weight", QKV, K), TRI_RULE_PART(v ".weight", QKV, V),          \
      TRI_RULE_PART_IF(q ".bias", QKV_BIAS, Q, attention.bias),                                                        \
      TRI_RULE_PART_IF(k ".bias", QKV_BIAS, K, attention.bias),                                                        \
      TRI_RULE_PART_IF(v ".bias", QKV_BIAS, V, attention.bias)
#define TRI_RULES_QKV(p) TRI_RULES_QKV_NAMED(p "q_proj", p "k_proj", p "v_proj")

#define TRI_RULES_O(n) TRI_RULE(n ".weight", O), TRI_RULE_IF(n ".bias", O_BIAS, attention.o_bias)

/* A plain MLP of two layers. */
#define TRI_RULES_MLP(up, down)                                                                                        \
  TRI_RULE(up ".weight", UP), TRI_RULE_IF(up ".bias", UP_BIAS, mlp.bias), TRI_RULE(down ".weight", DOWN),              \
      TRI_RULE_IF(down ".bias", DOWN_BIAS, mlp.bias)

/* A gated MLP whose projections are stored apart. */
#define TRI_RULES_GATED(p)                                                                                             \
  TRI_RULE_PART(p "gate_proj.weight", UP, GATE), TRI_RULE_PART(p "up_proj.weight", UP, UP),                            \
      TRI_RULE(p "down_proj.weight", DOWN), TRI_RULE_PART_IF(p "gate_proj.bias", UP_BIAS, GATE, mlp.bias),             \
      TRI_RULE_PART_IF(p "up_proj.bias", UP_BIAS, UP, mlp.bias), TRI_RULE_IF(p "down_proj.bias", DOWN_BIAS, mlp.bias)

/* The parts of a decoder as Llama and its descendants call them. */
#define TRI_RULES_LLAMA_ATTENTION TRI_RULES_QKV("layers.%d.self_attn."), TRI_RULES_O("layers.%d.self_attn.o_proj")
#define TRI_RULES_QK_NORM                                                                                              \
  TRI_RULE_IF("layers.%d.self_attn.q_norm.weight", Q_NORM, attention.has_qk_norm),                                     \
      TRI_RULE_IF("layers.%d.self_attn.k_norm.weight", K_NORM, attention.has_qk_norm)
#define TRI_RULES_LLAMA_ENDS                                                                                           \
  TRI_RULE("embed_tokens.weight", EMBED), TRI_RULES_NORM("norm", FINAL_NORM), TRI_RULE("lm_head.weight", HEAD)
#define TRI_RULES_LLAMA                                                                                                \
  TRI_RULES_LLAMA_ENDS, TRI_RULES_LLAMA_ATTENTION, TRI_RULES_LLAMA_NORMS, TRI_RULES_GATED("layers.%d.mlp.")

/* Experts, each with tensors of its own. */
#define TRI_RULE_EXPERT(n, w, p)                                                                                       \
  { .name = n, .weight = TRI_W_##w, .part = TRI_PART_##p, .flags = TRI_TENSOR_PER_EXPERT }
#define TRI_RULES_EXPERTS(p, gate, up, down)                                                                           \
  TRI_RULE_EXPERT(p gate ".weight", EXPERT_UP, GATE), TRI_RULE_EXPERT(p up ".weight", EXPERT_UP, UP),                  \
      TRI_RULE_EXPERT(p down ".weight", EXPERT_DOWN, WHOLE)
/* A gated expert for every token. */
#define TRI_RULES_SHARED(p)                                                                                            \
  TRI_RULE_PART_IF(p "gate_proj.weight", SHARED_UP, GATE, moe.has_shared),                                             \
      TRI_RULE_PART_IF(p "up_proj.weight", SHARED_UP, UP, moe.has_shared),                                             \
      TRI_RULE_IF(p "down_proj.weight", SHARED_DOWN, moe.has_shared)
#define TRI_RULES_LLAMA_NORMS                                                                                          \
  TRI_RULES_NORM("layers.%d.input_layernorm", NORM1), TRI_RULES_NORM("layers.%d.post_attention_layernorm", NORM2)

/* Experts, and what only their training reads. */
#define TRI_KEYS_MOE                                                                                                   \
  TRI_INT_KEY("num_experts_per_tok", moe.top_k, 1, 256),                                                               \
      TRI_IGNORED_KEYS("output_router_logits router_aux_loss_coef router_jitter_noise")

/* Its keys that most descendants have. */
#define TRI_KEYS_LLAMA                                                                                                 \
  TRI_NUM_KEY("rms_norm_eps", norm.eps, 0, 1), TRI_INT_KEY("num_key_value_heads", attention.num_kv_heads, 1, 1 << 16), \
      TRI_INT_KEY("head_dim", attention.head_dim, 1, 1024), TRI_IGNORED_KEYS("pretraining_tp")
/* One switch for all four projections. */
#define TRI_KEY_ATTENTION_BIAS TRI_BOOL_KEYS("attention_bias", attention.bias, attention.o_bias)
/* All layers but every Nth have a window: read by tri_config_layer_kinds where the defaults have global_every. */
#define TRI_KEY_WINDOW_PATTERN TRI_READ_KEY("sliding_window_pattern")
#define TRI_KEY_WINDOW TRI_INT_KEY("sliding_window", attention.window, 0, 1 << 30)

/* RMSNorm, a gated MLP, rotary positions. */
#define TRI_LLAMA_DEFAULTS                                                                                             \
  .norm.kind = TRI_NORM_RMS, .mlp.act = TRI_ACT_SILU, .mlp.gated = true, .attention.position = TRI_POS_ROPE

/* LayerNorm with biases. */
#define TRI_LAYER_NORM_DEFAULTS .norm.kind = TRI_NORM_LAYER, .norm.bias = true, .norm.eps = 1e-5

/* GPT-2's keys, of which descendants have kept some. */
#define TRI_KEYS_SUMMARY                                                                                               \
  TRI_IGNORED_KEYS("summary_activation summary_first_dropout summary_proj_to_labels summary_type summary_use_proj")
#define TRI_KEYS_GPT2                                                                                                  \
  TRI_INT_KEY("n_embd", hidden_size, 1, 1 << 20), TRI_INT_KEY("n_layer", num_layers, 1, TRI_MAX_LAYERS),               \
      TRI_INT_KEY("n_head", attention.num_heads, 1, 1 << 16),                                                          \
      TRI_INT_KEY("n_positions", max_position_embeddings, 1, 1 << 28),                                                 \
      TRI_INT_KEY("n_inner", mlp.intermediate_size, 1, 1 << 24), TRI_NUM_KEY("layer_norm_epsilon", norm.eps, 0, 1),    \
      TRI_IGNORED_KEYS("n_ctx embd_pdrop resid_pdrop attn_pdrop"), TRI_KEYS_SUMMARY

/* Rules that BERT and its descendants share. */
#define TRI_RULES_BERT_EMBEDDINGS                                                                                      \
  TRI_RULE("embeddings.word_embeddings.weight", EMBED), TRI_RULE("embeddings.position_embeddings.weight", POSITIONS),  \
      TRI_RULE("embeddings.token_type_embeddings.weight", TYPES), TRI_RULES_NORM("embeddings.LayerNorm", EMBED_NORM)
#define TRI_RULES_BERT                                                                                                 \
  TRI_RULES_BERT_EMBEDDINGS,                                                                                           \
      TRI_RULES_QKV_NAMED("encoder.layer.%d.attention.self.query", "encoder.layer.%d.attention.self.key",              \
                          "encoder.layer.%d.attention.self.value"),                                                    \
      TRI_RULES_O("encoder.layer.%d.attention.output.dense"),                                                          \
      TRI_RULES_NORM("encoder.layer.%d.attention.output.LayerNorm", NORM1),                                            \
      TRI_RULES_MLP("encoder.layer.%d.intermediate.dense", "encoder.layer.%d.output.dense"),                           \
      TRI_RULES_NORM("encoder.layer.%d.output.LayerNorm", NORM2)
#define TRI_KEYS_ENCODER                                                                                               \
  TRI_NUM_KEY("layer_norm_eps", norm.eps, 0, 1), TRI_OFF_KEY("is_decoder"),                                            \
      TRI_READ_KEY("position_embedding_type"), /* read by tri_config_encoder */                                        \
      TRI_IGNORED_KEYS("hidden_dropout_prob attention_probs_dropout_prob")
#define TRI_ENCODER_DEFAULTS                                                                                           \
  .encoder = true, .norm.kind = TRI_NORM_LAYER, .norm.bias = true, .norm.place = TRI_NORM_SUM, .norm.eps = 1e-12,      \
  .embed.norm = true, .norm.no_final = true, .attention.bias = true, .attention.o_bias = true, .mlp.bias = true,       \
  .attention.position = TRI_POS_LEARNED, .max_position_embeddings = 512

/* Rules that BART and its descendants share: one layer of a stack ("encoder" or "decoder"), and a decoder's
 * cross-attention.
 */
#define TRI_RULES_BART_LAYERS(stack)                                                                                   \
  TRI_RULES_QKV(stack ".layers.%d.self_attn."), TRI_RULES_O(stack ".layers.%d.self_attn.out_proj"),                    \
      TRI_RULES_NORM(stack ".layers.%d.self_attn_layer_norm", NORM1),                                                  \
      TRI_RULES_MLP(stack ".layers.%d.fc1", stack ".layers.%d.fc2"),                                                   \
      TRI_RULES_NORM(stack ".layers.%d.final_layer_norm", NORM2)
#define TRI_RULES_BART_CROSS                                                                                           \
  TRI_RULES_NORM("decoder.layers.%d.encoder_attn_layer_norm", CROSS_NORM),                                             \
      TRI_RULE("decoder.layers.%d.encoder_attn.q_proj.weight", CROSS_Q),                                               \
      TRI_RULE("decoder.layers.%d.encoder_attn.q_proj.bias", CROSS_Q_BIAS),                                            \
      TRI_RULE_PART("decoder.layers.%d.encoder_attn.k_proj.weight", CROSS_KV, K),                                      \
      TRI_RULE_PART("decoder.layers.%d.encoder_attn.v_proj.weight", CROSS_KV, V),                                      \
      TRI_RULE_PART("decoder.layers.%d.encoder_attn.k_proj.bias", CROSS_KV_BIAS, K),                                   \
      TRI_RULE_PART("decoder.layers.%d.encoder_attn.v_proj.bias", CROSS_KV_BIAS, V),                                   \
      TRI_RULE("decoder.layers.%d.encoder_attn.out_proj.weight", CROSS_O),                                             \
      TRI_RULE("decoder.layers.%d.encoder_attn.out_proj.bias", CROSS_O_BIAS)
#define TRI_KEYS_BART                                                                                                  \
  TRI_INT_KEY("d_model", hidden_size, 1, 1 << 20), TRI_INT_KEY("decoder_layers", num_layers, 1, TRI_MAX_LAYERS),       \
      TRI_INT_KEY("decoder_attention_heads", attention.num_heads, 1, 1 << 16),                                         \
      TRI_INT_KEY("decoder_ffn_dim", mlp.intermediate_size, 1, 1 << 24),                                               \
      TRI_INT_KEY("encoder_layers", seq2seq.num_layers, 1, TRI_MAX_LAYERS),                                            \
      TRI_INT_KEY("encoder_attention_heads", seq2seq.num_heads, 1, 1 << 16),                                           \
      TRI_INT_KEY("encoder_ffn_dim", seq2seq.intermediate_size, 1, 1 << 24),                                           \
      TRI_IGNORED_KEYS("num_hidden_layers"), /* the encoder's once more */                                             \
      TRI_READ_KEY("scale_embedding"),       /* this and the next two are read by tri_config_bart */                   \
      TRI_READ_KEY("normalize_embedding"), TRI_READ_KEY("static_position_embeddings"),                                 \
      TRI_OFF_KEY("normalize_before"), TRI_OFF_KEY("add_final_layer_norm"), TRI_OFF_KEY("add_bias_logits"),            \
      TRI_IGNORED_KEYS("extra_pos_embeddings dropout activation_dropout decoder_layerdrop encoder_layerdrop init_std " \
                       "classif_dropout force_bos_token_to_be_generated save_step output_past")
#define TRI_BART_DEFAULTS                                                                                              \
  .seq2seq = {.on = true}, .norm.kind = TRI_NORM_LAYER, .norm.bias = true, .norm.place = TRI_NORM_SUM,                 \
  .norm.eps = 1e-5, .norm.no_final = true, .attention.bias = true, .attention.o_bias = true, .mlp.bias = true,         \
  .head.bias = true, .mlp.act = TRI_ACT_GELU_ERF, .head.tie_word_embeddings = true, .max_position_embeddings = 1024

#endif
