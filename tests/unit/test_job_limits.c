/* SPDX-License-Identifier: Apache-2.0 */
/* The check that coordinator and leader share: at each limit, one beyond it, and where a limit is not known. */
#include <check.h>
#include <string.h>

#include "comm/wire/job_limits.h"
#include "comm/wire/sampling.h"

Suite *suite_job_limits(void);

static const struct {
  tri_prompt_use use;
  size_t fits; /* the longest prompt within the limits below */
  tri_job_limits limits;
  const char *field, *message; /* of one token more */
} lengths[] = {
    {TRI_PROMPT_CONTINUED, 31, {.max_model_len = 32, .kv_tokens = 64}, "prompt", "at most 31 leave room"},
    {TRI_PROMPT_CONTINUED, 15, {.max_model_len = 32, .kv_tokens = 16}, "prompt", "the KV cache holds 16"},
    {TRI_PROMPT_WHOLE, 32, {.max_model_len = 32, .kv_tokens = 64}, "text", "the limit is max_model_len 32"},
    {TRI_PROMPT_WHOLE, 16, {.max_model_len = 32, .kv_tokens = 16}, "text", "the KV cache holds 16"},
    {TRI_PROMPT_SOURCE, 32, {.max_model_len = 32, .kv_tokens = 64}, "prompt", "the limit is max_model_len 32"},
    {TRI_PROMPT_SOURCE, 15, {.max_model_len = 32, .kv_tokens = 16}, "prompt", "the KV cache holds 16"},
    {TRI_PROMPT_SOURCE,
     22,
     {.max_model_len = 32, .kv_tokens = 64, .max_num_batched_tokens = 24, .num_start = 2},
     "prompt",
     "room for 22 (max_num_batched_tokens 24)"},
};
enum { NUM_LENGTHS = sizeof lengths / sizeof *lengths };

static tri_status fit(tri_job_limits l, size_t tokens, uint64_t second, tri_sampling s, tri_error *err) {
  if (!l.max_num_seqs) l.max_num_seqs = 4;
  *err = (tri_error){0};
  return tri_job_check_fit(&l, &(tri_job_request){.num_token_ids = tokens, .second_start = second, .sampling = &s},
                           err);
}

static void expect(tri_status got, tri_status want, const tri_error *err, const char *field, const char *text) {
  ck_assert_int_eq(got, want);
  ck_assert_str_eq(err->field, field);
  ck_assert_msg(strstr(err->message, text) != NULL, "%s", err->message);
}

START_TEST(test_lengths) {
  tri_sampling s;
  tri_error err;
  tri_sampling_init(&s);
  for (int i = 0; i < NUM_LENGTHS; i++) {
    tri_job_limits l = lengths[i].limits;
    l.use = lengths[i].use;
    ck_assert_msg(fit(l, lengths[i].fits, 0, s, &err) == TRI_OK, "%d: %s", i, err.message);
    expect(fit(l, lengths[i].fits + 1, 0, s, &err), TRI_NO_CAPACITY, &err, lengths[i].field, lengths[i].message);
  }
  tri_job_limits none = {.use = TRI_PROMPT_SOURCE, .max_model_len = 2, .kv_tokens = 64, .num_start = 2};
  expect(fit(none, 1, 0, s, &err), TRI_NO_CAPACITY, &err, "max_tokens", "max_model_len 2 leaves no room");
}
END_TEST

START_TEST(test_choices) {
  tri_job_limits l = {.max_model_len = 32, .kv_tokens = 64, .max_num_seqs = 4};
  tri_sampling s;
  tri_error err;
  tri_sampling_init(&s);
  s.n = s.num_beams = 4;
  ck_assert_int_eq(fit(l, 8, 0, s, &err), TRI_OK);
  s.n = 5;
  expect(fit(l, 8, 0, s, &err), TRI_OUT_OF_RANGE, &err, "n", "n is 5, the limit is max_num_seqs 4");
  s.n = 1;
  s.num_beams = 5;
  expect(fit(l, 8, 0, s, &err), TRI_OUT_OF_RANGE, &err, "num_beams", "num_beams is 5, the limit is max_num_seqs 4");
  s.num_beams = 1;
  s.n = 1;
  s.prompt_logprobs = 0;
  ck_assert_int_eq(fit(l, 8, 0, s, &err), TRI_OK);
  l.use = TRI_PROMPT_SOURCE;
  expect(fit(l, 8, 0, s, &err), TRI_UNSUPPORTED, &err, "prompt_logprobs", "tokens of a source have no");
  s.prompt_logprobs = -1;
  s.n = 2;
  l.use = TRI_PROMPT_WHOLE;
  expect(fit(l, 8, 0, s, &err), TRI_UNSUPPORTED, &err, "n", "one result, not 2");
}
END_TEST

START_TEST(test_types) {
  tri_job_limits l = {.use = TRI_PROMPT_WHOLE, .max_model_len = 32, .kv_tokens = 64, .num_types = 2};
  tri_sampling s;
  tri_error err;
  tri_sampling_init(&s);
  ck_assert_int_eq(fit(l, 8, 8, s, &err), TRI_OK);
  expect(fit(l, 8, 9, s, &err), TRI_OUT_OF_RANGE, &err, "text_pair", "from token 9 on, of 8");
  l.num_types = 1;
  expect(fit(l, 8, 3, s, &err), TRI_OUT_OF_RANGE, &err, "text_pair", "1 types of tokens");
}
END_TEST

START_TEST(test_allowed) {
  static const uint32_t prompt[] = {1}, ids[] = {3, 5, 7, 10}, eos[] = {3}, bad[] = {5};
  tri_job_limits l = {.vocab_size = 10, .eos = eos, .num_eos = 1, .bad = bad, .num_bad = 1};
  tri_sampling s;
  tri_error err = {0};
  tri_sampling_init(&s);
  tri_job_request r = {.token_ids = prompt, .num_token_ids = 1, .sampling = &s};
  s.allowed_token_ids = ids;
  s.num_allowed_token_ids = 4;
  expect(tri_job_check_tokens(&l, &r, &err), TRI_OUT_OF_RANGE, &err, "allowed_token_ids", "names token 10");
  err = (tri_error){0};
  s.num_allowed_token_ids = 3;
  s.min_tokens = 2;
  ck_assert_int_eq(tri_job_check_tokens(&l, &r, &err), TRI_OK);
  s.stop_token_ids[s.num_stop_token_ids++] = 7;
  expect(tri_job_check_tokens(&l, &r, &err), TRI_INVALID_ARGUMENT, &err, "allowed_token_ids", "min_tokens is 2");
  err = (tri_error){0};
  s.ignore_eos = true; /* 3 may come */
  ck_assert_int_eq(tri_job_check_tokens(&l, &r, &err), TRI_OK);
  s.ignore_eos = false;
  s.min_tokens = 0; /* 3 and 7 may come, and end the answer */
  ck_assert_int_eq(tri_job_check_tokens(&l, &r, &err), TRI_OK);
  s.allowed_token_ids++;
  s.num_allowed_token_ids = 1;
  expect(tri_job_check_tokens(&l, &r, &err), TRI_INVALID_ARGUMENT, &err, "allowed_token_ids", "may come");
}
END_TEST

START_TEST(test_tokens) {
  static const uint32_t ids[] = {0, 9, 10};
  static const struct tri_wire_bias biases[] = {{9, 1}, {10, 1}};
  tri_job_limits l = {.vocab_size = 10};
  tri_sampling s;
  tri_error err = {0};
  tri_sampling_init(&s);
  tri_job_request r = {.token_ids = ids, .num_token_ids = 2, .sampling = &s};
  s.logit_bias = biases;
  s.num_logit_bias = 1;
  s.stop_token_ids[0] = 9;
  s.num_stop_token_ids = 1;
  ck_assert_int_eq(tri_job_check_tokens(&l, &r, &err), TRI_OK);
  r.num_token_ids = 3;
  expect(tri_job_check_tokens(&l, &r, &err), TRI_OUT_OF_RANGE, &err, "token_ids", "token_ids[2] is 10");
  err = (tri_error){0};
  r.num_token_ids = 2;
  s.num_logit_bias = 2;
  expect(tri_job_check_tokens(&l, &r, &err), TRI_OUT_OF_RANGE, &err, "logit_bias", "names token 10, the vocabulary");
  err = (tri_error){0};
  s.num_logit_bias = 1;
  s.stop_token_ids[0] = 10;
  expect(tri_job_check_tokens(&l, &r, &err), TRI_OUT_OF_RANGE, &err, "stop_token_ids", "has 10 tokens");
  err = (tri_error){0};
  r.num_token_ids = 0;
  expect(tri_job_check_tokens(&l, &r, &err), TRI_INVALID_ARGUMENT, &err, "prompt", "the prompt has no tokens");
  err = (tri_error){0};
  l.use = TRI_PROMPT_WHOLE;
  expect(tri_job_check_tokens(&l, &r, &err), TRI_INVALID_ARGUMENT, &err, "text", "the text has no tokens");
}
END_TEST

Suite *suite_job_limits(void) {
  Suite *s = suite_create("job_limits");
  TCase *c = tcase_create("job_limits");
  tcase_add_test(c, test_lengths);
  tcase_add_test(c, test_choices);
  tcase_add_test(c, test_types);
  tcase_add_test(c, test_tokens);
  tcase_add_test(c, test_allowed);
  suite_add_tcase(s, c);
  return s;
}
