/* A device's streamed weights in the host's memory: pinned, so that copies run at the link's rate. */
#include <stdio.h>

#include "runtime/engine/offload_impl.h"

/* Points a part to its home. */
static tri_status point_part(tri_offload *o, int part) {
  tri_part_extents *x = &o->extents[part];
  x->extents = tri_calloc(1, sizeof *x->extents);
  if (!x->extents) return TRI_NO_MEMORY;
  x->extents[0] = (tri_stream_extent){.home = o->homes[part], .bytes = o->tiers->bytes[part]};
  x->num = 1;
  o->parts[part] = (tri_stream_part){.extents = x->extents, .num_extents = 1};
  return TRI_OK;
}

static tri_status take_homes(tri_offload *o, tri_error *err) {
  size_t taken = 0;
  for (int i = 0; i < o->tiers->num_streamed; i++) {
    if (!o->in_dram[i]) continue;
    if (o->backend->ops.host_alloc(o->backend, o->tiers->bytes[i], (void **)&o->homes[i]) != TRI_OK)
      return tri_fail(err, TRI_NO_MEMORY, "max_in_cpu",
                      "the system pins no more of its memory after %.1f of the %.1f MiB that are for streamed weights: "
                      "give a smaller --max-in-cpu",
                      (double)taken / 0x1p20, (double)o->dram / 0x1p20);
    taken += o->tiers->bytes[i];
    TRI_CHECK(point_part(o, i));
  }
  return TRI_OK;
}

/* Conversions are the host's to do, by the same threads. */
static tri_status fill(tri_offload *o, const tri_weights_config *weights, const atomic_bool *stop, tri_error *err) {
  tri_weights_config wc = *weights;
  tri_part_loader *loader = NULL;
  tri_backend_config bc = {.name = "cpu", .pool = weights->backend->pool};
  tri_status st;
  TRI_CHECK(tri_backend_create(&bc, &wc.backend, err));
  TRI_TRY(tri_part_loader_create(&wc, &loader, err));
  for (int i = 0; i < o->tiers->num_streamed; i++) {
    if (stop && atomic_load_explicit(stop, memory_order_relaxed)) st = TRI_ABORTED;
    if (st != TRI_OK) goto cleanup;
    if (o->in_dram[i]) TRI_TRY(tri_part_loader_fill(loader, o->tiers->parts[i], o->homes[i], err));
    __atomic_fetch_add(&weights->backend->loaded, 1, __ATOMIC_RELAXED);
  }
cleanup:
  tri_part_loader_destroy(loader);
  tri_backend_destroy(wc.backend);
  return st;
}

tri_status tri_offload_fill_homes(tri_offload *o, const tri_offload_config *config, const tri_weights_config *weights,
                                  int local_ranks, const atomic_bool *stop, tri_error *err) {
  size_t n = (size_t)o->tiers->num_streamed, room = tri_offload_host_room(config, local_ranks);
  o->in_dram = tri_calloc(n, sizeof *o->in_dram);
  o->homes = tri_calloc(n, sizeof *o->homes);
  if (!o->in_dram || !o->homes) return tri_fail(err, TRI_NO_MEMORY, "offload_weights", "no memory to stream weights");
  o->dram = tri_offload_place(o->tiers, room, o->in_dram);
  if (config->tier == TRI_OFFLOAD_CPU && o->dram < o->tiers->streamed)
    return tri_fail(err, TRI_NO_CAPACITY, "offload_weights",
                    "%.1f MiB of weights leave the device, and %.1f MiB of the host's memory are for them: "
                    "--offload-weights nvme streams the rest from files",
                    (double)o->tiers->streamed / 0x1p20, (double)room / 0x1p20);
  TRI_CHECK(take_homes(o, err));
  return o->dram ? fill(o, weights, stop, err) : TRI_OK;
}

void tri_offload_free_homes(tri_offload *o) {
  for (int i = 0; o->homes && i < o->tiers->num_streamed; i++)
    if (o->homes[i]) o->backend->ops.host_free(o->backend, o->homes[i], o->tiers->bytes[i]);
  tri_free(o->homes);
  tri_free(o->in_dram);
}
