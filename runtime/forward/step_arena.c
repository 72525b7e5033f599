/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/forward/step_arena.h"

#include "runtime/forward/forward_state.h"

/* From sizes to places: every buffer gets the size of the largest step, a RECORD walk over fake addresses tells which
 * ops touch which, liveness gives the pairs that must not overlap, and `place` puts the largest first into the
 * smallest gap between those that it conflicts with. All of it runs once, before memory is taken, and `trireme plan`
 * runs it, too: it must not depend on the backend beyond the types in the config. */
enum { ALIGNMENT = 256 }; /* bytes: the most that a device's libraries ask for */

/* ---- sizes ---- */

struct table {
  const tri_step_arena_config *cfg;
  tri_step_arena_buffer *to;
};

static void add(struct table *t, tri_buffer_id id, int64_t rows, int64_t cols) {
  t->to[id] = (tri_step_arena_buffer){.rows = (int)rows, .cols = (int)cols, .copies = 1};
}

/* The most units that an MLP of this shard's layers has. Hidden units of routed experts are the backend's, in its
 * workspace; one that every token takes is an MLP. */
static int most_units(const tri_model_config *c, const tri_shard *s) {
  int most = s->shared_ff.count;
  for (int l = s->layers.first; l < s->layers.first + s->layers.count; l++) {
    int units = c->layer_flags[l] & TRI_LAYER_SPARSE ? 0 : tri_shard_units(c, s, l).count;
    if (units > most) most = units;
  }
  return most;
}

/* The most elements that a row of queries, keys and values has in a layer of this shard; of what attention gives, a
 * head of which has as many as of a value; and of what it writes, a head of which has as many as of a key. */
static int64_t most_qkv(const tri_model_config *c, const tri_shard *s) {
  int64_t most = c->mla.on ? s->q_heads.count * c->attention.head_dim : 0;
  for (int l = s->layers.first; l < s->layers.first + s->layers.count && !c->mla.on; l++) {
    int64_t heads = tri_shard_q_heads(c, s, l).count + 2 * (int64_t)tri_shard_new_kv_heads(c, s, l).count;
    int64_t n = heads * tri_layer_heads(c, l).dim;
    if (n > most) most = n;
  }
  return most;
}

static int64_t most_attended(const tri_model_config *c, const tri_shard *s) {
  int64_t most = 0;
  for (int l = s->layers.first; l < s->layers.first + s->layers.count; l++)
    if (tri_shard_q_heads(c, s, l).count * tri_value_dim(c, l) > most)
      most = tri_shard_q_heads(c, s, l).count * tri_value_dim(c, l);
  return most;
}

static int64_t most_wide(const tri_model_config *c, const tri_shard *s) {
  int64_t most = 0;
  for (int l = s->layers.first; l < s->layers.first + s->layers.count && c->attention.value_dim; l++)
    if (tri_shard_q_heads(c, s, l).count * tri_layer_heads(c, l).dim > most)
      most = tri_shard_q_heads(c, s, l).count * tri_layer_heads(c, l).dim;
  return most;
}

static int most_q_heads(const tri_model_config *c, const tri_shard *s) {
  int most = 0;
  for (int l = s->layers.first; l < s->layers.first + s->layers.count; l++)
    if (tri_shard_q_heads(c, s, l).count > most) most = tri_shard_q_heads(c, s, l).count;
  return most;
}

/* Experts of one data-parallel rank have its tokens' rows, those of several have all data-parallel ranks'. */
static void add_all2all(struct table *t) {
  const tri_model_config *c = t->cfg->model;
  const tri_limits *l = t->cfg->limits;
  tri_parallel p = t->cfg->shard->p;
  int64_t all = tri_dp_ranks_exchange(c, p) ? tri_parallel_dp(p) * tri_exchanged_rows(l) : 0;
  int64_t mapped = all ? all : tri_limits_chunk(l);
  add(t, TRI_BUF_map_choice, mapped, c->moe.top_k);
  add(t, TRI_BUF_map_row, mapped, c->moe.top_k);
  add(t, TRI_BUF_all2all_x, all, c->hidden_size);
  add(t, TRI_BUF_all2all_experts, all, c->moe.top_k);
  add(t, TRI_BUF_all2all_weights, all, c->moe.top_k);
  add(t, TRI_BUF_all2all_y, all, c->hidden_size);
}

/* Experts of a layer that the device and the host share. */
static void add_hot(struct table *t) {
  const tri_model_config *c = t->cfg->model;
  int hot = t->cfg->shard->p.hot_experts;
  int64_t tokens = hot ? tri_limits_chunk(t->cfg->limits) : 0;
  add(t, TRI_BUF_hot_first, 1, hot ? hot + 1 : 0);
  add(t, TRI_BUF_hot_choice, tokens, c->moe.top_k);
  add(t, TRI_BUF_hot_row, tokens, c->moe.top_k);
  add(t, TRI_BUF_host_delta, tokens, c->hidden_size);
}

/* The stream, what both branches of a parallel residual add, and the angles are all tokens' at a time, the rest is a
 * chunk's of a step in chunks. */
static void add_layers(struct table *t) {
  const tri_model_config *c = t->cfg->model;
  const tri_shard *s = t->cfg->shard;
  const tri_mla *m = &c->mla;
  int64_t all = t->cfg->limits->max_num_batched_tokens, tokens = tri_limits_chunk(t->cfg->limits),
          half = c->attention.rope.rotary_dim / 2, local_half = c->attention.local_rope.rotary_dim / 2;
  int64_t heads = s->q_heads.count, units = most_units(c, s);
  add(t, TRI_BUF_x, all, c->hidden_size + tri_layer_inputs_width(c));
  add(t, TRI_BUF_h, tokens, c->hidden_size);
  add(t, TRI_BUF_qkv, tokens, most_qkv(c, s));
  add(t, TRI_BUF_attn, tokens, most_attended(c, s));
  add(t, TRI_BUF_wide_attn, tokens, most_wide(c, s));
  add(t, TRI_BUF_delta, c->norm.parallel_residual ? all : tokens, c->hidden_size);
  add(t, TRI_BUF_mlp_delta, tokens, c->hidden_size);
  add(t, TRI_BUF_up, tokens, (c->mlp.gated ? 2 : 1) * units);
  add(t, TRI_BUF_act, tokens, units);
  add(t, TRI_BUF_embed, tokens, c->embed.size);
  add(t, TRI_BUF_layer_embed, tokens, c->num_layers * c->embed.layer_width);
  add(t, TRI_BUF_layer_project, tokens, c->num_layers * c->embed.layer_width);
  add(t, TRI_BUF_input_act, tokens, c->embed.layer_width);
  add(t, TRI_BUF_qkv_a, tokens, m->q_rank + m->rank + m->rope_dim);
  add(t, TRI_BUF_q_a, tokens, m->q_rank);
  add(t, TRI_BUF_absorbed, tokens, heads * (m->rank + m->rope_dim));
  add(t, TRI_BUF_latent, tokens, heads * m->rank);
  add(t, TRI_BUF_router, tokens, c->moe.num_experts);
  add(t, TRI_BUF_router_rows, tokens, c->moe.own_norms ? c->hidden_size : 0);
  add(t, TRI_BUF_routed_rows, tokens, c->moe.own_norms ? c->hidden_size : 0);
  add(t, TRI_BUF_experts, tokens, c->moe.top_k);
  add(t, TRI_BUF_expert_weights, tokens, c->moe.top_k);
  add(t, TRI_BUF_map_first, 1, s->slots.count + 1);
  add_all2all(t);
  add_hot(t);
  add(t, TRI_BUF_shared_gate, tokens, 1);
  add(t, TRI_BUF_head_gate, tokens, c->attention.head_gate ? most_q_heads(c, s) : 0);
  add(t, TRI_BUF_cos, all, half);
  add(t, TRI_BUF_sin, all, half);
  add(t, TRI_BUF_local_cos, all, local_half);
  add(t, TRI_BUF_local_sin, all, local_half);
  add(t, TRI_BUF_q_scale, all, c->attention.q_scale.beta > 0);
  add(t, TRI_BUF_square_sums, 2, tokens);
  t->to[TRI_BUF_x].copies = t->cfg->num_micro_batches;
}

static void add_ends(struct table *t) {
  const tri_model_config *c = t->cfg->model;
  const tri_shard *s = t->cfg->shard;
  const tri_limits *l = t->cfg->limits;
  int64_t rows = tri_limits_logits(l), seqs = l->max_num_seqs, tp = s->p.tp;
  int64_t pairs = 2 * TRI_SAMPLE_CANDIDATES; /* of 32-bit numbers, a candidate each */
  add(t, TRI_BUF_rows, rows, c->hidden_size + 2 * c->embed.layer_width);
  add(t, TRI_BUF_narrow_attn, rows, most_attended(c, s));
  add(t, TRI_BUF_narrow_rows, rows, c->embed.size);
  add(t, TRI_BUF_local_logits, rows, s->last_stage ? s->vocab.count : 0);
  add(t, TRI_BUF_logits, rows, c->vocab_size);
  add(t, TRI_BUF_part, rows, c->vocab_size / tp + 1);
  add(t, TRI_BUF_candidates, seqs, pairs);
  add(t, TRI_BUF_all_candidates, tp, seqs * pairs);
  add(t, TRI_BUF_chosen, seqs, c->hidden_size);
  add(t, TRI_BUF_pooled, seqs, c->hidden_size);
  add(t, TRI_BUF_dense1, seqs, c->sentence.dense[0].out);
  add(t, TRI_BUF_dense2, seqs, c->sentence.dense[1].out);
  add(t, TRI_BUF_scores, c->head.token_head ? l->max_num_batched_tokens : seqs, c->head.num_labels);
}

/* Norms over all heads are in float32, and the library adds biases to nothing else. */
static tri_dtype qkv_type(const tri_model_config *c, tri_dtype gemms) {
  bool rounds = !c->attention.bias && c->attention.qk_norm != TRI_QK_NORM_WHOLE;
  return rounds ? gemms : TRI_F32;
}

/* Latents come to their norm in float32: that of keys and values is rounded once, on its way to the cache. */
static void set_types(struct table *t) {
  static const tri_buffer_id of_gemms[] = {
      TRI_BUF_h,         TRI_BUF_attn,        TRI_BUF_narrow_attn, TRI_BUF_up,     TRI_BUF_act,
      TRI_BUF_all2all_x, TRI_BUF_q_a,         TRI_BUF_absorbed,    TRI_BUF_latent, TRI_BUF_input_act,
      TRI_BUF_wide_attn, TRI_BUF_router_rows, TRI_BUF_routed_rows};
  for (size_t i = 0; i < sizeof of_gemms / sizeof *of_gemms; i++) t->to[of_gemms[i]].type = t->cfg->gemms;
  t->to[TRI_BUF_qkv].type = qkv_type(t->cfg->model, t->cfg->gemms);
}

tri_dtype tri_step_arena_type(const tri_model_config *c, bool narrow, tri_dtype gemms) {
  bool read_otherwise = c->seq2seq.on || c->feeds_decoder;
  return narrow && !read_otherwise ? gemms : TRI_F32;
}

static bool size_buffer(tri_step_arena_buffer *b) {
  size_t bytes;
  if (!tri_size_mul((size_t)b->rows, (size_t)b->cols, &bytes) ||
      !tri_size_mul(bytes, tri_dtype_size(b->type), &bytes) || !tri_size_add(bytes, ALIGNMENT - 1, &b->stride))
    return false;
  b->stride &= ~(size_t)(ALIGNMENT - 1);
  return tri_size_mul(b->stride, (size_t)b->copies, &bytes);
}

/* Side by side. */
static bool lay_apart(tri_step_arena *a) {
  a->apart = 0;
  for (int i = 0; i < TRI_NUM_BUFFERS; i++) {
    a->buffers[i].offset = a->apart;
    if (!tri_size_add(a->apart, tri_step_arena_bytes(&a->buffers[i]), &a->apart)) return false;
  }
  a->bytes = a->apart;
  return true;
}

tri_status tri_step_arena_size(const tri_step_arena_config *config, tri_step_arena *out, tri_error *err) {
  struct table t = {config, out->buffers};
  bool fits = true;
  *out = (tri_step_arena){0};
  add_layers(&t);
  add_ends(&t);
  set_types(&t);
  for (int i = 0; i < TRI_NUM_BUFFERS && fits; i++) fits = size_buffer(&out->buffers[i]);
  if (fits && lay_apart(out) && out->apart <= PTRDIFF_MAX) return TRI_OK;
  return tri_fail(err, TRI_OVERFLOW, "max_num_batched_tokens", "the sizes overflow");
}

/* ---- the record ---- */

tri_status tri_step_record_make(const tri_step_arena_config *config, tri_step_arena *apart, tri_step_record *out,
                                tri_error *err) {
  tri_step_record r = {.apart = apart, .memory = (const char *)(uintptr_t)ALIGNMENT};
  tri_buffers buffers;
  TRI_CHECK(tri_step_arena_size(config, apart, err));
  tri_step_arena_bind(apart, (char *)(uintptr_t)r.memory, &buffers);
  tri_status st = tri_forward_record(config, &buffers, &r);
  if (st != TRI_OK) {
    tri_step_record_free(&r);
    return tri_fail(err, st, "forward", "the step cannot be recorded: %s", tri_status_text(st));
  }
  *out = r;
  return TRI_OK;
}

/* ---- places ---- */

/* Notes which buffers hold something at the same time, and in *used those that ops touch. */
/* x conflicts with every other buffer: transfers between stages may read its copies at any time. */
static tri_status find_conflicts(tri_step_arena *a, const tri_step_record *r, tri_buffer_set *used) {
  tri_buffer_set *live = tri_malloc((size_t)r->count + 1, sizeof *live);
  if (!live) return TRI_NO_MEMORY;
  tri_step_record_live(r, live);
  for (int e = 0; e < r->count; e++) {
    tri_buffer_set here =
        live[e] | r->events[e].reads | r->events[e].writes | live[e + 1] | (tri_buffer_set)1 << TRI_BUF_x;
    size_t bytes = 0;
    *used |= here;
    for (int i = 0; i < TRI_NUM_BUFFERS; i++) {
      if (!(here >> i & 1)) continue;
      a->buffers[i].conflicts |= here;
      bytes += tri_step_arena_bytes(&a->buffers[i]);
    }
    if (bytes > a->floor) a->floor = bytes;
  }
  tri_free(live);
  return TRI_OK;
}

/* Steps of both kinds have their buffers at the same places: a stage may have one layer alone, which narrows. */
static tri_status find_all_conflicts(const tri_step_arena_config *config, tri_step_arena *a, tri_buffer_set *used,
                                     tri_error *err) {
  tri_step_arena_config kind = *config;
  tri_status st = TRI_OK;
  for (int all = 0; all < 2 && st == TRI_OK; all++) {
    tri_step_arena apart;
    tri_step_record r = {0};
    kind.all_logits = all;
    st = tri_step_record_make(&kind, &apart, &r, err);
    if (st == TRI_OK) st = find_conflicts(a, &r, used);
    tri_step_record_free(&r);
  }
  return st;
}

/* The start of the smallest gap that holds the buffer between those of its conflicts that are placed, else the end of
 * the last of them. `placed` is in the order of offsets. */
static size_t find_gap(const tri_step_arena *a, const tri_step_arena_buffer *b, const int *placed, int n) {
  size_t bytes = tri_step_arena_bytes(b), end = 0, smallest = SIZE_MAX, best = 0;
  for (int i = 0; i < n; i++) {
    const tri_step_arena_buffer *other = &a->buffers[placed[i]];
    if (!(b->conflicts >> placed[i] & 1)) continue;
    size_t gap = other->offset > end ? other->offset - end : 0, other_end = other->offset + tri_step_arena_bytes(other);
    if (gap >= bytes && gap < smallest) {
      smallest = gap;
      best = end;
    }
    if (other_end > end) end = other_end;
  }
  return smallest < SIZE_MAX ? best : end;
}

/* From the largest buffer to the smallest. */
static void place(tri_step_arena *a) {
  int order[TRI_NUM_BUFFERS], placed[TRI_NUM_BUFFERS], n = 0;
  for (int i = 0; i < TRI_NUM_BUFFERS; i++) {
    size_t bytes = tri_step_arena_bytes(&a->buffers[i]);
    int k = n;
    if (!bytes) continue;
    for (; k > 0 && tri_step_arena_bytes(&a->buffers[order[k - 1]]) < bytes; k--) order[k] = order[k - 1];
    order[k] = i;
    n++;
  }
  a->bytes = 0;
  for (int i = 0; i < n; i++) {
    tri_step_arena_buffer *b = &a->buffers[order[i]];
    int k = i;
    b->offset = find_gap(a, b, placed, i);
    for (; k > 0 && a->buffers[placed[k - 1]].offset > b->offset; k--) placed[k] = placed[k - 1];
    placed[k] = order[i];
    size_t end = b->offset + tri_step_arena_bytes(b);
    if (end > a->bytes) a->bytes = end;
  }
}

tri_status tri_step_arena_plan(const tri_step_arena_config *config, tri_step_arena *out, tri_error *err) {
  tri_step_arena a;
  tri_buffer_set used = (tri_buffer_set)1 << TRI_BUF_x;
  TRI_CHECK(tri_step_arena_size(config, &a, err));
  TRI_CHECK(find_all_conflicts(config, &a, &used, err));
  for (int i = 0; i < TRI_NUM_BUFFERS; i++)
    if (!(used >> i & 1)) a.buffers[i].stride = 0;
  lay_apart(&a);
  place(&a);
  *out = a;
  return TRI_OK;
}

void tri_step_arena_bind(const tri_step_arena *a, char *memory, tri_buffers *out) {
  tri_mat m[TRI_NUM_BUFFERS];
  for (int i = 0; i < TRI_NUM_BUFFERS; i++) {
    const tri_step_arena_buffer *b = &a->buffers[i];
    m[i] = (tri_mat){b->stride ? (float *)(memory + b->offset) : NULL, b->rows, b->cols, b->cols, b->type};
  }
  *out = (tri_buffers){
#define X(name) .name = m[TRI_BUF_##name],
      TRI_BUFFER_LIST(X)
#undef X
          .micro_batch_stride = a->buffers[TRI_BUF_x].stride,
  };
}
