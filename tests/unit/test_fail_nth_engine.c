/* SPDX-License-Identifier: Apache-2.0 */
/* An engine's start without memory: each allocation fails once, of models that have different parts. It is refused,
 * with all that it had given back, or is as good as one that had memory. */
#include <check.h>
#include <stdio.h>

#include "runtime/engine/engine.h"
#include "tests/unit/fail_nth.h"

Suite *suite_fail_nth_engine(void);

static const char *const models[] = {"llama_odd", "mixtral_odd", "bert_classifier", "t5_odd"};

typedef struct rank {
  tri_backend *be;
  tri_comm *world;
  tri_replica replica;
  tri_engine *e;
} rank;

static tri_engine_config config_of(const char *dir, tri_load_format format) {
  return (tri_engine_config){.model_dir = dir,
                             .load_format = format,
                             .dtype = TRI_F32,
                             .kv_dtype = TRI_F32,
                             .max_num_seqs = 2,
                             .max_num_batched_tokens = 16,
                             .block_size = 16,
                             .max_model_len = 16,
                             .num_kv_blocks = 4,
                             .local_ranks = 1,
                             .encoders = true};
}

/* All but the engine is there before. */
static void open_rank(rank *r) {
  tri_error err = {0};
  tri_comm_config cc = {.timeout_ms = 1000};
  *r = (rank){0};
  ck_assert_int_eq(tri_backend_create(&(tri_backend_config){.name = "ref"}, &r->be, &err), TRI_OK);
  ck_assert_int_eq(tri_comm_self_create(&cc, &r->world), TRI_OK);
  ck_assert_int_eq(tri_replica_create(r->world, (tri_parallel){.tp = 1, .pp = 1, .dp = 1, .ep = 1}, &r->replica, &err),
                   TRI_OK);
}

static void close_rank(rank *r) {
  tri_engine_destroy(r->e);
  tri_replica_destroy(&r->replica);
  tri_backend_destroy(r->be);
}

static void fail_each(const char *name, tri_load_format format) {
  char dir[512];
  uint64_t n = 1;
  snprintf(dir, sizeof dir, "%s/checkpoints/%s", TRI_TEST_DATA, name);
  tri_engine_config config = config_of(dir, format);
  for (bool failed = true; failed; n++) {
    rank r;
    tri_error err = {0};
    open_rank(&r);
    fail_nth_arm(n);
    tri_status st = tri_engine_create(&config, r.be, &r.replica, &r.e, &err);
    failed = fail_nth_has_failed();
    fail_nth_arm(0);
    bool refused = st == TRI_NO_MEMORY || st == TRI_NO_CAPACITY;
    ck_assert_msg(st == TRI_OK || (failed && refused), "%s, allocation %llu: %s, %s", name, (unsigned long long)n,
                  tri_status_text(st), err.message);
    ck_assert(st == TRI_OK || !r.e);
    close_rank(&r);
  }
  ck_assert_uint_gt(n, 50);
}

START_TEST(drawn_weights) { fail_each(models[_i], TRI_LOAD_DUMMY); }
END_TEST

START_TEST(weights_of_files) { fail_each(models[_i], TRI_LOAD_AUTO); }
END_TEST

Suite *suite_fail_nth_engine(void) {
  Suite *s = suite_create("fail_nth_engine");
  TCase *t = tcase_create("fail_nth_engine");
  tcase_set_timeout(t, 120);
  tcase_add_loop_test(t, drawn_weights, 0, sizeof models / sizeof *models);
  tcase_add_loop_test(t, weights_of_files, 0, sizeof models / sizeof *models);
  suite_add_tcase(s, t);
  return s;
}
