/* SPDX-License-Identifier: Apache-2.0 */
/* Groups that may not serve beside others: other weights, or a canary with other logits. */
#include "base/log.h"
#include "tests/unit/core_world.h"

Suite *suite_core_service(void);

static bool come(struct world *w, uint32_t replica, uint64_t epoch, uint64_t weights) {
  tri_replica_msg m = registration(replica, epoch, 0, 1);
  m.reg.weights_hash = weights;
  w->welcome = false;
  tri_core_replica_expected(w->core, replica, epoch);
  send_worker(w, replica, epoch, 0, &m);
  return w->welcome;
}

static void be_ready(struct world *w, uint32_t replica, const uint32_t *ids, const uint32_t *millis, size_t n) {
  tri_replica_msg m = {.op = TRI_REPLICA_READY,
                       .ready = {.replica = replica,
                                 .epoch = 1,
                                 .canary_ids = ids,
                                 .num_canary_ids = n,
                                 .canary_millis = millis,
                                 .num_canary_millis = n}};
  send_worker(w, replica, 1, 0, &m);
}

START_TEST(test_other_weights) {
  struct world *w = world_create(3);
  ck_assert(come(w, 0, 1, 7));
  send_ready(w, 0, 1);
  ck_assert(come(w, 1, 1, 7));
  send_ready(w, 1, 1);
  ck_assert_int_eq(w->ready, 2);
  ck_assert(!come(w, 2, 1, 8));
  ck_assert_int_eq(w->lost, 1);
  ck_assert(
      strstr(w->lost_reason, "its weights (hash 0000000000000008) are not those of replica 0 (0000000000000007)"));
  ck_assert_str_eq(w->welcome_text, w->lost_reason);
  ck_assert(come(w, 2, 2, 0)); /* one that does not say */
  world_destroy(w);
}
END_TEST

/* The hash comes before the model is loaded, and the model's limits. */
START_TEST(test_early_hash) {
  struct world *w = world_create(2);
  come(w, 0, 1, 7);
  send_ready(w, 0, 1);
  tri_replica_msg m = registration(1, 1, 0, 1);
  m.reg.max_model_len = 0;
  send_worker(w, 1, 1, 0, &m);
  ck_assert(w->welcome);
  m.reg.weights_hash = 8;
  send_worker(w, 1, 1, 0, &m);
  ck_assert(!w->welcome);
  ck_assert_int_eq(w->lost, 1);
  world_destroy(w);
}
END_TEST

/* The new weights are served when no replica has the others any more. */
START_TEST(test_new_weights) {
  struct world *w = world_create(2);
  come(w, 0, 1, 7);
  send_ready(w, 0, 1);
  ck_assert(!come(w, 1, 1, 8));
  tri_core_replica_died(w->core, w->now, 0, 1, "replica 0 ended with code 1");
  ck_assert(come(w, 1, 2, 8)); /* nobody takes jobs with the old ones */
  send_ready(w, 1, 2);
  ck_assert_int_eq(w->ready, 2);
  tick(w, SECOND);
  ck_assert(!come(w, 0, 2, 7));
  ck_assert(come(w, 0, 3, 8));
  send_ready(w, 0, 3);
  ck_assert_int_eq(w->ready, 3);
  world_destroy(w);
}
END_TEST

/* Of two that start at a time the first that is ready decides. */
START_TEST(test_two_at_a_time) {
  struct world *w = world_create(2);
  ck_assert(come(w, 0, 1, 7));
  ck_assert(come(w, 1, 1, 8));
  send_ready(w, 1, 1);
  ck_assert_int_eq(w->ready, 1);
  send_ready(w, 0, 1);
  ck_assert_int_eq(w->ready, 1);
  ck_assert_int_eq(w->lost, 1);
  ck_assert(strstr(w->lost_reason, "are not those of replica 1"));
  world_destroy(w);
}
END_TEST

START_TEST(test_canaries) {
  static const uint32_t ids[] = {5, 6, 7}, first[] = {100, 3000, 4000};
  static const struct {
    uint32_t ids[3], millis[3];
    bool fits;
  } others[] = {
      {{5, 6, 7}, {100, 3000, 4000}, true},      {{5, 7, 6}, {300, 3400, 3500}, true},
      {{5, 6, 8}, {100, 3000, 3999}, true},     /* two at the border */
      {{6, 5, 7}, {1100, 1200, 4000}, true},    /* another one is first, but not by much */
      {{5, 6, 7}, {100, 3000, 6500}, false},    /* one has moved too far */
      {{5, 6, 9}, {100, 3000, 1500}, false},    /* one that the others have far behind */
      {{11, 12, 13}, {100, 3000, 4000}, false}, /* none in common */
      {{11, 12, 13}, {6000, 6001, 6002}, false},
  };
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
    struct world *w = world_create(2);
    come(w, 0, 1, 0);
    come(w, 1, 1, 0);
    be_ready(w, 0, ids, first, 3);
    be_ready(w, 1, others[i].ids, others[i].millis, 3);
    ck_assert_msg(w->lost == !others[i].fits, "case %zu: %s", i, w->lost_reason);
    ck_assert(others[i].fits || strstr(w->lost_reason, "its canary disagrees with that of replica 0"));
    world_destroy(w);
  }
}
END_TEST

/* A vocabulary of fewer tokens, a replica without a canary, and numbers that do not belong together. */
START_TEST(test_short_canaries) {
  static const uint32_t ids[] = {5, 6, 7, 8}, millis[] = {0, 4000000000u, 1, 2};
  struct world *w = world_create(4);
  for (uint32_t g = 0; g < 4; g++) come(w, g, 1, 0);
  be_ready(w, 0, ids, millis, 1);
  be_ready(w, 1, NULL, NULL, 0);
  tri_replica_msg m = {.op = TRI_REPLICA_READY,
                       .ready = {.replica = 2, .epoch = 1, .canary_ids = ids, .num_canary_ids = 4}};
  m.ready.canary_millis = millis;
  m.ready.num_canary_millis = 1;
  send_worker(w, 2, 1, 0, &m);
  ck_assert_int_eq(w->ready, 3);
  be_ready(w, 3, ids + 1, millis + 1, 1);
  ck_assert_int_eq(w->lost, 1);
  world_destroy(w);
}
END_TEST

/* No answer has tokens of two models: a job with tokens ends where the weights change, and one without begins anew. */
START_TEST(test_jobs_of_other_weights) {
  struct world *w = world_create(1);
  tri_client_msg m = submit_msg(1);
  come(w, 0, 1, 7);
  send_ready(w, 0, 1);
  struct stream *begun = submit(w, "a", &m);
  token(w, last_job(w), 0, 0, byte_token['a'], 0, TRI_FINISH_STOP);
  m.id = 2;
  struct stream *waiting = submit(w, "a", &m);
  ck_assert_int_eq(w->num_assigns, 2);
  tri_core_replica_died(w->core, w->now, 0, 1, "replica 0 ended with code 1");
  tick(w, SECOND);
  come(w, 0, 2, 8);
  send_ready(w, 0, 2);
  expect_error(begun, "peer_lost", "");
  ck_assert_ptr_nonnull(strstr(begun->message, "the model has other weights since"));
  ck_assert(w->num_assigns == 3 && !waiting->done && !waiting->code[0]);
  tri_core_replica_died(w->core, w->now, 0, 2, "replica 0 ended with code 1");
  tick(w, SECOND);
  come(w, 0, 3, 8);
  send_ready(w, 0, 3);
  ck_assert_int_eq(w->num_assigns, 4);
  world_destroy(w);
}
END_TEST

Suite *suite_core_service(void) {
  Suite *suite = suite_create("core_service");
  tri_log_setup(TRI_LOG_ERROR, "core");
  TCase *t = add_case(suite, "service");
  tcase_add_test(t, test_other_weights);
  tcase_add_test(t, test_early_hash);
  tcase_add_test(t, test_new_weights);
  tcase_add_test(t, test_two_at_a_time);
  tcase_add_test(t, test_canaries);
  tcase_add_test(t, test_jobs_of_other_weights);
  tcase_add_test(t, test_short_canaries);
  return suite;
}
