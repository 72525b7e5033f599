/* SPDX-License-Identifier: Apache-2.0 */
/* The tokenizer's threads give up: a text that costs too much, and one that nobody wants any more. */
#include <check.h>
#include <poll.h>
#include <string.h>

#include "coordinator/jobs/tokenize_pool.h"
#include "base/mem.h"
#include "base/wait.h"

Suite *suite_tokenize_stop(void);

#define TOKENIZER(pattern)                                                                                             \
  "{\"pre_tokenizer\":{\"type\":\"Split\",\"behavior\":\"Isolated\",\"invert\":false,\"pattern\":{\"Regex\":"          \
  "\"" pattern "\"}},\"model\":{\"type\":\"BPE\",\"merges\":[],\"vocab\":{\"a\":0,\"7\":1,\" \":2}}}"

/* Digits in groups of three from the right: each group looks ahead to where the run ends. */
#define GROUPS TOKENIZER("\\\\p{N}{1,3}(?=(?:\\\\p{N}{3})*(?:\\\\P{N}|$))|\\\\p{L}+|\\\\s+")

/* Tries 2^18 ways from each place, which is within the bound of one match, and has no long repeat. */
#define WAYS TOKENIZER("(?:a?){18}7|a")

enum { MIB = 1 << 20, LONG_TEXT = 8 * MIB };

static tri_tokenize_pool *pool(const char *tokenizer, tri_tokenizer **t) {
  tri_tokenize_pool *p = NULL;
  ck_assert_int_eq(tri_tokenizer_parse(tokenizer, strlen(tokenizer), t, NULL), TRI_OK);
  ck_assert_int_eq(tri_tokenize_pool_create(*t, 1, SIZE_MAX, 16, &p), TRI_OK);
  return p;
}

static char *text_of(const char *unit, size_t len) {
  char *text = tri_malloc(len, 1);
  ck_assert_ptr_nonnull(text);
  for (size_t i = 0; i < len; i++) text[i] = unit[i % strlen(unit)];
  return text;
}

static tri_status push(tri_tokenize_pool *p, uint64_t job, const char *text, size_t len) {
  return tri_tokenize_pool_push(p, job, &(tri_core_text){.text = {text, len}});
}

static tri_tokenized *wait_for(tri_tokenize_pool *p) {
  tri_tokenized *r;
  struct pollfd fd = {.fd = tri_tokenize_pool_fd(p), .events = POLLIN};
  while (!(r = tri_tokenize_pool_pop(p))) ck_assert_int_eq(poll(&fd, 1, 60000), 1);
  return r;
}

static void expect(tri_tokenize_pool *p, uint64_t job, tri_status st, size_t count) {
  tri_tokenized *r = wait_for(p);
  ck_assert_uint_eq(r->job, job);
  ck_assert_int_eq(r->status, st);
  if (st == TRI_OK) ck_assert_uint_eq(r->count, count);
  tri_tokenized_free(r);
}

START_TEST(long_runs_are_given_up) {
  tri_tokenizer *t;
  tri_tokenize_pool *p = pool(GROUPS, &t);
  char *digits = text_of("7", MIB), *short_runs = text_of("777777777 a", MIB);
  /* Without the limit it takes many minutes, which the suite does not have. */
  ck_assert_int_eq(push(p, 1, digits, MIB), TRI_OK);
  ck_assert_int_eq(push(p, 2, short_runs, MIB), TRI_OK);
  ck_assert_int_eq(push(p, 3, digits, 3000), TRI_OK);
  expect(p, 1, TRI_NO_CAPACITY, 0);
  expect(p, 2, TRI_OK, MIB);
  expect(p, 3, TRI_OK, 3000);
  tri_free(digits);
  tri_free(short_runs);
  tri_tokenize_pool_destroy(p);
  tri_tokenizer_destroy(t);
}
END_TEST

START_TEST(many_ways_are_given_up) {
  tri_tokenizer *t;
  tri_tokenize_pool *p = pool(WAYS, &t);
  char *text = text_of("a", 3000);
  ck_assert_int_eq(push(p, 1, text, 3000), TRI_OK);
  ck_assert_int_eq(push(p, 2, text, 20), TRI_OK);
  ck_assert_int_eq(push(p, 3, "aaaaaaaa7a", 10), TRI_OK);
  expect(p, 1, TRI_NO_CAPACITY, 0);
  expect(p, 2, TRI_OK, 20);
  expect(p, 3, TRI_OK, 10);
  tri_free(text);
  tri_tokenize_pool_destroy(p);
  tri_tokenizer_destroy(t);
}
END_TEST

START_TEST(unwanted_texts_are_left) {
  tri_tokenizer *t;
  tri_tokenize_pool *p = pool(GROUPS, &t);
  char *text = text_of("a 7", LONG_TEXT);
  ck_assert_int_eq(push(p, 1, text, LONG_TEXT), TRI_OK);
  ck_assert_int_eq(push(p, 2, text, LONG_TEXT), TRI_OK);
  ck_assert_int_eq(push(p, 3, text, MIB), TRI_OK);
  tri_tokenize_pool_stop(p, 2); /* waits */
  expect(p, 2, TRI_ABORTED, 0); /* at once: the first one takes longer */
  tri_tokenize_pool_stop(p, 1); /* under way, or soon */
  tri_tokenize_pool_stop(p, 4); /* is not there */
  expect(p, 1, TRI_ABORTED, 0);
  expect(p, 3, TRI_OK, MIB);
  ck_assert_int_eq(push(p, 5, text, LONG_TEXT), TRI_OK);
  tri_tokenize_pool_destroy(p); /* waits for no text */
  tri_free(text);
  tri_tokenizer_destroy(t);
}
END_TEST

/* One connection's texts do not keep another's waiting for longer than one of them takes. */
START_TEST(connections_take_turns) {
  tri_tokenizer *t;
  tri_tokenize_pool *p = pool(GROUPS, &t);
  enum { MANY = 12, FEW = 2 };
  static const tri_peer many = {.len = 1, .bytes = {1}}, few = {.len = 1, .bytes = {2}};
  char *text = text_of("a 7", MIB / 16);
  int came[MANY + FEW];
  for (int i = 0; i < MANY + FEW; i++) {
    tri_core_text of = {.from = i < MANY ? &many : &few, .text = {text, MIB / 16}};
    ck_assert_int_eq(tri_tokenize_pool_push(p, (uint64_t)i, &of), TRI_OK);
  }
  for (int i = 0; i < MANY + FEW; i++) {
    tri_tokenized *r = wait_for(p);
    ck_assert_int_eq(r->status, TRI_OK);
    came[r->job] = i;
    tri_tokenized_free(r);
  }
  for (int i = 1; i < MANY; i++) ck_assert_int_lt(came[i - 1], came[i]);
  for (int i = 0; i < FEW; i++) ck_assert_int_lt(came[MANY + i], MANY / 2 + 2 * i); /* pushing takes time, too */
  tri_free(text);
  tri_tokenize_pool_destroy(p);
  tri_tokenizer_destroy(t);
}
END_TEST

Suite *suite_tokenize_stop(void) {
  Suite *suite = suite_create("tokenize_stop");
  TCase *c = tcase_create("tokenize_stop");
  tcase_set_timeout(c, 120);
  tcase_add_test(c, long_runs_are_given_up);
  tcase_add_test(c, many_ways_are_given_up);
  tcase_add_test(c, unwanted_texts_are_left);
  tcase_add_test(c, connections_take_turns);
  suite_add_tcase(suite, c);
  return suite;
}
