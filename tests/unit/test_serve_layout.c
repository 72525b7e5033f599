/* SPDX-License-Identifier: Apache-2.0 */
#include <check.h>

#include "base/options/serve_layout.h"

/* Layouts that options lead to: sizes inside a group, and groups. */
static const struct {
  int tp, dp, ep, moe_tp, replicas;
  bool enable;
  tri_serve_layout want;
} layouts[] = {
    {1, 1, 0, 0, 0, false, {1, 1, 1, 1, 1}}, {4, 1, 0, 0, 0, false, {4, 1, 1, 1, 1}},
    {2, 3, 0, 0, 0, false, {2, 1, 1, 1, 3}}, {2, 1, 0, 0, 3, false, {2, 1, 1, 1, 3}},
    {2, 3, 0, 0, 3, false, {2, 1, 1, 1, 3}}, {4, 1, 2, 0, 0, false, {4, 1, 1, 2, 1}},
    {4, 1, 0, 2, 0, false, {4, 1, 1, 2, 1}}, {4, 1, 2, 2, 0, false, {4, 1, 1, 2, 1}},
    {4, 1, 0, 4, 0, false, {4, 1, 1, 1, 1}}, {4, 1, 0, 0, 2, true, {4, 1, 1, 4, 2}},
    {2, 2, 0, 0, 0, true, {2, 1, 2, 4, 1}},  {2, 2, 4, 0, 0, true, {2, 1, 2, 4, 1}},
    {2, 2, 2, 0, 0, false, {2, 1, 2, 2, 1}}, {2, 2, 0, 1, 2, false, {2, 1, 2, 4, 2}},
    {1, 2, 2, 0, 0, false, {1, 1, 2, 2, 1}}, {1, 1, 0, 0, 0, true, {1, 1, 1, 1, 1}},
    {1, 2, 0, 2, 0, false, {1, 1, 2, 1, 1}}, {2, 2, 0, 2, 3, false, {2, 1, 2, 2, 3}},
    {1, 2, 0, 0, 1, false, {1, 1, 2, 1, 1}}, {2, 2, 0, 0, 3, false, {2, 1, 2, 1, 3}},
};

START_TEST(sizes_and_groups) {
  for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
    tri_serve_options o = {.tp = layouts[i].tp,
                           .pp = 1,
                           .dp = layouts[i].dp,
                           .ep = layouts[i].ep,
                           .moe_tp = layouts[i].moe_tp,
                           .replicas = layouts[i].replicas,
                           .enable_expert_parallel = layouts[i].enable};
    tri_serve_layout got;
    tri_error err = {0};
    ck_assert_msg(tri_serve_layout_make(&o, &got, &err) == TRI_OK, "row %zu: %s", i, err.message);
    const tri_serve_layout *want = &layouts[i].want;
    ck_assert_msg(got.tp == want->tp && got.pp == 1 && got.dp == want->dp && got.ep == want->ep &&
                      got.replicas == want->replicas,
                  "row %zu: tp %d dp %d ep %d replicas %d", i, got.tp, got.dp, got.ep, got.replicas);
    ck_assert_int_eq(tri_serve_num_replicas(&o), want->replicas);
  }
}
END_TEST

START_TEST(contradictions) {
  static const struct {
    tri_serve_options o;
    const char *field, *why;
  } bad[] = {
      {{.tp = 4, .dp = 1, .ep = 3},
       "expert_parallel_size",
       "-ep 3 does not divide data-parallel 1 x tensor-parallel 4: it could be 1, 2, 4"},
      {{.tp = 4, .dp = 1, .ep = 2, .moe_tp = 4},
       "expert_parallel_size",
       "expert-parallel 2 x moe-tensor-parallel 4 is not data-parallel 1 x tensor-parallel 4"},
      {{.tp = 4, .dp = 1, .moe_tp = 3},
       "moe_tensor_parallel_size",
       "--moe-tensor-parallel-size 3 does not divide data-parallel 1 x tensor-parallel 4"},
      {{.tp = 2, .dp = 2, .ep = 2, .enable_expert_parallel = true},
       "expert_parallel_size",
       "--enable-expert-parallel shares the experts among all data-parallel 2 x tensor-parallel 2 ranks, but -ep is 2"},
      {{.tp = 4, .dp = 1, .ep = 16},
       "expert_parallel_size",
       "-ep 16 does not divide data-parallel 1 x tensor-parallel 4: it could be 1, 2, 4"},
      {{.tp = 1024, .pp = 1024, .dp = 1024, .enable_expert_parallel = true, .replicas = 4},
       "tensor_parallel_size",
       "4294967296 ranks in all replicas: the most is 65536"},
      {{.tp = 1, .pp = 1, .dp = 65}, "data_parallel_size", "65 replicas: the most is 64"},
  };
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    tri_serve_layout got;
    tri_error err = {0};
    ck_assert_int_eq(tri_serve_layout_make(&bad[i].o, &got, &err), TRI_OUT_OF_RANGE);
    ck_assert_str_eq(err.field, bad[i].field);
    ck_assert_str_eq(err.message, bad[i].why);
  }
}
END_TEST

Suite *suite_serve_layout(void) {
  Suite *s = suite_create("serve_layout");
  TCase *t = tcase_create("layouts");
  tcase_add_test(t, sizes_and_groups);
  tcase_add_test(t, contradictions);
  suite_add_tcase(s, t);
  return s;
}
