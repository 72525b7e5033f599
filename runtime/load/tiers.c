/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/load/tiers.h"

#include "base/mem.h"

/* Staying parts are found by bisection over the share of the bytes that stays. keep_share spreads a share as
 * Bresenham's line does its steps, so that equal parts stay at equal distances. More share may take less memory for
 * the ring, as streamed parts differ in size; the search does not need the largest share exactly, only one that fits.
 */
static tri_status make(int num_parts, tri_tiers **out) {
  size_t n = (size_t)num_parts;
  tri_tiers *t = tri_calloc(1, sizeof *t);
  if (!t) return TRI_NO_MEMORY;
  t->num_parts = num_parts;
  t->number = tri_calloc(n, sizeof *t->number);
  t->parts = tri_calloc(n, sizeof *t->parts);
  t->bytes = tri_calloc(n, sizeof *t->bytes);
  t->places = tri_calloc(n, sizeof *t->places);
  *out = t;
  return t->number && t->parts && t->bytes && t->places ? TRI_OK : TRI_NO_MEMORY;
}

void tri_tiers_free(tri_tiers *t) {
  if (!t) return;
  tri_free(t->number);
  tri_free(t->parts);
  tri_free(t->bytes);
  tri_free(t->places);
  tri_free(t);
}

static void clear(tri_tiers *t) {
  t->num_streamed = 0;
  t->resident = t->streamed = 0;
}

/* An empty part stays: there is nothing to stream. */
static void put(tri_tiers *t, const tri_tiers_config *c, int part, bool stays) {
  size_t bytes = c->part_bytes[part];
  if (stays || !bytes) {
    t->number[part] = TRI_PART_STAYS;
    t->resident += bytes;
    return;
  }
  t->number[part] = t->num_streamed;
  t->parts[t->num_streamed] = part;
  t->bytes[t->num_streamed++] = bytes;
  t->streamed += bytes;
}

/* Keeps about this share of the bytes: each part adds its share to what may stay, and stays when there is enough. */
static void keep_share(tri_tiers *t, const tri_tiers_config *c, double share) {
  double credit = 0;
  clear(t);
  for (int i = 0; i < c->num_parts; i++) {
    double bytes = (double)c->part_bytes[i];
    credit += share * bytes;
    bool stays = share >= 1 || credit > bytes;
    if (stays) credit -= bytes;
    put(t, c, i, stays);
  }
}

/* Keeps `keep` of the layers, spread evenly. */
static void keep_layers(tri_tiers *t, const tri_tiers_config *c, int keep) {
  int layers = c->num_parts / TRI_LAYER_PARTS;
  clear(t);
  for (int l = 0; l < layers; l++)
    for (int half = 0; half < TRI_LAYER_PARTS; half++)
      put(t, c, tri_part_of(l, half), (int64_t)(l + 1) * keep / layers > (int64_t)l * keep / layers);
}

/* Returns whether it fits with a ring of so many parts, and sets that. */
static bool fits(tri_tiers *t, const tri_tiers_config *c, int ring_parts) {
  t->ring_parts = ring_parts < t->num_streamed ? ring_parts : t->num_streamed;
  t->ring_bytes = t->num_streamed ? tri_ring_bytes(t->bytes, t->num_streamed, ring_parts) : 0;
  return (t->ring_bytes || !t->num_streamed) && t->resident <= c->max_resident && t->ring_bytes <= c->room &&
         t->resident <= c->room - t->ring_bytes;
}

/* Finds the largest share that fits. 40 halvings leave a share of 2^-40: a byte of a terabyte. */
static bool choose_share(tri_tiers *t, const tri_tiers_config *c, int ring_parts) {
  enum { HALVINGS = 40 };
  double low = 0, high = 1;
  keep_share(t, c, 1);
  if (fits(t, c, ring_parts)) return true;
  keep_share(t, c, 0);
  if (!fits(t, c, ring_parts)) return false;
  for (int i = 0; i < HALVINGS; i++) {
    double middle = (low + high) / 2;
    keep_share(t, c, middle);
    if (fits(t, c, ring_parts))
      low = middle;
    else
      high = middle;
  }
  keep_share(t, c, low);
  return fits(t, c, ring_parts);
}

static bool choose(tri_tiers *t, const tri_tiers_config *c, int ring_parts) {
  if (c->keep_layers < 0) return choose_share(t, c, ring_parts);
  keep_layers(t, c, c->keep_layers);
  return fits(t, c, ring_parts);
}

/* Streams as much as may ever be streamed. */
static void stream_all(tri_tiers *t, const tri_tiers_config *c) {
  if (c->keep_layers < 0)
    keep_share(t, c, 0);
  else
    keep_layers(t, c, c->keep_layers);
}

tri_status tri_tiers_room(const tri_tiers_config *config, size_t *least, size_t *ring, size_t *usual, size_t *most) {
  tri_tiers *t = NULL;
  tri_tiers_config c = *config;
  size_t all = 0;
  tri_status st = make(c.num_parts, &t);
  if (st != TRI_OK) goto cleanup;
  c.room = SIZE_MAX;
  stream_all(t, &c);
  fits(t, &c, 2);
  *ring = t->ring_bytes;
  *least = t->resident + t->ring_bytes;
  fits(t, &c, c.ring_parts);
  *usual = *most = t->resident + t->ring_bytes;
  if (c.keep_layers >= 0) goto cleanup;
  for (int i = 0; i < c.num_parts; i++) all += c.part_bytes[i];
  *most = c.max_resident < all ? c.max_resident + t->ring_bytes : all;
  if (*most < *usual) *most = *usual;
cleanup:
  tri_tiers_free(t);
  return st;
}

static tri_status too_little(tri_tiers *t, const tri_tiers_config *c, tri_error *err) {
  const double mib = 0x1p20;
  double room = (double)c->room / mib;
  if (c->keep_layers > 0)
    return tri_fail(err, TRI_NO_CAPACITY, "gpu_layers",
                    "%d layers of %.1f MiB and %.1f MiB for those that are streamed exceed the %.1f MiB that there are "
                    "for weights",
                    c->keep_layers, (double)t->resident / mib, (double)t->ring_bytes / mib, room);
  return tri_fail(err, TRI_NO_CAPACITY, c->bound ? c->bound : "memory",
                  "two parts of streamed weights take %.1f MiB, and there are %.1f MiB for them",
                  (double)t->ring_bytes / mib, room);
}

tri_status tri_tiers_plan(const tri_tiers_config *config, tri_tiers **out, tri_error *err) {
  tri_tiers *t = NULL;
  tri_status st = make(config->num_parts, &t);
  if (st != TRI_OK) {
    tri_fail(err, st, "memory", "no memory for the table of streamed weights");
    goto cleanup;
  }
  /* A smaller ring reads less far ahead, which is better than a refusal; with two parts one arrives while the other is
   * used. */
  int ring_parts = config->ring_parts;
  bool found = choose(t, config, ring_parts);
  while (!found && ring_parts > 2) found = choose(t, config, --ring_parts);
  if (!found) TRI_TRY(too_little(t, config, err));
  if (!tri_ring_plan(t->bytes, t->num_streamed, t->ring_bytes, t->places))
    TRI_TRY(tri_fail(err, TRI_INTERNAL, "memory", "the ring of streamed weights has no room for a part"));
  *out = t;
  return TRI_OK;
cleanup:
  tri_tiers_free(t);
  return st;
}
