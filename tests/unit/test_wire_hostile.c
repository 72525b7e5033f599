/* SPDX-License-Identifier: Apache-2.0 */
/* Hostile bytes in the place of messages. */
#include <check.h>
#include <msgpack.h>
#include <string.h>

#include "comm/wire/replica.h"
#include "comm/wire/pack.h"
#include "tests/unit/wire_samples.h"

Suite *suite_wire_hostile(void);

/* ---- hostile bytes ---- */

START_TEST(malformed) {
  static const struct {
    const char *bytes;
    size_t len;
  } cases[] = {
#define CASE(literal) {literal, sizeof(literal) - 1}
      CASE(""),
      CASE("\xc0"),
      CASE("\x90"),
      CASE("\xc1"),
      CASE("\x80\x80"),             /* something after the map */
      CASE("\xdf\xff\xff\xff\xff"), /* four billion pairs */
      CASE("\xde\xff\xff"),
      CASE("\x81\xa1x\xdd\xff\xff\xff\xff"), /* four billion values */
      CASE("\x81\xa1x\xdc\xff\xff"),
      CASE("\x81\xa1x\xdf\x80\x00\x00\x00\x01\x01"), /* 2 * pairs overflows 32 bits */
      CASE("\x81\xa1x\xdb\xff\xff\xff\xff"
           "a"), /* strings and binary longer than what is left */
      CASE("\x81\xa1x\xc6\xff\xff\xff\xff"
           "a"),
      CASE("\x81\xa1x\xc4\x02"
           "a"),
      CASE("\x81\xa1x\xd9\x02"
           "a"),
      CASE("\x81\xa1x\xd4\x01"
           "a"), /* extension types */
      CASE("\x81\xa1x\xd6\xff"
           "abcd"),
      CASE("\x81\xa1x\xc7\x01\x05"
           "a"),
      CASE("\x81\xa1x\xc1"),
      CASE("\x81\xa1x"),
      CASE("\x81\xa1x\xcb\x00"),
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    for (int kind = 0; kind < 3; kind++) {
      tri_error err = {0};
      tri_arena *a = arena();
      char *copy = malloc(cases[i].len ? cases[i].len : 1); /* exact size: a read beyond it is seen */
      memcpy(copy, cases[i].bytes, cases[i].len);
      ck_assert_msg(unpack((which)kind, copy, cases[i].len, a, &err) == TRI_CORRUPT, "case %zu", i);
      free(copy);
      tri_arena_destroy(a);
    }
}
END_TEST

START_TEST(depth) {
  /* {"x": [[[...]]]}: the map is level 1, so seven arrays pass the walk and eight do not. */
  for (int arrays = 1; arrays < 200000; arrays = arrays < 12 ? arrays + 1 : arrays * 7) {
    char *b = malloc((size_t)arrays + 4);
    memcpy(b, "\x81\xa1x", 3);
    memset(b + 3, 0x91, (size_t)arrays);
    b[3 + arrays] = 1;
    tri_error err = {0};
    tri_status st = tri_unpack_check(b, (size_t)arrays + 4, &err);
    ck_assert_msg(st == (arrays <= 7 ? TRI_OK : TRI_CORRUPT), "%d arrays: %s", arrays, err.message);
    free(b);
  }
}
END_TEST

/* Frames of several messages: each is found, in order, and what is behind a whole one does not count against it. */
START_TEST(several_in_a_frame) {
  char frame[1000];
  size_t len = 0, used = 0, ends[3];
  tri_buf buf = {0};
  tri_error err = {0};
  tri_arena *a = arena();
  static tri_server_msg m;
  for (uint64_t i = 0; i < 3; i++) {
    m.op = TRI_REPLY_ACCEPTED;
    m.id = 70 + i;
    ck_assert_int_eq(tri_server_msg_pack(&m, &buf), TRI_OK);
    memcpy(frame + len, buf.data, buf.len);
    ends[i] = len += buf.len;
  }
  for (size_t at = 0, i = 0; i < 3; i++, at += used) {
    ck_assert_int_eq(tri_wire_first(frame + at, len - at, &used, &err), TRI_OK);
    ck_assert_uint_eq(at + used, ends[i]);
    ck_assert_int_eq(tri_server_msg_unpack(frame + at, used, a, &m, &err), TRI_OK);
    ck_assert_uint_eq(m.id, 70 + i);
  }
  /* One unpacking is one message, and a message that is cut off has no end. */
  ck_assert_int_eq(tri_server_msg_unpack(frame, len, a, &m, &err), TRI_CORRUPT);
  ck_assert_int_eq(tri_client_msg_unpack(frame, len, a, &(tri_client_msg){0}, &(uint64_t){0}, &err), TRI_CORRUPT);
  for (size_t n = 0; n < ends[0]; n++) ck_assert_int_eq(tri_wire_first(frame, n, &used, &err), TRI_CORRUPT);
  frame[ends[0]] = 1; /* what follows is looked at when its turn comes */
  ck_assert_int_eq(tri_wire_first(frame, len, &used, &err), TRI_OK);
  ck_assert_uint_eq(used, ends[0]);
  ck_assert_int_eq(tri_wire_first(frame + used, len - used, &used, &err), TRI_CORRUPT);
  tri_buf_free(&buf);
  tri_arena_destroy(a);
}
END_TEST

START_TEST(too_large) {
  char *b = calloc(1, TRI_WIRE_MAX_MESSAGE + 1);
  tri_error err = {0};
  b[0] = (char)0x80;
  ck_assert_int_eq(tri_unpack_check(b, TRI_WIRE_MAX_MESSAGE + 1, &err), TRI_TOO_LARGE);
  /* and nothing larger is made */
  tri_client_msg m = {.op = TRI_OP_SUBMIT, .id = 1};
  tri_buf buf = {0};
  tri_submit_init(&m.submit);
  m.submit.prompt = (tri_wire_str){b, TRI_WIRE_MAX_MESSAGE};
  ck_assert_int_eq(tri_client_msg_pack(&m, &buf), TRI_TOO_LARGE);
  m.submit.prompt.len = TRI_WIRE_MAX_MESSAGE - 100;
  ck_assert_int_eq(tri_client_msg_pack(&m, &buf), TRI_OK);
  tri_buf_free(&buf);
  free(b);
}
END_TEST

START_TEST(truncated) {
  sample s[MAX_SAMPLES];
  int n = make_samples(s);
  for (int i = 0; i < n; i++) {
    tri_arena *a = arena();
    for (size_t len = 0; len < s[i].buf.len; len++) {
      tri_error err = {0};
      char *copy = malloc(len ? len : 1);
      memcpy(copy, s[i].buf.data, len);
      tri_status st = unpack(s[i].kind, copy, len, a, &err);
      ck_assert_msg(st == TRI_CORRUPT, "%s cut to %zu of %zu: %s", s[i].name, len, s[i].buf.len, tri_status_name(st));
      ck_assert(err.message[0]);
      free(copy);
    }
    tri_arena_destroy(a);
  }
  free_samples(s, n);
}
END_TEST

START_TEST(bit_flips) {
  sample s[MAX_SAMPLES];
  int n = make_samples(s);
  unsigned refused = 0;
  for (int i = 0; i < n; i++) {
    char *copy = malloc(s[i].buf.len);
    for (size_t bit = 0; bit < 8 * s[i].buf.len; bit++) {
      tri_error err = {0};
      tri_arena *a = arena();
      memcpy(copy, s[i].buf.data, s[i].buf.len);
      copy[bit / 8] = (char)(copy[bit / 8] ^ 1 << (bit % 8));
      tri_status st = unpack(s[i].kind, copy, s[i].buf.len, a, &err);
      refused += st != TRI_OK;
      ck_assert_msg(!st || err.message[0], "%s, bit %zu: %s without a word", s[i].name, bit, tri_status_name(st));
      tri_arena_destroy(a);
    }
    free(copy);
  }
  ck_assert_uint_gt(refused, 1000);
  free_samples(s, n);
}
END_TEST

Suite *suite_wire_hostile(void) {
  Suite *s = suite_create("wire_hostile");
  ADD_CASE("hostile", malformed, depth, several_in_a_frame, too_large, truncated, bit_flips);
  return s;
}
