/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/step/limits.h"

/* Tokens of one sequence. */
static tri_status sequence_length(const tri_model_config *c, const tri_limits_config *config, int64_t *out,
                                  tri_error *err) {
  int64_t len = config->max_model_len ? config->max_model_len : tri_model_config_length(c);
  if (tri_model_config_takes_whole(c) && len > config->max_num_batched_tokens) {
    if (config->max_model_len)
      return tri_fail(err, TRI_OUT_OF_RANGE, "max_num_batched_tokens",
                      "max_num_batched_tokens %d is below max_model_len %lld: an encoder takes a sequence in one step",
                      config->max_num_batched_tokens, (long long)len);
    len = config->max_num_batched_tokens;
  }
  /* Learned positions end with their table; rotary ones can be stretched on request. */
  if ((c->attention.position == TRI_POS_LEARNED || c->attention.position == TRI_POS_SINUSOID) &&
      len > c->max_position_embeddings)
    return tri_fail(err, TRI_OUT_OF_RANGE, "max_model_len", "max_model_len %lld exceeds the model's %lld positions",
                    (long long)len, (long long)c->max_position_embeddings);
  if (c->attention.index_topk && len > c->attention.index_topk)
    return tri_fail(err, TRI_OUT_OF_RANGE, "max_model_len",
                    "max_model_len %lld exceeds the %lld tokens (index_topk) up to which this model's sparse attention "
                    "is that to all tokens: longer sequences are not supported",
                    (long long)len, (long long)c->attention.index_topk);
  if (len > 1 << 24)
    return tri_fail(err, TRI_OUT_OF_RANGE, "max_model_len", "max_model_len %lld, the limit is %d", (long long)len,
                    1 << 24);
  *out = len;
  return TRI_OK;
}

/* Defaults. A device's steps are large, as few tokens do not fill it; a host's are short, so that a prompt's chunks do
 * not hold up the tokens of others for long. */
enum { DEVICE_SEQS = 256, HOST_SEQS = 128, DEVICE_TOKENS = 8192, HOST_TOKENS = 512 };
enum { DEVICE_BLOCK = 64, HOST_BLOCK = 16 };

int tri_limits_block_size(int asked, bool device) {
  if (asked) return asked;
  return device ? DEVICE_BLOCK : HOST_BLOCK;
}

/* Fills in what was not asked for, so that it agrees with what was. */
static tri_limits_config resolve(const tri_limits_config *config) {
  tri_limits_config c = *config;
  int seqs = c.device ? DEVICE_SEQS : HOST_SEQS, tokens = c.device && !c.host_experts ? DEVICE_TOKENS : HOST_TOKENS;
  if (!c.max_num_seqs && c.max_num_batched_tokens && c.max_num_batched_tokens < seqs) seqs = c.max_num_batched_tokens;
  if (!c.max_num_seqs) c.max_num_seqs = seqs;
  c.block_size = tri_limits_block_size(c.block_size, c.device);
  if (!c.max_num_batched_tokens) c.max_num_batched_tokens = tokens > c.max_num_seqs ? tokens : c.max_num_seqs;
  return c;
}

tri_status tri_limits_make(const tri_model_config *c, const tri_limits_config *asked, tri_limits *out, tri_error *err) {
  const tri_limits_config resolved = resolve(asked), *config = &resolved;
  int64_t len = 0;
  TRI_CHECK(sequence_length(c, config, &len, err));
  if (config->max_num_batched_tokens < config->max_num_seqs)
    return tri_fail(err, TRI_OUT_OF_RANGE, "max_num_batched_tokens",
                    "max_num_batched_tokens %d is below max_num_seqs %d", config->max_num_batched_tokens,
                    config->max_num_seqs);
  if (c->seq2seq.on && config->max_num_batched_tokens < 3)
    return tri_fail(err, TRI_OUT_OF_RANGE, "max_num_batched_tokens",
                    "max_num_batched_tokens is %d, at least 3 are needed for a source and what begins its answer",
                    config->max_num_batched_tokens);
  *out = (tri_limits){
      .max_num_seqs = config->max_num_seqs,
      .max_num_batched_tokens = config->max_num_batched_tokens,
      .max_model_len = (int)len,
      .block_size = config->block_size,
      .vocab_size = (int)c->vocab_size,
      .embeds = c->encoder,
      .whole_sequences = tri_model_config_takes_whole(c),
      .num_types = (int)c->embed.type_vocab_size,
      .has_source = c->seq2seq.on,
  };
  return TRI_OK;
}

bool tri_limits_stretch(const tri_model_config *c, const tri_limits *l) {
  return l->max_model_len > c->max_position_embeddings && c->attention.rope.kind == TRI_ROPE_FIXED;
}
