/* Jobs that a group refuses by a field's name, whatever the coordinator has let through. */
#include <check.h>

#include "comm/wire/sampling.h"
#include "worker/scheduler.h"

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

static void expect(const tri_group_assign *a, tri_status want, const char *field) {
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
  tri_group_assign good = {.job = 1, .remaining_ms = -1, .token_ids = ids, .num_token_ids = LEN - 1}, a;
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
  expect(&a, TRI_NO_CAPACITY, "n");
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

Suite *suite_job(void) {
  Suite *s = suite_create("job");
  TCase *tc = tcase_create("job");
  tcase_add_test(tc, refused);
  suite_add_tcase(s, tc);
  return s;
}
