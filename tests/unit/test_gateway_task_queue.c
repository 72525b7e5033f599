/* SPDX-License-Identifier: Apache-2.0 */
/* The turns of clients whose requests wait for a thread. */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "client/gateway/task_queue.h"

Suite *suite_gateway_task_queue(void);

enum { MOST = 16, LONG = 1 << 20 };

typedef struct world {
  gw_task_queue q;
  gw_task tasks[MOST];
  unsigned num;
} world;

static bool add(world *w, const char *client, size_t bytes) {
  gw_task *t = &w->tasks[w->num++];
  ck_assert_uint_le(w->num, MOST);
  snprintf(t->client, sizeof t->client, "%s", client);
  t->body.len = bytes;
  return gw_task_queue_up(&w->q, t);
}

/* Takes all that is there; compares whose they are. */
static void expect(world *w, bool short_only, const char *clients) {
  char order[2 * MOST] = "";
  for (gw_task *t; (t = gw_task_queue_take(&w->q, short_only));) strcat(order, t->client);
  ck_assert_str_eq(order, clients);
}

START_TEST(clients_take_turns) {
  world w = {.q = {.max_len = 100, .max_bytes = 100}};
  for (int i = 0; i < 4; i++) ck_assert(add(&w, "a", 1));
  ck_assert(add(&w, "b", 1));
  ck_assert(add(&w, "b", 1));
  ck_assert(add(&w, "c", 1));
  expect(&w, false, "abcabaa");
  ck_assert_uint_eq(w.q.len, 0);
  ck_assert_uint_eq(w.q.bytes, 0);
  /* Nobody is owed anything for the time before. */
  for (int i = 0; i < 3; i++) ck_assert(add(&w, "b", 1));
  ck_assert(add(&w, "a", 1));
  expect(&w, false, "babb");
}
END_TEST

/* One who comes while another one has had turns already does not have all of them back. */
START_TEST(late_ones_begin_now) {
  world w = {.q = {.max_len = 100, .max_bytes = 100}};
  for (int i = 0; i < 6; i++) ck_assert(add(&w, "a", 1));
  for (int i = 0; i < 3; i++) ck_assert_ptr_nonnull(gw_task_queue_take(&w.q, false));
  for (int i = 0; i < 4; i++) ck_assert(add(&w, "b", 1));
  expect(&w, false, "bababab");
}
END_TEST

/* A client may have as much as is free: there is always room for one who has nothing. */
START_TEST(nobody_fills_it) {
  world w = {.q = {.max_len = 8, .max_bytes = 1000}};
  for (int i = 0; i < 4; i++) ck_assert(add(&w, "a", 1));
  ck_assert(!add(&w, "a", 1));
  ck_assert(add(&w, "b", 1));
  ck_assert(add(&w, "b", 1));
  ck_assert(!add(&w, "b", 1));
  ck_assert(add(&w, "c", 1));
  world v = {.q = {.max_len = 100, .max_bytes = 1000}};
  ck_assert(add(&v, "a", 500));
  ck_assert(!add(&v, "a", 1));
  ck_assert(!add(&v, "b", 501));
  ck_assert(add(&v, "b", 250));
  ck_assert(add(&v, "c", 125));
}
END_TEST

START_TEST(short_ones_pass) {
  world w = {.q = {.max_len = 100, .max_bytes = 100 * LONG}};
  ck_assert(add(&w, "a", LONG));
  ck_assert(add(&w, "b", LONG));
  ck_assert(add(&w, "c", 1));
  ck_assert(add(&w, "d", LONG));
  expect(&w, true, "c");
  ck_assert_uint_eq(w.q.len, 3);
  ck_assert(add(&w, "e", 1)); /* at the end, which is still one */
  expect(&w, true, "e");
  ck_assert(add(&w, "f", LONG));
  expect(&w, false, "abdf");
}
END_TEST

Suite *suite_gateway_task_queue(void) {
  Suite *s = suite_create("gateway_task_queue");
  TCase *t = tcase_create("gateway_task_queue");
  tcase_add_test(t, clients_take_turns);
  tcase_add_test(t, late_ones_begin_now);
  tcase_add_test(t, nobody_fills_it);
  tcase_add_test(t, short_ones_pass);
  suite_add_tcase(s, t);
  return s;
}
