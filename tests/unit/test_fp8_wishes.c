/* SPDX-License-Identifier: Apache-2.0 */
/* FP8 weights of a replica whose ranks have different backends: they stay as they are stored where all ranks prefer
 * that, and in blocks that all of them take, as experts move between ranks. */
#include <check.h>
#include <string.h>

#include "tests/unit/engine_kit.h"

Suite *suite_fp8_wishes(void);

/* The other rank's wishes, which ranks tell each other as three bytes: it lacks no kernels. */
static bool other_prefers, other_wants_wide;

static tri_status gather(tri_comm *c, const void *send, void *recv, size_t bytes) {
  const bool others[3] = {other_prefers, other_wants_wide, false};
  for (int r = 0; r < c->size; r++)
    memcpy((char *)recv + (size_t)r * bytes, r && bytes == sizeof others ? others : send, bytes);
  return TRI_OK;
}

static tri_status sum(tri_comm *c, float *buf, size_t count) {
  (void)c;
  (void)buf;
  (void)count;
  return TRI_OK;
}

static tri_status no_wait(tri_comm *c, tri_comm_req *req) {
  (void)c;
  (void)req;
  return TRI_OK;
}

static const tri_comm_ops two = {.name = "two", .all_reduce = sum, .all_gather = gather, .wait = no_wait};

static void prefer(tri_backend *be) { be->prefers_fp8 = true; }

static void expect(tri_quantization quantization, bool wide) {
  static struct kit k;
  kit_config config = {.checkpoint = "fp8_deepseek_v3",
                       .backend = "ref",
                       .p = {.tp = 2, .pp = 1},
                       .ops = &two,
                       .quantization = TRI_QUANTIZE_AUTO,
                       .prepare = prefer};
  ck_assert(make_kit(&k, &config));
  ck_assert_int_eq(k.e->quantization, quantization);
  ck_assert_int_eq(k.e->model.stored.wide_blocks_only, wide);
  free_kit(&k);
}

START_TEST(what_all_ranks_want) {
  other_prefers = true;
  expect(TRI_QUANTIZE_FP8, false);
  other_wants_wide = true;
  expect(TRI_QUANTIZE_FP8, true);
  other_prefers = false;
  expect(TRI_QUANTIZE_NONE, true);
}
END_TEST

/* ---- rounded rows ---- */

static void (*experts_launch)(tri_backend *, const tri_op_plan *, const tri_moe_experts_args *);
static int num_rounded, num_launched;

static void note_experts(tri_backend *be, const tri_op_plan *plan, const tri_moe_experts_args *a) {
  num_rounded += a->rounds_rows;
  num_launched++;
  experts_launch(be, plan, a);
}

static void note(tri_backend *be) {
  experts_launch = be->ops.moe_experts_launch;
  be->ops.moe_experts_launch = note_experts;
}

/* Runs a step of one of two ranks that share the experts. Returns whether rows are rounded for any where the backend
 * wants that from so many rows of each expert on; fewer: so many less than experts have on average. */
static bool rounds(int fewer) {
  static struct kit k;
  tri_mat logits;
  tri_encoder_output output;
  kit_config config = {.checkpoint = "mixtral_odd", .backend = "ref", .p = {.tp = 2, .pp = 1, .ep = 2}, .ops = &two};
  config.quantization = TRI_QUANTIZE_FP8;
  config.prepare = note;
  ck_assert(make_kit(&k, &config));
  ck_assert_int_lt(k.e->shard.slots.count, (int)k.e->model.moe.num_experts);
  k.be->rounds_fp8_experts_from = KIT_TOKENS * (int)k.e->model.moe.top_k / (int)k.e->model.moe.num_experts - fewer;
  ck_assert_int_gt(k.be->rounds_fp8_experts_from, 0);
  build_batch(&k, false);
  num_rounded = num_launched = 0;
  ck_assert_int_eq(tri_forward_run(k.e->forward, k.e->batch, 0, &logits, &output), TRI_OK);
  free_kit(&k);
  ck_assert_int_gt(num_launched, 0);
  return num_rounded;
}

START_TEST(rows_of_each_expert) {
  ck_assert(rounds(0));
  ck_assert(!rounds(-1));
}
END_TEST

Suite *suite_fp8_wishes(void) {
  Suite *s = suite_create("fp8_wishes");
  TCase *tc = tcase_create("ranks");
  tcase_add_test(tc, what_all_ranks_want);
  tcase_add_test(tc, rows_of_each_expert);
  suite_add_tcase(s, tc);
  return s;
}
