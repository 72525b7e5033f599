/* SPDX-License-Identifier: Apache-2.0 */
/* msgpack: a writer, a checked cursor, and records described by tables.
 *
 * tri_unpack_check walks a whole message before anybody looks at a value: one map, nothing after it, depth <=
 * TRI_WIRE_MAX_DEPTH, every count <= the bytes left, no extension types. The cursor then reads those bytes in place; it
 * allocates nothing, so msgpack-c's unpacker, which trusts counts and builds a tree, is not used. */
#ifndef TRI_COMM_WIRE_PACK_H
#define TRI_COMM_WIRE_PACK_H

#include "comm/wire/client.h"

/* ---- writing: a failure (memory, TRI_WIRE_MAX_MESSAGE) sticks and is returned by tri_pack_end ---- */

typedef struct tri_pack {
  tri_buf *out;
  tri_status status;
} tri_pack;

tri_pack tri_pack_begin(tri_buf *out); /* empties out */
tri_status tri_pack_end(tri_pack *p);
void tri_pack_u64(tri_pack *p, uint64_t v);
void tri_pack_i64(tri_pack *p, int64_t v);
void tri_pack_f64(tri_pack *p, double v);
void tri_pack_f32(tri_pack *p, float v);
void tri_pack_bool(tri_pack *p, bool v);
void tri_pack_str(tri_pack *p, const char *s, size_t len);
void tri_pack_bin(tri_pack *p, const void *data, size_t len);
void tri_pack_array(tri_pack *p, uint32_t count); /* count values follow */
void tri_pack_map(tri_pack *p, uint32_t count);   /* count pairs follow */
#define tri_pack_lit(p, literal) tri_pack_str((p), (literal), sizeof(literal) - 1)
/* A map whose size is known when it ends: open returns what close needs. At most 65535 pairs. */
size_t tri_pack_map_open(tri_pack *p);
void tri_pack_map_close(tri_pack *p, size_t mark, uint32_t count);

/* ---- reading ---- */

typedef enum tri_value_kind {
  TRI_V_NIL,
  TRI_V_BOOL,
  TRI_V_UINT,
  TRI_V_NEGATIVE,
  TRI_V_FLOAT,
  TRI_V_STR,
  TRI_V_BIN,
  TRI_V_ARRAY,
  TRI_V_MAP,
} tri_value_kind;

typedef struct tri_value {
  tri_value_kind kind;
  union {
    bool b;
    uint64_t u;
    int64_t i; /* TRI_V_NEGATIVE */
    double f;
    struct {
      const char *s;
      size_t len;
    };              /* STR, BIN: in place */
    uint32_t count; /* ARRAY: values, MAP: pairs; they follow */
  };
} tri_value;

typedef struct tri_unpack {
  const uint8_t *p, *end;
} tri_unpack;

/* tri_wire_first is the same for bytes that may continue after the map. */
tri_status tri_unpack_check(const void *data, size_t len, tri_error *err);
/* The next value, or the head of an array or map. False at the end (never before it in checked bytes). */
bool tri_unpack_next(tri_unpack *u, tri_value *v);
bool tri_unpack_skip(tri_unpack *u);               /* one value with all that it contains */
const char *tri_value_kind_name(tri_value_kind k); /* "a string" */

/* ---- records ---- */

typedef enum tri_field_type {
  TRI_FT_U64,
  TRI_FT_U32,
  TRI_FT_I64,
  TRI_FT_F64,
  TRI_FT_BOOL,
  TRI_FT_STR,     /* tri_wire_str */
  TRI_FT_TEXT,    /* tri_wire_str that may also come as binary */
  TRI_FT_RID,     /* tri_request_id: 16 bytes, or 32 hexadecimal digits with or without dashes */
  TRI_FT_ENUM,    /* an enum as a name out of names */
  TRI_FT_IDS,     /* const uint32_t * and, at count_offset, size_t: binary little-endian or an array */
  TRI_FT_TEXTS,   /* const tri_wire_str * and, at count_offset, uint32_t: array of strings, or of binary */
  TRI_FT_RECORDS, /* array of maps described by sub; uint32_t at count_offset; inline [max_count], or an arena pointer
                     when that is 0 */
  TRI_FT_CUSTOM,  /* by a tri_codec */
} tri_field_type;

enum {
  TRI_FF_REQUIRED = 1,
  TRI_FF_OMIT = 2,         /* not written when it equals def (numbers), is absent (strings) or empty (arrays) */
  TRI_FF_UNLESS_GIVEN = 4, /* of a field with `has`: written as well when not given but other than def */
};

typedef struct tri_unpacker {
  tri_arena *arena;
  tri_error *err;
  void *extra; /* of custom readers */
} tri_unpacker;

/* How a CUSTOM field is read and written. `at` is base + offset. */
struct tri_field;
typedef struct tri_codec {
  /* v has been read already, what it contains has not. */
  tri_status (*read)(tri_unpacker *d, const struct tri_field *f, tri_unpack *u, const tri_value *v, void *at);
  void (*write)(tri_pack *p, const void *at); /* the value, without the key */
  bool (*present)(const void *at);            /* with TRI_FF_OMIT; NULL: never written */
} tri_codec;

typedef struct tri_field {
  const char *name;
  uint8_t name_len, type, flags;
  uint32_t offset;
  uint32_t has; /* offset of a bool "was given", plus 1; 0: none. Written only when that is true */
  uint32_t count_offset, max_count, elem_size;
  double def;
  double min, max;          /* of a number; both 0: what the type holds */
  const char *const *names; /* ENUM */
  uint32_t num_names;
  const struct tri_fields *sub;
  const tri_codec *codec; /* CUSTOM */
} tri_field;

typedef struct tri_fields {
  const tri_field *field;
  uint32_t count; /* <= 60 */
  bool strict;    /* refuse unknown names */
  bool nil_is_absent;
} tri_fields;
#define TRI_FIELDS(array) .field = (array), .count = sizeof(array) / sizeof((array)[0])
#define TRI_F(type_, name_, S, m)                                                                                      \
  .name = name_, .name_len = sizeof(name_) - 1, .type = (type_), .offset = offsetof(S, m)

#define TRI_CUSTOM(name_, S, m, codec_) TRI_F(TRI_FT_CUSTOM, name_, S, m), .codec = &(codec_)
/* A field whose codec takes the whole record. */
#define TRI_CUSTOM_ALL(name_, codec_)                                                                                  \
  .name = name_, .name_len = sizeof(name_) - 1, .type = TRI_FT_CUSTOM, .codec = &(codec_)

/* Writes the fields of base as pairs, and returns how many. */
uint32_t tri_fields_write(tri_pack *p, const tri_fields *t, const void *base);
/* Reads `pairs` pairs into base. envelope: names (NULL-terminated) that have been read before and are skipped. Names
 * the first field at fault. */
tri_status tri_fields_read(tri_unpacker *d, const tri_fields *t, tri_unpack *u, uint32_t pairs,
                           const char *const *envelope, void *base);

/* Helpers of custom readers: the same checks and words as for fields of a table. */
tri_status tri_read_i64(tri_unpacker *d, const char *name, const tri_value *v, double min, double max, int64_t *out);
tri_status tri_read_num(tri_unpacker *d, const char *name, const tri_value *v, double min, double max, double *out);
tri_status tri_read_ids(tri_unpacker *d, const char *name, tri_unpack *u, const tri_value *v, const uint32_t **ids,
                        size_t *count);
/* Binary array of float32. */
tri_status tri_read_floats(tri_unpacker *d, const char *name, const tri_value *v, size_t count, const float **out);
tri_status tri_read_wrong(tri_unpacker *d, const char *name, const char *wanted, const tri_value *v);
/* A name from the network, fit for a message: at most 60 printable characters. Returns buf. */
const char *tri_wire_printable(const char *s, size_t len, char buf[64]);

/* ---- messages: a map with the envelope {v, op, <seq_name>} and the fields of the op ---- */

typedef struct tri_message {
  const char *op;
  tri_fields table;
  size_t base; /* what the table's offsets count from, within the message */
  size_t size; /* of what reading clears first; 0: the caller has given the message its defaults */
} tri_message;

typedef struct tri_protocol {
  const tri_message *messages; /* [num], by op */
  uint32_t num;
  const char *seq_name;
  size_t body; /* of the union of all ops, within the message */
} tri_protocol;

typedef struct tri_envelope {
  int op;
  uint64_t seq;
  uint32_t pairs;    /* of the whole map */
  tri_unpack fields; /* from after the head of the map on */
} tri_envelope;

/* Reads an envelope in whatever order. *seq_early (may be NULL) is set as soon as it is known. */
tri_status tri_envelope_read(tri_unpacker *d, const tri_protocol *p, const void *data, size_t len, tri_envelope *out,
                             uint64_t *seq_early);
/* Reads the fields after it into the message. */
tri_status tri_message_read(tri_unpacker *d, const tri_protocol *p, tri_envelope *e, void *message);
tri_status tri_message_write(const tri_protocol *p, unsigned op, uint64_t seq, const void *message, tri_buf *out);

#endif
