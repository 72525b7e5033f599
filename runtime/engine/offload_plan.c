/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/engine/offload_plan.h"

#include "offload/split.h"
#include "base/mem.h"
#include "runtime/load/common_bytes.h"
#include "runtime/step/batch.h"

tri_reader_config tri_offload_reads(void) {
  return (tri_reader_config){.piece_bytes = TRI_OFFLOAD_PIECE_BYTES, .num_buffers = TRI_OFFLOAD_READS};
}

size_t tri_offload_buffer_bytes(void) {
  tri_reader_config reads = tri_offload_reads();
  return tri_reader_memory_bytes(&reads);
}

bool tri_offload_is_asked(const tri_offload_config *o, bool device) {
  return o && o->tier != TRI_OFFLOAD_NONE && (o->gpu_layers >= 0 || o->bytes || (o->max_in_cpu && !device));
}

bool tri_offload_is_allowed(const tri_offload_config *o) { return o && o->tier != TRI_OFFLOAD_NONE; }

/* The order of sums depends on which experts lie on the device, and with it on what was asked for before. */
static tri_status check_hot(const tri_offload_config *o, bool deterministic, tri_error *err) {
  if (o->hot_experts <= 0) return TRI_OK;
  if (!o->host_experts)
    return tri_fail(err, TRI_UNSUPPORTED, "hot_experts",
                    "--hot-experts %d is for layers whose experts the host computes: give --cpu-moe or --n-cpu-moe, or "
                    "leave it out",
                    o->hot_experts);
  if (!deterministic) return TRI_OK;
  return tri_fail(
      err, TRI_UNSUPPORTED, "hot_experts",
      "--hot-experts %d cannot be combined with --deterministic: experts copied to the GPU change the order of sums",
      o->hot_experts);
}

tri_status tri_offload_check_experts(const tri_offload_config *o, const tri_model_config *c, tri_parallel p,
                                     bool deterministic, tri_error *err) {
  TRI_CHECK(check_hot(o, deterministic, err));
  if (!o->host_experts) return TRI_OK;
  if (!c->moe.num_experts)
    return tri_fail(
        err, TRI_UNSUPPORTED, "cpu_moe",
        "--cpu-moe and --n-cpu-moe are about experts, and %s has none: --offload-weights is for its weights",
        c->arch->model_type);
  if (tri_parallel_dp(p) > 1)
    return tri_fail(err, TRI_UNSUPPORTED, "cpu_moe",
                    "--cpu-moe and --n-cpu-moe cannot be combined with --data-parallel-size %d: data-parallel ranks of "
                    "a replica need their experts on GPUs",
                    tri_parallel_dp(p));
  if (p.placement && p.placement->room)
    return tri_fail(err, TRI_UNSUPPORTED, "cpu_moe",
                    "--enable-eplb moves experts between GPUs, and --cpu-moe and --n-cpu-moe keep them in host memory: "
                    "give only one of them");
  return TRI_OK;
}

int tri_offload_host_experts(const tri_offload_config *o, bool device) {
  return o && (device || o->always_host) ? o->host_experts : 0;
}

int tri_offload_hot_experts(const tri_offload_config *o, const tri_model_config *c, const tri_shard *s, bool device,
                            bool deterministic) {
  bool has_some = false;
  for (int l = 0; l < s->layers.count; l++) has_some |= tri_layer_experts_on_host(c, s->p, s->layers.first + l);
  if (!o || !has_some || deterministic) return 0;
  if (o->hot_experts == TRI_HOT_EXPERTS_AUTO) return device ? TRI_HOT_EXPERTS_AUTO : 0;
  return o->hot_experts < s->slots.count ? o->hot_experts : s->slots.count;
}

tri_status tri_offload_check_host_experts(size_t bytes, int sharing, tri_error *err) {
  int64_t available = tri_host_memory_available() / sharing;
  if ((int64_t)bytes <= available) return TRI_OK;
  return tri_fail(
      err, TRI_NO_CAPACITY, "cpu_moe",
      "each rank needs %.1f MiB of host memory for experts, and %.1f MiB are free for it: give a smaller --n-cpu-moe, "
      "--quantization int8, or neither --cpu-moe nor --n-cpu-moe, so that weights are streamed",
      (double)bytes / 0x1p20, (double)available / 0x1p20);
}

/* On a device a norm after the sum leaves a copy of the stream for products, which would have to be kept for all
 * tokens. Data-parallel ranks that exchange rows do so in the same step, and have not the same number of chunks. */
int tri_offload_chunk(const tri_offload_config *o, const tri_model_config *c, tri_parallel p, bool device) {
  bool whole = (device && c->norm.place == TRI_NORM_SUM) || tri_dp_ranks_exchange(c, p);
  if (whole) return 0;
  if (o->chunk_tokens) return o->chunk_tokens;
  return device ? TRI_OFFLOAD_DEVICE_CHUNK : TRI_OFFLOAD_CHUNK;
}

int tri_offload_step_tokens(int64_t hiding, int usual, int chunk, int64_t kv_tokens) {
  int64_t most = (int64_t)chunk * TRI_MAX_CHUNKS;
  if (!chunk || hiding <= usual) return usual;
  if (most > kv_tokens) most = kv_tokens / chunk * chunk;
  int64_t wanted = hiding < most ? (hiding + chunk - 1) / chunk * chunk : most;
  return wanted > usual ? (int)wanted : usual;
}

/* A fifth of what is free stays so. */
size_t tri_offload_host_room(const tri_offload_config *o, int sharing) {
  int64_t available = tri_host_memory_available();
  if (o->max_in_cpu) return (size_t)o->max_in_cpu;
  int64_t room = available / 5 * 4 / sharing - o->host_kv; /* the rest is for other processes */
  return room > 0 ? (size_t)room : 0;
}

const char *tri_offload_spares(const tri_offload_config *o) {
  return o->max_in_cpu ? "" : " (a fifth of what is free stays so; --max-in-cpu gives another amount)";
}

tri_status tri_offload_check_host_kv(const tri_offload_config *o, int sharing, tri_error *err) {
  int64_t available = tri_host_memory_available() / sharing;
  if (o->host_kv <= available) return TRI_OK;
  return tri_fail(err, TRI_NO_CAPACITY, "kv_offloading_size",
                  "%.1f MiB of the host's memory are wanted for KV blocks of each rank, and each may use %.1f MiB: ask "
                  "for less --kv-offloading-size",
                  (double)o->host_kv / 0x1p20, (double)available / 0x1p20);
}

static size_t sum_parts(const tri_weight_map *m, int num_parts) {
  size_t all = 0;
  for (int i = 0; i < num_parts; i++) all += m->part_bytes[i];
  return all;
}

/* Fills the config of a plan of tiers but for its room and the error's field. Returns what always stays, with the
 * buffers of reads. */
static size_t tiers_config(const tri_offload_config *o, const tri_weight_map *m, int num_layers, bool device,
                           tri_tiers_config *out) {
  int num_parts = num_layers * TRI_LAYER_PARTS;
  size_t parts = sum_parts(m, num_parts), leave = (size_t)o->bytes < parts ? (size_t)o->bytes : parts;
  *out = (tri_tiers_config){.part_bytes = m->part_bytes,
                            .num_parts = num_parts,
                            .max_resident = parts - leave,
                            .keep_layers = o->gpu_layers < num_layers ? o->gpu_layers : num_layers,
                            .ring_parts = o->ring_parts ? o->ring_parts : TRI_OFFLOAD_RING_PARTS};
  return m->bytes - parts + (device ? 0 : tri_offload_buffer_bytes());
}

tri_status tri_offload_find_room(const tri_offload_config *o, const tri_weight_map *m, int num_layers, bool device,
                                 tri_offload_room *out) {
  tri_tiers_config tc;
  size_t beside = tiers_config(o, m, num_layers, device, &tc), least, usual, most, ring;
  TRI_CHECK(tri_tiers_room(&tc, &least, &ring, &usual, &most));
  *out = (tri_offload_room){.least = beside + least, .usual = beside + usual, .most = beside + most, .ring = ring};
  out->stays = out->least - ring - (device ? 0 : tri_offload_buffer_bytes());
  out->leave = m->bytes - out->stays;
  return TRI_OK;
}

static tri_status too_little_in_cpu(const tri_offload_config *o, const tri_offload_room *r, tri_error *err) {
  return tri_fail(err, TRI_NO_CAPACITY, "max_in_cpu",
                  "--max-in-cpu %.1f MiB is less than the %.1f MiB that weights take at least: %.1f MiB that stay "
                  "(embeddings, norms), a ring of %.1f MiB for the others, and buffers of %.1f MiB for reads",
                  (double)o->max_in_cpu / 0x1p20, (double)r->least / 0x1p20, (double)r->stays / 0x1p20,
                  (double)r->ring / 0x1p20, (double)(r->least - r->stays - r->ring) / 0x1p20);
}

tri_status tri_offload_plan(const tri_offload_config *o, const tri_model_config *c, const tri_weight_map *m,
                            int num_layers, size_t room, bool device, tri_tiers **out, tri_error *err) {
  tri_offload_room r;
  tri_tiers_config tc;
  size_t beside = tiers_config(o, m, num_layers, device, &tc);
  /* Without causality a chunk of a step would attend before the next one has its keys. */
  if ((c->encoder && !c->attention.causal) || c->seq2seq.on)
    return tri_fail(err, TRI_UNSUPPORTED, "offload_weights",
                    "only the weights of decoders are streamed, and %s is none: it must fit into memory",
                    c->arch->model_type);
  if (!device && o->tier == TRI_OFFLOAD_CPU)
    return tri_fail(err, TRI_NO_CAPACITY, "offload_weights",
                    "the weights do not fit into this host's memory, which is the backend's, too: --offload-weights "
                    "nvme streams them from files");
  if (!device && o->max_in_cpu && (size_t)o->max_in_cpu < room) {
    room = (size_t)o->max_in_cpu;
    tc.bound = "max_in_cpu";
    TRI_CHECK(tri_offload_find_room(o, m, num_layers, device, &r));
    if (room < r.least && tc.keep_layers <= 0) return too_little_in_cpu(o, &r, err);
  }
  tc.room = room > beside ? room - beside : 0;
  return tri_tiers_plan(&tc, out, err);
}

tri_status tri_offload_check_pack(const tri_offload_config *o, bool made_up, tri_error *err) {
  if (o->nvme_path) return TRI_OK;
  if (made_up)
    return tri_fail(err, TRI_NO_CAPACITY, "nvme_path",
                    "dummy weights (--load-format dummy) are in no file from which they could be streamed: give "
                    "--nvme-path DIR, where a pack can be written");
  return tri_fail(
      err, TRI_NO_CAPACITY, "nvme_path",
      "the checkpoint does not store the weights as a rank's memory holds them (they are sliced, "
      "transposed, interleaved, cast to another type or quantized): give --nvme-path DIR, where a pack can be written");
}

/* Returns the bytes of the host's memory that a rank counts for a part. */
static size_t cost_of(const tri_tiers *t, const tri_weight_map *m, int sharing, int number) {
  size_t common = m ? tri_common_part_bytes(m, t->parts[number]) : 0;
  return t->bytes[number] - common + common / (size_t)sharing;
}

/* Bresenham's rule: each part adds its share of the room to a credit, and takes it when the credit suffices. Parts in
 * host memory then lie between those from files at even distances, and the disks read on while parts come over the
 * link. */
size_t tri_offload_place(const tri_tiers *t, const tri_weight_map *m, int sharing, size_t room, bool *in_dram) {
  size_t all = 0, used = 0, placed = 0;
  for (int i = 0; i < t->num_streamed; i++) all += cost_of(t, m, sharing, i);
  double share = all ? (double)room / (double)all : 1, credit = 0;
  for (int i = 0; i < t->num_streamed; i++) {
    size_t cost = cost_of(t, m, sharing, i);
    credit += share * (double)cost;
    in_dram[i] = cost <= room - used && (share >= 1 || credit > (double)cost);
    if (!in_dram[i]) continue;
    credit -= (double)cost;
    used += cost;
    placed += t->bytes[i];
  }
  return placed;
}

/* A part may begin at any multiple of the alignment: a whole one for each is an upper bound. */
bool tri_offload_home_bytes(const tri_weight_map *m, int num_layers, size_t *bytes) {
  *bytes = 0;
  for (int i = 0; i < num_layers * TRI_LAYER_PARTS; i++)
    if (!tri_size_add(*bytes, m->part_bytes[i], bytes) || !tri_size_add(*bytes, TRI_SPLIT_HOME_ALIGN, bytes))
      return false;
  return true;
}
