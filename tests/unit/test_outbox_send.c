/* SPDX-License-Identifier: Apache-2.0 */
/* A step's tokens and results reach the coordinator once each, whatever the socket and the memory say in between. */
#include <check.h>

#include "worker/process/outbox_send.h"

Suite *suite_outbox_send(void);

enum { RESULTS = 3, VALUES = TRI_WIRE_MAX_RESULT / 4 / 2 - 8 }; /* two in a message */

typedef struct line {
  int calls, fails_at; /* the call with this number */
  tri_status failure;
  uint32_t results, tokens, messages;
} line;

static tri_status take(void *ctx, tri_replica_msg *m) {
  line *l = ctx;
  if (++l->calls == l->fails_at) return l->failure;
  l->messages++;
  ck_assert(m->op == TRI_REPLICA_TOKENS || m->op == TRI_REPLICA_EMBED_RESULTS);
  if (m->op == TRI_REPLICA_TOKENS) {
    ck_assert(m->tokens.step == 7 && m->tokens.epoch == 5);
    l->tokens += m->tokens.num;
  } else {
    for (uint32_t i = 0; i < m->embed_results.num; i++)
      ck_assert_uint_eq(m->embed_results.results[i].job, ++l->results); /* in order, each once */
  }
  return TRI_OK;
}

START_TEST(each_once) {
  static const tri_status failures[] = {TRI_AGAIN, TRI_NO_MEMORY};
  static const float values[VALUES];
  static tri_replica_token tokens[2];
  tri_replica_result results[RESULTS];
  for (uint32_t i = 0; i < RESULTS; i++)
    results[i] = (tri_replica_result){.job = i + 1, .num_values = VALUES, .values = values};
  for (int at = 0; at <= 3; at++) {
    tri_outbox o = {
        .step = 7, .num = 2, .tokens = tokens, .num_results = RESULTS, .results = results, .max_results = RESULTS};
    line l = {.fails_at = at, .failure = failures[_i]};
    int tries = 1;
    for (; !tri_outbox_send(&o, 5, take, &l); tries++) ck_assert_int_lt(tries, 3);
    ck_assert_int_eq(tries, at ? 2 : 1);
    ck_assert(l.results == RESULTS && l.tokens == 2 && l.messages == 3);
  }
}
END_TEST

/* What cannot go at all is not tried for ever. */
START_TEST(no_connection) {
  static tri_replica_token tokens[2];
  tri_outbox o = {.step = 7, .num = 2, .tokens = tokens};
  line l = {.fails_at = 1, .failure = TRI_CLOSED};
  ck_assert(tri_outbox_send(&o, 5, take, &l));
  ck_assert_int_eq(l.calls, 1);
  o.num = 0;
  ck_assert(tri_outbox_send(&o, 5, take, &l)); /* nothing to say */
  ck_assert_int_eq(l.calls, 1);
}
END_TEST

Suite *suite_outbox_send(void) {
  Suite *s = suite_create("outbox_send");
  TCase *t = tcase_create("outbox_send");
  tcase_add_loop_test(t, each_once, 0, 2);
  tcase_add_test(t, no_connection);
  suite_add_tcase(s, t);
  return s;
}
