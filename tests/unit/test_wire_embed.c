/* SPDX-License-Identifier: Apache-2.0 */
/* Messages of embed and classify: round trips, and the words of their refusals. What hostile bytes do to them is in
 * test_wire.c with all others. */
#include <check.h>
#include <math.h>
#include <msgpack.h>
#include <stdlib.h>
#include <string.h>

#include "comm/wire/replica.h"

Suite *suite_wire_embed(void);

static tri_wire_str str(const char *s) { return (tri_wire_str){s, strlen(s)}; }
static bool same(tri_wire_str a, const char *b) { return a.len == strlen(b) && !memcmp(a.s, b, a.len); }

static tri_arena *arena(void) {
  tri_arena *a = NULL;
  ck_assert(tri_arena_create(1 << 16, &a) == TRI_OK);
  return a;
}

static const uint32_t ids[] = {1, 70000, UINT32_MAX};
static const float values[] = {1.5f, -2, INFINITY, 0, 3, -0.25f};

/* ---- requests ---- */

static tri_client_msg through_client(const tri_client_msg *in, tri_arena *a) {
  static tri_buf buf; /* what comes back points into it */
  tri_client_msg out;
  tri_error err = {0};
  uint64_t id = 0;
  ck_assert_int_eq(tri_client_msg_pack(in, &buf), TRI_OK);
  tri_status st = tri_client_msg_unpack(buf.data, buf.len, a, &out, &id, &err);
  ck_assert_msg(st == TRI_OK, "%s", err.message);
  ck_assert(out.op == in->op && out.id == in->id && id == in->id);
  return out;
}

START_TEST(test_embed) {
  tri_arena *a = arena();
  tri_client_msg m = {.op = TRI_OP_EMBED,
                      .id = 5,
                      .embed = {.model = str("bert"),
                                .text = str("a \xc3\xa9"),
                                .has_pooling = true,
                                .pooling = TRI_POOL_MEAN,
                                .has_normalize = true,
                                .normalize = true,
                                .truncate = true,
                                .priority = -7,
                                .deadline_ms = 1000,
                                .cache_salt = str("salt")}};
  tri_embed_request e = through_client(&m, a).embed;
  ck_assert(same(e.model, "bert") && same(e.text, "a \xc3\xa9") && !e.token_ids);
  ck_assert(e.has_pooling && e.pooling == TRI_POOL_MEAN && e.normalize && e.priority == -7 && e.deadline_ms == 1000);
  ck_assert(!e.text_pair.s && e.has_normalize && e.truncate && !e.cache && same(e.cache_salt, "salt"));
  m.embed.normalize = false; /* said, which is not the same as nothing */
  e = through_client(&m, a).embed;
  ck_assert(e.has_normalize && !e.normalize);
  ck_assert_ptr_null(e.prompt_name.s);
  m.embed.text_pair = str("b");
  m.embed.prompt_name = str(""); /* said, which is not the same as nothing */
  e = through_client(&m, a).embed;
  ck_assert(same(e.text_pair, "b") && e.prompt_name.s && !e.prompt_name.len);
  m.embed.prompt_name = str("query");
  e = through_client(&m, a).embed;
  ck_assert(same(e.prompt_name, "query"));
  tri_embed_request_init(&m.embed);
  m.embed.token_ids = ids;
  m.embed.num_token_ids = 3;
  e = through_client(&m, a).embed;
  ck_assert(!e.text.s && !e.model.s && e.num_token_ids == 3 && !memcmp(e.token_ids, ids, sizeof ids));
  ck_assert(!e.has_pooling && !e.has_normalize && !e.truncate && !e.priority && !e.deadline_ms);
  ck_assert(e.cache && !e.cache_salt.s);
  tri_arena_destroy(a);
}
END_TEST

START_TEST(test_classify) {
  tri_arena *a = arena();
  for (int i = TRI_ACTIVATION_UNSET; i <= TRI_ACTIVATION_SIGMOID; i++) {
    tri_client_msg m = {.op = TRI_OP_CLASSIFY, .id = 6, .embed = {.text = str("t"), .activation = (tri_activation)i}};
    ck_assert_int_eq(through_client(&m, a).embed.activation, (tri_activation)i);
  }
  tri_arena_destroy(a);
}
END_TEST

typedef void (*value_fn)(msgpack_packer *k);
static void v_1(msgpack_packer *k) { msgpack_pack_int(k, 1); }
static void v_true(msgpack_packer *k) { msgpack_pack_true(k); }
static void v_huge(msgpack_packer *k) { msgpack_pack_uint64(k, UINT64_MAX); }
static void v_minus(msgpack_packer *k) { msgpack_pack_int(k, -1); }
static void v_empty(msgpack_packer *k) { msgpack_pack_str_with_body(k, "", 0); }
static void v_cls(msgpack_packer *k) { msgpack_pack_str_with_body(k, "cls", 3); }
static void v_max(msgpack_packer *k) { msgpack_pack_str_with_body(k, "max\x1b[2J", 7); }
static void v_softmax(msgpack_packer *k) { msgpack_pack_str_with_body(k, "softmax", 7); }
static void v_ids(msgpack_packer *k) { msgpack_pack_bin_with_body(k, ids, sizeof ids); }
static void v_no_ids(msgpack_packer *k) { msgpack_pack_array(k, 0); }

/* Requests with one or two fields. */
static const struct refusal {
  const char *op, *key;
  value_fn value;
  const char *key2;
  value_fn value2;
  tri_status status;
  const char *field;
} refusals[] = {
    {"embed", NULL, NULL, NULL, NULL, TRI_INVALID_ARGUMENT, "text"},
    {"embed", "text", v_cls, NULL, NULL, TRI_OK, ""},
    {"embed", "text", v_empty, NULL, NULL, TRI_INVALID_ARGUMENT, "text"},
    {"embed", "text", v_1, NULL, NULL, TRI_INVALID_ARGUMENT, "text"},
    {"embed", "text", v_cls, "token_ids", v_ids, TRI_INVALID_ARGUMENT, "token_ids"},
    {"embed", "text", v_cls, "text_pair", v_cls, TRI_OK, ""},
    {"classify", "text", v_cls, "text_pair", v_empty, TRI_INVALID_ARGUMENT, "text_pair"},
    {"embed", "token_ids", v_ids, "text_pair", v_cls, TRI_INVALID_ARGUMENT, "text_pair"},
    {"embed", "text", v_cls, "text_pair", v_1, TRI_INVALID_ARGUMENT, "text_pair"},
    {"embed", "token_ids", v_ids, NULL, NULL, TRI_OK, ""},
    {"embed", "token_ids", v_no_ids, NULL, NULL, TRI_INVALID_ARGUMENT, "token_ids"},
    {"embed", "token_ids", v_cls, NULL, NULL, TRI_INVALID_ARGUMENT, "token_ids"},
    {"embed", "text", v_cls, "pooling", v_cls, TRI_OK, ""},
    {"embed", "text", v_cls, "pooling", v_max, TRI_INVALID_ARGUMENT, "pooling"},
    {"embed", "text", v_cls, "pooling", v_1, TRI_INVALID_ARGUMENT, "pooling"},
    {"embed", "text", v_cls, "normalize", v_true, TRI_OK, ""},
    {"embed", "text", v_cls, "truncate", v_true, TRI_OK, ""},
    {"classify", "text", v_cls, "truncate", v_true, TRI_OK, ""},
    {"embed", "text", v_cls, "truncate", v_1, TRI_INVALID_ARGUMENT, "truncate"},
    {"embed", "text", v_cls, "cache", v_true, TRI_OK, ""},
    {"classify", "text", v_cls, "cache", v_1, TRI_INVALID_ARGUMENT, "cache"},
    {"embed", "text", v_cls, "cache_salt", v_cls, TRI_OK, ""},
    {"embed", "text", v_cls, "caller", v_cls, TRI_OK, ""},
    {"classify", "text", v_cls, "caller", v_true, TRI_INVALID_ARGUMENT, "caller"},
    {"classify", "text", v_cls, "cache_salt", v_true, TRI_INVALID_ARGUMENT, "cache_salt"},
    {"embed", "text", v_cls, "normalize", v_1, TRI_INVALID_ARGUMENT, "normalize"},
    {"embed", "text", v_cls, "activation", v_softmax, TRI_UNKNOWN_FIELD, "activation"},
    {"embed", "text", v_cls, "priority", v_huge, TRI_OUT_OF_RANGE, "priority"},
    {"embed", "text", v_cls, "deadline_ms", v_minus, TRI_OUT_OF_RANGE, "deadline_ms"},
    {"embed", "text", v_cls, "max_tokens", v_1, TRI_UNKNOWN_FIELD, "max_tokens"},
    {"embed", "prompt", v_cls, NULL, NULL, TRI_UNKNOWN_FIELD, "prompt"},
    {"classify", "text", v_cls, "activation", v_softmax, TRI_OK, ""},
    {"classify", "text", v_cls, "activation", v_cls, TRI_INVALID_ARGUMENT, "activation"},
    {"classify", "text", v_cls, "activation", v_empty, TRI_INVALID_ARGUMENT, "activation"},
    {"classify", "text", v_cls, "pooling", v_cls, TRI_UNKNOWN_FIELD, "pooling"},
    {"classify", "text", v_cls, "normalize", v_true, TRI_UNKNOWN_FIELD, "normalize"},
    {"classify", NULL, NULL, NULL, NULL, TRI_INVALID_ARGUMENT, "text"},
};

static void put(msgpack_packer *k, const char *key, value_fn value) {
  if (!key) return;
  msgpack_pack_str_with_body(k, key, strlen(key));
  value(k);
}

START_TEST(test_refusals) {
  const struct refusal *r = &refusals[_i];
  msgpack_sbuffer b;
  msgpack_packer k;
  tri_client_msg m;
  uint64_t id = 0;
  tri_error err = {0};
  tri_arena *a = arena();
  msgpack_sbuffer_init(&b);
  msgpack_packer_init(&k, &b, msgpack_sbuffer_write);
  msgpack_pack_map(&k, (size_t)(3 + (r->key != NULL) + (r->key2 != NULL)));
  put(&k, "v", v_1);
  msgpack_pack_str_with_body(&k, "op", 2);
  msgpack_pack_str_with_body(&k, r->op, strlen(r->op));
  put(&k, "id", v_1);
  put(&k, r->key, r->value);
  put(&k, r->key2, r->value2);
  tri_status st = tri_client_msg_unpack(b.data, b.size, a, &m, &id, &err);
  ck_assert_msg(st == r->status, "case %d: %s %s", _i, tri_status_name(st), err.message);
  ck_assert_str_eq(err.field, r->field);
  ck_assert(!st || strlen(err.message) > 8);
  ck_assert_ptr_null(strchr(err.message, '\x1b'));
  msgpack_sbuffer_destroy(&b);
  tri_arena_destroy(a);
}
END_TEST

/* ---- replies ---- */

static tri_status through_server(const tri_server_msg *in, tri_arena *a, tri_server_msg *out, tri_error *err) {
  static tri_buf buf;
  *err = (tri_error){0};
  ck_assert_int_eq(tri_server_msg_pack(in, &buf), TRI_OK);
  return tri_server_msg_unpack(buf.data, buf.len, a, out, err);
}

START_TEST(test_replies) {
  static tri_server_msg in, out;
  tri_arena *a = arena();
  tri_error err;
  in = (tri_server_msg){.op = TRI_REPLY_EMBEDDING,
                        .id = 3,
                        .embed = {.values = values, .num_values = 6, .prompt_tokens = 9, .queue_ms = 1, .total_ms = 2}};
  ck_assert_int_eq(through_server(&in, a, &out, &err), TRI_OK);
  ck_assert(out.op == TRI_REPLY_EMBEDDING && out.id == 3 && out.embed.num_values == 6);
  ck_assert(!memcmp(out.embed.values, values, sizeof values) && out.embed.prompt_tokens == 9);
  ck_assert(out.embed.queue_ms == 1 && out.embed.total_ms == 2 && !out.embed.num_labels);
  tri_wire_str labels[] = {str("no"), str("yes"), str("")}, tokens[] = {str("##a"), str("\xff")};
  in = (tri_server_msg){
      .op = TRI_REPLY_SCORES,
      .id = 4,
      .embed = {
          .values = values, .num_values = 3, .num_labels = 3, .labels = labels, .activation = TRI_ACTIVATION_SOFTMAX}};
  ck_assert_int_eq(through_server(&in, a, &out, &err), TRI_OK);
  ck_assert(out.embed.num_labels == 3 && same(out.embed.labels[1], "yes") && !out.embed.labels[2].len);
  ck_assert(!out.embed.num_tokens && out.embed.activation == TRI_ACTIVATION_SOFTMAX);
  in.embed.num_tokens = 2;
  in.embed.tokens = tokens;
  in.embed.num_values = 6;
  ck_assert_int_eq(through_server(&in, a, &out, &err), TRI_OK);
  ck_assert(out.embed.num_tokens == 2 && same(out.embed.tokens[0], "##a") && same(out.embed.tokens[1], "\xff"));
  ck_assert(out.embed.num_values == 6);
  /* numbers that are not those of the rows and labels */
  static const size_t wrong[] = {0, 1, 3, 5};
  for (size_t i = 0; i < 4; i++) {
    in.embed.num_values = wrong[i];
    ck_assert_int_eq(through_server(&in, a, &out, &err), TRI_CORRUPT);
    ck_assert_str_eq(err.field, "scores");
  }
  in.embed.num_labels = 0;
  ck_assert_int_eq(through_server(&in, a, &out, &err), TRI_CORRUPT);
  tri_arena_destroy(a);
}
END_TEST

/* The largest answer fits into a message, and what is larger is refused on arrival. */
START_TEST(test_largest) {
  static tri_server_msg in, out;
  tri_arena *a = arena();
  tri_error err;
  size_t most = TRI_WIRE_MAX_RESULT / sizeof(float);
  float *many = calloc(most + 1, sizeof *many);
  in = (tri_server_msg){.op = TRI_REPLY_EMBEDDING, .id = 3, .embed = {.values = many, .num_values = most}};
  ck_assert_int_eq(through_server(&in, a, &out, &err), TRI_OK);
  in.embed.num_values = most + 1;
  ck_assert_int_eq(through_server(&in, a, &out, &err), TRI_TOO_LARGE);
  ck_assert_str_eq(err.field, "embedding");
  free(many);
  tri_arena_destroy(a);
}
END_TEST

START_TEST(test_results) {
  static tri_buf buf;
  static tri_replica_msg out;
  tri_arena *a = arena();
  tri_error err = {0};
  tri_replica_result results[] = {{7, 5, values, 6}, {UINT64_MAX, UINT64_MAX, values, 1}, {8, 0, NULL, 0}};
  tri_replica_msg in = {
      .op = TRI_REPLICA_EMBED_RESULTS, .seq = 2, .embed_results = {.epoch = 4, .num = 3, .results = results}};
  ck_assert_int_eq(tri_replica_msg_pack(&in, &buf), TRI_OK);
  ck_assert_int_eq(tri_replica_msg_unpack(buf.data, buf.len, a, &out, &err), TRI_OK);
  const tri_replica_results *r = &out.embed_results;
  ck_assert(out.op == TRI_REPLICA_EMBED_RESULTS && r->epoch == 4 && r->num == 3);
  ck_assert(r->results[0].job == 7 && r->results[0].waited_ns == 5 && r->results[1].job == UINT64_MAX &&
            !r->results[2].num_values);
  ck_assert(r->results[0].num_values == 6 && !memcmp(r->results[0].values, values, sizeof values));
  /* an array that claims more elements than there are bytes for */
  static const char claims[] = "\x85\xa1v\x01\xa2op\xad"
                               "embed_results\xa3seq\x01\xa5"
                               "epoch\x01\xa7results\xdd\x00\xff\xff\xff";
  err = (tri_error){0};
  ck_assert_int_ne(tri_replica_msg_unpack(claims, sizeof claims - 1, a, &out, &err), TRI_OK);
  ck_assert(err.message[0]);
  tri_arena_destroy(a);
}
END_TEST

START_TEST(test_names) {
  tri_activation x;
  ck_assert(tri_activation_parse("none", &x) && x == TRI_ACTIVATION_NONE && !strcmp(tri_activation_name(x), "none"));
  ck_assert(!tri_activation_parse("relu", &x));
  ck_assert(!tri_activation_name(TRI_ACTIVATION_UNSET) && !tri_activation_name((tri_activation)99));
}
END_TEST

Suite *suite_wire_embed(void) {
  Suite *suite = suite_create("wire_embed");
  TCase *t = tcase_create("wire_embed");
  tcase_add_test(t, test_embed);
  tcase_add_test(t, test_classify);
  tcase_add_loop_test(t, test_refusals, 0, (int)(sizeof refusals / sizeof *refusals));
  tcase_add_test(t, test_replies);
  tcase_add_test(t, test_largest);
  tcase_add_test(t, test_results);
  tcase_add_test(t, test_names);
  suite_add_tcase(suite, t);
  return suite;
}
