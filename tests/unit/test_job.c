/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs that a group refuses by a field's name, whatever the coordinator has let through. */
#include <check.h>

#include "comm/wire/sampling.h"
#include "worker/schedule/scheduler_impl.h"

Suite *suite_job(void);

enum { VOCAB = 97, LEN = 32, SLOTS = 4 };

static const uint32_t eos[] = {3, 5};
static const tri_job_model model = {.eos = eos, .num_eos = 2};
static const tri_limits limits = {.max_num_seqs = SLOTS,
                                  .max_num_batched_tokens = 16,
                                  .max_model_len = LEN,
                                  .block_size = 4,
                                  .num_blocks = 8,
                                  .vocab_size = VOCAB};

static void expect(const tri_replica_assign *a, tri_status want, const char *field) {
  tri_error err = {0};
  tri_job *job = NULL;
  ck_assert_int_eq(tri_job_create(a, &limits, &model, 0, &job, &err), want);
  ck_assert_int_eq(err.status, want);
  ck_assert_str_eq(err.field, field);
  ck_assert_ptr_null(job);
}

START_TEST(refused) {
  uint32_t ids[LEN] = {0}, beyond[LEN] = {[LEN - 2] = VOCAB};
  struct tri_wire_bias bias = {.id = VOCAB};
  tri_replica_assign good = {.job = 1, .remaining_ms = -1, .token_ids = ids, .num_token_ids = LEN - 1}, a;
  tri_job *job = NULL;
  tri_error err = {0};
  tri_sampling_init(&good.sampling);
  good.sampling.max_tokens = 1;
  ck_assert_int_eq(tri_job_create(&good, &limits, &model, 0, &job, &err), TRI_OK);
  tri_job_destroy(job);
  a = good;
  a.num_token_ids = 0;
  expect(&a, TRI_INVALID_ARGUMENT, "prompt");
  a = good;
  a.num_token_ids = LEN;
  expect(&a, TRI_NO_CAPACITY, "prompt");
  a = good;
  a.sampling.n = SLOTS + 1;
  expect(&a, TRI_OUT_OF_RANGE, "n");
  a = good;
  a.token_ids = beyond;
  expect(&a, TRI_OUT_OF_RANGE, "token_ids");
  a = good;
  a.sampling.num_logit_bias = 1;
  a.sampling.logit_bias = &bias;
  expect(&a, TRI_OUT_OF_RANGE, "logit_bias");
  a = good;
  a.sampling.num_stop_token_ids = 1;
  a.sampling.stop_token_ids[0] = VOCAB;
  expect(&a, TRI_OUT_OF_RANGE, "stop_token_ids");
}
END_TEST

/* A job that a lost group had begun: choices go on, have ended, or are over by what they come with. */
START_TEST(begun) {
  static const uint32_t prompt[] = {7, 8}, drawn[] = {10, 11, 12, 13, 3, 14, 15, 16, 17, 18, 19};
  static const uint32_t counts[] = {2, TRI_SAMPLED_ENDED, 3,
                                    6}; /* the third ends with an end of text, the last is long */
  tri_replica_assign a = {.job = 1,
                          .remaining_ms = -1,
                          .token_ids = prompt,
                          .num_token_ids = 2,
                          .sampled = drawn,
                          .num_sampled = 11,
                          .sampled_counts = counts,
                          .num_sampled_counts = 4};
  tri_error err = {0};
  tri_job *j;
  tri_sampling_init(&a.sampling);
  a.sampling.n = 4;
  a.sampling.max_tokens = 5;
  ck_assert_int_eq(tri_job_create(&a, &limits, &model, 0, &j, &err), TRI_OK);
  ck_assert(j->num_open == 3 && j->num_over == 2 && tri_job_first(j) == &j->seqs[0]);
  ck_assert(j->seqs[0].state == TRI_SCHED_WAITING && j->seqs[0].num_tokens == 4);
  ck_assert_mem_eq(j->seqs[0].tokens, ((uint32_t[]){7, 8, 10, 11}), 16);
  ck_assert(j->seqs[1].state == TRI_SCHED_ENDED && !j->seqs[1].over);
  ck_assert(j->seqs[2].state == TRI_SCHED_ENDED && j->seqs[2].over && j->seqs[2].tokens[4] == 3);
  ck_assert(j->seqs[3].over && j->seqs[3].num_tokens == 7 && j->seqs[3].tokens[6] == 18);
  tri_job_destroy(j);
  uint32_t unknown[11] = {[10] = VOCAB};
  a.sampled = unknown;
  expect(&a, TRI_OUT_OF_RANGE, "drawn");
  a.sampled = drawn;
  a.sampling.num_beams = 4;
  expect(&a, TRI_UNSUPPORTED, "drawn");
}
END_TEST

Suite *suite_job(void) {
  Suite *s = suite_create("job");
  TCase *tc = tcase_create("job");
  tcase_add_test(tc, refused);
  tcase_add_test(tc, begun);
  suite_add_tcase(s, tc);
  return s;
}
