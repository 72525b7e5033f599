/* SPDX-License-Identifier: Apache-2.0 */
/* Streamed weights of a plan: where they would come from, what the disk gives, and what steps take because of it.
 *
 * A rank's tiers are planned as a start plans them. They give, for each stage, the bytes of a step that are streamed in
 * all, over a device's link and from files; the slowest stage's reads are the least time of a step. Ranks of a host
 * share its disks in equal parts. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/pool.h"
#include "runtime/engine/engine.h"
#include "runtime/engine/offload_folders.h"
#include "runtime/load/part_loader.h"
#include "runtime/cost/disk_rate.h"
#include "tools/plan/plan.h"
#include "runtime/cost/streaming.h"

/* ---- where they come from ---- */

/* Finds out whether a rank's parts lie in the checkpoint as they lie in memory. *known: false without one that could
 * be looked at. */
static tri_status find_source(const struct plan *p, const tri_weights_config *wc, const bool *in_dram, bool *direct,
                              bool *known, tri_error *err) {
  tri_part_loader *loader = NULL;
  tri_part_extents x = {0};
  tri_status st = TRI_OK;
  *direct = p->ckpt != NULL;
  *known = p->ckpt || p->o->serve.load_format == TRI_LOAD_DUMMY;
  if (!p->ckpt) return TRI_OK;
  TRI_TRY(tri_part_loader_create(wc, &loader, err));
  for (int i = 0; *direct && i < wc->tiers->num_streamed; i++) {
    if (in_dram[i]) continue;
    TRI_TRY(tri_part_extents_find(loader, wc->tiers->parts[i], &x, direct, err));
    tri_part_extents_free(&x);
  }
cleanup:
  tri_part_loader_destroy(loader);
  return st;
}

/* Looks at the files of a rank's parts. Of the folders of hosts that are named, nothing is known here. */
static tri_status look_at_files(struct plan *p, const tri_weights_config *wc, const bool *in_dram,
                                tri_pack_rooms *rooms, tri_error *err) {
  bool direct, known;
  TRI_CHECK(find_source(p, wc, in_dram, &direct, &known, err));
  if (!known) return TRI_OK;
  *(direct ? &p->streaming.from_checkpoint : &p->streaming.from_pack) = true;
  if (direct) return TRI_OK;
  TRI_CHECK(tri_offload_check_pack(&p->offload, !p->ckpt, err));
  return p->o->hosts ? TRI_OK : tri_offload_check_room(p->offload.nvme_path, wc, rooms, err);
}

/* Returns how many data-parallel ranks lie on the rank's host, with a rank that has the same of them but for experts.
 */
static int count_readers(const struct plan *p, const struct plan_rank *r) {
  tri_parallel own = r->shard.p;
  int same = 0, dp = tri_parallel_dp(own);
  for (int d = 0; d < dp && p->places; d++) {
    int rank = (own.pp_rank * dp + d) * own.tp + own.tp_rank;
    same += p->places[rank].host == p->places[rank + (own.dp_rank - d) * own.tp].host;
  }
  return p->places ? same : dp;
}

/* Returns the ranks that share a rank's disk, as a part of those of the host that has most. */
static double crowd(const struct plan *p, const struct plan_rank *r) {
  tri_parallel own = r->shard.p;
  int rank = own.pp_rank * tri_parallel_stage_size(own) + tri_parallel_stage_rank(own);
  return p->places ? (double)p->hosts.list[p->places[rank].host].used / p->streaming.sharing : 1;
}

/* Counts a rank's tiers into the share of its stage, and into the plan's where it streams most. */
static void count_tiers(struct plan *p, const struct plan_rank *r, size_t dram, tri_streaming_share *stage) {
  struct plan_streaming *s = &p->streaming;
  int readers = count_readers(p, r);
  double all = (double)r->ledger.streamed, others = (double)r->ledger.common * (readers - 1) / readers;
  double files = (all - others) * (1 - (double)dram / all);
  if (all > stage->streamed_bytes) stage->streamed_bytes = all;
  if (all - others > stage->link_bytes) stage->link_bytes = all - others;
  files *= crowd(p, r);
  if (files > stage->file_bytes) stage->file_bytes = files;
  if (s->on && s->dram + s->files >= r->ledger.streamed) return;
  s->on = true;
  s->stay = r->ledger.weights - r->ledger.ring;
  s->ring = r->ledger.ring;
  s->dram = dram;
  s->files = r->ledger.streamed - dram;
  s->common = readers > 1 ? r->ledger.common : 0;
  s->readers = readers;
}

/* The weights are laid out twice: whole, to choose the tiers, then by them, to know which bytes of the streamed parts
 * find room in host memory. */
static tri_status look_at_rank(struct plan *p, const struct plan_rank *r, tri_backend *be, tri_streaming_share *stage,
                               tri_pack_rooms *rooms, tri_error *err) {
  const tri_reader_config io = {.piece_bytes = TRI_READER_BLOCK, .num_buffers = 1}; /* it only looks */
  tri_weight_map m = {0};
  tri_tiers *tiers = NULL;
  bool *in_dram = NULL, device = p->ledger.device;
  tri_weights_config wc = {.backend = be,
                           .model = p->c,
                           .shard = &r->shard,
                           .ckpt = p->ckpt,
                           .dtype = p->ledger.dtype,
                           .quantization = p->ledger.quantization,
                           .seed = p->o->serve.seed,
                           .io = &io};
  tri_status st;
  TRI_TRY(tri_weight_map_make(p->c, &r->shard, p->ckpt, wc.dtype, wc.quantization, NULL, &m, err));
  TRI_TRY(tri_offload_plan(&p->offload, p->c, &m, r->shard.layers.count, r->ledger.weights_room, device, &tiers, err));
  in_dram = tri_calloc((size_t)tiers->num_streamed + 1, sizeof *in_dram);
  if (!in_dram)
    TRI_TRY(tri_fail(err, TRI_NO_MEMORY, "offload_weights", "no memory to look at %d parts", tiers->num_parts));
  size_t room = device ? tri_offload_host_room(&p->offload, p->streaming.sharing) : 0;
  size_t taken = p->offload.max_in_cpu ? 0 : r->ledger.host_experts; /* a start has them there before */
  room -= taken < room ? taken : room;
  tri_weight_map_free(&m);
  TRI_TRY(tri_weight_map_make(p->c, &r->shard, p->ckpt, wc.dtype, wc.quantization, tiers, &m, err));
  size_t dram = device ? tri_offload_place(tiers, &m, count_readers(p, r), room, in_dram) : 0;
  count_tiers(p, r, dram, stage);
  wc.tiers = tiers;
  if (dram < tiers->streamed && (st = look_at_files(p, &wc, in_dram, rooms, err)) != TRI_OK) {
    if (device)
      tri_error_add(err, "; %.1f of the %.1f MiB that are streamed have room in host memory%s", (double)dram / 0x1p20,
                    (double)tiers->streamed / 0x1p20, tri_offload_spares(&p->offload));
    goto cleanup;
  }
cleanup:
  tri_free(in_dram);
  tri_tiers_free(tiers);
  tri_weight_map_free(&m);
  return st;
}

static tri_status look_at_ranks(struct plan *p, tri_streaming_share *shares, tri_error *err) {
  tri_pool *pool = NULL;
  tri_backend *be = NULL;
  tri_status st;
  tri_pack_rooms rooms = {.keys = tri_calloc((size_t)p->num_made, sizeof *rooms.keys)};
  if (!rooms.keys) TRI_TRY(tri_fail(err, TRI_NO_MEMORY, "nvme_path", "no memory to look at %d packs", p->num_made));
  TRI_TRY(tri_pool_create(1, NULL, 0, &pool));
  TRI_TRY(tri_backend_create(&(tri_backend_config){.name = "cpu", .pool = pool}, &be, err));
  for (int i = 0; i < p->num_made; i++) {
    const struct plan_rank *r = &p->ranks[i];
    if (r->ledger.streams) TRI_TRY(look_at_rank(p, r, be, &shares[r->shard.p.pp_rank], &rooms, err));
  }
cleanup:
  tri_backend_destroy(be);
  tri_pool_destroy(pool);
  tri_free(rooms.keys);
  return st;
}

/* ---- what the disk gives ---- */

/* Takes the rate that is given, else the one that a worker has measured and kept, else measures the checkpoint's now,
 * which then stands for a pack's, too. */
static tri_status find_bandwidth(const struct plan *p, struct plan_streaming *s, tri_error *err) {
  const char *nvme = p->o->serve.nvme_path;
  tri_disk_figures f;
  tri_disk_rate kept;
  if (tri_disk_rate_kept(p->ckpt, s->from_pack ? nvme : NULL, &kept)) {
    s->disk_bytes_per_s = kept.bytes_per_s;
    snprintf(s->slowest_disk, sizeof s->slowest_disk, "%s", kept.slowest);
    snprintf(s->disk_source, sizeof s->disk_source, "measured by a worker");
  }
  s->num_disks = kept.num_disks;
  if (p->o->disk_bandwidth > 0) {
    s->disk_bytes_per_s = p->o->disk_bandwidth;
    s->slowest_disk[0] = 0;
    snprintf(s->disk_source, sizeof s->disk_source, "as given");
  }
  if (s->disk_bytes_per_s > 0 || !p->ckpt) return TRI_OK;
  TRI_CHECK(tri_disk_rate_measure(p->ckpt, &f, err));
  s->disk_bytes_per_s = (double)f.bytes / f.seconds;
  s->num_disks = 1;
  snprintf(s->disk_source, sizeof s->disk_source, "measured now, %.1f MiB of the checkpoint%s",
           (double)f.bytes / 0x1p20, f.direct ? "" : " through the page cache");
  return TRI_OK;
}

/* ---- what steps take ---- */

tri_status plan_add_stages(const struct plan *p, tri_cost_share *stages, tri_error *err) {
  for (int i = 0; i < p->num_made; i++) {
    const tri_shard *shard = &p->ranks[i].shard;
    bool stored = p->ledger.dtype == TRI_DTYPE_COUNT && p->ledger.quantization == TRI_QUANTIZE_NONE;
    tri_dtype dtype = stored ? p->ranks[i].ledger.weight_type : p->ledger.dtype;
    TRI_CHECK(tri_cost_share_add(p->c, shard, dtype, p->ledger.quantization, p->ledger.kv_dtype,
                                 &stages[shard->p.pp_rank], err));
  }
  return TRI_OK;
}

tri_cost_model plan_cost_model(const struct plan *p, const struct plan_machine *m, const tri_cost_share *stages) {
  return (tri_cost_model){.machine = m->machine,
                          .p = p->ranks[0].shard.p,
                          .hidden_size = (int)p->c->hidden_size,
                          .window = (int)p->c->attention.window,
                          .experts = (int)p->c->moe.num_experts,
                          .top_k = (int)p->c->moe.top_k,
                          .stages = stages};
}

/* One sequence, some, and as many as fit; loads that are no larger than the one before are left out. */
int plan_loads(const struct plan *p, struct plan_load loads[PLAN_LOADS], double *context) {
  enum { SOME = 64, CONTEXT = 1024 };
  int64_t len = p->limits.max_model_len, keys = p->o->context_len ? p->o->context_len : CONTEXT;
  if (keys > len) keys = len;
  int64_t room = p->tokens / keys, most = room < p->limits.max_num_seqs ? room : p->limits.max_num_seqs;
  if (most < 1) most = 1;
  most *= p->layout.dp;
  const int64_t wanted[PLAN_LOADS] = {1, SOME, most};
  int count = 0;
  for (int i = 0; i < PLAN_LOADS; i++) {
    int sequences = (int)(wanted[i] < most ? wanted[i] : most);
    if (!count || sequences > loads[count - 1].sequences) loads[count++] = (struct plan_load){.sequences = sequences};
  }
  *context = (double)keys;
  return count;
}

static void predict(const struct plan *p, const tri_streaming *model, struct plan_streaming *s) {
  enum { MOST_TOKENS = 1 << 20 };
  s->num_loads = plan_loads(p, s->loads, &s->context);
  for (int i = 0; i < s->num_loads; i++)
    s->loads[i].seconds = tri_streaming_decode(model, s->loads[i].sequences, s->context);
  for (int i = 0; i < p->layout.pp; i++)
    if (tri_streaming_pass(model, i) > s->pass_s) s->pass_s = tri_streaming_pass(model, i);
  s->most = MOST_TOKENS;
  s->hiding = tri_streaming_hiding_tokens(model, MOST_TOKENS);
}

static int sharing(const struct plan *p) {
  long long most = 0;
  for (int i = 0; i < p->hosts.count; i++)
    if (p->hosts.list[i].used > most) most = p->hosts.list[i].used;
  return most ? (int)most : p->num_ranks * p->layout.replicas;
}

/* Makes ready for another look at ranks, whose limits have changed: what was measured stays. */
static void forget_ranks(struct plan_streaming *s) {
  s->on = s->from_pack = s->from_checkpoint = false;
  s->stay = s->ring = s->dram = s->files = s->common = 0;
  s->num_loads = 0;
  s->pass_s = 0;
}

tri_status plan_streaming(struct plan *p, tri_error *err) {
  struct plan_streaming *s = &p->streaming;
  bool any = false;
  tri_status st = TRI_OK;
  forget_ranks(s);
  size_t stages = (size_t)p->layout.pp;
  for (int i = 0; i < p->num_made; i++) any |= p->ranks[i].ledger.streams;
  if (!any) return TRI_OK;
  tri_streaming_share *shares = tri_calloc(stages, sizeof *shares);
  tri_cost_share *costs = tri_calloc(stages, sizeof *costs);
  if (!shares || !costs) TRI_TRY(tri_fail(err, TRI_NO_MEMORY, "pipeline_parallel_size", "no memory for the stages"));
  s->sharing = sharing(p);
  if (p->ledger.device) s->link_bytes_per_s = p->kind->host_bytes_per_s;
  if (p->offload.nvme_path && !p->o->hosts) TRI_TRY(tri_offload_folders_check(p->offload.nvme_path, err));
  TRI_TRY(look_at_ranks(p, shares, err));
  if (s->files && s->disk_bytes_per_s <= 0) TRI_TRY(find_bandwidth(p, s, err));
  if (s->files && s->disk_bytes_per_s <= 0) goto cleanup;
  TRI_TRY(plan_add_stages(p, costs, err));
  if (s->machine.best.flops_per_s <= 0) TRI_TRY(plan_find_machine(p, &costs[0], &s->machine, err));
  tri_cost_model m = plan_cost_model(p, &s->machine, costs);
  tri_streaming model = {.model = &m,
                         .shares = shares,
                         .disk_bytes_per_s = s->disk_bytes_per_s / s->sharing,
                         .link_bytes_per_s = s->link_bytes_per_s};
  predict(p, &model, s);
cleanup:
  tri_free(shares);
  tri_free(costs);
  return st;
}
