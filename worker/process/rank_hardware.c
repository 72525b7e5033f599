/* SPDX-License-Identifier: Apache-2.0 */
/* The order matters: the backend comes first, as it says which device the rank has and so which cores are near it; the
 * process moves there; then the pool's threads start, which inherit the set of cores. Only where the process was not
 * moved they are pinned, each to one. */
#include "worker/process/rank_hardware.h"

#include <string.h>
#include <unistd.h>

#include "base/host/hosts.h"
#include "base/log.h"
#include "base/host/topo.h"

enum { MAX_CORES = 4096, MAX_RANKS = 4096 };
enum { BESIDE_SPIN_US = 1000 }; /* longer than the device's part of a layer, which lies between the host's experts */

bool tri_rank_hardware_devices_differ(const char *names, int count) {
  for (int i = 0; i < count; i++) {
    const char *name = names + (size_t)i * TRI_DEVICE_NAME;
    if (!name[0]) return false;
    for (int k = 0; k < i; k++)
      if (!strcmp(name, names + (size_t)k * TRI_DEVICE_NAME)) return false;
  }
  return true;
}

/* Takes part even without a backend, as the others wait; for the same reason nothing here can fail on one rank alone,
 * as getting memory could. */
static tri_status all_have_devices(tri_comm *world, const tri_backend *be, bool *out) {
  char mine[TRI_DEVICE_NAME] = "", all[MAX_RANKS * TRI_DEVICE_NAME];
  if (world->size > MAX_RANKS) return TRI_TOO_LARGE;
  if (be) memcpy(mine, be->device, sizeof mine);
  tri_status st = tri_comm_all_gather(world, mine, all, sizeof mine);
  *out = st == TRI_OK && tri_rank_hardware_devices_differ(all, world->size);
  return st;
}

static tri_status choose_backend(const tri_serve_options *o, tri_comm *world, int device, tri_backend **out,
                                 tri_error *err) {
  tri_backend_config bc = {.name = o->backend,
                           .device = device,
                           .deterministic = o->deterministic,
                           .no_peer_memory = o->disable_custom_all_reduce,
                           .memory_utilization = o->gpu_memory_utilization};
  tri_status st = tri_backend_create(&bc, out, err);
  bool all;
  if (strcmp(o->backend, "auto")) return st;
  tri_status gathered = all_have_devices(world, st == TRI_OK ? *out : NULL, &all);
  if (st != TRI_OK) return st;
  if (gathered != TRI_OK)
    return tri_fail(err, gathered, "comm", "the ranks cannot agree on a backend: %s", tri_status_text(gathered));
  if (all || !strcmp((*out)->name, "cpu")) return TRI_OK;
  tri_log(TRI_LOG_INFO, "worker", "backend cpu: not every rank of the replica has its own GPU");
  tri_backend_destroy(*out);
  *out = NULL;
  bc.name = "cpu";
  return tri_backend_create(&bc, out, err);
}

/* A choice that costs more than people expect who asked for the same bits only. */
static void warn_deterministic(const tri_serve_options *o, const tri_comm *world) {
  bool has_gpus = !access("/dev/nvidiactl", F_OK);
  if (!o->deterministic || strcmp(o->backend, "auto") || !has_gpus || world->rank) return;
  tri_log(TRI_LOG_WARN, "worker",
          "--deterministic: this host's GPUs are not used, since bit-identical results are computed on CPUs only");
}

/* How many cores there are near the backend's device, on which this process now is; 0: it stayed where it was. */
static int move_near(const tri_backend *be) {
  char address[TRI_PCI_ADDRESS];
  int cores[MAX_CORES];
  if (!tri_topo_pci_address(be->pci, address)) return 0;
  int n = tri_topo_cores_near("/sys", address, cores, MAX_CORES);
  return n > 0 && tri_topo_bind(cores, n) ? n : 0;
}

void tri_rank_hardware_share(const tri_serve_options *o, int rank, int local_rank, int local_size, int *index,
                             int *count) {
  int first, replicas = o->launch == TRI_LAUNCH_MPI ? 1 : tri_serve_num_replicas(o); /* one replica, whatever is said */
  if (o->places && tri_hosts_read_share(o->places, rank, local_size, &first, count)) {
    *index = first + local_rank;
    return;
  }
  *index = o->group * local_size + local_rank;
  *count = replicas * local_size;
}

tri_status tri_rank_hardware_take(const tri_serve_options *o, tri_comm *world, int local_rank, int local_size,
                                  int spin_us, tri_rank_hardware *out, tri_error *err) {
  int pins[1024], oversubscribed;
  int index, count;
  tri_rank_hardware_share(o, world->rank, local_rank, local_size, &index, &count);
  *out = (tri_rank_hardware){.cores = tri_topo_num_cores(), .local_ranks = count, .threads = o->threads};
  tri_status st = choose_backend(o, world, index, &out->backend, err);
  if (st != TRI_OK) return st;
  warn_deterministic(o, world);
  if (o->disable_custom_all_reduce && out->backend->host_memory && !world->rank)
    tri_log(TRI_LOG_INFO, "worker", "--disable-custom-all-reduce has no effect: there are no GPUs on backend %s",
            out->backend->name);
  if (!out->threads) out->threads = out->cores / count > 0 ? out->cores / count : 1;
  st = tri_topo_assign(index, count, out->threads, pins, &oversubscribed);
  int near = move_near(out->backend);
  if (near && !o->threads && out->threads > near) out->threads = near;
  /* A thread of the driver's takes part in experts on the host, and the step thread waits at the same time: it has a
   * core. */
  bool beside = !out->backend->host_memory && (o->cpu_moe || o->n_cpu_moe);
  if (beside && !o->threads && out->threads > 1) out->threads--;
  /* Several ranks' devices may hang on one node: they share its cores, and which rank has which is the kernel's. */
  bool anywhere = near || beside;
  if (beside) spin_us = BESIDE_SPIN_US;
  if (st == TRI_OK)
    st = tri_pool_create(out->threads, anywhere ? NULL : pins, oversubscribed ? 0 : spin_us, &out->pool);
  if (st != TRI_OK) return tri_fail(err, st, "threads", "cannot start %d threads", out->threads);
  out->backend->pool = out->pool;
  out->oversubscribed = oversubscribed;
  if (out->backend->about[0] && near)
    tri_log(TRI_LOG_INFO, "worker", "%s; on the %d cores near it", out->backend->about, near);
  else if (out->backend->about[0])
    tri_log(TRI_LOG_INFO, "worker", "%s; the cores near it are not known", out->backend->about);
  return TRI_OK;
}
