/* SPDX-License-Identifier: Apache-2.0 */
/* The backend that is planned for, and the memory of a rank.
 *
 * In this order: the kind of device that --device names; this host's devices, if they are enough for the ranks or the
 * plan is for other hosts, too (--hosts, --devices, or --backend cuda, which insists); an h200 where devices are wanted
 * and none are here; else the CPUs of this host. */
#include <string.h>

#include "kernels/backend.h"
#include "base/mem.h"
#include "base/host/topo.h"
#include "tools/plan/plan.h"

static void take_cpu(struct plan *p) {
  const tri_serve_options *v = &p->o->serve;
  p->backend = strcmp(v->backend, "auto") ? v->backend : "cpu";
  p->cores = tri_topo_num_cores();
  p->ledger.memory = tri_host_memory_available() / (p->num_ranks * p->layout.replicas);
}

/* Devices of a kind that need not be here. */
static void take_kind(struct plan *p) {
  p->backend = "cuda";
  p->ledger.device = true;
  p->kind = tri_device_kind_of(p->o->device);
  p->ledger.memory = (int64_t)((double)p->kind->memory * p->o->serve.gpu_memory_utilization);
}

static void take_device(struct plan *p, tri_backend *be) {
  p->backend = "cuda";
  p->ledger.device = true;
  p->devices = be->num_devices;
  p->ledger.memory = be->ops.mem_available(be);
}

bool plan_is_for_this_host(const struct plan *p) { return p->devices && !p->o->hosts; }

/* Says for which machine the plan is, and what of it was not looked at here. */
static void tell_assumption(struct plan *p) {
  const tri_device_kind *kind = p->kind;
  char memory[TRI_MEMORY_TEXT];
  const char *rates = kind && !kind->measured ? "rates by its data sheet" : "rates as measured on one";
  tri_memory_text((uint64_t)p->ledger.memory, memory);
  if (!kind)
    snprintf(p->assumption, sizeof p->assumption, "for the CPUs of this host");
  else if (p->device[0])
    snprintf(p->assumption, sizeof p->assumption, "for the GPUs of this host");
  else
    snprintf(p->assumption, sizeof p->assumption, "%s %s, a rank may use %s%s; %s%s",
             p->o->device ? "for" : "assumed:", kind->title, memory, p->o->memory ? " (--memory-per-rank)" : "", rates,
             p->o->device ? "" : "; --device h200, h100, a100, l40s or b200 plans for another");
}

tri_status plan_find_backend(struct plan *p, tri_error *err) {
  const tri_serve_options *v = &p->o->serve;
  bool insists = !strcmp(v->backend, "cuda"), may = insists || !strcmp(v->backend, "auto");
  bool elsewhere = p->o->device || p->o->devices;
  tri_backend *be = NULL;
  tri_error why = {0};
  if (p->o->device && !may)
    return tri_fail(err, TRI_USAGE, "device", "--device %s is a GPU, and --backend is %s", p->o->device, v->backend);
  if (may && !p->o->device)
    (void)tri_backend_create(&(tri_backend_config){.name = v->backend,
                                                   .deterministic = v->deterministic,
                                                   .memory_utilization = v->gpu_memory_utilization},
                             &be, &why);
  bool device = be && !be->host_memory;
  /* Hosts that are named may have more than this one. */
  bool enough = !device || insists || p->o->hosts || !be->num_devices || be->num_devices >= p->num_ranks;
  if (device && (enough || elsewhere))
    take_device(p, be);
  else if (insists || (may && elsewhere))
    take_kind(p);
  else
    take_cpu(p);
  if (be && p->ledger.device) {
    memcpy(p->device, be->tactics_key, sizeof p->device);
    p->kind = tri_device_kind_find(p->device);
  }
  bool prefers_fp8 = !strcmp(p->backend, "cpu") && tri_cpu_prefers_fp8();
  if (p->ledger.device) prefers_fp8 = p->devices ? be->prefers_fp8 : p->kind->computes_fp8;
  tri_backend_destroy(be);
  p->c->stored.wide_blocks_only = p->ledger.device;
  p->ledger.quantization = tri_stored_quantization(&p->c->stored, (tri_quantization)v->quantization, prefers_fp8);
  if (p->ledger.device && p->ledger.quantization == TRI_QUANTIZE_FP8 && !prefers_fp8)
    return tri_fail(
        err, TRI_UNSUPPORTED, "quantization",
        "--quantization fp8: of GPUs, only Hopper (H100, H200) computes with FP8 weights; with none they have 16 bits, "
        "with int8 eight");
  double share = p->ledger.device ? v->gpu_memory_utilization : 1;
  if (p->o->memory) p->ledger.memory = (int64_t)((double)p->o->memory * share);
  tell_assumption(p);
  return TRI_OK;
}
