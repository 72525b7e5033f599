/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as config.json, and what follows a line `%%` as generation_config.json: refused with a reason, or numbers
 * inside the ranges that the loader, the layout and the executor count on. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/model/arch.h"
#include "runtime/model/config.h"
#include "runtime/model/layout.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void need(bool ok) {
  if (!ok) abort();
}

static void check_stored(const tri_stored *s) {
  need(s->method == TRI_STORED_PLAIN ? s->num_schemes == 0 : s->num_schemes >= 1);
  need(s->num_schemes <= TRI_MAX_SCHEMES && (s->widened == TRI_F16 || s->widened == TRI_BF16));
  for (int i = 0; i < s->num_schemes; i++)
    need((s->schemes[i].bits == 4 || s->schemes[i].bits == 8) && s->schemes[i].rows >= 0 && s->schemes[i].cols >= 0);
}

static void check_rope(const tri_rope *r, int64_t head_dim) {
  need(r->rotary_dim >= 2 && r->rotary_dim % 2 == 0 && r->rotary_dim <= TRI_MAX_ROTARY && r->rotary_dim <= head_dim);
  need(isfinite(r->attention_scale) && isfinite(r->attention_scale_long) && r->original_max_len >= 0);
  for (int i = 0; i < r->rotary_dim / 2; i++) need(isfinite(r->inv_freq[i]) && r->inv_freq[i] >= 0);
  for (int i = 0; r->kind == TRI_ROPE_BY_LENGTH && i < r->rotary_dim / 2; i++)
    need(isfinite(r->inv_freq_long[i]) && r->inv_freq_long[i] >= 0);
}

static void check(const tri_model_config *c) {
  check_stored(&c->stored);
  need(c->arch && c->hidden_size >= 1 && c->num_layers >= 1 && c->attention.num_heads >= 1 &&
       c->attention.num_kv_heads >= 1);
  need(c->attention.num_heads % c->attention.num_kv_heads == 0 && c->attention.head_dim >= 1 &&
       c->attention.head_dim <= 1024);
  int64_t global = c->attention.global_head_dim;
  need(!global == !c->attention.global_kv_heads && !global == !c->attention.global_heads && global <= 1024);
  need(!c->attention.global_kv_heads || c->attention.global_heads % c->attention.global_kv_heads == 0);
  need(c->mlp.intermediate_size >= 1 && c->vocab_size >= 1 && c->max_position_embeddings >= 1);
  need(c->norm.eps >= 0 && isfinite(c->attention.scale) && c->dtype <= TRI_BF16);
  need(c->num_eos_token_ids >= 0 && c->num_eos_token_ids <= TRI_MAX_STOP_IDS);
  need(c->embed.size >= 1 && c->embed.position_offset >= 0 && c->embed.type_vocab_size >= 0);
  need(!c->head.has_classifier || (c->encoder && c->head.num_labels >= 1));
  need(c->bos_token_id >= -1 && c->bos_token_id <= UINT32_MAX);
  if (c->attention.position == TRI_POS_ROPE) check_rope(&c->attention.rope, global ? global : c->attention.head_dim);
  need(!(c->attention.q_scale.beta > 0) || (c->attention.q_scale.every >= 1 && c->attention.q_scale.offset >= 0));
  need(c->attention.index_topk >= 0 && c->moe.jitter >= 0 && (!c->moe.scale_input || c->moe.top_k == 1));
  if (c->attention.has_local_rope) check_rope(&c->attention.local_rope, c->attention.head_dim);
  need(!c->attention.has_local_rope || c->attention.local_rope.kind == TRI_ROPE_FIXED);
  need(c->num_glu_limits >= 0 && c->num_glu_limits <= TRI_MAX_GLU_LIMITS);
  for (int l = 0; l < c->num_layers; l++) need(!c->layer_glu_limits[l] || c->layer_glu_limits[l] < c->num_glu_limits);
  for (int i = 0; i < c->num_glu_limits; i++)
    need(c->glu_limits[i].experts >= 0 && c->glu_limits[i].mlp >= 0 && isfinite(c->glu_limits[i].experts));
  tri_shard s;
  if (tri_shard_make(c, (tri_parallel){.tp = 2, .pp = 2, .tp_rank = 1, .pp_rank = 1}, &s, NULL) != TRI_OK) return;
  for (int i = 0; i < TRI_W_COUNT * c->num_layers; i++) {
    tri_weight_shape shape = tri_shard_weight_shape(c, &s, (tri_weight_id)(i % TRI_W_COUNT), i / TRI_W_COUNT);
    need(shape.n >= 0 && shape.n <= INT32_MAX && shape.k >= 0 && shape.k <= INT32_MAX);
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const uint8_t *cut = memmem(data, size, "%%\n", 3);
  const char *config = (const char *)data, *generation = cut ? (const char *)cut + 3 : NULL;
  size_t config_len = cut ? (size_t)(cut - data) : size, generation_len = cut ? size - config_len - 3 : 0;
  tri_model_config c;
  tri_error err = {0};
  if (tri_model_config_parse(config, config_len, generation, generation_len, (tri_config_rules){0}, &c, &err) == TRI_OK)
    check(&c);
  else if (err.status == TRI_OK || !err.message[0])
    abort();
  return 0;
}
