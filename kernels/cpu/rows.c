/* SPDX-License-Identifier: Apache-2.0 */
/* Ops that go row by row or piece by piece: embedding, norms, gated activations, rotary positions and cache writes,
 * a router's choices. */
#include <math.h>
#include <string.h>

#include "kernels/cpu/cpu.h"
#include "kernels/ref/formulas.h"

/* Runs fn over rows 0..rows-1 in contiguous shares. */
typedef struct row_run {
  tri_backend *be;
  const tri_cpu_isa *isa;
  const void *args;
  int rows, thread; /* thread: its number */
  void (*fn)(const struct row_run *r, int begin, int end);
} row_run;

static void row_thread(void *ctx, int index, int count) {
  row_run r = *(const row_run *)ctx;
  int begin = (int)((int64_t)r.rows * index / count), end = (int)((int64_t)r.rows * (index + 1) / count);
  r.thread = index;
  if (begin < end) r.fn(&r, begin, end);
}

static void run_rows(tri_backend *be, const void *args, int rows, double ns_per_row,
                     void (*fn)(const row_run *, int, int)) {
  row_run r = {.be = be, .isa = tri_cpu_isa_of(be), .args = args, .rows = rows, .fn = fn};
  if (rows == 1)
    fn(&r, 0, 1);
  else if (rows > 1)
    tri_cpu_run(be, rows * ns_per_row, row_thread, &r);
}

/* A table's row is widened in pieces on the stack: embed has no workspace. */
static void add_row(const tri_cpu_isa *isa, float *out, const tri_weight *w, size_t row) {
  float piece[256];
  for (int j = 0; j < w->k; j += 256) {
    int n = tri_min(256, w->k - j);
    tri_cpu_widen_row(isa, w, row, j, n, 1, piece);
    isa->blend(out + j, 1, piece, 1, n);
  }
}

static void embed_share(const row_run *r, int begin, int end) {
  const tri_embed_args *a = r->args;
  for (int t = begin; t < end; t++) {
    float *out = tri_mat_row(&a->out, t);
    uint32_t row = tri_embed_id(a, t) - a->first_id; /* wraps to something huge below first_id */
    if (row < (uint32_t)a->table.n)
      tri_cpu_widen_row(r->isa, &a->table, row, 0, a->table.k, a->scale, out);
    else
      memset(out, 0, (size_t)a->out.cols * sizeof *out);
    if (a->position_table.data)
      add_row(r->isa, out, &a->position_table, (size_t)(a->positions[t] + a->position_offset));
    if (a->type_table.data) add_row(r->isa, out, &a->type_table, a->types ? (size_t)a->types[t] : 0);
  }
}

static void norm_share(const row_run *r, int begin, int end) {
  const tri_norm_args *a = r->args;
  for (int t = begin; t < end; t++) {
    tri_norm_row n = {
        .x = tri_mat_row(&a->x, t), .weight = a->weight, .bias = a->bias, .n = a->x.cols, .kind = a->kind};
    n.delta = a->delta.data ? tri_mat_row(&a->delta, t) : NULL;
    n.out = a->out.data ? tri_mat_row(&a->out, t) : NULL;
    n.delta_scale = a->delta_scale;
    n.eps = a->eps;
    n.weight_offset = a->weight_offset;
    n.mean_square = a->square_sums ? a->square_sums[t] / (float)a->whole_cols : -1;
    r->isa->norm(&n);
  }
}

/* Norms a row where it lies; without a weight it stays as it is. */
static void norm_result(const tri_cpu_isa *isa, const tri_branch_norm_args *a, float *row, const float *weight) {
  tri_norm_row n = {.x = row, .out = row, .weight = weight, .n = a->x.cols, .kind = TRI_NORM_RMS};
  n.eps = a->eps;
  n.weight_offset = a->weight_offset;
  n.mean_square = -1;
  if (weight) isa->norm(&n);
}

/* Returns what is added to x, or NULL. */
static const float *sum_branches(const tri_cpu_isa *isa, const tri_branch_norm_args *a, int t) {
  if (!a->delta.data) return NULL;
  float *delta = tri_mat_row(&a->delta, t);
  norm_result(isa, a, delta, a->delta_weight);
  if (a->second.data) {
    float *second = tri_mat_row(&a->second, t);
    norm_result(isa, a, second, a->second_weight);
    isa->blend(delta, 1, second, 1, a->x.cols);
  }
  norm_result(isa, a, delta, a->sum_weight);
  return delta;
}

/* The first output may be x: it is the last to be written. */
static void branch_norm_share(const row_run *r, int begin, int end) {
  const tri_branch_norm_args *a = r->args;
  int n = a->x.cols, outputs = 0;
  while (outputs < TRI_BRANCH_NORM_OUTPUTS && a->out[outputs].data) outputs++;
  for (int t = begin; t < end; t++) {
    float *x = tri_mat_row(&a->x, t);
    tri_norm_row norm = {.x = x, .n = n, .kind = TRI_NORM_RMS, .eps = a->eps, .weight_offset = a->weight_offset};
    norm.delta_scale = a->delta_scale;
    norm.mean_square = -1;
    norm.delta = sum_branches(r->isa, a, t);
    r->isa->norm(&norm);
    norm.delta = NULL;
    if (a->x_scale != 1) r->isa->softcap(x, n, a->x_scale, 0);
    for (int i = outputs - 1; i >= 0; i--) {
      norm.out = tri_mat_row(&a->out[i], t);
      norm.weight = a->weight[i];
      r->isa->norm(&norm);
      if (a->scale[i] != 1) r->isa->softcap(norm.out, n, a->scale[i], 0);
    }
  }
}

static void square_sums_share(const row_run *r, int begin, int end) {
  const tri_square_sums_args *a = r->args;
  for (int t = begin; t < end; t++) a->sums[t] = r->isa->square_sum(tri_mat_row(&a->x, t), a->x.cols);
}

static void gate_rows_share(const row_run *r, int begin, int end) {
  const tri_gate_rows_args *a = r->args;
  for (int t = begin; t < end; t++) {
    float *x = tri_mat_row(&a->x, t);
    r->isa->expand(x, x, TRI_F32, a->x.cols, a->plain ? a->gate[t] : 1 / (1 + expf(-a->gate[t])));
  }
}

static void softcap_share(const row_run *r, int begin, int end) {
  const tri_softcap_args *a = r->args;
  for (int t = begin; t < end; t++) r->isa->softcap(tri_mat_row(&a->x, t), a->x.cols, a->scale, a->cap);
}

/* Rows are long here and often single: the items are pieces of rows. */
enum { GLU_PIECE = 2048 };

typedef struct glu_run {
  const tri_cpu_isa *isa;
  const tri_glu_args *a;
  int pieces;
} glu_run;

static void glu_thread(void *ctx, int index, int count) {
  const glu_run *r = ctx;
  int f = r->a->out.cols;
  int64_t items = (int64_t)r->a->out.rows * r->pieces, end = items * (index + 1) / count;
  for (int64_t item = items * index / count; item < end; item++) {
    int t = (int)(item / r->pieces), j = (int)(item % r->pieces) * GLU_PIECE;
    const float *gate = tri_mat_row(&r->a->gate_up, t) + j;
    r->isa->glu(tri_mat_row(&r->a->out, t) + j, gate, gate + f, tri_min(GLU_PIECE, f - j), r->a->act, r->a->limit);
  }
}

void tri_cpu_glu_launch(tri_backend *be, const tri_op_plan *plan, const tri_glu_args *a) {
  (void)plan;
  if (!a->out.rows || !a->out.cols) return;
  glu_run r = {.isa = tri_cpu_isa_of(be), .a = a, .pieces = (a->out.cols + GLU_PIECE - 1) / GLU_PIECE};
  tri_cpu_run(be, (double)a->out.rows * a->out.cols * 1.2, glu_thread, &r);
}

static void gather_rows_share(const row_run *r, int begin, int end) {
  const tri_gather_rows_args *a = r->args;
  for (int t = begin; t < end; t++)
    memcpy(tri_mat_row(&a->out, t), tri_mat_row(&a->x, a->rows[t]), (size_t)a->x.cols * sizeof(float));
}

static void mean_rows_share(const row_run *r, int begin, int end) {
  const tri_mean_rows_args *a = r->args;
  for (int s = begin; s < end; s++) {
    float *out = tri_mat_row(&a->out, s);
    int n = a->start[s + 1] - a->start[s];
    memset(out, 0, (size_t)a->out.cols * sizeof *out);
    for (int i = a->start[s]; i < a->start[s + 1]; i++) r->isa->blend(out, 1, tri_mat_row(&a->x, i), 1, a->x.cols);
    if (n > 0) r->isa->expand(out, out, TRI_F32, a->out.cols, 1 / (float)n);
  }
}

/* Each thread keeps the frequencies of the last length it saw in its part of the workspace: neighbours mostly share it.
 */
static void rope_angles_share(const row_run *r, int begin, int end) {
  const tri_rope_angles_args *a = r->args;
  int half = a->rotary_dim / 2, known = -1;
  float *inv_freq = (float *)r->be->workspace + (size_t)r->thread * tri_round_up((size_t)a->rotary_dim, 16);
  for (int t = begin; t < end; t++) {
    if (a->rope_len[t] != known || t == begin) tri_ref_rope_frequencies(a, known = a->rope_len[t], inv_freq);
    float scale = tri_ref_rope_scale(a, a->rope_len[t]);
    if (a->q_scale) a->q_scale[t] = tri_formula_q_scale(a, a->positions[t]);
    float *co = a->cos + (size_t)t * (size_t)half, *si = a->sin + (size_t)t * (size_t)half;
    for (int i = 0; i < half; i++) {
      float angle = (float)a->positions[t] * inv_freq[i], sine, cosine;
      sincosf(angle, &sine, &cosine);
      co[i] = scale * cosine;
      si[i] = scale * sine;
    }
  }
}

tri_status tri_cpu_rope_angles_plan(tri_backend *be, const tri_rope_angles_args *a, tri_op_plan *plan) {
  TRI_CHECK(tri_ref_rope_angles_plan(be, a, plan));
  plan->workspace = (size_t)tri_pool_size(be->pool) * tri_round_up((size_t)a->rotary_dim, 16) * sizeof(float);
  return TRI_OK;
}

static void rotate_pairs(float *x, int half, const float *cosine, const float *sine) {
  for (int i = 0; i < half; i++) {
    float u = x[2 * i], v = x[2 * i + 1];
    x[2 * i] = u * cosine[i] - v * sine[i];
    x[2 * i + 1] = v * cosine[i] + u * sine[i];
  }
}

static void rotate(const tri_cpu_isa *isa, bool interleaved, float *x, int half, const float *cosine,
                   const float *sine) {
  if (interleaved)
    rotate_pairs(x, half, cosine, sine);
  else
    isa->rotate(x, half, cosine, sine);
}

/* A token's norm, rotation and cache entries in one go, while its row is in the first-level cache. q and k are changed
 * in place, since attention reads q from the same row. */
static void qkv_rope_append_share(const row_run *r, int begin, int end) {
  const tri_qkv_rope_append_args *a = r->args;
  int d = a->head_dim, hq = a->num_heads, hkv = a->num_kv_heads, half = a->rotary_dim / 2, v = tri_append_value_dim(a);
  size_t element = tri_dtype_size(a->kv.dtype);
  for (int t = begin; t < end; t++) {
    float *row = tri_mat_row(&a->qkv, t);
    const float *co = half ? a->cos + (size_t)t * (size_t)half : NULL;
    const float *si = half ? a->sin + (size_t)t * (size_t)half : NULL;
    for (int h = 0; h < hq + (a->v_norm ? 2 : 1) * hkv; h++) {
      float *x = row + (size_t)h * (size_t)d;
      bool query = h < hq, value = h >= hq + hkv;
      const float *gain = query ? a->q_norm : a->k_norm;
      if (value) gain = a->v_norm;
      if (gain) {
        tri_norm_row n = {.x = x, .out = x, .n = d, .kind = a->norm_kind, .mean_square = -1};
        n.weight = gain + (size_t)(query ? h : (h - hq) % hkv) * (size_t)a->norm_stride;
        n.eps = a->norm_eps;
        n.weight_offset = a->norm_weight_offset;
        r->isa->norm(&n);
      }
      if (half && !value) rotate(r->isa, a->interleaved, x, half, co, si);
      if (a->q_scale && query) r->isa->expand(x, x, TRI_F32, d, a->q_scale[t]);
    }
    int64_t slot = a->kv_slot[t];
    if (slot < 0) continue; /* a padding row */
    size_t kv_block = (size_t)(slot / a->kv.block_size), in_block = (size_t)(slot % a->kv.block_size);
    for (int h = 0; h < hkv; h++) {
      size_t at = ((kv_block * (size_t)hkv + (size_t)h) * (size_t)a->kv.block_size + in_block) * (size_t)d * element;
      r->isa->narrow((char *)a->kv.k + at, a->kv.dtype, row + (size_t)(hq + h) * (size_t)d, d);
      float *value = row + (size_t)(hq + hkv) * (size_t)d + (size_t)h * (size_t)v;
      if (a->value_scale) r->isa->expand(value, value, TRI_F32, v, a->value_scale);
      r->isa->narrow((char *)a->kv.v + at, a->kv.dtype, value, v);
      if (v < d) memset((char *)a->kv.v + at + (size_t)v * element, 0, (size_t)(d - v) * element);
    }
  }
}

static void mla_append_share(const row_run *r, int begin, int end) {
  const tri_mla_append_args *a = r->args;
  int half = a->rope_dim / 2;
  size_t rope = (size_t)a->rope_dim, width = (size_t)a->rank + rope;
  for (int t = begin; t < end; t++) {
    float *latent = tri_mat_row(&a->kv_a, t);
    const float *co = half ? a->cos + (size_t)t * (size_t)half : NULL;
    const float *si = half ? a->sin + (size_t)t * (size_t)half : NULL;
    for (size_t h = 0; h < (size_t)a->num_heads; h++) {
      float *to = tri_mat_row(&a->q_out, t) + h * width, *turned = to + a->rank;
      memcpy(turned, tri_mat_row(&a->q, t) + h * ((size_t)a->nope_dim + rope) + a->nope_dim, rope * sizeof *to);
      if (half) rotate(r->isa, a->interleaved, turned, half, co, si);
      if (a->q_scale) r->isa->expand(to, to, TRI_F32, (int)width, a->q_scale[t]);
    }
    if (a->kv_slot[t] < 0) continue; /* a padding row */
    tri_norm_row n = {.x = latent, .out = latent, .weight = a->norm, .n = a->rank, .eps = a->norm_eps};
    n.kind = TRI_NORM_RMS;
    n.mean_square = -1;
    r->isa->norm(&n);
    if (half) rotate(r->isa, a->interleaved, latent + a->rank, half, co, si);
    size_t at = (size_t)a->kv_slot[t] * width * tri_dtype_size(a->kv.dtype);
    r->isa->narrow((char *)a->kv.k + at, a->kv.dtype, latent, (int)width);
  }
}

/* A router's choices, in double, one after the other. */
static void moe_route_share(const row_run *r, int begin, int end) {
  const tri_moe_route_args *a = r->args;
  double *scratch = (double *)r->be->workspace + (size_t)r->thread * tri_round_up(tri_ref_moe_scratch(a), 8);
  for (int t = begin; t < end; t++) tri_ref_moe_route_row(a, t, scratch);
}

tri_status tri_cpu_moe_route_plan(tri_backend *be, const tri_moe_route_args *a, tri_op_plan *plan) {
  TRI_CHECK(tri_ref_moe_route_plan(be, a, plan));
  plan->workspace = (size_t)tri_pool_size(be->pool) * tri_round_up(tri_ref_moe_scratch(a), 8) * sizeof(double);
  return TRI_OK;
}

void tri_cpu_moe_route_launch(tri_backend *be, const tri_op_plan *plan, const tri_moe_route_args *a) {
  (void)plan;
  run_rows(be, a, a->logits.rows, a->logits.cols * 20.0, moe_route_share);
  tri_ref_moe_make_map(a);
}

/* The ops that go row by row: X(op, rows, rough nanoseconds of one thread for a row, as tri_cpu_run wants them). A
 * row's are its elements times the nanoseconds of one, and in most ops a few for the row itself. */
#define ROW_OPS(X)                                                                                                     \
  X(embed, a->out.rows, a->out.cols * 0.3 + 100)                                                                       \
  X(norm, a->x.rows, a->x.cols * 0.4 + 30)                                                                             \
  X(branch_norm, a->x.rows, a->x.cols * 1.2 + 50)                                                                      \
  X(square_sums, a->x.rows, a->x.cols * 0.2 + 20)                                                                      \
  X(gate_rows, a->x.rows, a->x.cols * 0.2 + 20)                                                                        \
  X(softcap, a->x.rows, a->x.cols * 1.5)                                                                               \
  X(gather_rows, a->x.cols ? a->out.rows : 0, a->x.cols * 0.3)                                                         \
  X(mean_rows, a->x.cols ? a->out.rows : 0, ((double)a->x.rows / tri_max(1, a->out.rows) + 1) * a->x.cols * 0.3)       \
  X(rope_angles, a->rotary_dim ? a->num_tokens : 0, a->rotary_dim * 8.0)                                               \
  X(qkv_rope_append, a->qkv.rows, a->qkv.cols * 0.6 + 100)                                                             \
  X(mla_append, a->q.rows, (a->num_heads * a->rope_dim + a->kv_a.cols) * 0.6 + 100)
#define X(op, rows, ns_per_row)                                                                                        \
  void tri_cpu_##op##_launch(tri_backend *be, const tri_op_plan *plan, const tri_##op##_args *a) {                     \
    (void)plan;                                                                                                        \
    run_rows(be, a, rows, ns_per_row, op##_share);                                                                     \
  }
ROW_OPS(X)
#undef X
