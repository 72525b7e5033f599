/* SPDX-License-Identifier: Apache-2.0 */
/* The rate at which streamed weights come: the best over a second and a whole pass at least. */
#include <check.h>

#include "worker/process/stream_report.h"

Suite *suite_stream_report(void);

enum { MS = 1000000 };

static double note(tri_stream_rate *r, int64_t at_ms, uint64_t bytes, uint64_t passes) {
  const tri_stream_figures f = {.bytes = bytes, .passes = passes};
  tri_stream_rate_note(r, &f, 1 + at_ms * MS);
  return r->best;
}

START_TEST(whole_passes) {
  tri_stream_rate r = {0};
  ck_assert_double_eq(note(&r, 0, 5000, 0), 0); /* the ring was filled by then */
  ck_assert_double_eq(note(&r, 1500, 8000, 0), 0);
  ck_assert_double_eq_tol(note(&r, 2000, 9000, 1), 2000, 1e-6);
  ck_assert_double_eq_tol(note(&r, 2500, 12000, 2), 2000, 1e-6); /* half a second is too short */
  ck_assert_double_eq_tol(note(&r, 3000, 12000, 3), 3000, 1e-6);
}
END_TEST

START_TEST(pauses_do_not_count) {
  tri_stream_rate r = {0};
  note(&r, 0, 0, 0);
  ck_assert_double_eq_tol(note(&r, 1000, 4000, 2), 4000, 1e-6);
  for (int at = 2000; at < 60000; at += 1000) note(&r, at, 4500, 2);
  ck_assert_double_eq_tol(note(&r, 60000, 7000, 3), 4000, 1e-6);
  ck_assert_double_eq_tol(note(&r, 61000, 12000, 6), 5000, 1e-6); /* begins anew behind the pause */
}
END_TEST

START_TEST(rates_of_disks) {
  tri_replica_stream s = {.pass_bytes = 1 << 30};
  ck_assert(tri_stream_rate_is_disk(&s, 1) && !tri_stream_rate_is_disk(&s, 2));
  s.dram_bytes = 1;
  ck_assert(!tri_stream_rate_is_disk(&s, 1));
  s = (tri_replica_stream){.pass_bytes = 1 << 20}; /* a part is a few reads */
  ck_assert(!tri_stream_rate_is_disk(&s, 1));
}
END_TEST

Suite *suite_stream_report(void) {
  Suite *s = suite_create("stream_report");
  TCase *t = tcase_create("stream_report");
  tcase_add_test(t, whole_passes);
  tcase_add_test(t, pauses_do_not_count);
  tcase_add_test(t, rates_of_disks);
  suite_add_tcase(s, t);
  return s;
}
