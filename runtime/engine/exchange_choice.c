#include "runtime/engine/exchange_choice.h"

#include <stdio.h>
#include <string.h>

#include "kernels/random.h"
#include "runtime/base/log.h"
#include "runtime/forward/step_arena.h"

enum { ROUNDS = 5 };

static tri_exchange_config config_of(const tri_model_config *c, const tri_shard *s, const tri_limits *l,
                                     tri_dtype type) {
  tri_parallel p = s->p;
  return (tri_exchange_config){.tp = p.tp,
                               .dp = tri_parallel_dp(p),
                               .t = p.tp_rank,
                               .d = p.dp_rank,
                               .max_rows = tri_exchanged_rows(l),
                               .type = type,
                               .hidden = (int)c->hidden_size,
                               .top_k = (int)c->moe.top_k,
                               .num_experts = tri_stage_slots(c, p),
                               .etp = tri_parallel_etp(p)};
}

bool tri_engine_exchange_bytes(const tri_model_config *c, const tri_shard *s, const tri_limits *limits, size_t *out) {
  tri_exchange_config config = config_of(c, s, limits, TRI_F32);
  *out = 0;
  return config.dp == 1 || tri_exchange_bytes(&config, out);
}

/* The stage rank of the first slice of each slot's expert. */
static void find_ranks(const tri_model_config *c, tri_parallel p, int32_t *first_rank) {
  for (int share = 0; share < tri_parallel_ep(p); share++) {
    tri_range own = tri_range_part(tri_stage_slots(c, p), tri_parallel_ep(p), share);
    for (int i = 0; i < own.count; i++) first_rank[own.first + i] = share * tri_parallel_etp(p);
  }
}

/* ---- measuring ---- */

/* Rows that mean nothing, with random experts. */
struct trial {
  tri_engine *e;
  const tri_exchange_config *c;
  float *x, *y, *weights, *all_weights;
  int32_t *experts, *all_experts, *rows;
  double *seconds; /* [ranks of the stage] */
};

static bool make_trial(struct trial *t, const tri_exchange_config *c) {
  size_t rows = (size_t)c->max_rows, all = rows * (size_t)c->dp, hidden = (size_t)c->hidden, k = (size_t)c->top_k;
  t->x = tri_calloc(all * hidden, sizeof *t->x);
  t->y = tri_calloc(all * hidden, sizeof *t->y);
  t->weights = tri_calloc(rows * k, sizeof *t->weights);
  t->all_weights = tri_calloc(all * k, sizeof *t->all_weights);
  t->experts = tri_calloc(rows * k, sizeof *t->experts);
  t->all_experts = tri_calloc(all * k, sizeof *t->all_experts);
  t->rows = tri_calloc((size_t)c->dp, sizeof *t->rows);
  t->seconds = tri_calloc((size_t)c->stage->size, sizeof *t->seconds);
  if (!t->x || !t->y || !t->weights || !t->all_weights || !t->experts || !t->all_experts || !t->rows || !t->seconds)
    return false;
  for (size_t i = 0; i < rows * k; i++)
    t->experts[i] = (int32_t)(tri_random_mix((uint64_t)c->d << 32 | i) % (uint64_t)c->num_experts);
  return true;
}

static void free_trial(struct trial *t) {
  tri_free(t->x);
  tri_free(t->y);
  tri_free(t->weights);
  tri_free(t->all_weights);
  tri_free(t->experts);
  tri_free(t->all_experts);
  tri_free(t->rows);
  tri_free(t->seconds);
}

/* In the best of a few rounds. */
static tri_status time_form(void *ctx, tri_exchange_form form, int rows, double *out) {
  const struct trial *t = ctx;
  const tri_exchange_config *c = t->c;
  tri_exchange *e = t->e->exchange;
  tri_exchange_rows all = {.x = t->x, .experts = t->all_experts, .weights = t->all_weights};
  double best = 0;
  for (int d = 0; d < c->dp; d++) t->rows[d] = rows;
  tri_exchange_use(e, form);
  for (int i = 0; i <= ROUNDS; i++) {
    int64_t start = tri_now_ns();
    TRI_CHECK(tri_exchange_dispatch(e, t->rows, t->y, t->experts, t->weights, &all));
    TRI_CHECK(tri_exchange_combine(e, t->y, t->x, false));
    double seconds = (double)(tri_now_ns() - start) * 1e-9;
    if (i && (i == 1 || seconds < best)) best = seconds; /* the first one wakes everybody up */
  }
  TRI_CHECK(tri_comm_all_gather(c->stage, &best, t->seconds, sizeof best));
  for (int r = 0; r < c->stage->size; r++)
    if (t->seconds[r] > best) best = t->seconds[r];
  *out = best;
  return TRI_OK;
}

/* SHARE and FLAT add slices in other orders. */
static bool may_choose(bool deterministic, tri_exchange_form form) {
  return !deterministic || form == TRI_EXCHANGE_ALLGATHER || form == TRI_EXCHANGE_COORDINATED;
}

tri_status tri_exchange_choose(bool deterministic, int max_rows, tri_exchange_timer time, void *ctx,
                               tri_exchange_choice *out, char text[static TRI_EXCHANGE_TEXT]) {
  int size = 0;
  text[0] = '\0';
  for (int rows = 4; size < TRI_EXCHANGE_SIZES; rows *= 4, size++) {
    int n = rows < max_rows && size < TRI_EXCHANGE_SIZES - 1 ? rows : max_rows;
    double best = 0, seconds;
    for (int form = 0; form < TRI_EXCHANGE_FORMS; form++) {
      if (!may_choose(deterministic, (tri_exchange_form)form)) continue;
      TRI_CHECK(time(ctx, (tri_exchange_form)form, n, &seconds));
      if (form && seconds >= best) continue;
      best = seconds;
      out->by_size[size] = (tri_exchange_form)form;
    }
    size_t used = strlen(text);
    snprintf(text + used, TRI_EXCHANGE_TEXT - used, "%s%d rows %s %.0f us", used ? ", " : "", n,
             tri_exchange_form_name(out->by_size[size]), best * 1e6);
    if (n == max_rows) break;
  }
  for (int i = size + 1; i < TRI_EXCHANGE_SIZES; i++) out->by_size[i] = out->by_size[size];
  return TRI_OK;
}

/* ---- creation ---- */

/* Devices have one form. */
static tri_status check_form(const tri_engine *e, int *form, tri_error *err) {
  if (e->backend->host_memory) return TRI_OK;
  if (*form != TRI_EXCHANGE_FORMS && *form != TRI_EXCHANGE_ALLGATHER)
    return tri_fail(err, TRI_UNSUPPORTED, "all2all_backend", "devices exchange rows by allgather alone, not by %s",
                    tri_exchange_form_name((tri_exchange_form)*form));
  *form = TRI_EXCHANGE_ALLGATHER;
  return TRI_OK;
}

static tri_status create(tri_engine *e, tri_exchange_config *c, tri_error *err) {
  const tri_group *g = e->group;
  int32_t *first_rank = tri_calloc((size_t)c->num_experts, sizeof *first_rank);
  if (!first_rank) return tri_fail(err, TRI_NO_MEMORY, "exchange", "no memory");
  find_ranks(&e->model, e->shard.p, first_rank);
  c->tensor = g->tensor;
  c->column = e->device_column ? e->device_column : g->column;
  c->stage = g->stage;
  c->backend = e->backend;
  c->first_rank = first_rank;
  tri_status st = tri_exchange_create(c, &e->exchange, err);
  tri_free(first_rank);
  c->first_rank = NULL;
  return st;
}

tri_status tri_engine_make_exchange(tri_engine *e, int form, tri_error *err) {
  tri_dtype type = tri_step_arena_type(&e->model, e->backend->narrow_activations, e->weights->products);
  tri_exchange_config c = config_of(&e->model, &e->shard, &e->limits, type);
  struct trial t = {.e = e, .c = &c};
  char text[TRI_EXCHANGE_TEXT];
  if (c.dp == 1) return TRI_OK;
  TRI_CHECK(check_form(e, &form, err));
  tri_status st = create(e, &c, err);
  for (int i = 0; i < TRI_EXCHANGE_SIZES; i++) e->exchange_choice.by_size[i] = (tri_exchange_form)form;
  if (form < TRI_EXCHANGE_FORMS) {
    if (st == TRI_OK && tri_group_is_leader(e->group))
      tri_log(TRI_LOG_INFO, "engine", "exchange of rows: %s", tri_exchange_form_name((tri_exchange_form)form));
    return st;
  }
  /* All of them measure, or none: those that cannot must not be waited for. */
  if (st == TRI_OK && !make_trial(&t, &c)) st = TRI_NO_MEMORY;
  TRI_TRY(tri_comm_agree(e->group->stage, st));
  TRI_TRY(tri_exchange_choose(c.stage->cfg.deterministic, c.max_rows, time_form, &t, &e->exchange_choice, text));
  if (tri_group_is_leader(e->group)) tri_log(TRI_LOG_INFO, "engine", "exchange of rows: %s", text);
cleanup:
  free_trial(&t);
  return st == TRI_OK || (err && err->status) ? st
                                              : tri_fail(err, st, "exchange", "the exchange: %s", tri_status_text(st));
}
