/* SPDX-License-Identifier: Apache-2.0 */
/* The gateway's parts that need no coordinator: keys, fields of requests, errors, logprobs. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/gateway/completion.h"
#include "base/mem.h"

Suite *suite_gateway(void);

static const char key_file[] = TRI_TEST_SCRATCH "/gateway_keys";

static tri_status load(const char *text, mode_t mode, gw_keys **out, tri_error *err) {
  FILE *f = fopen(key_file, "w");
  ck_assert_ptr_nonnull(f);
  fputs(text, f);
  fclose(f);
  ck_assert_int_eq(chmod(key_file, mode), 0);
  *err = (tri_error){0};
  tri_status st = gw_keys_load(key_file, out, err);
  unlink(key_file);
  return st;
}

static char caller[GW_KEY_NAME];

static bool allows(const gw_keys *k, const char *authorization) {
  return gw_keys_allow(k, (http_str){authorization, strlen(authorization)}, caller);
}

START_TEST(keys) {
  gw_keys *k = NULL;
  tri_error err;
  char longest[400] = "a ", name[70];
  ck_assert_int_eq(load("# people\n\nann secret-1\r\n bob\tsecret-22 \n", 0600, &k, &err), TRI_OK);
  ck_assert(allows(k, "Bearer secret-1") && !strcmp(caller, "ann"));
  ck_assert(allows(k, "bearer secret-22") && !strcmp(caller, "bob"));
  ck_assert(!allows(k, "") && !allows(k, "Bearer ") && !allows(k, "Bearer secret-") && !allows(k, "Bearer secret-11"));
  ck_assert(!allows(k, "secret-1") && !allows(k, "Basic secret-1") && !gw_keys_allow(k, (http_str){0}, caller));
  ck_assert_str_eq(caller, "");
  memset(longest + 2, 'x', 256);
  gw_keys_free(k);
  ck_assert_int_eq(load(longest, 0600, &k, &err), TRI_OK);
  memcpy(longest, "Bearer xx", 9);
  memset(longest + 9, 'x', 254);
  ck_assert(allows(k, longest));
  strcat(longest, "x"); /* the same in its first 256 bytes */
  ck_assert(!allows(k, longest));
  gw_keys_free(k);
  ck_assert(allows(NULL, "Bearer x") && !caller[0]); /* no keys: everybody */
  memset(name, 'n', sizeof name);
  memcpy(name + 64, " x", 3);
  ck_assert_int_eq(load(name, 0600, &k, &err), TRI_OK);
  ck_assert(allows(k, "Bearer x") && strlen(caller) == 64);
  gw_keys_free(k);
  memcpy(name + 64, "n x", 4);
  ck_assert_int_eq(load(name, 0600, &k, &err), TRI_CORRUPT);
  ck_assert_int_eq(load("ann\001 x\n", 0600, &k, &err), TRI_CORRUPT);
  ck_assert_int_eq(load("\303\251 x\n", 0600, &k, &err), TRI_CORRUPT);
  ck_assert_msg(strstr(err.message, "visible characters"), "%s", err.message);
  ck_assert_int_eq(load("ann same\nbob same\ncat same\n", 0600, &k, &err), TRI_OK); /* the last of them */
  ck_assert(allows(k, "Bearer same") && !strcmp(caller, "cat"));
  gw_keys_free(k);
  ck_assert_int_eq(load("ann secret\n", 0640, &k, &err), TRI_PERMISSION);
  ck_assert_int_eq(load("ann\n", 0600, &k, &err), TRI_CORRUPT);
  ck_assert_msg(strstr(err.message, "line 1"), "%s", err.message);
  ck_assert_int_eq(load("ann two words\n", 0600, &k, &err), TRI_CORRUPT);
  ck_assert_int_eq(load("# nobody\n", 0600, &k, &err), TRI_CORRUPT);
  ck_assert_int_eq(gw_keys_load("/nonexistent", &k, &err), TRI_NOT_FOUND);
  ck_assert_int_eq(mkfifo(key_file, 0600), 0); /* nobody writes to it */
  err = (tri_error){0};
  ck_assert_int_eq(gw_keys_load(key_file, &k, &err), TRI_PERMISSION);
  unlink(key_file);
}
END_TEST

static tri_status count_origin(void *ctx, const char *origin, tri_error *err) {
  (void)origin;
  (void)err;
  ++*(int *)ctx;
  return TRI_OK;
}

START_TEST(origins) {
  static const struct {
    const char *text;
    int num; /* 0: it is refused */
  } cases[] = {{"*", 1},
               {"https://app.example", 1},
               {"http://[::1]:3000", 1},
               {"[\"https://a.example\",\"https://b.example\"]", 2},
               {"[\"*\"]", 1},
               {"app.example", 0},
               {"https://", 0},
               {"https://app.example/", 0},
               {"https://app.example\r\nX: y", 0},
               {"null", 0},
               {"", 0},
               {"[1]", 0},
               {"[\"a\"]", 0},
               {"[", 0}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    tri_gateway_options o = {.cors_origins = {.items = (const char *[]){cases[i].text}, .count = 1}};
    tri_error err = {0};
    int num = 0;
    tri_status st = tri_gateway_each_origin(&o, count_origin, &num, &err);
    ck_assert_msg(cases[i].num ? st == TRI_OK && num == cases[i].num : st == TRI_USAGE, "%s: %d", cases[i].text, num);
    gw_origins *made = NULL;
    ck_assert_int_eq(gw_origins_make(&o, &made, &err), st);
    gw_origins_free(made);
  }
}
END_TEST

typedef struct parsed {
  tri_json_doc *doc;
  oai_ignored ignored;
  oai_completion_request q;
  tri_error err;
  tri_status st;
} parsed;

static void parse(parsed *p, const char *text, bool strict) {
  *p = (parsed){.ignored.allowed = !strict};
  ck_assert_msg(tri_json_parse(text, strlen(text), &p->doc, &p->err) == TRI_OK, "%s", text);
  p->st = oai_completion_parse(tri_json_root(p->doc), &p->q, &p->ignored, &p->err);
}

static void done(parsed *p) {
  oai_completion_request_free(&p->q);
  tri_json_free(p->doc);
}

START_TEST(accepted) {
  parsed p;
  parse(
      &p,
      "{\"prompt\":[[1,2],[3]],\"model\":null,\"max_tokens\":5,\"n\":2,\"best_of\":2,\"temperature\":0,\"stop\":[\"a\","
      "\"b\"],\"seed\":-1,\"logit_bias\":{\"7\":-100},\"stop_token_ids\":[9],\"stream\":true,\"stream_options\":"
      "{\"include_usage\":true},\"logprobs\":3,\"use_beam_search\":true,\"suffix\":null,\"tools\":[],"
      "\"response_format\":{\"type\":\"text\"},\"user\":\"x\",\"zip\":1,\"zap zap\":2}",
      false);
  const trireme_request *r = &p.q.r;
  ck_assert_msg(p.st == TRI_OK, "%s", p.err.message);
  ck_assert(p.q.prompt.num == 2 && p.q.prompt.items[0].num_ids == 2 && p.q.prompt.items[1].ids[0] == 3);
  ck_assert(!r->model && r->max_tokens == 5 && r->n == 2 && r->temperature == 0 && isnan(r->top_p));
  ck_assert(r->num_stop == 2 && r->has_seed && r->seed == UINT64_MAX && r->logprobs == 3 && !r->no_stream);
  ck_assert(r->num_logit_bias == 1 && r->logit_bias[0].id == 7 && r->logit_bias[0].bias == -100);
  ck_assert(r->num_stop_token_ids == 1 && r->num_beams == 2 && p.q.include_usage && !p.q.continuous_usage);
  ck_assert_str_eq(p.ignored.names, "zip, (unprintable)");
  done(&p);
  parse(&p, "{\"prompt\":\"x\",\"allowed_token_ids\":[9,8]}", true);
  ck_assert(p.st == TRI_OK && p.q.r.num_allowed_token_ids == 2 && p.q.r.allowed_token_ids[1] == 8);
  done(&p);
  parse(&p, "{\"prompt\":\"\"}", true);
  ck_assert(p.st == TRI_OK && p.q.r.no_stream && p.q.r.max_tokens == TRIREME_UNSET && p.q.prompt.items[0].text);
  done(&p);
}
END_TEST

START_TEST(refused) {
  static const struct {
    const char *text, *field;
    tri_status st;
  } cases[] = {
      {"{}", "prompt", TRI_INVALID_ARGUMENT},
      {"{\"prompt\":[]}", "prompt", TRI_INVALID_ARGUMENT},
      {"{\"prompt\":5}", "prompt", TRI_INVALID_ARGUMENT},
      {"{\"prompt\":[\"a\",5]}", "prompt", TRI_INVALID_ARGUMENT},
      {"{\"prompt\":[1,-1]}", "prompt", TRI_INVALID_ARGUMENT},
      {"{\"prompt\":[1,4294967296]}", "prompt", TRI_INVALID_ARGUMENT},
      {"{\"prompt\":\"x\",\"n\":65}", "n", TRI_OUT_OF_RANGE},
      {"{\"prompt\":\"x\",\"n\":1.5}", "n", TRI_INVALID_ARGUMENT},
      {"{\"prompt\":\"x\",\"max_tokens\":-9223372036854775808}", "max_tokens", TRI_INVALID_ARGUMENT},
      {"{\"prompt\":\"x\",\"best_of\":2}", "best_of", TRI_UNSUPPORTED},
      {"{\"prompt\":\"x\",\"echo\":true,\"logprobs\":1,\"prompt_logprobs\":2}", "prompt_logprobs",
       TRI_INVALID_ARGUMENT},
      {"{\"prompt\":\"x\",\"stream\":true,\"prompt_logprobs\":2}", "prompt_logprobs", TRI_UNSUPPORTED},
      {"{\"prompt\":\"x\",\"echo\":true,\"max_tokens\":0}", "max_tokens", TRI_OUT_OF_RANGE},
      {"{\"prompt\":\"x\",\"suffix\":\"y\"}", "suffix", TRI_UNSUPPORTED},
      {"{\"prompt\":\"x\",\"guided_regex\":\"a\"}", "guided_regex", TRI_UNSUPPORTED},
      {"{\"prompt\":\"x\",\"stop\":[1]}", "stop", TRI_INVALID_ARGUMENT},
      {"{\"prompt\":\"x\",\"stop\":[\"1\",\"2\",\"3\",\"4\",\"5\",\"6\",\"7\",\"8\",\"9\",\"10\",\"11\",\"12\",\"13\","
       "\"14\",\"15\",\"16\",\"17\"]}",
       "stop", TRI_OUT_OF_RANGE},
      {"{\"prompt\":\"x\",\"logit_bias\":{\"a\":1}}", "logit_bias", TRI_INVALID_ARGUMENT},
      {"{\"prompt\":\"x\",\"max_tokens\":0}", "max_tokens", TRI_OUT_OF_RANGE},
      {"{\"prompt\":\"x\",\"allowed_token_ids\":[]}", "allowed_token_ids", TRI_OUT_OF_RANGE},
      {"{\"prompt\":\"x\",\"allowed_token_ids\":[-1]}", "allowed_token_ids", TRI_INVALID_ARGUMENT},
      {"{\"prompt\":\"x\",\"skip_special_tokens\":1}", "skip_special_tokens", TRI_INVALID_ARGUMENT},
      {"{\"prompt\":\"x\",\"cache_salt\":\"a\\u0000b\"}", "cache_salt", TRI_INVALID_ARGUMENT},
      {"{\"prompt\":\"x\",\"zip\":1}", "zip", TRI_UNKNOWN_FIELD},
      {"{\"prompt\":\"x\",\"seed\":99999999999999999999}", "seed", TRI_OUT_OF_RANGE},
      {"{\"prompt\":\"x\",\"temperature\":1e999}", "temperature", TRI_OUT_OF_RANGE},
      {"{\"prompt\":[1,99999999999999999999]}", "prompt", TRI_INVALID_ARGUMENT},
      {"{\"prompt\":\"x\",\"max_completion_tokens\":5,\"max_tokens\":\"5\"}", "max_tokens", TRI_INVALID_ARGUMENT},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    parsed p;
    parse(&p, cases[i].text, true);
    ck_assert_msg(p.st == cases[i].st && !strcmp(p.err.field, cases[i].field), "%s: %s, %s: %s", cases[i].text,
                  tri_status_code(p.st), p.err.field, p.err.message);
    done(&p);
  }
}
END_TEST

/* Of two names of one number the same one wins in any order. */
START_TEST(two_names) {
  static const struct {
    const char *text;
    int64_t max_tokens, truncate;
  } cases[] = {{"{\"prompt\":\"x\",\"max_completion_tokens\":2,\"max_tokens\":9}", 2, 0},
               {"{\"prompt\":\"x\",\"max_tokens\":9,\"max_completion_tokens\":2}", 2, 0},
               {"{\"prompt\":\"x\",\"max_completion_tokens\":null,\"max_tokens\":9}", 9, 0},
               {"{\"prompt\":\"x\",\"max_tokens\":9,\"truncate_prompt_tokens\":3,\"truncate\":4}", 9, 3},
               {"{\"prompt\":\"x\",\"max_tokens\":9,\"truncate\":4,\"truncate_prompt_tokens\":3}", 9, 3}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    parsed p;
    parse(&p, cases[i].text, true);
    ck_assert_msg(p.st == TRI_OK, "%s", p.err.message);
    ck_assert_int_eq(p.q.r.max_tokens, cases[i].max_tokens);
    ck_assert_int_eq(p.q.r.truncate, cases[i].truncate);
    done(&p);
  }
}
END_TEST

/* A byte order mark is no part of a body. */
START_TEST(byte_order_mark) {
  char text[] = "\xef\xbb\xbf{\"a\":1}";
  tri_buf body = {.data = text, .len = sizeof text - 1};
  tri_json_doc *doc = NULL;
  tri_error err = {0};
  ck_assert_msg(gw_parse_body(&body, &doc, &err) == TRI_OK, "%s", err.message);
  ck_assert_uint_eq(tri_json_size(tri_json_root(doc)), 1);
  tri_json_free(doc);
  body.len = 3;
  ck_assert_int_eq(gw_parse_body(&body, &doc, &err), TRI_CORRUPT);
}
END_TEST

START_TEST(errors) {
  static const struct {
    const char *code, *field, *param, *out;
    int status;
  } cases[] = {{"out_of_range", "temperature", "temperature", "out_of_range", 400},
               {"no_capacity", "max_tokens", "max_tokens", "context_length_exceeded", 400},
               {"no_capacity", "", "", "no_capacity", 429},
               {"not_found", "model", "model", "not_found", 404},
               {"invalid_argument", "token_ids", "prompt", "invalid_argument", 400},
               {"draining", "", "", "draining", 503},
               {"coordinator_lost", "", "", "coordinator_lost", 503},
               {"taken_over", "", "", "taken_over", 409},
               {"", "", "", "internal", 500}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    trireme_error e = {0};
    snprintf(e.code, sizeof e.code, "%s", cases[i].code);
    snprintf(e.field, sizeof e.field, "%s", cases[i].field);
    oai_error out = oai_error_of(&e);
    ck_assert_msg(out.status == cases[i].status && !strcmp(out.code, cases[i].out) &&
                      !strcmp(out.param, cases[i].param),
                  "%s: %d %s %s", cases[i].code, out.status, out.code, out.param);
  }
  tri_buf b = {0};
  oai_error_json(&b, &(oai_error){429, "no_capacity", "", "a \"queue\""});
  ck_assert_str_eq(b.data, "{\"error\":{\"message\":\"a \\\"queue\\\"\",\"type\":\"rate_limit_error\",\"param\":null,"
                           "\"code\":\"no_capacity\"}}");
  tri_buf_free(&b);
}
END_TEST

/* A character of two tokens, an alternative that cannot be drawn, and a chosen token that is none of the best. */
START_TEST(logprobs) {
  uint32_t ids[2] = {5, 6}, tops[2] = {5, 7};
  float values[2] = {-0.5f, -INFINITY};
  trireme_string texts[2] = {{"\xc3", 1}, {"x", 1}};
  trireme_logprobs first = {-0.5f, 2, tops, values, "\xc3", 1, texts}, second = {-2.0f, 0, NULL, NULL, "\xa4", 1, NULL};
  const trireme_logprobs *both[2] = {&first, &second};
  trireme_choice c = {.ids = ids, .num_ids = 2, .logprobs = both};
  oai_logprobs l = {0};
  tri_buf b = {0};
  oai_logprobs_add(&l, &c);
  oai_logprobs_write(&l, &b);
  ck_assert_str_eq(b.data, "{\"tokens\":[\"bytes:\\\\xc3\",\"bytes:\\\\xa4\"],\"token_logprobs\":[-0.5,-2],"
                           "\"top_logprobs\":[{\"bytes:\\\\xc3\":-0.5,\"x\":-9999.0},{\"bytes:\\\\xa4\":-2}],"
                           "\"text_offset\":[0,1]}");
  b.len = 0;
  c.num_ids = 1;
  oai_logprobs_add(&l, &c); /* the next piece of the stream goes on where the text has come to */
  oai_logprobs_write(&l, &b);
  ck_assert_msg(strstr(b.data, "\"text_offset\":[1]}"), "%s", b.data);
  oai_logprobs_free(&l);
  tri_buf_free(&b);
}
END_TEST

/* A prompt's first token has nothing before it; both forms have its alternatives beside its own. */
START_TEST(prompt_logprobs) {
  uint32_t ids[3] = {5, 6, 7}, tops[2] = {7, 9};
  float values[2] = {-0.25f, -1};
  trireme_string texts[2] = {{"c", 1}, {"d", 1}};
  trireme_logprobs first = {NAN, 0, NULL, NULL, "a", 1, NULL},
                   second = {-2, 1, tops + 1, values + 1, "b", 1, texts + 1},
                   third = {-0.25f, 2, tops, values, "c", 1, texts};
  const trireme_logprobs *all[3] = {&first, &second, &third};
  trireme_choice c = {.ids = ids, .num_ids = 2, .logprobs = all, .of_prompt = true};
  oai_logprobs l = {0};
  tri_buf b = {0};
  oai_logprobs_add(&l, &c);
  oai_prompt_logprobs_add(&b, &c);
  c = (trireme_choice){.offset = 2, .ids = ids + 2, .num_ids = 1, .logprobs = all + 2, .of_prompt = true};
  oai_logprobs_add(&l, &c);
  oai_prompt_logprobs_add(&b, &c);
  ck_assert_str_eq(b.data, "null,{\"6\":{\"logprob\":-2,\"decoded_token\":\"b\"},"
                           "\"9\":{\"logprob\":-1,\"rank\":1,\"decoded_token\":\"d\"}},"
                           "{\"7\":{\"logprob\":-0.25,\"rank\":1,\"decoded_token\":\"c\"},"
                           "\"9\":{\"logprob\":-1,\"rank\":2,\"decoded_token\":\"d\"}}");
  b.len = 0;
  oai_logprobs_write(&l, &b);
  ck_assert_str_eq(b.data, "{\"tokens\":[\"a\",\"b\",\"c\"],\"token_logprobs\":[null,-2,-0.25],"
                           "\"top_logprobs\":[null,{\"d\":-1,\"b\":-2},{\"c\":-0.25,\"d\":-1}],"
                           "\"text_offset\":[0,1,2]}");
  oai_logprobs_free(&l);
  tri_buf_free(&b);
}
END_TEST

/* ---- metrics ---- */

START_TEST(names_and_labels_of_metrics) {
  static const char text[] = "# HELP trireme:a One.\n# TYPE trireme:a gauge\ntrireme:a 3\n"
                             "trireme:b_bucket{le=\"0.5\"} 4\n# anything\nother 5\n";
  static const char want[] = "# HELP vllm:a One.\n# TYPE vllm:a gauge\nvllm:a{model_name=\"x\\\"y\\\\z\"} 3\n"
                             "vllm:b_bucket{model_name=\"x\\\"y\\\\z\",le=\"0.5\"} 4\n# anything\nother 5\n";
  gateway *g = tri_calloc(1, sizeof *g);
  tri_buf b = {0};
  ck_assert_ptr_nonnull(g);
  g->o.http.metrics_prefix = "vllm";
  snprintf(g->name, sizeof g->name, "x\"y\\z");
  gw_count_answer(g, 0, 200);
  gw_count_answer(g, 0, 200);
  gw_count_answer(g, GW_NUM_PATHS, 404);
  gw_count_answer(g, 1, 299);
  gw_metrics_write(g, text, sizeof text - 1, &b);
  tri_text_add(&b, "", 1);
  ck_assert(!strncmp(b.data, want, sizeof want - 1));
  ck_assert(strstr(b.data, "\nvllm:http_requests_total{path=\"/v1/completions\",code=\"200\"} 2\n"));
  ck_assert(strstr(b.data, "\nvllm:http_requests_total{path=\"/v1/chat/completions\",code=\"000\"} 1\n"));
  ck_assert(strstr(b.data, "\nvllm:http_requests_total{path=\"other\",code=\"404\"} 1\n"));
  ck_assert(strstr(b.data, "\nvllm:http_connections 0\n"));
  tri_buf_free(&b);
  tri_free(g);
}
END_TEST

/* ---- the hint ---- */

static void expect_hint(const gateway *g, const char *task, const char *address, const char *want) {
  tri_gateway_place place = {.port = 8000};
  tri_buf b = {0};
  snprintf(place.address, sizeof place.address, "%s", address);
  gw_hint_text(g, task, &place, 8000, &b);
  ck_assert_str_eq(b.len ? b.data : "", want);
  tri_buf_free(&b);
}

START_TEST(hints) {
  static const char json[] = " -H 'Content-Type: application/json' -d '";
  gateway *g = tri_calloc(1, sizeof *g);
  char want[400];
  snprintf(g->name, sizeof g->name, "m\"1");
  snprintf(want, sizeof want,
           "try: curl http://127.0.0.1:8000/v1/embeddings%s{\"model\":\"m\\\"1\",\"input\":\"Hello\"}'", json);
  expect_hint(g, "embed", "0.0.0.0", want);
  expect_hint(g, "classify", "0.0.0.0", "");
  expect_hint(g, "generate", "0.0.0.0", ""); /* the model's folder is not known */
  g->o.model = "folder";                     /* and has no tokenizer */
  snprintf(want, sizeof want,
           "try: curl http://127.0.0.1:8000/v1/embeddings%s{\"model\":\"m\\\"1\",\"input\":[1,2,3]}'", json);
  expect_hint(g, "embed", "0.0.0.0", want);
  snprintf(want, sizeof want,
           "try: curl http://127.0.0.1:8000/v1/completions%s{\"model\":\"m\\\"1\",\"prompt\":[1,2,3]}'", json);
  expect_hint(g, "generate", "0.0.0.0", want);
  g->model.tokenizer = (tri_tokenizer *)g; /* nobody asks it */
  snprintf(want, sizeof want,
           "try: curl http://[::1]:8000/v1/completions%s{\"model\":\"m\\\"1\",\"prompt\":\"37+48=\"}'", json);
  expect_hint(g, "generate", "::", want);
  g->model.template = (void *)g;
  expect_hint(g, "generate", "::1", want); /* the coordinator has another tokenizer */
  g->model_fits = true;
  g->o.http.api_key_file = "keys";
  snprintf(want, sizeof want,
           "try: curl http://10.0.0.1:8000/v1/chat/completions -H 'Authorization: Bearer KEY'%s{\"model\":\"m\\\"1\","
           "\"messages\":[{\"role\":\"user\",\"content\":\"37+48=\"}]}'",
           json);
  expect_hint(g, "generate", "10.0.0.1", want);
  g->o.http.api_key_file = NULL;
  g->o.http.metrics_only = true;
  expect_hint(g, "generate", "127.0.0.1", "try: curl http://127.0.0.1:8000/metrics");
  g->o.http.metrics_only = false;
  snprintf(g->name, sizeof g->name, "it's");
  expect_hint(g, "generate", "127.0.0.1", "");
  tri_free(g);
}
END_TEST

/* What a document is made of is counted before it is read; what stands in texts is no part of it. */
START_TEST(parts_of_a_body) {
  static const char *const pieces[] = {"{},", "[],", "{\"a\":0},", "\"{[:\\\"{[:\","};
  static const int parts[] = {1, 1, 2, 0};
  for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++)
    for (int beyond = 0; beyond < 2; beyond++) {
      tri_buf text = {0};
      tri_json_doc *doc = NULL;
      tri_error err = {0};
      int left = GW_MAX_PARTS - 3 + beyond, n = parts[i] ? left / parts[i] + (left % parts[i] && beyond) : GW_MAX_PARTS;
      tri_text_printf(&text, "{\"prompt\":[");
      for (int k = 0; k < n; k++) tri_text_printf(&text, "%s", pieces[i]);
      tri_text_printf(&text, "0]}");
      tri_buf body = {.data = text.data, .len = text.len};
      tri_status st = gw_parse_body(&body, &doc, &err);
      ck_assert_msg(st == (parts[i] && beyond ? TRI_TOO_LARGE : TRI_OK), "%s: %s", pieces[i], err.message);
      if (st == TRI_OK) tri_json_free(doc);
      tri_buf_free(&text);
    }
}
END_TEST

/* The names that the option knows, with which a supervisor refuses others, are those that answers are read by. */
START_TEST(names_of_parsers) {
  const char *const *names = NULL;
  bool known[CHAT_NUM_CALLS] = {0};
  for (size_t i = 0; i < tri_gateway_option_count; i++)
    if (!strcmp(tri_gateway_option_table[i].name, "tool-parser")) names = tri_gateway_option_table[i].choices;
  ck_assert(names && !strcmp(names[0], "auto"));
  for (size_t i = 1; names[i]; i++) {
    chat_calls calls;
    ck_assert_msg(chat_calls_by_name(names[i], &calls), "%s", names[i]);
    known[calls] = true;
  }
  for (int i = 0; i < CHAT_NUM_CALLS; i++) ck_assert_msg(known[i], "form %d has no name", i);
}
END_TEST

Suite *suite_gateway(void) {
  Suite *s = suite_create("gateway");
  TCase *c = tcase_create("parts");
  tcase_add_test(c, keys);
  tcase_add_test(c, origins);
  tcase_add_test(c, parts_of_a_body);
  tcase_add_test(c, accepted);
  tcase_add_test(c, refused);
  tcase_add_test(c, two_names);
  tcase_add_test(c, byte_order_mark);
  tcase_add_test(c, errors);
  tcase_add_test(c, logprobs);
  tcase_add_test(c, prompt_logprobs);
  tcase_add_test(c, names_and_labels_of_metrics);
  tcase_add_test(c, hints);
  tcase_add_test(c, names_of_parsers);
  suite_add_tcase(s, c);
  return s;
}
