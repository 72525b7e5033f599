/* SPDX-License-Identifier: Apache-2.0 */
/* ModernBERT (Warner et al., 2024): an encoder with norms before its branches, none before the first attention, gated
 * MLPs, and windows in all layers but every third, which rotate by another base. Its classifiers have a layer with a
 * norm between what is pooled and the scores. */
#include <string.h>

#include "runtime/model/arch/rules.h"

static const tri_config_key keys[] = {
    TRI_NUM_KEY("norm_eps", norm.eps, 0, 1),
    TRI_BOOL_KEY("norm_bias", norm.bias),
    TRI_KEY_ATTENTION_BIAS,
    TRI_BOOL_KEY("mlp_bias", mlp.bias),
    TRI_NUM_KEY("global_rope_theta", attention.rope_theta, 1, 1e12),
    TRI_NUM_KEY("local_rope_theta", attention.local_rope_theta, 1, 1e12),
    TRI_READ_KEY("local_attention"), /* read by prepare, as the next one */
    TRI_READ_KEY("global_attn_every_n_layers"),
    TRI_READ_KEY("classifier_pooling"), /* read by finish, as the next two */
    TRI_READ_KEY("classifier_activation"),
    TRI_READ_KEY("classifier_bias"),
    TRI_OFF_KEY("is_decoder"),
    /* Notes: positions rotate whatever position_embedding_type says. */
    TRI_IGNORED_KEYS("position_embedding_type decoder_bias embedding_dropout mlp_dropout initializer_cutoff_factor "
                     "deterministic_flash_attn reference_compile repad_logits_with_grad sparse_prediction "
                     "sparse_pred_ignore_index"),
    {0},
};

static const tri_tensor_rule tensors[] = {
    TRI_RULE("embeddings.tok_embeddings.weight", EMBED),
    TRI_RULES_NORM("embeddings.norm", EMBED_NORM),
    TRI_RULES_NORM("layers.%d.attn_norm", NORM1),
    TRI_RULE_PART("layers.%d.attn.Wqkv.weight", QKV, QKV_CONCAT),
    TRI_RULE_PART_IF("layers.%d.attn.Wqkv.bias", QKV_BIAS, QKV_CONCAT, attention.bias),
    TRI_RULES_O("layers.%d.attn.Wo"),
    TRI_RULES_NORM("layers.%d.mlp_norm", NORM2),
    TRI_RULE_PART("layers.%d.mlp.Wi.weight", UP, GATE_UP_CONCAT),
    TRI_RULE_PART_IF("layers.%d.mlp.Wi.bias", UP_BIAS, GATE_UP_CONCAT, mlp.bias),
    TRI_RULE("layers.%d.mlp.Wo.weight", DOWN),
    TRI_RULE_IF("layers.%d.mlp.Wo.bias", DOWN_BIAS, mlp.bias),
    TRI_RULES_NORM("final_norm", FINAL_NORM),
    TRI_RULE_IF("head.dense.weight", POOLER, head.has_pooler),
    {.name = "head.dense.bias",
     .weight = TRI_W_POOLER_BIAS,
     .if_field = TRI_IF(head.has_pooler),
     .unless_field = TRI_IF(head.pooler_no_bias)},
    TRI_RULE_IF("head.norm.weight", POOLER_NORM, head.has_pooler),
    TRI_RULE_IF("head.norm.bias", POOLER_NORM_BIAS, head.pooler_norm_bias),
    TRI_RULES_IF("classifier", CLASSIFIER, head.has_classifier),
    {0},
};

/* local_attention counts a token's neighbours on both sides. Without a list of kinds the first layer and every Nth see
 * all tokens. */
static tri_status prepare(tri_model_config *c, const tri_json *root, tri_error *err) {
  double neighbours = 128, every = 3;
  TRI_CHECK(tri_config_number(root, "local_attention", 2, 1 << 30, &neighbours, err));
  TRI_CHECK(tri_config_number(root, "global_attn_every_n_layers", 1, TRI_MAX_LAYERS, &every, err));
  c->attention.window = (int64_t)neighbours / 2 + 1;
  if (tri_json_kind_of(tri_json_get(root, "layer_types")) != TRI_JSON_NULL) return TRI_OK;
  for (int64_t l = 0; l < c->num_layers; l++)
    if (l % (int64_t)every) c->layer_flags[l] |= TRI_LAYER_LOCAL;
  return TRI_OK;
}

static tri_status read_classifier(tri_model_config *c, const tri_json *root, tri_error *err) {
  static const char pooling[] = "classifier_pooling", activation[] = "classifier_activation";
  const tri_json *v = tri_json_get(root, pooling), *a = tri_json_get(root, activation);
  const char *name = tri_json_as_str(v, NULL), *act = tri_json_as_str(a, NULL);
  bool bias = false, absent = tri_json_kind_of(v) == TRI_JSON_NULL, mean = name && !strcmp(name, "mean");
  TRI_CHECK(tri_config_bool(root, "classifier_bias", &bias, err));
  if (!absent && !mean && (!name || strcmp(name, "cls") != 0))
    return tri_fail(err, TRI_UNSUPPORTED, pooling, "%s \"%.40s\" is not supported, only cls and mean are", pooling,
                    name ? name : "?");
  c->head.pool_act = TRI_ACT_GELU_ERF;
  if (tri_json_kind_of(a) != TRI_JSON_NULL && (!act || !tri_act_from_name(act, &c->head.pool_act)))
    return tri_fail(err, TRI_UNSUPPORTED, activation, "%s \"%.40s\" is not supported", activation, act ? act : "?");
  c->head.pooling = mean ? TRI_POOL_MEAN : TRI_POOL_FIRST;
  c->head.pooler_no_bias = !bias;
  c->head.has_pooler = c->head.pooler_norm = true;
  c->head.pooler_norm_bias = c->norm.bias;
  return TRI_OK;
}

static tri_status finish(tri_model_config *c, const tri_json *root, tri_error *err) {
  TRI_CHECK(tri_config_encoder(c, root, err));
  c->layer_flags[0] |= TRI_LAYER_BARE;
  return c->head.has_classifier ? read_classifier(c, root, err) : TRI_OK;
}

const tri_arch tri_arch_modernbert = {
    .model_type = "modernbert",
    .class_names = {"ModernBertModel", "ModernBertForSequenceClassification"},
    .prefix = "model.",
    .keys = keys,
    .tensors = tensors,
    .defaults = {.encoder = true,
                 .norm.kind = TRI_NORM_LAYER,
                 .norm.eps = 1e-5,
                 .embed.norm = true,
                 .mlp.act = TRI_ACT_GELU_ERF,
                 .mlp.gated = true,
                 .attention.position = TRI_POS_ROPE,
                 .attention.has_local_rope = true,
                 .attention.rope_theta = 160000,
                 .attention.local_rope_theta = 10000,
                 .max_position_embeddings = 8192},
    .prepare = prepare,
    .finish = finish,
};
