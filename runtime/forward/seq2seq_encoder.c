/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/forward/seq2seq_encoder.h"

/* The encoder takes the decoder's configuration but for model, shard, weights and cache, and has an arena of its own:
 * both passes of a step are queued one after the other, and cross-attention reads what the encoder left. */
tri_status tri_source_create(const tri_forward_config *decoder, const tri_checkpoint *ckpt, tri_dtype dtype,
                             tri_quantization quantization, uint64_t seed, tri_source **out, tri_error *err) {
  tri_status st;
  tri_shard shard;
  tri_source *s = tri_calloc(1, sizeof *s);
  if (!s) return tri_fail(err, TRI_NO_MEMORY, "model", "no memory");
  tri_model_config_source(decoder->model, &s->model);
  TRI_TRY(tri_shard_make(&s->model, decoder->shard.p, &shard, err));
  TRI_TRY(ckpt ? tri_weights_load(decoder->backend, &s->model, &shard, ckpt, dtype, quantization, &s->weights, err)
               : tri_weights_dummy(decoder->backend, &s->model, &shard, seed, dtype, quantization, &s->weights, err));
  /* One table for both passes: the decoder's weights outlive the source. */
  s->weights->global[TRI_W_EMBED] = decoder->weights->global[TRI_W_EMBED];
  TRI_TRY(tri_kv_cache_borrow(decoder->kv, shard.layers.count, &s->kv));
  tri_forward_config fc = *decoder;
  fc.model = &s->model;
  fc.shard = shard;
  fc.weights = s->weights;
  fc.kv = s->kv;
  fc.observer.hidden = NULL; /* sees the decoder's */
  TRI_TRY(tri_forward_create(&fc, &s->forward, err));
  *out = s;
  s = NULL;
cleanup:
  tri_source_destroy(s);
  return st;
}

void tri_source_destroy(tri_source *s) {
  if (!s) return;
  tri_forward_destroy(s->forward);
  tri_kv_cache_destroy(s->kv);
  tri_weights_destroy(s->weights);
  tri_free(s);
}

tri_status tri_source_run(tri_source *s, const tri_batch_builder *builder, int micro_batch, tri_forward *decoder) {
  tri_mat no_logits;
  tri_encoder_output encoder_output;
  if (!builder->source.num_tokens) return TRI_OK;
  tri_forward_copy_blocks(decoder, builder);
  tri_status st = tri_forward_run(s->forward, builder, micro_batch, &no_logits, &encoder_output);
  return st == TRI_OK ? tri_forward_fill_cross(decoder, s->forward, encoder_output.hidden) : st;
}
