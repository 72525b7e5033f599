/* SPDX-License-Identifier: Apache-2.0 */
/* Layers share the plans of their ops where they are alike. Those whose weights have another type, or other groups,
 * have plans of their own: a checkpoint may have left some as they were before it was quantized. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/forward/forward_state.h"
#include "tests/unit/engine_kit.h"

Suite *suite_layer_plans(void);

/* The reference's ops, whose plans say what weights they were made for. */
static struct {
  tri_backend_ops original;
  int plans, launches, wrong;
} noted;

static int form_of(const tri_weight *w) { return (int)w->dtype << 16 | w->groups.cols << 8 | w->groups.rows; }

static tri_status linear_plan(tri_backend *be, const tri_linear_args *a, tri_op_plan *plan) {
  tri_status st = noted.original.linear_plan(be, a, plan);
  plan->split = form_of(&a->w);
  noted.plans++;
  return st;
}

static void linear_launch(tri_backend *be, const tri_op_plan *plan, const tri_linear_args *a) {
  noted.wrong += plan->split != form_of(&a->w);
  noted.launches++;
  noted.original.linear_launch(be, plan, a);
}

static void note_plans(tri_backend *be) {
  noted.original = be->ops;
  be->ops.linear_plan = linear_plan;
  be->ops.linear_launch = linear_launch;
}

/* Collectives of one rank. */
static tri_status sum(tri_comm *c, float *buf, size_t count) {
  (void)c;
  (void)buf;
  (void)count;
  return TRI_OK;
}

static tri_status gather(tri_comm *c, const void *send, void *recv, size_t bytes) {
  (void)c;
  memcpy(recv, send, bytes);
  return TRI_OK;
}

static tri_status no_wait(tri_comm *c, tri_comm_req *req) {
  (void)c;
  (void)req;
  return TRI_OK;
}

static const tri_comm_ops alone = {.name = "alone", .all_reduce = sum, .all_gather = gather, .wait = no_wait};

static void run_twice(struct kit *k, tri_forward *f) {
  tri_mat logits;
  tri_encoder_output output;
  for (int single = 0; single < 2; single++) {
    build_batch(k, single);
    ck_assert_int_eq(tri_forward_run(f, k->e->batch, 0, &logits, &output), TRI_OK);
  }
}

/* Runs a model whose second layer has another weight in the place of its own. Returns how many plans its products have.
 */
static int run_with(tri_weight_id id, tri_weight (*make)(const tri_weight *, void *)) {
  static struct kit k;
  tri_forward *f;
  tri_error err;
  kit_config config = {
      .checkpoint = "llama", .backend = "ref", .p = {.tp = 1, .pp = 1}, .ops = &alone, .prepare = note_plans};
  ck_assert(make_kit(&k, &config));
  ck_assert_int_gt(k.e->shard.layers.count, 1);
  tri_weight *w = &k.e->weights->layers[1].w[id], before = *w;
  void *elements = calloc((size_t)w->n * (size_t)w->k, sizeof(float));
  ck_assert_ptr_nonnull(elements);
  if (make) *w = make(w, elements);
  ck_assert_int_eq(tri_forward_create(&k.e->forward->cfg, &f, &err), TRI_OK);
  noted.plans = noted.launches = noted.wrong = 0;
  run_twice(&k, f);
  tri_forward_destroy(f);
  *w = before;
  free(elements);
  free_kit(&k);
  ck_assert_int_gt(noted.launches, 0);
  ck_assert_msg(!noted.wrong, "%d of %d launches have the plan of another weight", noted.wrong, noted.launches);
  return noted.plans;
}

static tri_weight of_16_bits(const tri_weight *w, void *elements) {
  return (tri_weight){.data = elements, .dtype = TRI_BF16, .n = w->n, .k = w->k};
}

/* The elements are their own scales: zeros. */
static tri_weight of_blocks(const tri_weight *w, void *elements) {
  tri_weight x = {.data = elements, .scale = elements, .dtype = TRI_F8_E4M3, .n = w->n, .k = w->k};
  x.groups = (tri_groups){.rows = 8, .cols = 8};
  return x;
}

START_TEST(other_types) {
  int alike = run_with(TRI_W_UP, NULL);
  ck_assert_int_gt(run_with(TRI_W_UP, of_16_bits), alike);
  ck_assert_int_gt(run_with(TRI_W_DOWN, of_16_bits), alike);
  ck_assert_int_gt(run_with(TRI_W_QKV, of_16_bits), alike);
}
END_TEST

START_TEST(other_groups) {
  run_with(TRI_W_UP, of_blocks);
  run_with(TRI_W_O, of_blocks);
}
END_TEST

Suite *suite_layer_plans(void) {
  Suite *s = suite_create("layer_plans");
  TCase *tc = tcase_create("forms");
  tcase_set_timeout(tc, 120);
  tcase_add_test(tc, other_types);
  tcase_add_test(tc, other_groups);
  suite_add_tcase(s, tc);
  return s;
}
