/* SPDX-License-Identifier: Apache-2.0 */
/* The coordinator's core against recorded actions: replicas that have had what a prompt begins with. */
#include "tests/unit/core_world.h"

Suite *suite_core_prefix_routing(void);

enum { BLOCK = 16, LONG = 100 };

/* Submits a prompt of so many tokens, of which the first ones are those of a chat, and the others its own. Returns the
 * replica that gets it. */
static int place(struct world *w, uint64_t id, uint32_t chat, int same, int length, const char *salt) {
  uint32_t ids[LONG];
  for (int i = 0; i < length; i++) ids[i] = (uint32_t)(i < same ? 65 + chat : 66 + chat + id % 7);
  tri_client_msg m = submit_msg(id);
  m.submit.token_ids = ids;
  m.submit.num_token_ids = (size_t)length;
  m.submit.sampling.max_tokens = 1;
  m.submit.sampling.has_max_tokens = true;
  m.submit.cache_salt = (tri_wire_str){salt, strlen(salt)};
  int before = w->num_assigns;
  submit(w, "a", &m);
  ck_assert_int_eq(w->num_assigns, before + 1);
  for (int g = 0; g < 3; g++) {
    tri_peer leader = rank_peer((uint32_t)g, 1, 0);
    if (tri_peer_equal(&w->assigns[before].to, &leader)) return g;
  }
  return -1;
}

static void end(struct world *w, int assign, uint32_t replica) {
  tri_replica_token t = {.job = w->assigns[assign].a.job, .token = byte_token['a'], .flags = TRI_TOKEN_LAST};
  send_tokens(w, replica, 1, &t, 1);
}

/* A prompt goes where most of its beginning has been, in whole blocks, though others have less to do. */
START_TEST(test_follows) {
  struct world *w = world_create(3);
  for (uint32_t g = 0; g < 3; g++) start_replica(w, g, 1, 1);
  ck_assert_int_eq(place(w, 1, 0, 40, 40, ""), 0);
  ck_assert_int_eq(place(w, 2, 1, 40, 40, ""), 1);
  ck_assert_int_eq(place(w, 3, 1, 40, 60, ""), 1);
  ck_assert_int_eq(place(w, 4, 0, 40, 60, ""), 0);
  ck_assert_int_eq(place(w, 5, 0, BLOCK + 1, 60, ""), 0);
  ck_assert_int_eq(place(w, 6, 0, BLOCK - 1, 60, ""), 2); /* no whole block */
  ck_assert_int_eq(place(w, 7, 1, BLOCK, BLOCK, ""), 2);  /* its only block has the token that is left */
  ck_assert_int_eq(place(w, 8, 1, 40, 60, "salt"), 1);    /* nobody has had that: the first of those with two */
  ck_assert_int_eq(place(w, 9, 1, 40, 60, "salt"), 1);
  world_destroy(w);
}
END_TEST

/* The longer beginning counts, and where two replicas have had the same, the one with less to do. */
START_TEST(test_longest) {
  struct world *w = world_create(2);
  start_replica(w, 0, 1, 1);
  ck_assert_int_eq(place(w, 1, 0, 40, 40, ""), 0);
  start_replica(w, 1, 1, 1);
  ck_assert_int_eq(place(w, 2, 5, 40, 40, ""), 1);
  for (int i = 0; i < 2; i++) end(w, i, (uint32_t)i);
  ck_assert_int_eq(place(w, 3, 0, 70, 70, ""), 0);
  for (uint64_t i = 4; i < 8; i++) ck_assert_int_eq(place(w, i, 0, 40, 40, ""), 0);
  ck_assert_int_eq(place(w, 8, 0, 40, 40, ""), 1); /* the other one is much busier; now both have two blocks */
  ck_assert_int_eq(place(w, 9, 0, 40, 40, ""), 1);
  ck_assert_int_eq(place(w, 10, 0, 70, 70, ""), 0); /* of four blocks the first one has had all */
  world_destroy(w);
}
END_TEST

/* Twice the jobs of the least busy replica and four more are too many; and so is one more than there are slots. */
START_TEST(test_busy) {
  struct world *w = world_create(2);
  for (uint32_t g = 0; g < 2; g++) start_replica(w, g, 1, 1);
  for (uint64_t i = 0; i < 5; i++) ck_assert_int_eq(place(w, i, 0, 40, 40, ""), 0);
  ck_assert_int_eq(place(w, 10, 0, 40, 40, ""), 1);
  for (uint64_t i = 11; i < 20; i++) place(w, i, 0, 40, 40, "");
  int of[2] = {0};
  for (int i = 0; i < w->num_assigns; i++) {
    tri_peer first = rank_peer(0, 1, 0);
    of[!tri_peer_equal(&w->assigns[i].to, &first)]++;
  }
  ck_assert_int_eq(of[0], of[1] + 1); /* of 15: both have had it, so that they share it evenly */
  world_destroy(w);
}
END_TEST

/* A replica that was started again has nothing of what it had. */
START_TEST(test_anew) {
  struct world *w = world_create(2);
  for (uint32_t g = 0; g < 2; g++) start_replica(w, g, 1, 1);
  ck_assert_int_eq(place(w, 1, 0, 40, 40, ""), 0);
  end(w, 0, 0);
  ck_assert_int_eq(place(w, 2, 1, 40, 40, ""), 0);
  end(w, 1, 0);
  start_replica(w, 0, 2, 1);
  tri_client_msg m = submit_msg(3);
  submit(w, "a", &m); /* is the first replica's, as neither has jobs */
  ck_assert_int_eq(place(w, 4, 0, 40, 40, ""), 1);
  world_destroy(w);
}
END_TEST

Suite *suite_core_prefix_routing(void) {
  Suite *s = suite_create("core_prefix_routing");
  TCase *t = add_case(s, "core_prefix_routing");
  tcase_add_test(t, test_follows);
  tcase_add_test(t, test_longest);
  tcase_add_test(t, test_busy);
  tcase_add_test(t, test_anew);
  return s;
}
