/* SPDX-License-Identifier: Apache-2.0 */
#include "text/tokenizer/files/model_proto.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "text/unicode/unicode.h"

/* ---- protobuf ---- */

typedef struct cursor {
  const unsigned char *p, *end;
} cursor;

/* A field as it lies there: its number and, by its wire type, an integer or bytes. */
typedef struct item {
  uint64_t number;
  enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 } type;
  uint64_t value;  /* VARINT, FIXED32 */
  tok_bytes bytes; /* BYTES */
} item;

static bool read_varint(cursor *c, uint64_t *out) {
  *out = 0;
  for (unsigned shift = 0; shift < 64 && c->p < c->end; shift += 7) {
    unsigned char b = *c->p++;
    *out |= (uint64_t)(b & 0x7f) << shift;
    if (!(b & 0x80)) return true;
  }
  return false;
}

static bool skip(cursor *c, uint64_t n) {
  if (n > (uint64_t)(c->end - c->p)) return false;
  c->p += n;
  return true;
}

static bool read_fixed32(cursor *c, uint64_t *out) {
  const unsigned char *p = c->p;
  if (!skip(c, 4)) return false;
  *out = p[0] | (uint64_t)p[1] << 8 | (uint64_t)p[2] << 16 | (uint64_t)p[3] << 24;
  return true;
}

static bool read_bytes(cursor *c, tok_bytes *out) {
  uint64_t n;
  if (!read_varint(c, &n)) return false;
  *out = (tok_bytes){(const char *)c->p, (size_t)n};
  return skip(c, n);
}

/* False: the bytes are no field. Groups, which no message here has, are none either. */
static bool read_item(cursor *c, item *out) {
  uint64_t tag;
  if (!read_varint(c, &tag) || !(tag >> 3)) return false;
  out->number = tag >> 3;
  switch (tag & 7) {
  case VARINT: out->type = VARINT; return read_varint(c, &out->value);
  case FIXED64: out->type = FIXED64; return skip(c, 8);
  case BYTES: out->type = BYTES; return read_bytes(c, &out->bytes);
  case FIXED32: out->type = FIXED32; return read_fixed32(c, &out->value);
  default: return false;
  }
}

/* ---- messages ---- */

enum { PIECES = 1, TRAINER = 2, NORMALIZER = 3, DENORMALIZER = 5 };

typedef struct reading {
  tok_model_proto *m;
  size_t at; /* of the piece */
  tri_error *err;
  char name[TRI_ERROR_FIELD];
} reading;

static tri_status refuse(reading *r, tri_status st, const char *what) {
  return tri_fail(r->err, st, r->name, "%s%s%s", r->name, r->name[0] ? ": " : "", what);
}

/* A field that a message is read for; others are passed over. */
typedef struct known_field {
  uint64_t number;
  int type;
  const char *name;
  tri_status (*take)(reading *r, const item *i);
} known_field;

static tri_status read_message(reading *r, tok_bytes bytes, const char *path, const known_field *fields, size_t count) {
  cursor c = {(const unsigned char *)bytes.s, (const unsigned char *)bytes.s + bytes.len};
  item i;
  while (c.p < c.end) {
    snprintf(r->name, sizeof r->name, "%s", path);
    if (!read_item(&c, &i)) return refuse(r, TRI_CORRUPT, "is cut off or no message of protobuf");
    for (size_t k = 0; k < count; k++) {
      if (fields[k].number != i.number) continue;
      snprintf(r->name, sizeof r->name, "%s%s%s", path, *path ? "." : "", fields[k].name);
      if (fields[k].type != (int)i.type) return refuse(r, TRI_CORRUPT, "has another wire type than this field has");
      TRI_CHECK(fields[k].take(r, &i));
    }
  }
  return TRI_OK;
}
#define READ_MESSAGE(r, bytes, path, fields) read_message(r, bytes, path, fields, sizeof fields / sizeof *fields)

/* ---- pieces ---- */

static tri_status take_text(reading *r, const item *i) {
  const char *s = i->bytes.s;
  size_t len = i->bytes.len;
  if (!len) return refuse(r, TRI_CORRUPT, "is empty");
  if (memchr(s, 0, len)) return refuse(r, TRI_UNSUPPORTED, "holds a NUL, which is not supported");
  if (tok_utf8_valid_prefix(s, len) != len) return refuse(r, TRI_CORRUPT, "is not UTF-8");
  r->m->pieces[r->at].text = s;
  r->m->pieces[r->at].len = len;
  return TRI_OK;
}

static tri_status take_score(reading *r, const item *i) {
  uint32_t bits = (uint32_t)i->value;
  float score;
  memcpy(&score, &bits, sizeof score);
  if (!isfinite(score)) return refuse(r, TRI_OUT_OF_RANGE, "is no finite number");
  r->m->pieces[r->at].score = score;
  return TRI_OK;
}

static tri_status take_kind(reading *r, const item *i) {
  if (i->value < TOK_PIECE_NORMAL || i->value > TOK_PIECE_BYTE) return refuse(r, TRI_CORRUPT, "is no type of a piece");
  r->m->pieces[r->at].kind = (tok_piece_kind)i->value;
  return TRI_OK;
}

static tri_status take_piece(reading *r, const item *i) {
  static const known_field fields[] = {
      {1, BYTES, "piece", take_text}, {2, FIXED32, "score", take_score}, {3, VARINT, "type", take_kind}};
  char path[48];
  snprintf(path, sizeof path, "pieces[%zu]", r->at);
  r->m->pieces[r->at].kind = TOK_PIECE_NORMAL;
  TRI_CHECK(READ_MESSAGE(r, i->bytes, path, fields));
  snprintf(r->name, sizeof r->name, "%s.piece", path);
  if (!r->m->pieces[r->at].len) return refuse(r, TRI_CORRUPT, "is empty");
  r->at++;
  return TRI_OK;
}

/* ---- what the trainer and the normalizer say ---- */

#define TAKE_BOOL(member)                                                                                              \
  static tri_status take_##member(reading *r, const item *i) {                                                         \
    r->m->member = i->value != 0;                                                                                      \
    return TRI_OK;                                                                                                     \
  }
#define TAKE_BYTES(member)                                                                                             \
  static tri_status take_##member(reading *r, const item *i) {                                                         \
    r->m->member = i->bytes;                                                                                           \
    return TRI_OK;                                                                                                     \
  }
TAKE_BOOL(byte_fallback)
TAKE_BOOL(space_after)
TAKE_BOOL(add_dummy_prefix)
TAKE_BOOL(remove_extra_whitespaces)
TAKE_BOOL(escape_whitespaces)
TAKE_BYTES(bos_piece)
TAKE_BYTES(eos_piece)
TAKE_BYTES(charsmap)

static tri_status take_model_type(reading *r, const item *i) {
  r->m->model_type = i->value;
  return TRI_OK;
}

static tri_status take_denormalizer_map(reading *r, const item *i) {
  r->m->denormalizes = i->bytes.len != 0;
  return TRI_OK;
}

static tri_status take_trainer(reading *r, const item *i) {
  static const known_field fields[] = {{3, VARINT, "model_type", take_model_type},
                                       {24, VARINT, "treat_whitespace_as_suffix", take_space_after},
                                       {35, VARINT, "byte_fallback", take_byte_fallback},
                                       {46, BYTES, "bos_piece", take_bos_piece},
                                       {47, BYTES, "eos_piece", take_eos_piece}};
  return READ_MESSAGE(r, i->bytes, "trainer_spec", fields);
}

static tri_status take_normalizer(reading *r, const item *i) {
  static const known_field fields[] = {{2, BYTES, "precompiled_charsmap", take_charsmap},
                                       {3, VARINT, "add_dummy_prefix", take_add_dummy_prefix},
                                       {4, VARINT, "remove_extra_whitespaces", take_remove_extra_whitespaces},
                                       {5, VARINT, "escape_whitespaces", take_escape_whitespaces}};
  return READ_MESSAGE(r, i->bytes, "normalizer_spec", fields);
}

static tri_status take_denormalizer(reading *r, const item *i) {
  static const known_field fields[] = {{2, BYTES, "precompiled_charsmap", take_denormalizer_map}};
  return READ_MESSAGE(r, i->bytes, "denormalizer_spec", fields);
}

static tri_status count_piece(reading *r, const item *i) {
  (void)i;
  if (++r->m->count > TOK_MAX_IDS) return refuse(r, TRI_TOO_LARGE, "more tokens than are supported");
  return TRI_OK;
}

/* Messages nest two deep, each by a function of its own. Pieces are counted before there is memory for them. */
tri_status tok_model_proto_read(tok_model_proto *m, const char *data, size_t len, tri_error *err) {
  static const known_field counted[] = {{PIECES, BYTES, "pieces", count_piece}};
  static const known_field fields[] = {{PIECES, BYTES, "pieces", take_piece},
                                       {TRAINER, BYTES, "trainer_spec", take_trainer},
                                       {NORMALIZER, BYTES, "normalizer_spec", take_normalizer},
                                       {DENORMALIZER, BYTES, "denormalizer_spec", take_denormalizer}};
  reading r = {.m = m, .err = err};
  tok_bytes all = {data, len};
  m->model_type = 1;
  m->add_dummy_prefix = m->remove_extra_whitespaces = m->escape_whitespaces = true;
  TRI_CHECK(READ_MESSAGE(&r, all, "", counted));
  if (!m->count)
    return tri_fail(err, TRI_CORRUPT, "pieces", "pieces: there are none: is this a file of SentencePiece?");
  m->pieces = tri_calloc(m->count, sizeof *m->pieces);
  if (!m->pieces) return tri_fail(err, TRI_NO_MEMORY, "pieces", "no memory for the tokenizer");
  return READ_MESSAGE(&r, all, "", fields);
}

void tok_model_proto_free(tok_model_proto *m) {
  tri_free(m->pieces);
  tri_free(m->texts);
  *m = (tok_model_proto){0};
}
