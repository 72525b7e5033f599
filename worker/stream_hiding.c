#include "worker/stream_hiding.h"

#include "runtime/base/log.h"
#include "runtime/engine/offload_options.h"
#include "worker/plan/disk_rate.h"
#include "worker/plan/machine.h"
#include "worker/plan/machine_file.h"
#include "worker/plan/streaming.h"
#include "worker/scheduler.h"

/* ---- what the machine gives ---- */

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
  return TRI_OK;
}

/* Finds what this rank has of its disks; 0: nobody knows. What is measured now is a part already, since all ranks of a
 * host read at a time. */
static tri_status find_disk(const tri_stream_hiding *h, const tri_engine *e, double *bytes_per_s, tri_error *err) {
  tri_disk_figures f;
  tri_disk_rate kept;
  *bytes_per_s = 0;
  if (tri_disk_rate_kept(e->ckpt, h->opts->nvme_path, &kept)) {
    *bytes_per_s = kept.bytes_per_s / h->local_ranks;
    return TRI_OK;
  }
  if (!e->ckpt) return TRI_OK;
  TRI_CHECK(tri_disk_rate_measure(e->ckpt, &f, err));
  *bytes_per_s = (double)f.bytes / f.seconds;
  return TRI_OK;
}

/* ---- what the rank has ---- */

static tri_status find_share(const tri_stream_hiding *h, const tri_engine *e, tri_streaming_share *out,
                             tri_error *err) {
  tri_offload_config offload;
  double streamed = (double)e->ledger.streamed, room;
  TRI_CHECK(tri_offload_of_options(h->opts, &offload, err));
  room = e->backend->host_memory ? 0 : (double)tri_offload_host_room(&offload, h->local_ranks);
  *out = (tri_streaming_share){.file_bytes = streamed > room ? streamed - room : 0, .streamed_bytes = streamed};
  return TRI_OK;
}

static tri_status find_cost(const tri_stream_hiding *h, const tri_engine *e, tri_cost_share *out, tri_error *err) {
  const tri_serve_options *o = h->opts;
  bool stored = o->dtype == TRI_SERVE_AUTO && o->quantization == TRI_QUANTIZE_NONE;
  tri_dtype given = o->dtype == TRI_SERVE_AUTO ? TRI_DTYPE_COUNT : (tri_dtype)o->dtype;
  *out = (tri_cost_share){0};
  return tri_cost_share_add(&e->model, &e->shard, stored ? e->ledger.weight_type : given,
                            (tri_quantization)o->quantization, TRI_F32, out, err);
}

static tri_status predict(const tri_stream_hiding *h, const tri_engine *e, int64_t most, int64_t *tokens,
                          tri_error *err) {
  tri_streaming_share share;
  tri_cost_share cost;
  tri_cost_model m = {.p = e->shard.p,
                      .hidden_size = (int)e->model.hidden_size,
                      .window = (int)e->model.attention.window,
                      .experts = (int)e->model.moe.num_experts,
                      .top_k = (int)e->model.moe.top_k,
                      .stages = &cost};
  tri_streaming s = {.model = &m, .shares = &share, .link_bytes_per_s = e->backend->host_memory ? 0 : tri_h200_link};
  m.p.pp = 1; /* this stage alone */
  TRI_CHECK(find_share(h, e, &share, err));
  if (share.file_bytes > 0) TRI_CHECK(find_disk(h, e, &s.disk_bytes_per_s, err));
  if (share.file_bytes > 0 && s.disk_bytes_per_s <= 0) return TRI_OK;
  TRI_CHECK(find_machine(e, &m.machine));
  TRI_CHECK(find_cost(h, e, &cost, err));
  *tokens = tri_streaming_hiding_tokens(&s, most);
  if (!*tokens) *tokens = most;
  return TRI_OK;
}

int64_t tri_stream_hiding_tokens(void *ctx, const tri_engine *e, int64_t most) {
  const tri_stream_hiding *h = ctx;
  tri_error err = {0};
  int64_t tokens = 0;
  if (tri_sched_prompt_tokens(h->opts->prompt_micro_batch_tokens, e->num_lanes, !e->backend->host_memory)) return 0;
  tri_status st = predict(h, e, most, &tokens, &err);
  if (st == TRI_OK) return tokens;
  tri_log(TRI_LOG_WARN, "engine", "steps of streamed weights have as many tokens as others: %s",
          err.message[0] ? err.message : tri_status_text(st));
  return 0;
}
