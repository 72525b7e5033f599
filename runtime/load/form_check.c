/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/load/form_check.h"

#include <fcntl.h>
#include <math.h>
#include <unistd.h>

#include "base/wait.h"
#include "kernels/random.h"
#include "runtime/load/packed.h"

/* Inputs are 1 and -1 by a hash of their column, in pieces: columns that have one scale, and so few that a sum of
 * theirs is larger than what rounding may do to it. A row of inputs has one piece, and zeros elsewhere. */
static const double MOST_OFF = 0x1p-7;
enum { PIECE = 128, MOST_PIECES = 1024 }; /* so many are looked at: blocks of few columns would make millions of them */

/* A matrix, of experts one of them, while its slices are compared. */
struct matrix {
  const tri_weights_config *cfg;
  tri_backend *be;
  tri_weight w;
  tri_weight_id id;
  int layer, pieces, first_row; /* first_row: of the stacked weight, w's */
  float *results;               /* [pieces, outputs] */
  /* of the tensor at hand */
  tri_packed packed;
  uint8_t *codes; /* of a row of the file */
  char *scales;   /* of its groups */
  float *row;
  tri_error *err;
};

static float input_of(int64_t col) { return tri_random_mix((uint64_t)col) & 1 ? 1 : -1; }

/* Returns how many columns the piece has that begins with `col`. */
static int piece_at(const tri_weight *w, int col) {
  int group;
  return tri_weight_group(w, col, w->k - col < PIECE ? w->k - col : PIECE, &group);
}

static int num_pieces(const tri_weight *w) {
  int n = 0;
  for (int col = 0; col < w->k && n < MOST_PIECES; col += piece_at(w, col)) n++;
  return n;
}

/* ---- what the backend makes of it ---- */

static void fill_inputs(const tri_weight *w, int pieces, float *x) {
  int col = 0;
  for (int piece = 0; piece < pieces; piece++, x += w->k) {
    int end = col + piece_at(w, col);
    for (; col < end; col++) x[col] = input_of(col);
  }
}

static tri_status multiply(struct matrix *m) {
  tri_backend *be = m->be;
  const tri_weight *w = &m->w;
  size_t in = 0, out = 0, rows = (size_t)m->pieces * sizeof(float);
  float *host = NULL;
  void *x = NULL, *y = NULL;
  tri_status st;
  TRI_TRY(tri_size_mul(rows, (size_t)w->k, &in) && tri_size_mul(rows, (size_t)w->n, &out) ? TRI_OK : TRI_OVERFLOW);
  host = tri_calloc(1, in);
  TRI_TRY(host ? TRI_OK : TRI_NO_MEMORY);
  fill_inputs(w, m->pieces, host);
  TRI_TRY(be->ops.mem_alloc(be, TRI_MEM_ACTIVATIONS, in, &x));
  TRI_TRY(be->ops.mem_alloc(be, TRI_MEM_ACTIVATIONS, out, &y));
  be->ops.upload(be, x, host, in);
  tri_linear_args a = {.x = {.data = x, .rows = m->pieces, .cols = w->k, .ld = w->k}, .w = *w};
  a.out = (tri_mat){.data = y, .rows = m->pieces, .cols = w->n, .ld = w->n};
  TRI_TRY(tri_run_linear(be, &a));
  be->ops.download(be, m->results, y, out);
  TRI_TRY(be->ops.stream_sync(be));
cleanup:
  be->ops.mem_free(be, TRI_MEM_ACTIVATIONS, y, out);
  be->ops.mem_free(be, TRI_MEM_ACTIVATIONS, x, in);
  tri_free(host);
  return st;
}

/* ---- what the files say ---- */

static off_t offset_of(const tri_packed_tensor *t, int64_t row) {
  return (off_t)(t->tensor->offset + t->base + (uint64_t)row * t->pitch);
}

/* Has a row come to the page cache while others do: read one by one, they would each take the disk's latency. */
static void ask_for(const struct matrix *m, const tri_packed_tensor *t, int64_t row) {
  int fd = tri_checkpoint_fd(m->cfg->ckpt, t->tensor->file);
  posix_fadvise(fd, offset_of(t, row), (off_t)t->pitch, POSIX_FADV_WILLNEED);
}

static tri_status read_at(const struct matrix *m, const tri_packed_tensor *t, int64_t row, void *out) {
  int fd = tri_checkpoint_fd(m->cfg->ckpt, t->tensor->file);
  if (pread(fd, out, t->pitch, offset_of(t, row)) == (ssize_t)t->pitch) return TRI_OK;
  return tri_fail(m->err, TRI_IO, t->tensor->name, "tensor %.80s cannot be read", t->tensor->name);
}

/* The slice's columns of a row of the file, as numbers. */
static tri_status widen_row(struct matrix *m, const tri_slice *s, int64_t from) {
  const tri_widen_layout *l = &m->packed.layout;
  int64_t scales_row = from / l->group_rows;
  TRI_CHECK(read_at(m, &m->packed.codes, from, m->codes));
  if (m->packed.scales.tensor) TRI_CHECK(read_at(m, &m->packed.scales, scales_row, m->scales));
  tri_widen_view v = {.layout = l, .codes = m->codes, .pitch = m->packed.codes.pitch, .first_row = from};
  v.scales = m->scales;
  v.first_scale = scales_row;
  tri_widen_rect r = {.row = from, .rows = 1, .col = s->src_col, .cols = s->cols};
  tri_widen_elements(m->packed.format, &v, &r, m->row, (size_t)s->cols);
  return TRI_OK;
}

static tri_status compare_piece(const struct matrix *m, int64_t row, int col, int n, int piece) {
  double sum = 0, size = 0, got = m->results[(size_t)piece * (size_t)m->w.n + (size_t)row];
  for (int i = col; i < col + n; i++) {
    sum += (double)input_of(i) * m->row[i];
    size += fabs(m->row[i]);
  }
  if (fabs(got - sum) <= MOST_OFF * size) return TRI_OK;
  return tri_fail(m->err, TRI_CORRUPT, "quantization",
                  "self-test: weight %s of layer %d does not multiply as its file says (output %lld, inputs %d to %d: "
                  "%.6g, not %.6g): a kernel, the memory or the file is at fault; --quantization none widens it",
                  tri_weight_name(m->id), m->layer, (long long)row, col, col + n - 1, got, sum);
}

static int64_t file_row(const struct matrix *m, const tri_slice *s, int64_t row) {
  return tri_packed_row(m->packed.codes.tensor, s->src_row + (row - s->dst_row) * s->row_step);
}

static tri_status ask_for_row(struct matrix *m, const tri_slice *s, int64_t row) {
  ask_for(m, &m->packed.codes, file_row(m, s, row));
  if (m->packed.scales.tensor) ask_for(m, &m->packed.scales, file_row(m, s, row) / m->packed.layout.group_rows);
  return TRI_OK;
}

static tri_status compare_row(struct matrix *m, const tri_slice *s, int64_t row) {
  TRI_CHECK(widen_row(m, s, file_row(m, s, row)));
  int col = 0;
  for (int piece = 0; piece < m->pieces; piece++) {
    int n = piece_at(&m->w, col);
    TRI_CHECK(compare_piece(m, row - m->first_row, col, n, piece));
    col += n;
  }
  return TRI_OK;
}

/* A row of each group of outputs, and the last one. Of rows with scales of their own some are enough, at even
 * distances.
 */
static tri_status each_row(struct matrix *m, const tri_slice *s,
                           tri_status (*visit)(struct matrix *, const tri_slice *, int64_t)) {
  enum { SOME = 64 };
  int64_t step = m->w.groups.rows > 1 ? m->w.groups.rows : s->rows / SOME;
  if (step < 1) step = 1;
  for (int64_t i = 0; i < s->rows; i += step) TRI_CHECK(visit(m, s, s->dst_row + i));
  return s->rows ? visit(m, s, s->dst_row + s->rows - 1) : TRI_OK;
}
static tri_status ask_for_slice(void *ctx, const tri_slice *s) { return each_row(ctx, s, ask_for_row); }
static tri_status compare_slice(void *ctx, const tri_slice *s) { return each_row(ctx, s, compare_row); }

static tri_status compare_rule(struct matrix *m, const tri_tensor_rule *rule, int slot) {
  const tri_weights_config *c = m->cfg;
  bool experts = rule->flags & (TRI_TENSOR_PER_EXPERT | TRI_TENSOR_STACKED), found;
  int expert = experts ? tri_expert_of_slot(c->shard->p.placement, m->layer, c->shard->slots.first + slot) : 0;
  tri_status st;
  TRI_CHECK(tri_packed_find(c->model, c->ckpt, rule, m->layer, expert, &m->packed, &found, m->err));
  if (!found) return TRI_INTERNAL;
  m->codes = tri_malloc(m->packed.codes.pitch, 1);
  m->scales = tri_malloc(m->packed.scales.pitch + 1, 1); /* none where they are among the codes */
  m->row = tri_malloc((size_t)m->w.k, sizeof *m->row);
  TRI_TRY(m->codes && m->scales && m->row ? TRI_OK : TRI_NO_MEMORY);
  TRI_TRY(tri_shard_slices(c->model, c->shard, rule, m->layer, slot, ask_for_slice, m));
  TRI_TRY(tri_shard_slices(c->model, c->shard, rule, m->layer, slot, compare_slice, m));
cleanup:
  tri_free(m->codes);
  tri_free(m->scales);
  tri_free(m->row);
  return st;
}

/* ---- which ---- */

/* slot: of experts, counted from the rank's first. */
static tri_status check_matrix(const tri_weights_config *c, tri_backend *be, const tri_weight *w, tri_weight_id id,
                               int layer, int slot, tri_error *err) {
  int slots = tri_weight_is_of_experts(id) ? c->shard->slots.count : 1, rows = w->n / slots;
  struct matrix m = {.cfg = c, .be = be, .id = id, .layer = layer, .first_row = slot * rows, .err = err};
  tri_status st = TRI_OK;
  m.w = tri_weight_rows(w, (size_t)m.first_row, rows);
  m.pieces = num_pieces(w);
  m.results = tri_malloc((size_t)m.pieces * (size_t)rows, sizeof *m.results);
  TRI_TRY(m.results ? TRI_OK : TRI_NO_MEMORY);
  TRI_TRY(multiply(&m));
  for (const tri_tensor_rule *r = tri_rule_next(c->model, NULL); r; r = tri_rule_next(c->model, r))
    if (r->weight == id && tri_rule_applies(c->model, r, layer)) TRI_TRY(compare_rule(&m, r, slot));
cleanup:
  tri_free(m.results);
  if (st == TRI_NO_MEMORY) tri_fail(err, st, "model", "no memory for the self-test of quantized weights");
  return st;
}

static tri_status check_layer(const tri_weights_config *c, const tri_weight_map *m, const tri_weights *w, int l,
                              int *checked, tri_error *err) {
  int layer = c->model->shared_layers ? 0 : c->shard->layers.first + l;
  for (int id = 0; id < TRI_W_COUNT; id++) {
    const tri_weight_place *at = &m->layers[l * TRI_W_COUNT + id];
    const tri_weight *t = &w->layers[l].w[id];
    bool on_host = at->part == TRI_PART_ON_HOST;
    if (!at->is_stored || !t->data || (at->part != TRI_PART_STAYS && !on_host)) continue;
    int last = tri_weight_is_of_experts((tri_weight_id)id) ? c->shard->slots.count - 1 : 0;
    for (int slot = 0; slot <= last; slot += last ? last : 1) {
      TRI_CHECK(check_matrix(c, on_host ? c->host : c->backend, t, (tri_weight_id)id, layer, slot, err));
      ++*checked;
    }
  }
  return TRI_OK;
}

tri_status tri_form_check(const tri_weights_config *config, const tri_weight_map *m, const tri_weights *w,
                          int64_t until, int *checked, tri_error *err) {
  bool seen[2] = {false, false};
  *checked = 0;
  for (int l = 0; l < config->shard->layers.count; l++) {
    bool sparse = config->model->layer_flags[config->shard->layers.first + l] & TRI_LAYER_SPARSE;
    if (seen[sparse] && tri_now_ns() >= until) continue;
    seen[sparse] = true;
    TRI_CHECK(check_layer(config, m, w, l, checked, err));
  }
  return TRI_OK;
}
