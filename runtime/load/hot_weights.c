/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/load/hot_weights.h"

#include "runtime/load/expert_parts.h"

/* Slots of a layer lie as the experts of any other layer: one matrix for each weight, slot below slot, scales after
 * the elements. So kernels take them by tri_weight, with `slots` experts instead of the rank's. */
enum { ALIGN = 64 };

/* Adds room for n things of a size after *end. */
static bool add(size_t n, size_t size, size_t *end) {
  size_t bytes;
  if (!tri_size_mul(n, size, &bytes) || bytes > SIZE_MAX - ALIGN) return false;
  return tri_size_add(*end, (bytes + ALIGN - 1) & ~(size_t)(ALIGN - 1), end);
}

/* Adds a weight of so many slots: its elements, and their scales. */
static bool add_weight(size_t slot_bytes, size_t slot_scale_bytes, int slots, size_t *end) {
  if (!slot_bytes) return true;
  return add((size_t)slots, slot_bytes, end) && (!slot_scale_bytes || add((size_t)slots, slot_scale_bytes, end));
}

/* Adds up in the order and with the alignment in which bind_all places: a ledger counts with this number before there
 * is memory to bind. */
tri_status tri_hot_weights_bytes(const tri_shard *s, const tri_weight_map *m, int slots, size_t *out) {
  size_t end = 0, all = (size_t)s->slots.count;
  for (int l = 0; l < s->layers.count; l++)
    for (int i = 0; i < TRI_EXPERT_WEIGHTS && slots; i++) {
      const tri_weight_place *at = &m->layers[l * TRI_W_COUNT + (int)tri_expert_weights[i]];
      if (at->part != TRI_PART_ON_HOST) continue;
      if (!add_weight(at->bytes / all, at->scale_bytes / all, slots, &end)) return TRI_OVERFLOW;
    }
  *out = end;
  return TRI_OK;
}

/* More slots take more memory, so that the first number that fits, from all of them down, is the largest. */
int tri_hot_weights_fit(const tri_shard *s, const tri_weight_map *m, size_t room) {
  int slots = s->slots.count;
  size_t bytes;
  while (slots && (tri_hot_weights_bytes(s, m, slots, &bytes) != TRI_OK || bytes > room)) slots--;
  return slots;
}

/* Binds the slots of one weight after *end, or only counts them where there is no memory yet. */
static bool bind(tri_weight *to, const tri_weight *from, int all, int slots, char *memory, size_t *end) {
  size_t rows = (size_t)(from->n / all), row = (size_t)from->k * tri_dtype_size(from->dtype), at = *end, scale;
  size_t scale_bytes = tri_weight_num_scales(from) / (size_t)all * sizeof(float);
  *to = (tri_weight){.dtype = from->dtype, .groups = from->groups, .n = (int)rows * slots, .k = from->k};
  if (!from->data || !rows || !row) return true;
  if (!add((size_t)slots, rows * row, end)) return false;
  scale = *end;
  if (from->scale && !add((size_t)slots, scale_bytes, end)) return false;
  if (!memory) return true;
  to->data = memory + at;
  if (from->scale) to->scale = (const float *)(memory + scale);
  return true;
}

/* Places all weights, twice: without memory for the size, then in it. */
static tri_status bind_all(tri_hot_weights *h, const tri_model_config *c, const tri_shard *s, const tri_weights *host,
                           size_t *end) {
  *end = 0;
  for (int l = 0; l < s->layers.count; l++)
    for (int i = 0; i < TRI_EXPERT_WEIGHTS && tri_layer_experts_on_host(c, s->p, s->layers.first + l); i++) {
      tri_weight_id id = tri_expert_weights[i];
      if (!bind(&h->layers[l].w[id], &host->layers[l].w[id], s->slots.count, h->slots, h->memory, end))
        return TRI_OVERFLOW;
    }
  return TRI_OK;
}

tri_status tri_hot_weights_create(tri_backend *be, const tri_model_config *c, const tri_shard *s,
                                  const tri_weights *host, int slots, tri_hot_weights **out) {
  tri_hot_weights *h = tri_calloc(1, sizeof *h);
  tri_status st = h ? TRI_OK : TRI_NO_MEMORY;
  size_t end;
  TRI_TRY(st);
  h->backend = be;
  h->slots = slots;
  h->layers = tri_calloc((size_t)s->layers.count, sizeof *h->layers);
  TRI_TRY(h->layers ? TRI_OK : TRI_NO_MEMORY);
  TRI_TRY(bind_all(h, c, s, host, &end));
  TRI_TRY(be->ops.mem_alloc(be, TRI_MEM_WEIGHTS, end, &h->memory));
  h->bytes = end;
  TRI_TRY(bind_all(h, c, s, host, &end));
  *out = h;
  h = NULL;
cleanup:
  tri_hot_weights_destroy(h);
  return st;
}

void tri_hot_weights_destroy(tri_hot_weights *h) {
  if (!h) return;
  if (h->memory) h->backend->ops.mem_free(h->backend, TRI_MEM_WEIGHTS, h->memory, h->bytes);
  tri_free(h->layers);
  tri_free(h);
}
