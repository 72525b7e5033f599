/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/cost/rank_cost.h"

#include <limits.h>

#include "runtime/cost/machine.h"
#include "runtime/cost/machine_file.h"

static void find_device(const tri_engine *e, tri_ceilings *out) {
  char path[PATH_MAX], device[TRI_MACHINE_NAME];
  tri_machine_figures f;
  *out = tri_device_kind_find(e->backend->tactics_key)->best;
  tri_machine_file_path(path);
  tri_machine_name(e->backend->tactics_key, device);
  if (device[0] && tri_machine_file_find(path, device, e->ledger.weight_type, &f))
    *out = (tri_ceilings){f.read_bytes_per_s, f.flops_per_s};
}

/* Measures with the threads of a rank's backend, and a workspace that is not its. */
static tri_status find_host(const tri_backend *own, const tri_cost_share *share, tri_machine *out, tri_error *err) {
  tri_backend_config bc = {.name = "cpu", .pool = own->pool, .deterministic = own->deterministic};
  tri_backend *be = NULL;
  tri_host_figures host;
  TRI_CHECK(tri_backend_create(&bc, &be, err));
  tri_status st = tri_machine_measure_backend(be, share, &host);
  tri_backend_destroy(be);
  if (st != TRI_OK) return tri_fail(err, st, "threads", "this host cannot be measured: %s", tri_status_text(st));
  *out = tri_machine_make(host.best, NULL, 0);
  tri_machine_take_ops(out, &host.ops);
  return TRI_OK;
}

static tri_status find_machine(const tri_engine *e, const tri_cost_share *share, tri_machine *out, tri_error *err) {
  tri_ceilings best;
  if (e->backend->host_memory) return find_host(e->backend, share, out, err);
  find_device(e, &best);
  *out = tri_machine_make(best, tri_device_kind_find(e->backend->tactics_key), 0);
  if (!e->host) return TRI_OK;
  tri_machine host;
  TRI_CHECK(find_host(e->host, share, &host, err));
  out->host_read_bytes_per_s = host.read_bytes_per_s;
  out->host_flops_per_s = host.flops_per_s;
  return TRI_OK;
}

static tri_status find_share(const tri_serve_options *o, const tri_engine *e, tri_cost_share *out, tri_error *err) {
  bool stored = o->dtype == TRI_SERVE_AUTO && e->quantization == TRI_QUANTIZE_NONE;
  tri_dtype given = o->dtype == TRI_SERVE_AUTO ? TRI_DTYPE_COUNT : (tri_dtype)o->dtype;
  *out = (tri_cost_share){0};
  return tri_cost_share_add(&e->model, &e->shard, stored ? e->ledger.weight_type : given, e->quantization, TRI_F32, out,
                            err);
}

tri_status tri_rank_cost_find(const tri_serve_options *o, const tri_engine *e, tri_rank_cost *out, tri_error *err) {
  out->model = (tri_cost_model){.p = e->shard.p,
                                .hidden_size = (int)e->model.hidden_size,
                                .window = (int)e->model.attention.window,
                                .experts = (int)e->model.moe.num_experts,
                                .top_k = (int)e->model.moe.top_k,
                                .stages = &out->share};
  out->model.p.pp = 1;
  TRI_CHECK(find_share(o, e, &out->share, err));
  return find_machine(e, &out->share, &out->model.machine, err);
}
