/* SPDX-License-Identifier: Apache-2.0 */
/* T5 (Raffel et al., 2020) with plain MLPs, and T5 1.1 and Flan-T5 with gated ones: norms without a mean before
 * every branch, scores that are not scaled, and learned biases of distances that all layers share. */
#include <math.h>
#include <string.h>

#include "runtime/model/arch/rules.h"

static const tri_config_key keys[] = {
    TRI_INT_KEY("d_model", hidden_size, 1, 1 << 20),
    TRI_INT_KEY("d_kv", attention.head_dim, 1, 1024),
    TRI_INT_KEY("d_ff", mlp.intermediate_size, 1, 1 << 24),
    TRI_INT_KEY("num_heads", attention.num_heads, 1, 1 << 16),
    TRI_INT_KEY("num_layers", seq2seq.num_layers, 1, TRI_MAX_LAYERS),
    TRI_INT_KEY("num_decoder_layers", num_layers, 1, TRI_MAX_LAYERS),
    TRI_INT_KEY("n_positions", max_position_embeddings, 1, 1 << 28),
    TRI_INT_KEY("relative_attention_num_buckets", attention.bias_buckets, 4, 1 << 16),
    TRI_INT_KEY("relative_attention_max_distance", attention.bias_max_distance, 1, 1 << 20),
    TRI_NUM_KEY("layer_norm_epsilon", norm.eps, 0, 1),
    TRI_READ_KEY("feed_forward_proj"),     /* read by prepare */
    TRI_IGNORED_KEYS("dense_act_fn"),      /* follows from feed_forward_proj */
    TRI_IGNORED_KEYS("is_gated_act"),      /* the same */
    TRI_READ_KEY("scale_decoder_outputs"), /* read by prepare */
    TRI_IGNORED_KEYS("dropout_rate initializer_factor output_past"),
    {0},
};

#define QKV_AND_O(p)                                                                                                   \
  TRI_RULE_PART(p ".q.weight", QKV, Q), TRI_RULE_PART(p ".k.weight", QKV, K), TRI_RULE_PART(p ".v.weight", QKV, V),    \
      TRI_RULE(p ".o.weight", O)
#define MLP(p)                                                                                                         \
  TRI_RULE_PART_IF(p ".wi_0.weight", UP, GATE, mlp.gated), TRI_RULE_PART_IF(p ".wi_1.weight", UP, UP, mlp.gated),      \
      TRI_RULE_UNLESS(p ".wi.weight", UP, mlp.gated), TRI_RULE(p ".wo.weight", DOWN)

static const tri_tensor_rule tensors[] = {
    TRI_RULE("shared.weight", EMBED),
    TRI_RULE("decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight", RELATIVE_BIAS),
    TRI_RULE("decoder.block.%d.layer.0.layer_norm.weight", NORM1),
    QKV_AND_O("decoder.block.%d.layer.0.SelfAttention"),
    TRI_RULE("decoder.block.%d.layer.1.layer_norm.weight", CROSS_NORM),
    TRI_RULE("decoder.block.%d.layer.1.EncDecAttention.q.weight", CROSS_Q),
    TRI_RULE_PART("decoder.block.%d.layer.1.EncDecAttention.k.weight", CROSS_KV, K),
    TRI_RULE_PART("decoder.block.%d.layer.1.EncDecAttention.v.weight", CROSS_KV, V),
    TRI_RULE("decoder.block.%d.layer.1.EncDecAttention.o.weight", CROSS_O),
    TRI_RULE("decoder.block.%d.layer.2.layer_norm.weight", NORM2),
    MLP("decoder.block.%d.layer.2.DenseReluDense"),
    TRI_RULE("decoder.final_layer_norm.weight", FINAL_NORM),
    TRI_RULE("lm_head.weight", HEAD),
    {0},
};

static const tri_tensor_rule encoder_tensors[] = {
    TRI_RULE("encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight", RELATIVE_BIAS),
    TRI_RULE("encoder.block.%d.layer.0.layer_norm.weight", NORM1),
    QKV_AND_O("encoder.block.%d.layer.0.SelfAttention"),
    TRI_RULE("encoder.block.%d.layer.1.layer_norm.weight", NORM2),
    MLP("encoder.block.%d.layer.1.DenseReluDense"),
    TRI_RULE("encoder.final_layer_norm.weight", FINAL_NORM),
    {0},
};

static const tri_arch encoder = {.model_type = "t5", .prefix = "", .tensors = encoder_tensors};

/* "relu" or "gated-gelu", where gelu means its approximation by tanh. */
static tri_status read_mlp(tri_model_config *c, const tri_json *root, tri_error *err) {
  static const char key[] = "feed_forward_proj";
  const char *name = tri_json_get_str(root, key);
  if (!name) return TRI_OK;
  c->mlp.gated = !strncmp(name, "gated-", 6);
  const char *act = c->mlp.gated ? name + 6 : name;
  if (!tri_act_from_name(!strcmp(name, "gated-gelu") ? "gelu_new" : act, &c->mlp.act))
    return tri_fail(err, TRI_UNSUPPORTED, key, "%s \"%.40s\" is not supported", key, name);
  return TRI_OK;
}

/* The first T5 scales what goes into its tied head. Files of 1.1 say that the head is not tied, and, where they were
 * written by transformers 5, that the outputs are not scaled. */
static tri_status prepare(tri_model_config *c, const tri_json *root, tri_error *err) {
  bool scaled = c->head.tie_word_embeddings;
  TRI_CHECK(read_mlp(c, root, err));
  TRI_CHECK(tri_config_bool(root, "scale_decoder_outputs", &scaled, err));
  /* Half of the buckets, one for each distance, must end before the others do. */
  if (c->attention.bias_max_distance <= c->attention.bias_buckets / 2)
    return tri_fail(err, TRI_OUT_OF_RANGE, "relative_attention_max_distance",
                    "relative_attention_max_distance is %lld, more than half of the %lld buckets are needed",
                    (long long)c->attention.bias_max_distance, (long long)c->attention.bias_buckets);
  if (!c->num_layers) c->num_layers = c->seq2seq.num_layers;
  c->seq2seq.num_heads = c->attention.num_heads;
  c->seq2seq.intermediate_size = c->mlp.intermediate_size;
  if (scaled) c->head.logit_scale = 1 / sqrt((double)c->hidden_size);
  return TRI_OK;
}

const tri_arch tri_arch_t5 = {
    .model_type = "t5",
    .class_names = {"T5ForConditionalGeneration"},
    .prefix = "",
    .keys = keys,
    /* Tensors that the reference makes no use of: copies of the embedding, and biases of a cross-attention in the first
     * files. */
    .ignored_tensors = {"encoder.embed_tokens.weight", "decoder.embed_tokens.weight",
                        "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"},
    .tensors = tensors,
    .defaults = {.seq2seq = {.on = true},
                 .norm.kind = TRI_NORM_RMS,
                 .norm.eps = 1e-6,
                 .mlp.act = TRI_ACT_RELU,
                 .attention.scale = 1,
                 .attention.position = TRI_POS_RELATIVE,
                 .attention.bias_buckets = 32,
                 .attention.bias_max_distance = 128,
                 .head.tie_word_embeddings = true,
                 .max_position_embeddings = 512},
    .prepare = prepare,
    .source = &encoder,
};
