/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/engine/expert_transfer.h"

#include <string.h>

#include "runtime/load/expert_parts.h"

/* A move between two plans: pieces go through one pinned buffer each way; when a swap sends and takes, a piece is
 * downloaded before the peer's is written over it. Tallies are by slot on the device, and the scheduler wants them by
 * expert, so that a layer's tally is added up by expert before its slots change hands. */
enum { PIECE_BYTES = 4 << 20 };

struct tri_expert_transfer {
  tri_comm *stage;         /* the ranks of the stage, for the host's memory */
  char *out, *in;          /* [PIECE_BYTES] where the backend's copies reach them */
  uint64_t placement;      /* moves made */
  tri_expert_tally *tally; /* [layers, slots] of this rank */
  uint64_t *earlier;       /* [layers, experts] rows of its slots before their layer's last move */
  uint64_t *counted;       /* [layers, experts] those and the tally, when rows were last counted */
  uint64_t *now;           /* [experts] */
  float *rows;             /* [layers with experts of the model, experts] */
  tri_backend *backend;
};

/* ---- set-up ---- */

static size_t table_size(const tri_engine *e) {
  return (size_t)e->shard.layers.count * (size_t)e->model.moe.num_experts;
}

tri_status tri_engine_make_transfer(tri_engine *e, tri_error *err) {
  const tri_replica *g = e->replica;
  tri_backend *be = e->backend;
  tri_status st = TRI_OK;
  if (!e->placement || !e->placement->room) return TRI_OK;
  tri_expert_transfer *t = e->transfer = tri_calloc(1, sizeof *t);
  if (!t) return tri_fail(err, TRI_NO_MEMORY, "enable_eplb", "no memory");
  t->backend = be;
  t->stage = g->stage ? g->stage : g->tensor; /* of one data-parallel rank they are the same ranks */
  t->tally = tri_calloc((size_t)e->shard.layers.count, (size_t)e->shard.slots.count * sizeof *t->tally);
  t->earlier = tri_calloc(table_size(e), sizeof *t->earlier);
  t->counted = tri_calloc(table_size(e), sizeof *t->counted);
  t->now = tri_calloc((size_t)e->placement->num_experts, sizeof *t->now);
  t->rows = tri_calloc((size_t)e->placement->num_rows, (size_t)e->placement->num_experts * sizeof *t->rows);
  if (!t->tally || !t->earlier || !t->counted || !t->now || !t->rows) st = TRI_NO_MEMORY;
  if (st == TRI_OK) st = be->ops.host_alloc(be, PIECE_BYTES, (void **)&t->out);
  if (st == TRI_OK) st = be->ops.host_alloc(be, PIECE_BYTES, (void **)&t->in);
  return st == TRI_OK ? st : tri_fail(err, st, "enable_eplb", "no memory for experts on their way");
}

void tri_expert_transfer_destroy(tri_expert_transfer *t) {
  if (!t) return;
  if (t->out) t->backend->ops.host_free(t->backend, t->out, PIECE_BYTES);
  if (t->in) t->backend->ops.host_free(t->backend, t->in, PIECE_BYTES);
  tri_free(t->tally);
  tri_free(t->earlier);
  tri_free(t->counted);
  tri_free(t->now);
  tri_free(t->rows);
  tri_free(t);
}

/* ---- weights ---- */

/* A slot's bytes go to a peer, or come from it, or both: then what goes has been read before what comes is written. */
static tri_status pass_piece(const tri_expert_transfer *t, char *at, size_t bytes, int peer, bool sends, bool takes) {
  tri_backend *be = t->backend;
  tri_comm_req req = {0};
  if (sends) {
    be->ops.download(be, t->out, at, bytes);
    TRI_CHECK(be->ops.stream_sync(be));
    TRI_CHECK(tri_comm_isend(t->stage, t->out, bytes, peer, TRI_TAG_EXPERT, &req));
  }
  if (takes) TRI_CHECK(tri_comm_recv(t->stage, t->in, bytes, peer, TRI_TAG_EXPERT));
  if (takes) be->ops.upload(be, at, t->in, bytes);
  TRI_CHECK(tri_comm_wait(t->stage, &req));
  return be->ops.stream_sync(be);
}

static tri_status pass_slot(const tri_engine *e, int layer, int slot, int peer, bool sends, bool takes) {
  tri_expert_part parts[TRI_EXPERT_PARTS];
  const tri_layer_weights *y = &e->weights->layers[layer - e->shard.layers.first];
  int n = tri_expert_parts(y, e->shard.slots.count, slot - e->shard.slots.first, parts);
  for (int i = 0; i < n; i++)
    for (size_t at = 0, bytes; at < parts[i].bytes; at += bytes) {
      bytes = parts[i].bytes - at < PIECE_BYTES ? parts[i].bytes - at : PIECE_BYTES;
      TRI_CHECK(pass_piece(e->transfer, parts[i].at + at, bytes, peer, sends, takes));
    }
  return TRI_OK;
}

static bool owns(const tri_engine *e, int slot) {
  return slot >= e->shard.slots.first && slot < e->shard.slots.first + e->shard.slots.count;
}

/* The stage rank that has this rank's slice of a slot's expert. */
static int rank_of_slot(const tri_engine *e, int slot) {
  tri_parallel p = e->shard.p;
  int etp = tri_parallel_etp(p);
  return tri_range_part_with(e->placement->num_slots, p.ep, slot) * etp + tri_parallel_stage_rank(p) % etp;
}

/* ---- rows ---- */

/* The tally of a layer with experts, added by expert to sum [experts]. */
static void add_tally(const tri_engine *e, int layer, uint64_t *sum) {
  size_t slots = (size_t)e->shard.slots.count;
  const tri_expert_tally *tally = e->transfer->tally + (size_t)(layer - e->shard.layers.first) * slots;
  for (size_t s = 0; s < slots; s++)
    sum[tri_expert_of_slot(e->placement, layer, e->shard.slots.first + (int)s)] += tally[s].rows;
}

/* Slices of one expert have the same rows: the first counts. */
tri_status tri_engine_count_rows(tri_engine *e, const float **rows) {
  tri_expert_transfer *t = e->transfer;
  const tri_expert_placement *p = e->placement;
  size_t experts = (size_t)p->num_experts, n = (size_t)p->num_rows * experts;
  tri_range layers = e->shard.layers;
  bool first_slice = tri_parallel_stage_rank(e->shard.p) % tri_parallel_etp(e->shard.p) == 0;
  if (e->num_steps) return TRI_CORRUPT;
  TRI_CHECK(tri_forward_tally(e->forward, t->tally));
  memset(t->rows, 0, n * sizeof *t->rows);
  for (int l = layers.first; l < layers.first + layers.count; l++) {
    size_t at = (size_t)(l - layers.first) * experts;
    if (p->row_of[l] < 0) continue;
    memcpy(t->now, t->earlier + at, experts * sizeof *t->now);
    add_tally(e, l, t->now);
    float *to = t->rows + (size_t)p->row_of[l] * experts;
    for (size_t x = 0; first_slice && x < experts; x++) to[x] = (float)(t->now[x] - t->counted[at + x]);
    memcpy(t->counted + at, t->now, experts * sizeof *t->now);
  }
  *rows = t->rows;
  return tri_comm_all_reduce(e->replica->world, t->rows, n);
}

uint64_t tri_engine_placement(const tri_engine *e) { return e->transfer ? e->transfer->placement : 0; }

const uint64_t *tri_engine_earlier_rows(const tri_engine *e) { return e->transfer ? e->transfer->earlier : NULL; }

/* ---- a move ---- */

static void show(tri_engine *e, uint32_t layer, tri_all2all_part part) {
  atomic_store_explicit(&e->progress.layer, layer, memory_order_relaxed);
  atomic_store_explicit(&e->progress.all2all, (uint32_t)part, memory_order_relaxed);
}

/* This rank's part of a move in one of its layers. */
static tri_status move_here(tri_engine *e, const tri_expert_move *m) {
  int to = rank_of_slot(e, m->to), from = rank_of_slot(e, m->from);
  if (owns(e, m->to)) TRI_CHECK(pass_slot(e, m->layer, m->to, from, m->swaps, true));
  if (owns(e, m->from)) TRI_CHECK(pass_slot(e, m->layer, m->from, to, true, m->swaps));
  TRI_CHECK(tri_forward_tally(e->forward, e->transfer->tally));
  add_tally(e, m->layer,
            e->transfer->earlier + (size_t)(m->layer - e->shard.layers.first) * (size_t)e->placement->num_experts);
  tri_expert_placement_move(e->placement, m);
  tri_forward_place(e->forward, m->layer);
  return TRI_OK;
}

tri_status tri_engine_move_expert(tri_engine *e, const tri_expert_move *m) {
  tri_range layers = e->shard.layers;
  tri_status st = TRI_OK;
  if (!e->transfer || e->num_steps || !tri_expert_move_is_sound(e->placement, e->shard.p.ep, m)) return TRI_CORRUPT;
  if (m->layer >= layers.first && m->layer < layers.first + layers.count) {
    show(e, (uint32_t)m->layer, TRI_IN_MOVE);
    st = move_here(e, m);
    if (st != TRI_OK) return st; /* the report still says where */
    show(e, TRI_LAYER_IDLE, TRI_NO_ALL2ALL);
  } else {
    tri_expert_placement_move(e->placement, m);
  }
  e->transfer->placement++;
  return TRI_OK;
}
