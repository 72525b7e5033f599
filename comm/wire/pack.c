/* SPDX-License-Identifier: Apache-2.0 */
/* msgpack. Writing goes through msgpack-c's packer; reading is a cursor of our own that trusts no byte: every length
 * and count is compared with the bytes that are left. */
#include "comm/wire/pack.h"

#include <math.h>
#include <msgpack.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "binary arrays are copied as they are");

/* ---- writing ---- */

/* Inline for the bytes for which there is room: tri_buf_append for each value makes packing three times slower. */
static inline int append(void *data, const char *bytes, size_t len) {
  tri_pack *p = data;
  tri_buf *b = p->out;
  if (p->status == TRI_OK && len > b->cap - b->len) p->status = tri_buf_reserve(b, len);
  if (p->status != TRI_OK) return -1;
  if (len) memcpy(b->data + b->len, bytes, len);
  b->len += len;
  return 0;
}

/* msgpack-c's packer is two pointers; made anew for each value it costs nothing once inlined. */
#define PACKER(p) (&(msgpack_packer){.data = (p), .callback = append})

/* The limit bounds growth alone: a buffer whose memory is larger already is checked by tri_pack_end. */
tri_pack tri_pack_begin(tri_buf *out) {
  out->len = 0;
  out->max = TRI_WIRE_MAX_MESSAGE;
  return (tri_pack){.out = out};
}

tri_status tri_pack_end(tri_pack *p) {
  if (!p->status && p->out->len > TRI_WIRE_MAX_MESSAGE) p->status = TRI_TOO_LARGE;
  return p->status;
}

void tri_pack_u64(tri_pack *p, uint64_t v) { msgpack_pack_uint64(PACKER(p), v); }
void tri_pack_i64(tri_pack *p, int64_t v) { msgpack_pack_int64(PACKER(p), v); }
void tri_pack_f64(tri_pack *p, double v) { msgpack_pack_double(PACKER(p), v); }
void tri_pack_f32(tri_pack *p, float v) { msgpack_pack_float(PACKER(p), v); }
void tri_pack_array(tri_pack *p, uint32_t count) { msgpack_pack_array(PACKER(p), count); }
void tri_pack_map(tri_pack *p, uint32_t count) { msgpack_pack_map(PACKER(p), count); }

void tri_pack_bool(tri_pack *p, bool v) {
  if (v)
    msgpack_pack_true(PACKER(p));
  else
    msgpack_pack_false(PACKER(p));
}

void tri_pack_str(tri_pack *p, const char *s, size_t len) {
  msgpack_pack_str(PACKER(p), len);
  msgpack_pack_str_body(PACKER(p), s, len);
}

void tri_pack_bin(tri_pack *p, const void *data, size_t len) {
  msgpack_pack_bin(PACKER(p), len);
  msgpack_pack_bin_body(PACKER(p), data, len);
}

/* map 16, three bytes whatever the count: the count is filled in at close, and no pass over the fields counts them
 * first. */
size_t tri_pack_map_open(tri_pack *p) {
  size_t mark = p->out->len;
  append(p, "\xde\0\0", 3); /* map 16 */
  return mark;
}

void tri_pack_map_close(tri_pack *p, size_t mark, uint32_t count) {
  if (p->status) return;
  p->out->data[mark + 1] = (char)(count >> 8);
  p->out->data[mark + 2] = (char)count;
}

/* ---- reading ---- */

static inline uint64_t big_endian(const uint8_t *p, unsigned bytes) {
  uint64_t v = 0;
  for (unsigned i = 0; i < bytes; i++) v = v << 8 | p[i];
  return v;
}

static inline bool take_bytes(tri_unpack *u, tri_value *v, tri_value_kind kind, uint64_t len) {
  if (len > (size_t)(u->end - u->p)) return false;
  v->kind = kind;
  v->s = (const char *)u->p;
  v->len = (size_t)len;
  u->p += len;
  return true;
}

static inline bool take_count(tri_unpack *u, tri_value *v, tri_value_kind kind, uint64_t count) {
  /* Each value takes a byte at least: a count beyond that is a lie. */
  if (count > (size_t)(u->end - u->p) / (kind == TRI_V_MAP ? 2 : 1)) return false;
  v->kind = kind;
  v->count = (uint32_t)count;
  return true;
}

/* msgpack's signed types may carry positive numbers: they are made TRI_V_UINT, so that readers look at one kind for
 * them. */
static inline void set_signed(tri_value *v, int64_t i) {
  v->kind = i < 0 ? TRI_V_NEGATIVE : TRI_V_UINT;
  v->i = i;
}

/* Heads of 0xc0..0xdf: how many bytes of number follow the type byte. */
static const uint8_t head_bytes[32] = {
    [0xc4 - 0xc0] = 1, [0xc5 - 0xc0] = 2, [0xc6 - 0xc0] = 4,                    /* bin */
    [0xca - 0xc0] = 4, [0xcb - 0xc0] = 8,                                       /* float */
    [0xcc - 0xc0] = 1, [0xcd - 0xc0] = 2, [0xce - 0xc0] = 4, [0xcf - 0xc0] = 8, /* uint */
    [0xd0 - 0xc0] = 1, [0xd1 - 0xc0] = 2, [0xd2 - 0xc0] = 4, [0xd3 - 0xc0] = 8, /* int */
    [0xd9 - 0xc0] = 1, [0xda - 0xc0] = 2, [0xdb - 0xc0] = 4,                    /* str */
    [0xdc - 0xc0] = 2, [0xdd - 0xc0] = 4, [0xde - 0xc0] = 2, [0xdf - 0xc0] = 4, /* array, map */
};

/* Nil, booleans and what is not allowed have no bytes of number: n is 0, and x with it. */
static bool next_wide(tri_unpack *u, uint8_t type, tri_value *v) {
  unsigned n = head_bytes[type - 0xc0];
  if (n > (size_t)(u->end - u->p)) return false;
  uint64_t x = big_endian(u->p, n);
  u->p += n;
  switch (type) {
  case 0xc0: v->kind = TRI_V_NIL; return true;
  case 0xc2:
  case 0xc3:
    v->kind = TRI_V_BOOL;
    v->b = type & 1;
    return true;
  case 0xc4:
  case 0xc5:
  case 0xc6: return take_bytes(u, v, TRI_V_BIN, x);
  case 0xca: {
    uint32_t bits = (uint32_t)x;
    float f;
    memcpy(&f, &bits, sizeof f);
    v->kind = TRI_V_FLOAT;
    v->f = (double)f;
    return true;
  }
  case 0xcb:
    v->kind = TRI_V_FLOAT;
    memcpy(&v->f, &x, sizeof x);
    return true;
  case 0xcc:
  case 0xcd:
  case 0xce:
  case 0xcf:
    v->kind = TRI_V_UINT;
    v->u = x;
    return true;
  case 0xd0: set_signed(v, (int8_t)x); return true;
  case 0xd1: set_signed(v, (int16_t)x); return true;
  case 0xd2: set_signed(v, (int32_t)x); return true;
  case 0xd3: set_signed(v, (int64_t)x); return true;
  case 0xd9:
  case 0xda:
  case 0xdb: return take_bytes(u, v, TRI_V_STR, x);
  case 0xdc:
  case 0xdd: return take_count(u, v, TRI_V_ARRAY, x);
  case 0xde:
  case 0xdf: return take_count(u, v, TRI_V_MAP, x);
  default: return false; /* 0xc1 and the extension types */
  }
}

static inline bool next_value(tri_unpack *u, tri_value *v) {
  if (u->p >= u->end) return false;
  uint8_t type = *u->p++;
  if (type < 0x80) {
    v->kind = TRI_V_UINT;
    v->u = type;
    return true;
  }
  if (type >= 0xe0) {
    v->kind = TRI_V_NEGATIVE;
    v->i = (int8_t)type;
    return true;
  }
  if (type >= 0xc0) return next_wide(u, type, v);
  if (type >= 0xa0) return take_bytes(u, v, TRI_V_STR, type & 31);
  if (type >= 0x90) return take_count(u, v, TRI_V_ARRAY, type & 15);
  return take_count(u, v, TRI_V_MAP, type & 15);
}

bool tri_unpack_next(tri_unpack *u, tri_value *v) { return next_value(u, v); }

/* Reads one value and everything in it, without recursion. Only malformed or too deep bytes make it false. */
static bool walk(tri_unpack *u, int max_depth) {
  /* By depth, the values that the open array or map still has to come; [0] is for the one value that is walked. */
  uint64_t left[TRI_WIRE_MAX_DEPTH + 1];
  int depth = 0;
  left[0] = 1;
  for (;;) {
    while (left[depth] == 0)
      if (depth-- == 0) return true;
    tri_value v;
    if (!next_value(u, &v)) return false;
    left[depth]--;
    if (v.kind < TRI_V_ARRAY) continue;
    if (depth == max_depth) return false;
    left[++depth] = v.kind == TRI_V_MAP ? 2 * (uint64_t)v.count : v.count;
  }
}

bool tri_unpack_skip(tri_unpack *u) { return walk(u, TRI_WIRE_MAX_DEPTH); }

tri_status tri_wire_first(const void *data, size_t len, size_t *used, tri_error *err) {
  tri_unpack u = {data, (const uint8_t *)data + len};
  tri_value v;
  if (len > TRI_WIRE_MAX_MESSAGE)
    return tri_fail(err, TRI_TOO_LARGE, NULL, "a message has at most %d bytes, this one %zu", TRI_WIRE_MAX_MESSAGE,
                    len);
  tri_unpack head = u;
  if (!next_value(&head, &v) || v.kind != TRI_V_MAP)
    return tri_fail(err, TRI_CORRUPT, NULL, "a message is one msgpack map");
  if (!walk(&u, TRI_WIRE_MAX_DEPTH))
    return tri_fail(
        err, TRI_CORRUPT, NULL,
        "the msgpack is cut off, is nested deeper than %d or has a type that is not allowed (near byte %zu of %zu)",
        TRI_WIRE_MAX_DEPTH, (size_t)(u.p - (const uint8_t *)data), len);
  *used = (size_t)(u.p - (const uint8_t *)data);
  return TRI_OK;
}

tri_status tri_unpack_check(const void *data, size_t len, tri_error *err) {
  size_t used = 0;
  TRI_CHECK(tri_wire_first(data, len, &used, err));
  if (used != len) return tri_fail(err, TRI_CORRUPT, NULL, "%zu bytes follow the message's map", len - used);
  return TRI_OK;
}

const char *tri_value_kind_name(tri_value_kind k) {
  static const char *const names[] = {"nil",    "a boolean", "an integer", "a negative integer", "a float", "a string",
                                      "binary", "an array",  "a map"};
  return names[k];
}

/* 60 characters, "..." and the NUL are what buf has room for. */
const char *tri_wire_printable(const char *s, size_t len, char buf[64]) {
  size_t n = len < 60 ? len : 60;
  for (size_t i = 0; i < n; i++) buf[i] = s[i] >= 0x20 && s[i] < 0x7f ? s[i] : '?';
  memcpy(buf + n, len > n ? "..." : "", len > n ? 4 : 1);
  return buf;
}
