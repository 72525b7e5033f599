#include "worker/rank_cost.h"

#include <limits.h>

#include "worker/plan/machine.h"
#include "worker/plan/machine_file.h"

static void find_device(const tri_engine *e, tri_ceilings *out) {
  char path[PATH_MAX], device[TRI_MACHINE_NAME];
  tri_machine_figures f;
  *out = tri_h200_ceilings;
  tri_machine_file_path(path);
  tri_machine_name(e->backend->tactics_key, device);
  if (device[0] && tri_machine_file_find(path, device, e->ledger.weight_type, &f))
    *out = (tri_ceilings){f.read_bytes_per_s, f.flops_per_s};
}

static tri_status find_machine(const tri_engine *e, tri_machine *out) {
  bool device = !e->backend->host_memory;
  tri_ceilings best;
  if (device)
    find_device(e, &best);
  else
    TRI_CHECK(tri_machine_measure_backend(e->backend, &best));
  *out = tri_machine_make(best, device, 0);
  if (!e->host) return TRI_OK;
  TRI_CHECK(tri_machine_measure_backend(e->host, &best));
  tri_machine host = tri_machine_make(best, false, 0);
  out->host_read_bytes_per_s = host.read_bytes_per_s;
  out->host_flops_per_s = host.flops_per_s;
  return TRI_OK;
}

static tri_status find_share(const tri_serve_options *o, const tri_engine *e, tri_cost_share *out, tri_error *err) {
  bool stored = o->dtype == TRI_SERVE_AUTO && o->quantization == TRI_QUANTIZE_NONE;
  tri_dtype given = o->dtype == TRI_SERVE_AUTO ? TRI_DTYPE_COUNT : (tri_dtype)o->dtype;
  *out = (tri_cost_share){0};
  return tri_cost_share_add(&e->model, &e->shard, stored ? e->ledger.weight_type : given,
                            (tri_quantization)o->quantization, TRI_F32, out, err);
}

tri_status tri_rank_cost_find(const tri_serve_options *o, const tri_engine *e, tri_rank_cost *out, tri_error *err) {
  out->model = (tri_cost_model){.p = e->shard.p,
                                .hidden_size = (int)e->model.hidden_size,
                                .window = (int)e->model.attention.window,
                                .experts = (int)e->model.moe.num_experts,
                                .top_k = (int)e->model.moe.top_k,
                                .stages = &out->share};
  out->model.p.pp = 1;
  TRI_CHECK(find_machine(e, &out->model.machine));
  return find_share(o, e, &out->share, err);
}
