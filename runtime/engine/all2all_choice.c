/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/engine/all2all_choice.h"

#include <stdio.h>
#include <string.h>

#include "kernels/random.h"
#include "base/log.h"
#include "runtime/forward/step_arena.h"
#include "runtime/load/stored_form.h"

/* Forms of the exchange differ in what they do well: few rows want few messages, many rows want little traffic, and
 * which is which depends on the machine. So the forms that all ranks support are timed for 4, 16, 64, 256 and the most
 * rows, on random choices, before anything is loaded; rows that will travel rounded do so here. Times are the slowest
 * rank's, and so equal on all ranks: they choose alike. */
enum { ROUNDS = 5, BATCH = 16 /* exchanges that a device is given at a time */ };

static tri_all2all_config config_of(const tri_model_config *c, const tri_shard *s, const tri_limits *l, bool device,
                                    tri_dtype type) {
  tri_parallel p = s->p;
  return (tri_all2all_config){.tp = p.tp,
                              .dp = tri_dp_ranks_exchange(c, p) ? tri_parallel_dp(p) : 1,
                              .t = p.tp_rank,
                              .d = p.dp_rank,
                              .max_rows = tri_exchanged_rows(l),
                              .device = device,
                              .type = type,
                              .hidden = (int)c->hidden_size,
                              .top_k = (int)c->moe.top_k,
                              .num_experts = tri_stage_slots(c, p),
                              .etp = tri_parallel_etp(p)};
}

bool tri_engine_all2all_bytes(const tri_model_config *c, const tri_shard *s, const tri_limits *limits, bool device,
                              tri_dtype type, size_t *out) {
  tri_all2all_config config = config_of(c, s, limits, device, type);
  *out = 0;
  return config.dp == 1 || tri_all2all_bytes(&config, out);
}

/* The stage rank of the first slice of each slot's expert. */
static void find_ranks(const tri_model_config *c, tri_parallel p, int32_t *first_rank) {
  for (int share = 0; share < tri_parallel_ep(p); share++) {
    tri_range own = tri_range_part(tri_stage_slots(c, p), tri_parallel_ep(p), share);
    for (int i = 0; i < own.count; i++) first_rank[own.first + i] = share * tri_parallel_etp(p);
  }
}

/* ---- measuring ---- */

/* Rows that mean nothing, with random experts, in the backend's memory. */
struct trial {
  tri_engine *e;
  const tri_all2all_config *c;
  size_t rows_bytes, all_bytes, ids_bytes, all_ids_bytes; /* of a data-parallel rank, of all; and their choices */
  float *x, *y, *weights, *all_weights;
  int32_t *experts, *all_experts;
  int32_t *rows, *choices; /* on the host */
  double *seconds;         /* [ranks of the stage] */
  bool rounds;             /* many rows travel rounded, on all ranks of the stage */
};

/* Returns whether this rank's experts round many rows so that these may travel rounded (tri_dispatch_rounds). */
static bool rounds_many(const tri_engine *e) {
  tri_range layers = e->shard.layers;
  if (e->quantization != TRI_QUANTIZE_FP8 || !e->backend->rounds_fp8_experts_from || e->model.moe.scale_input)
    return false;
  for (int l = layers.first; l < layers.first + layers.count; l++) {
    tri_groups g;
    if (tri_stored_form_find(&e->model, &e->shard, e->ckpt, TRI_W_EXPERT_UP, l, TRI_F8_E4M3, &g))
      return g.cols == TRI_INT8_GROUP;
  }
  return false;
}

/* Both ranks of a dispatch must expect the same: they vote by a sum. */
static tri_status agree_on_rounding(struct trial *t) {
  float votes = rounds_many(t->e);
  TRI_CHECK(tri_comm_all_reduce(t->c->stage, &votes, 1));
  t->rounds = votes == (float)t->c->stage->size;
  return TRI_OK;
}

static bool is_rounded(const struct trial *t, int rows) {
  const tri_moe *m = &t->e->model.moe;
  int64_t each = (int64_t)t->c->dp * rows * m->top_k / m->num_experts;
  return t->rounds && each >= t->e->backend->rounds_fp8_experts_from;
}

static tri_status take(const struct trial *t, size_t bytes, void *out) {
  tri_backend *be = t->e->backend;
  return be->ops.mem_alloc(be, TRI_MEM_ACTIVATIONS, bytes, out);
}

static tri_status make_trial(struct trial *t, const tri_all2all_config *c) {
  size_t rows = (size_t)c->max_rows, dp = (size_t)c->dp, choices = rows * (size_t)c->top_k;
  tri_backend *be = t->e->backend;
  tri_status st = TRI_OK;
  t->rows_bytes = rows * (size_t)c->hidden * sizeof *t->x;
  t->all_bytes = dp * t->rows_bytes;
  t->ids_bytes = choices * sizeof *t->experts;
  t->all_ids_bytes = dp * t->ids_bytes;
  t->choices = tri_calloc(choices, sizeof *t->choices);
  t->rows = tri_calloc(dp, sizeof *t->rows);
  t->seconds = tri_calloc((size_t)c->stage->size, sizeof *t->seconds);
  if (!t->choices || !t->rows || !t->seconds) return TRI_NO_MEMORY;
  TRI_CHECK(take(t, t->all_bytes, &t->x));
  TRI_CHECK(take(t, t->all_bytes, &t->y));
  TRI_CHECK(take(t, t->ids_bytes, &t->experts));
  TRI_CHECK(take(t, t->ids_bytes, &t->weights));
  TRI_CHECK(take(t, t->all_ids_bytes, &t->all_experts));
  TRI_CHECK(take(t, t->all_ids_bytes, &t->all_weights));
  /* Each data-parallel rank has choices of its own, so that all experts get rows, as a router would have it. */
  for (size_t i = 0; i < choices; i++)
    t->choices[i] = (int32_t)(tri_random_mix((uint64_t)c->d << 32 | i) % (uint64_t)c->num_experts);
  be->ops.upload(be, t->experts, t->choices, t->ids_bytes);
  return st;
}

static void give_back(const struct trial *t, void *p, size_t bytes) {
  tri_backend *be = t->e->backend;
  if (p) be->ops.mem_free(be, TRI_MEM_ACTIVATIONS, p, bytes);
}

static void free_trial(struct trial *t) {
  give_back(t, t->x, t->all_bytes);
  give_back(t, t->y, t->all_bytes);
  give_back(t, t->experts, t->ids_bytes);
  give_back(t, t->weights, t->ids_bytes);
  give_back(t, t->all_experts, t->all_ids_bytes);
  give_back(t, t->all_weights, t->all_ids_bytes);
  tri_free(t->choices);
  tri_free(t->rows);
  tri_free(t->seconds);
}

/* Exchanges of a host end when the call returns; a device is waited for after several. */
static tri_status run_batch(const struct trial *t, const tri_all2all_config *c, double *seconds) {
  tri_all2all *e = t->e->all2all;
  tri_all2all_rows all = {.x = t->x, .experts = t->all_experts, .weights = t->all_weights};
  tri_backend *be = t->e->backend;
  int count = c->device ? BATCH : 1;
  int64_t start = tri_now_ns();
  for (int i = 0; i < count; i++) {
    TRI_CHECK(tri_all2all_dispatch(e, t->rows, t->y, t->experts, t->weights, &all));
    TRI_CHECK(tri_all2all_combine(e, t->y, t->x, false));
  }
  tri_status st = be->ops.stream_sync(be);
  *seconds = (double)(tri_now_ns() - start) * 1e-9 / count;
  return st == TRI_OK && c->column ? tri_comm_query(c->column) : st;
}

/* In the best of a few rounds: other work on the machine only makes one longer. */
static tri_status time_form(void *ctx, tri_all2all_form form, int rows, double *out) {
  const struct trial *t = ctx;
  const tri_all2all_config *c = t->c;
  double best = 0, seconds;
  for (int d = 0; d < c->dp; d++) t->rows[d] = rows;
  tri_all2all_use(t->e->all2all, form);
  tri_all2all_round(t->e->all2all, is_rounded(t, rows));
  for (int i = 0; i <= ROUNDS; i++) {
    TRI_CHECK(run_batch(t, c, &seconds));
    if (i && (i == 1 || seconds < best)) best = seconds; /* the first one wakes everybody up */
  }
  TRI_CHECK(tri_comm_all_gather(c->stage, &best, t->seconds, sizeof best));
  for (int r = 0; r < c->stage->size; r++)
    if (t->seconds[r] > best) best = t->seconds[r];
  *out = best;
  return TRI_OK;
}

/* Sizes grow by the factor 4, and the last one stands for all larger ones. Ties keep the form that was tried first.
 * All ranks get the same times (time_form takes the slowest rank's), hence the same choice. */
tri_status tri_all2all_choose(unsigned forms, int max_rows, tri_all2all_timer time, void *ctx, tri_all2all_choice *out,
                              char text[static TRI_ALL2ALL_TEXT]) {
  int size = 0;
  text[0] = '\0';
  for (int rows = 4; size < TRI_ALL2ALL_SIZES; rows *= 4, size++) {
    int n = rows < max_rows && size < TRI_ALL2ALL_SIZES - 1 ? rows : max_rows;
    double best = -1, seconds;
    for (int form = 0; form < TRI_ALL2ALL_FORMS; form++) {
      if (!(forms >> form & 1)) continue;
      TRI_CHECK(time(ctx, (tri_all2all_form)form, n, &seconds));
      if (best >= 0 && seconds >= best) continue;
      best = seconds;
      out->by_size[size] = (tri_all2all_form)form;
    }
    size_t used = strlen(text);
    snprintf(text + used, TRI_ALL2ALL_TEXT - used, "%s%d rows %s %.0f us", used ? ", " : "", n,
             tri_all2all_form_name(out->by_size[size]), best * 1e6);
    if (n == max_rows) break;
  }
  for (int i = size + 1; i < TRI_ALL2ALL_SIZES; i++) out->by_size[i] = out->by_size[size];
  return TRI_OK;
}

/* ---- creation ---- */

/* Gives the column boxes for rows where all of the stage's can have them. `can`: they have; alike on all ranks. */
static tri_status add_boxes(tri_engine *e, const tri_all2all_config *c, bool *can, tri_error *err) {
  tri_rows_config rows;
  tri_error why = {0};
  tri_status st = TRI_UNSUPPORTED;
  if (!tri_all2all_rows_config(c, &rows))
    tri_fail(&why, st, "exchange", "%d data-parallel ranks", c->dp); /* the same in all columns */
  else if (e->device_column)
    st = e->backend->ops.comm_add_rows(e->backend, e->replica->column, &rows, &e->device_column, &why);
  /* A vote by a sum: 0 on every rank only if none has failed. */
  float missing = st != TRI_OK;
  tri_status told = tri_comm_all_reduce(c->stage, &missing, 1); /* one that fails says so, too: others wait for it */
  if (st != TRI_OK && st != TRI_UNSUPPORTED) return tri_fail(err, st, why.field, "%s", why.message);
  TRI_CHECK(told);
  *can = missing == 0;
  if (*can && tri_replica_is_leader(e->replica)) tri_log(TRI_LOG_INFO, "engine", "%s", e->device_column->about);
  if (!*can && tri_replica_is_leader(e->replica))
    tri_log(TRI_LOG_INFO, "engine", "all-to-all by NCCL alone: %s",
            why.message[0] ? why.message : "another column cannot");
  return TRI_OK;
}

/* Sets the one form that is wanted, where there is but one. With deterministic sums nothing is timed: the next start
 * might choose another form, and with it another order of sums. */
static tri_status choose_on_device(tri_engine *e, const tri_all2all_config *c, int *form, tri_error *err) {
  bool can = false;
  if (*form == TRI_ALL2ALL_ALLGATHER) return TRI_OK;
  tri_status st = add_boxes(e, c, &can, err);
  if (st != TRI_OK) { /* the others continue without measuring, and hear of it after that */
    *form = TRI_ALL2ALL_ALLGATHER;
    return st;
  }
  if (!can && *form == TRI_ALL2ALL_COORDINATED)
    return tri_fail(err, TRI_UNSUPPORTED, "all2all_backend", "these GPUs do not support --all2all-backend coordinated");
  if (!can) *form = TRI_ALL2ALL_ALLGATHER;
  if (can && c->stage->cfg.deterministic) *form = TRI_ALL2ALL_COORDINATED;
  return TRI_OK;
}

static tri_status create(tri_engine *e, tri_all2all_config *c, int *form, tri_error *err) {
  const tri_replica *g = e->replica;
  int32_t *first_rank = tri_calloc((size_t)c->num_experts, sizeof *first_rank);
  tri_status st = TRI_OK;
  if (!first_rank) st = tri_fail(err, TRI_NO_MEMORY, "exchange", "no memory");
  if (c->device) TRI_TRY(tri_comm_agree(g->stage, st)); /* devices are asked together */
  TRI_TRY(st);
  find_ranks(&e->model, e->shard.p, first_rank);
  c->tensor = g->tensor;
  c->stage = g->stage;
  c->backend = e->backend;
  c->first_rank = first_rank;
  if (c->device) TRI_TRY(choose_on_device(e, c, form, err));
  c->column = e->device_column ? e->device_column : g->column;
  st = tri_all2all_create(c, &e->all2all, err);
cleanup:
  tri_free(first_rank);
  c->first_rank = NULL;
  return st;
}

/* Bits of the forms that there are. */
static unsigned forms_of(const tri_engine *e) {
  unsigned forms = 0;
  for (int form = 0; form < TRI_ALL2ALL_FORMS; form++)
    if (tri_all2all_can(e->all2all, (tri_all2all_form)form)) forms |= 1u << form;
  return forms;
}

tri_status tri_engine_make_all2all(tri_engine *e, int form, tri_error *err) {
  tri_all2all_config c = config_of(&e->model, &e->shard, &e->limits, !e->backend->host_memory, e->ledger.gemm_type);
  struct trial t = {.e = e, .c = &c};
  char text[TRI_ALL2ALL_TEXT];
  if (c.dp == 1) return TRI_OK;
  tri_status st = create(e, &c, &form, err);
  for (int i = 0; i < TRI_ALL2ALL_SIZES; i++) e->all2all_choice.by_size[i] = (tri_all2all_form)form;
  if (form < TRI_ALL2ALL_FORMS) {
    if (st == TRI_OK && tri_replica_is_leader(e->replica))
      tri_log(TRI_LOG_INFO, "engine", "all-to-all: %s", tri_all2all_form_name((tri_all2all_form)form));
    return st;
  }
  /* All of them measure, or none: those that cannot must not be waited for. */
  if (st == TRI_OK) st = make_trial(&t, &c);
  TRI_TRY(tri_comm_agree(e->replica->stage, st));
  TRI_TRY(agree_on_rounding(&t));
  TRI_TRY(tri_all2all_choose(forms_of(e), c.max_rows, time_form, &t, &e->all2all_choice, text));
  if (tri_replica_is_leader(e->replica)) tri_log(TRI_LOG_INFO, "engine", "all-to-all: %s", text);
cleanup:
  free_trial(&t);
  return st == TRI_OK || (err && err->status) ? st
                                              : tri_fail(err, st, "exchange", "the exchange: %s", tri_status_text(st));
}
