/* SPDX-License-Identifier: Apache-2.0 */
/* The words of every refusal of a message. */
#include <check.h>
#include <msgpack.h>
#include <stdlib.h>
#include <string.h>

#include "comm/wire/replica.h"
#include "comm/wire/sampling.h"
#include "tests/unit/wire_samples.h"

Suite *suite_wire_refused(void);

/* ---- refusals: one request field after another ---- */

typedef struct refusal {
  const char *key;
  void (*value)(msgpack_packer *k);
  tri_status status;
  const char *field;
} refusal;

static void v_str(msgpack_packer *k) { msgpack_pack_str_with_body(k, "text", 4); }
static const char many_bytes[129];
static const char many_letters[] = "abcdefghijklmnopqrstuvwxyz-ABCDEFGHIJKLMNOPQRSTUVWXYZ-0123456789.";
static void v_str64(msgpack_packer *k) { msgpack_pack_str_with_body(k, many_letters, 64); }
static void v_str65(msgpack_packer *k) { msgpack_pack_str_with_body(k, many_letters, 65); }
static void v_line(msgpack_packer *k) { msgpack_pack_str_with_body(k, "a\nb", 3); }
static void v_str128(msgpack_packer *k) { msgpack_pack_str_with_body(k, many_bytes, 128); }
static void v_str129(msgpack_packer *k) { msgpack_pack_str_with_body(k, many_bytes, 129); }
static void v_empty(msgpack_packer *k) { msgpack_pack_str_with_body(k, "", 0); }
static void v_never(msgpack_packer *k) { msgpack_pack_str_with_body(k, "never", 5); }
static void v_true(msgpack_packer *k) { msgpack_pack_true(k); }
static void v_false(msgpack_packer *k) { msgpack_pack_false(k); }
static void v_nil(msgpack_packer *k) { msgpack_pack_nil(k); }
static void v_0(msgpack_packer *k) { msgpack_pack_int(k, 0); }
static void v_1(msgpack_packer *k) { msgpack_pack_int(k, 1); }
static void v_4(msgpack_packer *k) { msgpack_pack_int(k, 4); }
static void v_65(msgpack_packer *k) { msgpack_pack_int(k, 65); }
static void v_minus_2(msgpack_packer *k) { msgpack_pack_int(k, -2); }
static void v_huge(msgpack_packer *k) { msgpack_pack_uint64(k, UINT64_MAX); }
static void v_lowest(msgpack_packer *k) { msgpack_pack_int64(k, INT64_MIN); }
static void v_1_5(msgpack_packer *k) { msgpack_pack_double(k, 1.5); }
static void v_101(msgpack_packer *k) { msgpack_pack_double(k, 101); }
static void v_nan(msgpack_packer *k) { msgpack_pack_double(k, NAN); }
static void v_inf(msgpack_packer *k) { msgpack_pack_float(k, INFINITY); }
static void v_bin3(msgpack_packer *k) { msgpack_pack_bin_with_body(k, "abc", 3); }
static void v_array0(msgpack_packer *k) { msgpack_pack_array(k, 0); }
static void v_array_nil(msgpack_packer *k) { msgpack_pack_array(k, 1), msgpack_pack_nil(k); }
static void v_array_big(msgpack_packer *k) { msgpack_pack_array(k, 1), msgpack_pack_uint64(k, 1ULL << 32); }
static void v_stops17(msgpack_packer *k) {
  msgpack_pack_array(k, 17);
  for (int i = 0; i < 17; i++) v_str(k);
}
static void v_ints33(msgpack_packer *k) {
  msgpack_pack_array(k, 33);
  for (int i = 0; i < 33; i++) v_1(k);
}
static void v_map0(msgpack_packer *k) { msgpack_pack_map(k, 0); }
static void v_map_1_1(msgpack_packer *k) { msgpack_pack_map(k, 1), v_1(k), v_1(k); }
static void v_map_digits(msgpack_packer *k) {
  msgpack_pack_map(k, 1), msgpack_pack_str_with_body(k, "4294967295", 10), v_minus_2(k);
}
static void v_map_over(msgpack_packer *k) {
  msgpack_pack_map(k, 1), msgpack_pack_str_with_body(k, "4294967296", 10), v_1(k);
}
static void v_map_word(msgpack_packer *k) { msgpack_pack_map(k, 1), v_str(k), v_1(k); }
static void v_map_101(msgpack_packer *k) { msgpack_pack_map(k, 1), v_1(k), v_101(k); }
static void v_map_nan(msgpack_packer *k) { msgpack_pack_map(k, 1), v_1(k), v_nan(k); }
static void v_map_twice(msgpack_packer *k) {
  msgpack_pack_map(k, 2), v_1(k), v_1(k), msgpack_pack_str_with_body(k, "1", 1), v_1(k);
}
static void put_word(msgpack_packer *k, const char *word) { msgpack_pack_str_with_body(k, word, strlen(word)); }
static void v_constraint(msgpack_packer *k, const char *kind, size_t len) { /* len SIZE_MAX: no text */
  static char text[(256 << 10) + 1];
  msgpack_pack_map(k, len == SIZE_MAX ? 1 : 2);
  put_word(k, "kind"), put_word(k, kind);
  if (len == SIZE_MAX) return;
  put_word(k, "text"), msgpack_pack_str(k, len), msgpack_pack_str_body(k, text, len);
}
static void v_frame(msgpack_packer *k, const char *key, size_t len) { /* len SIZE_MAX: a number */
  static char text[257];
  msgpack_pack_map(k, 2), put_word(k, "kind"), put_word(k, "json_object"), put_word(k, key);
  if (len == SIZE_MAX)
    msgpack_pack_int(k, 2);
  else
    msgpack_pack_str(k, len), msgpack_pack_str_body(k, text, len);
}
static void v_begin(msgpack_packer *k) { v_frame(k, "begin", 256); }
static void v_begin_long(msgpack_packer *k) { v_frame(k, "begin", 257); }
static void v_begin_2(msgpack_packer *k) { v_frame(k, "begin", SIZE_MAX); }
static void v_separator_long(msgpack_packer *k) { v_frame(k, "separator", 257); }
static void v_end_long(msgpack_packer *k) { v_frame(k, "end", 257); }
static void v_most_text(msgpack_packer *k) { v_frame(k, "most", 1); }
static void v_most_alone(msgpack_packer *k) { v_frame(k, "most", SIZE_MAX); }
static void v_most(msgpack_packer *k, int most) {
  msgpack_pack_map(k, 3), put_word(k, "kind"), put_word(k, "json_object"), put_word(k, "separator"), put_word(k, ",");
  put_word(k, "most"), msgpack_pack_int(k, most);
}
static void v_most_0(msgpack_packer *k) { v_most(k, 0); }
static void v_most_16(msgpack_packer *k) { v_most(k, 16); }
static void v_most_17(msgpack_packer *k) { v_most(k, 17); }
static void v_schema(msgpack_packer *k) { v_constraint(k, "json_schema", 256 << 10); }
static void v_schema_long(msgpack_packer *k) { v_constraint(k, "json_schema", (256 << 10) + 1); }
static void v_schema_none(msgpack_packer *k) { v_constraint(k, "json_schema", SIZE_MAX); }
static void v_object(msgpack_packer *k) { v_constraint(k, "json_object", SIZE_MAX); }
static void v_object_text(msgpack_packer *k) { v_constraint(k, "json_object", 2); }
static void v_regex(msgpack_packer *k) { v_constraint(k, "regex", 2); }
static void v_kind_1(msgpack_packer *k) { msgpack_pack_map(k, 1), put_word(k, "kind"), v_1(k); }
static void v_map_513(msgpack_packer *k) {
  msgpack_pack_map(k, 513);
  for (int i = 0; i < 513; i++) msgpack_pack_int(k, i), v_1(k);
}
static void v_ids(msgpack_packer *k, size_t n) {
  static const uint8_t zeros[4096];
  msgpack_pack_bin(k, n * 4);
  for (size_t at = 0; at < n * 4; at += sizeof zeros)
    msgpack_pack_bin_body(k, zeros, n * 4 - at < sizeof zeros ? n * 4 - at : sizeof zeros);
}
static void v_ids_131072(msgpack_packer *k) { v_ids(k, 131072); }
static void v_ids_131073(msgpack_packer *k) { v_ids(k, 131073); }
static void v_map_512(msgpack_packer *k) {
  msgpack_pack_map(k, 512);
  for (int i = 0; i < 512; i++) msgpack_pack_int(k, i * 1024), v_1(k);
}

#define BAD TRI_INVALID_ARGUMENT
#define RANGE TRI_OUT_OF_RANGE
static const refusal refusals[] = {
    {"max_tokens", v_4, TRI_OK, ""},
    {"max_tokens", v_nil, TRI_OK, ""},
    {"max_tokens", v_0, RANGE, "max_tokens"},
    {"max_tokens", v_minus_2, RANGE, "max_tokens"},
    {"max_tokens", v_huge, RANGE, "max_tokens"},
    {"max_tokens", v_lowest, RANGE, "max_tokens"},
    {"max_tokens", v_1_5, BAD, "max_tokens"},
    {"max_tokens", v_str, BAD, "max_tokens"},
    {"max_tokens", v_map0, BAD, "max_tokens"},
    {"min_tokens", v_65, RANGE, "min_tokens"},
    {"temperature", v_1, TRI_OK, ""},
    {"temperature", v_nan, RANGE, "temperature"},
    {"temperature", v_inf, RANGE, "temperature"},
    {"temperature", v_101, RANGE, "temperature"},
    {"temperature", v_minus_2, RANGE, "temperature"},
    {"temperature", v_true, BAD, "temperature"},
    {"top_p", v_1_5, RANGE, "top_p"},
    {"min_p", v_1_5, RANGE, "min_p"},
    {"top_k", v_0, TRI_OK, ""},
    {"top_k", v_minus_2, RANGE, "top_k"},
    {"top_k", v_huge, RANGE, "top_k"},
    {"repetition_penalty", v_0, RANGE, "repetition_penalty"},
    {"presence_penalty", v_4, RANGE, "presence_penalty"},
    {"frequency_penalty", v_4, RANGE, "frequency_penalty"},
    {"seed", v_huge, TRI_OK, ""},
    {"seed", v_minus_2, RANGE, "seed"},
    {"seed", v_1_5, BAD, "seed"},
    {"n", v_65, RANGE, "n"},
    {"n", v_0, RANGE, "n"},
    {"logprobs", v_true, TRI_OK, ""},
    {"logprobs", v_false, TRI_OK, ""},
    {"logprobs", v_4, TRI_OK, ""},
    {"logprobs", v_65, RANGE, "logprobs"},
    {"logprobs", v_str, BAD, "logprobs"},
    {"top_logprobs", v_4, TRI_OK, ""},
    {"top_logprobs", v_true, BAD, "top_logprobs"},
    {"top_logprobs", v_65, RANGE, "top_logprobs"},
    {"stop", v_str, TRI_OK, ""},
    {"stop", v_array0, TRI_OK, ""},
    {"stop", v_empty, RANGE, "stop"},
    {"stop", v_array_nil, BAD, "stop"},
    {"stop", v_stops17, RANGE, "stop"},
    {"stop", v_1, BAD, "stop"},
    {"stop_token_ids", v_array0, TRI_OK, ""},
    {"stop_token_ids", v_array_big, BAD, "stop_token_ids"},
    {"stop_token_ids", v_ints33, RANGE, "stop_token_ids"},
    {"stop_token_ids", v_bin3, BAD, "stop_token_ids"},
    {"allowed_token_ids", v_ints33, TRI_OK, ""},
    {"allowed_token_ids", v_nil, TRI_OK, ""},
    {"allowed_token_ids", v_array0, RANGE, "allowed_token_ids"},
    {"allowed_token_ids", v_ids_131072, TRI_OK, ""},
    {"allowed_token_ids", v_ids_131073, RANGE, "allowed_token_ids"},
    {"allowed_token_ids", v_array_big, BAD, "allowed_token_ids"},
    {"allowed_token_ids", v_bin3, BAD, "allowed_token_ids"},
    {"allowed_token_ids", v_4, BAD, "allowed_token_ids"},
    {"logit_bias", v_map_1_1, TRI_OK, ""},
    {"logit_bias", v_map_digits, TRI_OK, ""},
    {"constraint", v_schema, TRI_OK, ""},
    {"constraint", v_object, TRI_OK, ""},
    {"constraint", v_schema_long, TRI_TOO_LARGE, "constraint"},
    {"constraint", v_schema_none, BAD, "constraint"},
    {"constraint", v_object_text, BAD, "constraint"},
    {"constraint", v_begin, TRI_OK, ""},
    {"constraint", v_begin_long, TRI_TOO_LARGE, "constraint"},
    {"constraint", v_begin_2, BAD, "constraint"},
    {"constraint", v_separator_long, TRI_TOO_LARGE, "constraint"},
    {"constraint", v_end_long, TRI_TOO_LARGE, "constraint"},
    {"constraint", v_most_text, BAD, "constraint"},
    {"constraint", v_most_alone, BAD, "constraint"},
    {"constraint", v_most_0, RANGE, "constraint"},
    {"constraint", v_most_16, TRI_OK, ""},
    {"constraint", v_most_17, RANGE, "constraint"},
    {"constraint", v_regex, BAD, "constraint"},
    {"constraint", v_kind_1, BAD, "constraint"},
    {"constraint", v_map0, BAD, "constraint"},
    {"constraint", v_map_1_1, TRI_UNKNOWN_FIELD, "constraint"},
    {"constraint", v_str, BAD, "constraint"},
    {"logit_bias", v_map_512, TRI_OK, ""},
    {"logit_bias", v_map_over, BAD, "logit_bias"},
    {"logit_bias", v_map_word, BAD, "logit_bias"},
    {"logit_bias", v_map_101, RANGE, "logit_bias"},
    {"logit_bias", v_map_nan, RANGE, "logit_bias"},
    {"logit_bias", v_map_twice, BAD, "logit_bias"},
    {"logit_bias", v_map_513, RANGE, "logit_bias"},
    {"logit_bias", v_array0, BAD, "logit_bias"},
    {"ignore_eos", v_1, BAD, "ignore_eos"},
    {"echo", v_str, BAD, "echo"},
    {"add_special_tokens", v_str, BAD, "add_special_tokens"},
    {"stream", v_0, BAD, "stream"},
    {"cache", v_false, TRI_OK, ""},
    {"cache", v_0, BAD, "cache"},
    {"cache", v_str, BAD, "cache"},
    {"cache_salt", v_empty, TRI_OK, ""},
    {"cache_salt", v_str128, TRI_OK, ""},
    {"cache_salt", v_str129, TRI_TOO_LARGE, "cache_salt"},
    {"cache_salt", v_1, BAD, "cache_salt"},
    {"caller", v_empty, TRI_OK, ""},
    {"caller", v_str64, TRI_OK, ""},
    {"caller", v_str65, TRI_TOO_LARGE, "caller"},
    {"caller", v_line, BAD, "caller"},
    {"caller", v_1, BAD, "caller"},
    {"external_id", v_str65, TRI_OK, ""},
    {"external_id", v_line, BAD, "external_id"},
    {"cache_salt", v_bin3, BAD, "cache_salt"},
    {"on_disconnect", v_str, BAD, "on_disconnect"},
    {"priority", v_minus_2, TRI_OK, ""},
    {"priority", v_huge, RANGE, "priority"},
    {"deadline_ms", v_minus_2, RANGE, "deadline_ms"},
    {"request_id", v_str, BAD, "request_id"},
    {"request_id", v_bin3, BAD, "request_id"},
    {"model", v_1, BAD, "model"},
    {"token_ids", v_ints33, BAD, "token_ids"}, /* beside prompt */
    {"num_beams", v_1, TRI_OK, ""},
    {"num_beams", v_4, TRI_OK, ""},
    {"num_beams", v_0, RANGE, "num_beams"},
    {"num_beams", v_65, RANGE, "num_beams"},
    {"num_beams", v_1_5, BAD, "num_beams"},
    {"best_of", v_4, TRI_UNSUPPORTED, "best_of"},
    {"best_of", v_1, TRI_OK, ""},
    {"length_penalty", v_1_5, TRI_OK, ""},
    {"length_penalty", v_minus_2, TRI_OK, ""},
    {"length_penalty", v_101, RANGE, "length_penalty"},
    {"length_penalty", v_nan, RANGE, "length_penalty"},
    {"length_penalty", v_true, BAD, "length_penalty"},
    {"early_stopping", v_false, TRI_OK, ""},
    {"early_stopping", v_true, TRI_OK, ""},
    {"early_stopping", v_never, TRI_OK, ""},
    {"early_stopping", v_str, BAD, "early_stopping"},
    {"early_stopping", v_empty, BAD, "early_stopping"},
    {"early_stopping", v_1, BAD, "early_stopping"},
    {"messages", v_array0, TRI_UNSUPPORTED, "messages"},
    {"input", v_str, TRI_UNKNOWN_FIELD, "input"},
    {"temprature", v_1, TRI_UNKNOWN_FIELD, "temprature"},
    {"", v_1, TRI_UNKNOWN_FIELD, ""},
};

static void begin(msgpack_sbuffer *b, msgpack_packer *k, uint32_t pairs, const char *op, uint64_t id) {
  msgpack_sbuffer_init(b);
  msgpack_packer_init(k, b, msgpack_sbuffer_write);
  msgpack_pack_map(k, pairs);
  msgpack_pack_str_with_body(k, "v", 1);
  msgpack_pack_int(k, 1);
  msgpack_pack_str_with_body(k, "op", 2);
  msgpack_pack_str_with_body(k, op, strlen(op));
  msgpack_pack_str_with_body(k, "id", 2);
  msgpack_pack_uint64(k, id);
}

START_TEST(fields_refused) {
  const refusal *r = &refusals[_i];
  msgpack_sbuffer b;
  msgpack_packer k;
  tri_client_msg m;
  uint64_t id = 0;
  tri_error err = {0};
  tri_arena *a = arena();
  begin(&b, &k, 5, "submit", 77);
  msgpack_pack_str_with_body(&k, "prompt", 6);
  msgpack_pack_str_with_body(&k, "x", 1);
  msgpack_pack_str_with_body(&k, r->key, strlen(r->key));
  r->value(&k);
  tri_status st = tri_client_msg_unpack(b.data, b.size, a, &m, &id, &err);
  ck_assert_msg(st == r->status, "%s (case %d): %s %s", r->key, _i, tri_status_name(st), err.message);
  ck_assert_uint_eq(id, 77);
  if (st) {
    ck_assert_str_eq(err.field, r->field);
    ck_assert_msg(strlen(err.message) > 10, "%s", err.message);
  }
  msgpack_sbuffer_destroy(&b);
  tri_arena_destroy(a);
}
END_TEST

static tri_status decode_bytes(const char *bytes, size_t len, uint64_t *id, tri_error *err) {
  tri_client_msg m;
  tri_arena *a = arena();
  *err = (tri_error){0};
  tri_status st = tri_client_msg_unpack(bytes, len, a, &m, id, err);
  tri_arena_destroy(a);
  return st;
}
#define DECODE(literal) decode_bytes(literal, sizeof(literal) - 1, &id, &err)

START_TEST(envelope_refused) {
  uint64_t id;
  tri_error err;
  ck_assert_int_eq(DECODE("\x83\xa1v\x01\xa2op\xa6status\xa2id\x05"), TRI_OK);
  ck_assert_int_eq(DECODE("\x83\xa2id\x05\xa2op\xa6status\xa1v\x01"), TRI_OK);
  ck_assert_uint_eq(id, 5);
  ck_assert_int_eq(DECODE("\x82\xa2op\xa6status\xa2id\x05"), BAD);
  ck_assert_str_eq(err.field, "v");
  ck_assert_uint_eq(id, 5);
  ck_assert_int_eq(DECODE("\x82\xa1v\x01\xa2id\x05"), BAD);
  ck_assert_str_eq(err.field, "op");
  ck_assert_int_eq(DECODE("\x82\xa1v\x01\xa2op\xa6status"), BAD);
  ck_assert_str_eq(err.field, "id");
  ck_assert_int_eq(DECODE("\x83\xa1v\x02\xa2op\xa6status\xa2id\x05"), TRI_UNSUPPORTED);
  ck_assert_str_eq(err.field, "v");
  ck_assert_int_eq(DECODE("\x83\xa1v\x01\xa2op\xa6statut\xa2id\x05"), TRI_UNSUPPORTED);
  ck_assert_str_eq(err.field, "op");
  ck_assert_int_eq(DECODE("\x83\xa1v\x01\xa2op\xa6status\xa2id\xff"), BAD);
  ck_assert_str_eq(err.field, "id");
  /* twice */
  ck_assert_int_eq(DECODE("\x84\xa1v\x01\xa2op\xa6status\xa2id\x05\xa2id\x06"), BAD);
  ck_assert_int_eq(DECODE("\x84\xa1v\x01\xa1v\x01\xa2op\xa6status\xa2id\x05"), BAD);
  ck_assert_int_eq(DECODE("\x85\xa1v\x01\xa2op\xa6submit\xa2id\x05\xa6prompt\xa1x\xa6prompt\xa1y"), BAD);
  ck_assert_str_eq(err.field, "prompt");
  /* a field of another op, a key that is no string, a name that is no text */
  ck_assert_int_eq(DECODE("\x84\xa1v\x01\xa2op\xa6status\xa2id\x05\xa1n\x01"), TRI_UNKNOWN_FIELD);
  ck_assert_int_eq(DECODE("\x84\xa1v\x01\xa2op\xa6status\xa2id\x05\x05\x01"), BAD);
  ck_assert_int_eq(DECODE("\x84\xa1v\x01\xa2op\xa6status\xa2id\x05\xa3\x1b[H\x01"), TRI_UNKNOWN_FIELD);
  ck_assert_str_eq(err.field, "?[H");
  ck_assert_int_eq(DECODE("\x84\xa1v\x01\xa2op\xa5"
                          "embed\xa2id\x05\xa5input\xa1x"),
                   TRI_UNKNOWN_FIELD);
  /* cancel needs exactly one name, attach its request_id, submit a prompt */
  ck_assert_int_eq(DECODE("\x83\xa1v\x01\xa2op\xa6"
                          "cancel\xa2id\x05"),
                   BAD);
  ck_assert_int_eq(DECODE("\x83\xa1v\x01\xa2op\xa6"
                          "attach\xa2id\x05"),
                   BAD);
  ck_assert_str_eq(err.field, "request_id");
  ck_assert_int_eq(DECODE("\x83\xa1v\x01\xa2op\xa6submit\xa2id\x05"), BAD);
  ck_assert_str_eq(err.field, "prompt");
  ck_assert_int_eq(DECODE("\x84\xa1v\x01\xa2op\xa6submit\xa2id\x05\xa9token_ids\xc4\x00"), BAD);
  ck_assert_int_eq(DECODE("\x84\xa1v\x01\xa2op\xa6submit\xa2id\x05\xa6prompt\xc4\x02\xff\xfe"), TRI_OK);
}
END_TEST

/* A token's parts follow from its flags, and each has its range. */
START_TEST(token_parts_refused) {
  static const struct {
    const char *bytes; /* of the one element */
    size_t len;
    const char *message;
  } cases[] = {
      {"\x95\x01\x02\x03\x04\xcd\x00\x08", 8, "element 0 must be an array of 6 to 12"},
      {"\x9d\x01\x02\x03\x04\x08\x00\x01\x01\x01\x01\x01\x01\x01", 14, "element 0 must be an array of 6 to 12"},
      {"\x96\x01\x02\x03\x04\x10\x00", 7, "element 0 contradicts its flags"},
      {"\x97\x01\x02\x03\x04\x08\x00\x01", 8, "element 0 contradicts its flags"},
      {"\x97\x01\x02\x03\x04\x04\x00\x01", 8, "element 0 contradicts its flags"},
      {"\x97\x01\x02\x03\x04\x10\x00\xff", 8, "part 6 of element 0 is out of range"},
      {"\x97\x01\x02\x03\x04\x10\x00\xcf\x00\x00\x00\x01\x00\x00\x00\x00", 16, "part 6 of element 0 is out of range"},
      {"\x97\x01\x02\x03\x04\x40\x00\xff", 8, "part 8 of element 0 is out of range"},
      {"\x96\x01\x02\x03\x04\x08\x7f", 7, "part 5 of element 0 is out of range"},
  };
  static const tri_replica_token one = {.job = 1, .choice = 2, .token = 3, .offset = 4, .flags = TRI_TOKEN_STOP_ID};
  static tri_replica_msg in, out;
  in = (tri_replica_msg){.op = TRI_REPLICA_TOKENS, .tokens = {.epoch = 1, .step = 2, .num = 1, .tokens = &one}};
  tri_buf buf = {0};
  tri_arena *a;
  ck_assert_int_eq(tri_arena_create(4096, &a), TRI_OK);
  ck_assert_int_eq(tri_replica_msg_pack(&in, &buf), TRI_OK);
  size_t before = buf.len - 7; /* the message ends with its only element */
  ck_assert_mem_eq(buf.data + before, "\x96\x01\x02\x03\x04\x08", 6);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char bytes[256];
    tri_error err = {0};
    memcpy(bytes, buf.data, before);
    memcpy(bytes + before, cases[i].bytes, cases[i].len);
    ck_assert_int_eq(tri_replica_msg_unpack(bytes, before + cases[i].len, a, &out, &err), TRI_INVALID_ARGUMENT);
    ck_assert_str_eq(err.field, "tokens");
    ck_assert_msg(strstr(err.message, cases[i].message) != NULL, "case %zu: %s", i, err.message);
  }
  tri_buf_free(&buf);
  tri_arena_destroy(a);
}
END_TEST

/* Tokens that have been drawn must be those that the counts say. */
START_TEST(drawn_refused) {
  static const uint32_t ids[5] = {1, 2, 3, 4, 5}, ended[2] = {TRI_SAMPLED_ENDED, TRI_SAMPLED_ENDED};
  static const struct {
    uint32_t counts[3];
    size_t num_counts, num_sampled;
    uint64_t num_scored;
    const char *field;
  } cases[] = {{{2, 3}, 2, 5, 5, NULL},
               {{TRI_SAMPLED_ENDED, 0}, 2, 0, 0, NULL},
               {{0}, 0, 0, 3, NULL},
               {{2, 3}, 2, 4, 0, "drawn"},
               {{0}, 0, 1, 0, "drawn"},
               {{UINT32_MAX - 1, 3}, 2, 1, 0, "drawn"},
               {{TRI_SAMPLED_ENDED, 3}, 2, 2, 0, "drawn"},
               {{2, 1, 2}, 3, 5, 0, "drawn_counts"},
               {{5}, 1, 5, 0, "drawn_counts"},
               {{2, 3}, 2, 5, 6, "num_scored"}};
  static tri_replica_msg in, out;
  tri_buf buf = {0};
  tri_arena *a = arena();
  for (size_t i = 0; i <= sizeof cases / sizeof *cases; i++) {
    bool all = i == sizeof cases / sizeof *cases;
    const char *field = all ? "drawn_counts" : cases[i].field;
    tri_error err = {0};
    in = (tri_replica_msg){.op = TRI_REPLICA_ASSIGN, .assign = {.token_ids = ids, .num_token_ids = 5, .sampled = ids}};
    tri_sampling_init(&in.assign.sampling);
    in.assign.sampling.n = 2;
    in.assign.num_sampled = all ? 0 : cases[i].num_sampled;
    in.assign.sampled_counts = all ? ended : cases[i].counts;
    in.assign.num_sampled_counts = all ? 2 : cases[i].num_counts;
    in.assign.num_scored = all ? 0 : cases[i].num_scored;
    ck_assert_int_eq(tri_replica_msg_pack(&in, &buf), TRI_OK);
    tri_status st = tri_replica_msg_unpack(buf.data, buf.len, a, &out, &err);
    ck_assert_msg((st == TRI_OK) == !field, "case %zu: %s", i, err.message);
    if (field) ck_assert_str_eq(err.field, field);
  }
  tri_buf_free(&buf);
  tri_arena_destroy(a);
}
END_TEST

START_TEST(unknown_reply_fields) {
  msgpack_sbuffer b;
  msgpack_packer k;
  static tri_server_msg m;
  tri_error err = {0};
  tri_arena *a = arena();
  begin(&b, &k, 5, "error", 3);
  msgpack_pack_str_with_body(&k, "novelty", 7);
  msgpack_pack_map(&k, 1), v_1(&k), v_array_nil(&k);
  msgpack_pack_str_with_body(&k, "code", 4);
  v_str(&k);
  ck_assert_msg(tri_server_msg_unpack(b.data, b.size, a, &m, &err) == TRI_OK, "%s", err.message);
  ck_str(m.error.code, "text");
  msgpack_sbuffer_destroy(&b);
  tri_arena_destroy(a);
}
END_TEST

/* An array of more ids than a group could be sent is refused by its head: nothing is read of it. */
START_TEST(test_too_many_ids) {
  enum { MOST = TRI_WIRE_MAX_MESSAGE / 4 };
  for (uint32_t n = MOST; n <= MOST + 1; n++) {
    msgpack_sbuffer b;
    msgpack_packer k;
    msgpack_sbuffer_init(&b);
    msgpack_packer_init(&k, &b, msgpack_sbuffer_write);
    msgpack_pack_map(&k, 4);
    msgpack_pack_str_with_body(&k, "v", 1), v_1(&k);
    msgpack_pack_str_with_body(&k, "op", 2), msgpack_pack_str_with_body(&k, "submit", 6);
    msgpack_pack_str_with_body(&k, "id", 2), msgpack_pack_int(&k, 77);
    msgpack_pack_str_with_body(&k, "token_ids", 9), msgpack_pack_array(&k, n);
    v_nil(&k); /* no id: an error of its own, where it is looked at */
    for (uint32_t i = 1; i < n; i++) v_1(&k);
    tri_arena *arena = NULL;
    tri_client_msg *m = calloc(1, sizeof *m);
    tri_error err = {0};
    uint64_t id = 0;
    ck_assert_int_eq(tri_arena_create(4096, &arena), TRI_OK);
    tri_status st = tri_client_msg_unpack(b.data, b.size, arena, m, &id, &err);
    ck_assert_int_eq(st, n > MOST ? TRI_NO_CAPACITY : TRI_INVALID_ARGUMENT);
    ck_assert_str_eq(err.field, "token_ids");
    ck_assert_uint_eq(id, 77);
    tri_arena_destroy(arena);
    free(m);
    msgpack_sbuffer_destroy(&b);
  }
}
END_TEST

Suite *suite_wire_refused(void) {
  Suite *s = suite_create("wire_refused");
  ADD_CASE("refused", envelope_refused, unknown_reply_fields, token_parts_refused, drawn_refused);
  TCase *c = tcase_create("fields");
  tcase_add_loop_test(c, fields_refused, 0, sizeof refusals / sizeof *refusals);
  tcase_add_test(c, test_too_many_ids);
  suite_add_tcase(s, c);
  return s;
}
