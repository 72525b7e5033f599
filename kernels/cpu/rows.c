/* Ops that go row by row or block by block: embedding, norms, gated activations, rotary positions and cache writes,
 * copies. */
#include <math.h>
#include <string.h>

#include "kernels/cpu/cpu.h"

/* Runs fn over rows 0..rows-1 in contiguous shares. */
typedef struct row_run {
  tri_backend *be;
  const tri_cpu_isa *isa;
  const void *args;
  int rows;
  void (*fn)(const struct row_run *r, int begin, int end, int index);
} row_run;

static void row_thread(void *ctx, int index, int count) {
  const row_run *r = ctx;
  int begin = (int)((int64_t)r->rows * index / count), end = (int)((int64_t)r->rows * (index + 1) / count);
  if (begin < end) r->fn(r, begin, end, index);
}

/* ns_per_row: rough nanoseconds of one thread, as tri_cpu_run wants them. A row's are its elements times the
 * nanoseconds of one, and in most ops a few for the row itself. */
static void run_rows(tri_backend *be, const void *args, int rows, double ns_per_row,
                     void (*fn)(const row_run *, int, int, int)) {
  row_run r = {.be = be, .isa = tri_cpu_isa_of(be), .args = args, .rows = rows, .fn = fn};
  if (rows == 1)
    fn(&r, 0, 1, 0);
  else if (rows > 1)
    tri_cpu_run(be, rows * ns_per_row, row_thread, &r);
}

static float *row_of(const tri_mat *m, int i) { return m->data + (size_t)i * (size_t)m->ld; }

static void expand_row(const tri_cpu_isa *isa, float *out, const tri_weight *w, size_t row, float factor) {
  if (w->dtype == TRI_I8) factor *= w->scale[row];
  isa->expand(out, (const char *)w->data + row * (size_t)w->k * tri_dtype_size(w->dtype), w->dtype, w->k, factor);
}

static void add_row(const tri_cpu_isa *isa, float *out, const tri_weight *w, size_t row) {
  float piece[256];
  size_t size = tri_dtype_size(w->dtype);
  float factor = w->dtype == TRI_I8 ? w->scale[row] : 1;
  for (int j = 0; j < w->k; j += 256) {
    int n = tri_min(256, w->k - j);
    isa->expand(piece, (const char *)w->data + (row * (size_t)w->k + (size_t)j) * size, w->dtype, n, factor);
    isa->blend(out + j, 1, piece, 1, n);
  }
}

static void embed_rows(const row_run *r, int begin, int end, int index) {
  (void)index;
  const tri_embed_args *a = r->args;
  for (int t = begin; t < end; t++) {
    float *out = row_of(&a->out, t);
    uint32_t row = tri_embed_id(a, t) - a->first_id; /* wraps to something huge below first_id */
    if (row < (uint32_t)a->table.n)
      expand_row(r->isa, out, &a->table, row, a->scale);
    else
      memset(out, 0, (size_t)a->out.cols * sizeof *out);
    if (a->position_table.data)
      add_row(r->isa, out, &a->position_table, (size_t)(a->positions[t] + a->position_offset));
    if (a->type_table.data) add_row(r->isa, out, &a->type_table, a->types ? (size_t)a->types[t] : 0);
  }
}

void tri_cpu_embed_launch(tri_backend *be, const tri_op_plan *plan, const tri_embed_args *a) {
  (void)plan;
  run_rows(be, a, a->out.rows, a->out.cols * 0.3 + 100, embed_rows);
}

static void norm_rows(const row_run *r, int begin, int end, int index) {
  (void)index;
  const tri_norm_args *a = r->args;
  for (int t = begin; t < end; t++) {
    tri_norm_row n = {.x = row_of(&a->x, t), .weight = a->weight, .bias = a->bias, .n = a->x.cols, .kind = a->kind};
    n.delta = a->delta.data ? row_of(&a->delta, t) : NULL;
    n.out = a->out.data ? row_of(&a->out, t) : NULL;
    n.delta_scale = a->delta_scale;
    n.eps = a->eps;
    n.weight_offset = a->weight_offset;
    n.mean_square = a->square_sums ? a->square_sums[t] / (float)a->whole_cols : -1;
    r->isa->norm(&n);
  }
}

void tri_cpu_norm_launch(tri_backend *be, const tri_op_plan *plan, const tri_norm_args *a) {
  (void)plan;
  run_rows(be, a, a->x.rows, a->x.cols * 0.4 + 30, norm_rows);
}

static void square_rows(const row_run *r, int begin, int end, int index) {
  (void)index;
  const tri_square_sums_args *a = r->args;
  for (int t = begin; t < end; t++) a->sums[t] = r->isa->square_sum(row_of(&a->x, t), a->x.cols);
}

void tri_cpu_square_sums_launch(tri_backend *be, const tri_op_plan *plan, const tri_square_sums_args *a) {
  (void)plan;
  run_rows(be, a, a->x.rows, a->x.cols * 0.2 + 20, square_rows);
}

static void gate_some(const row_run *r, int begin, int end, int index) {
  (void)index;
  const tri_gate_rows_args *a = r->args;
  for (int t = begin; t < end; t++) {
    float *x = row_of(&a->x, t);
    r->isa->expand(x, x, TRI_F32, a->x.cols, 1 / (1 + expf(-a->gate[t])));
  }
}

void tri_cpu_gate_rows_launch(tri_backend *be, const tri_op_plan *plan, const tri_gate_rows_args *a) {
  (void)plan;
  run_rows(be, a, a->x.rows, a->x.cols * 0.2 + 20, gate_some);
}

static void cap_rows(const row_run *r, int begin, int end, int index) {
  (void)index;
  const tri_softcap_args *a = r->args;
  for (int t = begin; t < end; t++) r->isa->softcap(row_of(&a->x, t), a->x.cols, a->scale, a->cap);
}

void tri_cpu_softcap_launch(tri_backend *be, const tri_op_plan *plan, const tri_softcap_args *a) {
  (void)plan;
  run_rows(be, a, a->x.rows, a->x.cols * 1.5, cap_rows);
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
    const float *gate = row_of(&r->a->gate_up, t) + j;
    r->isa->glu(row_of(&r->a->out, t) + j, gate, gate + f, tri_min(GLU_PIECE, f - j), r->a->act, r->a->limit);
  }
}

void tri_cpu_glu_launch(tri_backend *be, const tri_op_plan *plan, const tri_glu_args *a) {
  (void)plan;
  if (!a->out.rows || !a->out.cols) return;
  glu_run r = {.isa = tri_cpu_isa_of(be), .a = a, .pieces = (a->out.cols + GLU_PIECE - 1) / GLU_PIECE};
  tri_cpu_run(be, (double)a->out.rows * a->out.cols * 1.2, glu_thread, &r);
}

static void gather_some(const row_run *r, int begin, int end, int index) {
  (void)index;
  const tri_gather_rows_args *a = r->args;
  for (int t = begin; t < end; t++)
    memcpy(row_of(&a->out, t), row_of(&a->x, a->rows[t]), (size_t)a->x.cols * sizeof(float));
}

void tri_cpu_gather_rows_launch(tri_backend *be, const tri_op_plan *plan, const tri_gather_rows_args *a) {
  (void)plan;
  if (a->x.cols) run_rows(be, a, a->out.rows, a->x.cols * 0.3, gather_some);
}

static void mean_some(const row_run *r, int begin, int end, int index) {
  (void)index;
  const tri_mean_rows_args *a = r->args;
  for (int s = begin; s < end; s++) {
    float *out = row_of(&a->out, s);
    int n = a->start[s + 1] - a->start[s];
    memset(out, 0, (size_t)a->out.cols * sizeof *out);
    for (int i = a->start[s]; i < a->start[s + 1]; i++) r->isa->blend(out, 1, row_of(&a->x, i), 1, a->x.cols);
    if (n > 0) r->isa->expand(out, out, TRI_F32, a->out.cols, 1 / (float)n);
  }
}

void tri_cpu_mean_rows_launch(tri_backend *be, const tri_op_plan *plan, const tri_mean_rows_args *a) {
  (void)plan;
  if (!a->x.cols || !a->out.rows) return;
  double rows = (double)a->x.rows / a->out.rows + 1;
  run_rows(be, a, a->out.rows, rows * a->x.cols * 0.3, mean_some);
}

/* Copies are rare and short, and pairs may chain: one thread, in order. */
void tri_cpu_copy_blocks_launch(tri_backend *be, const tri_op_plan *plan, const tri_copy_blocks_args *a) {
  tri_ref_copy_blocks_launch(be, plan, a);
}

/* Each thread keeps the frequencies of the last length it saw in its part of the workspace: neighbours mostly share it.
 */
static void angle_rows(const row_run *r, int begin, int end, int index) {
  const tri_rope_angles_args *a = r->args;
  int half = a->rotary_dim / 2, known = -1;
  float *inv_freq = (float *)r->be->workspace + (size_t)index * tri_round_up((size_t)a->rotary_dim, 16);
  for (int t = begin; t < end; t++) {
    if (a->rope_len[t] != known || t == begin) tri_ref_rope_frequencies(a, known = a->rope_len[t], inv_freq);
    float *co = a->cos + (size_t)t * (size_t)half, *si = a->sin + (size_t)t * (size_t)half;
    for (int i = 0; i < half; i++) {
      float angle = (float)a->positions[t] * inv_freq[i], sine, cosine;
      sincosf(angle, &sine, &cosine);
      co[i] = a->attention_scale * cosine;
      si[i] = a->attention_scale * sine;
    }
  }
}

tri_status tri_cpu_rope_angles_plan(tri_backend *be, const tri_rope_angles_args *a, tri_op_plan *plan) {
  tri_status st = tri_ref_rope_angles_plan(be, a, plan);
  if (st == TRI_OK)
    plan->workspace = (size_t)tri_pool_size(be->pool) * tri_round_up((size_t)a->rotary_dim, 16) * sizeof(float);
  return st;
}

void tri_cpu_rope_angles_launch(tri_backend *be, const tri_op_plan *plan, const tri_rope_angles_args *a) {
  (void)plan;
  if (a->rotary_dim) run_rows(be, a, a->num_tokens, a->rotary_dim * 8.0, angle_rows);
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

static void append_rows(const row_run *r, int begin, int end, int index) {
  (void)index;
  const tri_qkv_rope_append_args *a = r->args;
  int d = a->head_dim, hq = a->num_heads, hkv = a->num_kv_heads, half = a->rotary_dim / 2;
  size_t element = tri_dtype_size(a->kv.dtype);
  for (int t = begin; t < end; t++) {
    float *row = row_of(&a->qkv, t);
    const float *co = half ? a->cos + (size_t)t * (size_t)half : NULL;
    const float *si = half ? a->sin + (size_t)t * (size_t)half : NULL;
    for (int h = 0; h < hq + hkv; h++) {
      float *x = row + (size_t)h * (size_t)d;
      const float *gain = h < hq ? a->q_norm : a->k_norm;
      if (gain) {
        tri_norm_row n = {.x = x, .out = x, .n = d, .kind = a->norm_kind, .mean_square = -1};
        n.weight = gain + (size_t)(h < hq ? h : h - hq) * (size_t)a->norm_stride;
        n.eps = a->norm_eps;
        n.weight_offset = a->norm_weight_offset;
        r->isa->norm(&n);
      }
      if (half) rotate(r->isa, a->interleaved, x, half, co, si);
    }
    int64_t slot = a->kv_slot[t];
    if (slot < 0) continue; /* a padding row */
    size_t kv_block = (size_t)(slot / a->kv.block_size), in_block = (size_t)(slot % a->kv.block_size);
    for (int h = 0; h < hkv; h++) {
      size_t at = ((kv_block * (size_t)hkv + (size_t)h) * (size_t)a->kv.block_size + in_block) * (size_t)d * element;
      r->isa->narrow((char *)a->kv.k + at, a->kv.dtype, row + (size_t)(hq + h) * (size_t)d, d);
      r->isa->narrow((char *)a->kv.v + at, a->kv.dtype, row + (size_t)(hq + hkv + h) * (size_t)d, d);
    }
  }
}

void tri_cpu_qkv_rope_append_launch(tri_backend *be, const tri_op_plan *plan, const tri_qkv_rope_append_args *a) {
  (void)plan;
  run_rows(be, a, a->qkv.rows, a->qkv.cols * 0.6 + 100, append_rows);
}

static void append_latents(const row_run *r, int begin, int end, int index) {
  (void)index;
  const tri_mla_append_args *a = r->args;
  int half = a->rope_dim / 2;
  size_t rope = (size_t)a->rope_dim, width = (size_t)a->rank + rope;
  for (int t = begin; t < end; t++) {
    float *latent = row_of(&a->kv_a, t);
    const float *co = half ? a->cos + (size_t)t * (size_t)half : NULL;
    const float *si = half ? a->sin + (size_t)t * (size_t)half : NULL;
    for (size_t h = 0; h < (size_t)a->num_heads && half; h++) {
      float *to = row_of(&a->q_out, t) + h * width + a->rank;
      memcpy(to, row_of(&a->q, t) + h * ((size_t)a->nope_dim + rope) + a->nope_dim, rope * sizeof *to);
      rotate(r->isa, a->interleaved, to, half, co, si);
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

void tri_cpu_mla_append_launch(tri_backend *be, const tri_op_plan *plan, const tri_mla_append_args *a) {
  (void)plan;
  run_rows(be, a, a->q.rows, (a->num_heads * a->rope_dim + a->kv_a.cols) * 0.6 + 100, append_latents);
}
