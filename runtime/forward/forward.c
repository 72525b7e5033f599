#include <math.h>
#include <string.h>

#include "runtime/base/hash.h"
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
  int buckets = (int)c->bias_buckets, first = 0, away = distance < 0 ? -distance : distance;
  if (c->encoder) {
    buckets /= 2;
    if (distance > 0) first = buckets;
  } else if (distance > 0) {
    away = 0;
  }
  int exact = buckets / 2;
  if (away < exact) return first + away;
  float scale = (float)log((double)c->bias_max_distance / exact);
  int wide = exact + (int)(logf((float)away / (float)exact) / scale * (float)(buckets - exact));
  return first + (wide < buckets ? wide : buckets - 1);
}

/* Host memory that create's uploads read; freed once they are done. */
struct staged {
  float *slopes, *bias;
  int32_t *kv_head_of;
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
  int reach = (int)c->bias_max_distance;
  size_t n = (size_t)w->n * (size_t)w->k, len = 2 * (size_t)reach + 1;
  void *stored = tri_malloc(n, tri_dtype_size(w->dtype));
  f->bias_len = (int)len, f->bias_offset = reach;
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
    float slope = round_bf16(slope_of(c->num_heads, heads.first + i));
    for (int p = 0; p < f->bias_len; p++)
      s->bias[(size_t)i * (size_t)f->bias_len + (size_t)p] = (float)c->attn_scale * round_bf16(slope * (float)p);
  }
  return s->bias != NULL;
}

/* Tables of what is added to the scores by position. */
static bool make_biases(tri_forward *f, struct staged *s) {
  const tri_model_config *c = f->cfg.model;
  tri_range heads = f->cfg.shard.q_heads;
  bool ok = true;
  if (c->position == TRI_POS_ALIBI) {
    ok = (s->slopes = tri_calloc((size_t)heads.count, sizeof *s->slopes)) != NULL;
    for (int i = 0; ok && i < heads.count; i++) s->slopes[i] = slope_of(c->num_heads, heads.first + i);
    return ok && put_table(f, s->slopes, (size_t)heads.count * sizeof *s->slopes, &f->slopes);
  }
  if (c->position == TRI_POS_RELATIVE) ok = make_relative_bias(f, s);
  if (c->position == TRI_POS_ALIBI_ROUNDED) ok = make_rounded_bias(f, s);
  size_t bytes = (size_t)heads.count * (size_t)f->bias_len * sizeof *s->bias;
  return ok && (!s->bias || put_table(f, s->bias, bytes, &f->bias));
}

static bool make_tables(tri_forward *f) {
  tri_backend *be = f->cfg.backend;
  const tri_model_config *c = f->cfg.model;
  const tri_shard *s = &f->cfg.shard;
  struct staged staged = {0};
  int heads = s->q_heads.count, group = (int)(c->num_heads / c->num_kv_heads);
  size_t half = (size_t)c->rope.rotary_dim / 2 * sizeof(float);
  bool even = s->q_heads.first % group == 0 && heads % group == 0 && !c->mla.on;
  f->heads_per_kv = even ? group : 0;
  bool ok = (staged.kv_head_of = tri_calloc((size_t)heads, sizeof *staged.kv_head_of)) != NULL;
  for (int i = 0; ok && i < heads; i++)
    staged.kv_head_of[i] = c->mla.on ? 0 : (s->q_heads.first + i) / group - s->kv_heads.first;
  ok = ok && put_table(f, staged.kv_head_of, (size_t)heads * sizeof *staged.kv_head_of, &f->kv_head_of);
  if (tri_has_rope(c))
    ok = ok && put_table(f, c->rope.inv_freq, half, &f->inv_freq) &&
         put_table(f, c->rope.inv_freq_long, half, &f->inv_freq_long);
  ok = ok && make_biases(f, &staged);
  ok = be->ops.stream_sync(be) == TRI_OK && ok;
  tri_free(staged.kv_head_of), tri_free(staged.slopes), tri_free(staged.bias);
  return ok;
}

tri_status tri_forward_create(const tri_forward_config *config, tri_forward **out, tri_error *err) {
  const tri_shard *s = &config->shard;
  const tri_model_config *c = config->model;
  tri_backend *be = config->backend;
  tri_step_arena arena;
  tri_step_arena_config ac = {.model = c, .shard = s, .limits = &config->limits, .num_lanes = config->num_lanes};
  ac.products = tri_step_arena_type(c, be->narrow_activations, config->weights->products);
  tri_status st = tri_step_arena_plan(&ac, &arena, err);
  if (st != TRI_OK) return st;
  tri_forward *f = tri_calloc(1, sizeof *f);
  if (!f) return tri_fail(err, TRI_NO_MEMORY, "forward", "no memory");
  f->cfg = *config;
  f->bytes = arena.bytes;
  f->buf.x = tri_calloc((size_t)config->num_lanes, sizeof *f->buf.x);
  f->sends = tri_calloc((size_t)config->num_lanes, sizeof *f->sends);
  if (!make_tables(f) || !f->buf.x || !f->sends ||
      be->ops.mem_alloc(be, TRI_MEM_ACTIVATIONS, f->bytes, &f->memory) != TRI_OK) {
    tri_fail(err, TRI_NO_MEMORY, "max_num_batched_tokens",
             "no memory for %zu bytes of activations (%d tokens per step)", f->bytes,
             config->limits.max_num_batched_tokens);
    tri_forward_destroy(f);
    return TRI_NO_MEMORY;
  }
  tri_step_arena_bind(&arena, f->memory, &f->buf);
  f->dense_layer = f->sparse_layer = -1;
  for (int l = 0; l < s->layers.count; l++)
    *(c->layer_flags[s->layers.first + l] & TRI_LAYER_SPARSE ? &f->sparse_layer : &f->dense_layer) = l;
  /* The first KV head may be the last one of the rank before. */
  int shared = s->q_heads.first % (int)(c->num_heads / c->num_kv_heads) != 0;
  f->counted_kv = (tri_range){shared, s->kv_heads.count - shared};
  *out = f;
  return TRI_OK;
}

void tri_forward_destroy(tri_forward *f) {
  if (!f) return;
  tri_backend *be = f->cfg.backend;
  be->ops.graph_drop(be);
  if (f->memory) be->ops.mem_free(be, TRI_MEM_ACTIVATIONS, f->memory, f->bytes);
  for (int i = 0; i < f->num_tables; i++) be->ops.mem_free(be, TRI_MEM_ACTIVATIONS, f->tables[i].p, f->tables[i].bytes);
  tri_free(f->buf.x), tri_free(f->sends);
  tri_free(f);
}

static void settle(tri_forward *f, tri_mat x, tri_mat pending) {
  tri_backend *be = f->cfg.backend;
  tri_norm_args a = tri_norm_of(f, x, pending, &tri_no_weight, &tri_no_weight, tri_no_mat);
  if (pending.data) be->ops.norm_launch(be, &f->plan.settle, &a);
}

static tri_status embed(tri_forward *f, const tri_batch *b, int lane, tri_mat x) {
  tri_backend *be = f->cfg.backend;
  const tri_model_config *c = f->cfg.model;
  const tri_weight *w = f->cfg.weights->global;
  tri_embed_args embed = tri_embed_of(f, b, lane);
  be->ops.embed_launch(be, &f->plan.embed, &embed);
  tri_status st = tri_forward_sum(f, embed.out);
  if (st != TRI_OK) return st;
  tri_mat normed = c->projects_last ? embed.out : x;
  tri_norm_args norm = tri_norm_of(f, normed, tri_no_mat, &w[TRI_W_EMBED_NORM], &w[TRI_W_EMBED_NORM_BIAS], normed);
  if (c->embed_norm && c->projects_last) be->ops.norm_launch(be, &f->plan.embed_norm, &norm);
  if (tri_adds_positions_late(c)) {
    tri_embed_args positions = tri_positions_of(f, b, lane);
    be->ops.embed_launch(be, &f->plan.positions, &positions);
  }
  if (c->projected) {
    tri_linear_args in = tri_project_in_of(f, embed.out, x);
    be->ops.linear_launch(be, &f->plan.project_in, &in);
  }
  if (c->embed_norm && !c->projects_last) tri_forward_norm_stream(f, &f->plan.embed_norm, norm);
  return TRI_OK;
}

static size_t bytes_of(tri_mat m) { return (size_t)m.rows * (size_t)m.cols * sizeof(float); }

static tri_status receive_hidden(tri_forward *f, int lane, tri_mat x) {
  const tri_group *g = f->cfg.group;
  tri_comm *c = f->cfg.stages;
  return c->ops->recv(c, x.data, bytes_of(x), tri_group_rank(g, g->p.pp_rank - 1, g->p.tp_rank), TRI_TAG_HIDDEN + lane);
}

static tri_status send_hidden(tri_forward *f, int lane, tri_mat x) {
  const tri_group *g = f->cfg.group;
  tri_comm *c = f->cfg.stages;
  return c->ops->isend(c, x.data, bytes_of(x), tri_group_rank(g, g->p.pp_rank + 1, g->p.tp_rank), TRI_TAG_HIDDEN + lane,
                       &f->sends[lane]);
}

/* What the head of this rank leaves behind: its part of the vocabulary. */
static tri_mat logits_of(const tri_forward *f, int rows) {
  return f->cfg.shard.last_stage && !f->cfg.model->encoder && rows ? tri_rows(f->buf.local_logits, rows) : tri_no_mat;
}

static void run_head(tri_forward *f, const tri_batch *b, tri_mat x, tri_mat pending) {
  tri_backend *be = f->cfg.backend;
  const tri_model_config *c = f->cfg.model;
  const tri_weight *w = f->cfg.weights->global;
  const tri_observer *o = tri_observer_of(f);
  tri_mat rows = tri_rows(f->buf.rows, b->num_logits), in = rows;
  settle(f, x, pending);
  if (!b->num_logits) return;
  tri_gather_rows_args gather = {.x = x, .rows = b->logit_rows, .out = rows};
  be->ops.gather_rows_launch(be, &f->plan.gather, &gather);
  if (!c->no_final_norm) {
    tri_norm_args norm = tri_norm_of(f, rows, tri_no_mat, &w[TRI_W_FINAL_NORM], &w[TRI_W_FINAL_NORM_BIAS], rows);
    be->ops.norm_launch(be, &f->plan.final_norm, &norm);
  }
  if (c->projected) {
    in = tri_rows(f->buf.narrow_rows, b->num_logits);
    tri_linear_args out = tri_linear_of(f, rows, &w[TRI_W_PROJECT_OUT], &tri_no_weight, TRI_ACT_NONE, false, in);
    be->ops.linear_launch(be, &f->plan.project_out, &out);
  }
  if (o && o->hidden) o->hidden(o->ctx, (int)c->num_layers, in);
  tri_linear_args head = tri_linear_of(f, in, &w[TRI_W_HEAD], &w[TRI_W_HEAD_BIAS], TRI_ACT_NONE, false,
                                       tri_rows(f->buf.local_logits, b->num_logits));
  be->ops.linear_launch(be, &f->plan.head, &head);
  if (c->logit_scale != 1 || c->logit_softcap > 0) {
    tri_softcap_args cap = {.x = head.out, .scale = (float)c->logit_scale, .cap = (float)c->logit_softcap};
    be->ops.softcap_launch(be, &f->plan.cap, &cap);
  }
}

/* An encoder's last stage. Every rank has the final states, one the ends. */
static tri_status finish_encoding(tri_forward *f, const tri_batch *b, tri_mat x, tri_mat pending) {
  tri_backend *be = f->cfg.backend;
  const tri_model_config *c = f->cfg.model;
  const tri_observer *o = tri_observer_of(f);
  const tri_weight *w = f->cfg.weights->global;
  tri_norm_args norm = tri_norm_of(f, x, pending, &w[TRI_W_FINAL_NORM], &w[TRI_W_FINAL_NORM_BIAS], x);
  if (c->no_final_norm)
    settle(f, x, pending);
  else
    be->ops.norm_launch(be, &f->plan.norm, &norm);
  if (o && o->hidden) o->hidden(o->ctx, (int)c->num_layers, x);
  if (!tri_is_encoding_rank(c, &f->cfg.shard)) return TRI_OK;
  tri_encoder_run(f, b, x);
  tri_encoded ends = tri_encoder_ends(f, b, x);
  if (o && o->encoded) o->encoded(o->ctx, &ends);
  return TRI_OK;
}

/* From the batch's tokens, or from x where they come from the stage before, to what this stage leaves. */
static tri_status run_stage(tri_forward *f, const tri_batch *b, int lane, tri_mat x) {
  tri_backend *be = f->cfg.backend;
  tri_mat pending = {0};
  tri_status st;
  f->copied = false;
  if (tri_has_rope(f->cfg.model)) {
    tri_rope_angles_args rope = tri_rope_of(f, b);
    be->ops.rope_angles_launch(be, &f->plan.rope, &rope);
  }
  if (f->cfg.shard.first_stage) TRI_TRY(embed(f, b, lane, x));
  TRI_TRY(tri_forward_blocks(f, b, 0, f->cfg.shard.layers.count, x, &pending));
  if (!f->cfg.shard.last_stage)
    settle(f, x, pending);
  else if (f->cfg.model->encoder)
    st = finish_encoding(f, b, x, pending);
  else
    run_head(f, b, x, pending);
cleanup:
  return st;
}

/* The ranks of a tensor group have equal parts, and so make the same plans of a step: collectives must be recorded by
 * all of them or by none. */
static bool has_equal_shards(const tri_forward *f) {
  const tri_model_config *c = f->cfg.model;
  int64_t tp = f->cfg.group->p.tp, kv = c->num_kv_heads;
  return tp == 1 || (c->num_heads % tp == 0 && (kv % tp == 0 || tp % kv == 0) && c->intermediate_size % tp == 0);
}

/* A step can be recorded where nobody looks into it. Whether it is worth it the backend sees by its key. */
static bool is_recordable(const tri_forward *f) {
  const tri_model_config *c = f->cfg.model;
  return has_equal_shards(f) && f->cfg.backend->records && !tri_observer_of(f) && !c->seq2seq.on && !c->feeds_decoder;
}

/* Steps in which every sequence has one token come in few shapes, once they are padded. */
static bool is_padded(const tri_forward *f, const tri_batch *b) {
  return is_recordable(f) && !f->cfg.model->encoder && b->max_query == 1 && b->num_logits == b->num_tokens;
}

/* Of everything that the ops' arguments are made from, but for the addresses, which stay, and for the lengths of
 * sequences, which only plans look at. */
static uint64_t key_of(const tri_forward *f, const tri_batch *b, int lane) {
  const int32_t shape[] = {lane, b->num_tokens, b->num_seqs, b->num_logits, b->num_single, b->block_table_stride};
  uint64_t h = tri_hash_bytes(TRI_HASH_SEED, shape, sizeof shape);
  return tri_hash_bytes(h, &f->plan, sizeof f->plan);
}

static tri_status run_recorded(tri_forward *f, const tri_batch *b, int lane, tri_mat x) {
  tri_backend *be = f->cfg.backend;
  tri_graph_mode mode = be->ops.graph_begin(be, key_of(f, b, lane));
  if (mode == TRI_GRAPH_REPLAY) return TRI_OK;
  tri_status st = run_stage(f, b, lane, x), ended = mode == TRI_GRAPH_RECORD ? be->ops.graph_end(be) : TRI_OK;
  if (st != TRI_OK || ended != TRI_AGAIN) return st != TRI_OK ? st : ended;
  /* The other ranks of a tensor group have recorded their part of the collectives: this one cannot launch its own. */
  return f->cfg.group->p.tp > 1 ? TRI_NO_MEMORY : run_stage(f, b, lane, x);
}

void tri_forward_copy_pages(tri_forward *f, const tri_batch_builder *b) {
  tri_backend *be = f->cfg.backend;
  for (int l = 0; b->num_copies && l < f->cfg.kv->num_layers; l++) {
    tri_copy_pages_args copy = {.kv = f->cfg.kv->layers[l], .pairs = b->copies, .num_pairs = b->num_copies};
    be->ops.copy_pages_launch(be, &f->plan.copy, &copy);
  }
}

tri_status tri_forward_run(tri_forward *f, const tri_batch_builder *builder, int lane, tri_mat *logits,
                           tri_encoded *encoded) {
  const tri_model_config *c = f->cfg.model;
  const tri_batch *b = c->feeds_decoder ? &builder->source : &builder->batch;
  tri_backend *be = f->cfg.backend;
  tri_comm *stages = f->cfg.stages;
  int wanted = b->num_logits;
  tri_batch padded;
  tri_status st = TRI_OK;
  *logits = (tri_mat){0};
  *encoded = (tri_encoded){0};
  /* A source may be encoded into a page that has just been given up, so that its copy was made before. */
  if (!c->feeds_decoder && !builder->source.num_tokens) tri_forward_copy_pages(f, builder);
  if (!b->num_tokens) return TRI_OK;
  if (is_padded(f, b)) tri_batch_pad(builder, &f->cfg.limits, &padded), b = &padded;
  tri_mat x = tri_rows(f->buf.x[lane], b->num_tokens);
  TRI_TRY(be->ops.bind_batch(be, c->feeds_decoder ? 2 : 0, b, &f->bound));
  b = &f->bound;
  if (c->seq2seq.on) TRI_TRY(be->ops.bind_batch(be, 1, &builder->cross, &f->bound_cross));
  f->cross = c->seq2seq.on ? &f->bound_cross : NULL;
  TRI_TRY(tri_forward_plan(f, b, lane));
  TRI_TRY(stages->ops->wait(stages, &f->sends[lane])); /* the lane's last transfer out of x */
  if (!f->cfg.shard.first_stage) TRI_TRY(receive_hidden(f, lane, x));
  TRI_TRY(is_recordable(f) ? run_recorded(f, b, lane, x) : run_stage(f, b, lane, x));
  if (c->encoder && f->cfg.shard.last_stage) *encoded = tri_encoder_ends(f, b, x);
  if (!f->cfg.shard.last_stage) TRI_TRY(send_hidden(f, lane, x));
  *logits = logits_of(f, wanted);
cleanup:
  atomic_store_explicit(&f->cfg.progress->block, TRI_BLOCK_IDLE, memory_order_relaxed);
  return st;
}
