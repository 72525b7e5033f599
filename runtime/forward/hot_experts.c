/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/forward/hot_experts.h"

#include <string.h>

#include "runtime/load/expert_parts.h"

/* The states, each left when an event says so, never by waiting:
 *
 *     IDLE   -> COUNTS  a window is over: tallies are downloaded
 *     COUNTS -> IDLE    they are there: loads are faded and added up
 *     IDLE   -> FREES   an exchange is worth it: the slot's expert is the host's from the next step on
 *     FREES  -> COPIES  all steps that may read the slot have ended
 *     COPIES -> IDLE    all bytes are there: the new expert is the device's from the next step on
 *
 * At any time a table names the host for an expert, or a slot that has all of its bytes. Tables change by uploads on
 * the compute stream, between steps. */
enum { PIECE_BYTES = 2 << 20, NONE = -1 };

/* The work at hand: nothing; tallies come to the host; the steps that may read a slot end; a slot's bytes come. */
enum state { IDLE, COUNTS, FREES, COPIES };

struct tri_hot_experts {
  tri_hot_experts_config cfg;
  tri_hot_weights *weights;
  int layers, experts, slots; /* of the shard; of it, that it has; of a layer on the device */
  int first_slot;             /* number of a layer's first slot here */
  int most_copies;
  bool *is_hot;      /* [layers] those with slots */
  int32_t *slot_of;  /* [layers, experts] NONE: the host's alone */
  int32_t *table;    /* [layers, table] in the backend's memory */
  size_t table_size; /* numbers of a layer's */
  /* rows */
  tri_expert_tally *tally;   /* [layers, slots] the backend's memory */
  tri_expert_tally *earlier; /* [layers, experts] of experts that have left their slots */
  uint64_t *counted;         /* [layers, experts] when rows were last counted */
  float *load, *rows;        /* [layers, experts] */
  /* pinned */
  char *pinned;
  size_t pinned_bytes;
  char *pieces[TRI_HOT_PIECE_EVENTS];
  int32_t *numbers;                           /* [layers, table] as uploads of the table leave it */
  tri_expert_tally *hot_counts, *host_counts; /* [layers, slots], [layers, experts] */
  tri_expert_tally *gone;                     /* of the expert that leaves */
  tri_expert_tally *told;                     /* [layers, slots] */
  tri_expert_tally *no_rows;                  /* of a slot */
  enum state state;
  uint64_t steps, counted_at;
  size_t budget; /* bytes that may still come for this step */
  bool settled;  /* nothing is worth an exchange until rows are counted again */
  tri_hot_exchange x;
  int out; /* the expert that leaves, or NONE */
  tri_expert_part from[TRI_EXPERT_PARTS], to[TRI_EXPERT_PARTS];
  int num_parts, part;
  size_t at; /* bytes of the part that are under way */
  unsigned issued, done;
  tri_hot_stats stats;
};

static int32_t *slot_of(const tri_hot_experts *h, int layer) { return h->slot_of + (size_t)layer * (size_t)h->experts; }

/* ---- tables ---- */

/* Has a layer's routing find an expert of this rank in another slot. An upload from pinned memory has no copy of its
 * own: one that is late finds what a later one has as well. That can only be the host's number in place of the
 * device's, which is right at any time: the device's is written when all uploads of the same number have been waited
 * for. */
static void write_table(tri_hot_experts *h, int layer, int expert, int32_t from, int32_t to) {
  tri_backend *be = h->cfg.backend;
  const tri_shard *s = h->cfg.shard;
  size_t width = 1 + (size_t)h->most_copies;
  int id = tri_expert_of_slot(s->p.placement, s->layers.first + layer, s->slots.first + expert);
  size_t at = (size_t)layer * h->table_size + (size_t)id * width;
  for (size_t i = 1; i < width; i++)
    if (h->numbers[at + i] == from) h->numbers[at + i] = to;
  be->ops.upload(be, h->table + at, h->numbers + at, width * sizeof *h->table);
}

static int32_t host_number(const tri_hot_experts *h, int expert) { return h->cfg.shard->slots.first + expert; }
static int32_t hot_number(const tri_hot_experts *h, int slot) { return h->first_slot + slot; }

/* Numbers as they are without slots on the device. */
static void number_layer(tri_hot_experts *h, int layer) {
  const tri_shard *s = h->cfg.shard;
  int32_t *to = h->numbers + (size_t)layer * h->table_size;
  if (s->p.placement) {
    tri_expert_slot_table(s->p.placement, s->layers.first + layer, h->most_copies, to);
    return;
  }
  for (int e = 0; e < (int)h->cfg.model->moe.num_experts; e++) {
    to[2 * e] = 1;
    to[2 * e + 1] = e;
  }
}

/* ---- rows ---- */

static void begin_count(tri_hot_experts *h) {
  tri_backend *be = h->cfg.backend;
  size_t layers = (size_t)h->layers;
  be->ops.download(be, h->hot_counts, h->tally, layers * (size_t)h->slots * sizeof *h->tally);
  be->ops.download(be, h->host_counts, h->cfg.host_tally, layers * (size_t)h->experts * sizeof *h->tally);
  be->ops.event_record(be, TRI_EVENT_HOT, TRI_STREAM_COMPUTE);
  h->counted_at = h->steps;
  h->state = COUNTS;
}

static tri_hot_choice choice_of(const tri_hot_experts *h) {
  return (tri_hot_choice){.num_layers = h->layers,
                          .num_experts = h->experts,
                          .num_slots = h->slots,
                          .layers = h->is_hot,
                          .slot_of = h->slot_of,
                          .load = h->load};
}

/* Rows of a window are the difference of sums since the start: tallies of slots begin anew with each exchange, so that
 * what left a slot is kept in `earlier`. */
static void end_count(tri_hot_experts *h) {
  h->stats.rows = h->stats.hot_rows = 0;
  for (int l = 0; l < h->layers; l++)
    for (int e = 0; h->is_hot[l] && e < h->experts; e++) {
      size_t i = (size_t)l * (size_t)h->experts + (size_t)e;
      uint64_t here = h->earlier[i].rows, all;
      if (h->slot_of[i] >= 0) here += h->hot_counts[(size_t)l * (size_t)h->slots + (size_t)h->slot_of[i]].rows;
      all = here + h->host_counts[i].rows;
      h->rows[i] = (float)(all - h->counted[i]);
      h->counted[i] = all;
      h->stats.rows += all;
      h->stats.hot_rows += here;
    }
  tri_hot_fade(h->load, h->rows, h->layers * h->experts);
  tri_hot_choice c = choice_of(h);
  h->stats.windows++;
  h->stats.share = tri_hot_share(&c);
  h->settled = false;
  h->state = IDLE;
}

static void add_tally(tri_expert_tally *to, const tri_expert_tally *t) {
  to->rows += t->rows;
  to->steps += t->steps;
}

/* ---- an exchange ---- */

static int expert_at(const tri_hot_experts *h, int layer, int slot) {
  for (int e = 0; e < h->experts; e++)
    if (slot_of(h, layer)[e] == slot) return e;
  return NONE;
}

/* Gives the slot's expert back to the host from the next step on, and marks the end of those before. */
static void begin_exchange(tri_hot_experts *h, const tri_hot_exchange *x) {
  tri_backend *be = h->cfg.backend;
  tri_expert_tally *tally = h->tally + (size_t)x->layer * (size_t)h->slots + (size_t)x->slot;
  h->x = *x;
  h->out = expert_at(h, x->layer, x->slot);
  if (h->out != NONE) {
    write_table(h, x->layer, h->out, hot_number(h, x->slot), host_number(h, h->out));
    slot_of(h, x->layer)[h->out] = NONE;
  }
  be->ops.download(be, h->gone, tally, sizeof *tally);
  be->ops.upload(be, tally, h->no_rows, sizeof *tally);
  be->ops.event_record(be, TRI_EVENT_HOT, TRI_STREAM_COMPUTE);
  h->state = FREES;
}

/* No step reads the slot any more. */
static void begin_copies(tri_hot_experts *h) {
  const tri_weights *host = h->cfg.weights;
  int layer = h->x.layer;
  if (h->out != NONE) add_tally(&h->earlier[(size_t)layer * (size_t)h->experts + (size_t)h->out], h->gone);
  h->num_parts = tri_expert_parts(&host->layers[layer], h->experts, h->x.in, h->from);
  tri_expert_parts(&h->weights->layers[layer], h->slots, h->x.slot, h->to);
  h->part = 0;
  h->at = 0;
  h->issued = h->done = 0;
  h->state = COPIES;
}

/* Sends the next piece on its way where one of the buffers is free. */
static void send_piece(tri_hot_experts *h) {
  tri_backend *be = h->cfg.backend;
  unsigned turn = h->issued % TRI_HOT_PIECE_EVENTS;
  if (h->part == h->num_parts || h->issued - h->done == TRI_HOT_PIECE_EVENTS || !h->budget) return;
  size_t bytes = h->from[h->part].bytes - h->at;
  if (bytes > PIECE_BYTES) bytes = PIECE_BYTES;
  if (bytes > h->budget) bytes = h->budget;
  memcpy(h->pieces[turn], h->from[h->part].at + h->at, bytes);
  be->ops.upload_rows(be, h->to[h->part].at + h->at, bytes, h->pieces[turn], bytes, bytes, 1);
  be->ops.event_record(be, TRI_EVENT_HOT_PIECE + (int)turn, TRI_STREAM_COPY);
  h->issued++;
  h->budget -= bytes;
  h->stats.bytes += bytes;
  h->at += bytes;
  if (h->at < h->from[h->part].bytes) return;
  h->at = 0;
  h->part++;
}

/* All bytes are there: the device has the expert from the next step on. */
static void end_exchange(tri_hot_experts *h) {
  write_table(h, h->x.layer, h->x.in, host_number(h, h->x.in), hot_number(h, h->x.slot));
  slot_of(h, h->x.layer)[h->x.in] = h->x.slot;
  h->stats.exchanges++;
  h->state = IDLE;
}

static void copy(tri_hot_experts *h) {
  tri_backend *be = h->cfg.backend;
  while (h->done != h->issued &&
         be->ops.event_query(be, TRI_EVENT_HOT_PIECE + (int)(h->done % TRI_HOT_PIECE_EVENTS)) == TRI_OK)
    h->done++;
  send_piece(h);
  if (h->part == h->num_parts && h->done == h->issued) end_exchange(h);
}

/* ---- concurrent with the steps ---- */

static void begin_something(tri_hot_experts *h) {
  tri_hot_choice c = choice_of(h);
  tri_hot_exchange x;
  int window = h->cfg.window ? h->cfg.window : TRI_HOT_WINDOW;
  if (h->steps - h->counted_at >= (uint64_t)window) {
    begin_count(h);
    return;
  }
  if (h->settled) return;
  h->settled = !tri_hot_choose(&c, &x);
  if (!h->settled) begin_exchange(h, &x);
}

/* A device that has failed says so where its step is waited for: here nothing happens. */
void tri_hot_experts_go_on(tri_hot_experts *h) {
  tri_backend *be = h->cfg.backend;
  switch (h->state) {
  case IDLE: begin_something(h); return;
  case COUNTS:
    if (be->ops.event_query(be, TRI_EVENT_HOT) == TRI_OK) end_count(h);
    return;
  case FREES:
    if (be->ops.event_query(be, TRI_EVENT_HOT) == TRI_OK) begin_copies(h);
    return;
  case COPIES: copy(h); return;
  }
}

void tri_hot_experts_step(tri_hot_experts *h) {
  h->steps++;
  h->budget = h->cfg.step_bytes ? h->cfg.step_bytes : TRI_HOT_STEP_BYTES;
  tri_hot_experts_go_on(h);
}

tri_status tri_hot_experts_exchange(tri_hot_experts *h, const tri_hot_exchange *x) {
  bool exists = x->layer >= 0 && x->layer < h->layers && h->is_hot[x->layer] && x->slot >= 0 && x->slot < h->slots &&
                x->in >= 0 && x->in < h->experts;
  if (!exists || slot_of(h, x->layer)[x->in] != NONE) return TRI_INVALID_ARGUMENT;
  if (h->state != IDLE) return TRI_AGAIN;
  begin_exchange(h, x);
  return TRI_OK;
}

/* ---- what is reported ---- */

tri_hot_layer tri_hot_experts_layer(const tri_hot_experts *h, int layer) {
  return (tri_hot_layer){.weights = &h->weights->layers[layer],
                         .slots = h->table + (size_t)layer * h->table_size,
                         .most_copies = h->most_copies,
                         .first_slot = h->first_slot,
                         .num_slots = h->slots,
                         .tally = h->tally + (size_t)layer * (size_t)h->slots};
}

tri_status tri_hot_experts_tally(tri_hot_experts *h, tri_expert_tally *add_to) {
  tri_backend *be = h->cfg.backend;
  be->ops.download(be, h->told, h->tally, (size_t)h->layers * (size_t)h->slots * sizeof *h->told);
  TRI_CHECK(be->ops.stream_sync(be));
  h->stats.rows = h->stats.hot_rows = 0;
  for (int l = 0; l < h->layers; l++)
    for (int e = 0; h->is_hot[l] && e < h->experts; e++) {
      size_t i = (size_t)l * (size_t)h->experts + (size_t)e;
      tri_expert_tally sum = h->earlier[i];
      if (h->slot_of[i] >= 0) add_tally(&sum, &h->told[(size_t)l * (size_t)h->slots + (size_t)h->slot_of[i]]);
      if (h->state == FREES && l == h->x.layer && e == h->out) add_tally(&sum, h->gone);
      add_tally(&add_to[i], &sum);
      h->stats.rows += add_to[i].rows;
      h->stats.hot_rows += sum.rows;
    }
  return TRI_OK;
}

tri_hot_stats tri_hot_experts_stats(const tri_hot_experts *h) { return h->stats; }

/* ---- making it ---- */

static tri_status take_pinned(tri_hot_experts *h) {
  size_t hot = (size_t)h->layers * (size_t)h->slots, all = (size_t)h->layers * (size_t)h->experts;
  size_t pieces = (size_t)TRI_HOT_PIECE_EVENTS * PIECE_BYTES, tallies = 2 * hot + all + 2;
  size_t numbers = (size_t)h->layers * h->table_size;
  h->pinned_bytes = pieces + tallies * sizeof(tri_expert_tally) + numbers * sizeof *h->numbers;
  TRI_CHECK(h->cfg.backend->ops.host_alloc(h->cfg.backend, h->pinned_bytes, (void **)&h->pinned));
  for (int i = 0; i < TRI_HOT_PIECE_EVENTS; i++) h->pieces[i] = h->pinned + (size_t)i * PIECE_BYTES;
  h->hot_counts = (tri_expert_tally *)(h->pinned + pieces);
  h->told = h->hot_counts + hot;
  h->host_counts = h->told + hot;
  h->gone = h->host_counts + all;
  h->no_rows = h->gone + 1;
  h->numbers = (int32_t *)(h->no_rows + 1);
  *h->no_rows = (tri_expert_tally){0};
  return TRI_OK;
}

static tri_status take_memory(tri_hot_experts *h) {
  tri_backend *be = h->cfg.backend;
  size_t layers = (size_t)h->layers, n = layers * (size_t)h->experts;
  h->is_hot = tri_calloc(layers, sizeof *h->is_hot);
  h->slot_of = tri_calloc(n, sizeof *h->slot_of);
  h->earlier = tri_calloc(n, sizeof *h->earlier);
  h->counted = tri_calloc(n, sizeof *h->counted);
  h->load = tri_calloc(n, sizeof *h->load);
  h->rows = tri_calloc(n, sizeof *h->rows);
  if (!h->is_hot || !h->slot_of || !h->earlier || !h->counted || !h->load || !h->rows) return TRI_NO_MEMORY;
  TRI_CHECK(take_pinned(h));
  TRI_CHECK(
      be->ops.mem_alloc(be, TRI_MEM_ACTIVATIONS, layers * (size_t)h->slots * sizeof *h->tally, (void **)&h->tally));
  TRI_CHECK(be->ops.mem_alloc(be, TRI_MEM_ACTIVATIONS, layers * h->table_size * sizeof *h->table, (void **)&h->table));
  return tri_hot_weights_create(be, h->cfg.model, h->cfg.shard, h->cfg.weights, h->slots, &h->weights);
}

/* The first experts' bytes are neighbours here and there. */
static void fill_layer(tri_hot_experts *h, int layer) {
  tri_backend *be = h->cfg.backend;
  tri_expert_part from[TRI_EXPERT_PARTS], to[TRI_EXPERT_PARTS];
  int n = tri_expert_parts(&h->cfg.weights->layers[layer], h->experts, 0, from);
  tri_expert_parts(&h->weights->layers[layer], h->slots, 0, to);
  for (int i = 0; i < n; i++) be->ops.upload(be, to[i].at, from[i].at, (size_t)h->slots * from[i].bytes);
  for (int slot = 0; slot < h->slots; slot++) {
    slot_of(h, layer)[slot] = slot;
    write_table(h, layer, slot, host_number(h, slot), hot_number(h, slot));
  }
}

static tri_status fill(tri_hot_experts *h) {
  tri_backend *be = h->cfg.backend;
  tri_range layers = h->cfg.shard->layers;
  size_t bytes = h->table_size * sizeof *h->table;
  for (size_t i = 0; i < (size_t)h->layers * (size_t)h->experts; i++) h->slot_of[i] = NONE;
  for (int l = 0; l < h->layers; l++) {
    h->is_hot[l] = tri_layer_experts_on_host(h->cfg.model, h->cfg.shard->p, layers.first + l);
    if (!h->is_hot[l]) continue;
    number_layer(h, l);
    be->ops.upload(be, h->table + (size_t)l * h->table_size, h->numbers + (size_t)l * h->table_size, bytes);
    fill_layer(h, l);
  }
  return be->ops.stream_sync(be);
}

tri_status tri_hot_experts_create(const tri_hot_experts_config *config, tri_hot_experts **out) {
  const tri_shard *s = config->shard;
  tri_hot_experts *h = tri_calloc(1, sizeof *h);
  tri_status st = h ? TRI_OK : TRI_NO_MEMORY;
  TRI_TRY(st);
  h->cfg = *config;
  h->layers = s->layers.count;
  h->experts = s->slots.count;
  h->slots = s->p.hot_experts;
  h->first_slot = tri_stage_slots(config->model, s->p);
  h->most_copies = s->p.placement ? tri_expert_most_copies(s->p.placement) : 1;
  h->table_size = (size_t)config->model->moe.num_experts * (1 + (size_t)h->most_copies);
  h->settled = true;
  if (h->slots < 1 || h->slots > h->experts) st = TRI_INVALID_ARGUMENT;
  TRI_TRY(st);
  TRI_TRY(take_memory(h));
  TRI_TRY(fill(h));
  *out = h;
  h = NULL;
cleanup:
  tri_hot_experts_destroy(h);
  return st;
}

void tri_hot_experts_destroy(tri_hot_experts *h) {
  if (!h) return;
  tri_backend *be = h->cfg.backend;
  be->ops.event_record(be, TRI_EVENT_HOT, TRI_STREAM_COPY); /* copies read what is about to go */
  be->ops.event_wait(be, TRI_EVENT_HOT);
  tri_hot_weights_destroy(h->weights);
  if (h->tally)
    be->ops.mem_free(be, TRI_MEM_ACTIVATIONS, h->tally, (size_t)h->layers * (size_t)h->slots * sizeof *h->tally);
  if (h->table)
    be->ops.mem_free(be, TRI_MEM_ACTIVATIONS, h->table, (size_t)h->layers * h->table_size * sizeof *h->table);
  if (h->pinned) be->ops.host_free(be, h->pinned, h->pinned_bytes);
  tri_free(h->is_hot);
  tri_free(h->slot_of);
  tri_free(h->earlier);
  tri_free(h->counted);
  tri_free(h->load);
  tri_free(h->rows);
  tri_free(h);
}
