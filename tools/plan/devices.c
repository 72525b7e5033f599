/* SPDX-License-Identifier: Apache-2.0 */
/* `trireme plan --devices`: layouts for a number of devices. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "runtime/engine/offload_options.h"
#include "runtime/forward/kv_cache.h"
#include "runtime/load/weights.h"
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
      return tri_fail(err, TRI_USAGE, fixed[i].field,
                      "--devices searches for a layout, and %s is part of one: give only one of them", fixed[i].option);
  if (v->hot_experts > 0)
    return tri_fail(err, TRI_USAGE, "hot_experts",
                    "--devices ranks layouts with all experts on GPUs, and --hot-experts is for experts in host "
                    "memory: give only one of them");
  if (v->cpu_moe || v->n_cpu_moe)
    return tri_fail(err, TRI_USAGE, "cpu_moe",
                    "--devices ranks layouts with all experts on GPUs, and --cpu-moe and --n-cpu-moe keep some in host "
                    "memory: plan one layout without --devices");
  if (o->devices % o->nnodes)
    return tri_fail(err, TRI_USAGE, "nnodes", "%d GPUs cannot be divided equally over %d hosts", o->devices, o->nnodes);
  if (p->c->encoder || p->c->seq2seq.on)
    return tri_fail(err, TRI_UNSUPPORTED, "devices", "only steps of decoders are predicted, and %s is none",
                    p->c->arch->model_type);
  return TRI_OK;
}

/* Counts what one of the ranks has of a model that is cut into equal parts, as far as it tells what its products take.
 */
static tri_status mean_share(const struct plan *p, tri_cost_share *out, tri_error *err) {
  tri_shard whole;
  *out = (tri_cost_share){0};
  if (p->ledger.device) return TRI_OK;
  TRI_CHECK(tri_shard_make(p->c, (tri_parallel){.tp = 1, .pp = 1}, &whole, err));
  bool stored = p->ledger.dtype == TRI_DTYPE_COUNT && p->ledger.quantization == TRI_QUANTIZE_NONE;
  tri_dtype type = stored ? plan_weight_type(p) : p->ledger.dtype;
  TRI_CHECK(tri_cost_share_add(p->c, &whole, type, p->ledger.quantization, p->ledger.kv_dtype, out, err));
  out->dense_bytes /= p->o->devices;
  return TRI_OK;
}

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* CONTEXT and PROMPT are what is predicted for where --context-len does not say it, cut to max_model_len. */
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
