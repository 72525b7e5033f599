/* SPDX-License-Identifier: Apache-2.0 */
/* An exchange's memory and checks, and the way into its forms: ALLGATHER is in all2all_gather.c, COORDINATED in
 * all2all_rows.c on the host and all2all_peers.c on devices. One block is laid out at creation for the most rows that
 * may come, so that no exchange allocates. */
#include "comm/all2all.h"

#include <limits.h>

#include "comm/all2all_impl.h"
#include "base/mem.h"

/* ---- memory ---- */

/* An exchange is one block: itself, then these. */
enum { ROWS, FIRST_RANK, TARGETS, TABLES, OWN, OTHERS, TO_BYTES, FROM_BYTES, CURSORS, PIECES };

/* Sets where each piece begins, and in starts[PIECES] the end. */
static bool lay_out(const tri_all2all_config *c, size_t starts[PIECES + 1]) {
  size_t dp = (size_t)c->dp, experts = (size_t)c->num_experts, top_k = (size_t)c->top_k;
  size_t hidden = (size_t)c->hidden, copies = dp < top_k ? dp : top_k; /* of a row: to so many peers it may go */
  size_t at = sizeof(tri_all2all), on_host = !c->device, choices, row_bytes;
  if (!tri_size_mul(top_k, 2 * sizeof(int32_t), &choices) || !tri_size_mul(hidden, sizeof(float), &row_bytes))
    return false;
  const size_t sizes[PIECES][3] = {
      [ROWS] = {dp, 1, sizeof(int32_t)},
      [FIRST_RANK] = {experts, 1, sizeof(int32_t)},
      [TARGETS] = {on_host * experts, 1, sizeof(int32_t)},
      [TABLES] = {on_host * dp, (size_t)c->max_rows, choices},
      [OWN] = {on_host * copies, (size_t)c->max_rows, row_bytes},
      [OTHERS] = {on_host * dp, (size_t)c->max_rows, row_bytes},
      [TO_BYTES] = {on_host * dp, 1, sizeof(size_t)},
      [FROM_BYTES] = {on_host * dp, 1, sizeof(size_t)},
      [CURSORS] = {on_host * dp, 1, sizeof(float *)},
  };
  for (int i = 0; i < PIECES; i++) {
    size_t n, line = 64;
    if (!tri_size_mul(sizes[i][0], sizes[i][1], &n) || !tri_size_mul(n, sizes[i][2], &n)) return false;
    if (!tri_size_add(at, line - 1, &at)) return false;
    starts[i] = at / line * line;
    if (!tri_size_add(starts[i], n, &at)) return false;
  }
  starts[PIECES] = at;
  return true;
}

static void shape_rows(const tri_all2all_config *c, tri_rows_config *out) {
  *out = (tri_rows_config){
      .ranks = c->dp, .max_rows = c->max_rows, .hidden = c->hidden, .top_k = c->top_k, .type = c->type};
}

/* A column of one exchanges nothing, and boxes are laid out for TRI_ROWS_RANKS at most. */
static bool has_boxes(const tri_all2all_config *c) { return c->device && c->dp > 1 && c->dp <= TRI_ROWS_RANKS; }

bool tri_all2all_bytes(const tri_all2all_config *config, size_t *bytes) {
  size_t starts[PIECES + 1], gathered, boxes = 0;
  tri_rows_config rows;
  shape_rows(config, &rows);
  if (has_boxes(config) && !tri_rows_bytes(&rows, &boxes)) return false;
  return lay_out(config, starts) && tri_all2all_gather_bytes(config, &gathered) &&
         tri_size_add(starts[PIECES], gathered, bytes) && tri_size_add(*bytes, boxes, bytes);
}

/* Adds a slot to those of its rank in the column, if that has a slice of its expert. */
static bool add_slot(const tri_all2all_config *c, int slot, tri_rows_config *out) {
  int first = c->first_rank[slot], slice = c->t - first % c->tp;
  int32_t *from = &out->first_slot[first / c->tp], *end = &out->end_slot[first / c->tp];
  if (slice < 0 || slice >= c->etp) return true;
  if (*end && *end != slot) return false;
  if (!*end) *from = slot;
  *end = slot + 1;
  return true;
}

bool tri_all2all_rows_config(const tri_all2all_config *config, tri_rows_config *out) {
  bool fits = has_boxes(config);
  shape_rows(config, out);
  for (int slot = 0; fits && slot < config->num_experts; slot++) fits = add_slot(config, slot, out);
  return fits;
}

/* ---- creation ---- */

static bool fits(const tri_comm *c, int rank, int size) { return c ? c->rank == rank && c->size == size : size == 1; }

static tri_status check(const tri_all2all_config *c, tri_error *err) {
  if (c->tp < 1 || c->dp < 1 || c->dp > INT_MAX / c->tp || c->t < 0 || c->t >= c->tp || c->d < 0 || c->d >= c->dp)
    return tri_fail(err, TRI_OUT_OF_RANGE, "exchange", "no rank %d, %d of %d data-parallel ranks of %d ranks", c->d,
                    c->t, c->dp, c->tp);
  if (!fits(c->tensor, c->t, c->tp) || !fits(c->column, c->d, c->dp) ||
      !fits(c->stage, c->d * c->tp + c->t, c->dp * c->tp))
    return tri_fail(err, TRI_INVALID_ARGUMENT, "exchange",
                    "a communicator is not of %d data-parallel ranks of %d ranks", c->dp, c->tp);
  if (c->max_rows < 1 || c->hidden < 1 || c->top_k < 1 || c->num_experts < 1 || c->etp < 1 || c->etp > c->tp)
    return tri_fail(err, TRI_OUT_OF_RANGE, "exchange", "%d rows of %d elements, %d of %d experts in %d slices",
                    c->max_rows, c->hidden, c->top_k, c->num_experts, c->etp);
  for (int x = 0; x < c->num_experts; x++) {
    int first = c->first_rank[x];
    if (first < 0 || first / c->tp >= c->dp || first % c->tp + c->etp > c->tp)
      return tri_fail(err, TRI_OUT_OF_RANGE, "exchange",
                      "expert %d: %d slices from rank %d on are not in one data-parallel rank", x, c->etp, first);
  }
  return TRI_OK;
}

/* A gather takes no more of a rank than MPI counts. */
static bool can_gather(const tri_all2all_config *c) {
  size_t rows = (size_t)c->max_rows, whole, tables;
  return tri_size_mul(rows * (size_t)c->hidden, sizeof(float), &whole) && whole <= INT_MAX &&
         tri_size_mul(rows * (size_t)c->top_k, 2 * sizeof(int32_t), &tables) && tables <= INT_MAX;
}

tri_status tri_all2all_create(const tri_all2all_config *config, tri_all2all **out, tri_error *err) {
  size_t starts[PIECES + 1];
  TRI_CHECK(check(config, err));
  if (!can_gather(config) || !lay_out(config, starts))
    return tri_fail(err, TRI_TOO_LARGE, "exchange", "%d rows of %d elements in each of %d data-parallel ranks",
                    config->max_rows, config->hidden, config->dp);
  char *base = tri_calloc(1, starts[PIECES]);
  if (!base)
    return tri_fail(err, TRI_NO_MEMORY, "exchange", "no memory for %zu bytes of rows on their way", starts[PIECES]);
  tri_all2all *e = (tri_all2all *)base;
  *e = (tri_all2all){
      .cfg = *config,
      .rows = (int32_t *)(base + starts[ROWS]),
      .first_rank = (int32_t *)(base + starts[FIRST_RANK]),
      .targets = (int32_t *)(base + starts[TARGETS]),
      .tables = (int32_t *)(base + starts[TABLES]),
      .own = (float *)(base + starts[OWN]),
      .others = (float *)(base + starts[OTHERS]),
      .to_bytes = (size_t *)(base + starts[TO_BYTES]),
      .from_bytes = (size_t *)(base + starts[FROM_BYTES]),
      .cursors = (float **)(base + starts[CURSORS]),
  };
  memcpy(e->first_rank, config->first_rank, (size_t)config->num_experts * sizeof *e->first_rank);
  e->cfg.first_rank = e->first_rank;
  if (!config->device) tri_all2all_find_targets(e);
  tri_all2all_use(e, config->device ? TRI_ALL2ALL_ALLGATHER : TRI_ALL2ALL_COORDINATED);
  if (tri_all2all_gather_create(e) != TRI_OK) {
    tri_all2all_destroy(e);
    return tri_fail(err, TRI_NO_MEMORY, "exchange", "no memory for the rows of %d data-parallel ranks", config->dp);
  }
  *out = e;
  return TRI_OK;
}

static bool failed(const tri_comm *c) { return c && tri_comm_query(c) != TRI_OK; }

/* A late message may still be written into the block of an exchange that failed: it stays. On a device nothing comes
 * there. */
void tri_all2all_destroy(tri_all2all *e) {
  if (!e) return;
  if (!e->cfg.device && (failed(e->cfg.tensor) || failed(e->cfg.column) || failed(e->cfg.stage))) return;
  tri_all2all_gather_destroy(e);
  tri_free(e);
}

/* In a column of one, COORDINATED is a copy, as which ALLGATHER does it. */
void tri_all2all_use(tri_all2all *e, tri_all2all_form form) {
  bool copy = form == TRI_ALL2ALL_COORDINATED && e->cfg.dp == 1;
  e->form = copy ? TRI_ALL2ALL_ALLGATHER : form;
}

void tri_all2all_round(tri_all2all *e, bool rounds) {
  tri_rows_config rows;
  shape_rows(&e->cfg, &rows);
  e->rounds = rounds && tri_rows_can_round(&rows);
}

/* On the host every rank has what both forms take; on devices the column's communicator decides. */
bool tri_all2all_can(const tri_all2all *e, tri_all2all_form form) {
  const uint32_t both = TRI_COMM_CAN_dispatch | TRI_COMM_CAN_combine;
  if (!e->cfg.device || form == TRI_ALL2ALL_ALLGATHER) return true;
  return !e->cfg.column || (tri_comm_caps(e->cfg.column) & both) == both;
}

bool tri_all2all_routes(const tri_all2all *e, tri_all2all_form form) {
  return e->cfg.device && e->cfg.dp > 1 && form == TRI_ALL2ALL_COORDINATED;
}

const char *tri_all2all_form_name(tri_all2all_form form) {
  static const char *const names[TRI_ALL2ALL_FORMS] = {"allgather", "coordinated"};
  return names[form];
}

/* ---- exchanges ---- */

/* stride is the most rows that any rank has in this exchange: all ranks are given the same `rows`, so that they agree
 * on sizes without a message. Without any row anywhere nothing is exchanged. */
static tri_status begin(tri_all2all *e, const int32_t *rows) {
  e->stride = 0;
  for (int d = 0; d < e->cfg.dp; d++)
    if (rows[d] < 0 || rows[d] > e->cfg.max_rows) return TRI_OUT_OF_RANGE;
  for (int d = 0; d < e->cfg.dp; d++) {
    if (rows[d] > e->stride) e->stride = rows[d];
    e->rows[d] = rows[d];
  }
  return TRI_OK;
}

/* A rank's experts and weights are one message, [2][stride * top_k]: a row that it does not have wants expert -1. */
static tri_status gather_tables(tri_all2all *e, const int32_t *experts, const float *weights,
                                const tri_all2all_rows *all) {
  size_t stride = (size_t)e->stride * (size_t)e->cfg.top_k;
  size_t n = (size_t)e->rows[e->cfg.d] * (size_t)e->cfg.top_k;
  int32_t *own = e->tables + 2 * stride * (size_t)e->cfg.d;
  memset(own, 0, 2 * stride * sizeof *own);
  memcpy(own, experts, n * sizeof *own);
  memcpy(own + stride, weights, n * sizeof *own);
  for (size_t i = n; i < stride; i++) own[i] = -1;
  TRI_CHECK(tri_all2all_gather(e->cfg.column, own, e->tables, 2 * stride * sizeof *own));
  for (size_t d = 0; d < (size_t)e->cfg.dp; d++) {
    memcpy(all->experts + d * stride, e->tables + 2 * d * stride, stride * sizeof *own);
    memcpy(all->weights + d * stride, e->tables + (2 * d + 1) * stride, stride * sizeof *own);
  }
  return TRI_OK;
}

tri_status tri_all2all_dispatch(tri_all2all *e, const int32_t *rows, const void *x, const int32_t *experts,
                                const float *weights, const tri_all2all_rows *all) {
  TRI_CHECK(begin(e, rows));
  if (!e->stride) return TRI_OK;
  if (e->form == TRI_ALL2ALL_ALLGATHER) return tri_all2all_gather_all(e, x, experts, weights, all);
  if (e->cfg.device) return tri_all2all_push_rows(e, x, experts, weights, NULL, all);
  TRI_CHECK(gather_tables(e, experts, weights, all));
  return tri_all2all_send_rows(e, x, all->x);
}

tri_status tri_all2all_route_and_dispatch(tri_all2all *e, const int32_t *rows, const void *x,
                                          const tri_moe_route_args *route, const tri_all2all_rows *all) {
  TRI_CHECK(begin(e, rows));
  return e->stride ? tri_all2all_push_rows(e, x, NULL, NULL, route, all) : TRI_OK;
}

tri_status tri_all2all_combine(tri_all2all *e, const float *y, float *out, bool accumulate) {
  if (!e->stride) return TRI_OK;
  if (e->form == TRI_ALL2ALL_ALLGATHER) return tri_all2all_scatter_sums(e, y, out, accumulate);
  return (e->cfg.device ? tri_all2all_add_up : tri_all2all_return_rows)(e, y, out, accumulate);
}
