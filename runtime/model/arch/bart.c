/* SPDX-License-Identifier: Apache-2.0 */
/* BART (Lewis et al., 2020): norms after the additions, learned positions that begin at row 2, a norm after the
 * embedding. */
#include <string.h>

#include "runtime/model/arch/rules.h"

static const tri_config_key keys[] = {TRI_KEYS_BART, {0}};

static const tri_tensor_rule tensors[] = {
    TRI_RULE("shared.weight", EMBED),
    TRI_RULE("decoder.embed_positions.weight", POSITIONS),
    TRI_RULES_NORM("decoder.layernorm_embedding", EMBED_NORM),
    TRI_RULES_BART_LAYERS("decoder"),
    TRI_RULES_BART_CROSS,
    TRI_RULE_IF("final_logits_bias", HEAD_BIAS, head.bias),
    TRI_RULE("lm_head.weight", HEAD),
    {0},
};

static const tri_tensor_rule encoder_tensors[] = {
    TRI_RULE("encoder.embed_positions.weight", POSITIONS),
    TRI_RULES_NORM("encoder.layernorm_embedding", EMBED_NORM),
    TRI_RULES_BART_LAYERS("encoder"),
    {0},
};

static const tri_arch encoder = {.model_type = "bart", .prefix = "model.", .tensors = encoder_tensors};

static tri_status prepare(tri_model_config *c, const tri_json *root, tri_error *err) {
  const char *name = tri_json_as_str(tri_json_at(tri_json_get(root, "architectures"), 0), NULL);
  if (name && !strcmp(name, "BartModel")) c->head.bias = false; /* stored without a head: the embedding is one */
  return tri_config_bart(c, root, err);
}

const tri_arch tri_arch_bart = {
    .model_type = "bart",
    .class_names = {"BartForConditionalGeneration", "BartModel"},
    .prefix = "model.",
    .keys = keys,
    .ignored_tensors = {"encoder.embed_tokens.weight", "decoder.embed_tokens.weight"},
    .tensors = tensors,
    .defaults = {TRI_BART_DEFAULTS, .embed.norm = true, .attention.position = TRI_POS_LEARNED,
                 .embed.position_offset = 2},
    .prepare = prepare,
    .source = &encoder,
};
