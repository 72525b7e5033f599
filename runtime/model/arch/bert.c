/* BERT (Devlin et al., 2018) with its pooler, and its classifiers of sequences and of tokens. */
#include "runtime/model/arch/rules.h"

static const char *const classes[] = {"BertModel", "BertForSequenceClassification", "BertForTokenClassification", NULL};

static const tri_config_key keys[] = {
    TRI_KEYS_ENCODER,
    TRI_INT_KEY("type_vocab_size", embed.type_vocab_size, 1, 1 << 16),
    TRI_IGNORED_KEY("directionality"), /* of Google's first files; the models do not read them */
    TRI_IGNORED_KEY("pooler_fc_size"),
    TRI_IGNORED_KEY("pooler_num_attention_heads"),
    TRI_IGNORED_KEY("pooler_num_fc_layers"),
    TRI_IGNORED_KEY("pooler_size_per_head"),
    TRI_IGNORED_KEY("pooler_type"),
    {0},
};

/* A classifier of tokens has no pooler, but early files have stored one. */
static const char *const ignored[] = {"embeddings.position_ids", "pooler.dense.weight", "pooler.dense.bias", NULL};

static const tri_tensor_rule tensors[] = {
    TRI_RULES_BERT,
    TRI_RULE_IF("pooler.dense.weight", POOLER, head.has_pooler),
    TRI_RULE_IF("pooler.dense.bias", POOLER_BIAS, head.has_pooler),
    TRI_RULE_IF("classifier.weight", CLASSIFIER, head.has_classifier),
    TRI_RULE_IF("classifier.bias", CLASSIFIER_BIAS, head.has_classifier),
    {0},
};

static tri_status finish(tri_model_config *c, const tri_json *root, tri_error *err) {
  tri_status st = tri_config_encoder(c, root, err);
  c->head.has_pooler = !c->head.token_head;
  return st;
}

const tri_arch tri_arch_bert = {
    .model_type = "bert",
    .class_names = classes,
    .prefix = "bert.",
    .keys = keys,
    .ignored_tensors = ignored,
    .tensors = tensors,
    .defaults = {TRI_ENCODER_DEFAULTS, .mlp.act = TRI_ACT_GELU_ERF, .embed.type_vocab_size = 2, .head.has_pooler = true,
                 .head.pool_act = TRI_ACT_TANH},
    .finish = finish,
};
