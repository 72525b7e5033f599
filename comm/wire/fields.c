/* SPDX-License-Identifier: Apache-2.0 */
/* Records described by tables: one loop writes them, one reads them. Readers check a value's kind, range and length,
 * and name the field in the error. Nothing is allocated for a count before it has been held against the bytes that are
 * left, so that a small message cannot ask for much memory. */
#include "comm/wire/pack.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- single values ---- */

tri_status tri_read_wrong(tri_unpacker *d, const char *name, const char *wanted, const tri_value *v) {
  return tri_fail(d->err, TRI_INVALID_ARGUMENT, name, "%s must be %s, not %s", name, wanted,
                  tri_value_kind_name(v->kind));
}

static tri_status out_of_range(tri_unpacker *d, const char *name, double value, double min, double max) {
  return tri_fail(d->err, TRI_OUT_OF_RANGE, name, "%s is %.15g; allowed are %.15g to %.15g", name, value, min, max);
}

/* Limits are doubles, as the tables have them; with max <= min the type alone limits. A negative number is an integer
 * out of range, not a value of a wrong kind. */
static tri_status read_u64(tri_unpacker *d, const char *name, const tri_value *v, double min, double max,
                           uint64_t *out) {
  if (v->kind == TRI_V_NEGATIVE) return out_of_range(d, name, (double)v->i, min, max > min ? max : (double)UINT64_MAX);
  if (v->kind != TRI_V_UINT) return tri_read_wrong(d, name, "an integer", v);
  if (max > min && ((double)v->u < min || (double)v->u > max)) return out_of_range(d, name, (double)v->u, min, max);
  *out = v->u;
  return TRI_OK;
}

/* v->i is read of an unsigned value, too: up to INT64_MAX both members of the union have the same bits. */
tri_status tri_read_i64(tri_unpacker *d, const char *name, const tri_value *v, double min, double max, int64_t *out) {
  if (v->kind != TRI_V_UINT && v->kind != TRI_V_NEGATIVE) return tri_read_wrong(d, name, "an integer", v);
  bool limited = max > min;
  double x = v->kind == TRI_V_UINT ? (double)v->u : (double)v->i;
  if (v->kind == TRI_V_UINT && v->u > INT64_MAX)
    return out_of_range(d, name, x, limited ? min : (double)INT64_MIN, limited ? max : (double)INT64_MAX);
  if (limited && (x < min || x > max)) return out_of_range(d, name, x, min, max);
  *out = v->i;
  return TRI_OK;
}

/* A client's JSON may have 1 for 1.0, so integers are numbers. msgpack has NaN and infinities, which no field takes. */
tri_status tri_read_num(tri_unpacker *d, const char *name, const tri_value *v, double min, double max, double *out) {
  double x;
  if (v->kind == TRI_V_FLOAT)
    x = v->f;
  else if (v->kind == TRI_V_UINT)
    x = (double)v->u;
  else if (v->kind == TRI_V_NEGATIVE)
    x = (double)v->i;
  else
    return tri_read_wrong(d, name, "a number", v);
  if (!isfinite(x)) return tri_fail(d->err, TRI_OUT_OF_RANGE, name, "%s must be a finite number, not %f", name, x);
  if (max > min && (x < min || x > max)) return out_of_range(d, name, x, min, max);
  *out = x;
  return TRI_OK;
}

/* count elements of arena memory, at least one, so that "none" and "absent" differ. */
static void *arena_array(tri_unpacker *d, size_t count, size_t size) {
  return tri_arena_alloc(d->arena, count ? count : 1, size);
}

tri_status tri_read_ids(tri_unpacker *d, const char *name, tri_unpack *u, const tri_value *v, const uint32_t **ids,
                        size_t *count) {
  bool binary = v->kind == TRI_V_BIN;
  if (!binary && v->kind != TRI_V_ARRAY) return tri_read_wrong(d, name, "an array of ids or binary", v);
  if (binary && v->len % sizeof **ids)
    return tri_fail(d->err, TRI_INVALID_ARGUMENT, name, "%s has %zu bytes, which is no whole number of 32-bit ids",
                    name, v->len);
  size_t n = binary ? v->len / sizeof **ids : v->count; /* <= the bytes of the message */
  const size_t most = TRI_WIRE_MAX_MESSAGE / sizeof **ids;
  if (n > most) /* before any of them is looked at: a replica would not get them */
    return tri_fail(d->err, TRI_NO_CAPACITY, name, "%s has %zu ids; a message to a replica has room for %zu", name, n,
                    most);
  uint32_t *out = arena_array(d, n, sizeof *out);
  if (!out) return TRI_NO_MEMORY;
  if (binary && n) memcpy(out, v->s, v->len);
  for (size_t i = 0; !binary && i < n; i++) {
    tri_value e;
    if (!tri_unpack_next(u, &e)) return TRI_CORRUPT;
    if (e.kind != TRI_V_UINT || e.u > UINT32_MAX)
      return tri_fail(d->err, TRI_INVALID_ARGUMENT, name, "element %zu of %s is not a token id (an integer of 32 bits)",
                      i, name);
    out[i] = (uint32_t)e.u;
  }
  *ids = out;
  *count = n;
  return TRI_OK;
}

/* A copy, since values lie at any address within a message. */
tri_status tri_read_floats(tri_unpacker *d, const char *name, const tri_value *v, size_t count, const float **out) {
  if (v->kind != TRI_V_BIN || v->len != count * sizeof(float))
    return tri_fail(d->err, TRI_INVALID_ARGUMENT, name, "%s must be binary with %zu 32-bit floats", name, count);
  float *f = arena_array(d, count, sizeof *f);
  if (!f) return TRI_NO_MEMORY;
  if (count) memcpy(f, v->s, v->len);
  *out = f;
  return TRI_OK;
}

static int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  c |= 0x20;
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Dashes are passed over wherever a whole byte has ended, so that every usual way of writing a UUID is read. */
bool tri_request_id_parse(const char *s, size_t len, tri_request_id *out) {
  tri_request_id id = {0};
  int n = 0;
  for (size_t i = 0; i < len; i++) {
    if (s[i] == '-' && n % 2 == 0 && n > 0) continue;
    int h = hex_digit(s[i]);
    if (h < 0 || n == 32) return false;
    id.bytes[n / 2] = (uint8_t)(id.bytes[n / 2] << 4 | h);
    n++;
  }
  if (n != 32) return false;
  *out = id;
  return true;
}

void tri_request_id_format(const tri_request_id *id, char out[TRI_REQUEST_ID_TEXT]) {
  for (int i = 0; i < 16; i++) snprintf(out + 2 * i, 3, "%02x", id->bytes[i]);
}

static tri_status read_rid(tri_unpacker *d, const char *name, const tri_value *v, tri_request_id *out) {
  if (v->kind == TRI_V_BIN && v->len == sizeof out->bytes) {
    memcpy(out->bytes, v->s, sizeof out->bytes);
    return TRI_OK;
  }
  if (v->kind == TRI_V_STR && tri_request_id_parse(v->s, v->len, out)) return TRI_OK;
  return tri_fail(d->err, TRI_INVALID_ARGUMENT, name, "%s must be 16 bytes of binary or 32 hexadecimal digits", name);
}

static tri_status read_enum(tri_unpacker *d, const tri_field *f, const tri_value *v, unsigned *out) {
  char list[128] = "", shown[64];
  if (v->kind != TRI_V_STR) return tri_read_wrong(d, f->name, "a string", v);
  for (unsigned i = 0; i < f->num_names; i++)
    if (strlen(f->names[i]) == v->len && !memcmp(f->names[i], v->s, v->len)) {
      *out = i;
      return TRI_OK;
    }
  for (unsigned i = 0; i < f->num_names; i++) {
    size_t used = strlen(list);
    snprintf(list + used, sizeof list - used, "%s\"%s\"", i ? ", " : "", f->names[i]);
  }
  return tri_fail(d->err, TRI_INVALID_ARGUMENT, f->name, "%s is \"%s\"; it can be %s", f->name,
                  tri_wire_printable(v->s, v->len, shown), list);
}

/* The array is the arena's, the texts stay in the message: its bytes must outlive the record. */
static tri_status read_texts(tri_unpacker *d, const tri_field *f, tri_unpack *u, const tri_value *v, char *base) {
  if (v->kind != TRI_V_ARRAY) return tri_read_wrong(d, f->name, "an array of texts", v);
  tri_wire_str *all = arena_array(d, v->count, sizeof *all); /* <= the message's bytes */
  if (!all) return TRI_NO_MEMORY;
  for (uint32_t i = 0; i < v->count; i++) {
    tri_value e;
    if (!tri_unpack_next(u, &e)) return TRI_CORRUPT;
    if (e.kind != TRI_V_STR && e.kind != TRI_V_BIN) return tri_read_wrong(d, f->name, "an array of texts", &e);
    all[i] = (tri_wire_str){e.s, e.len};
  }
  *(const tri_wire_str **)(void *)(base + f->offset) = all;
  *(uint32_t *)(void *)(base + f->count_offset) = v->count;
  return TRI_OK;
}

/* Elements lie in the record itself where max_count bounds them, else in the arena. */
static tri_status read_records(tri_unpacker *d, const tri_field *f, tri_unpack *u, const tri_value *v, char *base) {
  if (v->kind != TRI_V_ARRAY) return tri_read_wrong(d, f->name, "an array", v);
  uint32_t n = v->count;
  if (f->max_count && n > f->max_count)
    return tri_fail(d->err, TRI_TOO_LARGE, f->name, "%s has %u elements; at most %u are allowed", f->name, n,
                    f->max_count);
  char *elem = base + f->offset;
  if (!f->max_count) {
    /* A map takes a byte and an element many more: bound the ratio before allocating. */
    if (n > TRI_WIRE_MAX_MESSAGE / 16)
      return tri_fail(d->err, TRI_TOO_LARGE, f->name, "%s has %u elements", f->name, n);
    elem = arena_array(d, n, f->elem_size);
    if (!elem) return TRI_NO_MEMORY;
    memcpy(base + f->offset, &elem, sizeof elem);
  } else {
    memset(elem, 0, (size_t)n * f->elem_size);
  }
  for (uint32_t i = 0; i < n; i++) {
    tri_value e;
    if (!tri_unpack_next(u, &e)) return TRI_CORRUPT;
    if (e.kind != TRI_V_MAP)
      return tri_fail(d->err, TRI_INVALID_ARGUMENT, f->name, "element %u of %s must be a map", i, f->name);
    TRI_CHECK(tri_fields_read(d, f->sub, u, e.count, NULL, elem + (size_t)i * f->elem_size));
  }
  memcpy(base + f->count_offset, &n, sizeof n);
  return TRI_OK;
}

static tri_status read_field(tri_unpacker *d, const tri_field *f, tri_unpack *u, const tri_value *v, char *base) {
  void *to = base + f->offset;
  uint64_t u64;
  unsigned e = 0;
  tri_status st;
  switch ((tri_field_type)f->type) {
  case TRI_FT_U64: return read_u64(d, f->name, v, f->min, f->max, to);
  case TRI_FT_U32:
    st = read_u64(d, f->name, v, f->min, f->max > f->min ? f->max : (double)UINT32_MAX, &u64);
    if (st == TRI_OK) *(uint32_t *)to = (uint32_t)u64;
    return st;
  case TRI_FT_I64: return tri_read_i64(d, f->name, v, f->min, f->max, to);
  case TRI_FT_F64: return tri_read_num(d, f->name, v, f->min, f->max, to);
  case TRI_FT_BOOL:
    if (v->kind != TRI_V_BOOL) return tri_read_wrong(d, f->name, "true or false", v);
    *(bool *)to = v->b;
    return TRI_OK;
  case TRI_FT_STR:
  case TRI_FT_TEXT:
    if (v->kind != TRI_V_STR && !(v->kind == TRI_V_BIN && f->type == TRI_FT_TEXT))
      return tri_read_wrong(d, f->name, "a string", v);
    if (f->max > 0 && (double)v->len > f->max)
      return tri_fail(d->err, TRI_TOO_LARGE, f->name, "%s has %zu bytes; at most %.0f are allowed", f->name, v->len,
                      f->max);
    *(tri_wire_str *)to = (tri_wire_str){v->s, v->len};
    return TRI_OK;
  case TRI_FT_RID: return read_rid(d, f->name, v, to);
  case TRI_FT_ENUM:
    st = read_enum(d, f, v, &e);
    if (st == TRI_OK) memcpy(to, &e, sizeof e);
    return st;
  case TRI_FT_IDS: return tri_read_ids(d, f->name, u, v, to, (size_t *)(void *)(base + f->count_offset));
  case TRI_FT_TEXTS: return read_texts(d, f, u, v, base);
  case TRI_FT_RECORDS: return read_records(d, f, u, v, base);
  case TRI_FT_CUSTOM: return f->codec->read(d, f, u, v, to);
  }
  return TRI_INTERNAL;
}

/* ---- records ---- */

static bool same_name(const char *name, const tri_value *v) {
  return strlen(name) == v->len && !memcmp(name, v->s, v->len);
}

/* Fields mostly come in the table's order: the search begins where the last one ended. */
static uint32_t find_field(const tri_fields *t, const tri_value *key, uint32_t start) {
  for (uint32_t k = 0, i = start < t->count ? start : 0; k < t->count; k++) {
    if (t->field[i].name_len == key->len && !memcmp(t->field[i].name, key->s, key->len)) return i;
    if (++i == t->count) i = 0;
  }
  return UINT32_MAX;
}

static tri_status field_unknown(tri_unpacker *d, const tri_value *key) {
  char shown[64];
  tri_wire_printable(key->s, key->len, shown);
  return tri_fail(d->err, TRI_UNKNOWN_FIELD, shown, "there is no request field named \"%s\"", shown);
}

static tri_status field_twice(tri_unpacker *d, const char *name) {
  return tri_fail(d->err, TRI_INVALID_ARGUMENT, name, "%s is there twice", name);
}

/* `seen` has a bit for each row, which is what bounds a table's length; a name that comes twice is an error and not a
 * second value. A nil is as if the name were absent, where the table says so, as JSON clients send null. */
tri_status tri_fields_read(tri_unpacker *d, const tri_fields *t, tri_unpack *u, uint32_t pairs,
                           const char *const *envelope, void *base) {
  uint64_t seen = 0;
  uint32_t next = 0, envelope_seen = 0;
  for (uint32_t n = 0; n < pairs; n++) {
    tri_value key, v;
    if (!tri_unpack_next(u, &key)) return TRI_CORRUPT;
    if (key.kind != TRI_V_STR)
      return tri_fail(d->err, TRI_INVALID_ARGUMENT, NULL, "a field name must be a string, not %s",
                      tri_value_kind_name(key.kind));
    int skip = -1;
    for (int i = 0; envelope && envelope[i] && skip < 0; i++)
      if (same_name(envelope[i], &key)) skip = i;
    if (skip >= 0) {
      if (envelope_seen & 1u << skip) return field_twice(d, envelope[skip]);
      envelope_seen |= 1u << skip;
      tri_unpack_skip(u);
      continue;
    }
    uint32_t i = find_field(t, &key, next);
    if (i == UINT32_MAX) {
      if (t->strict) return field_unknown(d, &key);
      tri_unpack_skip(u);
      continue;
    }
    const tri_field *f = &t->field[i];
    next = i + 1;
    if (seen & UINT64_C(1) << i) return field_twice(d, f->name);
    seen |= UINT64_C(1) << i;
    if (!tri_unpack_next(u, &v)) return TRI_CORRUPT;
    if (v.kind == TRI_V_NIL && t->nil_is_absent && !(f->flags & TRI_FF_REQUIRED)) continue;
    tri_status st = read_field(d, f, u, &v, base);
    if (st != TRI_OK) return st == TRI_NO_MEMORY ? tri_fail(d->err, st, f->name, "no memory for %s", f->name) : st;
    if (f->has) *(bool *)((char *)base + f->has - 1) = true;
  }
  for (uint32_t i = 0; i < t->count; i++)
    if ((t->field[i].flags & TRI_FF_REQUIRED) && !(seen & UINT64_C(1) << i))
      return tri_fail(d->err, TRI_INVALID_ARGUMENT, t->field[i].name, "%s is missing", t->field[i].name);
  return TRI_OK;
}

/* A field with `has` is written when it was given; others are left out when they equal their default (TRI_FF_OMIT). */
static bool is_omitted(const tri_field *f, const char *base) {
  const char *from = base + f->offset;
  if (f->has && *(const bool *)(base + f->has - 1)) return false;
  if (f->has && !(f->flags & TRI_FF_UNLESS_GIVEN)) return true;
  if (!f->has && !(f->flags & TRI_FF_OMIT)) return false;
  switch ((tri_field_type)f->type) {
  case TRI_FT_U64: return (double)*(const uint64_t *)from == f->def;
  case TRI_FT_U32: return (double)*(const uint32_t *)from == f->def;
  case TRI_FT_I64: return (double)*(const int64_t *)from == f->def;
  case TRI_FT_F64: return *(const double *)from == f->def;
  case TRI_FT_BOOL: return *(const bool *)from == (f->def != 0);
  case TRI_FT_ENUM: return (double)*(const unsigned *)from == f->def;
  case TRI_FT_STR:
  case TRI_FT_TEXT: return !((const tri_wire_str *)from)->s;
  case TRI_FT_IDS: return *(const size_t *)(base + f->count_offset) == 0;
  case TRI_FT_TEXTS:
  case TRI_FT_RECORDS: return *(const uint32_t *)(base + f->count_offset) == 0;
  case TRI_FT_CUSTOM: return !f->codec->present || !f->codec->present(from);
  default: return false;
  }
}

static void write_records(tri_pack *p, const tri_field *f, const char *base) {
  uint32_t n;
  const char *elem = base + f->offset;
  memcpy(&n, base + f->count_offset, sizeof n);
  if (!f->max_count) memcpy(&elem, base + f->offset, sizeof elem);
  tri_pack_array(p, n);
  for (uint32_t i = 0; i < n; i++) {
    size_t mark = tri_pack_map_open(p);
    tri_pack_map_close(p, mark, tri_fields_write(p, f->sub, elem + (size_t)i * f->elem_size));
  }
}

static void write_text(tri_pack *p, const tri_wire_str *s) { tri_pack_str(p, s->s ? s->s : "", s->len); }

static void write_texts(tri_pack *p, const tri_wire_str *all, uint32_t n) {
  tri_pack_array(p, n);
  for (uint32_t i = 0; i < n; i++) write_text(p, &all[i]);
}

static void write_value(tri_pack *p, const tri_field *f, const char *base) {
  const char *from = base + f->offset;
  switch ((tri_field_type)f->type) {
  case TRI_FT_U64: tri_pack_u64(p, *(const uint64_t *)from); break;
  case TRI_FT_U32: tri_pack_u64(p, *(const uint32_t *)from); break;
  case TRI_FT_I64: tri_pack_i64(p, *(const int64_t *)from); break;
  case TRI_FT_F64: tri_pack_f64(p, *(const double *)from); break;
  case TRI_FT_BOOL: tri_pack_bool(p, *(const bool *)from); break;
  case TRI_FT_STR:
  case TRI_FT_TEXT: write_text(p, (const tri_wire_str *)from); break;
  case TRI_FT_RID: tri_pack_bin(p, from, sizeof(tri_request_id)); break;
  case TRI_FT_ENUM: {
    unsigned e = *(const unsigned *)from;
    const char *name = f->names[e < f->num_names ? e : 0];
    tri_pack_str(p, name, strlen(name));
    break;
  }
  case TRI_FT_IDS:
    tri_pack_bin(p, *(const uint32_t *const *)from, *(const size_t *)(base + f->count_offset) * sizeof(uint32_t));
    break;
  case TRI_FT_TEXTS:
    write_texts(p, *(const tri_wire_str *const *)from, *(const uint32_t *)(base + f->count_offset));
    break;
  case TRI_FT_RECORDS: write_records(p, f, base); break;
  case TRI_FT_CUSTOM: f->codec->write(p, from); break;
  }
}

uint32_t tri_fields_write(tri_pack *p, const tri_fields *t, const void *base) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < t->count; i++) {
    const tri_field *f = &t->field[i];
    if (is_omitted(f, base)) continue;
    tri_pack_str(p, f->name, f->name_len);
    write_value(p, f, base);
    n++;
  }
  return n;
}

/* ---- messages ---- */

/* The envelope comes first, so that a reader that looks for it stops after three pairs. */
tri_status tri_message_write(const tri_protocol *p, unsigned op, uint64_t seq, const void *message, tri_buf *out) {
  if (op >= p->num) return TRI_INVALID_ARGUMENT;
  const tri_message *m = &p->messages[op];
  tri_pack k = tri_pack_begin(out);
  size_t mark = tri_pack_map_open(&k);
  tri_pack_lit(&k, "v");
  tri_pack_u64(&k, TRI_WIRE_VERSION);
  tri_pack_lit(&k, "op");
  tri_pack_str(&k, m->op, strlen(m->op));
  tri_pack_str(&k, p->seq_name, strlen(p->seq_name));
  tri_pack_u64(&k, seq);
  tri_pack_map_close(&k, mark, 3 + tri_fields_write(&k, &m->table, (const char *)message + m->base));
  return tri_pack_end(&k);
}

tri_status tri_message_read(tri_unpacker *d, const tri_protocol *p, tri_envelope *e, void *message) {
  const tri_message *m = &p->messages[e->op];
  const char *const envelope[] = {"v", "op", p->seq_name, NULL};
  memset((char *)message + p->body, 0, m->size); /* every member of the union starts there */
  return tri_fields_read(d, &m->table, &e->fields, e->pairs, envelope, (char *)message + m->base);
}

static tri_status envelope_op(tri_unpacker *d, const tri_value *v, const tri_protocol *p, int *out) {
  char shown[64];
  if (v->kind != TRI_V_STR) return tri_read_wrong(d, "op", "a string", v);
  for (uint32_t i = 0; i < p->num; i++)
    if (same_name(p->messages[i].op, v)) {
      *out = (int)i;
      return TRI_OK;
    }
  return tri_fail(d->err, TRI_UNSUPPORTED, "op", "there is no op named \"%s\"",
                  tri_wire_printable(v->s, v->len, shown));
}

/* v, op and the sequence number may stand anywhere in the map, and are looked for before other fields are read: the op
 * chooses the table, and an error is addressed by the number. */
tri_status tri_envelope_read(tri_unpacker *d, const tri_protocol *p, const void *data, size_t len, tri_envelope *out,
                             uint64_t *seq_early) {
  TRI_CHECK(tri_unpack_check(data, len, d->err));
  tri_unpack scan = {data, (const uint8_t *)data + len};
  tri_value head, v = {0}, op = {0}, version = {0};
  tri_unpack_next(&scan, &head);
  bool has_seq = false, has_op = false, has_version = false;
  out->fields = scan;
  out->pairs = head.count;
  /* Stops when all three are known: ours come first, and what follows is read once. */
  for (uint32_t i = 0; i < head.count && !(has_seq && has_op && has_version); i++) {
    tri_value key;
    tri_unpack_next(&scan, &key);
    if (key.kind == TRI_V_STR && !has_seq && same_name(p->seq_name, &key)) {
      tri_unpack_next(&scan, &v);
      if (v.kind != TRI_V_UINT) return tri_read_wrong(d, p->seq_name, "an unsigned integer", &v);
      out->seq = v.u;
      if (seq_early) *seq_early = v.u;
      has_seq = true;
    } else if (key.kind == TRI_V_STR && !has_op && same_name("op", &key)) {
      tri_unpack_next(&scan, &op);
      if (op.kind >= TRI_V_ARRAY) return tri_read_wrong(d, "op", "a string", &op);
      has_op = true;
    } else if (key.kind == TRI_V_STR && !has_version && same_name("v", &key)) {
      tri_unpack_next(&scan, &version);
      if (version.kind >= TRI_V_ARRAY) return tri_read_wrong(d, "v", "an integer", &version);
      has_version = true;
    } else {
      if (key.kind >= TRI_V_ARRAY)
        return tri_fail(d->err, TRI_INVALID_ARGUMENT, NULL, "a field name must be a string, not %s",
                        tri_value_kind_name(key.kind));
      tri_unpack_skip(&scan);
    }
  }
  if (!has_seq || !has_op || !has_version) {
    const char *missing = has_op ? p->seq_name : "op";
    if (!has_version) missing = "v";
    return tri_fail(d->err, TRI_INVALID_ARGUMENT, missing, "%s is missing", missing);
  }
  if (version.kind != TRI_V_UINT) return tri_read_wrong(d, "v", "an integer", &version);
  if (version.u != TRI_WIRE_VERSION)
    return tri_fail(d->err, TRI_UNSUPPORTED, "v", "protocol version %" PRIu64 " is not spoken here; %d is", version.u,
                    TRI_WIRE_VERSION);
  return envelope_op(d, &op, p, &out->op);
}
