/* SPDX-License-Identifier: Apache-2.0 */
/* GTE (Zhang et al., mGTE, 2024), whose model_type is "new": BERT with rotary positions and gated MLPs, the up
 * projection above the gate in one tensor. */
#include "runtime/model/arch/rules.h"

static const tri_config_key keys[] = {
    TRI_KEYS_ENCODER,
    TRI_INT_KEY("type_vocab_size", embed.type_vocab_size, 0, 1 << 16),
    TRI_READ_KEY("pack_qkv"), /* read by finish, as the next one */
    TRI_READ_KEY("layer_norm_type"),
    TRI_OFF_KEY("logn_attention_scale"),
    TRI_IGNORED_KEYS("logn_attention_clip1 unpad_inputs use_memory_efficient_attention"),
    {0},
};

static const tri_tensor_rule tensors[] = {
    TRI_RULE("embeddings.word_embeddings.weight", EMBED),
    TRI_RULE("embeddings.token_type_embeddings.weight", TYPES),
    TRI_RULES_NORM("embeddings.LayerNorm", EMBED_NORM),
    TRI_RULE_PART("encoder.layer.%d.attention.qkv_proj.weight", QKV, QKV_CONCAT),
    TRI_RULE_PART("encoder.layer.%d.attention.qkv_proj.bias", QKV_BIAS, QKV_CONCAT),
    TRI_RULES_O("encoder.layer.%d.attention.o_proj"),
    TRI_RULES_NORM("encoder.layer.%d.attn_ln", NORM1),
    TRI_RULE_PART("encoder.layer.%d.mlp.up_gate_proj.weight", UP, UP_GATE_CONCAT),
    TRI_RULE("encoder.layer.%d.mlp.down_proj.weight", DOWN),
    TRI_RULE("encoder.layer.%d.mlp.down_proj.bias", DOWN_BIAS),
    TRI_RULES_NORM("encoder.layer.%d.mlp_ln", NORM2),
    TRI_RULES_IF("pooler.dense", POOLER, head.has_pooler),
    TRI_RULES_IF("classifier", CLASSIFIER, head.has_classifier),
    {0},
};

static tri_status finish(tri_model_config *c, const tri_json *root, tri_error *err) {
  bool packed = true;
  TRI_CHECK(tri_config_must_be(root, "position_embedding_type", "rope", err));
  TRI_CHECK(tri_config_must_be(root, "layer_norm_type", "layer_norm", err));
  TRI_CHECK(tri_config_bool(root, "pack_qkv", &packed, err));
  if (!packed)
    return tri_fail(err, TRI_UNSUPPORTED, "pack_qkv", "pack_qkv false is not supported: projections must be in one");
  TRI_CHECK(tri_config_encoder(c, root, err));
  c->head.has_pooler = c->head.sequence_head;
  return TRI_OK;
}

/* Folders of vectors may have the head that weights tokens, and a pooler. */
#define IGNORED                                                                                                        \
  { "classifier.weight", "classifier.bias", "pooler.dense.weight", "pooler.dense.bias" }
#define DEFAULTS                                                                                                       \
  .encoder = true, .norm.kind = TRI_NORM_LAYER, .norm.bias = true, .norm.place = TRI_NORM_SUM, .norm.eps = 1e-12,      \
  .norm.no_final = true, .embed.norm = true, .embed.type_vocab_size = 1, .attention.bias = true,                       \
  .attention.o_bias = true, .mlp.bias = true, .mlp.no_up_bias = true, .mlp.act = TRI_ACT_GELU_ERF, .mlp.gated = true,  \
  .attention.position = TRI_POS_ROPE, .attention.scales_by_ntk = true, .head.pool_act = TRI_ACT_TANH,                  \
  .max_position_embeddings = 2048

const tri_arch tri_arch_gte = {
    .model_type = "new",
    .class_names = {"NewModel", "NewForSequenceClassification", "NewForTokenClassification"},
    .prefix = "new.",
    .keys = keys,
    .ignored_tensors = IGNORED,
    .tensors = tensors,
    .defaults = {DEFAULTS},
    .finish = finish,
};

/* The same as transformers 5 saves it. */
const tri_arch tri_arch_gte_v5 = {
    .model_type = "gte",
    .class_names = {"GteModel", "GteForSequenceClassification", "GteForTokenClassification"},
    .prefix = "gte.",
    .keys = keys,
    .ignored_tensors = IGNORED,
    .tensors = tensors,
    .defaults = {DEFAULTS},
    .finish = finish,
};
