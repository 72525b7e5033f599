#include "worker/bench/encoder_lives.h"

#include "runtime/base/mem.h"

/* The launches in their order. begin and use say what the operator at `op` writes and reads. */
struct walk {
  const tri_model_config *c;
  const tri_shard *s;
  tri_encoder_lives *l;
  int op, layer;
  int x, pending; /* tensors; -1: none. pending: what the last branch adds, not yet in x */
};

static int begin(struct walk *w, tri_step_buffer buffer, int64_t columns) {
  tri_encoder_lives *l = w->l;
  bool per_seq =
      buffer == TRI_STEP_CHOSEN || buffer == TRI_STEP_POOLED || (buffer == TRI_STEP_SCORES && !w->c->token_head);
  l->tensors[l->count] = (tri_step_tensor){
      .buffer = buffer, .layer = w->layer, .per_seq = per_seq, .row_bytes = (size_t)columns * sizeof(float)};
  l->lives[l->count] = (tri_tensor_life){.first_op = w->op, .last_op = w->op};
  return l->count++;
}

static void use(const struct walk *w, int tensor) {
  if (tensor >= 0) w->l->lives[tensor].last_op = w->op;
}

static void enter(struct walk *w) {
  const tri_model_config *c = w->c;
  bool late = c->projected && !c->projects_last; /* positions behind the projection */
  int embed = c->projected ? begin(w, TRI_STEP_EMBED, c->embed_size) : -1;
  if (!c->projected) w->x = begin(w, TRI_STEP_X, c->hidden_size);
  w->op++;
  if (c->embed_norm && c->projects_last) {
    use(w, embed);
    w->op++;
  }
  if (late) {
    w->x = begin(w, TRI_STEP_X, c->hidden_size);
    w->op++;
  }
  if (c->projected) {
    if (!late) w->x = begin(w, TRI_STEP_X, c->hidden_size);
    use(w, embed);
    w->op++;
  }
  if (c->embed_norm && !c->projects_last) w->op++;
}

/* Returns what the branch reads. */
static int open_branch(struct walk *w) {
  if (w->c->norm_place == TRI_NORM_SUM) return w->x;
  int h = begin(w, TRI_STEP_H, w->c->hidden_size);
  use(w, w->pending);
  w->pending = -1;
  w->op++;
  return h;
}

static void close_branch(struct walk *w, int delta) {
  w->pending = delta;
  if (w->c->norm_place != TRI_NORM_SUM) return;
  use(w, delta);
  w->pending = -1;
  w->op++;
}

static void attention(struct walk *w) {
  int64_t d = w->c->head_dim, heads = w->s->q_heads.count;
  int in = open_branch(w), qkv = begin(w, TRI_STEP_QKV, (heads + 2 * w->s->kv_heads.count) * d);
  use(w, in);
  w->op++;
  w->op++; /* keys and values go to the cache, queries stay in place */
  int attn = begin(w, TRI_STEP_ATTN, heads * d);
  use(w, qkv);
  w->op++;
  int delta = begin(w, TRI_STEP_DELTA, w->c->hidden_size);
  use(w, attn);
  w->op++;
  close_branch(w, delta);
}

static void mlp(struct walk *w) {
  int64_t units = w->s->ff.count;
  int in = open_branch(w), up = begin(w, TRI_STEP_UP, w->c->gated ? 2 * units : units), middle = up;
  use(w, in);
  w->op++;
  if (w->c->gated) {
    middle = begin(w, TRI_STEP_ACT, units);
    use(w, up);
    w->op++;
  }
  int delta = begin(w, TRI_STEP_DELTA, w->c->hidden_size);
  use(w, middle);
  w->op++;
  close_branch(w, delta);
}

/* The ends of runtime/forward/encoder.c, on the one rank that has them. */
static void finish(struct walk *w) {
  const tri_model_config *c = w->c;
  bool ends = w->s->p.tp_rank == 0;
  int chosen = -1, pooled = -1, scores = -1;
  if (!c->no_final_norm || w->pending >= 0) {
    use(w, w->pending);
    w->op++;
  }
  if (ends && c->pooling != TRI_POOL_NONE) {
    chosen = begin(w, TRI_STEP_CHOSEN, c->hidden_size);
    w->op++;
  }
  if (ends && c->has_pooler) {
    pooled = begin(w, TRI_STEP_POOLED, c->hidden_size);
    use(w, chosen);
    w->op++;
  }
  if (ends && c->has_classifier) {
    scores = begin(w, TRI_STEP_SCORES, c->num_labels);
    if (!c->token_head) use(w, pooled >= 0 ? pooled : chosen);
    w->op++;
  }
  use(w, pooled >= 0 ? pooled : chosen), use(w, scores);
}

static void walk_step(struct walk *w) {
  enter(w);
  for (w->layer = 0; w->layer < w->s->layers.count; w->layer++) {
    attention(w);
    mlp(w);
  }
  w->layer = -1;
  finish(w);
  use(w, w->x);
  w->l->num_ops = w->op + 1;
}

static const char *unsupported(const tri_model_config *c, const tri_shard *s) {
  return !c->encoder                                                        ? "a decoder"
         : s->p.pp > 1                                                      ? "pipeline stages"
         : c->mla.on                                                        ? "latent attention"
         : c->moe.num_experts                                               ? "experts"
         : c->position == TRI_POS_ROPE                                      ? "rotary positions"
         : c->qk_norm == TRI_QK_NORM_WHOLE                                  ? "a norm over all heads"
         : c->parallel_residual                                             ? "a parallel residual"
         : c->norm_place != TRI_NORM_SUM && c->norm_place != TRI_NORM_INPUT ? "norms behind its branches"
                                                                            : NULL;
}

tri_status tri_encoder_lives_create(const tri_model_config *c, const tri_shard *s, tri_encoder_lives **out,
                                    tri_error *err) {
  enum { AROUND = 8, EACH = 8 }; /* tensors at most: of no layer, and of each */
  size_t max = AROUND + EACH * (size_t)s->layers.count;
  const char *what = unsupported(c, s);
  if (what)
    return tri_fail(err, TRI_UNSUPPORTED, "model", "a model with %s: only encoders' activations are planned", what);
  tri_encoder_lives *l = tri_calloc(1, sizeof *l);
  if (l) l->tensors = tri_calloc(max, sizeof *l->tensors);
  if (l) l->lives = tri_calloc(max, sizeof *l->lives);
  if (!l || !l->tensors || !l->lives) {
    tri_encoder_lives_destroy(l);
    return tri_fail(err, TRI_NO_MEMORY, "model", "no memory for the lives of %zu tensors", max);
  }
  struct walk w = {.c = c, .s = s, .l = l, .layer = -1, .x = -1, .pending = -1};
  walk_step(&w);
  tri_encoder_lives_resize(l, 1, 1);
  *out = l;
  return TRI_OK;
}

void tri_encoder_lives_destroy(tri_encoder_lives *l) {
  if (!l) return;
  tri_free(l->tensors), tri_free(l->lives);
  tri_free(l);
}

bool tri_encoder_lives_resize(tri_encoder_lives *l, int tokens, int seqs) {
  for (int i = 0; i < l->count; i++) {
    const tri_step_tensor *t = &l->tensors[i];
    if (!tri_size_mul((size_t)(t->per_seq ? seqs : tokens), t->row_bytes, &l->lives[i].bytes)) return false;
  }
  return true;
}
