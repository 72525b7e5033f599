/* SPDX-License-Identifier: Apache-2.0 */
/* The tokenizer's threads do what the caller's own thread does. */
#include <check.h>
#include <poll.h>
#include <string.h>

#include "coordinator/jobs/tokenize_pool.h"

Suite *suite_tokenize_pool(void);

enum { BEGIN = 506, MOST = 100 }; /* abacus puts its begin token in front */

static tri_tokenizer *tokenizer;
static tri_tokenize_pool *pool;

static void setup(void) {
  tri_error err = {0};
  ck_assert_int_eq(tri_tokenizer_load(TRI_SOURCE "/tests/models/abacus/tokenizer.json", &tokenizer, &err), TRI_OK);
  ck_assert_int_eq(tri_tokenize_pool_create(tokenizer, 2, MOST, 2, &pool), TRI_OK);
}

static void teardown(void) {
  tri_tokenize_pool_destroy(pool);
  tri_tokenizer_destroy(tokenizer);
}

static tri_wire_str str(const char *s) { return (tri_wire_str){s, strlen(s)}; }

static tri_tokenized *by_thread(const tri_core_text *text) {
  struct pollfd told = {.fd = tri_tokenize_pool_fd(pool), .events = POLLIN};
  ck_assert_int_eq(tri_tokenize_pool_push(pool, 7, text), TRI_OK);
  ck_assert_int_eq(poll(&told, 1, 10000), 1);
  tri_tokenized *r = tri_tokenize_pool_pop(pool);
  ck_assert(r && r->job == 7);
  return r;
}

START_TEST(both_ways) {
  const tri_core_text texts[] = {{.text = str("1+1="), .special = true},
                                 {.text = str("1+1="), .special = false},
                                 {.text = str("<|begin|>1+1="), .special = false},
                                 {.text = str("1+1="), .pair = str("2"), .special = true},
                                 {.text = str(""), .special = true},
                                 {.text = str(""), .special = false},
                                 {.text = str("1+1="), .truncate_to = 3}};
  static const size_t lengths[] = {5, 4, 5, 7, 1, 0, 3};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    const uint32_t *ids;
    size_t count, second;
    ck_assert_int_eq(tri_tokenize_pool_now(pool, &texts[i], &ids, &count, &second), TRI_OK);
    ck_assert_uint_eq(count, lengths[i]);
    ck_assert_int_eq(count && ids[0] == BEGIN, count && i != 1);
    tri_tokenized *r = by_thread(&texts[i]);
    ck_assert(r->status == TRI_OK && r->count == count && r->second == second);
    if (count) ck_assert_mem_eq(r->ids, ids, count * sizeof *ids);
    tri_tokenized_free(r);
  }
}
END_TEST

/* A thread whose first text has no tokens has no room for any yet. */
START_TEST(nothing_first) {
  const tri_core_text text = {.text = str("")};
  tri_tokenized *r = by_thread(&text);
  ck_assert(r->status == TRI_OK && !r->count);
  tri_tokenized_free(r);
}
END_TEST

START_TEST(too_long) {
  char digits[MOST + 1];
  const uint32_t *ids;
  size_t count, second;
  memset(digits, '<', sizeof digits);
  tri_core_text text = {.text = {digits, sizeof digits}};
  ck_assert_int_eq(tri_tokenize_pool_now(pool, &text, &ids, &count, &second), TRI_TOO_LARGE);
  tri_tokenized *r = by_thread(&text);
  ck_assert_int_eq(r->status, TRI_TOO_LARGE);
  tri_tokenized_free(r);
}
END_TEST

/* A schema that cannot be kept is what comes of a text, with the pointer to it; tokens come back as they are. */
START_TEST(schemas) {
  static const uint32_t ids[] = {7, 8, 9};
  tri_core_text text = {.text = str("1+1="), .special = true, .schema = str("{\"properties\":{\"a\":{\"not\":{}}}}")};
  tri_tokenized *r = by_thread(&text);
  ck_assert_int_eq(r->why.status, TRI_UNSUPPORTED);
  ck_assert_str_eq(r->why.field, "constraint/properties/a/not");
  tri_tokenized_free(r);
  text.schema = str("{");
  r = by_thread(&text);
  ck_assert_int_eq(r->why.status, TRI_INVALID_ARGUMENT);
  ck_assert_str_eq(r->why.field, "constraint");
  tri_tokenized_free(r);
  text.schema = str("{\"type\":\"object\"}");
  r = by_thread(&text);
  ck_assert(r->why.status == TRI_OK && r->status == TRI_OK && r->count == 5);
  tri_tokenized_free(r);
  text.text = (tri_wire_str){0};
  text.ids = ids;
  text.num_ids = 3;
  r = by_thread(&text);
  ck_assert(r->why.status == TRI_OK && r->status == TRI_OK && r->count == 3);
  ck_assert_mem_eq(r->ids, ids, sizeof ids);
  tri_tokenized_free(r);
  text.schema = str("{\"properties\":{\"abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz\":{\"properties\":{"
                    "\"abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz\":{\"not\":1}}}}}");
  r = by_thread(&text);
  ck_assert_int_eq(r->why.status, TRI_UNSUPPORTED);
  size_t len = strlen(r->why.field);
  ck_assert(!strncmp(r->why.field, "constraint", 10) && !strcmp(r->why.field + len - 4, "/not"));
  tri_tokenized_free(r);
}
END_TEST

Suite *suite_tokenize_pool(void) {
  Suite *s = suite_create("tokenize_pool");
  TCase *c = tcase_create("tokenize_pool");
  tcase_add_checked_fixture(c, setup, teardown);
  tcase_add_test(c, both_ways);
  tcase_add_test(c, nothing_first);
  tcase_add_test(c, too_long);
  tcase_add_test(c, schemas);
  suite_add_tcase(s, c);
  return s;
}
