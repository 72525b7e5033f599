/* SPDX-License-Identifier: Apache-2.0 */
/* Encoder-decoders: what their configs share, and the encoder's config out of the whole's. */
#include <math.h>

#include "runtime/model/arch.h"

/* Fields that are not set here are the same in both: hidden size, vocabulary, norms, head size. An encoder has no head
 * of logits, hence no bias and no scale of them. */
void tri_model_config_source(const tri_model_config *c, tri_model_config *out) {
  *out = *c;
  out->arch = c->arch->source;
  out->seq2seq.on = false;
  out->feeds_decoder = out->encoder = true;
  out->attention.causal = false;
  out->num_layers = c->seq2seq.num_layers;
  out->attention.num_heads = out->attention.num_kv_heads = c->seq2seq.num_heads;
  out->mlp.intermediate_size = c->seq2seq.intermediate_size;
  out->head.bias = false;
  out->head.logit_scale = 1;
}

tri_status tri_config_bart(tri_model_config *c, const tri_json *root, tri_error *err) {
  bool scaled = false, normed = c->embed.norm, sinusoids = c->attention.position == TRI_POS_SINUSOID;
  TRI_CHECK(tri_config_bool(root, "scale_embedding", &scaled, err));
  TRI_CHECK(tri_config_bool(root, "normalize_embedding", &normed, err));
  TRI_CHECK(tri_config_bool(root, "static_position_embeddings", &sinusoids, err));
  const char *wrong = sinusoids != (c->attention.position == TRI_POS_SINUSOID) ? "static_position_embeddings" : NULL;
  if (normed != c->embed.norm) wrong = "normalize_embedding";
  if (wrong)
    return tri_fail(err, TRI_UNSUPPORTED, wrong, "%s is not as model_type %s has it", wrong, c->arch->model_type);
  if (scaled) c->embed.scale = sqrt((double)c->hidden_size);
  return TRI_OK;
}

tri_status tri_config_seq2seq(tri_model_config *c, tri_error *err) {
  const tri_seq2seq *s = &c->seq2seq;
  if (!s->on) return TRI_OK;
  if (!s->num_layers || !s->num_heads || !s->intermediate_size)
    return tri_fail(err, TRI_INVALID_ARGUMENT, "encoder_layers",
                    "the encoder's layers, heads or intermediate size are missing");
  /* The encoder's keys stay for a step in the blocks that cross-attention's take over. */
  if (s->num_heads != c->attention.num_heads)
    return tri_fail(err, TRI_UNSUPPORTED, "encoder_attention_heads",
                    "%lld heads in the encoder and %lld in the decoder: unequal numbers are not supported",
                    (long long)s->num_heads, (long long)c->attention.num_heads);
  if (c->seq2seq.decoder_start_token_id < 0) c->seq2seq.decoder_start_token_id = c->bos_token_id;
  if (s->decoder_start_token_id < 0 || s->decoder_start_token_id >= c->vocab_size)
    return tri_fail(err, TRI_INVALID_ARGUMENT, "decoder_start_token_id",
                    "decoder_start_token_id is %lld, the range is 0 to %lld", (long long)s->decoder_start_token_id,
                    (long long)c->vocab_size - 1);
  if (s->forced_bos_token_id >= c->vocab_size)
    return tri_fail(err, TRI_INVALID_ARGUMENT, "forced_bos_token_id", "forced_bos_token_id %lld exceeds the vocabulary",
                    (long long)s->forced_bos_token_id);
  return TRI_OK;
}
