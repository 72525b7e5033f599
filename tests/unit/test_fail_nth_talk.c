/* SPDX-License-Identifier: Apache-2.0 */
/* `trireme chat` with each allocation failing in turn: what a model's folder has, messages, and the prompts of two
 * turns. */
#include <check.h>
#include <string.h>

#include "base/xxh3.h"
#include "client/chat/conversation.h"
#include "tests/unit/fail_nth.h"

#define MODEL TRI_SOURCE "/tests/models/abacus"

/* Adds the ids of a prompt to a digest. */
static tri_status ask(conversation *c, const char *text, uint64_t *digest, tri_error *err) {
  const uint32_t *ids;
  size_t count;
  conversation_add(c, "user", text, strlen(text));
  tri_status st = conversation_prompt(c, &ids, &count, err);
  if (st == TRI_OK) *digest = *digest * 31 + tri_xxh3(ids, count * sizeof *ids);
  return st;
}

/* A turn, one that is taken back, and one after all was forgotten. */
static tri_status talk(conversation *c, const char *text, uint64_t *digest, tri_error *err) {
  conversation_begin(c, "be short");
  TRI_CHECK(ask(c, text, digest, err));
  conversation_add(c, "assistant", "85", 2);
  size_t mark = conversation_mark(c);
  TRI_CHECK(ask(c, "<|end|>1+1=", digest, err));
  conversation_back_to(c, mark);
  conversation_forget(c);
  return ask(c, "\xc3\xa4 \"quoted\"", digest, err);
}

static outcome run(const char *text, size_t len) {
  conversation c = {0};
  tri_error err = {0};
  outcome o = {.digest = 0};
  (void)len;
  o.status = conversation_open(MODEL, NULL, &c, &err);
  if (o.status == TRI_OK) o.status = talk(&c, text, &o.digest, &err);
  conversation_close(&c);
  return o;
}

START_TEST(a_conversation) {
  static const char text[] = "37+48=";
  ck_assert_uint_gt(fail_nth_each(run, "a conversation", text, sizeof text - 1), 50);
}
END_TEST

Suite *suite_fail_nth_talk(void) {
  Suite *s = suite_create("fail_nth_talk");
  TCase *c = tcase_create("talk");
  tcase_set_timeout(c, 120);
  tcase_add_test(c, a_conversation);
  suite_add_tcase(s, c);
  return s;
}
