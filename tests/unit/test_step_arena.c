/* SPDX-License-Identifier: Apache-2.0 */
/* The arena: whether what a walk records of a step is what the forward pass does.
 *
 * Every checkpoint's shape runs a step on each kind of rank, in buffers that lie side by side, while the backend and
 * the communicator note what each op is launched with. The notes must be the record's. Then the step runs again, and
 * whatever holds nothing at an op by the record is NaN there: the results must be the same bits, which they are not
 * where an op reads or keeps what it does not state. And so they must be in the arena itself. */
#include <inttypes.h>
#include <check.h>
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "runtime/forward/step_arena.h"
#include "base/hash.h"
#include "base/mem.h"
#include "runtime/forward/forward_state.h"
#include "tests/unit/engine_kit.h"

Suite *suite_step_arena(void);

enum { MAX_EVENTS = 512 };

/* ---- notes ---- */

enum mode { OFF, NOTE, POISON };

static struct notes {
  tri_backend_ops original;
  enum mode mode;
  tri_step_arena apart;   /* the buffers side by side */
  tri_step_record record; /* over them, at the addresses of this run */
  char *memory;
  int count;                           /* of ops so far */
  tri_buffer_set live[MAX_EVENTS + 1]; /* by the record */
  tri_step_event seen[MAX_EVENTS];
  int side_begin, side_end; /* numbers of the side stream's first op, and of the first one beside it */
  uint64_t sent;
} notes;

static void poison(tri_buffer_set holds) {
  for (int i = 0; i < TRI_NUM_BUFFERS; i++) {
    const tri_step_arena_buffer *b = &notes.apart.buffers[i];
    if (!(holds >> i & 1) && i != TRI_BUF_x) memset(notes.memory + b->offset, 0xff, b->stride * (size_t)b->copies);
  }
}

/* In front of an op. */
static void event(const void *const *reads, size_t num_reads, const void *const *writes, size_t num_writes) {
  tri_step_event e = {0};
  if (notes.mode == OFF) return;
  ck_assert_int_lt(notes.count, MAX_EVENTS);
  for (size_t i = 0; i < num_reads; i++) e.reads |= tri_step_record_find(&notes.record, reads[i], NULL);
  for (size_t i = 0; i < num_writes; i++) {
    bool whole;
    tri_buffer_set written = tri_step_record_find(&notes.record, writes[i], &whole);
    e.writes |= written;
    e.reads |= whole ? 0 : written;
  }
  if (notes.mode == POISON) poison(notes.live[notes.count]);
  notes.seen[notes.count++] = e;
}

static void moves(const void *read, const void *write) { event(&read, 1, &write, 1); }

/* Pairs that hold something at the same time and share memory. */
static int count_conflicts(const tri_step_arena *a) {
  int n = 0;
  for (int e = 0; e < notes.record.count; e++) {
    const tri_step_event *at = &notes.record.events[e];
    tri_buffer_set here = notes.live[e] | at->reads | at->writes | notes.live[e + 1];
    for (int i = 0; i < TRI_NUM_BUFFERS; i++)
      for (int j = 0; j < i; j++) {
        const tri_step_arena_buffer *x = &a->buffers[i], *y = &a->buffers[j];
        bool apart = x->offset + x->stride * (size_t)x->copies <= y->offset ||
                     y->offset + y->stride * (size_t)y->copies <= x->offset;
        n += (here >> i & here >> j & 1) && !apart;
      }
  }
  return n;
}

/* ---- a backend and communicators that take notes ---- */

#define COUNT(array) (sizeof(array) / sizeof *(array))
#define X(op)                                                                                                          \
  static void op##_noted(tri_backend *be, const tri_op_plan *plan, const tri_##op##_args *a) {                         \
    const void *reads[] = {TRI_READS_##op(a)}, *writes[] = {TRI_WRITES_##op(a)};                                       \
    if (TRI_KERNEL_##op == TRI_KERNEL_gated_mlp) { /* its two parts take notes */                                      \
      notes.original.op##_launch(be, plan, a);                                                                         \
      return;                                                                                                          \
    }                                                                                                                  \
    event(reads, COUNT(reads), writes, COUNT(writes));                                                                 \
    enum mode mode = notes.mode;                                                                                       \
    notes.mode = OFF; /* what it launches itself is a part of it */                                                    \
    if (!be->narrow_activations) notes.original.op##_launch(be, plan, a);                                              \
    notes.mode = mode;                                                                                                 \
  }
TRI_OP_LIST(X)
#undef X

static void copy_rows_noted(tri_backend *be, void *to, size_t to_pitch, const void *from, size_t from_pitch,
                            size_t width, size_t rows) {
  moves(from, to);
  if (!be->narrow_activations) notes.original.copy_rows(be, to, to_pitch, from, from_pitch, width, rows);
}

static void side_begun(tri_backend *be) {
  (void)be;
  notes.side_begin = notes.count;
}

static void side_ended(tri_backend *be) {
  (void)be;
  notes.side_end = notes.count;
}

/* Neither side may have written what the other one used. The record keeps all of it until here. */
static void side_joined(tri_backend *be) {
  tri_buffer_set used[2] = {0}, written[2] = {0};
  (void)be;
  if (notes.mode == OFF) return;
  ck_assert_int_lt(notes.side_begin, notes.side_end);
  for (int e = notes.side_begin; e < notes.count; e++) {
    used[e >= notes.side_end] |= notes.seen[e].reads | notes.seen[e].writes;
    written[e >= notes.side_end] |= notes.seen[e].writes;
  }
  ck_assert_uint_eq((used[0] & written[1]) | (used[1] & written[0]), 0);
  ck_assert_int_lt(notes.count, MAX_EVENTS);
  if (notes.mode == POISON) poison(notes.live[notes.count]);
  notes.seen[notes.count++] = (tri_step_event){.reads = used[0] | used[1]};
}

static void take_notes(tri_backend *be) {
  notes.original = be->ops;
  be->ops.side_begin = side_begun;
  be->ops.side_end = side_ended;
  be->ops.side_join = side_joined;
#define X(op) be->ops.op##_launch = op##_noted;
  TRI_OP_LIST(X)
#undef X
  be->ops.copy_rows = copy_rows_noted;
}

static tri_status sum(tri_comm *c, float *buf, size_t count) {
  (void)count;
  if (c->size > 1) moves(buf, buf);
  return TRI_OK;
}

static tri_status sum_bf16(tri_comm *c, uint16_t *buf, size_t count) {
  (void)count;
  if (c->size > 1) moves(buf, buf);
  return TRI_OK;
}

static tri_status gather(tri_comm *c, const void *send, void *recv, size_t bytes) {
  moves(send, recv);
  for (int r = 0; r < c->size; r++) memcpy((char *)recv + (size_t)r * bytes, send, bytes);
  return TRI_OK;
}

/* To another stage, behind the step's ops, or to the sampling rank. */
static tri_status send_off(tri_comm *c, const void *buf, size_t bytes, int peer, int tag, tri_comm_req *req) {
  (void)c;
  (void)peer;
  (void)req;
  if (tag == TRI_TAG_LOGITS) moves(buf, NULL);
  notes.sent = tri_hash_bytes(notes.sent, buf, bytes);
  return TRI_OK;
}

static tri_status receive(tri_comm *c, void *buf, size_t bytes, int peer, int tag) {
  (void)c;
  (void)peer;
  if (tag == TRI_TAG_LOGITS) moves(NULL, buf);
  for (size_t i = 0; i < bytes / sizeof(float); i++) ((float *)buf)[i] = (float)(i % 13) * 0.1f - 0.5f;
  return TRI_OK;
}

static tri_status no_wait(tri_comm *c, tri_comm_req *req) {
  (void)c;
  (void)req;
  return TRI_OK;
}

/* One rank of several whose peers are not there: sums are its own part, and what it is sent is made up. */
static const tri_comm_ops alone = {.name = "alone",
                                   .all_reduce = sum,
                                   .all_reduce_bf16 = sum_bf16,
                                   .all_gather = gather,
                                   .isend = send_off,
                                   .wait = no_wait,
                                   .recv = receive};

/* All sums are long: the record's buffers hold them in either type. */
static void sum_in_bf16(tri_backend *be) { be->bf16_sums_above = 1; }

/* ---- a step of one rank ---- */

static bool poisoned; /* results may be no numbers */

static void digest(tri_mat m, uint64_t *h) {
  for (int i = 0; m.data && i < m.rows; i++) {
    const float *row = m.data + (size_t)i * (size_t)m.ld;
    for (int j = 0; j < m.cols && !poisoned; j++) ck_assert(isfinite(row[j]));
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
  ck_assert_int_eq(n > 0, f->cfg.replica->p.tp > 1);
  tri_sample_args a = {.logits = *logits,
                       .params = asked,
                       .history = history,
                       .num_prompt = none,
                       .num_history = none,
                       .counter = counters,
                       .results = results};
  if (n) ck_assert_int_eq(tri_forward_sample(f, &a, n), TRI_OK);
  for (int i = 0; i < KIT_SEQS; i++) *h = tri_hash_bytes(*h, &results[i].token, sizeof results[i].token);
  ck_assert_int_eq(tri_forward_gather(f, logits), TRI_OK);
}

/* A step of f, and a hash of what others see of it. */
static uint64_t run_step(struct kit *k, tri_forward *f, enum mode mode) {
  tri_mat logits;
  tri_encoder_output encoder_output;
  uint64_t h = TRI_HASH_SEED;
  if (k->e->source && f == k->e->forward) ck_assert_int_eq(tri_source_run(k->e->source, k->e->batch, 0, f), TRI_OK);
  notes.mode = mode;
  notes.count = 0;
  notes.sent = TRI_HASH_SEED;
  take_notes(k->be);
  ck_assert_int_eq(tri_forward_run(f, k->e->batch, 0, &logits, &encoder_output), TRI_OK);
  if (logits.data) use_logits(f, &logits, &h);
  if (mode == POISON) poison(notes.live[notes.count]);
  notes.mode = OFF;
  k->be->ops = notes.original;
  digest(logits, &h);
  digest(encoder_output.hidden, &h);
  digest(encoder_output.pooled, &h);
  digest(encoder_output.scores, &h);
  return tri_hash_bytes(h, &notes.sent, sizeof notes.sent);
}

/* The ops of a run in the order in which they were recorded. A rank without results does not merge draws: the record,
 * which is of any rank, does. */
static void compare(const char *name) {
  ck_assert_msg(notes.record.count == notes.count, "%s: %d ops recorded, %d run", name, notes.record.count,
                notes.count);
  for (int e = 0; e < notes.count; e++)
    ck_assert_msg(
        notes.record.events[e].reads == notes.seen[e].reads && notes.record.events[e].writes == notes.seen[e].writes,
        "%s: op %d is recorded as %" PRIx64 " to %" PRIx64 " and runs as %" PRIx64 " to %" PRIx64, name, e,
        notes.record.events[e].reads, notes.record.events[e].writes, notes.seen[e].reads, notes.seen[e].writes);
}

static void check_forward(struct kit *k, tri_forward *f, const char *name, bool all_logits) {
  tri_step_arena a;
  bool computes = !k->be->narrow_activations;
  tri_step_arena_config ac = {.model = f->cfg.model,
                              .shard = &f->cfg.shard,
                              .limits = &f->cfg.limits,
                              .num_micro_batches = f->cfg.num_micro_batches,
                              .gemms = tri_step_arena_type(f->cfg.model, !computes, f->cfg.weights->gemms),
                              .all_logits = all_logits};
  ck_assert_int_eq(tri_step_arena_plan(&ac, &a, NULL), TRI_OK);
  ck_assert_uint_eq(a.bytes, f->bytes);
  ck_assert_uint_le(a.bytes, a.apart);
  tri_buffers own = f->buf;
  uint64_t shared = computes ? run_step(k, f, OFF) : 0;
  ck_assert_int_eq(tri_step_record_make(&ac, &notes.apart, &notes.record, NULL), TRI_OK);
  ck_assert_int_le(notes.record.count, MAX_EVENTS);
  tri_step_record_live(&notes.record, notes.live);
  ck_assert_uint_eq(notes.live[0] & ~((tri_buffer_set)1 << TRI_BUF_x),
                    0); /* nothing is read that the step has not written */
  notes.memory = tri_calloc(notes.apart.bytes, 1);
  ck_assert_ptr_nonnull(notes.memory);
  notes.record.memory = notes.memory;
  tri_step_arena_bind(&notes.apart, notes.memory, &f->buf);
  uint64_t apart = run_step(k, f, NOTE);
  compare(name);
  int conflicts = count_conflicts(&a);
  ck_assert_msg(!conflicts, "%s: %d pairs share memory", name, conflicts);
  if (computes) {
    ck_assert_msg(run_step(k, f, POISON) == apart, "%s: something is read that holds nothing", name);
    ck_assert_msg(shared == apart, "%s: other results in the arena", name);
  }
  tri_step_arena_bind(&a, f->memory, &f->buf);
  ck_assert_ptr_eq(own.qkv.data, f->buf.qkv.data);
}

static void clear_notes(void) {
  tri_step_record_free(&notes.record);
  tri_free(notes.memory);
  notes.memory = NULL;
}

static void check_rank(const char *checkpoint, tri_parallel p, const char *backend, bool narrow) {
  static struct kit k;
  char name[400];
  snprintf(name, sizeof name, "%s, tensor rank %d of %d, stage %d of %d, %s%s", checkpoint, p.tp_rank, p.tp, p.pp_rank,
           p.pp, backend, narrow ? ", 16 bits" : "");
  kit_config kc = {.checkpoint = checkpoint, .backend = backend, .narrow = narrow, .p = p, .ops = &alone};
  if (narrow) kc.prepare = sum_in_bf16;
  if (make_kit(&k, &kc)) {
    build_batch(&k, false);
    if (k.e->source) {
      check_forward(&k, k.e->source->forward, name, false);
      clear_notes();
    }
    check_forward(&k, k.e->forward, name, false);
    clear_notes();
    if (k.e->forward->cfg.shard.last_stage && !k.e->model.encoder) {
      build_batch(&k, true);
      check_forward(&k, k.e->forward, name, true);
      clear_notes();
    }
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

static const tri_parallel ranks[] = {{.tp = 1, .pp = 1},
                                     {.tp = 2, .pp = 1},
                                     {.tp = 2, .pp = 1, .tp_rank = 1},
                                     {.tp = 1, .pp = 2},
                                     {.tp = 1, .pp = 2, .pp_rank = 1}};
enum { NUM_RANKS = sizeof ranks / sizeof *ranks };

START_TEST(the_record_is_what_runs) { check_all(ranks[_i], _i ? "ref" : "cpu", false); }
END_TEST

/* What a device runs: other buffers have 16 bits, and a norm leaves a copy for the products. Nothing is computed. */
START_TEST(the_record_is_what_runs_in_16_bits) { check_all(ranks[_i], "ref", true); }
END_TEST

/* That the tests above can fail: a place that is another buffer's is found, and so is an op that keeps its input to
 * itself, since what it reads is then gone. */
START_TEST(a_wrong_place_and_a_read_that_is_not_stated_are_found) {
  static struct kit k;
  ck_assert(make_kit(&k, &(kit_config){.checkpoint = "llama", .backend = "ref", .p = ranks[0], .ops = &alone}));
  build_batch(&k, false);
  tri_forward *f = k.e->forward;
  check_forward(&k, f, "llama", false);
  tri_step_arena a = notes.apart;
  ck_assert_int_eq(count_conflicts(&a), 0);
  a.buffers[TRI_BUF_act].offset = a.buffers[TRI_BUF_up].offset;
  ck_assert_int_gt(count_conflicts(&a), 0);
  tri_buffers own = f->buf;
  tri_step_arena_bind(&notes.apart, notes.memory, &f->buf);
  uint64_t right = run_step(&k, f, POISON);
  static const tri_buffer_id ids[] = {TRI_BUF_h, TRI_BUF_qkv, TRI_BUF_act, TRI_BUF_delta};
  for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
    int at = 0;
    while (!(notes.record.events[at].reads >> ids[i] & 1)) at++;
    tri_buffer_set stated = notes.live[at];
    notes.live[at] &= ~((tri_buffer_set)1 << ids[i]);
    poisoned = true;
    ck_assert(run_step(&k, f, POISON) != right);
    poisoned = false;
    notes.live[at] = stated;
  }
  f->buf = own;
  clear_notes();
  free_kit(&k);
}
END_TEST

Suite *suite_step_arena(void) {
  Suite *s = suite_create("step_arena");
  TCase *lives = tcase_create("lives");
  tcase_set_timeout(lives, 120);
  tcase_add_loop_test(lives, the_record_is_what_runs, 0, NUM_RANKS);
  tcase_add_loop_test(lives, the_record_is_what_runs_in_16_bits, 0, NUM_RANKS);
  tcase_add_test(lives, a_wrong_place_and_a_read_that_is_not_stated_are_found);
  suite_add_tcase(s, lives);
  return s;
}
