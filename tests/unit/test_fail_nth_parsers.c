/* SPDX-License-Identifier: Apache-2.0 */
/* Every parser without memory: each allocation fails once, of each of the fuzzers' inputs. */
#include <check.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/openai/chat_request.h"
#include "client/gateway/completion.h"
#include "client/gateway/http_parse.h"
#include "comm/wire/client.h"
#include "comm/wire/replica.h"
#include "base/hash.h"
#include "base/json/json.h"
#include "base/mem.h"
#include "text/jinja/jinja.h"
#include "runtime/model/gguf_model.h"
#include "runtime/model/safetensors.h"
#include "text/tokenizer/files/gguf.h"
#include "text/tokenizer/tokenizer.h"
#include "tests/fuzz/tokenizer_family.h"
#include "tests/unit/fail_nth.h"

Suite *suite_fail_nth_parsers(void);

/* Runs over all files of tests/fuzz/corpus/NAME. */
static void run_all(fail_nth_run *run, const char *name) {
  static char data[1 << 16];
  char path[512];
  uint64_t inputs = 0, allocations = 0;
  snprintf(path, sizeof path, "%s/tests/fuzz/corpus/%s", TRI_SOURCE, name);
  DIR *d = opendir(path);
  ck_assert_ptr_nonnull(d);
  for (struct dirent *e; (e = readdir(d));) {
    if (e->d_name[0] == '.') continue;
    snprintf(path, sizeof path, "%s/tests/fuzz/corpus/%s/%s", TRI_SOURCE, name, e->d_name);
    FILE *f = fopen(path, "rb");
    ck_assert_ptr_nonnull(f);
    size_t len = fread(data, 1, sizeof data, f);
    fclose(f);
    allocations += fail_nth_each(run, path + sizeof TRI_SOURCE, data, len);
    inputs++;
  }
  closedir(d);
  printf("%s: %llu inputs, %llu allocations\n", name, (unsigned long long)inputs, (unsigned long long)allocations);
  ck_assert_uint_gt(inputs, 2);
  ck_assert_uint_gt(allocations, inputs / 2); /* some are refused before any */
}

/* A refusal says why: one that does not is none that is expected. Check's own words would need memory here. */
static outcome refused(tri_status st, const tri_error *err) {
  bool well = st != TRI_OK && err->status == st && err->message[0];
  return (outcome){.status = well ? st : TRI_INTERNAL};
}

static uint64_t hash_json(uint64_t h, const tri_json *j) {
  size_t len;
  int64_t n = 0;
  tri_json_kind kind = tri_json_kind_of(j);
  const char *s = tri_json_as_str(j, &len);
  h = tri_hash_bytes(h, &kind, sizeof kind);
  if (s) h = tri_hash_bytes(h, s, len);
  if (tri_json_as_int(j, &n)) h = tri_hash_bytes(h, &n, sizeof n);
  for (size_t i = 0; kind == TRI_JSON_ARRAY && i < tri_json_size(j); i++) h = hash_json(h, tri_json_at(j, i));
  return h;
}

static outcome json(const char *data, size_t len) {
  tri_json_doc *doc = NULL;
  tri_error err = {0};
  tri_status st = tri_json_parse(data, len, &doc, &err);
  if (st != TRI_OK) return refused(st, &err);
  outcome o = {.digest = hash_json(TRI_HASH_SEED, tri_json_root(doc))};
  tri_json_free(doc);
  return o;
}

/* ---- files of a model ---- */

static uint64_t hash_tensors(uint64_t h, const tri_st_tensor *t, size_t count) {
  for (size_t i = 0; i < count; i++) {
    h = tri_hash_bytes(h, t[i].name, strlen(t[i].name));
    h = tri_hash_bytes(h, &t[i].offset, sizeof t[i].offset);
  }
  return h;
}

static outcome safetensors(const char *data, size_t len) {
  const char *line = memchr(data, '\n', len < 24 ? len : 24);
  uint64_t bytes = 0;
  size_t head = line ? (size_t)(line - data) + 1 : 0, count = 0;
  for (size_t i = 0; i + 1 < head; i++) bytes = bytes * 10 + (data[i] & 15);
  tri_st_tensor *tensors = NULL;
  char *names = NULL;
  tri_error err = {0};
  tri_status st = tri_st_parse_header(data + head, len - head, bytes, &tensors, &count, &names, &err);
  outcome o = {.digest = TRI_HASH_SEED};
  if (st == TRI_OK) o.digest = hash_tensors(o.digest, tensors, count);
  if (st != TRI_OK) o = refused(st, &err);
  tri_free(tensors);
  tri_free(names);
  return o;
}

/* The header of a GGUF file, and the config and the tensors of its model. */
static outcome gguf(const char *data, size_t len) {
  tri_gguf *g = NULL;
  tri_gguf_config made = {0};
  tri_st_tensor *tensors = NULL;
  size_t count = 0;
  char *names = NULL;
  tri_error err = {0}, why = {0};
  tri_status st = tri_gguf_parse(data, len, len, &g, &err);
  if (st != TRI_OK) return refused(st, &err);
  outcome o = {.digest = TRI_HASH_SEED};
  const tri_gguf_arch *arch = tri_gguf_arch_of(g, &err);
  st = arch ? tri_gguf_config_make(g, "model.gguf", &made, &err) : TRI_UNSUPPORTED;
  if (st == TRI_OK) o.digest = tri_hash_bytes(o.digest, made.text.data, made.text.len);
  if (st != TRI_OK) o = refused(st, &err);
  if (o.status == TRI_OK && (st = tri_gguf_tensors(g, g, arch, &tensors, &count, &names, &why)) != TRI_OK)
    o = refused(st, &why);
  o.digest = hash_tensors(o.digest, tensors, count);
  tri_buf_free(&made.text);
  tri_free(tensors);
  tri_free(names);
  tri_gguf_close(g);
  return o;
}

static tri_status encode_and_decode(const tri_tokenizer *t, tri_tokenizer_scratch *s, outcome *o) {
  static const char text[] = "Hello, ab ab\n 12\t<s> \xc3\xa9\xf0\x9f\x98\x80\xff end";
  const uint32_t *ids;
  size_t count, len;
  char *back = NULL;
  TRI_CHECK(tri_tokenizer_encode(t, s, text, sizeof text - 1, true, 1000, &ids, &count));
  o->digest = tri_hash_bytes(o->digest, ids, count * sizeof *ids);
  TRI_CHECK(tri_tokenizer_decode(t, ids, count, false, &back, &len));
  o->digest = tri_hash_bytes(o->digest, back, len);
  tri_free(back);
  return TRI_OK;
}

static outcome use_tokenizer(tri_status st, tri_tokenizer *t, const tri_error *err) {
  tri_tokenizer_scratch *s = NULL;
  if (st != TRI_OK) return refused(st, err);
  outcome o = {.digest = TRI_HASH_SEED};
  o.status = tri_tokenizer_scratch_create(t, &s);
  if (o.status == TRI_OK) o.status = encode_and_decode(t, s, &o);
  tri_tokenizer_scratch_destroy(s);
  tri_tokenizer_destroy(t);
  return o;
}

static outcome tokenizer(const char *data, size_t len) {
  tri_tokenizer *t = NULL;
  tri_error err = {0};
  tri_status st = tri_tokenizer_parse(data, len, &t, &err);
  return use_tokenizer(st, t, &err);
}

static outcome of_family(const char *file, const char *data, size_t len) {
  tri_tokenizer *t = NULL;
  tri_error err = {0};
  tri_status st = parse_of_family(file, data, len, &t, &err);
  return use_tokenizer(st, t, &err);
}

static outcome gguf_tokenizer(const char *data, size_t len) {
  tri_gguf *g = NULL;
  tri_tokenizer *t = NULL;
  tri_error err = {0};
  tri_status st = tri_gguf_parse(data, len, len, &g, &err);
  if (st == TRI_OK) st = tok_gguf_read(g, &t, &err);
  tri_gguf_close(g);
  return use_tokenizer(st, t, &err);
}

static outcome tekken(const char *data, size_t len) { return of_family("tekken.json", data, len); }
static outcome tiktoken(const char *data, size_t len) { return of_family("tiktoken.model", data, len); }
static outcome sentencepiece(const char *data, size_t len) { return of_family("spiece.model", data, len); }

static outcome template(const char *data, size_t len) {
  const char *cut = memmem(data, len, "%%\n", 3);
  size_t first = cut ? (size_t)(cut - data) : len;
  tri_jinja *t = NULL;
  tri_json_doc *doc = NULL;
  tri_jinja_output out = {0};
  tri_error err = {0};
  outcome o = {.digest = TRI_HASH_SEED};
  tri_status st = tri_jinja_parse(data, first, &t, &err);
  if (st == TRI_OK && cut && tri_json_parse(cut + 3, len - first - 3, &doc, NULL) == TRI_NO_MEMORY)
    st = tri_fail(&err, TRI_NO_MEMORY, "", "no memory for the messages");
  tri_jinja_variable v = {.name = "messages", .json = doc ? tri_json_root(doc) : NULL, .foreign = true};
  tri_jinja_input in = {.variables = &v, .num_variables = 1};
  if (st == TRI_OK) st = tri_jinja_render(t, &in, &out, &err);
  if (st == TRI_OK && out.text.len) o.digest = tri_hash_bytes(o.digest, out.text.data, out.text.len);
  if (st == TRI_OK && out.num_spans) o.digest = tri_hash_bytes(o.digest, out.spans, out.num_spans * sizeof *out.spans);
  if (st != TRI_OK) o = refused(st, &err);
  tri_jinja_output_free(&out);
  tri_json_free(doc);
  tri_jinja_free(t);
  return o;
}

/* ---- from the network ---- */

static outcome http(const char *data, size_t len) {
  http_parser p;
  outcome o = {.digest = TRI_HASH_SEED};
  http_outcome got = HTTP_MORE;
  http_parser_init(&p, 300);
  for (size_t at = 0, used; at < len && got != HTTP_REFUSED; at += used) {
    got = http_parse(&p, data + at, len - at, &used);
    if (got != HTTP_REQUEST_DONE) continue;
    http_str path = http_parser_path(&p);
    o.digest = tri_hash_bytes(o.digest, path.s, path.len);
    if (p.body.len) o.digest = tri_hash_bytes(o.digest, p.body.data, p.body.len);
    http_parser_reset(&p);
  }
  if (got == HTTP_REFUSED) o.status = p.status == 503 ? TRI_NO_MEMORY : TRI_INVALID_ARGUMENT;
  http_parser_free(&p);
  return o;
}

static uint64_t hash_prompts(const oai_completion_request *q) {
  uint64_t h = tri_hash_bytes(TRI_HASH_SEED, &q->r.max_tokens, sizeof q->r.max_tokens);
  for (size_t i = 0; i < q->prompt.num; i++)
    if (q->prompt.items[i].text) h = tri_hash_bytes(h, q->prompt.items[i].text, strlen(q->prompt.items[i].text));
  return h;
}

static outcome completion(const char *data, size_t len) {
  tri_buf body = {.data = (char *)data, .len = len};
  oai_ignored ignored = {.allowed = true};
  oai_completion_request q;
  tri_json_doc *doc = NULL;
  tri_error err = {0};
  tri_status st = gw_parse_body(&body, &doc, &err);
  if (st != TRI_OK) return refused(st, &err);
  st = oai_completion_parse(tri_json_root(doc), &q, &ignored, &err);
  outcome o = st == TRI_OK ? (outcome){.digest = hash_prompts(&q)} : refused(st, &err);
  oai_completion_request_free(&q);
  tri_json_free(doc);
  return o;
}

static outcome chat(const char *data, size_t len) {
  tri_buf body = {.data = (char *)data, .len = len};
  oai_ignored ignored = {.allowed = true};
  oai_chat_request q;
  tri_json_doc *doc = NULL;
  tri_error err = {0};
  tri_status st = gw_parse_body(&body, &doc, &err);
  if (st != TRI_OK) return refused(st, &err);
  st = oai_chat_parse(tri_json_root(doc), &(oai_model){.calls = CHAT_CALLS_HERMES}, NULL, &q, &ignored, &err);
  outcome o = st == TRI_OK ? (outcome){.digest = (uint64_t)q.c.r.n} : refused(st, &err);
  oai_chat_request_free(&q);
  tri_json_free(doc);
  return o;
}

static void give(void *ctx, chat_part part, const char *s, size_t len) {
  outcome *o = ctx;
  o->digest = tri_hash_bytes(o->digest + (uint64_t)part, s, len);
}

static bool is_tool(void *ctx, const char *name, size_t len) {
  (void)ctx;
  return len == 1 && *name == 'f';
}

/* The request's bytes as an answer, in pieces. */
static outcome answer(const char *data, size_t len) {
  outcome o = {.digest = TRI_HASH_SEED};
  chat_answer_config c = {
      .calls = (chat_calls)(len % CHAT_NUM_CALLS), .reasoning = true, .is_tool = is_tool, .give = give, .ctx = &o};
  chat_answer *a = NULL;
  o.status = chat_answer_create(&c, &a);
  for (size_t i = 0, n; o.status == TRI_OK && i < len; i += n) {
    n = len - i < 7 ? len - i : 7;
    o.status = chat_answer_push(a, data + i, n);
  }
  if (o.status == TRI_OK) o.status = chat_answer_finish(a, true);
  chat_answer_free(a);
  return o;
}

/* ---- messages ---- */

static outcome packed(tri_status st, tri_buf *b, tri_arena *a) {
  outcome o = {st, TRI_HASH_SEED};
  if (st == TRI_OK) o.digest = tri_hash_bytes(o.digest, b->data, b->len);
  tri_buf_free(b);
  tri_arena_destroy(a);
  return o;
}

static outcome of_client(const char *data, size_t len) {
  static tri_client_msg m;
  tri_buf b = {0};
  tri_arena *a = NULL;
  tri_error err = {0};
  uint64_t id;
  if (tri_arena_create(4096, &a) != TRI_OK) return (outcome){.status = TRI_NO_MEMORY};
  tri_status st = tri_client_msg_unpack(data, len, a, &m, &id, &err);
  if (st == TRI_OK)
    st = tri_client_msg_pack(&m, &b);
  else
    st = refused(st, &err).status;
  return packed(st, &b, a);
}

static outcome of_server(const char *data, size_t len) {
  static tri_server_msg m;
  tri_buf b = {0};
  tri_arena *a = NULL;
  tri_error err = {0};
  if (tri_arena_create(4096, &a) != TRI_OK) return (outcome){.status = TRI_NO_MEMORY};
  tri_status st = tri_server_msg_unpack(data, len, a, &m, &err);
  if (st == TRI_OK)
    st = tri_server_msg_pack(&m, &b);
  else
    st = refused(st, &err).status;
  return packed(st, &b, a);
}

static outcome of_group(const char *data, size_t len) {
  static tri_replica_msg m;
  tri_buf b = {0};
  tri_arena *a = NULL;
  tri_error err = {0};
  if (tri_arena_create(4096, &a) != TRI_OK) return (outcome){.status = TRI_NO_MEMORY};
  tri_status st = tri_replica_msg_unpack(data, len, a, &m, &err);
  if (st == TRI_OK)
    st = tri_replica_msg_pack(&m, &b);
  else
    st = refused(st, &err).status;
  return packed(st, &b, a);
}

/* Without memory jansson calls texts invalid, or leaves out a byte. With longer strings it may also end the process, by
 * an assertion of its own. */
START_TEST(documents) {
  static const char *const texts[] = {
      "[1, 2.5, \"a\", true, null, [[-3], \"short\"]]",
      "{\"a\": {\"b\": [1, 2]}, \"c\": 0}",
      "\"only a text\"",
      "[1, 2",
      "{\"a\": 1, \"a\": 2}",
      "[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29]"};
  fail_nth_count_malloc(true);
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
    ck_assert_uint_gt(fail_nth_each(json, texts[i], texts[i], strlen(texts[i])), 1);
  fail_nth_count_malloc(false);
}
END_TEST

static int open_files(void) {
  int n = 0;
  DIR *d = opendir("/proc/self/fd");
  while (readdir(d)) n++;
  closedir(d);
  return n;
}

static outcome json_file(const char *path, size_t len) {
  tri_json_doc *doc = NULL;
  tri_error err = {0};
  (void)len;
  tri_status st = tri_json_read_file(path, 1 << 20, &doc, &err);
  if (st != TRI_OK) return refused(st, &err);
  outcome o = {.digest = hash_json(TRI_HASH_SEED, tri_json_root(doc))};
  tri_json_free(doc);
  return o;
}

/* No descriptor stays open either. */
START_TEST(json_of_a_file) {
  static const char path[] = TRI_SOURCE "/tests/models/abacus/config.json";
  int before = open_files();
  ck_assert_uint_gt(fail_nth_each(json_file, path, path, sizeof path), 1);
  ck_assert_int_eq(open_files(), before);
}
END_TEST

START_TEST(files) {
  run_all(safetensors, "safetensors");
  run_all(gguf, "gguf");
  run_all(gguf_tokenizer, "gguf");
  run_all(tokenizer, "tokenizer_json");
  run_all(tekken, "tokenizer_tekken");
  run_all(tiktoken, "tokenizer_tiktoken");
  run_all(sentencepiece, "tokenizer_sentencepiece");
  run_all(template, "jinja");
}
END_TEST

static const char a_chat[] =
    "{\"model\":\"m\",\"messages\":[{\"role\":\"system\",\"content\":\"be "
    "short\"},{\"role\":\"user\",\"content\":[{\"type\":"
    "\"text\",\"text\":\"hello\"}]}],\"stop\":[\"one\",\"two\"],\"logit_bias\":{\"5\":1.5},\"tools\":[{\"type\":"
    "\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\"}}}],\"n\":2}";

START_TEST(requests) {
  run_all(http, "http");
  run_all(completion, "http_request");
  run_all(answer, "http_chat");
  ck_assert(chat(a_chat, sizeof a_chat - 1).status == TRI_OK);
  ck_assert_uint_gt(fail_nth_each(chat, "a chat", a_chat, sizeof a_chat - 1), 0);
}
END_TEST

START_TEST(messages) {
  run_all(of_client, "wire_client");
  run_all(of_server, "wire_client");
  run_all(of_group, "wire_group");
}
END_TEST

Suite *suite_fail_nth_parsers(void) {
  Suite *s = suite_create("fail_nth_parsers");
  TCase *t = tcase_create("fail_nth_parsers");
  tcase_set_timeout(t, 120);
  tcase_add_test(t, documents);
  tcase_add_test(t, json_of_a_file);
  tcase_add_test(t, files);
  tcase_add_test(t, requests);
  tcase_add_test(t, messages);
  suite_add_tcase(s, t);
  return s;
}
