/* SPDX-License-Identifier: Apache-2.0 */
/* Embed and classify over libtrireme: which requests the coordinator refuses for which model, and with which words. */
#include "tests/stack/lines.h"

#define REFUSED(code, field, message)                                                                                  \
  "[{'event':'error','code':'" code "','field':'" field "','message':'/.*" message ".*/'}]"

static stack *s;
static trireme *c;

static void open_model(const char *folder) {
  s = stack_open(folder, "", NULL);
  c = lines_open(s);
}

static void close_all(void) {
  trireme_close(c);
  if (s) stack_close(s);
  c = NULL;
  s = NULL;
}

/* A line of so many token ids 1, which must be freed. */
static char *line_of(int num) {
  tri_buf b = {0};
  tri_text_printf(&b, "{'token_ids':[1");
  for (int i = 1; i < num; i++) tri_text_printf(&b, ",1");
  tri_text_printf(&b, "]}");
  tri_text_add(&b, "", 1);
  ck_assert(!b.failed);
  return b.data;
}

static void expect_task(const char *want) {
  trireme_event e;
  ck_assert(!trireme_ask_status(c, NULL, NULL));
  line_next(s, c, &e);
  ck_assert_int_eq(e.kind, TRIREME_EVENT_STATUS);
  ck_assert_str_eq(e.status.task, want);
}

/* A vector of length 1 has 2 and 5 by the root of 29, and the counts are those of what was answered. */
START_TEST(embedder) {
  static const line_case answered[] = {
      {"{'token_ids':[5,6,7]}", "[{'event':'embedding','embedding':[3,5,0,'...'],'prompt_tokens':3}]"},
      {"{'token_ids':[5,6],'normalize':true}",
       "[{'event':'embedding','embedding':[0.37139067,0.9284767,0,'...'],'prompt_tokens':2}]"},
  };
  static const line_case embeds[] = {
      {"{'text':'hello'}", REFUSED("unsupported", "text", "no tokenizer[.]json")},
      {"{'token_ids':[1],'pooling':'mean'}", REFUSED("unsupported", "pooling", "--pooling")},
      {"{'token_ids':[1,509]}", REFUSED("out_of_range", "token_ids", "vocabulary has 509 tokens")},
      {"{'token_ids':[1],'model':'other'}", REFUSED("not_found", "model", "no model .*other")},
      {"{'token_ids':[1],'truncate':true}", REFUSED("/.*/", "truncate", "truncate is for texts")},
  };
  static const line_case classifies[] = {{"{'token_ids':[1,2]}", REFUSED("unsupported", "op", "no classifier")}};
  static const line_case submits[] = {
      {"{'token_ids':[1,2]}",
       REFUSED("unsupported", "op", "the model served here is an encoder: it does not generate text")}};
  open_model(TRI_TEST_DATA "/checkpoints/bert");
  expect_lines(s, c, LINE_EMBED, embeds);
  expect_lines(s, c, LINE_CLASSIFY, classifies);
  expect_lines(s, c, LINE_SUBMIT, submits);
  char *longest = line_of(256), *longer = line_of(257);
  line_expect(s, c, LINE_EMBED,
              &(line_case){longest, "[{'event':'embedding','embedding':[256,1,'...'],'prompt_tokens':256}]"}, 1);
  line_expect(s, c, LINE_EMBED, &(line_case){longer, REFUSED("/.*/", "text", "limit is max_model_len 256")}, 1);
  tri_free(longest);
  tri_free(longer);
  expect_lines(s, c, LINE_EMBED, answered);
  expect_task("embed");
  trireme_event e;
  ck_assert(!trireme_ask_stats(c, NULL, NULL));
  line_next(s, c, &e);
  ck_assert_int_eq(e.kind, TRIREME_EVENT_STATS);
  ck_assert_ptr_nonnull(strstr(e.stats.text, "\ntrireme:request_success_total{finished_reason=\"stop\"} 3\n"));
  ck_assert_ptr_nonnull(strstr(e.stats.text, "\ntrireme:prompt_tokens_total 261\n"));
}
END_TEST

START_TEST(classifier) {
  static const line_case embeds[] = {{"{'token_ids':[1]}", REFUSED("unsupported", "op", "does not embed")}};
  static const line_case submits[] = {{"{'token_ids':[1]}", REFUSED("unsupported", "op", "it classifies")}};
  open_model(TRI_TEST_DATA "/checkpoints/roberta_sequences");
  expect_lines(s, c, LINE_EMBED, embeds);
  expect_lines(s, c, LINE_SUBMIT, submits);
  expect_task("classify");
}
END_TEST

START_TEST(decoder) {
  static const line_case list[] = {{"{'text':'hello'}", REFUSED("unsupported", "op", "neither embeds nor classifies")}};
  open_model(NULL);
  expect_lines(s, c, LINE_EMBED, list);
  expect_lines(s, c, LINE_CLASSIFY, list);
  expect_task("generate");
}
END_TEST

Suite *suite_encoders(void) {
  Suite *suite = suite_create("encoders");
  TCase *t = tcase_create("encoders");
  tcase_add_checked_fixture(t, NULL, close_all);
  tcase_set_timeout(t, 120);
  tcase_add_test(t, embedder);
  tcase_add_test(t, classifier);
  tcase_add_test(t, decoder);
  suite_add_tcase(suite, t);
  return suite;
}
