/* SPDX-License-Identifier: Apache-2.0 */
/* The algorithm of an all-reduce over peers' memory by its size: each is fastest where its line lies below the others',
 * also between the sizes that were measured. */
#include <check.h>

#include "comm/device/p2p.h"

Suite *suite_p2p_figures(void);

enum { KIB = 1024 };

/* One shot: few microseconds and many for each byte; NCCL: the other way round; two shots: between the two. */
static const double start[] = {3, 4, 10}, us_for_mib[] = {40, 20, 8};
static tri_p2p_figures figures_of(void) {
  tri_p2p_figures f;
  for (int k = 0; k < TRI_P2P_SIZES; k++)
    for (int w = 0; w < TRI_P2P_ALGORITHMS; w++)
      f.us[k][w] = start[w] + us_for_mib[w] * (double)tri_p2p_size(k) / (KIB * KIB);
  return f;
}

/* 40 x + 3 = 20 x + 4 at x = 1/20 MiB, 51.2 KiB; 20 x + 4 = 8 x + 10 at x = 1/2 MiB, 512 KiB. */
START_TEST(lines_cross) {
  const tri_p2p_figures f = figures_of();
  ck_assert_int_eq(tri_p2p_fastest(&f, 4), TRI_P2P_ONE_SHOT);
  ck_assert_int_eq(tri_p2p_fastest(&f, 33 * KIB), TRI_P2P_ONE_SHOT);
  ck_assert_int_eq(tri_p2p_fastest(&f, 51 * KIB), TRI_P2P_ONE_SHOT);
  ck_assert_int_eq(tri_p2p_fastest(&f, 52 * KIB), TRI_P2P_TWO_SHOTS);
  ck_assert_int_eq(tri_p2p_fastest(&f, 500 * KIB), TRI_P2P_TWO_SHOTS);
  ck_assert_int_eq(tri_p2p_fastest(&f, 530 * KIB), TRI_P2P_LIBRARY);
  ck_assert_int_eq(tri_p2p_fastest(&f, 1000 * KIB * KIB), TRI_P2P_LIBRARY);
  for (size_t bytes = 32 * KIB; bytes <= 8192 * KIB; bytes += 4 * KIB)
    for (int w = 0; w < TRI_P2P_ALGORITHMS; w++) {
      double us = tri_p2p_us(&f, (tri_p2p_algorithm)w, bytes);
      double want = start[w] + us_for_mib[w] * (double)bytes / (KIB * KIB);
      if (us < want - 1e-9 || us > want + 1e-9) ck_abort_msg("%zu bytes: %g, not %g us", bytes, us, want);
    }
}
END_TEST

/* Nothing is known of sizes whose next larger one does not fit. */
START_TEST(what_does_not_fit) {
  tri_p2p_figures f = figures_of();
  f.us[1][TRI_P2P_ONE_SHOT] = 0;
  ck_assert_int_eq(tri_p2p_fastest(&f, 32 * KIB), TRI_P2P_ONE_SHOT);
  ck_assert_int_eq(tri_p2p_fastest(&f, 33 * KIB), TRI_P2P_TWO_SHOTS);
  ck_assert_int_eq(tri_p2p_fastest(&(tri_p2p_figures){0}, 33 * KIB), TRI_P2P_LIBRARY);
}
END_TEST

Suite *suite_p2p_figures(void) {
  Suite *s = suite_create("p2p_figures");
  TCase *tc = tcase_create("sizes");
  tcase_add_test(tc, lines_cross);
  tcase_add_test(tc, what_does_not_fit);
  suite_add_tcase(s, tc);
  return s;
}
