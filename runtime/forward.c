#include "runtime/forward.h"

#include <string.h>

/* Activations of one step. x has a copy per lane, since a lane's last transfer to the next stage may still be under way
 * while another lane computes. */
struct buffers {
  tri_mat *x; /* [lanes] residual stream, [T, hidden] */
  tri_mat h;  /* normed input of a product */
  tri_mat qkv, attn, up, act, delta;
  float *cos, *sin;
  tri_mat rows;         /* the hidden states whose logits are wanted */
  tri_mat local_logits; /* this rank's part of the vocabulary */
  tri_mat logits;       /* sampling rank: the whole vocabulary */
  float *part;          /* sampling rank: another rank's part on arrival */
};

/* One plan per op and shape; all layers share them. */
struct plans {
  tri_op_plan embed, norm, settle, qkv, append, attention, o, up, glu, down, gather, final_norm, head, rope, copy;
};

struct tri_forward {
  tri_forward_config cfg;
  struct buffers buf;
  struct plans plan;
  int32_t *kv_head_of;
  int num_tokens;      /* of the step under way */
  tri_comm_req *sends; /* [lanes] */
  void *memory;
  size_t bytes;
  size_t reserved;
};

/* Walks the buffers in one order, to add them up (base NULL) or to place them. */
static bool carve(struct buffers *b, const tri_model_config *c, const tri_shard *s, const tri_limits *l, int lanes,
                  char *base, size_t *total) {
  int t = l->max_num_batched_tokens, hidden = (int)c->hidden_size, d = (int)c->head_dim;
  int q = s->q_heads.count * d, qkv = q + 2 * s->kv_heads.count * d, up = (c->gated ? 2 : 1) * s->ff.count;
  bool sampler = s->last_stage && s->p.tp_rank == 0;
  int vocab = (int)c->vocab_size, local = s->last_stage ? s->vocab.count : 0;
  int rows = s->last_stage ? tri_limits_logits(l) : 0, half = c->rope.rotary_dim / 2;
  size_t at = 0;
  bool ok = true;
#define PLACE(mat, r, n)                                                                                               \
  do {                                                                                                                 \
    size_t bytes_ = 0;                                                                                                 \
    ok = ok && tri_size_mul((size_t)(r), (size_t)(n), &bytes_) && tri_size_mul(bytes_, sizeof(float), &bytes_);        \
    if (b) (mat) = (tri_mat){(float *)(base + at), (int)(r), (int)(n), (int)(n)};                                      \
    ok = ok && tri_size_add(at, (bytes_ + 63) & ~(size_t)63, &at);                                                     \
  } while (0)
  tri_mat unused;
  for (int i = 0; i < lanes; i++) PLACE(*(b ? &b->x[i] : &unused), t, hidden);
  PLACE(b->h, t, hidden);
  PLACE(b->delta, t, hidden);
  PLACE(b->qkv, t, qkv);
  PLACE(b->attn, t, q);
  PLACE(b->up, t, up);
  PLACE(b->act, c->gated ? t : 0, s->ff.count);
  tri_mat cos = {0}, sin = {0}, part = {0};
  PLACE(cos, t, half);
  PLACE(sin, t, half);
  PLACE(b->rows, rows, hidden);
  PLACE(b->local_logits, rows, local);
  /* With one tensor rank its part is the whole. */
  PLACE(b->logits, sampler && s->p.tp > 1 ? rows : 0, vocab);
  PLACE(part, sampler && s->p.tp > 1 ? rows : 0, vocab / s->p.tp + 1);
#undef PLACE
  if (b) b->cos = cos.data, b->sin = sin.data, b->part = part.data;
  *total = at;
  return ok;
}

bool tri_forward_bytes(const tri_model_config *c, const tri_shard *s, const tri_limits *limits, int num_lanes,
                       size_t *out) {
  return carve(NULL, c, s, limits, num_lanes, NULL, out);
}

tri_status tri_forward_create(const tri_forward_config *config, tri_forward **out, tri_error *err) {
  const tri_shard *s = &config->shard;
  const tri_model_config *c = config->model;
  tri_forward *f = tri_calloc(1, sizeof *f);
  if (!f) return tri_fail(err, TRI_NO_MEMORY, "forward", "no memory");
  f->cfg = *config;
  f->buf.x = tri_calloc((size_t)config->num_lanes, sizeof *f->buf.x);
  f->sends = tri_calloc((size_t)config->num_lanes, sizeof *f->sends);
  f->kv_head_of = tri_calloc((size_t)s->q_heads.count, sizeof *f->kv_head_of);
  tri_backend *be = config->backend;
  if (!f->buf.x || !f->sends || !f->kv_head_of ||
      !tri_forward_bytes(c, s, &config->limits, config->num_lanes, &f->bytes) ||
      be->ops.mem_alloc(be, TRI_MEM_ACTIVATIONS, f->bytes, &f->memory) != TRI_OK) {
    tri_fail(err, TRI_NO_MEMORY, "max_num_batched_tokens",
             "no memory for %zu bytes of activations (%d tokens per step)", f->bytes,
             config->limits.max_num_batched_tokens);
    tri_forward_destroy(f);
    return TRI_NO_MEMORY;
  }
  size_t total;
  carve(&f->buf, c, s, &config->limits, config->num_lanes, f->memory, &total);
  int group = (int)(c->num_heads / c->num_kv_heads);
  for (int i = 0; i < s->q_heads.count; i++) f->kv_head_of[i] = (s->q_heads.first + i) / group - s->kv_heads.first;
  *out = f;
  return TRI_OK;
}

void tri_forward_destroy(tri_forward *f) {
  if (!f) return;
  if (f->memory) f->cfg.backend->ops.mem_free(f->cfg.backend, TRI_MEM_ACTIVATIONS, f->memory, f->bytes);
  tri_free(f->buf.x), tri_free(f->sends), tri_free(f->kv_head_of);
  tri_free(f);
}

static tri_mat head_rows(tri_mat m, int rows) {
  m.rows = rows;
  return m;
}

static tri_mat cols(tri_mat m, int n) {
  m.cols = n;
  return m;
}

/* The arguments of each op for a layer; plan and launch use the same ones. */

static tri_norm_args norm_args(const tri_forward *f, tri_mat x, tri_mat delta, const tri_weight *w,
                               const tri_weight *bias, tri_mat out) {
  return (tri_norm_args){.x = x,
                         .delta = delta,
                         .delta_scale = 1,
                         .weight = tri_vector(w),
                         .bias = tri_vector(bias),
                         .eps = (float)f->cfg.model->norm_eps,
                         .kind = f->cfg.model->norm,
                         .out = out};
}

static tri_linear_args linear_args(tri_mat x, const tri_weight *w, const tri_weight *bias, tri_act act, bool accumulate,
                                   tri_mat out) {
  return (tri_linear_args){.x = x, .w = *w, .bias = tri_vector(bias), .act = act, .accumulate = accumulate, .out = out};
}

static tri_qkv_rope_append_args append_args(const tri_forward *f, const tri_batch *b, int l) {
  const tri_model_config *c = f->cfg.model;
  bool rope = c->position == TRI_POS_ROPE;
  return (tri_qkv_rope_append_args){
      .qkv = head_rows(f->buf.qkv, b->num_tokens),
      .num_heads = f->cfg.shard.q_heads.count,
      .num_kv_heads = f->cfg.shard.kv_heads.count,
      .head_dim = (int)c->head_dim,
      .norm_eps = (float)c->norm_eps,
      .rotary_dim = rope ? c->rope.rotary_dim : 0,
      .interleaved = c->rope.interleaved,
      .cos = f->buf.cos,
      .sin = f->buf.sin,
      .kv_slot = b->kv_slot,
      .kv = f->cfg.kv->layers[l],
  };
}

static tri_attention_args attention_args(const tri_forward *f, const tri_batch *b, int l) {
  const tri_model_config *c = f->cfg.model;
  double scale = c->attn_scale;
  if (c->scale_attn_by_layer) scale /= f->cfg.shard.layers.first + l + 1;
  return (tri_attention_args){
      .q = cols(head_rows(f->buf.qkv, b->num_tokens), f->cfg.shard.q_heads.count * (int)c->head_dim),
      .kv = f->cfg.kv->layers[l],
      .batch = b,
      .num_heads = f->cfg.shard.q_heads.count,
      .kv_head_of = f->kv_head_of,
      .scale = (float)scale,
      .causal = true,
      .out = head_rows(f->buf.attn, b->num_tokens),
  };
}

static tri_embed_args embed_args(const tri_forward *f, const tri_batch *b, int lane) {
  const tri_weights *w = f->cfg.weights;
  return (tri_embed_args){
      .ids = b->token_ids,
      .positions = b->positions,
      .table = w->global[TRI_W_EMBED],
      .first_id = (uint32_t)f->cfg.shard.vocab.first,
      .scale = (float)f->cfg.model->embed_scale,
      .position_table = w->global[TRI_W_POSITIONS],
      .out = head_rows(f->buf.x[lane], b->num_tokens),
  };
}

static tri_rope_angles_args rope_args(const tri_forward *f, const tri_batch *b) {
  const tri_rope *r = &f->cfg.model->rope;
  return (tri_rope_angles_args){
      .positions = b->positions,
      .rope_len = b->rope_len,
      .inv_freq = r->inv_freq,
      .inv_freq_long = r->inv_freq_long,
      .kind = r->kind,
      .num_tokens = b->num_tokens,
      .rotary_dim = r->rotary_dim,
      .original_max_len = r->original_max_len,
      .base = r->base,
      .factor = r->factor,
      .attention_scale = r->attention_scale,
      .cos = f->buf.cos,
      .sin = f->buf.sin,
  };
}

static tri_glu_args glu_args(const tri_forward *f, int t) {
  return (tri_glu_args){.gate_up = head_rows(f->buf.up, t), .act = f->cfg.model->act, .out = head_rows(f->buf.act, t)};
}

/* Chooses the kernels of a step's shapes and makes room for their workspace. */
static tri_status plan_step(tri_forward *f, const tri_batch *b, int lane, int num_rows) {
  tri_backend *be = f->cfg.backend;
  const tri_model_config *c = f->cfg.model;
  const struct buffers *u = &f->buf;
  const tri_layer_weights *w = f->cfg.weights->layers;
  int t = b->num_tokens;
  tri_mat x = head_rows(u->x[lane], t), h = head_rows(u->h, t), delta = head_rows(u->delta, t), none = {0};
  tri_status st = TRI_OK;
  if (t != f->num_tokens) {
    f->num_tokens = -1;
    tri_norm_args norm = norm_args(f, x, delta, &w->w[TRI_W_NORM1], &w->w[TRI_W_NORM1_BIAS], h);
    tri_norm_args settle = norm_args(f, x, delta, &(tri_weight){0}, &(tri_weight){0}, none);
    tri_linear_args qkv =
        linear_args(h, &w->w[TRI_W_QKV], &w->w[TRI_W_QKV_BIAS], TRI_ACT_NONE, false, head_rows(u->qkv, t));
    tri_linear_args o =
        linear_args(head_rows(u->attn, t), &w->w[TRI_W_O], &w->w[TRI_W_O_BIAS], TRI_ACT_NONE, false, delta);
    tri_linear_args up = linear_args(h, &w->w[TRI_W_UP], &w->w[TRI_W_UP_BIAS], c->gated ? TRI_ACT_NONE : c->act, false,
                                     head_rows(u->up, t));
    tri_linear_args down = linear_args(head_rows(c->gated ? u->act : u->up, t), &w->w[TRI_W_DOWN],
                                       &w->w[TRI_W_DOWN_BIAS], TRI_ACT_NONE, c->parallel_residual, delta);
    tri_qkv_rope_append_args append = append_args(f, b, 0);
    TRI_TRY(be->ops.norm_plan(be, &norm, &f->plan.norm));
    TRI_TRY(be->ops.norm_plan(be, &settle, &f->plan.settle));
    TRI_TRY(be->ops.linear_plan(be, &qkv, &f->plan.qkv));
    TRI_TRY(be->ops.linear_plan(be, &o, &f->plan.o));
    TRI_TRY(be->ops.linear_plan(be, &up, &f->plan.up));
    TRI_TRY(be->ops.linear_plan(be, &down, &f->plan.down));
    TRI_TRY(be->ops.qkv_rope_append_plan(be, &append, &f->plan.append));
    if (f->cfg.shard.first_stage) {
      tri_embed_args embed = embed_args(f, b, lane);
      TRI_TRY(be->ops.embed_plan(be, &embed, &f->plan.embed));
    }
    if (c->gated) {
      tri_glu_args glu = glu_args(f, t);
      TRI_TRY(be->ops.glu_plan(be, &glu, &f->plan.glu));
    }
    if (c->position == TRI_POS_ROPE) {
      tri_rope_angles_args rope = rope_args(f, b);
      TRI_TRY(be->ops.rope_angles_plan(be, &rope, &f->plan.rope));
    }
    f->num_tokens = t;
  }
  tri_attention_args attention = attention_args(f, b, 0);
  TRI_TRY(be->ops.attention_plan(be, &attention, &f->plan.attention));
  if (f->cfg.shard.last_stage && num_rows) {
    tri_mat rows = head_rows(u->rows, num_rows);
    tri_norm_args norm = norm_args(f, rows, none, &f->cfg.weights->global[TRI_W_FINAL_NORM],
                                   &f->cfg.weights->global[TRI_W_FINAL_NORM_BIAS], rows);
    tri_linear_args head = linear_args(rows, &f->cfg.weights->global[TRI_W_HEAD], &(tri_weight){0}, TRI_ACT_NONE, false,
                                       head_rows(u->local_logits, num_rows));
    tri_gather_rows_args gather = {.x = x, .rows = b->logit_rows, .out = rows};
    TRI_TRY(be->ops.gather_rows_plan(be, &gather, &f->plan.gather));
    TRI_TRY(be->ops.norm_plan(be, &norm, &f->plan.final_norm));
    TRI_TRY(be->ops.linear_plan(be, &head, &f->plan.head));
  }
  size_t need = 0;
  const tri_op_plan *all = (const tri_op_plan *)&f->plan;
  for (size_t i = 0; i < sizeof f->plan / sizeof *all; i++)
    if (all[i].workspace > need) need = all[i].workspace;
  if (need > f->reserved) {
    TRI_TRY(be->ops.reserve(be, need));
    f->reserved = need;
  }
cleanup:
  return st;
}

/* Weights stay where they are; with streaming these wait for a block and let it go. */
static const tri_layer_weights *weights_acquire(tri_forward *f, int l) { return &f->cfg.weights->layers[l]; }
static void weights_release(tri_forward *f, int l) { (void)f, (void)l; }

static tri_status all_reduce(tri_forward *f, tri_mat m) {
  tri_comm *c = f->cfg.group->tensor;
  return c->ops->all_reduce(c, m.data, (size_t)m.rows * (size_t)m.cols, NULL);
}

static void run_attention(tri_forward *f, const tri_batch *b, int l, const tri_layer_weights *w, tri_mat h,
                          tri_mat delta) {
  tri_backend *be = f->cfg.backend;
  int t = b->num_tokens;
  tri_linear_args qkv =
      linear_args(h, &w->w[TRI_W_QKV], &w->w[TRI_W_QKV_BIAS], TRI_ACT_NONE, false, head_rows(f->buf.qkv, t));
  tri_qkv_rope_append_args append = append_args(f, b, l);
  tri_attention_args attention = attention_args(f, b, l);
  tri_linear_args o =
      linear_args(head_rows(f->buf.attn, t), &w->w[TRI_W_O], &w->w[TRI_W_O_BIAS], TRI_ACT_NONE, false, delta);
  be->ops.linear_launch(be, &f->plan.qkv, &qkv, NULL);
  be->ops.qkv_rope_append_launch(be, &f->plan.append, &append, NULL);
  be->ops.attention_launch(be, &f->plan.attention, &attention, NULL);
  be->ops.linear_launch(be, &f->plan.o, &o, NULL);
}

static void run_mlp(tri_forward *f, const tri_layer_weights *w, tri_mat h, tri_mat delta, bool accumulate) {
  tri_backend *be = f->cfg.backend;
  const tri_model_config *c = f->cfg.model;
  int t = h.rows;
  tri_linear_args up = linear_args(h, &w->w[TRI_W_UP], &w->w[TRI_W_UP_BIAS], c->gated ? TRI_ACT_NONE : c->act, false,
                                   head_rows(f->buf.up, t));
  be->ops.linear_launch(be, &f->plan.up, &up, NULL);
  if (c->gated) {
    tri_glu_args glu = glu_args(f, t);
    be->ops.glu_launch(be, &f->plan.glu, &glu, NULL);
  }
  tri_mat in = head_rows(c->gated ? f->buf.act : f->buf.up, t);
  tri_linear_args down = linear_args(in, &w->w[TRI_W_DOWN], &w->w[TRI_W_DOWN_BIAS], TRI_ACT_NONE, accumulate, delta);
  be->ops.linear_launch(be, &f->plan.down, &down, NULL);
}

/* One block. On entry x plus *pending is the residual stream; the block adds *pending in its first norm and leaves its
 * own last addend there, so that every addition is fused with the norm that follows it. */
static tri_status run_block(tri_forward *f, const tri_batch *b, int l, tri_mat x, tri_mat *pending) {
  tri_backend *be = f->cfg.backend;
  const tri_model_config *c = f->cfg.model;
  const tri_layer_weights *w = weights_acquire(f, l);
  tri_mat h = head_rows(f->buf.h, b->num_tokens), delta = head_rows(f->buf.delta, b->num_tokens);
  tri_status st = TRI_OK;
  tri_norm_args norm1 = norm_args(f, x, *pending, &w->w[TRI_W_NORM1], &w->w[TRI_W_NORM1_BIAS], h);
  be->ops.norm_launch(be, &f->plan.norm, &norm1, NULL);
  if (f->cfg.observer.hidden) f->cfg.observer.hidden(f->cfg.observer.ctx, f->cfg.shard.layers.first + l, x);
  run_attention(f, b, l, w, h, delta);
  tri_norm_args norm2 =
      norm_args(f, x, c->parallel_residual ? (tri_mat){0} : delta, &w->w[TRI_W_NORM2], &w->w[TRI_W_NORM2_BIAS], h);
  if (!c->parallel_residual) TRI_TRY(all_reduce(f, delta));
  be->ops.norm_launch(be, &f->plan.norm, &norm2, NULL);
  /* A parallel residual sums both branches before the one all-reduce. */
  run_mlp(f, w, h, delta, c->parallel_residual);
  TRI_TRY(all_reduce(f, delta));
  *pending = delta;
cleanup:
  weights_release(f, l);
  return st;
}

static tri_status run_blocks(tri_forward *f, const tri_batch *b, int first, int last, tri_mat x, tri_mat *pending) {
  for (int l = first; l < last; l++) {
    atomic_store_explicit(&f->cfg.progress->block, (uint32_t)(f->cfg.shard.layers.first + l), memory_order_relaxed);
    tri_status st = run_block(f, b, l, x, pending);
    if (st != TRI_OK) return st;
  }
  return TRI_OK;
}

static tri_status enter_stage(tri_forward *f, const tri_batch *b, int lane, tri_mat x) {
  const tri_group *g = f->cfg.group;
  if (!f->cfg.shard.first_stage) {
    int from = tri_group_rank(g, g->p.pp_rank - 1, g->p.tp_rank);
    return g->world->ops->recv(g->world, x.data, (size_t)x.rows * (size_t)x.cols * sizeof(float), from,
                               TRI_TAG_HIDDEN + lane, NULL);
  }
  tri_backend *be = f->cfg.backend;
  tri_embed_args embed = embed_args(f, b, lane);
  be->ops.embed_launch(be, &f->plan.embed, &embed, NULL);
  return all_reduce(f, x);
}

static tri_status leave_stage(tri_forward *f, int lane, tri_mat x, tri_mat pending) {
  const tri_group *g = f->cfg.group;
  tri_backend *be = f->cfg.backend;
  tri_norm_args settle = norm_args(f, x, pending, &(tri_weight){0}, &(tri_weight){0}, (tri_mat){0});
  be->ops.norm_launch(be, &f->plan.settle, &settle, NULL);
  int to = tri_group_rank(g, g->p.pp_rank + 1, g->p.tp_rank);
  return g->world->ops->isend(g->world, x.data, (size_t)x.rows * (size_t)x.cols * sizeof(float), to,
                              TRI_TAG_HIDDEN + lane, &f->sends[lane], NULL);
}

/* The sampling rank collects the parts of the vocabulary; they need not be of equal width. */
static tri_status gather_logits(tri_forward *f, int rows, tri_mat *out) {
  const tri_group *g = f->cfg.group;
  tri_comm *c = g->tensor;
  tri_mat local = head_rows(f->buf.local_logits, rows), all = head_rows(f->buf.logits, rows);
  if (g->p.tp == 1) {
    *out = local;
    return TRI_OK;
  }
  if (g->p.tp_rank) {
    tri_comm_req req = {0};
    tri_status st =
        c->ops->isend(c, local.data, (size_t)rows * (size_t)local.cols * sizeof(float), 0, TRI_TAG_LOGITS, &req, NULL);
    return st == TRI_OK ? c->ops->wait(c, &req) : st;
  }
  for (int r = 0; r < g->p.tp; r++) {
    tri_range v = tri_range_part(f->cfg.model->vocab_size, g->p.tp, r);
    const float *src = local.data;
    if (r) {
      tri_status st =
          c->ops->recv(c, f->buf.part, (size_t)rows * (size_t)v.count * sizeof(float), r, TRI_TAG_LOGITS, NULL);
      if (st != TRI_OK) return st;
      src = f->buf.part;
    }
    for (int i = 0; i < rows; i++)
      memcpy(all.data + (size_t)i * (size_t)all.ld + v.first, src + (size_t)i * (size_t)v.count,
             (size_t)v.count * sizeof(float));
  }
  *out = all;
  return TRI_OK;
}

static tri_status run_head(tri_forward *f, const tri_batch *b, tri_mat x, tri_mat pending, tri_mat *logits) {
  tri_backend *be = f->cfg.backend;
  const tri_weights *w = f->cfg.weights;
  tri_mat rows = head_rows(f->buf.rows, b->num_logits);
  tri_norm_args settle = norm_args(f, x, pending, &(tri_weight){0}, &(tri_weight){0}, (tri_mat){0});
  be->ops.norm_launch(be, &f->plan.settle, &settle, NULL);
  if (!b->num_logits) return TRI_OK;
  tri_gather_rows_args gather = {.x = x, .rows = b->logit_rows, .out = rows};
  tri_norm_args norm =
      norm_args(f, rows, (tri_mat){0}, &w->global[TRI_W_FINAL_NORM], &w->global[TRI_W_FINAL_NORM_BIAS], rows);
  tri_linear_args head = linear_args(rows, &w->global[TRI_W_HEAD], &(tri_weight){0}, TRI_ACT_NONE, false,
                                     head_rows(f->buf.local_logits, b->num_logits));
  be->ops.gather_rows_launch(be, &f->plan.gather, &gather, NULL);
  be->ops.norm_launch(be, &f->plan.final_norm, &norm, NULL);
  if (f->cfg.observer.hidden) f->cfg.observer.hidden(f->cfg.observer.ctx, (int)f->cfg.model->num_layers, rows);
  be->ops.linear_launch(be, &f->plan.head, &head, NULL);
  tri_status st = gather_logits(f, b->num_logits, logits);
  if (st == TRI_OK && logits->data && f->cfg.observer.logits) f->cfg.observer.logits(f->cfg.observer.ctx, *logits);
  return st;
}

static void copy_pages(tri_forward *f, const tri_batch_builder *b) {
  tri_backend *be = f->cfg.backend;
  for (int l = 0; b->num_copies && l < f->cfg.kv->num_layers; l++) {
    tri_copy_pages_args copy = {.kv = f->cfg.kv->layers[l], .pairs = b->copies, .num_pairs = b->num_copies};
    be->ops.copy_pages_launch(be, &f->plan.copy, &copy, NULL);
  }
}

tri_status tri_forward_run(tri_forward *f, const tri_batch_builder *builder, int lane, tri_mat *logits) {
  const tri_batch *b = &builder->batch;
  tri_backend *be = f->cfg.backend;
  tri_comm *world = f->cfg.group->world;
  tri_mat x = head_rows(f->buf.x[lane], b->num_tokens), pending = {0};
  tri_status st = TRI_OK;
  *logits = (tri_mat){0};
  copy_pages(f, builder);
  if (!b->num_tokens) return TRI_OK;
  TRI_TRY(plan_step(f, b, lane, b->num_logits));
  TRI_TRY(world->ops->wait(world, &f->sends[lane])); /* the lane's last transfer out of x */
  if (f->cfg.model->position == TRI_POS_ROPE) {
    tri_rope_angles_args rope = rope_args(f, b);
    be->ops.rope_angles_launch(be, &f->plan.rope, &rope, NULL);
  }
  TRI_TRY(enter_stage(f, b, lane, x));
  TRI_TRY(run_blocks(f, b, 0, f->cfg.shard.layers.count, x, &pending));
  TRI_TRY(f->cfg.shard.last_stage ? run_head(f, b, x, pending, logits) : leave_stage(f, lane, x, pending));
  st = be->ops.stream_sync(be, NULL);
cleanup:
  atomic_store_explicit(&f->cfg.progress->block, TRI_BLOCK_IDLE, memory_order_relaxed);
  return st;
}
