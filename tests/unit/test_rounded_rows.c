/* SPDX-License-Identifier: Apache-2.0 */
/* Rows that travel rounded to FP8 (kernels/expert_rows.h): when they have become BF16 again, rounding gives the codes
 * and the scale that they came with. So a GEMM that rounds its rows computes the same from them as from whole ones. */
#include <check.h>
#include <math.h>
#include <string.h>

#include "kernels/expert_rows.h"

Suite *suite_rounded_rows(void);

enum { GROUP = TRI_INT8_GROUP, MANTISSAS = 128, INFINITE = 0x7f80 /* the first BF16 that is no number */ };

struct group {
  float x[GROUP];
  uint8_t codes[GROUP];
  float scale;
};

static float number(uint16_t bits) { return tri_bf16_to_f32(bits); }

static void round_group(struct group *g) {
  float max = 0;
  ck_assert(tri_quantize_max(g->x, GROUP, &max));
  tri_round_elements(g->codes, TRI_F8_E4M3, 0, g->x, GROUP, tri_rounding_factor(TRI_F8_E4M3, max));
  g->scale = tri_rounding_scale(TRI_F8_E4M3, max);
}

/* The receiver's result. */
static void widen(const struct group *from, struct group *to) {
  uint16_t narrow[GROUP];
  for (int i = 0; i < GROUP; i++) to->x[i] = tri_f8_e4m3_to_f32(from->codes[i]) * from->scale;
  tri_narrow(narrow, TRI_BF16, 0, to->x, GROUP);
  tri_widen(to->x, narrow, TRI_BF16, 0, GROUP);
}

/* Returns whether a group that has travelled is rounded to what was sent. */
static bool comes_back(struct group *sent) {
  struct group come;
  round_group(sent);
  widen(sent, &come);
  round_group(&come);
  return come.scale == sent->scale && !memcmp(come.codes, sent->codes, sizeof come.codes);
}

/* Every number of BF16 beside every largest magnitude of a binade: other binades differ by a power of two. */
START_TEST(all_numbers) {
  int wrong = 0;
  for (int m = 0; m < MANTISSAS; m++) {
    const uint16_t most = (uint16_t)(0x3f80 + m); /* 1 .. 2 */
    for (int first = 0; first <= most; first += GROUP - 1) {
      struct group g = {.x = {number(most)}};
      for (int i = 1; i < GROUP; i++) {
        int bits = first + i - 1;
        if (bits <= most) g.x[i] = i % 2 ? -number((uint16_t)bits) : number((uint16_t)bits);
      }
      wrong += !comes_back(&g);
    }
  }
  ck_assert_int_eq(wrong, 0);
}
END_TEST

/* Largest magnitudes of all sizes, those of next to nothing included, with numbers just below them and far below. */
START_TEST(all_magnitudes) {
  int wrong = 0;
  for (int most = 0; most < INFINITE; most++) {
    struct group g = {.x = {-number((uint16_t)most)}};
    for (int i = 1; i < GROUP; i++) {
      int bits = most - i * 23 % (i % 3 ? 3000 : 130);
      if (bits > 0) g.x[i] = i % 2 ? -number((uint16_t)bits) : number((uint16_t)bits);
    }
    wrong += !comes_back(&g);
  }
  ck_assert_int_eq(wrong, 0);
}
END_TEST

/* Rows of float16 may not: below 2^-14 its numbers are as far apart as codes are, and some come back as others. */
START_TEST(rows_that_may_travel_so) {
  const tri_rows_config bf16 = {.ranks = 2, .max_rows = 4, .hidden = 7168, .top_k = 2, .type = TRI_BF16};
  tri_rows_config c = bf16;
  ck_assert(tri_rows_can_round(&c));
  c.type = TRI_F16;
  ck_assert(!tri_rows_can_round(&c));
  c.type = TRI_F32;
  ck_assert(!tri_rows_can_round(&c));
  c = bf16;
  c.hidden = 7168 + 64;
  ck_assert(!tri_rows_can_round(&c));
}
END_TEST

/* Codes and scales take less than the box of a row. */
START_TEST(room_in_the_boxes) {
  for (int groups = 1; groups <= 100; groups++) {
    const tri_rows_config c = {.ranks = 2, .max_rows = 4, .hidden = groups * GROUP, .top_k = 2, .type = TRI_BF16};
    int codes = tri_rows_code_vectors(&c),
        scales = (groups * (int)sizeof(float) + TRI_ROWS_VECTOR - 1) / TRI_ROWS_VECTOR;
    ck_assert_int_eq(codes * TRI_ROWS_VECTOR, c.hidden);
    ck_assert_int_lt(codes + scales, tri_rows_vectors(&c));
  }
}
END_TEST

Suite *suite_rounded_rows(void) {
  Suite *s = suite_create("rounded_rows");
  TCase *tc = tcase_create("rounding");
  tcase_set_timeout(tc, 60);
  tcase_add_test(tc, all_numbers);
  tcase_add_test(tc, all_magnitudes);
  tcase_add_test(tc, rows_that_may_travel_so);
  tcase_add_test(tc, room_in_the_boxes);
  suite_add_tcase(s, tc);
  return s;
}
