/* SPDX-License-Identifier: Apache-2.0 */
/* RoBERTa (Liu et al., 2019): BERT whose positions begin after the padding's id. Its classifier of sequences has a
 * dense layer of its own in place of the pooler. A padding id inside of a text counts as any other token here.
 * XLM-RoBERTa is the same by another name. */
#include "runtime/model/arch/rules.h"

static const tri_config_key keys[] = {
    TRI_KEYS_ENCODER,
    TRI_INT_KEY("type_vocab_size", embed.type_vocab_size, 1, 1 << 16),
    TRI_INT_KEY("pad_token_id", embed.position_offset, 0, 1 << 20), /* finish adds one */
    TRI_IGNORED_KEYS("output_past"),
    {0},
};

static const tri_tensor_rule tensors[] = {
    TRI_RULES_BERT,
    {.name = "pooler.dense.weight",
     .weight = TRI_W_POOLER,
     .if_field = TRI_IF(head.has_pooler),
     .unless_field = TRI_IF(head.sequence_head)},
    {.name = "pooler.dense.bias",
     .weight = TRI_W_POOLER_BIAS,
     .if_field = TRI_IF(head.has_pooler),
     .unless_field = TRI_IF(head.sequence_head)},
    TRI_RULES_IF("classifier.dense", POOLER, head.sequence_head),
    TRI_RULES_IF("classifier.out_proj", CLASSIFIER, head.sequence_head),
    TRI_RULES_IF("classifier", CLASSIFIER, head.token_head),
    {0},
};

static tri_status finish(tri_model_config *c, const tri_json *root, tri_error *err) {
  TRI_CHECK(tri_config_encoder(c, root, err));
  c->head.has_pooler = !c->head.token_head;
  c->embed.position_offset++;
  /* The stated number counts the rows of the table, of which texts use those from the offset on. */
  if (c->max_position_embeddings <= c->embed.position_offset)
    return tri_fail(err, TRI_OUT_OF_RANGE, "max_position_embeddings", "%lld positions, of which %lld are not for use",
                    (long long)c->max_position_embeddings, (long long)c->embed.position_offset);
  c->max_position_embeddings -= c->embed.position_offset;
  return TRI_OK;
}

#define DEFAULTS                                                                                                       \
  TRI_ENCODER_DEFAULTS, .mlp.act = TRI_ACT_GELU_ERF, .embed.type_vocab_size = 2, .embed.position_offset = 1,           \
                        .head.has_pooler = true, .head.pool_act = TRI_ACT_TANH

const tri_arch tri_arch_roberta = {
    .model_type = "roberta",
    .class_names = {"RobertaModel", "RobertaForSequenceClassification", "RobertaForTokenClassification"},
    .prefix = "roberta.",
    .keys = keys,
    /* The classifiers have no pooler, but early files have stored one. */
    .ignored_tensors = {"embeddings.position_ids", "pooler.dense.weight", "pooler.dense.bias"},
    .tensors = tensors,
    .defaults = {DEFAULTS},
    .finish = finish,
};

const tri_arch tri_arch_xlm_roberta = {
    .model_type = "xlm-roberta",
    .class_names = {"XLMRobertaModel", "XLMRobertaForSequenceClassification", "XLMRobertaForTokenClassification"},
    .prefix = "roberta.",
    .keys = keys,
    .ignored_tensors = {"embeddings.position_ids", "pooler.dense.weight", "pooler.dense.bias"},
    .tensors = tensors,
    .defaults = {DEFAULTS},
    .finish = finish,
};
