/* SPDX-License-Identifier: Apache-2.0 */
/* Moves of experts between slots: which are sound, and which a layer is worth. */
#include <check.h>
#include <math.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "runtime/model/expert_balance.h"
#include "runtime/model/expert_moves.h"
#include "runtime/model/layout.h"

Suite *suite_expert_moves(void);

enum { MOST_MOVES = 64, MOST_EXPERTS = 256, MOST_SLOTS = 288, MOST_SHARES = 32 };

/* A model of three layers, of which the last has experts. */
static tri_model_config model_with(int experts) {
  static tri_model_config c;
  c = (tri_model_config){.num_layers = 3, .moe.num_experts = experts};
  c.layer_flags[2] = TRI_LAYER_SPARSE;
  return c;
}

static tri_expert_placement *placement_of(int experts, int slots, const int32_t *expert_of) {
  tri_model_config c = model_with(experts);
  tri_expert_placement *p = tri_expert_placement_alloc(&c, slots);
  ck_assert_ptr_nonnull(p);
  memcpy(p->expert_of, expert_of, (size_t)slots * sizeof *expert_of);
  return p;
}

static double balance_of(const float *rows, int experts, const int32_t *expert_of, int slots, int ep) {
  double shares[MOST_SHARES] = {0};
  uint64_t whole[MOST_EXPERTS];
  for (int e = 0; e < experts; e++) whole[e] = (uint64_t)rows[e];
  tri_expert_share_rows(whole, experts, expert_of, slots, ep, shares);
  return tri_expert_balancedness(shares, ep);
}

START_TEST(sound_moves) {
  /* Shares of two slots each: 0 1 | 2 3 | 0 3. */
  static const int32_t before[] = {0, 1, 2, 3, 0, 3};
  static const struct {
    tri_expert_move move;
    bool sound;
  } moves[] = {
      {{2, 2, 1, true}, true},   /* 1 and 2 change places */
      {{2, 1, 2, true}, true},   /* likewise */
      {{2, 0, 1, true}, false},  /* within one share */
      {{2, 2, 0, true}, true},   /* 0 to the middle, 2 to the left */
      {{2, 5, 0, true}, false},  /* the right has 0 already */
      {{2, 1, 4, true}, false},  /* the left has 0 already */
      {{2, 4, 2, false}, true},  /* a copy of 2 instead of the second 0 */
      {{2, 4, 3, false}, false}, /* the right has 3 already */
      {{2, 1, 2, false}, false}, /* 1 has no other slot */
      {{2, 0, 4, false}, false}, /* nothing would change */
      {{2, 0, 4, true}, false},  /* likewise */
      {{2, 6, 0, true}, false},  /* no such slots, layers, or none with experts */
      {{2, 2, -1, true}, false}, {{1, 2, 1, true}, false}, {{3, 2, 1, true}, false}, {{-1, 2, 1, true}, false},
  };
  tri_expert_placement *p = placement_of(4, 6, before);
  for (size_t i = 0; i < sizeof moves / sizeof *moves; i++)
    ck_assert_msg(tri_expert_move_is_sound(p, 3, &moves[i].move) == moves[i].sound, "move %zu", i);
  tri_expert_placement_move(p, &moves[3].move);
  tri_expert_placement_move(p, &(tri_expert_move){2, 5, 3, true});
  static const int32_t after[] = {2, 1, 0, 3, 0, 3};
  ck_assert_mem_eq(p->expert_of, after, sizeof after);
  tri_expert_placement_free(p);
}
END_TEST

static tri_expert_search *search_of(int experts, int slots, int ep) {
  tri_expert_search *s;
  tri_expert_search_config c = {.num_experts = experts, .num_slots = slots, .ep = ep};
  ck_assert_int_eq(tri_expert_search_create(&c, &s), TRI_OK);
  return s;
}

/* Makes the moves that a layer is worth, each of which must be sound, and returns how many they are. */
static int improve(tri_expert_search *s, const float *rows, tri_expert_placement *p, int ep, double *after) {
  tri_expert_move moves[MOST_MOVES];
  double before;
  int n = tri_expert_search_moves(s, rows, p->expert_of, NULL, 2, moves, MOST_MOVES, &before, after);
  ck_assert(fabs(before - balance_of(rows, p->num_experts, p->expert_of, p->num_slots, ep)) < 1e-6);
  for (int i = 0; i < n; i++) {
    ck_assert(tri_expert_move_is_sound(p, ep, &moves[i]));
    tri_expert_placement_move(p, &moves[i]);
  }
  ck_assert(fabs(*after - balance_of(rows, p->num_experts, p->expert_of, p->num_slots, ep)) < 1e-6);
  ck_assert(n ? *after > before + 0.02 : *after == before);
  return n;
}

/* The first experts have the most rows, as far as a rank's place in Zipf's law goes; with copies of the first ones. */
static void make_skewed(float *rows, int experts, uint64_t seed) {
  for (int e = 0; e < experts; e++) rows[e] = 1;
  for (int e = 0; e < experts; e++) {
    int at = (int)(tri_splitmix64(&seed) % (uint64_t)experts);
    while (rows[at] > 1) at = (at + 1) % experts;
    rows[at] = (float)(1000000 / (e + 2));
  }
}

/* From a placement that knows nothing, few moves lead nearly as far as a placement made anew, which moves all. */
START_TEST(few_moves) {
  static const struct {
    int experts, slots, ep;
  } sizes[] = {{8, 8, 2}, {8, 10, 2}, {16, 16, 4}, {60, 64, 8}, {128, 136, 8}, {128, 128, 16}, {256, 288, 32}};
  double worst = 1, sum = 0;
  int n = 0;
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
    for (uint64_t seed = 1; seed <= 4; seed++, n++) {
      int experts = sizes[i].experts, slots = sizes[i].slots, ep = sizes[i].ep;
      tri_model_config c = model_with(experts);
      tri_expert_placement_config pc = {.ep = ep, .num_redundant = slots - experts, .moves = true};
      tri_expert_placement *p;
      float rows[MOST_EXPERTS];
      uint64_t whole[MOST_EXPERTS];
      int32_t anew[MOST_SLOTS];
      double after;
      make_skewed(rows, experts, seed);
      for (int e = 0; e < experts; e++) whole[e] = (uint64_t)rows[e];
      ck_assert_int_eq(tri_expert_placement_make(&c, &pc, &p, NULL), TRI_OK);
      tri_expert_search *s = search_of(experts, slots, ep);
      int moves = improve(s, rows, p, ep, &after);
      ck_assert_int_le(moves, slots / 2);
      ck_assert_int_eq(improve(s, rows, p, ep, &after), 0); /* it is as good as it gets */
      ck_assert_int_eq(tri_expert_rebalance(whole, experts, slots, ep, anew), TRI_OK);
      double ratio = after / balance_of(rows, experts, anew, slots, ep);
      if (ratio < worst) worst = ratio;
      sum += ratio;
      tri_expert_search_destroy(s);
      tri_expert_placement_free(p);
    }
  ck_assert_msg(worst >= 0.85 && sum / n >= 0.98, "worst %.3f, mean %.3f of a placement made anew", worst, sum / n);
}
END_TEST

START_TEST(nothing_to_gain) {
  static const int32_t linear[] = {0, 1, 2, 3, 4, 5, 6, 7};
  static const float even[] = {500, 500, 500, 500, 500, 500, 500, 500}, none[8],
                     nearly[] = {500, 505, 500, 505, 500, 500, 500, 500}, few[] = {5, 6, 7, 4, 3, 5, 4, 3},
                     one[] = {5000, 0, 0, 0, 0, 0, 0, 0};
  const float *const layers[] = {even, none, nearly, few, one};
  tri_expert_placement *p = placement_of(8, 8, linear);
  tri_expert_search *s = search_of(8, 8, 4);
  double after;
  for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) ck_assert_int_eq(improve(s, layers[i], p, 4, &after), 0);
  tri_expert_search_destroy(s);
  tri_expert_placement_free(p);
}
END_TEST

/* One expert has most rows: the copies of idle ones become its own. */
START_TEST(copies_follow) {
  static const int32_t before[] = {0, 1, 2, 3, 0, 1};
  static const float rows[] = {10, 10, 10, 9000};
  tri_expert_placement *p = placement_of(4, 6, before);
  tri_expert_search *s = search_of(4, 6, 3);
  double after;
  ck_assert_int_eq(improve(s, rows, p, 3, &after), 2);
  ck_assert(after > 0.99);
  for (int share = 0; share < 3; share++) ck_assert(p->expert_of[2 * share] == 3 || p->expert_of[2 * share + 1] == 3);
  tri_expert_search_destroy(s);
  tri_expert_placement_free(p);
}
END_TEST

/* Shares 0 and 1 are one host's, 2 and 3 the other's. */
START_TEST(hosts) {
  static const int32_t linear[] = {0, 1, 2, 3, 4, 5, 6, 7}, host_of[] = {0, 0, 1, 1};
  /* An exchange within the host leaves 150 rows of near, one with the other host 140. */
  static const float near[] = {100, 100, 50, 50, 40, 40, 40, 60}, far[] = {200, 200, 200, 200, 10, 10, 10, 10};
  tri_expert_search *s = search_of(8, 8, 4);
  tri_expert_move moves[MOST_MOVES];
  double before, after;
  float rows[8];
  for (int e = 0; e < 8; e++) rows[e] = 1000 * near[e];
  ck_assert_int_ge(tri_expert_search_moves(s, rows, linear, host_of, 2, moves, 1, &before, &after), 1);
  ck_assert_int_lt(moves[0].to, 4);
  for (int e = 0; e < 8; e++) rows[e] = 1000 * far[e];
  ck_assert_int_ge(tri_expert_search_moves(s, rows, linear, host_of, 2, moves, MOST_MOVES, &before, &after), 2);
  ck_assert(after > 0.95);
  for (int e = 0; e < 8; e++) rows[e] = 1000 * near[e];
  ck_assert_int_ge(tri_expert_search_moves(s, rows, linear, NULL, 2, moves, 1, &before, &after), 1);
  ck_assert_int_ge(moves[0].to, 4);
  tri_expert_search_destroy(s);
}
END_TEST

/* Tables have room for as many slots of an expert as it can ever have. */
START_TEST(room) {
  tri_model_config c = model_with(6);
  tri_expert_placement *p;
  tri_error err = {0};
  tri_expert_placement_config linear = {.ep = 3, .moves = true}, many = {.ep = 3, .moves = true, .num_redundant = 5},
                              one = {.ep = 1, .moves = true};
  ck_assert_int_eq(tri_expert_placement_make(&c, &linear, &p, &err), TRI_OK);
  ck_assert_int_eq(tri_expert_most_copies(p), 1);
  for (int s = 0; s < 6; s++) ck_assert_int_eq(tri_expert_of_slot(p, 2, s), s);
  tri_expert_placement_free(p);
  ck_assert_int_eq(tri_expert_placement_make(&c, &many, &p, &err), TRI_OK);
  ck_assert_int_eq(tri_expert_most_copies(p), 3);
  tri_expert_placement_free(p);
  ck_assert_int_eq(tri_expert_placement_make(&c, &one, &p, &err), TRI_UNSUPPORTED);
  ck_assert_str_eq(err.field, "enable_eplb");
  c.moe.num_experts = 0;
  ck_assert_int_eq(tri_expert_placement_make(&c, &linear, &p, &err), TRI_UNSUPPORTED);
  ck_assert_str_eq(err.field, "enable_eplb");
}
END_TEST

Suite *suite_expert_moves(void) {
  Suite *s = suite_create("expert_moves");
  TCase *t = tcase_create("expert_moves");
  tcase_add_test(t, sound_moves);
  tcase_add_test(t, few_moves);
  tcase_add_test(t, nothing_to_gain);
  tcase_add_test(t, copies_follow);
  tcase_add_test(t, hosts);
  tcase_add_test(t, room);
  suite_add_tcase(s, t);
  return s;
}
