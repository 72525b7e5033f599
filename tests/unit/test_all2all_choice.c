/* SPDX-License-Identifier: Apache-2.0 */
/* The choice among the forms of an exchange, by times that are made up. */
#include <check.h>
#include <string.h>

#include "runtime/engine/all2all_choice.h"

Suite *suite_all2all_choice(void);

/* Microseconds of each form by size, and the rows that were asked for. */
struct watch {
  double us[TRI_ALL2ALL_SIZES][TRI_ALL2ALL_FORMS];
  int rows[TRI_ALL2ALL_SIZES], count[TRI_ALL2ALL_FORMS];
  int fails_at; /* after so many calls; 0: never */
};

static tri_status look(void *ctx, tri_all2all_form form, int rows, double *seconds) {
  struct watch *w = ctx;
  int size = tri_all2all_size(rows);
  if (w->fails_at && !--w->fails_at) return TRI_PEER_LOST;
  w->rows[size] = rows;
  w->count[form]++;
  *seconds = w->us[size][form] * 1e-6;
  return TRI_OK;
}

/* ALLGATHER, COORDINATED. */
static const struct watch times = {.us = {{9, 8}, {7, 8}, {30, 20}, {80, 90}, {4, 4}}};
enum { BOTH = 1 << TRI_ALL2ALL_ALLGATHER | 1 << TRI_ALL2ALL_COORDINATED };

static void check_forms(const tri_all2all_choice *c, const tri_all2all_form want[TRI_ALL2ALL_SIZES]) {
  for (int i = 0; i < TRI_ALL2ALL_SIZES; i++)
    ck_assert_msg(c->by_size[i] == want[i], "size %d: %s, not %s", i, tri_all2all_form_name(c->by_size[i]),
                  tri_all2all_form_name(want[i]));
}

/* Equal times go to the first form. */
START_TEST(fastest) {
  static const tri_all2all_form want[] = {TRI_ALL2ALL_COORDINATED, TRI_ALL2ALL_ALLGATHER, TRI_ALL2ALL_COORDINATED,
                                          TRI_ALL2ALL_ALLGATHER, TRI_ALL2ALL_ALLGATHER};
  static const int rows[] = {4, 16, 64, 256, 1024};
  struct watch w = times;
  tri_all2all_choice c;
  char text[TRI_ALL2ALL_TEXT];
  ck_assert_int_eq(tri_all2all_choose(BOTH, 1024, look, &w, &c, text), TRI_OK);
  check_forms(&c, want);
  ck_assert_mem_eq(w.rows, rows, sizeof rows);
  ck_assert_str_eq(text, "4 rows coordinated 8 us, 16 rows allgather 7 us, 64 rows coordinated 20 us, 256 rows "
                         "allgather 80 us, 1024 rows allgather 4 us");
}
END_TEST

/* A form that there is not is never taken, however fast it is, nor timed. */
START_TEST(one_form) {
  static const tri_all2all_form want[TRI_ALL2ALL_SIZES] = {TRI_ALL2ALL_ALLGATHER};
  struct watch w = times;
  tri_all2all_choice c;
  char text[TRI_ALL2ALL_TEXT];
  ck_assert_int_eq(tri_all2all_choose(1 << TRI_ALL2ALL_ALLGATHER, 1024, look, &w, &c, text), TRI_OK);
  check_forms(&c, want);
  ck_assert(!w.count[TRI_ALL2ALL_COORDINATED]);
  ck_assert(!strstr(text, "coordinated"));
}
END_TEST

/* The last size that there is stands for those beyond it. */
START_TEST(few_rows) {
  static const tri_all2all_form want[] = {TRI_ALL2ALL_COORDINATED, TRI_ALL2ALL_ALLGATHER, TRI_ALL2ALL_COORDINATED,
                                          TRI_ALL2ALL_COORDINATED, TRI_ALL2ALL_COORDINATED};
  struct watch w = times;
  tri_all2all_choice c;
  char text[TRI_ALL2ALL_TEXT];
  ck_assert_int_eq(tri_all2all_choose(BOTH, 20, look, &w, &c, text), TRI_OK);
  check_forms(&c, want);
  ck_assert(w.rows[2] == 20 && !w.rows[3]);
  w = times;
  ck_assert_int_eq(tri_all2all_choose(BOTH, 4, look, &w, &c, text), TRI_OK);
  ck_assert(w.rows[0] == 4 && !w.rows[1] && c.by_size[4] == TRI_ALL2ALL_COORDINATED);
}
END_TEST

START_TEST(lost_peer) {
  struct watch w = times;
  tri_all2all_choice c;
  char text[TRI_ALL2ALL_TEXT];
  w.fails_at = 6;
  ck_assert_int_eq(tri_all2all_choose(BOTH, 1024, look, &w, &c, text), TRI_PEER_LOST);
}
END_TEST

Suite *suite_all2all_choice(void) {
  Suite *s = suite_create("all2all_choice");
  TCase *t = tcase_create("exchange_choice");
  tcase_add_test(t, fastest);
  tcase_add_test(t, one_form);
  tcase_add_test(t, few_rows);
  tcase_add_test(t, lost_peer);
  suite_add_tcase(s, t);
  return s;
}
