/* SPDX-License-Identifier: Apache-2.0 */
/* `trireme plan --devices`: the machine, and layouts for it. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/topo.h"
#include "runtime/engine/offload_options.h"
#include "runtime/forward/kv_cache.h"
#include "runtime/load/weights.h"
#include "runtime/step/limits.h"
#include "runtime/cost/machine_file.h"
#include "tools/plan/plan.h"

/* A layout that is asked for and one that is looked for exclude each other. */
static tri_status check_options(const struct plan *p, tri_error *err) {
  const struct plan_options *o = p->o;
  const tri_serve_options *v = &o->serve;
  const struct {
    const char *field, *option;
    bool given;
  } fixed[] = {
      {"tensor_parallel_size", "-tp", v->tp != 1},
      {"pipeline_parallel_size", "-pp", v->pp != 1},
      {"data_parallel_size", "-dp", v->dp != 1},
      {"expert_parallel_size", "-ep", v->ep != 0},
      {"enable_expert_parallel", "--enable-expert-parallel", v->enable_expert_parallel},
      {"moe_tensor_parallel_size", "--moe-tensor-parallel-size", v->moe_tp != 0},
      {"replicas", "--replicas", v->replicas != 0},
      {"hosts", "--hosts", o->hosts != NULL},
  };
  for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++)
    if (fixed[i].given)
      return tri_fail(err, TRI_USAGE, fixed[i].field, "--devices looks for a layout, and %s is a part of one",
                      fixed[i].option);
  if (v->hot_experts > 0)
    return tri_fail(err, TRI_USAGE, "hot_experts",
                    "--devices ranks layouts with all experts on devices, and --hot-experts is for those that the host "
                    "has: give one of them up");
  if (v->cpu_moe || v->n_cpu_moe)
    return tri_fail(err, TRI_USAGE, "cpu_moe",
                    "--devices ranks layouts with all experts on devices, and --cpu-moe and --n-cpu-moe keep some off "
                    "them: plan one layout without --devices");
  if (o->devices % o->nnodes)
    return tri_fail(err, TRI_USAGE, "nnodes", "%d devices are not equal parts of %d hosts", o->devices, o->nnodes);
  if (p->c->encoder || p->c->seq2seq.on)
    return tri_fail(err, TRI_UNSUPPORTED, "devices", "only steps of decoders are predicted, and %s is none",
                    p->c->arch->model_type);
  return TRI_OK;
}

/* The type of the weights of most products, as a worker has them; no type where they cannot be laid out. */
static tri_dtype weight_type(const struct plan *p) {
  tri_shard whole;
  tri_weight_map m;
  if (tri_shard_make(p->c, (tri_parallel){.tp = 1, .pp = 1}, &whole, NULL) != TRI_OK ||
      tri_weight_map_make(p->c, &whole, p->ckpt, p->ledger.dtype, p->ledger.quantization, NULL, &m, NULL) != TRI_OK)
    return TRI_DTYPE_COUNT;
  tri_dtype type = m.layers[TRI_W_O].dtype;
  tri_weight_map_free(&m);
  return type;
}

/* Counts what one of the ranks has of a model that is cut into equal parts, as far as it tells what its products take.
 */
static tri_status mean_share(const struct plan *p, tri_cost_share *out, tri_error *err) {
  tri_shard whole;
  *out = (tri_cost_share){0};
  if (p->ledger.device) return TRI_OK;
  TRI_CHECK(tri_shard_make(p->c, (tri_parallel){.tp = 1, .pp = 1}, &whole, err));
  bool stored = p->ledger.dtype == TRI_DTYPE_COUNT && p->ledger.quantization == TRI_QUANTIZE_NONE;
  tri_dtype type = stored ? weight_type(p) : p->ledger.dtype;
  TRI_CHECK(tri_cost_share_add(p->c, &whole, type, p->ledger.quantization, p->ledger.kv_dtype, out, err));
  out->dense_bytes /= p->o->devices;
  return TRI_OK;
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
  tri_dtype type = device[0] ? weight_type(p) : TRI_DTYPE_COUNT;
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

/* The processors beside devices, of which each rank has an equal part. */
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
  tri_link *const near[] = {&m->machine.near_sum, &m->machine.near_exchange, &m->machine.near_transfer};
  tri_link *const far[] = {&m->machine.far_sum, &m->machine.far_exchange, &m->machine.far_transfer};
  for (int i = 0; i < 3; i++) {
    override_link(near[i], o->link_bandwidth, 0);
    override_link(far[i], o->network_bandwidth, o->network_latency);
  }
  return TRI_OK;
}

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

tri_status plan_devices(struct plan *p, tri_error *err) {
  enum { CONTEXT = 1024, PROMPT = 2048 };
  const tri_serve_options *v = &p->o->serve;
  struct plan_machine m = {0};
  tri_cost_share share;
  tri_recommendations r = {0};
  TRI_CHECK(check_options(p, err));
  TRI_CHECK(tri_offload_of_options(v, &p->offload, err));
  p->num_ranks = p->o->devices / p->o->nnodes; /* of a host */
  p->layout.replicas = 1;
  TRI_CHECK(plan_find_backend(p, err));
  TRI_CHECK(plan_limits(p, v->max_model_len, &p->limits, err));
  tri_dtype kv = v->kv_cache_dtype == TRI_SERVE_AUTO ? TRI_DTYPE_COUNT : (tri_dtype)v->kv_cache_dtype;
  p->ledger.kv_dtype = tri_kv_dtype(p->c, kv, p->ledger.dtype, p->ledger.device);
  TRI_CHECK(mean_share(p, &share, err));
  TRI_CHECK(plan_find_machine(p, &share, &m, err));
  int64_t context = p->o->context_len ? p->o->context_len : smaller(CONTEXT, p->limits.max_model_len);
  if (context > p->limits.max_model_len)
    return tri_fail(err, TRI_USAGE, "context_len", "--context-len %lld exceeds max_model_len %d", (long long)context,
                    p->limits.max_model_len);
  tri_recommend_config config = {.model = p->c,
                                 .ckpt = p->ckpt,
                                 .limits = p->limits,
                                 .ledger = p->ledger,
                                 .offload = tri_offload_is_allowed(&p->offload) ? &p->offload : NULL,
                                 .machine = m.machine,
                                 .devices = p->o->devices,
                                 .context = (double)context,
                                 .prompt = (double)smaller(PROMPT, p->limits.max_model_len)};
  tri_status st = tri_recommend(&config, &r, err);
  if (st == TRI_OK || (r.count && p->o->json)) plan_print_layouts(p, &m, &config, &r);
  tri_recommendations_free(&r);
  return st;
}
