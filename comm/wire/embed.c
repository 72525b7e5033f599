#include "comm/wire/embed.h"

#include <string.h>

/* ---- choices by name ---- */

static const char *const poolings[] = {NULL, "model", "cls", "mean"};
static const char *const activations[] = {NULL, "none", "softmax", "sigmoid"};
enum { NUM_POOLINGS = 4, NUM_ACTIVATIONS = 4, MIN_RESULT_BYTES = 4 };

const char *tri_pool_choice_name(tri_pool_choice p) { return (unsigned)p < NUM_POOLINGS ? poolings[p] : NULL; }
const char *tri_activation_name(tri_activation a) { return (unsigned)a < NUM_ACTIVATIONS ? activations[a] : NULL; }

static int find_name(const char *const *names, int count, const char *s, size_t len) {
  for (int i = 1; i < count; i++)
    if (strlen(names[i]) == len && !memcmp(names[i], s, len)) return i;
  return 0;
}

bool tri_pool_choice_parse(const char *name, tri_pool_choice *out) {
  int i = find_name(poolings, NUM_POOLINGS, name, strlen(name));
  if (i) *out = (tri_pool_choice)i;
  return i != 0;
}

bool tri_activation_parse(const char *name, tri_activation *out) {
  int i = find_name(activations, NUM_ACTIVATIONS, name, strlen(name));
  if (i) *out = (tri_activation)i;
  return i != 0;
}

static tri_status read_choice(tri_decoder *d, const tri_field *f, const tri_value *v, const char *const *names,
                              int count, int *out) {
  char shown[64];
  if (v->kind != TRI_V_STR) return tri_read_wrong(d, f->name, "a name", v);
  *out = find_name(names, count, v->s, v->len);
  if (*out) return TRI_OK;
  return tri_fail(d->err, TRI_INVALID_ARGUMENT, f->name, "%s is \"%s\"; allowed are %s, %s and %s", f->name,
                  tri_wire_printable(v->s, v->len, shown), names[1], names[2], names[3]);
}

static tri_status read_pooling(tri_decoder *d, const tri_field *f, tri_unpack *u, const tri_value *v, void *at) {
  int i = 0;
  (void)u;
  tri_status st = read_choice(d, f, v, poolings, NUM_POOLINGS, &i);
  if (st == TRI_OK) *(tri_pool_choice *)at = (tri_pool_choice)i;
  return st;
}

static tri_status read_activation(tri_decoder *d, const tri_field *f, tri_unpack *u, const tri_value *v, void *at) {
  int i = 0;
  (void)u;
  tri_status st = read_choice(d, f, v, activations, NUM_ACTIVATIONS, &i);
  if (st == TRI_OK) *(tri_activation *)at = (tri_activation)i;
  return st;
}

static void write_name(tri_pack *p, const char *name) { tri_pack_str(p, name ? name : "", name ? strlen(name) : 0); }
static void write_pooling(tri_pack *p, const void *at) {
  write_name(p, tri_pool_choice_name(*(const tri_pool_choice *)at));
}
static void write_activation(tri_pack *p, const void *at) {
  write_name(p, tri_activation_name(*(const tri_activation *)at));
}
static bool has_pooling(const void *at) { return tri_pool_choice_name(*(const tri_pool_choice *)at) != NULL; }
static bool has_activation(const void *at) { return tri_activation_name(*(const tri_activation *)at) != NULL; }
const tri_codec tri_codec_pooling = {read_pooling, write_pooling, has_pooling};
const tri_codec tri_codec_activation = {read_activation, write_activation, has_activation};

/* ---- answers ---- */

/* The reply that has `member` at `at`. */
#define REPLY_OF(at, member) ((char *)(at)-offsetof(tri_encoded_reply, member))

/* Binary little-endian float32, as many as there are. */
static tri_status read_values(tri_decoder *d, const char *name, const tri_value *v, const float **values,
                              size_t *count) {
  if (v->kind != TRI_V_BIN || v->len % sizeof(float))
    return tri_fail(d->err, TRI_INVALID_ARGUMENT, name, "%s must be binary with 32-bit floats", name);
  if (v->len > TRI_WIRE_MAX_RESULT)
    return tri_fail(d->err, TRI_TOO_LARGE, name, "%s has %zu bytes, the limit is %d", name, v->len,
                    TRI_WIRE_MAX_RESULT);
  *count = v->len / sizeof(float);
  return tri_read_floats(d, name, v, *count, values);
}

static tri_status read_reply_values(tri_decoder *d, const tri_field *f, tri_unpack *u, const tri_value *v, void *at) {
  tri_encoded_reply *r = (void *)REPLY_OF(at, values);
  (void)u;
  return read_values(d, f->name, v, &r->values, &r->num_values);
}

static void write_values(tri_pack *p, const void *at) {
  const tri_encoded_reply *r = (const void *)REPLY_OF(at, values);
  tri_pack_bin(p, r->values, r->num_values * sizeof *r->values);
}
const tri_codec tri_codec_values = {.read = read_reply_values, .write = write_values};

static tri_status read_texts(tri_decoder *d, const char *name, tri_unpack *u, const tri_value *v,
                             const tri_wire_str **out, uint32_t *count) {
  if (v->kind != TRI_V_ARRAY) return tri_read_wrong(d, name, "an array of texts", v);
  tri_wire_str *all = tri_arena_alloc(d->arena, v->count ? v->count : 1, sizeof *all); /* <= the message's bytes */
  if (!all) return TRI_NO_MEMORY;
  for (uint32_t i = 0; i < v->count; i++) {
    tri_value e;
    if (!tri_unpack_next(u, &e)) return TRI_CORRUPT;
    if (e.kind != TRI_V_STR && e.kind != TRI_V_BIN) return tri_read_wrong(d, name, "an array of texts", &e);
    all[i] = (tri_wire_str){e.s, e.len};
  }
  *out = all;
  *count = v->count;
  return TRI_OK;
}

static void write_texts(tri_pack *p, const tri_wire_str *all, uint32_t count) {
  tri_pack_array(p, count);
  for (uint32_t i = 0; i < count; i++) tri_pack_str(p, all[i].s ? all[i].s : "", all[i].len);
}

static tri_status read_labels(tri_decoder *d, const tri_field *f, tri_unpack *u, const tri_value *v, void *at) {
  tri_encoded_reply *r = (void *)REPLY_OF(at, labels);
  return read_texts(d, f->name, u, v, &r->labels, &r->num_labels);
}
static void write_labels(tri_pack *p, const void *at) {
  const tri_encoded_reply *r = (const void *)REPLY_OF(at, labels);
  write_texts(p, r->labels, r->num_labels);
}
const tri_codec tri_codec_labels = {.read = read_labels, .write = write_labels};

static tri_status read_tokens(tri_decoder *d, const tri_field *f, tri_unpack *u, const tri_value *v, void *at) {
  tri_encoded_reply *r = (void *)REPLY_OF(at, tokens);
  return read_texts(d, f->name, u, v, &r->tokens, &r->num_tokens);
}
static void write_tokens(tri_pack *p, const void *at) {
  const tri_encoded_reply *r = (const void *)REPLY_OF(at, tokens);
  write_texts(p, r->tokens, r->num_tokens);
}
static bool has_tokens(const void *at) {
  return ((const tri_encoded_reply *)(const void *)REPLY_OF(at, tokens))->num_tokens > 0;
}
const tri_codec tri_codec_tokens = {read_tokens, write_tokens, has_tokens};

tri_status tri_encoded_finish(tri_decoder *d, const tri_encoded_reply *r) {
  size_t rows = r->num_tokens ? r->num_tokens : 1;
  if (r->num_labels && r->num_values / r->num_labels == rows && r->num_values % r->num_labels == 0) return TRI_OK;
  return tri_fail(d->err, TRI_CORRUPT, "scores", "%zu scores for %zu rows of %u labels", r->num_values, rows,
                  r->num_labels);
}

/* ---- from a group: [job, binary numbers] each ---- */

static tri_status read_result(tri_decoder *d, tri_unpack *u, uint32_t i, tri_group_result *out) {
  tri_value v;
  if (!tri_unpack_next(u, &v)) return TRI_CORRUPT;
  if (v.kind != TRI_V_ARRAY || v.count != 2)
    return tri_fail(d->err, TRI_INVALID_ARGUMENT, "results", "element %u must be an array of 2", i);
  if (!tri_unpack_next(u, &v)) return TRI_CORRUPT;
  if (v.kind != TRI_V_UINT) return tri_read_wrong(d, "results", "the number of a job", &v);
  out->job = v.u;
  if (!tri_unpack_next(u, &v)) return TRI_CORRUPT;
  return read_values(d, "results", &v, &out->values, &out->num_values);
}

static tri_status read_results(tri_decoder *d, const tri_field *f, tri_unpack *u, const tri_value *v, void *at) {
  tri_group_results *r = at;
  if (v->kind != TRI_V_ARRAY) return tri_read_wrong(d, f->name, "an array", v);
  /* Checked before memory is asked for. */
  if (v->count > (size_t)(u->end - u->p) / MIN_RESULT_BYTES)
    return tri_fail(d->err, TRI_CORRUPT, f->name, "%u elements do not fit", v->count);
  tri_group_result *all = tri_arena_alloc(d->arena, v->count ? v->count : 1, sizeof *all);
  if (!all) return TRI_NO_MEMORY;
  for (uint32_t i = 0; i < v->count; i++) {
    tri_status st = read_result(d, u, i, &all[i]);
    if (st != TRI_OK) return st;
  }
  r->results = all;
  r->num = v->count;
  return TRI_OK;
}

static void write_results(tri_pack *p, const void *at) {
  const tri_group_results *r = at;
  tri_pack_array(p, r->num);
  for (uint32_t i = 0; i < r->num; i++) {
    tri_pack_array(p, 2);
    tri_pack_u64(p, r->results[i].job);
    tri_pack_bin(p, r->results[i].values, r->results[i].num_values * sizeof *r->results[i].values);
  }
}
const tri_codec tri_codec_results = {.read = read_results, .write = write_results};
