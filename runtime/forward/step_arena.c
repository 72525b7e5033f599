#include "runtime/forward/step_arena.h"

#include "runtime/forward/activation_plan.h"

enum { ALIGNMENT = 256 }; /* bytes: the most that a device's libraries ask for */

/* The operators of a step in their order, as runtime/forward/forward.c and block.c launch them; those that only some
 * models have are skipped by the others. A block is cut where the least goes from one to the next: behind the norm that
 * opens it, which is NEXT for all but the first. So only the stream, that norm's result and the angles go around, and
 * what a life inside the block says is the same for each. */
enum op {
  ANGLES,
  EMBED,
  PROJECT, /* from the embedding's width, with the positions before or behind it */
  OPEN,    /* the norm of an embedding, and the first block's first */
  /* the block */
  QUERY_LATENT,
  QUERY, /* or queries, keys and values in one product */
  KEY_LATENT,
  QK_NORM,
  ABSORB,
  APPEND,
  ATTEND,
  EXPAND,
  OUT,
  CROSS, /* all of cross-attention */
  OPEN_MLP,
  ROUTE,
  CHOOSE,
  EXPERTS,
  UP, /* with the activation behind it: one operator */
  GATE,
  DOWN,
  NEXT, /* the norm that opens the next block; behind the last one what puts the rest into the stream */
  /* the end: a decoder's, or an encoder's */
  ROWS,
  PROJECT_ROWS,
  HEAD,
  COLLECT,
  AFTER, /* what others read of a step once it is launched */
};

struct table {
  const tri_step_arena_config *cfg;
  tri_step_arena_buffer *to;
};

static void add(struct table *t, tri_buffer_id id, int64_t rows, int64_t cols, enum op first, enum op last) {
  t->to[id] = (tri_step_arena_buffer){
      .rows = (int)rows, .cols = (int)cols, .copies = 1, .first = (int)first, .last = (int)last};
}

/* What does not belong to one of the branches. */
static void add_stream(struct table *t) {
  const tri_model_config *c = t->cfg->model;
  int64_t tokens = t->cfg->limits->max_num_batched_tokens, half = c->rope.rotary_dim / 2;
  bool copied = c->norm_place == TRI_NORM_SUM && t->cfg->products != TRI_F32;
  bool normed = c->norm_place == TRI_NORM_INPUT || c->norm_place == TRI_NORM_BOTH || copied;
  bool embeds = t->cfg->shard->first_stage && c->projected;
  add(t, TRI_BUF_X, tokens, c->hidden_size, ANGLES, AFTER);
  t->to[TRI_BUF_X].copies = t->cfg->num_lanes;
  add(t, TRI_BUF_COS, tokens, half, ANGLES, NEXT);
  add(t, TRI_BUF_SIN, tokens, half, ANGLES, NEXT);
  add(t, TRI_BUF_EMBED, embeds ? tokens : 0, c->embed_size, EMBED, PROJECT);
  add(t, TRI_BUF_H, normed ? tokens : 0, c->hidden_size, OPEN, NEXT);
  t->to[TRI_BUF_H].type = t->cfg->products;
}

static void add_attention(struct table *t) {
  const tri_model_config *c = t->cfg->model;
  const tri_mla *m = &c->mla;
  int64_t tokens = t->cfg->limits->max_num_batched_tokens, latent = m->on ? tokens : 0, d = c->head_dim;
  int64_t heads = t->cfg->shard->q_heads.count, kv_heads = t->cfg->shard->kv_heads.count;
  bool cross = c->seq2seq.on;
  add(t, TRI_BUF_Q_A, m->low_rank_q ? tokens : 0, m->q_rank, QUERY_LATENT, QUERY);
  add(t, TRI_BUF_QKV, tokens, (m->on ? heads : heads + 2 * kv_heads) * d, QUERY,
      cross   ? CROSS
      : m->on ? APPEND
              : ATTEND);
  add(t, TRI_BUF_KV_A, latent, m->rank + m->rope_dim, KEY_LATENT, APPEND);
  add(t, TRI_BUF_SQUARE_SUMS, c->qk_norm == TRI_QK_NORM_WHOLE ? 2 : 0, tokens, QK_NORM, QK_NORM);
  add(t, TRI_BUF_ABSORBED, latent, heads * (m->rank + m->rope_dim), ABSORB, ATTEND);
  add(t, TRI_BUF_LATENT, latent, heads * m->rank, ATTEND, EXPAND);
  add(t, TRI_BUF_ATTN, tokens, heads * (m->on ? m->v_dim : d), ATTEND, cross ? CROSS : OUT);
  /* A parallel residual adds the MLP's share to it. */
  add(t, TRI_BUF_DELTA, tokens, c->hidden_size, OUT, c->parallel_residual ? NEXT : OPEN_MLP);
  t->to[TRI_BUF_ATTN].type = t->cfg->products;
}

/* The most units that an MLP of this shard's layers has. Hidden units of chosen experts are the backend's, in its
 * workspace; one that every token takes is an MLP. */
static int most_units(const tri_model_config *c, const tri_shard *s) {
  int most = s->shared_ff.count;
  for (int l = s->layers.first; l < s->layers.first + s->layers.count; l++)
    if (!(c->layer_flags[l] & TRI_LAYER_SPARSE) && s->ff.count > most) most = s->ff.count;
  return most;
}

/* An MLP, or experts with one of their own beside them. */
static void add_mlp(struct table *t) {
  const tri_model_config *c = t->cfg->model;
  int64_t tokens = t->cfg->limits->max_num_batched_tokens, sparse = c->moe.num_experts ? tokens : 0;
  int64_t units = most_units(c, t->cfg->shard);
  add(t, TRI_BUF_ROUTER, sparse, c->moe.num_experts, ROUTE, CHOOSE);
  add(t, TRI_BUF_EXPERTS, sparse, c->moe.top_k, CHOOSE, EXPERTS);
  add(t, TRI_BUF_EXPERT_WEIGHTS, sparse, c->moe.top_k, CHOOSE, EXPERTS);
  add(t, TRI_BUF_UP, tokens, (c->gated ? 2 : 1) * units, UP, c->gated ? UP : DOWN);
  add(t, TRI_BUF_ACT, c->gated ? tokens : 0, units, UP, DOWN);
  add(t, TRI_BUF_SHARED_GATE, c->moe.shared_gate ? tokens : 0, 1, GATE, GATE);
  add(t, TRI_BUF_MLP_DELTA, c->parallel_residual ? 0 : tokens, c->hidden_size, sparse ? EXPERTS : DOWN, NEXT);
  t->to[TRI_BUF_UP].type = t->to[TRI_BUF_ACT].type = t->cfg->products;
}

/* What others read after the step lives until AFTER: the sampler logits, the leader an encoder's answers. The step
 * behind it on the stream may write there, since it comes behind the sampler, too. */
static void add_ends(struct table *t) {
  const tri_model_config *c = t->cfg->model;
  const tri_shard *s = t->cfg->shard;
  const tri_limits *l = t->cfg->limits;
  bool encodes = c->encoder && s->last_stage && s->p.tp_rank == 0, pools = encodes && c->pooling != TRI_POOL_NONE;
  int64_t rows = s->last_stage && !c->encoder ? tri_limits_logits(l) : 0, tp = s->p.tp,
          seqs = pools ? l->max_num_seqs : 0;
  int64_t gathered = s->p.tp_rank == 0 && tp > 1 ? rows : 0; /* with one tensor rank its part is the whole */
  int64_t scored = !encodes || !c->has_classifier ? 0 : c->token_head ? l->max_num_batched_tokens : l->max_num_seqs;
  add(t, TRI_BUF_ROWS, rows, c->hidden_size, ROWS, HEAD);
  add(t, TRI_BUF_NARROW_ROWS, c->projected ? rows : 0, c->embed_size, PROJECT_ROWS, HEAD);
  add(t, TRI_BUF_LOCAL_LOGITS, rows, s->last_stage ? s->vocab.count : 0, HEAD, AFTER);
  add(t, TRI_BUF_LOGITS, gathered, c->vocab_size, COLLECT, AFTER);
  add(t, TRI_BUF_PART, gathered, c->vocab_size / tp + 1, COLLECT, COLLECT);
  int64_t pairs = 2 * TRI_SAMPLE_CANDIDATES; /* of 32-bit numbers, a candidate each */
  add(t, TRI_BUF_CANDIDATES, tp > 1 && rows ? l->max_num_seqs : 0, pairs, COLLECT, AFTER);
  add(t, TRI_BUF_ALL_CANDIDATES, tp > 1 && rows ? tp : 0, l->max_num_seqs * pairs, COLLECT, AFTER);
  add(t, TRI_BUF_CHOSEN, seqs, c->hidden_size, ROWS, c->has_pooler ? PROJECT_ROWS : AFTER);
  add(t, TRI_BUF_POOLED, c->has_pooler ? seqs : 0, c->hidden_size, PROJECT_ROWS, AFTER);
  add(t, TRI_BUF_SCORES, scored, c->num_labels, HEAD, AFTER);
}

tri_dtype tri_step_arena_type(const tri_model_config *c, bool narrow, tri_dtype products) {
  bool read_otherwise = c->mla.on || c->seq2seq.on || c->feeds_decoder || c->moe.num_experts;
  return narrow && !read_otherwise ? products : TRI_F32;
}

static bool size_buffer(tri_step_arena_buffer *b, size_t *apart) {
  size_t bytes;
  if (!tri_size_mul((size_t)b->rows, (size_t)b->cols, &bytes) ||
      !tri_size_mul(bytes, tri_dtype_size(b->type), &bytes) || !tri_size_add(bytes, ALIGNMENT - 1, &b->stride))
    return false;
  b->stride &= ~(size_t)(ALIGNMENT - 1);
  return tri_size_mul(b->stride, (size_t)b->copies, &bytes) && tri_size_add(*apart, bytes, apart);
}

/* The planner's memory: it is asked for one chunk, of which only the size counts. */
static tri_status take_nothing(void *ctx, size_t bytes, void **out) {
  (void)bytes;
  *out = ctx;
  return TRI_OK;
}

static void give_nothing(void *ctx, void *p, size_t bytes) { (void)ctx, (void)p, (void)bytes; }

/* In one chunk as large as all buffers together, of which as much is kept as the plan reaches. */
static tri_status place(tri_step_arena *a, tri_error *err) {
  tri_activation_config config = {
      .memory = {a, take_nothing, give_nothing}, .chunk_bytes = a->apart, .alignment = ALIGNMENT};
  tri_activation_plan *plan = NULL;
  tri_tensor_life lives[TRI_NUM_BUFFERS];
  tri_step_arena_buffer *used[TRI_NUM_BUFFERS];
  int n = 0;
  tri_status st;
  for (int i = 0; i < TRI_NUM_BUFFERS; i++) {
    tri_step_arena_buffer *b = &a->buffers[i];
    if (!b->stride) continue;
    lives[n] = (tri_tensor_life){b->stride * (size_t)b->copies, b->first, b->last};
    used[n++] = b;
  }
  TRI_TRY(tri_activation_plan_create(&config, &plan, err));
  TRI_TRY(tri_activation_plan_make(plan, lives, n, err));
  for (int i = 0; i < n; i++) {
    used[i]->offset = tri_activation_plan_place(plan, i).offset;
    if (used[i]->offset + lives[i].bytes > a->bytes) a->bytes = used[i]->offset + lives[i].bytes;
  }
cleanup:
  tri_activation_plan_destroy(plan);
  return st;
}

tri_status tri_step_arena_plan(const tri_step_arena_config *config, tri_step_arena *out, tri_error *err) {
  tri_step_arena a = {0};
  struct table t = {config, a.buffers};
  add_stream(&t), add_attention(&t), add_mlp(&t), add_ends(&t);
  for (int i = 0; i < TRI_NUM_BUFFERS; i++)
    if (!size_buffer(&a.buffers[i], &a.apart))
      return tri_fail(err, TRI_OVERFLOW, "max_num_batched_tokens", "the sizes overflow");
  tri_status st = place(&a, err);
  if (st == TRI_OK) *out = a;
  return st;
}

void tri_step_arena_bind(const tri_step_arena *a, char *memory, tri_buffers *out) {
  tri_mat m[TRI_NUM_BUFFERS];
  for (int i = 0; i < TRI_NUM_BUFFERS; i++) {
    const tri_step_arena_buffer *b = &a->buffers[i];
    m[i] = (tri_mat){b->stride ? (float *)(memory + b->offset) : NULL, b->rows, b->cols, b->cols, b->type};
  }
  tri_mat *x = out->x;
  for (int i = 0; i < a->buffers[TRI_BUF_X].copies; i++) {
    x[i] = m[TRI_BUF_X];
    x[i].data = (float *)(memory + a->buffers[TRI_BUF_X].offset + (size_t)i * a->buffers[TRI_BUF_X].stride);
  }
  *out = (tri_buffers){
      .x = x,
      .h = m[TRI_BUF_H],
      .qkv = m[TRI_BUF_QKV],
      .attn = m[TRI_BUF_ATTN],
      .up = m[TRI_BUF_UP],
      .act = m[TRI_BUF_ACT],
      .delta = m[TRI_BUF_DELTA],
      .mlp_delta = m[a->buffers[TRI_BUF_MLP_DELTA].stride ? TRI_BUF_MLP_DELTA : TRI_BUF_DELTA],
      .embed = m[TRI_BUF_EMBED],
      .q_a = m[TRI_BUF_Q_A],
      .kv_a = m[TRI_BUF_KV_A],
      .absorbed = m[TRI_BUF_ABSORBED],
      .latent = m[TRI_BUF_LATENT],
      .router = m[TRI_BUF_ROUTER],
      .experts = (int32_t *)m[TRI_BUF_EXPERTS].data, /* 32-bit numbers as floats are */
      .expert_weights = m[TRI_BUF_EXPERT_WEIGHTS].data,
      .shared_gate = m[TRI_BUF_SHARED_GATE].data,
      .cos = m[TRI_BUF_COS].data,
      .sin = m[TRI_BUF_SIN].data,
      .square_sums = m[TRI_BUF_SQUARE_SUMS].data,
      .rows = m[TRI_BUF_ROWS],
      .narrow_rows = m[TRI_BUF_NARROW_ROWS],
      .local_logits = m[TRI_BUF_LOCAL_LOGITS],
      .logits = m[TRI_BUF_LOGITS],
      .chosen = m[TRI_BUF_CHOSEN],
      .pooled = m[TRI_BUF_POOLED],
      .scores = m[TRI_BUF_SCORES],
      .part = m[TRI_BUF_PART].data,
      .candidates = (tri_sample_candidate *)m[TRI_BUF_CANDIDATES].data,
      .all_candidates = (tri_sample_candidate *)m[TRI_BUF_ALL_CANDIDATES].data,
  };
}
