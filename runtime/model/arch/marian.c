/* SPDX-License-Identifier: Apache-2.0 */
/* Marian's translation models: BART's blocks with sinusoids for positions and no norm after the embedding. */
#include "runtime/model/arch/rules.h"

static const tri_config_key keys[] = {
    TRI_KEYS_BART,
    TRI_READ_KEY("share_encoder_decoder_embeddings"), /* read by prepare */
    TRI_READ_KEY("decoder_vocab_size"),               /* the same */
    {0},
};

static const tri_tensor_rule tensors[] = {
    TRI_RULE("shared.weight", EMBED),         TRI_RULES_BART_LAYERS("decoder"), TRI_RULES_BART_CROSS,
    TRI_RULE("final_logits_bias", HEAD_BIAS), TRI_RULE("lm_head.weight", HEAD), {0},
};

static const tri_tensor_rule encoder_tensors[] = {TRI_RULES_BART_LAYERS("encoder"), {0}};

static const tri_arch encoder = {.model_type = "marian", .prefix = "model.", .tensors = encoder_tensors};

/* Both stacks must look ids up in one table, which is the head, too. */
static tri_status prepare(tri_model_config *c, const tri_json *root, tri_error *err) {
  bool shared = true;
  double vocab = (double)c->vocab_size;
  TRI_CHECK(tri_config_bool(root, "share_encoder_decoder_embeddings", &shared, err));
  TRI_CHECK(tri_config_number(root, "decoder_vocab_size", 1, 1 << 28, &vocab, err));
  if (!shared || vocab != (double)c->vocab_size)
    return tri_fail(err, TRI_UNSUPPORTED, shared ? "decoder_vocab_size" : "share_encoder_decoder_embeddings",
                    "a decoder with a vocabulary of its own is not supported");
  return tri_config_bart(c, root, err);
}

const tri_arch tri_arch_marian = {
    .model_type = "marian",
    .class_names = {"MarianMTModel"},
    .prefix = "model.",
    .keys = keys,
    /* The sinusoids are stored in early files. */
    .ignored_tensors = {"encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "encoder.embed_positions.weight",
                        "decoder.embed_positions.weight"},
    .tensors = tensors,
    .defaults = {TRI_BART_DEFAULTS, .attention.position = TRI_POS_SINUSOID},
    .prepare = prepare,
    .source = &encoder,
};
