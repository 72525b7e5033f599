/* The arena: whether the lives that its table states are those of the forward pass.
 *
 * Every checkpoint's shape runs a step on each kind of rank, in buffers that lie side by side, while the backend and
 * the communicator note what each operator reads and writes. What is still to be read at an operator must not share
 * memory with anything else that it touches. Then the step runs again, and whatever the notes say holds nothing at an
 * operator is NaN there: the results must be the same bits, and so they must be in the arena itself. */
#include <check.h>
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "runtime/forward/step_arena.h"
#include "runtime/base/hash.h"
#include "runtime/base/mem.h"
#include "runtime/forward/forward_state.h"
#include "tests/unit/engine_kit.h"

Suite *suite_step_arena(void);

enum { MAX_EVENTS = 512 };

/* ---- notes ---- */

typedef uint32_t buffer_set; /* bits are tri_buffer_ids */
_Static_assert(TRI_NUM_BUFFERS <= 32, "a set has 32 bits");

enum mode { OFF, NOTE, POISON };

static struct notes {
  tri_backend_ops original;
  enum mode mode;
  tri_step_arena apart; /* the arena's buffers, side by side */
  char *memory;
  int count;
  buffer_set reads[MAX_EVENTS + 1], writes[MAX_EVENTS + 1]; /* what is written without being read begins anew */
  buffer_set before[MAX_EVENTS + 1];                        /* what holds something that will be read */
  uint64_t sent;
} notes;

static buffer_set set_of(const void *p) {
  const char *at = p;
  if (!at || at < notes.memory || at >= notes.memory + notes.apart.bytes) return 0;
  for (int i = 0; i < TRI_NUM_BUFFERS; i++) {
    const tri_step_arena_buffer *b = &notes.apart.buffers[i];
    const char *from = notes.memory + b->offset;
    if (b->stride && at >= from && at < from + b->stride * (size_t)b->copies) return (buffer_set)1 << i;
  }
  return 0;
}

/* In front of an operator. */
static void event(buffer_set reads, buffer_set writes) {
  if (notes.mode == OFF) return;
  ck_assert_int_lt(notes.count, MAX_EVENTS);
  if (notes.mode == POISON)
    for (int i = 0; i < TRI_NUM_BUFFERS; i++) {
      const tri_step_arena_buffer *b = &notes.apart.buffers[i];
      if (notes.before[notes.count] >> i & 1) continue;
      memset(notes.memory + b->offset, 0xff, b->stride * (size_t)b->copies);
    }
  notes.reads[notes.count] = reads;
  notes.writes[notes.count++] = writes;
}

/* What holds something at each operator: what is read there, and what is read later and not begun anew. */
static void find_lives(void) {
  buffer_set after = notes.before[notes.count] = 0;
  for (int e = notes.count; e-- > 0;) after = notes.before[e] = (after & ~notes.writes[e]) | notes.reads[e];
  ck_assert_uint_eq(after, 0); /* nothing is read that the step has not written */
}

static bool overlaps(const tri_step_arena *a, int i, int j) {
  const tri_step_arena_buffer *x = &a->buffers[i], *y = &a->buffers[j];
  return x->offset < y->offset + y->stride * (size_t)y->copies && y->offset < x->offset + x->stride * (size_t)x->copies;
}

/* Pairs that live at the same time, and may share memory by their stated lives, or do. */
static int count_conflicts(const tri_step_arena *a) {
  int n = 0;
  for (int e = 0; e < notes.count; e++) {
    buffer_set here = notes.before[e] | notes.reads[e] | notes.writes[e] | notes.before[e + 1];
    for (int i = 0; i < TRI_NUM_BUFFERS; i++)
      for (int j = 0; j < i; j++) {
        const tri_step_arena_buffer *x = &a->buffers[i], *y = &a->buffers[j];
        if (here >> i & here >> j & 1) n += x->first > y->last || y->first > x->last || overlaps(a, i, j);
      }
  }
  return n;
}

/* ---- a backend and communicators that take notes ---- */

#define S(mat) set_of((mat).data)
/* Written into, on top of what is there or not. */
static void into(bool on_top, buffer_set reads, buffer_set out) { event(on_top ? reads | out : reads, out); }

/* A buffer that is not there would go unnoticed where nothing is computed. */
static tri_mat there(tri_mat m) {
  ck_assert_ptr_nonnull(m.data);
  return m;
}

#define LAUNCH(name, ...)                                                                                              \
  static void name##_noted(tri_backend *be, const tri_op_plan *plan, const tri_##name##_args *a) {                     \
    __VA_ARGS__;                                                                                                       \
    if (!be->narrow_activations) notes.original.name##_launch(be, plan, a);                                            \
  }
LAUNCH(embed, event(0, S(a->out)))
LAUNCH(norm,
       event(S(a->x) | S(a->delta) | set_of(a->square_sums), (a->delta.data ? S(a->x) : 0) | S(a->out) | S(a->copy)))
LAUNCH(square_sums, into(a->sums != (void *)(notes.memory + notes.apart.buffers[TRI_BUF_SQUARE_SUMS].offset), S(a->x),
                         set_of(a->sums)))
LAUNCH(gate_rows, into(true, set_of(a->gate), S(a->x)))
LAUNCH(softcap, into(true, 0, S(a->x)))
LAUNCH(linear, into(a->accumulate, S(there(a->x)), S(a->out)))
LAUNCH(head_linear, into(false, S(a->x), S(a->out)))
LAUNCH(rope_angles, event(0, set_of(a->cos) | set_of(a->sin)))
LAUNCH(qkv_rope_append, into(true, a->rotary_dim ? set_of(a->cos) | set_of(a->sin) : 0, S(a->qkv)))
LAUNCH(mla_append, into(true, S(a->q) | set_of(a->cos) | set_of(a->sin), S(a->kv_a) | S(a->q_out)))
LAUNCH(attention, event(S(a->q), S(a->out)))
LAUNCH(glu, event(S(a->gate_up), S(a->out)))
LAUNCH(gated_linear, event(S(a->up.x), S(a->up.out) | S(a->glu.out)))
LAUNCH(moe_route, event(S(a->logits), set_of(a->experts) | set_of(a->weights)))
LAUNCH(moe_experts, into(a->accumulate, S(a->x) | set_of(a->experts) | set_of(a->weights), S(a->out)))
LAUNCH(gather_rows, event(S(a->x), S(a->out)))
LAUNCH(mean_rows, event(S(a->x), S(a->out)))
LAUNCH(sample_part, event(S(a->rows.logits), set_of(a->candidates)))
LAUNCH(sample_merge, event(set_of(a->candidates), 0))

static void copy_rows_noted(tri_backend *be, void *to, size_t to_pitch, const void *from, size_t from_pitch,
                            size_t width, size_t rows) {
  bool first = to == notes.memory + notes.apart.buffers[TRI_BUF_LOGITS].offset;
  into(!first, set_of(from), set_of(to));
  if (!be->narrow_activations) notes.original.copy_rows(be, to, to_pitch, from, from_pitch, width, rows);
}

static void take_notes(tri_backend *be) {
  notes.original = be->ops;
#define NOTED(name) be->ops.name##_launch = name##_noted
  NOTED(embed);
  NOTED(norm);
  NOTED(square_sums);
  NOTED(gate_rows);
  NOTED(softcap);
  NOTED(linear);
  NOTED(head_linear);
  NOTED(rope_angles);
  NOTED(qkv_rope_append);
  NOTED(mla_append);
  NOTED(attention);
  NOTED(glu);
  NOTED(gated_linear);
  NOTED(moe_route);
  NOTED(moe_experts);
  NOTED(gather_rows);
  NOTED(mean_rows);
  NOTED(sample_part);
  NOTED(sample_merge);
  be->ops.copy_rows = copy_rows_noted;
}

static tri_status sum(tri_comm *c, float *buf, size_t count) {
  (void)c, (void)count;
  into(true, 0, set_of(buf));
  return TRI_OK;
}

static tri_status gather(tri_comm *c, const void *send, void *recv, size_t bytes) {
  event(set_of(send), set_of(recv));
  for (int r = 0; r < c->size; r++) memcpy((char *)recv + (size_t)r * bytes, send, bytes);
  return TRI_OK;
}

static tri_status send_off(tri_comm *c, const void *buf, size_t bytes, int peer, int tag, tri_comm_req *req) {
  (void)c, (void)peer, (void)tag, (void)req;
  event(set_of(buf), 0);
  notes.sent = tri_hash_bytes(notes.sent, buf, bytes);
  return TRI_OK;
}

static tri_status receive(tri_comm *c, void *buf, size_t bytes, int peer, int tag) {
  (void)c, (void)peer, (void)tag;
  event(0, set_of(buf));
  for (size_t i = 0; i < bytes / sizeof(float); i++) ((float *)buf)[i] = (float)(i % 13) * 0.1f - 0.5f;
  return TRI_OK;
}

static tri_status no_wait(tri_comm *c, tri_comm_req *req) {
  (void)c, (void)req;
  return TRI_OK;
}

/* One rank of several whose peers are not there: sums are its own part, and what it is sent is made up. */
static const tri_comm_ops alone = {
    .name = "alone", .all_reduce = sum, .all_gather = gather, .isend = send_off, .wait = no_wait, .recv = receive};

/* ---- a step of one rank ---- */

static void digest(tri_mat m, uint64_t *h) {
  for (int i = 0; m.data && i < m.rows; i++) {
    const float *row = m.data + (size_t)i * (size_t)m.ld;
    for (int j = 0; j < m.cols; j++) ck_assert(isfinite(row[j]));
    *h = tri_hash_bytes(*h, row, (size_t)m.cols * sizeof *row);
  }
}

/* What becomes of logits, both ways, where there is more than one rank's part of them. */
static void use_logits(tri_forward *f, tri_mat *logits, uint64_t *h) {
  static const tri_sample_params *const asked[KIT_SEQS] = {&kit_params, &kit_params, &kit_params};
  static const uint32_t *const history[KIT_SEQS];
  static const int none[KIT_SEQS];
  static const uint64_t counters[KIT_SEQS];
  tri_sample_result results[KIT_SEQS] = {0};
  int n = tri_forward_num_candidates(f, asked, logits->rows);
  ck_assert_int_eq(logits->rows, KIT_SEQS);
  ck_assert_int_eq(n > 0, f->cfg.group->p.tp > 1);
  tri_sample_args a = {.logits = *logits,
                       .params = asked,
                       .history = history,
                       .num_prompt = none,
                       .num_history = none,
                       .counter = counters,
                       .results = results};
  if (n) ck_assert_int_eq(tri_forward_draw(f, &a, n), TRI_OK);
  for (int i = 0; i < KIT_SEQS; i++) *h = tri_hash_bytes(*h, &results[i].token, sizeof results[i].token);
  ck_assert_int_eq(tri_forward_gather(f, logits), TRI_OK);
}

/* A step of f, and a hash of what others see of it. */
static uint64_t run_step(struct kit *k, tri_forward *f, enum mode mode) {
  tri_mat logits;
  tri_encoded encoded;
  uint64_t h = TRI_HASH_SEED;
  if (k->e->source && f == k->e->forward) ck_assert_int_eq(tri_source_run(k->e->source, k->e->batch, 0, f), TRI_OK);
  notes.mode = mode, notes.count = 0, notes.sent = TRI_HASH_SEED;
  take_notes(k->be);
  ck_assert_int_eq(tri_forward_run(f, k->e->batch, 0, &logits, &encoded), TRI_OK);
  if (logits.data) use_logits(f, &logits, &h);
  /* The sampler, the leader and a transfer read when all is launched. */
  event(S(logits) | S(encoded.hidden) | S(encoded.pooled) | S(encoded.scores), 0);
  notes.mode = OFF;
  k->be->ops = notes.original;
  digest(logits, &h), digest(encoded.hidden, &h), digest(encoded.pooled, &h), digest(encoded.scores, &h);
  return tri_hash_bytes(h, &notes.sent, sizeof notes.sent);
}

static void lay_side_by_side(tri_step_arena *a) {
  size_t at = 0;
  for (int i = 0; i < TRI_NUM_BUFFERS; i++) {
    a->buffers[i].offset = at;
    at += a->buffers[i].stride * (size_t)a->buffers[i].copies;
  }
  ck_assert_uint_eq(at, a->apart);
  a->bytes = at;
}

static void check_forward(struct kit *k, tri_forward *f, const char *name) {
  tri_step_arena a;
  bool computes = !k->be->narrow_activations;
  tri_step_arena_config ac = {.model = f->cfg.model,
                              .shard = &f->cfg.shard,
                              .limits = &f->cfg.limits,
                              .num_lanes = f->cfg.num_lanes,
                              .products = tri_step_arena_type(f->cfg.model, !computes, f->cfg.weights->products)};
  ck_assert_int_eq(tri_step_arena_plan(&ac, &a, NULL), TRI_OK);
  ck_assert_uint_eq(a.bytes, f->bytes);
  ck_assert_uint_le(a.bytes, a.apart);
  tri_buffers own = f->buf;
  uint64_t shared = computes ? run_step(k, f, OFF) : 0;
  notes.apart = a;
  lay_side_by_side(&notes.apart);
  notes.memory = tri_calloc(notes.apart.bytes, 1);
  ck_assert_ptr_nonnull(notes.memory);
  tri_step_arena_bind(&notes.apart, notes.memory, &f->buf);
  uint64_t apart = run_step(k, f, NOTE);
  find_lives();
  int conflicts = count_conflicts(&a);
  ck_assert_msg(!conflicts, "%s: %d pairs that live at the same time", name, conflicts);
  if (computes) {
    ck_assert_msg(run_step(k, f, POISON) == apart, "%s: something is read that holds nothing", name);
    ck_assert_msg(shared == apart, "%s: other results in the arena", name);
  }
  tri_step_arena_bind(&a, f->memory, &f->buf);
  ck_assert_ptr_eq(own.qkv.data, f->buf.qkv.data);
  tri_free(notes.memory);
  notes.memory = NULL;
}

static void check_rank(const char *checkpoint, tri_parallel p, const char *backend, bool narrow) {
  static struct kit k;
  char name[400];
  snprintf(name, sizeof name, "%s, tensor rank %d of %d, stage %d of %d, %s%s", checkpoint, p.tp_rank, p.tp, p.pp_rank,
           p.pp, backend, narrow ? ", 16 bits" : "");
  kit_config kc = {.checkpoint = checkpoint, .backend = backend, .narrow = narrow, .p = p, .ops = &alone};
  if (make_kit(&k, &kc)) {
    build_batch(&k);
    if (k.e->source) check_forward(&k, k.e->source->forward, name);
    check_forward(&k, k.e->forward, name);
  } else {
    ck_assert_int_gt(p.pp, 1); /* encoder-decoders are not cut into stages */
  }
  free_kit(&k);
}

static void check_all(tri_parallel p, const char *backend, bool narrow) {
  char path[512];
  snprintf(path, sizeof path, "%s/checkpoints", TRI_TEST_DATA);
  DIR *d = opendir(path);
  int checked = 0;
  ck_assert_ptr_nonnull(d);
  for (struct dirent *entry; (entry = readdir(d));) {
    if (strchr(entry->d_name, '.')) continue;
    check_rank(entry->d_name, p, backend, narrow);
    checked++;
  }
  closedir(d);
  ck_assert_int_gt(checked, 60);
}

static const tri_parallel ranks[] = {{1, 1, 0, 0}, {2, 1, 0, 0}, {2, 1, 1, 0}, {1, 2, 0, 0}, {1, 2, 0, 1}};
enum { NUM_RANKS = sizeof ranks / sizeof *ranks };

START_TEST(lives_are_those_of_the_forward_pass) { check_all(ranks[_i], _i ? "ref" : "cpu", false); }
END_TEST

/* What a device runs: other buffers have 16 bits, and a norm leaves a copy for the products. Nothing is computed. */
START_TEST(lives_are_those_of_the_forward_pass_in_16_bits) { check_all(ranks[_i], "ref", true); }
END_TEST

/* That the tests above can fail. */
START_TEST(a_life_that_is_too_short_is_found) {
  static struct kit k;
  ck_assert(make_kit(&k, &(kit_config){.checkpoint = "llama", .backend = "ref", .p = ranks[0], .ops = &alone}));
  build_batch(&k);
  check_forward(&k, k.e->forward, "llama");
  tri_step_arena a = notes.apart;
  ck_assert_int_eq(count_conflicts(&a), 0);
  static const tri_buffer_id ids[] = {TRI_BUF_H, TRI_BUF_QKV, TRI_BUF_ACT, TRI_BUF_COS, TRI_BUF_X};
  for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
    a = notes.apart;
    a.buffers[ids[i]].last = a.buffers[ids[i]].first;
    ck_assert_int_gt(count_conflicts(&a), 0);
  }
  a = notes.apart;
  a.buffers[TRI_BUF_ACT].offset = a.buffers[TRI_BUF_UP].offset;
  ck_assert_int_gt(count_conflicts(&a), 0);
  free_kit(&k);
}
END_TEST

Suite *suite_step_arena(void) {
  Suite *s = suite_create("step_arena");
  TCase *lives = tcase_create("lives");
  tcase_set_timeout(lives, 120);
  tcase_add_loop_test(lives, lives_are_those_of_the_forward_pass, 0, NUM_RANKS);
  tcase_add_loop_test(lives, lives_are_those_of_the_forward_pass_in_16_bits, 0, NUM_RANKS);
  tcase_add_test(lives, a_life_that_is_too_short_is_found);
  suite_add_tcase(s, lives);
  return s;
}
