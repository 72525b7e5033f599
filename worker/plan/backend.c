/* SPDX-License-Identifier: Apache-2.0 */
/* The backend that is planned for, and the memory of a rank. */
#include <string.h>

#include "kernels/backend.h"
#include "runtime/base/mem.h"
#include "runtime/base/topo.h"
#include "worker/plan/plan.h"

static void take_cpu(struct plan *p) {
  const tri_serve_options *v = &p->o->serve;
  p->backend = strcmp(v->backend, "auto") ? v->backend : "cpu";
  p->cores = tri_topo_num_cores();
  p->ledger.memory = tri_host_memory_available() / (p->num_ranks * p->layout.replicas);
}

static void take_device(struct plan *p, tri_backend *be) {
  p->backend = "cuda";
  p->ledger.device = true;
  p->devices = be->num_devices;
  p->ledger.memory = be->ops.mem_available(be);
}

tri_status plan_find_backend(struct plan *p, tri_error *err) {
  const tri_serve_options *v = &p->o->serve;
  bool insists = !strcmp(v->backend, "cuda"), may = insists || !strcmp(v->backend, "auto");
  tri_backend *be = NULL;
  tri_error why = {0};
  tri_status st = TRI_OK;
  if (may)
    st = tri_backend_create(&(tri_backend_config){.name = v->backend,
                                                  .deterministic = v->deterministic,
                                                  .memory_utilization = v->gpu_memory_utilization},
                            &be, &why);
  if (insists && st != TRI_OK && !p->o->memory)
    return tri_fail(err, TRI_UNSUPPORTED, "memory-per-rank",
                    "--memory-per-rank must say what the device has, which cannot be asked here: %s", why.message);
  bool device = be && !be->host_memory;
  /* Hosts that are named may have more than this one. */
  bool enough = !device || insists || p->o->hosts || !be->num_devices || be->num_devices >= p->num_ranks;
  if (device && enough)
    take_device(p, be);
  else
    take_cpu(p);
  if (be) memcpy(p->device, be->tactics_key, sizeof p->device);
  if (insists) p->backend = "cuda";
  p->ledger.device |= insists;
  if (insists && !device) p->cores = 0;
  double share = p->ledger.device ? v->gpu_memory_utilization : 1;
  if (p->o->memory) p->ledger.memory = (int64_t)((double)p->o->memory * share);
  tri_backend_destroy(be);
  return TRI_OK;
}
