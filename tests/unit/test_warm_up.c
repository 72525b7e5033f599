/* SPDX-License-Identifier: Apache-2.0 */
/* The warm-up of a group: every step is one that ranks take, and every shape of decode steps comes twice.
 */
#include <check.h>
#include <string.h>

#include "base/mem.h"
#include "base/wait.h"
#include "worker/process/warm_up.h"

Suite *suite_warm_up(void);

enum { MOST_ROWS = 4096, MICRO_BATCHES = 2 };

struct rank {
  tri_plan_writer *plan;
  tri_slots *slots;
  tri_batch_builder *batch;
  int decodes[MICRO_BATCHES][MOST_ROWS + 1]; /* of so many rows */
  int most_tokens, longest, sources, steps, last;
};

static tri_status run(void *ctx) {
  struct rank *r = ctx;
  const tri_plan_writer *w = r->plan;
  tri_plan_view view;
  size_t bytes;
  ck_assert(w->h.num_seqs && w->h.num_seqs <= w->max_seqs);
  ck_assert(w->h.num_ids <= w->max_ids && w->h.num_blocks <= w->max_blocks);
  const void *plan = tri_plan_finish(r->plan, &bytes);
  ck_assert_uint_le(bytes, tri_plan_max_bytes(w));
  ck_assert_int_eq(tri_plan_read(plan, bytes, &view), TRI_OK);
  ck_assert_int_eq(tri_batch_build(r->batch, r->slots, &view), TRI_OK);
  const tri_batch *b = &r->batch->batch;
  if (view.seqs[view.h.num_seqs - 1].kind == TRI_SEQ_DECODE) r->decodes[view.h.micro_batch][b->num_tokens]++;
  if (b->num_tokens > r->most_tokens) r->most_tokens = b->num_tokens;
  if (b->max_context > r->longest) r->longest = b->max_context;
  if (r->batch->source.num_tokens > r->sources) r->sources = r->batch->source.num_tokens;
  return ++r->steps == r->last ? TRI_PEER_LOST : TRI_OK;
}

static tri_status warm_up(struct rank *r, const tri_limits *l, int64_t until) {
  int steps = -1, last = r->last;
  *r = (struct rank){.last = last};
  tri_plan_sizes sizes = tri_limits_plan_sizes(l);
  ck_assert_int_eq(tri_plan_writer_create(&sizes, &r->plan), TRI_OK);
  ck_assert_int_eq(tri_slots_create(l, &r->slots), TRI_OK);
  ck_assert_int_eq(tri_batch_builder_create(l, &r->batch), TRI_OK);
  tri_warm_up u = {
      .limits = *l, .num_micro_batches = MICRO_BATCHES, .plan = r->plan, .run = run, .ctx = r, .until_ns = until};
  tri_status st = tri_warm_up_run(&u, &steps);
  ck_assert_int_eq(steps, r->steps);
  tri_batch_builder_destroy(r->batch);
  tri_slots_destroy(r->slots);
  tri_plan_writer_destroy(r->plan);
  return st;
}

static tri_limits limits_of(int seqs, int tokens, int len, int block, int blocks) {
  return (tri_limits){.max_num_seqs = seqs,
                      .max_num_batched_tokens = tokens,
                      .max_model_len = len,
                      .block_size = block,
                      .num_blocks = blocks,
                      .vocab_size = 10,
                      .num_types = 1};
}

/* Every number of rows that a step can be padded to has been recorded on every micro-batch. */
static void check_rows(const struct rank *r, int most) {
  for (int micro_batch = 0; micro_batch < MICRO_BATCHES; micro_batch++)
    for (int n = 1; n <= most; n++) {
      int padded = tri_batch_rows(n) < most ? tri_batch_rows(n) : most;
      ck_assert_int_ge(r->decodes[micro_batch][padded], 2);
      if (n != padded) ck_assert_int_eq(r->decodes[micro_batch][n], 0);
    }
}

START_TEST(decoders) {
  static struct rank r;
  const int sizes[][5] = {{256, 8192, 131072, 16, 9000}, {100, 2048, 8192, 16, 600}, {1, 512, 4096, 256, 17},
                          {7, 64, 4096, 1, 4096},        {48, 100, 70, 16, 5},       {3, 4096, 128, 16, 24}};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    const int *s = sizes[i];
    tri_limits l = limits_of(s[0], s[1], s[2], s[3], s[4]);
    r.last = 0;
    ck_assert_int_eq(warm_up(&r, &l, TRI_NEVER), TRI_OK);
    check_rows(&r, s[0] < s[1] ? s[0] : s[1]);
    int most = s[0] * s[2] < s[1] ? s[0] * s[2] : s[1];
    ck_assert_int_eq(r.most_tokens, most);
    ck_assert_int_le(r.longest, s[2]);
  }
}
END_TEST

START_TEST(without_room) {
  static struct rank r;
  tri_limits l = limits_of(4, 64, 20, 16, 1); /* sequences are too short for any decode step */
  r.last = 0;
  ck_assert_int_eq(warm_up(&r, &l, TRI_NEVER), TRI_OK);
  ck_assert_int_eq(r.most_tokens, 64);
  ck_assert_int_eq(r.longest, 16);
}
END_TEST

START_TEST(encoders) {
  static struct rank r;
  tri_limits l = limits_of(4, 512, 512, 16, 128);
  l.embeds = l.whole_sequences = true;
  r.last = 0;
  ck_assert_int_eq(warm_up(&r, &l, TRI_NEVER), TRI_OK);
  ck_assert_int_eq(r.most_tokens, 512);
  ck_assert_int_eq(r.steps, 20); /* 2, 4 .. 64, 128, 256, 384 and 512 tokens, twice */
}
END_TEST

START_TEST(encoder_decoders) {
  static struct rank r;
  tri_limits l = limits_of(4, 512, 300, 16, 128);
  l.has_source = true;
  r.last = 0;
  ck_assert_int_eq(warm_up(&r, &l, TRI_NEVER), TRI_OK);
  ck_assert_int_eq(r.sources, 510);
  ck_assert_int_eq(r.most_tokens, 2);
}
END_TEST

START_TEST(ends) {
  static struct rank r;
  tri_limits l = limits_of(4, 512, 4096, 16, 512);
  r.last = 0;
  ck_assert_int_eq(warm_up(&r, &l, tri_now_ns() - 1), TRI_OK);
  ck_assert_int_eq(r.steps, 0);
  r.last = 5; /* a step that fails is the last one */
  ck_assert_int_eq(warm_up(&r, &l, TRI_NEVER), TRI_PEER_LOST);
  ck_assert_int_eq(r.steps, 5);
}
END_TEST

Suite *suite_warm_up(void) {
  Suite *s = suite_create("warm_up");
  TCase *tc = tcase_create("warm_up");
  tcase_add_test(tc, decoders);
  tcase_add_test(tc, without_room);
  tcase_add_test(tc, encoders);
  tcase_add_test(tc, encoder_decoders);
  tcase_add_test(tc, ends);
  suite_add_tcase(s, tc);
  return s;
}
