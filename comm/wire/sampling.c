/* SPDX-License-Identifier: Apache-2.0 */
/* Sampling fields that are no plain numbers, and the checks of several fields together. The plain ones are one list of
 * macros (base/options/sampling_numbers.h), which the members, defaults, limits, --help and the wire are made of. */
#include "comm/wire/sampling.h"

#include <string.h>

#include "comm/wire/constraint.h"

enum { MOST_BIAS = 100 };

#define LIMIT(context, type, name_, option, least, most, def, absent, sampler, help_)                                  \
  {.name = #name_, .min = (least), .max = (most), .help = (help_)},

static const tri_wire_field limits[] = {
    TRI_SAMPLING_NUMBERS(LIMIT, ) /* and what is no plain number: */
    {"seed", 0, 18446744073709551615.0, "random seed; default: the coordinator draws one"},
    {"logprobs", 0, TRI_WIRE_MAX_LOGPROBS, "alternatives to report for each token (also top_logprobs)"},
    {"logit_bias", -MOST_BIAS, MOST_BIAS, "map from token ids to numbers added to their logits"},
};

const tri_wire_field *tri_wire_fields(size_t *count) {
  *count = sizeof limits / sizeof *limits;
  return limits;
}

#define INIT(s, type, name, option, least, most, def, absent, sampler, help)                                           \
  (s)->name = (def);                                                                                                   \
  INIT_##absent(s, name)
#define INIT_FIXED(s, name)
#define INIT_OPEN(s, name) (s)->has_##name = false;
#define INIT_MODEL(s, name) INIT_OPEN(s, name)

void tri_sampling_init(tri_sampling *s) {
  /* Field by field: the arrays after the counts are large and need no clearing. */
  TRI_SAMPLING_NUMBERS(INIT, s)
  s->has_seed = false;
  s->seed = 0;
  s->early_stopping = TRI_EARLY_FALSE;
  s->has_early_stopping = false;
  s->logprobs = -1;
  s->ignore_eos = s->echo = s->include_stop = false;
  s->skip_special_tokens = true;
  s->num_stop = s->num_stop_token_ids = s->num_logit_bias = 0;
  s->logit_bias = NULL;
  s->allowed_token_ids = NULL;
  s->num_allowed_token_ids = 0;
  s->constraint = (tri_wire_constraint){.kind = TRI_CONSTRAINT_NONE};
}

/* ---- logprobs ---- */

/* logprobs (true, false or a number) and top_logprobs (a number) are two spellings of one thing, which may both come in
 * any order: what came is kept, and tri_sampling_finish decides. */
static tri_status read_logprobs(tri_unpacker *d, const tri_field *f, tri_unpack *u, const tri_value *v, void *at) {
  (void)u;
  (void)at;
  tri_sampling_extra *x = d->extra;
  bool top = f->name[0] == 't';
  int64_t value = 0;
  if (v->kind != TRI_V_BOOL || top) TRI_CHECK(tri_read_i64(d, f->name, v, 0, TRI_WIRE_MAX_LOGPROBS, &value));
  if (top) {
    x->has_top_logprobs = true;
    x->top_logprobs = value;
  } else {
    x->has_logprobs = true;
    x->logprobs_off = v->kind == TRI_V_BOOL && !v->b;
    x->logprobs = value;
  }
  return TRI_OK;
}

static void write_logprobs(tri_pack *p, const void *at) { tri_pack_i64(p, ((const tri_sampling *)at)->logprobs); }
static bool has_logprobs(const void *at) { return ((const tri_sampling *)at)->logprobs >= 0; }
const tri_codec tri_codec_logprobs = {read_logprobs, write_logprobs, has_logprobs};
const tri_codec tri_codec_top_logprobs = {.read = read_logprobs};

/* ---- stop ---- */

static tri_status add_stop(tri_unpacker *d, tri_sampling *s, const tri_value *v) {
  if (v->kind != TRI_V_STR) return tri_read_wrong(d, "stop", "a string or an array of strings", v);
  if (v->len == 0 || v->len > TRI_WIRE_MAX_STOP_BYTES)
    return tri_fail(d->err, TRI_OUT_OF_RANGE, "stop", "a stop string of %zu bytes; allowed are 1 to %d", v->len,
                    TRI_WIRE_MAX_STOP_BYTES);
  s->stop[s->num_stop++] = (tri_wire_str){v->s, v->len};
  return TRI_OK;
}

static tri_status read_stop(tri_unpacker *d, const tri_field *f, tri_unpack *u, const tri_value *v, void *at) {
  (void)f;
  tri_sampling *s = at;
  if (v->kind != TRI_V_ARRAY) return add_stop(d, s, v);
  if (v->count > TRI_WIRE_MAX_STOP)
    return tri_fail(d->err, TRI_OUT_OF_RANGE, "stop", "%u stop strings; allowed are 0 to %d", v->count,
                    TRI_WIRE_MAX_STOP);
  for (uint32_t i = 0; i < v->count; i++) {
    tri_value e;
    if (!tri_unpack_next(u, &e)) return TRI_CORRUPT;
    TRI_CHECK(add_stop(d, s, &e));
  }
  return TRI_OK;
}

static void write_stop(tri_pack *p, const void *at) {
  const tri_sampling *s = at;
  tri_pack_array(p, (uint32_t)s->num_stop);
  for (int i = 0; i < s->num_stop; i++) tri_pack_str(p, s->stop[i].s, s->stop[i].len);
}

static bool has_stop(const void *at) { return ((const tri_sampling *)at)->num_stop > 0; }
const tri_codec tri_codec_stop = {read_stop, write_stop, has_stop};

/* An array's count is looked at before it is read: binary is as long as it says and costs nothing to read first. */
static tri_status read_stop_ids(tri_unpacker *d, const tri_field *f, tri_unpack *u, const tri_value *v, void *at) {
  tri_sampling *s = at;
  const uint32_t *ids;
  size_t n;
  if (v->kind == TRI_V_ARRAY && v->count > TRI_WIRE_MAX_STOP_IDS)
    return tri_fail(d->err, TRI_OUT_OF_RANGE, f->name, "%u stop ids; allowed are 0 to %d", v->count,
                    TRI_WIRE_MAX_STOP_IDS);
  TRI_CHECK(tri_read_ids(d, f->name, u, v, &ids, &n));
  if (n > TRI_WIRE_MAX_STOP_IDS)
    return tri_fail(d->err, TRI_OUT_OF_RANGE, f->name, "%zu stop ids; allowed are 0 to %d", n, TRI_WIRE_MAX_STOP_IDS);
  memcpy(s->stop_token_ids, ids, n * sizeof *ids);
  s->num_stop_token_ids = (int)n;
  return TRI_OK;
}

static void write_stop_ids(tri_pack *p, const void *at) {
  const tri_sampling *s = at;
  tri_pack_bin(p, s->stop_token_ids, (size_t)s->num_stop_token_ids * sizeof *s->stop_token_ids);
}

static bool has_stop_ids(const void *at) { return ((const tri_sampling *)at)->num_stop_token_ids > 0; }
const tri_codec tri_codec_stop_ids = {read_stop_ids, write_stop_ids, has_stop_ids};

/* ---- logit_bias ---- */

/* A token id as an integer, or as decimal digits, which is all that JSON allows for a key. */
static bool bias_id(const tri_value *v, uint32_t *out) {
  uint64_t x = 0;
  if (v->kind == TRI_V_UINT) {
    x = v->u;
  } else if (v->kind == TRI_V_STR && v->len >= 1 && v->len <= 10) {
    for (size_t i = 0; i < v->len; i++) {
      if (v->s[i] < '0' || v->s[i] > '9') return false;
      x = x * 10 + (uint64_t)(v->s[i] - '0');
    }
  } else {
    return false;
  }
  *out = (uint32_t)x;
  return x <= UINT32_MAX;
}

enum { BIAS_SLOTS = 2 * TRI_WIRE_MAX_LOGIT_BIAS };

/* Remembers id in an open hash table of indices + 1; false when it is there already. */
static bool bias_remember(uint16_t slots[BIAS_SLOTS], const struct tri_wire_bias *all, uint32_t count, uint32_t id) {
  uint32_t h = (id * 2654435761u) % BIAS_SLOTS;
  for (; slots[h]; h = (h + 1) % BIAS_SLOTS)
    if (all[slots[h] - 1].id == id) return false;
  slots[h] = (uint16_t)(count + 1);
  return true;
}

static tri_status read_bias(tri_unpacker *d, const tri_field *f, tri_unpack *u, const tri_value *v, void *at) {
  (void)f;
  tri_sampling *s = at;
  uint16_t slots[BIAS_SLOTS] = {0};
  if (v->kind != TRI_V_MAP) return tri_read_wrong(d, "logit_bias", "a map of token id to number", v);
  if (v->count > TRI_WIRE_MAX_LOGIT_BIAS)
    return tri_fail(d->err, TRI_OUT_OF_RANGE, "logit_bias", "%u entries; allowed are 0 to %d", v->count,
                    TRI_WIRE_MAX_LOGIT_BIAS);
  struct tri_wire_bias *all = tri_arena_alloc(d->arena, v->count ? v->count : 1, sizeof *all);
  if (!all) return TRI_NO_MEMORY;
  for (uint32_t i = 0; i < v->count; i++) {
    tri_value key, x;
    uint32_t id;
    double bias;
    if (!tri_unpack_next(u, &key)) return TRI_CORRUPT;
    if (!bias_id(&key, &id))
      return tri_fail(d->err, TRI_INVALID_ARGUMENT, "logit_bias",
                      "key %u of logit_bias is no token id (an integer of 32 bits, or its digits)", i);
    if (!tri_unpack_next(u, &x)) return TRI_CORRUPT;
    TRI_CHECK(tri_read_num(d, "logit_bias", &x, -MOST_BIAS, MOST_BIAS, &bias));
    if (!bias_remember(slots, all, i, id))
      return tri_fail(d->err, TRI_INVALID_ARGUMENT, "logit_bias", "token id %u is there twice", id);
    all[i] = (struct tri_wire_bias){id, (float)bias};
  }
  s->logit_bias = all;
  s->num_logit_bias = (int)v->count;
  return TRI_OK;
}

static void write_bias(tri_pack *p, const void *at) {
  const tri_sampling *s = at;
  tri_pack_map(p, (uint32_t)s->num_logit_bias);
  for (int i = 0; i < s->num_logit_bias; i++) {
    tri_pack_u64(p, s->logit_bias[i].id);
    tri_pack_f32(p, s->logit_bias[i].bias);
  }
}

static bool has_bias(const void *at) { return ((const tri_sampling *)at)->num_logit_bias > 0; }
const tri_codec tri_codec_bias = {read_bias, write_bias, has_bias};

/* ---- allowed_token_ids ---- */

static tri_status read_allowed(tri_unpacker *d, const tri_field *f, tri_unpack *u, const tri_value *v, void *at) {
  tri_sampling *s = at;
  TRI_CHECK(tri_read_ids(d, f->name, u, v, &s->allowed_token_ids, &s->num_allowed_token_ids));
  return tri_sampling_check_allowed(s->num_allowed_token_ids, d->err);
}

tri_status tri_sampling_check_allowed(size_t num, tri_error *err) {
  if (num >= 1 && num <= TRI_WIRE_MAX_ALLOWED_IDS) return TRI_OK;
  return tri_fail(err, TRI_OUT_OF_RANGE, "allowed_token_ids", "allowed_token_ids has %zu ids; allowed are 1 to %d", num,
                  TRI_WIRE_MAX_ALLOWED_IDS);
}

static void write_allowed(tri_pack *p, const void *at) {
  const tri_sampling *s = at;
  tri_pack_bin(p, s->allowed_token_ids, s->num_allowed_token_ids * sizeof *s->allowed_token_ids);
}

static bool has_allowed(const void *at) { return ((const tri_sampling *)at)->num_allowed_token_ids > 0; }
const tri_codec tri_codec_allowed_ids = {read_allowed, write_allowed, has_allowed};

/* ---- constraint ---- */

static const char *const constraint_kinds[TRI_CONSTRAINT_KINDS] = {
    [TRI_CONSTRAINT_JSON_SCHEMA] = "json_schema", [TRI_CONSTRAINT_JSON_OBJECT] = "json_object"};

static bool is_text(const tri_value *v, const char *text) {
  return v->kind == TRI_V_STR && v->len == strlen(text) && !memcmp(v->s, text, v->len);
}

static tri_status read_constraint_kind(tri_unpacker *d, const tri_value *v, tri_wire_constraint *c) {
  for (int k = TRI_CONSTRAINT_NONE + 1; k < TRI_CONSTRAINT_KINDS; k++)
    if (is_text(v, constraint_kinds[k])) {
      c->kind = (tri_constraint_kind)k;
      return TRI_OK;
    }
  return tri_fail(d->err, TRI_INVALID_ARGUMENT, "constraint",
                  "kind of constraint must be \"json_schema\" or \"json_object\"");
}

static tri_status read_constraint_text(tri_unpacker *d, const tri_value *v, tri_wire_constraint *c) {
  if (v->kind != TRI_V_STR)
    return tri_fail(d->err, TRI_INVALID_ARGUMENT, "constraint", "text of constraint must be a string");
  if (v->len > TRI_WIRE_MAX_CONSTRAINT)
    return tri_fail(d->err, TRI_TOO_LARGE, "constraint", "text of constraint has %zu bytes; allowed are %d", v->len,
                    TRI_WIRE_MAX_CONSTRAINT);
  c->text = (tri_wire_str){v->s, v->len};
  return TRI_OK;
}

static tri_status check_whole(const tri_wire_constraint *c, tri_error *err) {
  if (c->kind == TRI_CONSTRAINT_NONE)
    return tri_fail(err, TRI_INVALID_ARGUMENT, "constraint", "constraint has no kind");
  if ((c->kind == TRI_CONSTRAINT_JSON_SCHEMA) == (c->text.s != NULL)) return tri_wire_frame_check(&c->frame, err);
  return tri_fail(err, TRI_INVALID_ARGUMENT, "constraint", "%s of constraint has %s text", constraint_kinds[c->kind],
                  c->text.s ? "a" : "no");
}

static tri_status read_constraint(tri_unpacker *d, const tri_field *f, tri_unpack *u, const tri_value *v, void *at) {
  tri_wire_constraint *c = &((tri_sampling *)at)->constraint;
  (void)f;
  if (v->kind != TRI_V_MAP) return tri_read_wrong(d, "constraint", "a map with kind and text", v);
  for (uint32_t i = 0; i < v->count; i++) {
    tri_value key, x;
    bool known;
    if (!tri_unpack_next(u, &key) || !tri_unpack_next(u, &x)) return TRI_CORRUPT;
    TRI_CHECK(tri_wire_frame_take(d, &key, &x, &c->frame, &known));
    if (known) continue;
    if (is_text(&key, "kind"))
      TRI_CHECK(read_constraint_kind(d, &x, c));
    else if (is_text(&key, "text"))
      TRI_CHECK(read_constraint_text(d, &x, c));
    else
      return tri_fail(d->err, TRI_UNKNOWN_FIELD, "constraint",
                      "constraint has a key that is none of kind, text, begin, separator, end and most");
  }
  return check_whole(c, d->err);
}

static void write_constraint(tri_pack *p, const void *at) {
  const tri_wire_constraint *c = &((const tri_sampling *)at)->constraint;
  tri_pack_map(p, (c->text.s ? 2 : 1) + tri_wire_frame_members(&c->frame));
  tri_pack_lit(p, "kind");
  tri_pack_str(p, constraint_kinds[c->kind], strlen(constraint_kinds[c->kind]));
  tri_wire_frame_write(p, &c->frame);
  if (!c->text.s) return;
  tri_pack_lit(p, "text");
  tri_pack_str(p, c->text.s, c->text.len);
}

static bool has_constraint(const void *at) {
  return ((const tri_sampling *)at)->constraint.kind != TRI_CONSTRAINT_NONE;
}
const tri_codec tri_codec_constraint = {read_constraint, write_constraint, has_constraint};

tri_status tri_sampling_check_constraint(const tri_sampling *s, tri_error *err) {
  if (s->constraint.kind == TRI_CONSTRAINT_NONE) return TRI_OK;
  if (s->num_allowed_token_ids)
    return tri_fail(err, TRI_UNSUPPORTED, "allowed_token_ids",
                    "allowed_token_ids and a constraint both say what may come; one of them can");
  if (s->max_tokens == 0)
    return tri_fail(err, TRI_UNSUPPORTED, "constraint",
                    "max_tokens is 0: there is no answer that could be constrained");
  return TRI_OK;
}

/* ---- beam search ---- */

static tri_status read_early(tri_unpacker *d, const tri_field *f, tri_unpack *u, const tri_value *v, void *at) {
  (void)u;
  tri_early_stopping *out = at;
  bool never = v->kind == TRI_V_STR && v->len == 5 && !memcmp(v->s, "never", 5);
  if (v->kind != TRI_V_BOOL && v->kind != TRI_V_STR) return tri_read_wrong(d, f->name, "false, true or \"never\"", v);
  if (v->kind == TRI_V_STR && !never)
    return tri_fail(d->err, TRI_INVALID_ARGUMENT, f->name, "early_stopping must be false, true or \"never\"");
  if (never)
    *out = TRI_EARLY_NEVER;
  else
    *out = v->b ? TRI_EARLY_TRUE : TRI_EARLY_FALSE;
  return TRI_OK;
}

static void write_early(tri_pack *p, const void *at) {
  tri_early_stopping e = *(const tri_early_stopping *)at;
  if (e == TRI_EARLY_NEVER)
    tri_pack_lit(p, "never");
  else
    tri_pack_bool(p, e == TRI_EARLY_TRUE);
}

static bool has_early(const void *at) { return *(const tri_early_stopping *)at != TRI_EARLY_FALSE; }
const tri_codec tri_codec_early_stopping = {read_early, write_early, has_early};

tri_status tri_sampling_check_beams(const tri_sampling *s, tri_error *err) {
  const struct {
    const char *name;
    bool there;
  } without[] = {{"logprobs", s->logprobs >= 0},
                 {"prompt_logprobs", s->prompt_logprobs >= 0},
                 {"logit_bias", s->num_logit_bias > 0},
                 {"allowed_token_ids", s->num_allowed_token_ids > 0},
                 {"constraint", s->constraint.kind != TRI_CONSTRAINT_NONE},
                 {"repetition_penalty", s->repetition_penalty != 1},
                 {"presence_penalty", s->presence_penalty != 0},
                 {"frequency_penalty", s->frequency_penalty != 0}};
  if (s->num_beams <= 1) return TRI_OK;
  for (size_t i = 0; i < sizeof without / sizeof *without; i++)
    if (without[i].there)
      return tri_fail(err, TRI_UNSUPPORTED, without[i].name, "a beam search (num_beams %lld) has no %s",
                      (long long)s->num_beams, without[i].name);
  if (s->n > s->num_beams)
    return tri_fail(err, TRI_OUT_OF_RANGE, "n", "n is %lld, more than num_beams, which is %lld", (long long)s->n,
                    (long long)s->num_beams);
  return TRI_OK;
}

/* ---- known, and not supported yet ---- */

/* For fields of other servers' APIs that have no effect here: the value that changes nothing is accepted, others are
 * refused and not ignored. */
static tri_status read_neutral(tri_unpacker *d, const tri_field *f, tri_unpack *u, const tri_value *v, void *at) {
  (void)u;
  (void)at;
  if (f->names) return tri_fail(d->err, TRI_UNSUPPORTED, f->name, "%s", f->names[0]);
  double x = -1;
  if (v->kind == TRI_V_UINT) x = (double)v->u;
  if (v->kind == TRI_V_FLOAT) x = v->f;
  if (x == f->def) return TRI_OK;
  return tri_fail(d->err, TRI_UNSUPPORTED, f->name, "%s is not supported: it can only be %g", f->name, f->def);
}

const tri_codec tri_codec_neutral = {.read = read_neutral};

tri_status tri_sampling_finish(tri_unpacker *d, tri_sampling *s, const tri_sampling_extra *x) {
  if (x->has_logprobs && x->has_top_logprobs) {
    if (x->logprobs_off && x->top_logprobs > 0)
      return tri_fail(d->err, TRI_INVALID_ARGUMENT, "top_logprobs", "top_logprobs is there although logprobs is false");
    if (x->logprobs > 0 && x->logprobs != x->top_logprobs)
      return tri_fail(d->err, TRI_INVALID_ARGUMENT, "top_logprobs",
                      "logprobs and top_logprobs are two different numbers");
  }
  if (x->has_top_logprobs && !x->logprobs_off)
    s->logprobs = x->top_logprobs;
  else if (x->has_logprobs && !x->logprobs_off)
    s->logprobs = x->logprobs;
  if (s->top_k < 0) s->top_k = 0;
  if (s->max_tokens == 0 && s->prompt_logprobs < 0)
    return tri_fail(d->err, TRI_OUT_OF_RANGE, "max_tokens",
                    "max_tokens is 0; allowed are -1 and 1 to %d, and 0 with prompt_logprobs", TRI_MOST_TOKENS);
  if (s->max_tokens > 0 && s->min_tokens > s->max_tokens)
    return tri_fail(d->err, TRI_OUT_OF_RANGE, "min_tokens", "min_tokens is %lld, more than max_tokens, which is %lld",
                    (long long)s->min_tokens, (long long)s->max_tokens);
  return tri_sampling_check_beams(s, d->err);
}
