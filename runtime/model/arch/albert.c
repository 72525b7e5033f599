/* SPDX-License-Identifier: Apache-2.0 */
/* ALBERT (Lan et al., 2019): all layers have the same weights, and the embedding, narrower than the layers, is
 * projected when positions, types and norm are done. */
#include "runtime/model/arch/rules.h"

static const tri_config_key keys[] = {
    TRI_KEYS_ENCODER,
    TRI_INT_KEY("type_vocab_size", embed.type_vocab_size, 1, 1 << 16),
    TRI_INT_KEY("embedding_size", embed.size, 1, 1 << 20),
    TRI_READ_KEY("num_hidden_groups"), /* read by finish */
    TRI_READ_KEY("inner_group_num"),   /* the same */
    TRI_IGNORED_KEYS("classifier_dropout_prob"),
    TRI_IGNORED_KEYS("down_scale_factor"), /* of the first files; the models do not read them */
    TRI_IGNORED_KEYS("gap_size layers_to_keep net_structure_type num_memory_blocks"),
    {0},
};

#define L "encoder.albert_layer_groups.%d.albert_layers.0."
static const tri_tensor_rule tensors[] = {
    TRI_RULES_BERT_EMBEDDINGS,
    TRI_RULES_IF("encoder.embedding_hidden_mapping_in", PROJECT_IN, embed.projected),
    TRI_RULES_QKV_NAMED(L "attention.query", L "attention.key", L "attention.value"),
    TRI_RULES_O(L "attention.dense"),
    TRI_RULES_NORM(L "attention.LayerNorm", NORM1),
    TRI_RULES_MLP(L "ffn", L "ffn_output"),
    TRI_RULES_NORM(L "full_layer_layer_norm", NORM2),
    TRI_RULES_IF("pooler", POOLER, head.has_pooler),
    TRI_RULES_IF("classifier", CLASSIFIER, head.has_classifier),
    {0},
};

static tri_status finish(tri_model_config *c, const tri_json *root, tri_error *err) {
  static const char *const ones[] = {"num_hidden_groups", "inner_group_num"};
  tri_status st = tri_config_encoder(c, root, err);
  for (size_t i = 0; st == TRI_OK && i < sizeof ones / sizeof *ones; i++) {
    double n = 1;
    st = tri_config_number(root, ones[i], 1, TRI_MAX_LAYERS, &n, err);
    if (st == TRI_OK && n != 1)
      st = tri_fail(err, TRI_UNSUPPORTED, ones[i], "%s is %g: only 1 is supported", ones[i], n);
  }
  c->head.has_pooler = !c->head.token_head;
  c->embed.projected = true; /* the projection is there for equal widths, too */
  return st;
}

const tri_arch tri_arch_albert = {
    .model_type = "albert",
    .class_names = {"AlbertModel", "AlbertForSequenceClassification", "AlbertForTokenClassification"},
    .prefix = "albert.",
    .keys = keys,
    /* A classifier of tokens has no pooler, but early files have stored one. */
    .ignored_tensors = {"embeddings.position_ids", "pooler.weight", "pooler.bias"},
    .tensors = tensors,
    .defaults = {TRI_ENCODER_DEFAULTS, .mlp.act = TRI_ACT_GELU_TANH, .embed.type_vocab_size = 2, .embed.size = 128,
                 .embed.projects_last = true, .shared_layers = true, .head.has_pooler = true,
                 .head.pool_act = TRI_ACT_TANH},
    .finish = finish,
};
