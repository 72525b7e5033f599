/* SPDX-License-Identifier: Apache-2.0 */
/* Lines of `submit --file`: the two forms, what is kept of them, what is refused by which name; outputs that go on. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/cmd/submit_file.h"
#include "base/mem.h"

Suite *suite_submit(void);

typedef struct parsed {
  submit_slot *s;
  submit_request r;
  tri_status st;
  tri_error err;
} parsed;

static submit_chat *chat; /* of the lines that follow */

static parsed parse(const char *line) {
  parsed p = {.s = tri_calloc(1, sizeof *p.s)};
  cli_request defaults;
  cli_request_init(&defaults);
  defaults.r.max_tokens = 9;
  p.s->line = 3;
  tri_text_add(&p.s->input, line, strlen(line));
  p.st = submit_line_parse(&(submit_context){.defaults = &defaults, .chat = chat}, p.s, &p.r, &p.err);
  return p;
}

static void end(parsed *p) {
  submit_request_free(&p->r);
  submit_slot_free(p->s);
}

START_TEST(plain_lines) {
  parsed p = parse("{\"prompt\":\"x\",\"temperature\":0.5,\"n\":2,\"a\\\"b\":[1,null,{\"c\":\"\\u0000\"}],\"id\":0.5}");
  ck_assert_msg(p.st == TRI_OK, "%s", p.err.message);
  ck_assert(p.s->form == SUBMIT_PLAIN && p.s->num_choices == 2 && p.r.q.r.max_tokens == 9);
  ck_assert_str_eq(p.s->kept.data, ",\"a\\\"b\":[1,null,{\"c\":\"\\u0000\"}],\"id\":0.5");
  end(&p);
  p = parse("{\"prompt\":[[1,2]]}");
  ck_assert(p.st == TRI_OK && p.r.q.r.num_token_ids == 2 && !p.r.q.r.prompt);
  end(&p);
}
END_TEST

START_TEST(openai_lines) {
  parsed p = parse(
      "{\"custom_id\":\"a\\n\",\"method\":\"POST\",\"url\":\"/v1/completions\",\"body\":{\"model\":\"m\","
      "\"prompt\":[\"x\"],\"max_completion_tokens\":5,\"max_tokens\":9,\"user\":\"u\",\"logprobs\":2,\"seed\":1}}");
  ck_assert_msg(p.st == TRI_OK, "%s", p.err.message);
  ck_assert(p.s->form == SUBMIT_COMPLETION && p.s->logprobs && p.r.q.r.max_tokens == 5 && p.r.q.r.has_seed);
  ck_assert_str_eq(p.s->custom_id.data, "\"a\\n\"");
  ck_assert_str_eq(p.s->model.data, "\"m\"");
  end(&p);
  p = parse("{\"custom_id\":\"b\",\"url\":\"/v1/embeddings\",\"body\":{\"input\":[3,4],\"normalize\":false}}");
  ck_assert_msg(p.st == TRI_OK, "%s", p.err.message);
  ck_assert(p.s->form == SUBMIT_EMBEDDING && p.r.embed.num_token_ids == 2 && p.r.embed.keep_length &&
            !p.r.embed.normalize && !p.s->num_choices);
  end(&p);
}
END_TEST

START_TEST(refused_lines) {
#define COMPLETION(body) "{\"custom_id\":\"a\",\"url\":\"/v1/completions\",\"body\":" body "}"
#define EMBEDDING(body) "{\"custom_id\":\"a\",\"url\":\"/v1/embeddings\",\"body\":" body "}"
  static const struct {
    const char *line, *field;
    submit_form form;
  } rows[] = {{"[]", "", SUBMIT_PLAIN},
              {"{}", "prompt", SUBMIT_PLAIN},
              {"{\"prompt\":\"x\",\"lines\":1}", NULL, SUBMIT_PLAIN},
              {"{\"prompt\":\"x\",\"line\":1}", "line", SUBMIT_PLAIN},
              {"{\"prompt\":\"x\",\"max_token\":1}", "max_token", SUBMIT_PLAIN},
              {"{\"prompt\":[]}", "prompt", SUBMIT_PLAIN},
              {"{\"prompt\":[[\"x\"]]}", "prompt", SUBMIT_PLAIN},
              {"{\"prompt\":[1,-1]}", "prompt", SUBMIT_PLAIN},
              {"{\"prompt\":\"x\",\"messages\":[]}", "messages", SUBMIT_PLAIN},
              {"{\"custom_id\":7,\"body\":{}}", "custom_id", SUBMIT_PLAIN},
              {"{\"body\":{}}", "custom_id", SUBMIT_PLAIN},
              {"{\"custom_id\":\"a\"}", "body", SUBMIT_COMPLETION},
              {"{\"custom_id\":\"a\",\"method\":\"GET\",\"body\":{}}", "method", SUBMIT_COMPLETION},
              {"{\"custom_id\":\"a\",\"body\":{},\"url\":7}", "url", SUBMIT_COMPLETION},
              {"{\"custom_id\":\"a\",\"body\":{},\"url\":\"/v1/chat/completions\"}", "url", SUBMIT_CHAT},
              {COMPLETION("{}"), "prompt", SUBMIT_COMPLETION},
              {COMPLETION("{\"prompt\":\"x\",\"zip\":1}"), "zip", SUBMIT_COMPLETION},
              {COMPLETION("{\"prompt\":\"x\",\"best_of\":3}"), "best_of", SUBMIT_COMPLETION},
              {COMPLETION("{\"prompt\":\"x\",\"suffix\":\"y\"}"), "suffix", SUBMIT_COMPLETION},
              {EMBEDDING("{}"), "input", SUBMIT_EMBEDDING},
              {EMBEDDING("{\"input\":[]}"), "input", SUBMIT_EMBEDDING},
              {EMBEDDING("{\"input\":[\"x\",\"y\"]}"), "input", SUBMIT_EMBEDDING},
              {EMBEDDING("{\"input\":\"x\",\"dimensions\":3}"), "dimensions", SUBMIT_EMBEDDING},
              {EMBEDDING("{\"input\":\"x\",\"encoding_format\":\"base64\"}"), "encoding_format", SUBMIT_EMBEDDING}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    parsed p = parse(rows[i].line);
    if (rows[i].field) {
      ck_assert_msg(p.st != TRI_OK, "%s", rows[i].line);
      ck_assert_msg(!strcmp(p.err.field, rows[i].field), "%s: %s", rows[i].line, p.err.field);
    } else {
      ck_assert_msg(p.st == TRI_OK, "%s: %s", rows[i].line, p.err.message);
    }
    ck_assert_msg(p.s->form == rows[i].form, "%s", rows[i].line);
    end(&p);
  }
}
END_TEST

/* ---- outputs ---- */

static const char path[] = TRI_TEST_SCRATCH "/submit.out";

static void put(const char *text) {
  FILE *f = fopen(path, "w");
  ck_assert(f && fwrite(text, 1, strlen(text), f) == strlen(text) && !fclose(f));
}

static bool has(submit_done *d, uint64_t line, const char *custom_id) {
  submit_slot s = {.line = line, .form = custom_id ? SUBMIT_COMPLETION : SUBMIT_PLAIN};
  if (custom_id) tri_json_add_string(&s.custom_id, custom_id, strlen(custom_id));
  bool found = submit_done_take(d, &s);
  tri_buf_free(&s.custom_id);
  return found;
}

static void content_is(const char *want) {
  char text[1024] = "";
  FILE *f = fopen(path, "r");
  ck_assert_ptr_nonnull(f);
  text[fread(text, 1, sizeof text - 1, f)] = '\0';
  fclose(f);
  ck_assert_str_eq(text, want);
}

START_TEST(outputs) {
#define ANSWERS                                                                                                        \
  "{\"line\":1,\"choices\":[]}\n{\"id\":\"x\",\"custom_id\":\"7\",\"response\":{\"status_code\":200,\"body\":{}},"     \
  "\"error\":null}\n"
  submit_done *d = NULL;
  put(ANSWERS "{\"line\":2,\"error\":{}}\n{\"custom_id\":\"b\",\"response\":{\"status_code\":429}}\n"
              "{\"custom_id\":\"c\",\"response\":null,\"error\":{}}\n{\"line\":8,\"cho");
  ck_assert_int_eq(submit_done_read("trireme submit", path, &d), TRI_EXIT_OK);
  ck_assert(has(d, 1, NULL) && has(d, 0, "7"));
  ck_assert(!has(d, 2, NULL) && !has(d, 7, NULL) && !has(d, 8, NULL) && !has(d, 0, "1") && !has(d, 0, "b") &&
            !has(d, 0, "c"));
  submit_done_free(d);
  content_is(ANSWERS);
  ck_assert_int_eq(submit_done_read("trireme submit", path, &d), TRI_EXIT_OK);
  submit_done_free(d);
  content_is(ANSWERS);
  ck_assert(access(TRI_TEST_SCRATCH "/submit.out.resume", F_OK));
}
END_TEST

/* An answer is one line's, though others have its custom_id. */
START_TEST(answers_of_one_id) {
  static const char answer[] = "{\"custom_id\":\"a\",\"response\":{\"status_code\":200}}\n";
  submit_done *d = NULL;
  char twice[2 * sizeof answer];
  snprintf(twice, sizeof twice, "%s%s", answer, answer);
  put(twice);
  ck_assert_int_eq(submit_done_read("trireme submit", path, &d), TRI_EXIT_OK);
  ck_assert(has(d, 1, "a") && has(d, 2, "a") && !has(d, 3, "a"));
  submit_done_free(d);
  remove(path);
}
END_TEST

START_TEST(no_outputs) {
  static const char *const others[] = {"{\"prompt\":\"x\"}\n", "x\n{\"line\":1,\"choices\":[]}\n", "{\"line\":1}\n",
                                       "[]\n", "\n\n"};
  submit_done *d = NULL;
  FILE *saved = stderr;
  stderr = fopen("/dev/null", "w");
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
    put(others[i]);
    ck_assert_msg(submit_done_read("trireme submit", path, &d) == TRI_EXIT_FAILED, "%s", others[i]);
    content_is(others[i]);
  }
  fclose(stderr);
  stderr = saved;
  remove(path);
  ck_assert_int_eq(submit_done_read("trireme submit", path, &d), TRI_EXIT_OK);
  ck_assert(!has(d, 1, NULL) && access(path, F_OK));
  submit_done_free(d);
}
END_TEST

/* More than its table has at first. */
START_TEST(a_long_output) {
  submit_done *d = NULL;
  FILE *f = fopen(path, "w");
  ck_assert_ptr_nonnull(f);
  for (int i = 1; i <= 5000; i++) fprintf(f, "{\"line\":%d,\"choices\":[]}\n", 3 * i);
  fclose(f);
  ck_assert_int_eq(submit_done_read("trireme submit", path, &d), TRI_EXIT_OK);
  int wrong = 0;
  for (uint64_t i = 1; i <= 15000; i++) wrong += has(d, i, NULL) != (i % 3 == 0);
  ck_assert_int_eq(wrong, 0);
  submit_done_free(d);
  remove(path);
}
END_TEST

Suite *suite_submit(void) {
  Suite *s = suite_create("submit");
  TCase *c = tcase_create("submit");
  tcase_add_test(c, plain_lines);
  tcase_add_test(c, openai_lines);
  tcase_add_test(c, refused_lines);
  tcase_add_test(c, outputs);
  tcase_add_test(c, answers_of_one_id);
  tcase_add_test(c, no_outputs);
  tcase_add_test(c, a_long_output);
  suite_add_tcase(s, c);
  return s;
}
