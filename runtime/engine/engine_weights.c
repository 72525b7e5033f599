/* SPDX-License-Identifier: Apache-2.0 */
/* The weights of an engine's rank: which of them stay, how the others come, and what the log says of both. */
#include <errno.h>
#include <string.h>
#include <sys/resource.h>

#include "base/log.h"
#include "runtime/engine/engine_impl.h"
#include "runtime/engine/offload_folders.h"
#include "runtime/engine/offload_ranks.h"

/* Which weights stay: as the ledger has counted. */
static tri_status plan_tiers(tri_engine *e, const tri_engine_config *config, tri_error *err) {
  tri_weight_map m;
  if (!e->ledger.streams) return TRI_OK;
  if (e->placement && e->placement->room)
    return tri_fail(
        err, TRI_UNSUPPORTED, "enable_eplb",
        "--enable-eplb moves experts in memory, and weights of this rank are streamed: give one of them up");
  /* A missing folder is refused before minutes of loading. */
  if (config->offload.nvme_path) TRI_CHECK(tri_offload_folders_check(config->offload.nvme_path, err));
  TRI_CHECK(tri_weight_map_make(&e->model, &e->shard, e->ckpt, config->dtype, e->quantization, NULL, &m, err));
  tri_status st = tri_offload_plan(&config->offload, &e->model, &m, e->shard.layers.count, e->ledger.weights_room,
                                   !e->backend->host_memory, &e->tiers, err);
  tri_weight_map_free(&m);
  return st;
}

/* Says what the data-parallel ranks of this host do for each other; each of their logs has it, as hosts may differ. */
static void tell_readers(const tri_engine *e) {
  tri_offload_source s = tri_offload_source_of(e->offload);
  const char *verb = s.gathers ? "brings over its own link" : "reads";
  const char *others = s.gathers ? "the others' GPUs" : "the others";
  if (s.num_readers && !e->backend->host_memory && !s.gathers)
    tri_log(TRI_LOG_INFO, "engine",
            "weights: the GPUs of the %d data-parallel ranks of this host have no peer access: each copies all its "
            "streamed weights over its own link",
            s.num_readers);
  if (s.common)
    tri_log(TRI_LOG_INFO, "engine",
            "weights: %.1f MiB of these are the same on the %d data-parallel ranks of this host: each %s 1/%d of them, "
            "and copies the rest from %s",
            (double)s.common / 0x1p20, s.num_readers, verb, s.num_readers, others);
  else if (e->split && !s.num_readers)
    tri_log(
        TRI_LOG_INFO, "engine",
        "weights: the data-parallel ranks of this host have no streamed weights in common: each reads all of its own");
}

static void tell_tiers(const tri_engine *e) {
  double streamed = (double)e->tiers->streamed, speed = tri_offload_bandwidth(e->offload);
  tri_log(TRI_LOG_INFO, "engine",
          "weights: %.1f MiB stay, %.1f MiB are read from %s in every step, through a ring buffer of %.1f MiB: a step "
          "takes %.2f s at least, at %.2f GB/s",
          (double)e->weights->bytes / 0x1p20, streamed / 0x1p20, tri_offload_about(e->offload),
          (double)e->weights->ring_bytes / 0x1p20, streamed / speed, speed * 1e-9);
}

static void tell_unlocked(const char *what, size_t bytes, int code) {
  struct rlimit most = {0};
  getrlimit(RLIMIT_MEMLOCK, &most);
  tri_log(TRI_LOG_INFO, "engine",
          "the %.1f MiB of %s may be swapped out: they cannot be locked (%s), as ulimit -l allows %.1f MiB",
          (double)bytes / 0x1p20, what, strerror(code), (double)most.rlim_cur / 0x1p20);
}

/* Keeps what stays and the ring in memory: the system takes them for idle while the page cache and others want room,
 * and a step that waits for swap waits for longer than its reads. */
static void lock_weights(const tri_engine *e) {
  const tri_weights *w = e->weights;
  if (!e->backend->host_memory) return; /* what a device reads is pinned */
  bool ring = tri_pages_lock(w->ring, w->ring_bytes), stays = tri_pages_lock(w->memory, w->bytes);
  if (!ring || !stays) tell_unlocked("weights that stay and of their ring", w->bytes + w->ring_bytes, errno);
}

/* Makes the backend of experts on the host. */
static tri_status make_host(tri_engine *e, tri_error *err) {
  tri_backend_config bc = {.name = "cpu", .deterministic = e->backend->deterministic, .pool = e->backend->pool};
  return e->ledger.host_experts ? tri_backend_create(&bc, &e->host, err) : TRI_OK;
}

static void tell_host(const tri_engine *e) {
  const tri_weights *w = e->weights;
  if (!w->host_bytes) return;
  tri_log(TRI_LOG_INFO, "engine", "%.1f MiB of experts stay in host memory: %d threads with %s compute them",
          (double)w->host_bytes / 0x1p20, tri_pool_size(e->host->pool), e->host->isa);
  if (!tri_pages_lock(w->host_memory, w->host_bytes)) tell_unlocked("experts on the host", w->host_bytes, errno);
}

/* Why matrices of FP8 did not stay so; "" where they did, or none was. */
static const char *why_widened(const tri_engine *e) {
  if (!tri_stored_has_fp8(&e->model.stored)) return "";
  if (e->quantization == TRI_QUANTIZE_FP8)
    return tri_stored_widens_blocks(&e->model.stored) ? ": GPUs multiply FP8 by rows or in blocks of 128 columns" : "";
  if (e->quantization != TRI_QUANTIZE_NONE) return ": --quantization asks for it";
  if (e->backend->prefers_fp8) return ": --quantization none";
  return e->backend->host_memory ? ": these CPUs are slower with FP8 (--quantization fp8 keeps it)"
                                 : ": of GPUs, only Hopper (H100, H200) computes with FP8";
}

/* Says what became of a quantized checkpoint, or of one that was quantized. */
static void tell_stored(const tri_engine *e) {
  const tri_weights *w = e->weights;
  double scaled = 0, wide = 0;
  int num_scaled = 0, num_wide = 0;
  const char *form = "", *type = "";
  bool plain = e->model.stored.method == TRI_STORED_PLAIN;
  char text[TRI_STORED_TEXT] = "not quantized";
  if (!tri_replica_is_leader(e->replica)) return;
  if (e->model.stored.has_kv_scales)
    tri_log(TRI_LOG_INFO, "engine", "the checkpoint's scales for an FP8 KV cache are not used");
  if (plain && e->quantization == TRI_QUANTIZE_NONE) return;
  if (!plain) tri_stored_text(&e->model.stored, text);
  for (int l = 0; l < e->shard.layers.count; l++)
    for (int id = 0; id < TRI_W_COUNT; id++) {
      const tri_weight *t = &w->layers[l].w[id];
      double bytes = (double)t->n * t->k * (double)tri_dtype_size(t->dtype);
      if (!t->data || t->k == 1) continue;
      *(t->scale ? &num_scaled : &num_wide) += 1;
      *(t->scale ? &scaled : &wide) += bytes;
      *(t->scale ? &form : &type) = tri_dtype_name(t->dtype);
    }
  tri_log(TRI_LOG_INFO, "engine",
          "the checkpoint is %s: %d matrices of this rank's layers are %s in memory (%.1f MiB), %d are %s (%.1f MiB)%s",
          text, num_scaled, *form ? form : "quantized", scaled / 0x1p20, num_wide, *type ? type : "wider",
          wide / 0x1p20, why_widened(e));
  if (w->num_checked)
    tri_log(TRI_LOG_INFO, "engine", "the self-test found %d of them to multiply as their files say", w->num_checked);
}

static int local_ranks_of(const tri_engine_config *config) { return config->local_ranks ? config->local_ranks : 1; }

tri_status tri_engine_load_weights(tri_engine *e, const tri_engine_config *config, tri_error *err) {
  TRI_CHECK(plan_tiers(e, config, err));
  TRI_CHECK(make_host(e, err));
  tri_weights_config wc = {.backend = e->backend,
                           .host = e->host,
                           .model = &e->model,
                           .shard = &e->shard,
                           .ckpt = e->ckpt,
                           .dtype = config->dtype,
                           .quantization = e->quantization,
                           .seed = config->seed,
                           .tiers = e->tiers};
  TRI_CHECK(tri_weights_make(&wc, &e->weights, err));
  tell_stored(e);
  tell_host(e);
  if (!e->tiers) return TRI_OK;
  tri_offload_ranks ranks = {.local_ranks = local_ranks_of(config), .split = e->split, .host_room = e->host_room};
  ranks.stop = e->replica->world->cfg.policy.stop;
  TRI_CHECK(tri_offload_create(&config->offload, &wc, e->weights->ring, &ranks, &e->offload, err));
  tell_tiers(e);
  tell_readers(e);
  if (!tri_offload_source_of(e->offload).num_readers) tri_engine_close_split(e);
  lock_weights(e);
  return TRI_OK;
}

/* Finds what all parts take, should they all lie in the host's memory. */
static tri_status find_home(const tri_engine *e, const tri_engine_config *config, size_t *bytes, tri_error *err) {
  tri_weight_map m;
  if (!e->ledger.streams) return TRI_OK;
  TRI_CHECK(tri_weight_map_make(&e->model, &e->shard, e->ckpt, config->dtype, e->quantization, NULL, &m, err));
  bool fits = tri_offload_home_bytes(&m, e->shard.layers.count, bytes);
  tri_weight_map_free(&m);
  return fits ? TRI_OK : TRI_OVERFLOW;
}

/* Data-parallel ranks have the same weights but for experts: those of one host read what they stream of them for each
 * other (DeepSpeed-Inference, section VI.B). */
tri_status tri_engine_join_ranks(tri_engine *e, const tri_engine_config *config, tri_error *err) {
  tri_offload_joining own = {.streams = e->ledger.streams, .num_words = tri_offload_num_words(e->shard.layers.count)};
  if (!e->replica->column || !e->replica_streams) return TRI_OK;
  own.room = e->ledger.weights_room;
  if (!e->backend->host_memory) own.host_room = tri_offload_host_room(&config->offload, local_ranks_of(config));
  if (!e->backend->host_memory)
    TRI_CHECK(tri_engine_agree(e->replica, find_home(e, config, &own.home_bytes, err), err));
  TRI_CHECK(tri_offload_join_ranks(e->replica, &own, &e->split, err));
  e->ledger.weights_room = own.room;
  e->host_room = own.host_room;
  return TRI_OK;
}

void tri_engine_close_split(tri_engine *e) {
  tri_split_close(e->split);
  e->split = NULL;
}
