/* SPDX-License-Identifier: Apache-2.0 */
/* Falcon in its three layouts: attention and MLP side by side after one norm (7B, 11B) or after one each (40B, 180B),
 * or one after the other with ALiBi (RW). */
#include "runtime/model/arch/rules.h"

static const tri_config_key keys[] = {
    TRI_INT_KEY("n_layer", num_layers, 1, TRI_MAX_LAYERS),
    TRI_INT_KEY("n_head", attention.num_heads, 1, 1 << 16),
    TRI_INT_KEY("num_kv_heads", attention.num_kv_heads, 1, 1 << 16),
    TRI_INT_KEY("n_head_kv", attention.num_kv_heads, 1, 1 << 16),
    TRI_INT_KEY("ffn_hidden_size", mlp.intermediate_size, 1, 1 << 24),
    TRI_NUM_KEY("layer_norm_epsilon", norm.eps, 0, 1),
    TRI_BOOL_KEY("parallel_attn", norm.parallel_residual),
    TRI_BOOL_KEY("bias", mlp.bias),
    TRI_READ_KEY("alibi"), /* this one and the next three: prepare */
    TRI_READ_KEY("multi_query"),
    TRI_READ_KEY("new_decoder_architecture"),
    TRI_READ_KEY("num_ln_in_parallel_attn"),
    TRI_OFF_KEY("apply_residual_connection_post_layernorm"),
    {0},
};

static const tri_tensor_rule tensors[] = {
    TRI_RULE("word_embeddings.weight", EMBED),
    TRI_RULES_UNLESS("h.%d.input_layernorm", NORM1, norm.named),
    TRI_RULES_IF("h.%d.ln_attn", NORM1, norm.named),
    TRI_RULES_IF("h.%d.ln_mlp", NORM2, norm.named),
    TRI_RULES_UNLESS("h.%d.post_attention_layernorm", NORM2, norm.parallel_residual),
    TRI_RULE_PART("h.%d.self_attention.query_key_value.weight", QKV, QKV_INTERLEAVED),
    TRI_RULE_PART_IF("h.%d.self_attention.query_key_value.bias", QKV_BIAS, QKV_INTERLEAVED, attention.bias),
    TRI_RULES_O("h.%d.self_attention.dense"),
    TRI_RULES_MLP("h.%d.mlp.dense_h_to_4h", "h.%d.mlp.dense_4h_to_h"),
    TRI_RULES_NORM("ln_f", FINAL_NORM),
    TRI_RULE("lm_head.weight", HEAD),
    {0},
};

/* Settles which of the three layouts a file means: new_decoder_architecture is 40B and 180B, and 11B, which says with
 * num_ln_in_parallel_attn that one norm feeds both branches. */
static tri_status prepare(tri_model_config *c, const tri_json *root, tri_error *err) {
  bool alibi = false, multi_query = true, new_layout = false;
  double norms = 0;
  TRI_CHECK(tri_config_bool(root, "alibi", &alibi, err));
  TRI_CHECK(tri_config_bool(root, "multi_query", &multi_query, err));
  TRI_CHECK(tri_config_bool(root, "new_decoder_architecture", &new_layout, err));
  TRI_CHECK(tri_config_number(root, "num_ln_in_parallel_attn", 1, 2, &norms, err));
  /* With one KV head for all, the rows per KV head are all queries, the key, the value. */
  if (!new_layout) c->attention.num_kv_heads = multi_query ? 1 : c->attention.num_heads;
  if (new_layout) c->norm.parallel_residual = true;
  c->norm.named = new_layout && norms != 1;
  c->norm.one_norm = c->norm.parallel_residual && !c->norm.named;
  c->attention.bias = c->attention.o_bias = c->mlp.bias;
  if (alibi) c->attention.position = TRI_POS_ALIBI_ROUNDED;
  return TRI_OK;
}

const tri_arch tri_arch_falcon = {
    .model_type = "falcon",
    .class_names = {"FalconForCausalLM"},
    .prefix = "transformer.",
    .keys = keys,
    .tensors = tensors,
    .defaults = {TRI_LAYER_NORM_DEFAULTS, .mlp.act = TRI_ACT_GELU_ERF, .norm.parallel_residual = true,
                 .attention.position = TRI_POS_ROPE, .head.tie_word_embeddings = true, .max_position_embeddings = 2048},
    .prepare = prepare,
};
