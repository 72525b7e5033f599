/* Recorded steps on a backend that only counts: when a step is kept, when it is launched again, and that the ranks of a
 * tensor group come to the same, whichever of them has no room. */
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

static tri_status no_wait(tri_comm *c, tri_comm_req *req) {
  (void)c;
  (void)req;
  return TRI_OK;
}

static void no_destroy(tri_comm *c) { (void)c; }

static const tri_comm_ops ops = {.name = "counts",
                                 .all_reduce = all_reduce,
                                 .all_gather = all_gather,
                                 .isend = no_send,
                                 .wait = no_wait,
                                 .destroy = no_destroy};

static tri_status run_model(const char *checkpoint, int tp, struct recorder how) {
  static struct kit k;
  tri_mat logits;
  tri_encoder_output output;
  recorder = (struct recorder){0};
  kit_config config = {.checkpoint = checkpoint, .backend = "ref", .p = {.tp = tp, .pp = 1}, .ops = &ops};
  ck_assert(make_kit(&k, &config));
  recorder = how;
  recorder.embed_launch = k.be->ops.embed_launch;
  k.be->records = true;
  k.be->ops.embed_launch = embed_launch;
  k.be->ops.graph_begin = graph_begin;
  k.be->ops.graph_end = graph_end;
  k.be->ops.graph_refuse = graph_refuse;
  if (recorder_product) k.e->forward->product = recorder_product;
  build_batch(&k);
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

Suite *suite_recording(void) {
  Suite *s = suite_create("recording");
  TCase *tc = tcase_create("recording");
  tcase_add_test(tc, kept);
  tcase_add_test(tc, no_room);
  tcase_add_test(tc, no_room_elsewhere);
  tcase_add_test(tc, uneven_heads);
  tcase_add_test(tc, not_worth_it);
  tcase_add_test(tc, broken);
  suite_add_tcase(s, tc);
  return s;
}
