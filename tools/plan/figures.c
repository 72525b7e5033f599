/* SPDX-License-Identifier: Apache-2.0 */
/* The figures of the machine that predictions are made with.
 *
 * What is given on the command line comes first, then what a worker has measured on such a device and kept, then the
 * figures of the device's kind. CPUs differ too much for a table: they are measured now, with products as large as a
 * rank's. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/host/topo.h"
#include "runtime/cost/machine_file.h"
#include "runtime/load/weights.h"
#include "tools/plan/plan.h"

tri_dtype plan_weight_type(const struct plan *p) {
  tri_shard whole;
  tri_weight_map m;
  if (tri_shard_make(p->c, (tri_parallel){.tp = 1, .pp = 1}, &whole, NULL) != TRI_OK ||
      tri_weight_map_make(p->c, &whole, p->ckpt, p->ledger.dtype, p->ledger.quantization, NULL, &m, NULL) != TRI_OK)
    return TRI_DTYPE_COUNT;
  tri_dtype type = m.layers[TRI_W_O].dtype;
  tri_weight_map_free(&m);
  return type;
}

static void say(char source[64], const char *text) { snprintf(source, 64, "%s", text); }

/* A device's own figures, where a worker on this host or its like has left them. */
static void take_device_figures(const struct plan *p, struct plan_machine *m) {
  char path[PATH_MAX], device[TRI_MACHINE_NAME];
  tri_machine_figures f;
  m->best = p->kind->best;
  snprintf(m->read_source, sizeof m->read_source, "%s, %s", p->kind->title,
           p->kind->measured ? "as measured" : "by its data sheet");
  tri_machine_file_path(path);
  tri_machine_name(p->device, device);
  tri_dtype type = device[0] ? plan_weight_type(p) : TRI_DTYPE_COUNT;
  if (type != TRI_DTYPE_COUNT && tri_machine_file_find(path, device, type, &f)) {
    m->best = (tri_ceilings){f.read_bytes_per_s, f.flops_per_s};
    say(m->read_source, "measured by a worker");
  }
  memcpy(m->flops_source, m->read_source, sizeof m->flops_source);
}

static tri_status take_host_figures(const struct plan *p, const tri_cost_share *share, struct plan_machine *m,
                                    tri_host_figures *out, tri_error *err) {
  if (p->o->read_bandwidth > 0 && p->o->flops > 0) return TRI_OK;
  say(m->read_source, "measured now, in equal parts");
  say(m->flops_source, m->read_source);
  int threads = p->o->serve.threads * p->num_ranks, most = tri_topo_num_cores();
  TRI_CHECK(tri_machine_measure(share, p->num_ranks, threads < most ? threads : most, out, err));
  m->best = out->best;
  return TRI_OK;
}

static void override_link(tri_link *l, double bytes_per_s, double latency_us) {
  if (bytes_per_s > 0) l->bytes_per_s = bytes_per_s;
  if (latency_us > 0) l->start_s = latency_us * 1e-6;
}

/* The host's processors next to devices, of which each rank has an equal part. */
static tri_status find_host(const struct plan *p, const tri_cost_share *share, struct plan_machine *m, tri_error *err) {
  tri_host_figures host = {.best = {.read_bytes_per_s = p->o->host_bandwidth, .flops_per_s = INFINITY}};
  int ranks = p->num_ranks * p->layout.replicas;
  if (host.best.read_bytes_per_s > 0) {
    say(m->host_source, "as given");
    host.best.read_bytes_per_s /= ranks;
  } else {
    say(m->host_source, "measured now");
    TRI_CHECK(tri_machine_measure(share, ranks, 0, &host, err));
  }
  tri_machine machine = tri_machine_make(host.best, NULL, 0);
  m->machine.host_read_bytes_per_s = machine.read_bytes_per_s;
  m->machine.host_flops_per_s = machine.flops_per_s;
  return TRI_OK;
}

/* The options for links replace the rates of all three kinds of exchange, inside a host (near) and between hosts
 * (far). */
tri_status plan_find_machine(const struct plan *p, const tri_cost_share *share, struct plan_machine *m,
                             tri_error *err) {
  const struct plan_options *o = p->o;
  tri_host_figures host = {0};
  if (p->ledger.device)
    take_device_figures(p, m);
  else
    TRI_CHECK(take_host_figures(p, share, m, &host, err));
  if (o->read_bandwidth > 0) {
    m->best.read_bytes_per_s = o->read_bandwidth;
    say(m->read_source, "as given");
  }
  if (o->flops > 0) {
    m->best.flops_per_s = o->flops;
    say(m->flops_source, "as given");
  }
  m->machine = tri_machine_make(m->best, p->kind, p->num_ranks);
  if (host.ops.element_s > 0 && o->flops <= 0) tri_machine_take_ops(&m->machine, &host.ops);
  if (tri_offload_host_experts(&p->offload, p->ledger.device)) TRI_CHECK(find_host(p, share, m, err));
  tri_link *const near[] = {&m->machine.near_sum, &m->machine.near_all2all, &m->machine.near_transfer};
  tri_link *const far[] = {&m->machine.far_sum, &m->machine.far_all2all, &m->machine.far_transfer};
  for (int i = 0; i < 3; i++) {
    override_link(near[i], o->link_bandwidth, 0);
    override_link(far[i], o->network_bandwidth, o->network_latency);
  }
  return TRI_OK;
}
