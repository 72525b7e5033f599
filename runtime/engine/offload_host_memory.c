/* SPDX-License-Identifier: Apache-2.0 */
/* A device's streamed weights in the host's memory: pinned, so that copies run at the link's rate. What ranks of a host
 * have in common lies there once.
 *
 * A part's home is one piece of this rank's own, or, of a part that is common, a piece of the split's shared memory,
 * and one of its own for experts. Pages are taken by the rank that copies them (tri_split_take_home), so that they lie
 * near its device, filled by the ranks in turns, and pinned when all of it is there. */
#include <string.h>
#include <unistd.h>

#include "runtime/engine/offload_impl.h"

/* ---- which parts ---- */

static tri_status place(tri_offload *o, const tri_weights_config *w, const tri_offload_ranks *ranks, size_t room,
                        tri_error *err) {
  tri_weight_map m = {0};
  int sharing = ranks->split ? tri_split_size(ranks->split) : 1;
  if (sharing > 1)
    TRI_CHECK(tri_weight_map_make(w->model, w->shard, w->ckpt, w->dtype, w->quantization, w->tiers, &m, err));
  o->dram = tri_offload_place(o->tiers, sharing > 1 ? &m : NULL, sharing, room, o->in_dram);
  tri_weight_map_free(&m);
  return TRI_OK;
}

tri_status tri_offload_place_homes(tri_offload *o, const tri_offload_config *config, const tri_weights_config *weights,
                                   const tri_offload_ranks *ranks, tri_error *err) {
  size_t n = (size_t)o->tiers->num_streamed;
  size_t room = ranks->split ? ranks->host_room : tri_offload_host_room(config, ranks->local_ranks);
  o->in_dram = tri_calloc(n, sizeof *o->in_dram);
  o->homes = tri_calloc(n, sizeof *o->homes);
  if (!o->in_dram || !o->homes) return tri_fail(err, TRI_NO_MEMORY, "offload_weights", "no memory to stream weights");
  TRI_CHECK(place(o, weights, ranks, room, err));
  if (config->tier == TRI_OFFLOAD_CPU && o->dram < o->tiers->streamed)
    return tri_fail(err, TRI_NO_CAPACITY, "offload_weights",
                    "%.1f MiB of weights do not stay on the GPU, and %.1f MiB of host memory are available for them%s: "
                    "--offload-weights nvme streams the rest from files",
                    (double)o->tiers->streamed / 0x1p20, (double)room / 0x1p20, tri_offload_spares(config));
  return TRI_OK;
}

/* ---- where they lie ---- */

static size_t align_up(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

/* A part that is all this rank's own is one piece. */
static tri_status make_whole(tri_offload *o, int part) {
  tri_part_extents *x = &o->extents[part];
  x->extents = tri_calloc(1, sizeof *x->extents);
  if (!x->extents) return TRI_NO_MEMORY;
  x->extents[0] = (tri_stream_extent){.bytes = o->tiers->bytes[part]};
  x->num = 1;
  o->parts[part] = (tri_stream_part){.extents = x->extents, .num_extents = 1};
  return TRI_OK;
}

/* Measures what of a part is common, and its own. */
static void measure(tri_offload *o, int part) {
  const tri_part_extents *x = &o->extents[part];
  tri_offload_home *h = &o->homes[part];
  for (int k = 0; k < x->num; k++) *(x->extents[k].reader ? &h->common : &h->own_bytes) += x->extents[k].bytes;
  h->is_shared = h->common > 0;
}

/* Gives each of a part's extents its place. */
static void point(tri_offload *o, int part) {
  tri_offload_home *h = &o->homes[part];
  char *common = h->is_shared ? tri_split_home(o->split) + h->at : NULL, *own = h->own;
  for (int k = 0; k < o->extents[part].num; k++) {
    tri_stream_extent *x = &o->extents[part].extents[k];
    char **next = x->reader ? &common : &own;
    x->home = *next;
    *next += x->bytes;
  }
}

/* Finds what this rank copies of a part in common, in the home. False: nothing. */
static bool find_share(const tri_offload *o, int part, size_t *first, size_t *end) {
  const tri_offload_home *h = &o->homes[part];
  size_t at = h->at;
  *first = *end = 0;
  for (int k = 0; h->is_shared && k < o->extents[part].num; k++) {
    const tri_stream_extent *x = &o->extents[part].extents[k];
    if (!x->reader) continue;
    bool mine = !o->rings || x->reader == tri_split_rank(o->split) + 1;
    if (mine && !*end) *first = at;
    if (mine) *end = at + x->bytes;
    at += x->bytes;
  }
  return *end > 0;
}

static tri_status refuse_pins(const tri_offload *o, size_t taken, tri_error *err) {
  return tri_fail(err, TRI_NO_MEMORY, "max_in_cpu",
                  "the system pins no more of its memory after %.1f of the %.1f MiB that are for streamed weights: "
                  "give a smaller --max-in-cpu",
                  (double)taken / 0x1p20, (double)o->dram / 0x1p20);
}

static tri_status take_homes(tri_offload *o, tri_error *err) {
  size_t taken = 0, at = 0, first, end;
  for (int i = 0; i < o->tiers->num_streamed; i++) {
    tri_offload_home *h = &o->homes[i];
    if (!o->in_dram[i]) continue;
    if (!o->extents[i].num) TRI_CHECK(make_whole(o, i));
    measure(o, i);
    h->at = at;
    at = align_up(at + h->common, TRI_SPLIT_HOME_ALIGN);
    if (h->own_bytes && o->backend->ops.host_alloc(o->backend, h->own_bytes, (void **)&h->own) != TRI_OK)
      return refuse_pins(o, taken, err);
    taken += o->tiers->bytes[i];
    if (find_share(o, i, &first, &end)) TRI_CHECK(tri_split_take_home(o->split, first, end - first, err)); /* near it */
    point(o, i);
  }
  return TRI_OK;
}

/* Pins what this rank copies of the home, when all of it is there. */
static tri_status pin_homes(tri_offload *o, tri_error *err) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE), taken = 0, first, end;
  for (int i = 0; i < o->tiers->num_streamed; i++) {
    tri_offload_home *h = &o->homes[i];
    if (!find_share(o, i, &first, &end)) continue;
    first -= first % page;
    char *memory = tri_split_home(o->split) + first;
    size_t bytes = align_up(end - first, page);
    if (o->backend->ops.host_pin(o->backend, memory, bytes) != TRI_OK) return refuse_pins(o, taken, err);
    h->pinned = memory;
    taken += bytes;
  }
  return TRI_OK;
}

/* ---- what lies there ---- */

/* Puts a part that was loaded where its pieces belong; of what is common one rank does. */
static void scatter(tri_offload *o, int part, const char *from, bool fills) {
  for (int k = 0; k < o->extents[part].num; k++) {
    const tri_stream_extent *x = &o->extents[part].extents[k];
    if (!x->reader || fills) memcpy((char *)x->home, from + x->at, x->bytes);
  }
}

/* fills: this rank loads what is common. A part that is in one piece is loaded there. */
static tri_status fill_part(tri_offload *o, tri_part_loader *loader, int part, bool fills, tri_error *err) {
  const tri_offload_home *h = &o->homes[part];
  char *whole = h->is_shared ? tri_split_home(o->split) + h->at : h->own, *apart = NULL;
  if (!h->own_bytes && !fills) return TRI_OK;
  if (!h->own_bytes || !h->is_shared) return tri_part_loader_fill(loader, o->tiers->parts[part], whole, err);
  apart = tri_calloc(o->tiers->bytes[part], 1);
  if (!apart)
    return tri_fail(err, TRI_NO_MEMORY, "offload_weights", "no memory to load a part of %zu bytes",
                    o->tiers->bytes[part]);
  tri_status st = tri_part_loader_fill(loader, o->tiers->parts[part], apart, err);
  if (st == TRI_OK) scatter(o, part, apart, fills);
  tri_free(apart);
  return st;
}

/* The ranks load what they have in common in turns. Conversions are the host's to do, by the same threads. */
static tri_status fill(tri_offload *o, const tri_weights_config *weights, const atomic_bool *stop, tri_error *err) {
  tri_weights_config wc = *weights;
  tri_part_loader *loader = NULL;
  tri_backend_config bc = {.name = "cpu", .pool = weights->backend->pool};
  tri_status st;
  int shared = 0;
  TRI_CHECK(tri_backend_create(&bc, &wc.backend, err));
  TRI_TRY(tri_part_loader_create(&wc, &loader, err));
  for (int i = 0; i < o->tiers->num_streamed; i++) {
    if (stop && atomic_load_explicit(stop, memory_order_relaxed)) TRI_TRY(TRI_ABORTED);
    bool is_shared = o->homes[i].is_shared;
    bool fills = is_shared && shared++ % tri_split_size(o->split) == tri_split_rank(o->split);
    if (o->in_dram[i]) TRI_TRY(fill_part(o, loader, i, fills, err));
    __atomic_fetch_add(&weights->backend->loaded, 1, __ATOMIC_RELAXED);
  }
cleanup:
  tri_part_loader_destroy(loader);
  tri_backend_destroy(wc.backend);
  return st;
}

/* Devices that do not reach each other copy all of the home over their own links. */
static void forget_readers(tri_offload *o) {
  for (int i = 0; i < o->tiers->num_streamed; i++) {
    if (!o->homes[i].is_shared) continue;
    o->common -= o->homes[i].common;
    for (int k = 0; k < o->extents[i].num; k++) o->extents[i].extents[k].reader = 0;
  }
}

tri_status tri_offload_fill_homes(tri_offload *o, const tri_weights_config *weights, const atomic_bool *stop,
                                  tri_error *err) {
  bool all = true;
  TRI_CHECK(take_homes(o, err));
  if (o->dram) TRI_CHECK(fill(o, weights, stop, err));
  if (!o->split) return TRI_OK;
  tri_split_answer(o->split, TRI_OFFLOAD_HOME_IS_FULL, true);
  TRI_CHECK(tri_offload_ask_all(o, TRI_OFFLOAD_HOME_IS_FULL, stop, &all, err));
  TRI_CHECK(pin_homes(o, err));
  if (!o->rings) forget_readers(o);
  return TRI_OK;
}

void tri_offload_free_homes(tri_offload *o) {
  for (int i = 0; o->homes && i < o->tiers->num_streamed; i++) {
    tri_offload_home *h = &o->homes[i];
    if (h->pinned) o->backend->ops.host_unpin(o->backend, h->pinned);
    if (h->own) o->backend->ops.host_free(o->backend, h->own, h->own_bytes);
  }
  tri_free(o->homes);
  tri_free(o->in_dram);
}
