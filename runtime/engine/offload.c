/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/engine/offload.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "runtime/engine/offload_impl.h"

/* Sources of a streamed part, in the order in which they are tried: the host's memory (a device's, as far as there
 * is room), the checkpoint's files, if all parts that are read lie in them as they are to lie in memory, else a pack.
 * A CPU needs no home in memory: it reads into the ring that products read from. */
/* ---- from the checkpoint itself ---- */

static tri_status list_files(tri_offload *o, const tri_checkpoint *ckpt) {
  o->num_files = tri_checkpoint_num_files(ckpt);
  o->files = tri_calloc((size_t)o->num_files, sizeof *o->files);
  if (!o->files) return TRI_NO_MEMORY;
  for (int i = 0; i < o->num_files; i++)
    o->files[i] = (tri_stream_file){tri_checkpoint_fd(ckpt, i), tri_checkpoint_path(ckpt, i)};
  return TRI_OK;
}

/* *all false: some part is stored in another way than it lies in memory. */
static tri_status find_extents(tri_offload *o, tri_part_loader *loader, bool *all, tri_error *err) {
  *all = true;
  for (int i = 0; *all && i < o->tiers->num_streamed; i++) {
    tri_part_extents *x = &o->extents[i];
    if (!tri_offload_is_read(o, i)) continue;
    TRI_CHECK(tri_part_extents_find(loader, o->tiers->parts[i], x, all, err));
    o->parts[i] = (tri_stream_part){.extents = x->extents, .num_extents = x->num};
  }
  return TRI_OK;
}

/* ---- from nothing and back ---- */

static void say(tri_offload *o, const char *where) {
  size_t at = strlen(o->about);
  snprintf(o->about + at, sizeof o->about - at, "%s", where);
}

/* The checkpoint's own files serve where every part lies in them as it lies in memory; else all of them come from a
 * pack, which is made where there is none. */
static tri_status find_source(tri_offload *o, const tri_offload_config *config, const tri_weights_config *weights,
                              const atomic_bool *stop, tri_error *err) {
  tri_part_loader *loader = NULL;
  bool all = false;
  tri_status st = TRI_OK;
  if (o->dram == o->tiers->streamed) {
    snprintf(o->about, sizeof o->about, "host memory");
    return TRI_OK;
  }
  if (weights->ckpt && !config->always_pack) {
    TRI_TRY(tri_part_loader_create(weights, &loader, err));
    TRI_TRY(find_extents(o, loader, &all, err));
  }
  if (o->dram) snprintf(o->about, sizeof o->about, "host memory (%.1f MiB) and ", (double)o->dram / 0x1p20);
  if (!all) {
    TRI_TRY(tri_offload_use_pack(o, config, weights, stop, err));
  } else {
    TRI_TRY(list_files(o, weights->ckpt));
    say(o, "the checkpoint");
  }
cleanup:
  tri_part_loader_destroy(loader);
  return st;
}

/* Reads that continue to a device come into pinned memory, those for other ranks into the split's. */
static tri_status take_buffers(tri_offload *o, tri_reader_config *reads, tri_error *err) {
  if (o->split) reads->memory = tri_split_buffers(o->split, tri_split_rank(o->split));
  if (o->split || !o->backend) return TRI_OK;
  o->buffer_bytes = tri_reader_memory_bytes(reads);
  if (o->backend->ops.host_alloc(o->backend, o->buffer_bytes, (void **)&o->buffers) != TRI_OK)
    return tri_fail(err, TRI_NO_MEMORY, "offload_weights", "the system gives no %.1f MiB of pinned memory to read into",
                    (double)o->buffer_bytes / 0x1p20);
  reads->memory = o->buffers;
  return TRI_OK;
}

/* Begins the stream and waits until the ring is full, which also measures the rate of reads. */
static tri_status start(tri_offload *o, const tri_offload_config *config, char *ring, const atomic_bool *stop,
                        tri_error *err) {
  const tri_tiers *t = o->tiers;
  tri_weight_stream_config sc = {.files = o->files,
                                 .num_files = o->num_files,
                                 .parts = o->parts,
                                 .part_bytes = t->bytes,
                                 .places = t->places,
                                 .num_parts = t->num_streamed,
                                 .has_checksums = o->pack && !o->backend,
                                 .backend = o->backend,
                                 .ring = ring,
                                 .reads = tri_offload_reads(),
                                 .split = o->split,
                                 .rings = o->rings,
                                 .first_parts = o->split ? o->first_parts : 0,
                                 .stop = stop,
                                 .poison = config->poison};
  TRI_CHECK(take_buffers(o, &sc.reads, err));
  if (!o->backend) memset(ring, 0, t->ring_bytes); /* its pages must be there before its bandwidth is measured */
  TRI_CHECK(tri_weight_stream_create(&sc, &o->stream, err));
  tri_status st = tri_weight_stream_fill(o->stream, &o->bandwidth);
  const char *why = tri_weight_stream_failure(o->stream);
  if (st != TRI_OK) tri_fail(err, st, "offload_weights", "%s", why[0] ? why : tri_status_text(st));
  return st;
}

/* A device that reads files copies from all ranks' buffers. False: it could do so only at a fraction of its link's
 * rate, and the other ranks go without it. */
static bool pin_split(tri_offload *o, tri_split *split) {
  void *buffers = tri_split_buffers(split, 0);
  if (!o->backend || o->dram == o->tiers->streamed) return true;
  if (o->backend->ops.host_pin(o->backend, buffers, tri_split_all_bytes(split)) == TRI_OK)
    o->pinned = buffers;
  else
    tri_split_leave(split);
  return o->pinned != NULL;
}

static void unpin_split(tri_offload *o) {
  if (o->pinned) o->backend->ops.host_unpin(o->backend, o->pinned);
  o->pinned = NULL;
}

static tri_status make(const tri_tiers *tiers, tri_offload **out, tri_error *err) {
  tri_offload *o = tri_calloc(1, sizeof *o);
  size_t n = (size_t)tiers->num_streamed;
  *out = o;
  if (o) o->tiers = tiers;
  if (o) o->damaged = -1;
  if (o) o->parts = tri_calloc(n, sizeof *o->parts);
  if (o) o->extents = tri_calloc(n, sizeof *o->extents);
  if (o && o->parts && o->extents) return TRI_OK;
  return tri_fail(err, TRI_NO_MEMORY, "offload_weights", "no memory to stream weights");
}

/* Finds where the parts come from, and brings to the host's memory what is to lie there. */
static tri_status find_parts(tri_offload *o, const tri_offload_config *config, const tri_weights_config *weights,
                             char *ring, const tri_offload_ranks *ranks, tri_error *err) {
  if (o->backend) TRI_CHECK(tri_offload_place_homes(o, config, weights, ranks, err));
  TRI_CHECK(find_source(o, config, weights, ranks->stop, err));
  if (ranks->split && pin_split(o, ranks->split))
    TRI_CHECK(tri_offload_share_reads(o, weights, ranks->split, ranks->stop, err));
  if (!o->split) unpin_split(o);
  if (o->backend && o->split) TRI_CHECK(tri_offload_open_rings(o, ring, ranks->stop, err));
  return o->backend ? tri_offload_fill_homes(o, weights, ranks->stop, err) : TRI_OK;
}

tri_status tri_offload_create(const tri_offload_config *config, const tri_weights_config *weights, char *ring,
                              const tri_offload_ranks *ranks, tri_offload **out, tri_error *err) {
  tri_offload *o;
  tri_status st;
  TRI_TRY(make(weights->tiers, &o, err));
  if (!weights->backend->host_memory) o->backend = weights->backend;
  TRI_TRY(find_parts(o, config, weights, ring, ranks, err));
  TRI_TRY(start(o, config, ring, ranks->stop, err));
  *out = o;
  return TRI_OK;
cleanup:
  tri_offload_destroy(o);
  return st == TRI_OK || (err && err->status) ? st : tri_fail(err, st, "offload_weights", "%s", tri_status_text(st));
}

/* Returns the damaged file of a pack; -1: none is. */
static int damaged_file(const tri_offload *o) {
  return o->damaged >= 0 || !o->stream ? o->damaged : tri_weight_stream_damaged_file(o->stream);
}

/* The stream ends first, since it writes into buffers and rings. Where it does not end (a disk that does not answer)
 * the memory that it may still write into is left alone, and the caller learns of it. */
bool tri_offload_destroy(tri_offload *o) {
  if (!o) return true;
  int damaged = damaged_file(o);
  bool ended = tri_weight_stream_destroy(o->stream);
  ended &= tri_offload_close_rings(o);
  for (int i = 0; o->extents && i < o->tiers->num_streamed; i++) tri_part_extents_free(&o->extents[i]);
  for (int i = 0; o->whole && i < o->tiers->num_streamed; i++) tri_part_extents_free(&o->whole[i]);
  tri_free(o->whole);
  tri_free(o->extents);
  tri_free(o->parts);
  tri_free(o->files);
  if (o->pack && damaged >= 0) unlink(o->pack->files[damaged]->path); /* the next start makes it anew */
  tri_striped_pack_close(o->pack);
  tri_offload_free_homes(o);
  if (ended) unpin_split(o);
  if (o->buffers && ended) o->backend->ops.host_free(o->backend, o->buffers, o->buffer_bytes);
  tri_free(o);
  return ended;
}

tri_weight_stream *tri_offload_stream(const tri_offload *o) { return o->stream; }
double tri_offload_bandwidth(const tri_offload *o) {
  tri_stream_figures f = tri_weight_stream_figures(o->stream);
  double pass = f.pass_ns ? (double)o->tiers->streamed / ((double)f.pass_ns * 1e-9) : 0;
  return pass > o->bandwidth ? pass : o->bandwidth;
}

/* A layer is two parts, attention and MLP, of which either may stay. */
double tri_offload_layer_seconds(const tri_offload *o) {
  const tri_tiers *t = o->tiers;
  size_t most = 0;
  for (int i = 0; i < t->num_streamed; i++) {
    bool second = i && t->parts[i] / TRI_LAYER_PARTS == t->parts[i - 1] / TRI_LAYER_PARTS;
    size_t bytes = t->bytes[i] + (second ? t->bytes[i - 1] : 0);
    if (bytes > most) most = bytes;
  }
  return (double)most / tri_offload_bandwidth(o);
}

const char *tri_offload_about(const tri_offload *o) { return o->about; }

tri_offload_source tri_offload_source_of(const tri_offload *o) {
  return (tri_offload_source){.files = o->files,
                              .num_files = o->num_files,
                              .parts = o->parts,
                              .pack = o->pack,
                              .dram = o->dram,
                              .common = o->common,
                              .num_readers = o->split ? tri_split_size(o->split) : 0,
                              .gathers = o->rings != NULL};
}
