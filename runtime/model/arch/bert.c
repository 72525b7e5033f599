/* SPDX-License-Identifier: Apache-2.0 */
/* BERT (Devlin et al., 2018) with its pooler, and its classifiers of sequences and of tokens. */
#include "runtime/model/arch/rules.h"

static const tri_config_key keys[] = {
    TRI_KEYS_ENCODER,
    TRI_INT_KEY("type_vocab_size", embed.type_vocab_size, 1, 1 << 16),
    TRI_IGNORED_KEYS("directionality"), /* of Google's first files; the models do not read them */
    TRI_IGNORED_KEYS("pooler_fc_size pooler_num_attention_heads pooler_num_fc_layers pooler_size_per_head pooler_type"),
    {0},
};

static const tri_tensor_rule tensors[] = {
    TRI_RULES_BERT,
    TRI_RULES_IF("pooler.dense", POOLER, head.has_pooler),
    TRI_RULES_IF("classifier", CLASSIFIER, head.has_classifier),
    {0},
};

/* transformers gives every BERT a pooler but those that classify tokens. */
static tri_status finish(tri_model_config *c, const tri_json *root, tri_error *err) {
  tri_status st = tri_config_encoder(c, root, err);
  c->head.has_pooler = !c->head.token_head;
  return st;
}

const tri_arch tri_arch_bert = {
    .model_type = "bert",
    .class_names = {"BertModel", "BertForSequenceClassification", "BertForTokenClassification"},
    .prefix = "bert.",
    .keys = keys,
    /* A classifier of tokens has no pooler, but early files have stored one. */
    .ignored_tensors = {"embeddings.position_ids", "pooler.dense.weight", "pooler.dense.bias"},
    .tensors = tensors,
    .defaults = {TRI_ENCODER_DEFAULTS, .mlp.act = TRI_ACT_GELU_ERF, .embed.type_vocab_size = 2, .head.has_pooler = true,
                 .head.pool_act = TRI_ACT_TANH},
    .finish = finish,
};
