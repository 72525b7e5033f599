/* The tensors of an encoder's step, against the forward pass itself: every launch tells which buffers it reads and
 * writes, and that makes the lives. */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "runtime/forward/step_arena.h"
#include "runtime/base/mem.h"
#include "worker/bench/encoder_lives.h"
#include "tests/unit/engine_kit.h"

Suite *suite_encoder_lives(void);

enum { MAX_LIVES = 256 };

/* ---- a backend that takes notes ---- */

struct seen {
  const void *at;
  tri_tensor_life life;
};

static struct {
  tri_backend_ops original;
  int op, count;
  struct seen seen[MAX_LIVES];
  bool strange; /* a buffer was read that nothing had written */
} notes;

static void reads(const void *at) {
  for (int i = notes.count; at && i-- > 0;) {
    if (notes.seen[i].at != at) continue;
    notes.seen[i].life.last_op = notes.op;
    return;
  }
  if (at) notes.strange = true;
}

static void writes(tri_mat m) {
  size_t bytes = (size_t)m.rows * (size_t)m.cols * sizeof *m.data;
  if (notes.count == MAX_LIVES) notes.strange = true;
  if (m.data && !notes.strange)
    notes.seen[notes.count++] = (struct seen){.at = m.data, .life = {bytes, notes.op, notes.op}};
}

static void changes(bool in_place, tri_mat m) {
  if (in_place)
    reads(m.data);
  else
    writes(m);
}

#define LAUNCH(name, ...)                                                                                              \
  static void name##_noted(tri_backend *be, const tri_op_plan *plan, const tri_##name##_args *a) {                     \
    __VA_ARGS__;                                                                                                       \
    notes.op++;                                                                                                        \
    notes.original.name##_launch(be, plan, a);                                                                         \
  }
LAUNCH(embed, writes(a->out))
LAUNCH(norm, reads(a->x.data), reads(a->delta.data), changes(a->out.data == a->x.data || !a->out.data, a->out))
LAUNCH(linear, reads(a->x.data), changes(a->accumulate, a->out))
LAUNCH(qkv_rope_append, reads(a->qkv.data))
LAUNCH(attention, reads(a->q.data), writes(a->out))
LAUNCH(glu, reads(a->gate_up.data), writes(a->out))
LAUNCH(gather_rows, reads(a->x.data), writes(a->out))
LAUNCH(mean_rows, reads(a->x.data), writes(a->out))

static void take_notes(tri_backend *be) {
  memset(&notes, 0, sizeof notes);
  notes.original = be->ops;
  be->ops.embed_launch = embed_noted;
  be->ops.norm_launch = norm_noted;
  be->ops.linear_launch = linear_noted;
  be->ops.qkv_rope_append_launch = qkv_rope_append_noted;
  be->ops.attention_launch = attention_noted;
  be->ops.glu_launch = glu_noted;
  be->ops.gather_rows_launch = gather_rows_noted;
  be->ops.mean_rows_launch = mean_rows_noted;
}

/* ---- one step of a model with random weights ---- */

/* The results are read once all is launched. */
static void run_step(struct kit *k) {
  tri_mat logits;
  tri_encoded encoded;
  tri_forward *f = k->e->source ? k->e->source->forward : k->e->forward;
  take_notes(k->be);
  ck_assert_int_eq(tri_forward_run(f, k->e->batch, 0, &logits, &encoded), TRI_OK);
  k->be->ops = notes.original;
  ck_assert_ptr_nonnull(encoded.hidden.data);
  reads(encoded.hidden.data), reads(encoded.pooled.data), reads(encoded.scores.data);
  ck_assert(!notes.strange);
}

/* Both have the same lives, in whatever order those of one operator stand. */
static void compare(const tri_encoder_lives *l) {
  bool taken[MAX_LIVES] = {false};
  int missing = 0;
  ck_assert_int_eq(l->num_ops, notes.op + 1);
  ck_assert_int_eq(l->count, notes.count);
  for (int i = 0; i < l->count; i++) {
    const tri_tensor_life *a = &l->lives[i];
    int j = 0;
    for (; j < notes.count; j++) {
      const tri_tensor_life *b = &notes.seen[j].life;
      if (!taken[j] && a->bytes == b->bytes && a->first_op == b->first_op && a->last_op == b->last_op) break;
    }
    if (j == notes.count)
      missing++;
    else
      taken[j] = true;
  }
  ck_assert_int_eq(missing, 0);
}

static void as_it_runs(const char *checkpoint, tri_pooling pooling) {
  static struct kit k;
  tri_comm *self;
  ck_assert_int_eq(tri_comm_self_create(&(tri_comm_config){.timeout_ms = 1000}, &self), TRI_OK);
  kit_config kc = {
      .checkpoint = checkpoint, .backend = "ref", .p = {.tp = 1, .pp = 1}, .ops = self->ops, .pooling = pooling};
  ck_assert(make_kit(&k, &kc));
  const tri_model_config *c = k.e->source ? &k.e->source->model : &k.e->model;
  tri_encoder_lives *l;
  tri_error err = {0};
  tri_shard shard;
  build_batch(&k);
  run_step(&k);
  ck_assert_int_eq(tri_shard_make(c, (tri_parallel){.tp = 1, .pp = 1}, &shard, &err), TRI_OK);
  ck_assert_int_eq(tri_encoder_lives_create(c, &shard, &l, &err), TRI_OK);
  ck_assert(tri_encoder_lives_resize(l, KIT_TOKENS, KIT_SEQS));
  compare(l);
  int unordered = 0;
  for (int i = 1; i < l->count; i++) unordered += l->lives[i].first_op < l->lives[i - 1].first_op;
  ck_assert_int_eq(unordered, 0);
  tri_encoder_lives_destroy(l);
  free_kit(&k);
  self->ops->destroy(self);
}

START_TEST(lives_are_those_of_the_forward_pass) {
  static const char *const checkpoints[] = {
      "bert",
      "bert_odd",
      "bert_classifier",
      "bert_tokens",
      "roberta",
      "roberta_sequences",
      "roberta_tokens",
      "albert",
      "albert_odd",
      "albert_sequences",
      "albert_tokens",
      "distilbert",
      "distilbert_odd",
      "distilbert_sequences",
      "distilbert_tokens",
      "t5_odd",
      "t5_plain",
      "bart_odd",
      "marian_odd",
  };
  for (size_t i = 0; i < sizeof checkpoints / sizeof *checkpoints; i++) as_it_runs(checkpoints[i], TRI_POOL_NONE);
  as_it_runs("distilbert", TRI_POOL_MEAN);
  as_it_runs("distilbert", TRI_POOL_FIRST);
}
END_TEST

/* ---- sizes ---- */

static const char base[] = "{\"architectures\":[\"BertModel\"],\"model_type\":\"bert\",\"hidden_size\":768,"
                           "\"num_hidden_layers\":12,\"num_attention_heads\":12,\"intermediate_size\":3072,"
                           "\"vocab_size\":30522,\"max_position_embeddings\":512,\"hidden_act\":\"gelu\"}";

/* One tensor of each buffer, where what attention and the MLP add are two, is what the buffers take side by side. */
START_TEST(sizes_are_those_of_the_buffers) {
  enum { T = 300, S = 4 };
  tri_model_config c;
  tri_shard s;
  tri_encoder_lives *l;
  tri_step_arena a;
  tri_limits limits = {.max_num_seqs = S, .max_num_batched_tokens = T, .max_model_len = 512, .block_size = 16};
  ck_assert_int_eq(tri_model_config_parse(base, strlen(base), NULL, 0, &c, NULL), TRI_OK);
  for (int tp = 1; tp <= 4; tp += 3) {
    size_t sum = T * 768 * sizeof(float); /* the other TRI_STEP_DELTA */
    bool counted[TRI_STEP_SCORES + 1] = {false};
    ck_assert_int_eq(tri_shard_make(&c, (tri_parallel){.tp = tp, .pp = 1}, &s, NULL), TRI_OK);
    ck_assert_int_eq(tri_encoder_lives_create(&c, &s, &l, NULL), TRI_OK);
    ck_assert(tri_encoder_lives_resize(l, T, S));
    for (int i = 0; i < l->count; i++) {
      if (!counted[l->tensors[i].buffer]) sum += l->lives[i].bytes;
      counted[l->tensors[i].buffer] = true;
    }
    tri_step_arena_config ac = {.model = &c, .shard = &s, .limits = &limits, .num_lanes = 1};
    ck_assert_int_eq(tri_step_arena_plan(&ac, &a, NULL), TRI_OK);
    ck_assert_uint_eq(sum, a.apart);
    tri_encoder_lives_destroy(l);
  }
}
END_TEST

START_TEST(what_no_encoder_has_is_refused) {
  tri_model_config c, m;
  tri_shard s;
  tri_encoder_lives *l = NULL;
  tri_error err = {0};
  ck_assert_int_eq(tri_model_config_parse(base, strlen(base), NULL, 0, &c, NULL), TRI_OK);
  ck_assert_int_eq(tri_shard_make(&c, (tri_parallel){.tp = 1, .pp = 1}, &s, NULL), TRI_OK);
  m = c, m.encoder = false;
  ck_assert_int_eq(tri_encoder_lives_create(&m, &s, &l, &err), TRI_UNSUPPORTED);
  ck_assert_ptr_nonnull(strstr(err.message, "decoder"));
  m = c, m.norm_place = TRI_NORM_BOTH;
  ck_assert_int_eq(tri_encoder_lives_create(&m, &s, &l, NULL), TRI_UNSUPPORTED);
  ck_assert_int_eq(tri_shard_make(&c, (tri_parallel){.tp = 1, .pp = 2}, &s, NULL), TRI_OK);
  ck_assert_int_eq(tri_encoder_lives_create(&c, &s, &l, NULL), TRI_UNSUPPORTED);
  ck_assert_ptr_null(l);
  tri_encoder_lives_destroy(NULL);
}
END_TEST

Suite *suite_encoder_lives(void) {
  Suite *s = suite_create("encoder_lives");
  TCase *lives = tcase_create("lives"), *sizes = tcase_create("sizes");
  tcase_set_timeout(lives, 120);
  tcase_add_test(lives, lives_are_those_of_the_forward_pass);
  tcase_add_test(sizes, sizes_are_those_of_the_buffers);
  tcase_add_test(sizes, what_no_encoder_has_is_refused);
  suite_add_tcase(s, lives);
  suite_add_tcase(s, sizes);
  return s;
}
