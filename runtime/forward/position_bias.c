/* SPDX-License-Identifier: Apache-2.0 */
/* Biases by position that are added to the scores (ALiBi, T5's relative biases, Falcon's rounded ones), as tables in
 * the backend's memory; and the other tables that are made once: where a head finds its keys, rotary frequencies, ones.
 */
#include <math.h>
#include <string.h>

#include "runtime/forward/forward_state.h"

/* The slopes of Press et al. (2022): a geometric series for a power of two of heads; for other numbers the series of
 * the next lower power, then every second term of the next higher one's. */
static float slope_of(int64_t num_heads, int64_t head) {
  int64_t power = 1;
  while (2 * power <= num_heads) power *= 2;
  double exponent = head < power ? -8.0 * (double)(head + 1) / (double)power
                                 : -4.0 * (double)(2 * (head - power) + 1) / (double)power;
  return (float)exp2(exponent);
}

static float round_bf16(float x) { return tri_bf16_to_f32(tri_f32_to_bf16(x)); }

/* The bucket of a distance between a key and a query (Raffel et al., 2020): one for each short distance, then ever
 * wider ones, the last for bias_max_distance and beyond; an encoder's first half is for keys before the query. Single
 * precision as in the reference, whose bounds between buckets depend on it. */
static int bucket_of(const tri_model_config *c, int distance) {
  int buckets = (int)c->attention.bias_buckets, first = 0, away = distance < 0 ? -distance : distance;
  if (c->encoder) {
    buckets /= 2;
    if (distance > 0) first = buckets;
  } else if (distance > 0) {
    away = 0;
  }
  int exact = buckets / 2;
  if (away < exact) return first + away;
  float scale = (float)log((double)c->attention.bias_max_distance / exact);
  int wide = exact + (int)(logf((float)away / (float)exact) / scale * (float)(buckets - exact));
  return first + (wide < buckets ? wide : buckets - 1);
}

/* Host memory that create's uploads read; freed once they are done. */
struct staged {
  float *slopes, *bias, *ones;
  tri_expert_tally *tally;
  int32_t *slots;
};

/* A copy of a table in the backend's memory. */
static bool put_table(tri_forward *f, const void *host, size_t bytes, void *out) {
  tri_backend *be = f->cfg.backend;
  struct tri_table *t = &f->tables[f->num_tables];
  if (be->ops.mem_alloc(be, TRI_MEM_ACTIVATIONS, bytes, &t->p) != TRI_OK) return false;
  t->bytes = bytes;
  f->num_tables++;
  be->ops.upload(be, t->p, host, bytes);
  memcpy(out, &t->p, sizeof t->p);
  return true;
}

/* A bias for each head and each distance up to that where the last bucket begins. */
static bool make_relative_bias(tri_forward *f, struct staged *s) {
  tri_backend *be = f->cfg.backend;
  const tri_model_config *c = f->cfg.model;
  const tri_weight *w = &f->cfg.weights->global[TRI_W_RELATIVE_BIAS];
  int reach = (int)c->attention.bias_max_distance;
  size_t n = (size_t)w->n * (size_t)w->k, len = 2 * (size_t)reach + 1;
  void *stored = tri_malloc(n, tri_dtype_size(w->dtype));
  f->bias_len = (int)len;
  f->bias_offset = reach;
  s->bias = tri_malloc((size_t)w->k * sizeof *s->bias, len);
  bool ok = stored && s->bias;
  if (ok) be->ops.download(be, stored, w->data, n * tri_dtype_size(w->dtype));
  ok = ok && be->ops.stream_sync(be) == TRI_OK;
  for (int h = 0; ok && h < w->k; h++)
    for (size_t i = 0; i < len; i++)
      s->bias[(size_t)h * len + i] = tri_load_f32(stored, w->dtype, (size_t)(bucket_of(c, (int)i - reach) * w->k + h));
  tri_free(stored);
  return ok;
}

/* Falcon's: of key positions alone. */
static bool make_rounded_bias(tri_forward *f, struct staged *s) {
  const tri_model_config *c = f->cfg.model;
  tri_range heads = f->cfg.shard.q_heads;
  f->bias_len = f->cfg.limits.max_model_len;
  s->bias = tri_malloc((size_t)heads.count * sizeof *s->bias, (size_t)f->bias_len);
  for (int i = 0; s->bias && i < heads.count; i++) {
    float slope = round_bf16(slope_of(c->attention.num_heads, heads.first + i));
    for (int p = 0; p < f->bias_len; p++)
      s->bias[(size_t)i * (size_t)f->bias_len + (size_t)p] = (float)c->attention.scale * round_bf16(slope * (float)p);
  }
  return s->bias != NULL;
}

/* Tables of what is added to the scores by position. */
static bool make_biases(tri_forward *f, struct staged *s) {
  const tri_model_config *c = f->cfg.model;
  tri_range heads = f->cfg.shard.q_heads;
  bool ok = true;
  if (c->attention.position == TRI_POS_ALIBI) {
    ok = (s->slopes = tri_calloc((size_t)heads.count, sizeof *s->slopes)) != NULL;
    for (int i = 0; ok && i < heads.count; i++) s->slopes[i] = slope_of(c->attention.num_heads, heads.first + i);
    return ok && put_table(f, s->slopes, (size_t)heads.count * sizeof *s->slopes, &f->slopes);
  }
  if (c->attention.position == TRI_POS_RELATIVE) ok = make_relative_bias(f, s);
  if (c->attention.position == TRI_POS_ALIBI_ROUNDED) ok = make_rounded_bias(f, s);
  size_t bytes = (size_t)heads.count * (size_t)f->bias_len * sizeof *s->bias;
  return ok && (!s->bias || put_table(f, s->bias, bytes, &f->bias));
}

static bool make_tally(tri_forward *f, struct staged *s) {
  size_t n = (size_t)f->cfg.shard.layers.count * (size_t)f->cfg.shard.slots.count;
  if (!n) return true;
  s->tally = tri_calloc(n, sizeof *s->tally);
  return s->tally && put_table(f, s->tally, n * sizeof *s->tally, &f->tally);
}

/* Numbers in a layer's table of slots. */
static size_t slot_table(const tri_forward *f) {
  return (size_t)f->cfg.shard.p.placement->num_experts * (1 + (size_t)f->most_copies);
}

/* The slots of each expert in a layer. Which of several a row takes depends on its place in the step: where that must
 * not change its bits, there is one. */
static void fill_slots(const tri_forward *f, int layer, int32_t *table) {
  size_t width = 1 + (size_t)f->most_copies, n = slot_table(f);
  tri_expert_slot_table(f->cfg.shard.p.placement, layer, f->most_copies, table);
  for (size_t i = 0; f->cfg.backend->deterministic && i < n; i += width) table[i] = 1;
}

static bool make_slots(tri_forward *f, struct staged *s) {
  const tri_expert_placement *p = f->cfg.shard.p.placement;
  tri_range layers = f->cfg.shard.layers;
  if (!p) return true;
  f->most_copies = tri_expert_most_copies(p);
  size_t each = slot_table(f), n = (size_t)layers.count * each;
  if (!(s->slots = tri_calloc(n, sizeof *s->slots))) return false;
  for (int l = 0; l < layers.count; l++)
    if (p->row_of[layers.first + l] >= 0) fill_slots(f, layers.first + l, s->slots + (size_t)l * each);
  if (!put_table(f, s->slots, n * sizeof *s->slots, &f->slots)) return false;
  if (!p->room) return true;
  f->placed = tri_calloc(each, sizeof *f->placed);
  f->no_rows = tri_calloc((size_t)f->cfg.shard.slots.count, sizeof *f->no_rows);
  return f->placed && f->no_rows;
}

/* Queued on the compute stream: steps before it read the old table, those after it the new one. */
void tri_forward_place(tri_forward *f, int layer) {
  tri_backend *be = f->cfg.backend;
  size_t at = (size_t)(layer - f->cfg.shard.layers.first), slots = (size_t)f->cfg.shard.slots.count;
  fill_slots(f, layer, f->placed);
  be->ops.upload(be, f->slots + at * slot_table(f), f->placed, slot_table(f) * sizeof *f->placed);
  be->ops.upload(be, f->tally + at * slots, f->no_rows, slots * sizeof *f->no_rows);
}

static bool make_frequencies(tri_forward *f) {
  const tri_attention_config *a = &f->cfg.model->attention;
  size_t bytes = (size_t)a->rope.rotary_dim / 2 * sizeof(float),
         local = (size_t)a->local_rope.rotary_dim / 2 * sizeof(float);
  if (!tri_has_rope(f->cfg.model)) return true;
  if (!put_table(f, a->rope.inv_freq, bytes, &f->inv_freq)) return false;
  if (!put_table(f, a->rope.inv_freq_long, bytes, &f->inv_freq_long)) return false;
  return !a->has_local_rope || put_table(f, a->local_rope.inv_freq, local, &f->local_inv_freq);
}

static bool make_ones(tri_forward *f, struct staged *s) {
  const tri_model_config *c = f->cfg.model;
  const tri_limits *l = &f->cfg.limits;
  int64_t rows = tri_limits_chunk(l), exchanged = (int64_t)tri_parallel_dp(f->cfg.shard.p) * tri_exchanged_rows(l);
  const tri_attention_config *at = &c->attention;
  int64_t n = at->qk_norm == TRI_QK_NORM_BARE || at->norm_values ? at->head_dim : 0;
  if (n && at->global_head_dim > n) n = at->global_head_dim;
  if (c->moe.scale_input && rows > n) n = rows;
  if (c->moe.scale_input && exchanged > n) n = exchanged;
  if (!n) return true;
  if (!(s->ones = tri_malloc((size_t)n, sizeof *s->ones))) return false;
  for (int64_t i = 0; i < n; i++) s->ones[i] = 1;
  return put_table(f, s->ones, (size_t)n * sizeof *s->ones, &f->ones);
}

/* Numbers that the host gives to ops of each layer. */
static bool make_layer_scales(tri_forward *f) {
  tri_backend *be = f->cfg.backend;
  int n = f->cfg.shard.layers.count;
  if (!f->cfg.model->norm.layer_scale) return true;
  if (!(f->layer_scales = tri_calloc((size_t)n, sizeof *f->layer_scales))) return false;
  for (int l = 0; l < n; l++)
    be->ops.download(be, &f->layer_scales[l], f->cfg.weights->layers[l].w[TRI_W_LAYER_SCALE].data, sizeof(float));
  return be->ops.stream_sync(be) == TRI_OK;
}

/* Uploads are waited for once, at the end; what they read is freed after that. */
tri_status tri_forward_make_tables(tri_forward *f) {
  tri_backend *be = f->cfg.backend;
  struct staged staged = {0};
  bool ok = make_frequencies(f) && make_biases(f, &staged) && make_tally(f, &staged) && make_slots(f, &staged) &&
            make_ones(f, &staged) && make_layer_scales(f);
  ok = be->ops.stream_sync(be) == TRI_OK && ok;
  tri_free(staged.slopes);
  tri_free(staged.bias);
  tri_free(staged.ones);
  tri_free(staged.tally);
  tri_free(staged.slots);
  return ok ? TRI_OK : TRI_NO_MEMORY;
}
