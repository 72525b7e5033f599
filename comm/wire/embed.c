/* SPDX-License-Identifier: Apache-2.0 */
/* Embed and classify: the fields that need readers of their own. */
#include "comm/wire/embed.h"

#include <string.h>

/* ---- choices by name ---- */

static const char *const activations[] = {NULL, "none", "softmax", "sigmoid"};
enum { NUM_ACTIVATIONS = 4, MIN_RESULT_BYTES = 4 };

const char *tri_activation_name(tri_activation a) { return (unsigned)a < NUM_ACTIVATIONS ? activations[a] : NULL; }

/* The activation of that name, UNSET if there is none. */
static tri_activation find_activation(const char *name, size_t len) {
  for (int i = 1; i < NUM_ACTIVATIONS; i++)
    if (strlen(activations[i]) == len && !memcmp(activations[i], name, len)) return (tri_activation)i;
  return TRI_ACTIVATION_UNSET;
}

bool tri_activation_parse(const char *name, tri_activation *out) {
  tri_activation found = find_activation(name, strlen(name));
  if (found != TRI_ACTIVATION_UNSET) *out = found;
  return found != TRI_ACTIVATION_UNSET;
}

static tri_status read_activation(tri_unpacker *d, const tri_field *f, tri_unpack *u, const tri_value *v, void *at) {
  char shown[64];
  (void)u;
  if (v->kind != TRI_V_STR) return tri_read_wrong(d, f->name, "a name", v);
  tri_activation found = find_activation(v->s, v->len);
  if (found == TRI_ACTIVATION_UNSET)
    return tri_fail(d->err, TRI_INVALID_ARGUMENT, f->name, "%s is \"%s\"; allowed are none, softmax and sigmoid",
                    f->name, tri_wire_printable(v->s, v->len, shown));
  *(tri_activation *)at = found;
  return TRI_OK;
}

static void write_activation(tri_pack *p, const void *at) {
  const char *name = tri_activation_name(*(const tri_activation *)at);
  tri_pack_str(p, name ? name : "", name ? strlen(name) : 0);
}
static bool has_activation(const void *at) { return tri_activation_name(*(const tri_activation *)at) != NULL; }
const tri_codec tri_codec_activation = {read_activation, write_activation, has_activation};

/* ---- answers ---- */

/* Binary little-endian float32, as many as there are. */
static tri_status read_values(tri_unpacker *d, const char *name, const tri_value *v, const float **values,
                              size_t *count) {
  if (v->kind != TRI_V_BIN || v->len % sizeof(float))
    return tri_fail(d->err, TRI_INVALID_ARGUMENT, name, "%s must be binary with 32-bit floats", name);
  if (v->len > TRI_WIRE_MAX_RESULT)
    return tri_fail(d->err, TRI_TOO_LARGE, name, "%s has %zu bytes, the limit is %d", name, v->len,
                    TRI_WIRE_MAX_RESULT);
  *count = v->len / sizeof(float);
  return tri_read_floats(d, name, v, *count, values);
}

static tri_status read_reply_values(tri_unpacker *d, const tri_field *f, tri_unpack *u, const tri_value *v, void *at) {
  tri_embed_reply *r = at;
  (void)u;
  return read_values(d, f->name, v, &r->values, &r->num_values);
}

static void write_values(tri_pack *p, const void *at) {
  const tri_embed_reply *r = at;
  tri_pack_bin(p, r->values, r->num_values * sizeof *r->values);
}
const tri_codec tri_codec_values = {.read = read_reply_values, .write = write_values};

/* Compared by a division, which cannot overflow as rows times labels could. */
tri_status tri_embed_reply_finish(tri_unpacker *d, const tri_embed_reply *r) {
  size_t rows = r->num_tokens ? r->num_tokens : 1;
  if (r->num_labels && r->num_values / r->num_labels == rows && r->num_values % r->num_labels == 0) return TRI_OK;
  return tri_fail(d->err, TRI_CORRUPT, "scores", "%zu scores for %zu rows of %u labels", r->num_values, rows,
                  r->num_labels);
}

/* ---- from a replica: [job, waited_ns, binary numbers] each ---- */

static tri_status read_result(tri_unpacker *d, tri_unpack *u, uint32_t i, tri_replica_result *out) {
  tri_value v;
  if (!tri_unpack_next(u, &v)) return TRI_CORRUPT;
  if (v.kind != TRI_V_ARRAY || v.count != 3)
    return tri_fail(d->err, TRI_INVALID_ARGUMENT, "results", "element %u must be an array of 3", i);
  if (!tri_unpack_next(u, &v)) return TRI_CORRUPT;
  if (v.kind != TRI_V_UINT) return tri_read_wrong(d, "results", "the number of a job", &v);
  out->job = v.u;
  if (!tri_unpack_next(u, &v)) return TRI_CORRUPT;
  if (v.kind != TRI_V_UINT) return tri_read_wrong(d, "results", "how long a job waited", &v);
  out->waited_ns = v.u;
  if (!tri_unpack_next(u, &v)) return TRI_CORRUPT;
  return read_values(d, "results", &v, &out->values, &out->num_values);
}

static tri_status read_results(tri_unpacker *d, const tri_field *f, tri_unpack *u, const tri_value *v, void *at) {
  tri_replica_results *r = at;
  if (v->kind != TRI_V_ARRAY) return tri_read_wrong(d, f->name, "an array", v);
  /* Checked before memory is asked for. */
  if (v->count > (size_t)(u->end - u->p) / MIN_RESULT_BYTES)
    return tri_fail(d->err, TRI_CORRUPT, f->name, "%u elements do not fit", v->count);
  tri_replica_result *all = tri_arena_alloc(d->arena, v->count ? v->count : 1, sizeof *all);
  if (!all) return TRI_NO_MEMORY;
  for (uint32_t i = 0; i < v->count; i++) TRI_CHECK(read_result(d, u, i, &all[i]));
  r->results = all;
  r->num = v->count;
  return TRI_OK;
}

static void write_results(tri_pack *p, const void *at) {
  const tri_replica_results *r = at;
  tri_pack_array(p, r->num);
  for (uint32_t i = 0; i < r->num; i++) {
    tri_pack_array(p, 3);
    tri_pack_u64(p, r->results[i].job);
    tri_pack_u64(p, r->results[i].waited_ns);
    tri_pack_bin(p, r->results[i].values, r->results[i].num_values * sizeof *r->results[i].values);
  }
}
const tri_codec tri_codec_results = {.read = read_results, .write = write_results};
