/* SPDX-License-Identifier: Apache-2.0 */
/* The memory watch: growth beyond its cap closes the client socket, but not that of memory which is bounded elsewhere.
 */
#include <check.h>

#include "coordinator/memory_watch.h"

Suite *suite_memory_watch(void);

/* A base far below what this process has: the watch measures it anew before it says so. */
START_TEST(growth_beyond_the_cap) {
  tri_memory_watch w = {.base_mb = -1000, .cap_mb = 500};
  ck_assert(tri_memory_watch_tick(&w, tri_resident_mb()));
  w = (tri_memory_watch){.base_mb = -1000, .cap_mb = 5e6};
  ck_assert(!tri_memory_watch_tick(&w, tri_resident_mb()));
}
END_TEST

START_TEST(what_is_kept_on_purpose) {
  double mb = tri_resident_mb();
  tri_memory_watch w = {.base_mb = mb - 1000, .cap_mb = 500, .kept_mb = 900};
  ck_assert(!tri_memory_watch_tick(&w, mb));
  w.kept_mb = 100;
  ck_assert(tri_memory_watch_tick(&w, mb));
}
END_TEST

/* Closing a socket frees nothing of accepted jobs: new ones are refused, for as long as that is so. */
START_TEST(what_jobs_have) {
  double mb = tri_resident_mb();
  tri_memory_watch w = {.base_mb = mb - 1000, .cap_mb = 500, .jobs_mb = 900};
  for (int i = 0; i < 100; i++) ck_assert(!tri_memory_watch_tick(&w, mb) && w.is_crowded && !w.trims);
  ck_assert(w.base_mb < mb - 999); /* it does not count from here */
  w.jobs_mb = 800;
  ck_assert(tri_memory_watch_tick(&w, mb) && !w.is_crowded);
  w.jobs_mb = 900;
  ck_assert(!tri_memory_watch_tick(&w, mb) && w.is_crowded);
  w.cap_mb = 5000;
  ck_assert(!tri_memory_watch_tick(&w, mb) && !w.is_crowded);
}
END_TEST

Suite *suite_memory_watch(void) {
  Suite *s = suite_create("memory_watch");
  TCase *t = tcase_create("memory_watch");
  tcase_add_test(t, growth_beyond_the_cap);
  tcase_add_test(t, what_is_kept_on_purpose);
  tcase_add_test(t, what_jobs_have);
  suite_add_tcase(s, t);
  return s;
}
