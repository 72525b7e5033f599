/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/engine/offload_options.h"

#include <limits.h>

/* Returns a rank's part of a data-parallel rank's. Some is never none: what is too little for a block is refused. */
static int64_t host_kv_bytes(const tri_serve_options *o) {
  double bytes = o->kv_offloading_size * 0x1p30 / o->tp / o->pp;
  return bytes > 0 && bytes < 1 ? 1 : (int64_t)bytes;
}

tri_status tri_offload_of_options(const tri_serve_options *o, tri_offload_config *out, tri_error *err) {
  bool asked = o->gpu_layers >= 0 || o->cpu_offload_gb > 0 || o->max_in_cpu;
  if (o->gpu_layers >= 0 && o->cpu_offload_gb > 0)
    return tri_fail(err, TRI_USAGE, "cpu_offload_gb",
                    "--gpu-layers %d says what stays and --cpu-offload-gb %g what leaves: give one of them",
                    o->gpu_layers, o->cpu_offload_gb);
  if (asked && o->offload_weights == TRI_OFFLOAD_NONE)
    return tri_fail(err, TRI_USAGE, "offload_weights",
                    "--offload-weights none keeps all weights, and --gpu-layers, --cpu-offload-gb and --max-in-cpu are "
                    "about those that leave");
  if (o->cpu_moe && o->n_cpu_moe)
    return tri_fail(err, TRI_USAGE, "n_cpu_moe",
                    "--cpu-moe is for all layers and --n-cpu-moe %d for some: give one of them", o->n_cpu_moe);
  *out = (tri_offload_config){.tier = (tri_offload_tier)o->offload_weights,
                              .gpu_layers = o->gpu_layers,
                              .bytes = (int64_t)(o->cpu_offload_gb * 0x1p30),
                              .max_in_cpu = (int64_t)o->max_in_cpu,
                              .nvme_path = o->nvme_path,
                              .ring_parts = o->offload_prefetch_step,
                              .host_kv = host_kv_bytes(o),
                              .host_experts = o->cpu_moe ? INT_MAX : o->n_cpu_moe,
                              .hot_experts = o->hot_experts};
  return TRI_OK;
}
