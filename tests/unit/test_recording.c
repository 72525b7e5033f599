/* SPDX-License-Identifier: Apache-2.0 */
/* Recorded steps on a backend that only counts: when a step is kept, when it is launched again, and that the ranks of a
 * tensor group, and those of several shards, come to the same, whichever of them has no room. */
#include <check.h>
#include <string.h>

#include "runtime/forward/forward_state.h"
#include "tests/unit/engine_kit.h"

Suite *suite_recording(void);

static struct recorder {
  bool records;   /* the step that comes; else it is launched */
  tri_status end; /* of the recording */
  float missing;  /* ranks besides this one that have no room */
  uint64_t key;   /* that was recorded */
  bool kept;      /* and is there */
  int replays, refusals, launches, agreements;
  void (*embed_launch)(tri_backend *, const tri_op_plan *, const tri_embed_args *);
} recorder;

static size_t recorder_product; /* 0: the model's */

static tri_graph_mode graph_begin(tri_backend *be, uint64_t key) {
  (void)be;
  if (recorder.kept && key == recorder.key) {
    recorder.replays++;
    return TRI_GRAPH_REPLAY;
  }
  recorder.key = key;
  return recorder.records ? TRI_GRAPH_RECORD : TRI_GRAPH_LAUNCH;
}

static tri_status graph_end(tri_backend *be) {
  (void)be;
  recorder.kept = recorder.end == TRI_OK;
  return recorder.end;
}

static void graph_refuse(tri_backend *be) {
  (void)be;
  recorder.refusals++;
  recorder.kept = false;
}

static void embed_launch(tri_backend *be, const tri_op_plan *plan, const tri_embed_args *a) {
  recorder.launches++;
  recorder.embed_launch(be, plan, a);
}

/* One number is what the ranks agree with; more are activations. */
static tri_status all_reduce(tri_comm *c, float *buf, size_t count) {
  (void)c;
  if (count > 1) return TRI_OK;
  recorder.agreements++;
  *buf += recorder.missing;
  return TRI_OK;
}

static tri_status no_send(tri_comm *c, const void *buf, size_t bytes, int peer, int tag, tri_comm_req *req) {
  (void)c;
  (void)buf;
  (void)bytes;
  (void)peer;
  (void)tag;
  (void)req;
  return TRI_OK;
}

static tri_status all_gather(tri_comm *c, const void *send, void *recv, size_t bytes) {
  for (int r = 0; r < c->size; r++) memcpy((char *)recv + (size_t)r * bytes, send, bytes);
  return TRI_OK;
}

static tri_status reduce_scatter(tri_comm *c, const float *send, float *recv, size_t count) {
  memcpy(recv, send + (size_t)c->rank * count, count * sizeof *recv);
  return TRI_OK;
}

static tri_status no_wait(tri_comm *c, tri_comm_req *req) {
  (void)c;
  (void)req;
  return TRI_OK;
}

static void no_destroy(tri_comm *c) { (void)c; }

static const tri_comm_ops ops = {.name = "counts",
                                 .all_reduce = all_reduce,
                                 .all_gather = all_gather,
                                 .reduce_scatter = reduce_scatter,
                                 .isend = no_send,
                                 .wait = no_wait,
                                 .destroy = no_destroy};

static void make_recorder(struct kit *k, const kit_config *config, struct recorder how) {
  recorder = (struct recorder){0};
  ck_assert(make_kit(k, config));
  recorder = how;
  recorder.embed_launch = k->be->ops.embed_launch;
  k->be->records = true;
  k->be->ops.embed_launch = embed_launch;
  k->be->ops.graph_begin = graph_begin;
  k->be->ops.graph_end = graph_end;
  k->be->ops.graph_refuse = graph_refuse;
}

static tri_status run_model(const char *checkpoint, int tp, struct recorder how) {
  static struct kit k;
  tri_mat logits;
  tri_encoder_output output;
  kit_config config = {.checkpoint = checkpoint, .backend = "ref", .p = {.tp = tp, .pp = 1}, .ops = &ops};
  make_recorder(&k, &config, how);
  if (recorder_product) k.e->forward->gemm = recorder_product;
  build_batch(&k, false);
  tri_status st = tri_forward_run(k.e->forward, k.e->batch, 0, &logits, &output);
  free_kit(&k);
  return st;
}

static tri_status run(int tp, struct recorder how) { return run_model("llama", tp, how); }

static void expect(int launches, int replays, int refusals, int agreements) {
  ck_assert_int_eq(recorder.launches, launches);
  ck_assert_int_eq(recorder.replays, replays);
  ck_assert_int_eq(recorder.refusals, refusals);
  ck_assert_int_eq(recorder.agreements, agreements);
}

START_TEST(kept) {
  ck_assert_int_eq(run(1, (struct recorder){.records = false}), TRI_OK);
  expect(1, 0, 0, 0);
  ck_assert_int_eq(run(1, (struct recorder){.records = true}), TRI_OK);
  expect(1, 1, 0, 0);
  ck_assert_int_eq(run(2, (struct recorder){.records = true}), TRI_OK);
  expect(1, 1, 0, 1);
}
END_TEST

START_TEST(no_room) {
  ck_assert_int_eq(run(1, (struct recorder){.records = true, .end = TRI_AGAIN}), TRI_OK);
  expect(2, 0, 1, 0);
  ck_assert_int_eq(run(2, (struct recorder){.records = true, .end = TRI_AGAIN}), TRI_OK);
  expect(2, 0, 1, 1);
}
END_TEST

START_TEST(no_room_elsewhere) {
  ck_assert_int_eq(run(2, (struct recorder){.records = true, .missing = 1}), TRI_OK);
  expect(2, 0, 1, 1);
  ck_assert(!recorder.kept);
}
END_TEST

/* Six query heads over three KV heads: two ranks have as many of both, though a group is cut; four have not. */
START_TEST(uneven_heads) {
  ck_assert_int_eq(run_model("llama_odd", 2, (struct recorder){.records = true}), TRI_OK);
  expect(1, 1, 0, 1);
  ck_assert_int_eq(run_model("llama_odd", 4, (struct recorder){.records = true}), TRI_OK);
  expect(1, 0, 0, 0);
}
END_TEST

/* A step whose products take longer than their launches. */
START_TEST(not_worth_it) {
  recorder_product = SIZE_MAX;
  ck_assert_int_eq(run(1, (struct recorder){.records = true}), TRI_OK);
  expect(1, 0, 0, 0);
  recorder_product = 0;
}
END_TEST

START_TEST(broken) {
  ck_assert_int_eq(run(2, (struct recorder){.records = true, .end = TRI_DEVICE_LOST}), TRI_DEVICE_LOST);
  expect(1, 0, 0, 0);
}
END_TEST

/* ---- shards: what one of them records must meet what the others do ---- */

enum { SHARDS = 2, LONGEST = 1024 };

/* A shard's step: sequences of so many tokens each, and what all are told. */
struct shard_step {
  int rank, seqs, each;
  uint32_t tokens[SHARDS], longest[SHARDS];
};

static void build_shard(struct kit *k, const struct shard_step *s) {
  static const uint32_t ids[16] = {3, 1, 4, 1, 5, 9, 2, 6, 5};
  tri_plan_view view;
  size_t bytes;
  tri_plan_begin(k->w, 0, 1);
  for (int i = 0; i < s->seqs; i++) {
    int32_t block = i;
    tri_plan_seq seq = {.slot = (uint32_t)i,
                        .kind = TRI_SEQ_CHUNK,
                        .flags = TRI_SEQ_FLAG_FIRST | TRI_SEQ_FLAG_PARAMS | TRI_SEQ_FLAG_SAMPLE,
                        .num_tokens = (uint32_t)s->each,
                        .num_blocks = 1};
    tri_plan_add(k->w, &seq, ids, &block, &kit_params, 0);
  }
  tri_plan_set_dp_ranks(k->w, s->tokens, s->longest, SHARDS);
  const void *plan = tri_plan_finish(k->w, &bytes);
  ck_assert_int_eq(tri_plan_read(plan, bytes, &view), TRI_OK);
  ck_assert_int_eq(tri_batch_build(k->e->batch, k->e->slots, &view), TRI_OK);
}

/* Returns the key that the step had, 0 where none was asked for, and in rows what every shard had. */
static uint64_t run_shard(struct shard_step s, struct recorder how, int rows[SHARDS]) {
  static struct kit k;
  tri_mat logits;
  tri_encoder_output output;
  kit_config config = {.checkpoint = "mixtral_odd",
                       .backend = "ref",
                       .p = {.tp = 1, .pp = 1, .dp = SHARDS, .ep = SHARDS, .dp_rank = s.rank},
                       .ops = &ops,
                       .max_model_len = LONGEST};
  make_recorder(&k, &config, how);
  build_shard(&k, &s);
  ck_assert_int_eq(tri_forward_run(k.e->forward, k.e->batch, 0, &logits, &output), TRI_OK);
  ck_assert_int_eq(logits.rows, s.seqs);
  ck_assert((logits.data != NULL) == (s.seqs > 0));
  for (int d = 0; d < SHARDS; d++) rows[d] = k.e->forward->shard_rows[d];
  free_kit(&k);
  return recorder.key;
}

/* Both shards of a step of single tokens, the second of which may have none, come to one key. */
static uint64_t key_of_both(int first, int second, uint32_t longest) {
  const struct recorder how = {.records = true};
  uint32_t tokens[] = {(uint32_t)first, (uint32_t)second};
  uint64_t keys[SHARDS];
  int rows[SHARDS][SHARDS];
  for (int d = 0; d < SHARDS; d++) {
    struct shard_step s = {.rank = d, .seqs = (int)tokens[d], .each = 1, .longest = {longest, 1}};
    memcpy(s.tokens, tokens, sizeof s.tokens);
    keys[d] = run_shard(s, how, rows[d]);
    expect(1, 1, 0, 1); /* all ranks of the stage have agreed */
  }
  ck_assert_uint_eq(keys[0], keys[1]);
  ck_assert(!memcmp(rows[0], rows[1], sizeof rows[0]) && rows[0][0] == rows[0][1]);
  ck_assert_int_eq(rows[0][0], first > 2 ? KIT_SEQS : first);
  return keys[0];
}

START_TEST(shards_record_together) {
  uint64_t idle = key_of_both(2, 0, 1), busy = key_of_both(2, 2, 1), three = key_of_both(3, 1, 1);
  ck_assert(idle && idle == busy && three != idle);
  ck_assert_uint_eq(key_of_both(2, 1, 200), busy); /* attention is planned in steps */
  ck_assert_uint_ne(key_of_both(2, 1, 600), busy);
  ck_assert_uint_eq(key_of_both(2, 1, 600), key_of_both(2, 2, 610));
}
END_TEST

/* What one shard has beside single tokens the others do not know: none of them records. */
START_TEST(shards_with_prompts) {
  const struct recorder how = {.records = true};
  int rows[SHARDS];
  ck_assert_uint_eq(run_shard((struct shard_step){0, 1, 5, {5, 1}, {0, 1}}, how, rows), 0);
  expect(1, 0, 0, 0);
  ck_assert_uint_eq(run_shard((struct shard_step){1, 1, 1, {5, 1}, {0, 1}}, how, rows), 0);
  ck_assert(rows[0] == 5 && rows[1] == 1);
  ck_assert_uint_eq(run_shard((struct shard_step){1, 0, 1, {5, 0}, {0, 1}}, how, rows), 0);
  expect(1, 0, 0, 0);
  ck_assert(rows[0] == 5 && rows[1] == 1);
}
END_TEST

/* A rank of another shard has no room. */
START_TEST(no_room_in_a_shard) {
  int rows[SHARDS];
  run_shard((struct shard_step){0, 2, 1, {2, 1}, {9, 1}}, (struct recorder){.records = true, .missing = 1}, rows);
  expect(2, 0, 1, 1);
  ck_assert(!recorder.kept);
}
END_TEST

Suite *suite_recording(void) {
  Suite *s = suite_create("recording");
  TCase *tc = tcase_create("recording");
  tcase_add_test(tc, kept);
  tcase_add_test(tc, no_room);
  tcase_add_test(tc, no_room_elsewhere);
  tcase_add_test(tc, uneven_heads);
  tcase_add_test(tc, not_worth_it);
  tcase_add_test(tc, broken);
  tcase_add_test(tc, shards_record_together);
  tcase_add_test(tc, shards_with_prompts);
  tcase_add_test(tc, no_room_in_a_shard);
  suite_add_tcase(s, tc);
  return s;
}
