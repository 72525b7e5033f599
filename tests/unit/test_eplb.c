/* SPDX-License-Identifier: Apache-2.0 */
/* The leader's decisions about moving experts: when rows are counted, when a move is made, and what it tells. */
#include <check.h>

#include "base/mem.h"
#include "worker/placement/eplb.h"

Suite *suite_eplb(void);

enum { LAYERS = 3, EXPERTS = 4, EP = 2, INTERVAL = 10 };

/* Layers 1 and 2 have experts: shares 0 1 | 2 3. */
struct bench {
  tri_model_config model;
  tri_expert_placement *placement;
  tri_eplb *eplb;
};

static void begin(struct bench *b) {
  *b = (struct bench){.model = {.num_layers = LAYERS, .moe.num_experts = EXPERTS}};
  b->model.layer_flags[1] = b->model.layer_flags[2] = TRI_LAYER_SPARSE;
  tri_expert_placement_config pc = {.ep = EP, .moves = true};
  ck_assert_int_eq(tri_expert_placement_make(&b->model, &pc, &b->placement, NULL), TRI_OK);
  tri_eplb_config c = {.interval = INTERVAL, .ep = EP, .pp = 1, .placement = b->placement};
  ck_assert_int_eq(tri_eplb_create(&c, &b->eplb), TRI_OK);
}

static void end(struct bench *b) {
  tri_eplb_destroy(b->eplb);
  tri_expert_placement_free(b->placement);
}

/* Returns what is asked for first among a few calls, since each looks at one layer. */
static tri_plan_kind next(struct bench *b, uint64_t steps, bool idle, tri_expert_move *m) {
  tri_plan_kind kind = TRI_PLAN_STEP;
  for (int i = 0; kind == TRI_PLAN_STEP && i < LAYERS; i++) kind = tri_eplb_next(b->eplb, steps, idle, m);
  return kind;
}

/* Layer 1: share 0 has most rows, and giving one expert for one of the others mends that. Layer 2 is balanced. */
static const float skewed[] = {4000, 4000, 100, 100, 500, 500, 500, 500},
                   even[] = {1000, 1000, 1000, 1000, 500, 500, 500, 500};

START_TEST(one_window) {
  struct bench b;
  tri_expert_move m;
  tri_eplb_report r;
  begin(&b);
  for (uint64_t steps = 0; steps < INTERVAL; steps++) ck_assert_int_eq(next(&b, steps, false, &m), TRI_PLAN_STEP);
  ck_assert_int_eq(next(&b, INTERVAL, false, &m), TRI_PLAN_COUNT_ROWS);
  ck_assert_int_eq(next(&b, INTERVAL, false, &m), TRI_PLAN_COUNT_ROWS); /* until all ranks have done it */
  ck_assert(!tri_eplb_is_busy(b.eplb));
  tri_eplb_done(b.eplb, INTERVAL, skewed, 1000);
  ck_assert(tri_eplb_is_busy(b.eplb));
  ck_assert_int_eq(next(&b, INTERVAL + 1, false, &m), TRI_PLAN_MOVE_EXPERT);
  ck_assert(m.layer == 1 && m.swaps && m.to >= 2 && m.from < 2);
  tri_expert_placement_move(b.placement, &m);
  tri_eplb_done(b.eplb, INTERVAL + 1, NULL, 5000);
  ck_assert(tri_eplb_is_busy(b.eplb) && !tri_eplb_ended(b.eplb, &r)); /* layer 2 */
  ck_assert_int_eq(next(&b, INTERVAL + 1, false, &m), TRI_PLAN_STEP);
  ck_assert(!tri_eplb_is_busy(b.eplb) && tri_eplb_ended(b.eplb, &r) && !tri_eplb_ended(b.eplb, &r));
  ck_assert(r.layers == 1 && r.moved == 2 && r.ns == 6000 && r.most_ns == 5000);
  ck_assert(r.before < 0.6 && r.after > 0.99);
  tri_eplb_stats s = tri_eplb_get_stats(b.eplb);
  ck_assert(s.rearrangements == 1 && s.moved == 2 && s.ns == 6000);
  ck_assert_int_eq(next(&b, 2 * INTERVAL - 1, false, &m), TRI_PLAN_STEP);
  ck_assert_int_eq(next(&b, 2 * INTERVAL, false, &m), TRI_PLAN_COUNT_ROWS);
  end(&b);
}
END_TEST

/* Nothing to be gained: nothing moves, and nothing is said. */
START_TEST(balanced) {
  struct bench b;
  tri_expert_move m;
  tri_eplb_report r;
  begin(&b);
  ck_assert_int_eq(next(&b, INTERVAL, false, &m), TRI_PLAN_COUNT_ROWS);
  tri_eplb_done(b.eplb, INTERVAL, even, 1000);
  ck_assert_int_eq(next(&b, INTERVAL, false, &m), TRI_PLAN_STEP);
  ck_assert(!tri_eplb_is_busy(b.eplb) && !tri_eplb_ended(b.eplb, &r));
  ck_assert(tri_eplb_get_stats(b.eplb).rearrangements == 0);
  end(&b);
}
END_TEST

/* A step lies between two moves, unless nobody wants one. */
START_TEST(one_move_between_two_steps) {
  static const float both[] = {4000, 4000, 100, 100, 4000, 4000, 100, 100};
  for (int idle = 0; idle < 2; idle++) {
    struct bench b;
    tri_expert_move m;
    begin(&b);
    ck_assert_int_eq(next(&b, INTERVAL, false, &m), TRI_PLAN_COUNT_ROWS);
    tri_eplb_done(b.eplb, INTERVAL, both, 0);
    ck_assert_int_eq(next(&b, INTERVAL + 1, false, &m), TRI_PLAN_MOVE_EXPERT);
    tri_expert_placement_move(b.placement, &m);
    tri_eplb_done(b.eplb, INTERVAL + 1, NULL, 0);
    if (!idle) ck_assert_int_eq(next(&b, INTERVAL + 1, false, &m), TRI_PLAN_STEP);
    ck_assert_int_eq(next(&b, INTERVAL + (idle ? 1 : 2), idle, &m), TRI_PLAN_MOVE_EXPERT);
    ck_assert_int_eq(m.layer, 2);
    end(&b);
  }
}
END_TEST

/* One window with other rows decides nothing; after some the load is theirs. */
START_TEST(old_load_fades) {
  static const float before[] = {10000, 10000, 10000, 10000, 0, 0, 0, 0}, now[] = {200, 200, 10, 10, 0, 0, 0, 0};
  struct bench b;
  tri_expert_move m;
  tri_plan_kind kind = TRI_PLAN_STEP;
  int windows = 0;
  begin(&b);
  for (uint64_t steps = INTERVAL; kind == TRI_PLAN_STEP && windows < 6; steps += INTERVAL + 1, windows++) {
    ck_assert_int_eq(next(&b, steps, false, &m), TRI_PLAN_COUNT_ROWS);
    tri_eplb_done(b.eplb, steps, windows ? now : before, 0);
    kind = next(&b, steps + 1, false, &m);
  }
  ck_assert_int_eq(kind, TRI_PLAN_MOVE_EXPERT);
  ck_assert(windows > 2 && windows < 6);
  end(&b);
}
END_TEST

/* Layer 1's stage lies on two hosts, and exchanges experts within one of them; layer 2's on one alone, so that the best
 * exchange counts. */
START_TEST(hosts_of_stages) {
  static const int32_t host_of[] = {0, 0, 1, 1, 2, 2, 2, 2}, stage_of[LAYERS] = {0, 0, 1};
  float rows[] = {100, 100, 50, 50, 40, 40, 40, 60, 100, 100, 50, 50, 40, 40, 40, 60};
  tri_model_config model = {.num_layers = LAYERS, .moe.num_experts = 8};
  model.layer_flags[1] = model.layer_flags[2] = TRI_LAYER_SPARSE;
  tri_expert_placement_config pc = {.ep = 4, .moves = true};
  struct bench b = {0};
  tri_expert_move m;
  ck_assert_int_eq(tri_expert_placement_make(&model, &pc, &b.placement, NULL), TRI_OK);
  tri_eplb_config c = {
      .interval = INTERVAL, .ep = 4, .pp = 2, .placement = b.placement, .host_of = host_of, .stage_of = stage_of};
  ck_assert_int_eq(tri_eplb_create(&c, &b.eplb), TRI_OK);
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) rows[i] *= 1000;
  ck_assert_int_eq(next(&b, INTERVAL, false, &m), TRI_PLAN_COUNT_ROWS);
  tri_eplb_done(b.eplb, INTERVAL, rows, 0);
  ck_assert_int_eq(next(&b, INTERVAL, true, &m), TRI_PLAN_MOVE_EXPERT);
  ck_assert(m.layer == 1 && m.from < 2 && m.to >= 2 && m.to < 4);
  while (m.layer == 1) {
    tri_expert_placement_move(b.placement, &m);
    tri_eplb_done(b.eplb, INTERVAL, NULL, 0);
    ck_assert_int_eq(next(&b, INTERVAL, true, &m), TRI_PLAN_MOVE_EXPERT);
  }
  ck_assert(m.layer == 2 && m.from < 2 && m.to >= 4);
  end(&b);
}
END_TEST

Suite *suite_eplb(void) {
  Suite *s = suite_create("eplb");
  TCase *t = tcase_create("eplb");
  tcase_add_test(t, one_window);
  tcase_add_test(t, balanced);
  tcase_add_test(t, one_move_between_two_steps);
  tcase_add_test(t, old_load_fades);
  tcase_add_test(t, hosts_of_stages);
  suite_add_tcase(s, t);
  return s;
}
