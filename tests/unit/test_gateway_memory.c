/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of requests: documents end when they have been read, and what is kept behind them has a limit. */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "client/gateway/completion.h"
#include "client/gateway/task_room.h"
#include "client/openai/tools.h"
#include "base/mem.h"

Suite *suite_gateway_memory(void);

enum { PARTS = 60000, LIMIT = 16 << 20 };

/* A body whose parts take many times its bytes. */
static tri_buf make_body(const char *members) {
  tri_buf b = {0};
  tri_text_printf(&b, "{%s,\"metadata\":[", members);
  for (int i = 0; i < PARTS; i++) tri_text_printf(&b, "%s{}", i ? "," : "");
  tri_text_printf(&b, "]}");
  ck_assert(!b.failed);
  return (tri_buf){.data = b.data, .len = b.len, .cap = b.cap};
}

static void free_body(tri_buf *body) {
  tri_buf b = {.data = body->data};
  tri_buf_free(&b);
}

/* However many documents there are: all together take no more than they may, and one ends where another begins. */
START_TEST(documents_have_a_limit) {
  enum { MOST = 64 };
  tri_json_doc *docs[MOST] = {0};
  tri_buf body = make_body("\"prompt\":\"x\"");
  const size_t before = tri_json_memory();
  size_t n = 0;
  tri_error err = {0};
  tri_status st = TRI_OK;
  tri_json_limit_memory(before + LIMIT);
  while (n < MOST && (st = gw_parse_body(&body, &docs[n], &err)) == TRI_OK) {
    ck_assert_uint_le(tri_json_memory(), before + LIMIT);
    n++;
  }
  ck_assert_msg(n && n < MOST && st == TRI_NO_MEMORY, "%zu documents: %s", n, err.message);
  ck_assert_msg(strstr(err.message, "all that is read at a time may take"), "%s", err.message);
  oai_error e = oai_error_of_status(&err);
  ck_assert_int_eq(e.status, 503);
  ck_assert_uint_gt(tri_json_memory() - before, n * 40 * body.len); /* as the allocator has it, and not the text */
  tri_json_free(docs[0]);
  ck_assert_int_eq(gw_parse_body(&body, &docs[0], &err), TRI_OK);
  for (size_t i = 0; i < n; i++) tri_json_free(docs[i]);
  ck_assert_uint_eq(tri_json_memory(), before);
  tri_json_limit_memory(0);
  free_body(&body);
}
END_TEST

START_TEST(documents_limit_follows_bodies) {
  ck_assert_uint_eq(gw_most_documents(4 << 20), 512 << 20);
  ck_assert_uint_eq(gw_most_documents(1024), 512 << 20);
  ck_assert_uint_eq(gw_most_documents((size_t)8 << 20), (size_t)1 << 30);
  ck_assert_uint_eq(gw_most_documents(SIZE_MAX), SIZE_MAX);
}
END_TEST

/* The texts of a request are its own when the document that it was read from has gone. */
START_TEST(texts_outlive_the_document) {
  oai_ignored ignored = {.allowed = true};
  oai_completion_request q;
  tri_json_doc *doc = NULL;
  tri_error err = {0};
  const size_t before = tri_json_memory();
  tri_buf body = make_body("\"prompt\":[\"first\",\"\",\"a\\u0000b\"],\"model\":\"m\",\"cache_salt\":\"s\","
                           "\"stop\":[\"one\",\"two\"]");
  ck_assert_int_eq(gw_parse_body(&body, &doc, &err), TRI_OK);
  ck_assert_int_eq(oai_completion_parse(tri_json_root(doc), &q, &ignored, &err), TRI_OK);
  ck_assert_int_eq(oai_completion_keep(&q, &err), TRI_OK);
  tri_json_free(doc);
  ck_assert_uint_eq(tri_json_memory(), before);
  ck_assert_uint_lt(q.texts.cap, 4096);
  ck_assert_str_eq(q.prompt.items[0].text, "first");
  ck_assert(q.prompt.items[1].text && !q.prompt.items[1].len);
  ck_assert(q.prompt.items[2].len == 3 && !memcmp(q.prompt.items[2].text, "a\0b", 4));
  ck_assert_str_eq(q.r.model, "m");
  ck_assert_str_eq(q.r.cache_salt, "s");
  ck_assert(q.r.num_stop == 2 && !strcmp(q.r.stop[0].s, "one") && !strcmp(q.r.stop[1].s, "two"));
  oai_completion_request_free(&q);
  free_body(&body);
}
END_TEST

/* ---- tools ---- */

static bool takes(const oai_tools *t, const char *name, const char *key) {
  return oai_tools_take(t, name, strlen(name), key, strlen(key));
}

static bool takes_text(const oai_tools *t, const char *name, const char *key) {
  return oai_tools_take_text(t, name, strlen(name), key, strlen(key));
}

START_TEST(tools_of_a_request) {
  static const char text[] =
      "[{\"function\":{\"name\":\"f\",\"parameters\":{\"properties\":{\"s\":{\"type\":\"string\"},\"n\":{\"type\":"
      "\"integer\"},\"any\":{}}}}},7,{\"function\":{}},{\"function\":{\"name\":\"\"}},"
      "{\"function\":{\"name\":\"free\"}},{\"function\":{\"name\":\"g\",\"parameters\":{\"properties\":{\"t\":"
      "{\"type\":\"string\"}}}}}]";
  oai_tools t;
  tri_json_doc *doc = NULL;
  ck_assert_int_eq(tri_json_parse(text, sizeof text - 1, &doc, NULL), TRI_OK);
  ck_assert_int_eq(oai_tools_read(tri_json_root(doc), &t), TRI_OK);
  tri_json_free(doc);
  ck_assert(oai_tools_have(&t, "f", 1) && oai_tools_have(&t, "free", 4) && oai_tools_have(&t, "g", 1));
  ck_assert(oai_tools_have(&t, "", 0) && !oai_tools_have(&t, "s", 1) && !oai_tools_have(&t, "fr", 2));
  ck_assert(takes(&t, "f", "s") && takes(&t, "f", "n") && takes(&t, "f", "any") && !takes(&t, "f", "t"));
  ck_assert(takes(&t, "free", "t") && takes(&t, "g", "t") && !takes(&t, "g", "s"));
  ck_assert(takes_text(&t, "f", "s") && !takes_text(&t, "f", "n") && !takes_text(&t, "f", "any"));
  ck_assert(takes_text(&t, "g", "t") && !takes_text(&t, "free", "t") && !takes_text(&t, "none", "t"));
  oai_tools_free(&t);
  ck_assert(!oai_tools_have(NULL, "f", 1) && !oai_tools_have(&t, "f", 1));
}
END_TEST

/* ---- what is kept ---- */

static gw_task *named(gw_task *t, const char *client) {
  snprintf(t->client, sizeof t->client, "%s", client);
  return t;
}

START_TEST(kept_bytes_have_a_limit) {
  gw_task_room r = {.max_bytes = 1000};
  gw_task a[3] = {0}, b[2] = {0}, c = {0};
  for (int i = 0; i < 3; i++) named(&a[i], "a");
  for (int i = 0; i < 2; i++) named(&b[i], "b");
  named(&c, "c");
  ck_assert(gw_task_room_set(&r, &a[0], 300) && gw_task_room_set(&r, &a[1], 200));
  ck_assert(!gw_task_room_set(&r, &a[2], 1)); /* it has as much as is free */
  ck_assert(!gw_task_room_set(&r, &b[0], 501));
  ck_assert(gw_task_room_set(&r, &b[0], 250) && !gw_task_room_set(&r, &b[1], 1));
  ck_assert(gw_task_room_set(&r, &c, 125));
  ck_assert_uint_eq(r.bytes, 875);
  ck_assert(gw_task_room_set(&r, &a[1], 100)); /* less than before */
  ck_assert_uint_eq(r.bytes, 775);
  ck_assert(gw_task_room_set(&r, &a[0], 0) && gw_task_room_set(&r, &a[0], 0) && gw_task_room_set(&r, &c, 0));
  ck_assert(gw_task_room_set(&r, &b[0], 0) && gw_task_room_set(&r, &a[1], 0));
  ck_assert(r.bytes == 0 && !r.first);
  ck_assert(gw_task_room_set(&r, &b[1], 1000) && !gw_task_room_set(&r, &c, 1));
  ck_assert(!gw_task_room_set(&r, &b[1], 1001) && !r.bytes);
}
END_TEST

/* A request that asks for more choices than there is memory for is refused before it has them. */
START_TEST(choices_are_kept) {
  enum { MANY = 1 << 14 };
  gateway *g = tri_calloc(1, sizeof *g);
  ck_assert_int_eq(gw_tasks_open(NULL, 1, &g->tasks), TRI_OK);
  gw_task all[4] = {0};
  oai_input items[MANY] = {{.text = ""}};
  size_t kept = 0;
  int n = 0;
  tri_status st = TRI_OK;
  tri_error err = {0};
  for (; n < 4 && st == TRI_OK; n++) {
    oai_completion_request q = {.prompt = {items, MANY}, .r.n = 1};
    gw_completion s = {.q = &q};
    all[n] = (gw_task){.tasks = g->tasks};
    size_t more = n < 2 ? 0 : GW_MAX_KEPT_REQUESTS / 2;
    st = gw_completion_open(&s, &all[n], more, &err);
    if (!n) ck_assert_uint_ge(gw_tasks_kept(g->tasks), MANY * sizeof(gw_choice));
    if (!n) kept = gw_tasks_kept(g->tasks);
    if (n == 1) ck_assert_uint_eq(gw_tasks_kept(g->tasks), 2 * kept);
    ck_assert((st == TRI_OK) == (s.choices != NULL));
    gw_completion_close(&s);
    tri_buf_free(&q.texts);
  }
  ck_assert_int_eq(n, 4); /* the last one was refused */
  ck_assert_int_eq(st, TRI_NO_MEMORY);
  ck_assert_int_eq(oai_error_of_status(&err).status, 503);
  ck_assert_msg(strstr(err.message, "keep 512 MiB together"), "%s", err.message);
  gw_tasks_close(g->tasks);
  tri_free(g);
}
END_TEST

Suite *suite_gateway_memory(void) {
  Suite *s = suite_create("gateway_memory");
  TCase *t = tcase_create("gateway_memory");
  tcase_add_test(t, documents_have_a_limit);
  tcase_add_test(t, documents_limit_follows_bodies);
  tcase_add_test(t, texts_outlive_the_document);
  tcase_add_test(t, tools_of_a_request);
  tcase_add_test(t, kept_bytes_have_a_limit);
  tcase_add_test(t, choices_are_kept);
  suite_add_tcase(s, t);
  return s;
}
