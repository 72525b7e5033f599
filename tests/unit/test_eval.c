/* SPDX-License-Identifier: Apache-2.0 */
/* Windows of `trireme eval`, and its figures. */
#include <check.h>
#include <math.h>
#include <string.h>

#include "tools/eval/figures.h"
#include "tools/eval/windows.h"

Suite *suite_eval(void);

enum { MOST = 80 };

/* Counts how often each token is predicted, and returns what is wrong with the windows; NULL: nothing. */
static const char *look_at_windows(size_t tokens, size_t size, size_t stride) {
  size_t times[MOST] = {0}, num = eval_num_windows(tokens, size, stride);
  for (size_t i = 0; i < num; i++) {
    eval_window w = eval_window_at(tokens, size, stride, i);
    if (w.begin >= w.first || w.first >= w.end || w.end > tokens) return "a window that predicts nothing";
    if (w.end - w.begin > size) return "a window that is too long";
    if (i && w.first - w.begin != size - stride) return "a window with another context";
    for (size_t k = w.first; k < w.end; k++) times[k]++;
  }
  if (times[0]) return "the first token is predicted";
  for (size_t k = 1; k < tokens; k++)
    if (times[k] != 1) return "a token is not predicted once";
  return NULL;
}

/* All sizes, odd ones and those that leave a rest of every length among them. */
START_TEST(each_token_once) {
  for (size_t size = 2; size <= 13; size++)
    for (size_t stride = 1; stride < size; stride++)
      for (size_t tokens = 2; tokens <= MOST; tokens++) {
        const char *wrong = look_at_windows(tokens, size, stride);
        if (wrong) ck_abort_msg("%zu tokens, windows of %zu, stride %zu: %s", tokens, size, stride, wrong);
      }
}
END_TEST

/* The loop of transformers' documentation (Perplexity of fixed-length models), which counts the labels of each window.
 */
static const char *look_at_loop(size_t tokens, size_t size, size_t stride) {
  size_t before = 0, i = 0;
  for (size_t begin = 0; begin < tokens; begin += stride) {
    size_t end = begin + size < tokens ? begin + size : tokens, labels = end - before;
    size_t first = end - labels > begin ? end - labels : begin + 1;
    eval_window w = eval_window_at(tokens, size, stride, i++);
    if (w.begin != begin || w.end != end || w.first != first) return "another window";
    before = end;
    if (end == tokens) break;
  }
  return i == eval_num_windows(tokens, size, stride) ? NULL : "another number of windows";
}

START_TEST(as_in_transformers) {
  for (size_t size = 2; size <= 13; size++)
    for (size_t stride = 1; stride < size; stride++)
      for (size_t tokens = 2; tokens <= MOST; tokens++) {
        const char *wrong = look_at_loop(tokens, size, stride);
        if (wrong) ck_abort_msg("%zu tokens, windows of %zu, stride %zu: %s", tokens, size, stride, wrong);
      }
}
END_TEST

START_TEST(means) {
  float logprobs[] = {NAN, -1.0f, -2.0f, -4.5f};
  const eval_scores s = {.logprob = logprobs};
  ck_assert_double_eq(eval_mean_logprob(&s, 4), -2.5);
  ck_assert_double_eq(eval_mean_logprob(&s, 2), -1);
}
END_TEST

START_TEST(forced) {
  float one[] = {NAN, -1.0f, -2.0f, -4.5f, -0.25f}, two[] = {NAN, -1.5f, -2.0f, -3.0f, -0.25f};
  uint32_t best_one[] = {9, 1, 2, 3, 4}, best_two[] = {8, 1, 2, 7, 4};
  const eval_scores a = {one, best_one}, b = {two, best_two};
  eval_forced f = eval_compare_scores(&a, &b, 5);
  ck_assert_uint_eq(f.positions, 4);
  ck_assert_uint_eq(f.same_best, 3);
  ck_assert_double_eq(f.mean_difference, 0.5);
  ck_assert_double_eq(f.largest_difference, 1.5);
  f = eval_compare_scores(&b, &a, 5);
  ck_assert_double_eq(f.largest_difference, 1.5);
}
END_TEST

/* Equal tokens after a difference count for nothing, and neither does what only one continuation has. */
START_TEST(greedy) {
  uint32_t one[] = {1, 2, 3, 4, /**/ 5, 6, 7, 8, /**/ 9, 9, 9, 9, /**/ 1, 1, 0, 0};
  uint32_t two[] = {1, 2, 3, 4, /**/ 5, 0, 7, 8, /**/ 0, 9, 9, 9, /**/ 1, 1, 1, 0};
  size_t num_one[] = {4, 4, 4, 2}, num_two[] = {4, 4, 4, 3};
  const eval_continuations a = {one, num_one}, b = {two, num_two};
  eval_greedy g = eval_compare_continuations(&a, &b, 4, 4);
  ck_assert_uint_eq(g.prompts, 4);
  ck_assert_uint_eq(g.tokens, 16);
  ck_assert_uint_eq(g.equal, 4 + 1 + 0 + 2);
  ck_assert_uint_eq(g.whole, 1);
}
END_TEST

Suite *suite_eval(void) {
  Suite *s = suite_create("eval");
  TCase *t = tcase_create("windows");
  tcase_add_test(t, each_token_once);
  tcase_add_test(t, as_in_transformers);
  suite_add_tcase(s, t);
  t = tcase_create("figures");
  tcase_add_test(t, means);
  tcase_add_test(t, forced);
  tcase_add_test(t, greedy);
  suite_add_tcase(s, t);
  return s;
}
