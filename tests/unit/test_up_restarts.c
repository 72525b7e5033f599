/* SPDX-License-Identifier: Apache-2.0 */
/* When the supervisor starts a child again, and what it makes of its end. */
#include <check.h>
#include <signal.h>
#include <string.h>

#include "coordinator/up/up.h"

Suite *suite_up_restarts(void);

#define SECOND 1000000000LL
enum { MOST = 5, KILLED = SIGKILL, FAILED = TRI_EXIT_FAILED << 8, REFUSED = TRI_EXIT_REFUSED << 8 };

START_TEST(the_first_restart_is_at_once) {
  tri_up_restarts r = {0};
  ck_assert(tri_up_restart(&r, 100, MOST, KILLED, false, false));
  ck_assert_int_eq(r.restart_ns, 100);
  ck_assert(tri_up_restart(&r, 200, MOST, KILLED, false, false)); /* it has served in between */
  ck_assert_int_eq(r.restart_ns, 200);
}
END_TEST

START_TEST(failures_in_a_row_make_pauses) {
  static const int64_t pauses[] = {0, 1, 2, 4, 8, 8, 8};
  tri_up_restarts r = {0};
  for (size_t i = 0; i < sizeof pauses / sizeof *pauses; i++) {
    ck_assert(tri_up_restart(&r, 0, 1000, FAILED, true, false));
    ck_assert_int_eq(r.restart_ns, pauses[i] * SECOND);
  }
  ck_assert(tri_up_restart(&r, 0, 1000, FAILED, false, false));
  ck_assert_int_eq(r.restart_ns, 0);
}
END_TEST

START_TEST(too_many_failures) {
  tri_up_restarts r = {0};
  for (int i = 0; i < MOST; i++) ck_assert(tri_up_restart(&r, 0, MOST, KILLED, true, false));
  ck_assert(!tri_up_restart(&r, 0, MOST, KILLED, true, false));
  ck_assert(!tri_up_restart(&r, 0, MOST, KILLED, true, false)); /* one try each from then on */
  ck_assert(tri_up_restart(&r, 0, MOST, KILLED, false, false));
  r = (tri_up_restarts){0};
  ck_assert(tri_up_restart(&r, 0, MOST, FAILED, true, true));
  ck_assert(!tri_up_restart(&r, 0, MOST, FAILED, true, true)); /* none has ever come */
  r = (tri_up_restarts){0};
  ck_assert(!tri_up_restart(&r, 0, 0, KILLED, false, false));
}
END_TEST

START_TEST(what_another_time_does_not_change) {
  tri_up_restarts r = {0};
  ck_assert(!tri_up_restart(&r, 0, MOST, REFUSED, true, false));
  ck_assert(!tri_up_restart(&r, 0, MOST, TRI_EXIT_USAGE << 8, true, false));
  ck_assert(!tri_up_restart(&r, 0, MOST, 127 << 8, true, false));
  ck_assert(tri_up_restart(&r, 0, MOST, TRI_EXIT_DEVICE << 8, true, false));
}
END_TEST

/* Whoever keeps a child busy until it is killed does not end the cluster. */
START_TEST(one_that_has_served_is_never_given_up) {
  static const int64_t pauses[] = {0, 1, 2, 4, 8, 8, 8};
  tri_up_restarts r = {0};
  for (size_t i = 0; i < sizeof pauses / sizeof *pauses; i++) {
    tri_up_restart_served(&r, 5, KILLED, true);
    ck_assert_int_eq(r.restart_ns, 5 + pauses[i] * SECOND);
  }
  tri_up_restart_served(&r, 5, REFUSED, true);
  ck_assert_int_eq(r.restart_ns, 5 + 30 * SECOND);
  tri_up_restart_served(&r, 5, REFUSED, true);
  ck_assert_int_eq(r.restart_ns, 5 + 60 * SECOND);
  tri_up_restart_served(&r, 5, KILLED, false);
  ck_assert_int_eq(r.restart_ns, 5);
}
END_TEST

START_TEST(the_pauses_of_one_given_up) {
  static const int64_t pauses[] = {30, 60, 120, 240, 300, 300};
  tri_up_restarts r = {0};
  for (size_t i = 0; i < sizeof pauses / sizeof *pauses; i++) {
    ck_assert_int_eq(tri_up_restart_later(&r, 7), pauses[i] * SECOND);
    ck_assert_int_eq(r.restart_ns, 7 + pauses[i] * SECOND);
    ck_assert(i > 0 || !tri_up_restart(&r, 0, 0, FAILED, true, false));
  }
  ck_assert(tri_up_restart(&r, 0, MOST, FAILED, false, false)); /* it has served */
  ck_assert_int_eq(tri_up_restart_later(&r, 0), 30 * SECOND);
}
END_TEST

START_TEST(ends) {
  char text[96];
  ck_assert(tri_up_end_is_by_signal(KILLED) && tri_up_end_is_by_signal((128 + SIGKILL) << 8));
  ck_assert(!tri_up_end_is_by_signal(FAILED) && !tri_up_end_is_by_signal(127 << 8));
  ck_assert(tri_up_end_is_of_device(TRI_EXIT_DEVICE << 8) && !tri_up_end_is_of_device(KILLED));
  ck_assert_int_eq(tri_up_end_code(REFUSED), TRI_EXIT_REFUSED);
  ck_assert_int_eq(tri_up_end_code(TRI_EXIT_DEVICE << 8), TRI_EXIT_FAILED);
  ck_assert_int_eq(tri_up_end_code(KILLED), TRI_EXIT_FAILED);
  ck_assert_str_eq(tri_up_end_text(KILLED, text), "was killed by signal 9 (Killed)");
  ck_assert_str_eq(tri_up_end_text((128 + SIGKILL) << 8, text),
                   "ended with code 137: a rank was killed by signal 9 (Killed)");
  ck_assert_str_eq(tri_up_end_text(REFUSED, text), "ended with code 3 (refused)");
}
END_TEST

Suite *suite_up_restarts(void) {
  Suite *s = suite_create("up_restarts");
  TCase *t = tcase_create("restarts");
  tcase_add_test(t, the_first_restart_is_at_once);
  tcase_add_test(t, failures_in_a_row_make_pauses);
  tcase_add_test(t, too_many_failures);
  tcase_add_test(t, what_another_time_does_not_change);
  tcase_add_test(t, one_that_has_served_is_never_given_up);
  tcase_add_test(t, the_pauses_of_one_given_up);
  tcase_add_test(t, ends);
  suite_add_tcase(s, t);
  return s;
}
