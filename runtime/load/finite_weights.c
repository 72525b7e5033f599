/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/load/finite_weights.h"

#include <string.h>

/* Counting is queued on the backend that has the memory, one counter for each weight in device memory
 * (tri_weights.not_finite), and the host looks at the sums once: waiting for each weight would cost more than the
 * counting. */
static bool lies_in(const void *p, const void *memory, size_t bytes) {
  const char *at = p, *begin = memory;
  return begin && at >= begin && at < begin + bytes;
}

/* row: 0 for what is the model's, 1 + l for layer l. Elements of types that are always finite are not looked at. */
static void count(tri_backend *be, const tri_weight *t, uint64_t *counts, int row, int id) {
  uint64_t *to = counts + (size_t)row * TRI_W_COUNT + (size_t)id;
  __atomic_fetch_add(&be->loaded, 1, __ATOMIC_RELAXED); /* for who watches the start */
  if (t->scale) be->ops.count_not_finite(be, t->scale, TRI_F32, tri_weight_num_scales(t), to);
  be->ops.count_not_finite(be, t->data, t->dtype, (size_t)t->n * (size_t)t->k, to);
}

static const tri_weight *weights_of(const tri_weights *w, int row) { return row ? w->layers[row - 1].w : w->global; }

void tri_weights_count_resident(const tri_weights *w, int layers) {
  for (int row = 0; row <= layers; row++)
    for (int id = 0; id < TRI_W_COUNT; id++) {
      const tri_weight *t = &weights_of(w, row)[id];
      if (lies_in(t->data, w->memory, w->bytes)) count(w->backend, t, w->not_finite, row, id);
      if (lies_in(t->data, w->host_memory, w->host_bytes)) count(w->host, t, w->host_not_finite, row, id);
    }
}

void tri_weights_count_part(const tri_weights *w, int layer, int half) {
  for (int id = 0; id < TRI_W_COUNT; id++) {
    const tri_weight *t = &w->layers[layer].w[id];
    bool of_part = tri_weight_is_mlp((tri_weight_id)id) == (half == TRI_PART_MLP);
    if (of_part && lies_in(t->data, w->ring, w->ring_bytes)) count(w->backend, t, w->not_finite, 1 + layer, id);
  }
}

/* The names of the tensors that a weight comes from, those of all experts as one. */
static void list_tensors(const tri_model_config *c, int id, int layer, char *out, size_t cap) {
  size_t used = 0;
  out[0] = '\0';
  for (const tri_tensor_rule *r = tri_rule_next(c, NULL); r && used < cap; r = tri_rule_next(c, r)) {
    char of_all[128];
    if ((int)r->weight != id || !tri_rule_applies(c, r, layer)) continue;
    const char *first = strstr(r->name, "%d"), *second = first ? strstr(first + 2, "%d") : NULL;
    int before = second ? (int)(second - r->name) : (int)strlen(r->name);
    snprintf(of_all, sizeof of_all, "%.*s%s%s", before, r->name, second ? "*" : "", second ? second + 2 : "");
    used += (size_t)snprintf(out + used, cap - used, used ? ", " : " (");
    if (used < cap) used += (size_t)snprintf(out + used, cap - used, of_all, layer);
  }
  if (used && used < cap) snprintf(out + used, cap - used, ")");
}

/* The first weight of which something was counted, if any. */
static tri_status look(const tri_weights *w, const tri_model_config *c, const tri_shard *s, const uint64_t *counts,
                       tri_error *err) {
  for (int row = 0; row <= s->layers.count; row++)
    for (int id = 0; id < TRI_W_COUNT; id++) {
      unsigned long long n = counts[row * TRI_W_COUNT + id];
      const tri_weight *t = &weights_of(w, row)[id];
      int layer = row ? s->layers.first + row - 1 : 0;
      char where[32] = "", tensors[200];
      if (!n) continue;
      if (row) snprintf(where, sizeof where, " of layer %d", layer);
      list_tensors(c, id, layer, tensors, sizeof tensors);
      return tri_fail(err, TRI_CORRUPT, "model",
                      "%llu of the %lld numbers of weight %s%s%s are infinite or NaN: the files are damaged, or have "
                      "numbers that do not fit into the dtype that they are computed in (--dtype)",
                      n, (long long)t->n * (long long)t->k, tri_weight_name((tri_weight_id)id), where, tensors);
    }
  return TRI_OK;
}

tri_status tri_weights_check_counts(const tri_weights *w, const tri_model_config *c, const tri_shard *s,
                                    tri_error *err) {
  tri_backend *be = w->backend;
  size_t n = tri_weights_num_counts(s->layers.count), bytes = n * sizeof(uint64_t);
  uint64_t *counts = tri_calloc(n, sizeof *counts);
  if (!counts) return tri_fail(err, TRI_NO_MEMORY, "model", "no memory to look at weights");
  be->ops.download(be, counts, w->not_finite, bytes);
  tri_status st = be->ops.stream_sync(be);
  if (st != TRI_OK) tri_fail(err, st, "model", "the weights could not be looked at: %s", be->failure);
  for (size_t i = 0; w->host_not_finite && i < n; i++) counts[i] += w->host_not_finite[i];
  if (st == TRI_OK) st = look(w, c, s, counts, err);
  tri_free(counts);
  return st;
}
