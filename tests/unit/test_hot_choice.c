/* SPDX-License-Identifier: Apache-2.0 */
/* Which experts lie on a device beside a host that has all of them: by counts that fade. */
#include <check.h>
#include <math.h>

#include "base/hash.h"
#include "runtime/model/hot_choice.h"

Suite *suite_hot_choice(void);

enum { LAYERS = 3, EXPERTS = 6, SLOTS = 2 };

struct bench {
  bool layers[LAYERS];
  int32_t slot_of[LAYERS * EXPERTS];
  float load[LAYERS * EXPERTS];
};

/* Layers 0 and 2 have slots, for experts 0 and 1. */
static tri_hot_choice begin(struct bench *b) {
  *b = (struct bench){.layers = {true, false, true}};
  for (int i = 0; i < LAYERS * EXPERTS; i++) b->slot_of[i] = i % EXPERTS < SLOTS ? i % EXPERTS : -1;
  return (tri_hot_choice){.num_layers = LAYERS,
                          .num_experts = EXPERTS,
                          .num_slots = SLOTS,
                          .layers = b->layers,
                          .slot_of = b->slot_of,
                          .load = b->load};
}

static void make(struct bench *b, const tri_hot_exchange *x) {
  int32_t *slot_of = b->slot_of + x->layer * EXPERTS;
  for (int e = 0; e < EXPERTS; e++)
    if (slot_of[e] == x->slot) slot_of[e] = -1;
  slot_of[x->in] = x->slot;
}

static void set(struct bench *b, int layer, const float *load) {
  for (int e = 0; e < EXPERTS; e++) b->load[layer * EXPERTS + e] = load[e];
}

/* The exchange that brings most comes first, of all layers; a layer without slots has none. */
START_TEST(most_first) {
  struct bench b;
  tri_hot_choice c = begin(&b);
  tri_hot_exchange x;
  set(&b, 0, (float[]){100, 900, 300, 400, 10, 10});
  set(&b, 1, (float[]){0, 0, 9000, 0, 0, 0});
  set(&b, 2, (float[]){50, 60, 10, 10, 10, 1000});
  ck_assert(tri_hot_choose(&c, &x));
  ck_assert(x.layer == 2 && x.slot == 0 && x.in == 5);
  make(&b, &x);
  ck_assert(tri_hot_choose(&c, &x));
  ck_assert(x.layer == 0 && x.slot == 0 && x.in == 3);
  make(&b, &x);
  ck_assert(!tri_hot_choose(&c, &x));
  ck_assert_double_eq_tol(tri_hot_share(&c), (900 + 400 + 60 + 1000) / (1720. + 1140), 1e-9);
}
END_TEST

/* Differences that chance makes move nothing, nor do those of a tenth. */
START_TEST(chance) {
  struct bench b;
  tri_hot_choice c = begin(&b);
  tri_hot_exchange x;
  ck_assert(!tri_hot_choose(&c, &x)); /* nothing was counted */
  ck_assert_double_eq(tri_hot_share(&c), 0);
  set(&b, 0, (float[]){100, 100, 120, 110, 90, 90});
  ck_assert(!tri_hot_choose(&c, &x));
  set(&b, 0, (float[]){1e6F, 1e6F, 1.09e6F, 1e6F, 0, 0});
  ck_assert(!tri_hot_choose(&c, &x));
  set(&b, 0, (float[]){1e6F, 1e6F, 1.11e6F, 1e6F, 0, 0});
  ck_assert(tri_hot_choose(&c, &x) && x.in == 2);
  set(&b, 0, (float[]){0, 3, 9, 0, 0, 0});
  ck_assert(!tri_hot_choose(&c, &x));
  set(&b, 0, (float[]){0, 3, 10, 0, 0, 0});
  ck_assert(tri_hot_choose(&c, &x) && x.in == 2 && x.slot == 0);
}
END_TEST

/* An empty slot is taken before any expert goes, and nothing is done where all experts have slots or there are none. */
START_TEST(slots) {
  struct bench b;
  tri_hot_choice c = begin(&b);
  tri_hot_exchange x;
  set(&b, 0, (float[]){0, 100, 50, 10, 0, 0});
  b.slot_of[0] = -1;
  b.slot_of[1] = 0;
  ck_assert(tri_hot_choose(&c, &x) && x.slot == 1 && x.in == 2);
  for (int e = 0; e < EXPERTS; e++) b.slot_of[e] = e;
  c.num_slots = EXPERTS;
  ck_assert(!tri_hot_choose(&c, &x));
  c = begin(&b);
  c.num_slots = 0;
  set(&b, 0, (float[]){0, 0, 500, 10, 0, 0});
  ck_assert(!tri_hot_choose(&c, &x));
}
END_TEST

/* Rows of long ago fade: an expert that was hot gives way, but not after one window that lacked it. */
START_TEST(fades) {
  struct bench b;
  tri_hot_choice c = begin(&b);
  tri_hot_exchange x;
  float first[LAYERS * EXPERTS] = {1000, 1000}, other[LAYERS * EXPERTS] = {0, 1000, 450};
  int windows = 0;
  for (int i = 0; i < 8; i++) tri_hot_fade(b.load, first, LAYERS * EXPERTS);
  ck_assert_float_eq_tol(b.load[0], 2000, 10);
  while (!tri_hot_choose(&c, &x) && windows < 10) {
    tri_hot_fade(b.load, other, LAYERS * EXPERTS);
    windows++;
  }
  ck_assert_int_eq(windows, 2); /* 500 against 675 */
  ck_assert(x.in == 2 && x.slot == 0);
}
END_TEST

enum { MANY = 64, HERE = 16, WINDOWS = 6 };

/* Draws rows for some windows, and makes the exchanges that follow: moved [WINDOWS]. Returns the share of the weights
 * whose experts have slots in the end. */
static double draw(const double *weight, int rows, int *moved) {
  bool layer = true;
  int32_t slot_of[MANY];
  float load[MANY] = {0}, drawn[MANY];
  double sum = 0, here = 0;
  uint64_t seed = 1;
  for (int e = 0; e < MANY; e++) {
    slot_of[e] = e < HERE ? e : -1;
    sum += weight[e];
  }
  tri_hot_choice c = {
      .num_layers = 1, .num_experts = MANY, .num_slots = HERE, .layers = &layer, .slot_of = slot_of, .load = load};
  tri_hot_exchange x;
  for (int w = 0; w < WINDOWS; w++) {
    for (int e = 0; e < MANY; e++) drawn[e] = 0;
    for (int i = 0; i < rows; i++) {
      double at = (double)(tri_splitmix64(&seed) >> 11) * 0x1p-53 * sum;
      int e = 0;
      while (e < MANY - 1 && at >= weight[e]) at -= weight[e++];
      drawn[e]++;
    }
    tri_hot_fade(load, drawn, MANY);
    for (moved[w] = 0; tri_hot_choose(&c, &x); moved[w]++) {
      for (int e = 0; e < MANY; e++)
        if (slot_of[e] == x.slot) slot_of[e] = -1;
      slot_of[x.in] = x.slot;
      ck_assert_int_lt(moved[w], HERE);
    }
  }
  for (int e = 0; e < MANY; e++) here += slot_of[e] >= 0 ? weight[e] : 0;
  return here / sum;
}

/* Routing that is skewed as 1/rank, in an order that nobody knows: a fourth of the slots come to have most rows, and
 * after that little changes. */
START_TEST(skewed) {
  double weight[MANY], sum = 0, best = 0;
  int moved[WINDOWS];
  for (int e = 0; e < MANY; e++) {
    weight[e] = 1.0 / (1 + e * 37 % MANY);
    sum += 1.0 / (1 + e);
    if (e < HERE) best += 1.0 / (1 + e);
  }
  ck_assert_double_ge(draw(weight, 2000, moved), 0.95 * best / sum);
  ck_assert_int_ge(moved[0], 8);
  ck_assert_int_le(moved[WINDOWS - 1], 1);
}
END_TEST

/* Experts that are wanted alike stay where they are. */
START_TEST(alike) {
  double weight[MANY];
  int moved[WINDOWS], all = 0;
  for (int e = 0; e < MANY; e++) weight[e] = 1;
  draw(weight, 500, moved);
  for (int w = 0; w < WINDOWS; w++) all += moved[w];
  ck_assert_int_le(all, 1);
}
END_TEST

Suite *suite_hot_choice(void) {
  Suite *s = suite_create("hot_choice");
  TCase *tc = tcase_create("hot_choice");
  tcase_add_test(tc, most_first);
  tcase_add_test(tc, chance);
  tcase_add_test(tc, slots);
  tcase_add_test(tc, fades);
  tcase_add_test(tc, skewed);
  tcase_add_test(tc, alike);
  suite_add_tcase(s, tc);
  return s;
}
