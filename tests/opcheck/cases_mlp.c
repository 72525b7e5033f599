/* SPDX-License-Identifier: Apache-2.0 */
/* Gated MLPs as a whole: of any shape, and as Hopper's one kernel takes them (kernels/cuda/linear/gated_mlp.cu). */
#include <math.h>
#include <stdio.h>

#include "tests/opcheck/opcheck.h"

/* A case: rows of k, f units, n outputs. whole: matrices whose rows are pieces of 16 bytes. */
typedef struct shape {
  tri_dtype type;
  int m, k, f, n;
  tri_act act;
  bool whole;
} shape;

static int some_rows(oc *c, int i) {
  static const int rows[] = {1, 2, 3, 5, 8, 9, 16, 31, 32, 33, 48, 64, 65, 100, 128, 129, 193, 256, 257};
  return i % 3 == 0 ? oc_range(c, 0, 70) : rows[i / 2 % 19];
}

/* Rows of 16 bits with units in eights; large: so many units that tiles have twice as many weights, which takes few
 * outputs for the reference to end soon. */
static void make_whole(oc *c, shape *s, int i) {
  static const tri_act acts[] = {TRI_ACT_SILU, TRI_ACT_SWIGLU_OAI, TRI_ACT_GELU_TANH, TRI_ACT_QUICK_GELU,
                                 TRI_ACT_SWIGLU_CLAMPED};
  bool large = i % 16 == 13 || i % 16 == 6;
  s->whole = true;
  s->k = 8 * oc_range(c, 1, large ? 2 : 40);
  s->f = 8 * (large ? oc_range(c, 1264, 1300) : oc_range(c, 1, 200));
  s->n = oc_range(c, 1, large ? 20 : 300);
  if (large) s->m = oc_range(c, 33, 200);
  if (i % 32 == 29) {
    s->n = oc_range(c, 257, 300);
    s->m = oc_range(c, 65, 80);
  }
  if (oc_chance(c, 90)) s->act = acts[i / 4 % 5];
}

/* One kernel for both GEMMs takes one or two rows only with large weights. */
static void make_heavy(oc *c, shape *s) {
  *s = (shape){
      .type = oc_chance(c, 50) ? TRI_BF16 : TRI_F16, .m = oc_range(c, 1, 2), .act = TRI_ACT_SILU, .whole = true};
  s->k = 8 * oc_range(c, 342, 350);
  s->f = 8192 + 8 * oc_range(c, 0, 8);
  s->n = oc_range(c, 1, 300);
}

static bool is_8bit(const shape *s) { return s->type == TRI_I8 || s->type == TRI_F8_E4M3; }

static shape shape_of(oc *c, int i) {
  shape s = {.type = oc_weight_type(c, i), .m = some_rows(c, i), .k = oc_range(c, 1, 200), .act = (tri_act)(i / 4 % 9)};
  s.f = oc_range(c, 1, 300);
  s.n = oc_range(c, 1, 200);
  if ((s.type == TRI_BF16 || s.type == TRI_F16) && i % 16 != 1) make_whole(c, &s, i);
  if (c->be->narrow_activations && i % 64 == 7) make_heavy(c, &s);
  if (is_8bit(&s) && i % 8 > 2) {
    s.k = 16 * oc_range(c, 1, 12);
    s.f = 16 * oc_range(c, 1, 20);
  }
  return s;
}

/* With gaps behind rows now and then, as oc_matrix; whole: the rows lie eights of elements apart. */
static tri_mat matrix(oc *c, const shape *s, int cols, bool poisoned) {
  if (!s->whole) return oc_matrix(c, s->m, cols, poisoned);
  tri_mat m = oc_matrix(c, s->m, cols + 16, true);
  m.cols = cols;
  m.ld = (cols + 7) / 8 * 8 + 8 * oc_range(c, 0, 1);
  for (int i = 0; i < s->m && !poisoned; i++)
    for (int j = 0; j < cols; j++) m.data[(size_t)i * (size_t)m.ld + (size_t)j] = oc_normal(c);
  return m;
}

/* The type of rows and hidden rows on the device: with weights of 16 bits theirs. */
static tri_dtype narrow_type(oc *c, const shape *s) {
  if (s->type == TRI_F32 || !c->be->narrow_activations) return TRI_F32;
  if (s->whole) return s->type;
  tri_dtype t = oc_narrow_type(c);
  return is_8bit(s) || t == TRI_F32 ? t : s->type;
}

/* Three rounded numbers meet in a hidden one: gate, up, and itself. */
static double limit_of(const oc *c, const shape *s, tri_dtype narrow, bool rounds_rows) {
  tri_dtype t = is_8bit(s) ? narrow : s->type;
  if (rounds_rows) return 1e-3; /* a hidden element between two integers may go either way */
  if (!c->be->narrows_inputs || t == TRI_F32) return is_8bit(s) && c->be->narrows_inputs ? 5e-5 : 1e-11;
  double limit = t == TRI_BF16 ? 5e-5 : 5e-7;
  if (s->type == TRI_F8_E4M3) limit += 5e-6;    /* sums of 14 bits */
  return s->m * s->n < 100 ? 5 * limit : limit; /* of few elements one may decide */
}

/* The result may lie where the first GEMM's does. */
static void share_memory(tri_gated_mlp_args *a) {
  const tri_mat *up = &a->gated.up.out;
  tri_mat *out = &a->down.out;
  size_t room = (size_t)up->ld * tri_dtype_size(up->dtype), needed = (size_t)out->ld * tri_dtype_size(out->dtype);
  if (out->ld == out->cols && needed <= room) out->data = up->data;
}

void oc_case_gated_mlp(oc *c, int i) {
  shape s = shape_of(c, i);
  tri_gated_mlp_args a = {.gated.up = {.x = matrix(c, &s, s.k, false), .w = oc_weight(c, s.type, 2 * s.f, s.k)}};
  tri_linear_args *up = &a.gated.up, *down = &a.down;
  up->bias = oc_chance(c, 50) ? oc_normals(c, (size_t)(2 * s.f), 1) : NULL;
  up->out = a.gated.glu.gate_up = oc_matrix(c, s.m, 2 * s.f, true);
  a.gated.glu.act = s.act, a.gated.glu.limit = oc_glu_limit(s.act);
  a.gated.glu.out = down->x = matrix(c, &s, s.f, true);
  down->w = oc_weight(c, s.type, s.n, s.f);
  down->bias = oc_chance(c, 50) ? oc_normals(c, (size_t)s.n, 1) : NULL;
  down->accumulate = oc_chance(c, 40);
  if (oc_chance(c, 10)) down->act = TRI_ACT_RELU;
  down->out = oc_matrix(c, s.m, s.n, !down->accumulate);
  bool rounds_rows = oc_is_int8_rows(&up->w) && oc_is_int8_rows(&down->w) && oc_chance(c, 50);
  up->rounds_rows = down->rounds_rows = rounds_rows;
  snprintf(c->what, sizeof c->what, "gated_mlp %s m %d k %d f %d n %d act %d%s%s%s%s", tri_dtype_name(s.type), s.m, s.k,
           s.f, s.n, s.act, up->bias ? " bias" : "", down->bias ? " down bias" : "",
           down->accumulate ? " accumulate" : "", rounds_rows ? " int8 activations" : "");
  for (int r = 0; r < s.m; r++)
    for (int j = 0; j < s.k; j++) up->x.data[(size_t)r * (size_t)up->x.ld + (size_t)j] /= sqrtf((float)s.k);
  tri_gated_mlp_args b = a;
  tri_dtype narrow = narrow_type(c, &s);
  bool narrows = narrow != TRI_F32 && !down->accumulate && oc_chance(c, 50);
  b.gated.up.x = oc_device_narrow(c, &up->x, narrow), b.gated.up.w = oc_device_weight(c, &up->w);
  b.gated.up.bias = oc_device(c, up->bias, (size_t)(2 * s.f) * sizeof *up->bias);
  b.gated.up.out = b.gated.glu.gate_up = oc_device_narrow(c, &up->out, narrow);
  b.gated.glu.out = b.down.x = oc_device_narrow(c, &a.gated.glu.out, narrow);
  b.down.w = oc_device_weight(c, &down->w);
  b.down.bias = oc_device(c, down->bias, (size_t)s.n * sizeof *down->bias);
  b.down.out = oc_device_narrow(c, &down->out, narrows ? narrow : TRI_F32);
  if (!down->accumulate && oc_chance(c, 40)) share_memory(&b);
  oc_status(c, tri_run_gated_mlp(c->ref, &a), tri_run_gated_mlp(c->be, &b));
  double limit = limit_of(c, &s, narrow, rounds_rows);
  oc_compare(c, &down->out, &b.down.out, narrows ? oc_narrow_limit(narrow, limit) : limit);
  /* Once more: what a kernel counts with must be as it was. */
  if (down->accumulate || rounds_rows) return;
  oc_status(c, TRI_OK, tri_run_gated_mlp(c->be, &b));
  oc_compare(c, &down->out, &b.down.out, narrows ? oc_narrow_limit(narrow, limit) : limit);
}
