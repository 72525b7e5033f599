/* SPDX-License-Identifier: Apache-2.0 */
/* DistilBERT (Sanh et al., 2019): half of BERT's layers, no token types, no pooler but the classifier's own. */
#include "runtime/model/arch/rules.h"

static const tri_config_key keys[] = {
    TRI_INT_KEY("dim", hidden_size, 1, 1 << 20),
    TRI_INT_KEY("n_layers", num_layers, 1, TRI_MAX_LAYERS),
    TRI_INT_KEY("n_heads", attention.num_heads, 1, 1 << 16),
    TRI_INT_KEY("hidden_dim", mlp.intermediate_size, 1, 1 << 24),
    TRI_OFF_KEY("is_decoder"),
    TRI_READ_KEY("position_embedding_type"), /* read by tri_config_encoder */
    TRI_IGNORED_KEYS("dropout qa_dropout seq_classif_dropout"),
    TRI_IGNORED_KEYS("sinusoidal_pos_embds"), /* how the stored table was made */
    TRI_IGNORED_KEYS("tie_weights_ output_past"),
    {0},
};

#define A "transformer.layer.%d.attention."
static const tri_tensor_rule tensors[] = {
    TRI_RULE("embeddings.word_embeddings.weight", EMBED),
    TRI_RULE("embeddings.position_embeddings.weight", POSITIONS),
    TRI_RULES_NORM("embeddings.LayerNorm", EMBED_NORM),
    TRI_RULES_QKV_NAMED(A "q_lin", A "k_lin", A "v_lin"),
    TRI_RULES_O(A "out_lin"),
    TRI_RULES_NORM("transformer.layer.%d.sa_layer_norm", NORM1),
    TRI_RULES_MLP("transformer.layer.%d.ffn.lin1", "transformer.layer.%d.ffn.lin2"),
    TRI_RULES_NORM("transformer.layer.%d.output_layer_norm", NORM2),
    TRI_RULES_IF("pre_classifier", POOLER, head.has_pooler),
    TRI_RULES_IF("classifier", CLASSIFIER, head.has_classifier),
    {0},
};

/* pre_classifier is a pooler in all but name: ReLU of a linear layer over the first token. Only a classifier of texts
 * has it. */
static tri_status finish(tri_model_config *c, const tri_json *root, tri_error *err) {
  tri_status st = tri_config_encoder(c, root, err);
  c->head.has_pooler = c->head.sequence_head;
  return st;
}

const tri_arch tri_arch_distilbert = {
    .model_type = "distilbert",
    .class_names = {"DistilBertModel", "DistilBertForSequenceClassification", "DistilBertForTokenClassification"},
    .prefix = "distilbert.",
    .keys = keys,
    .ignored_tensors = {"embeddings.position_ids"},
    .tensors = tensors,
    .defaults = {TRI_ENCODER_DEFAULTS, .mlp.act = TRI_ACT_GELU_ERF, .head.pool_act = TRI_ACT_RELU},
    .finish = finish,
};
