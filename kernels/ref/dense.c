/* SPDX-License-Identifier: Apache-2.0 */
/* The specification of the ops on rows and of linear layers: plain loops, sums in double. */
#include "kernels/ref/ref.h"

#include <math.h>

#include "kernels/quantize.h"
#include "kernels/ref/formulas.h"

bool tri_ref_glu_ok(tri_act act, float limit) { return !tri_act_has_limit(act) || limit > 0; }

static bool mat_ok(const tri_mat *m) { return m->rows >= 0 && m->cols >= 0 && m->ld >= m->cols; }

static bool weight_ok(const tri_weight *w) {
  const tri_groups *g = &w->groups;
  bool inside = g->rows >= 0 && g->cols >= 0 && g->skip_row >= 0 && g->skip_col >= 0 &&
                (g->skip_row < g->rows || !g->skip_row) && (g->skip_col < g->cols || !g->skip_col);
  return w->n >= 0 && w->k >= 0 && inside && tri_ref_weight_type_ok(w->dtype);
}

static bool embed_fits(const tri_embed_args *a) {
  bool fits = !a->table.n || a->table.k == a->out.cols;
  fits = fits && (!a->type_table.n || a->type_table.k == a->out.cols);
  return mat_ok(&a->out) && weight_ok(&a->table) && fits;
}

static void embed_run(const tri_embed_args *a) {
  for (int t = 0; t < a->out.rows; t++) {
    float *out = tri_mat_row(&a->out, t);
    uint32_t row = tri_embed_id(a, t) - a->first_id; /* wraps to something huge below first_id */
    for (int j = 0; j < a->out.cols; j++) {
      double v = row < (uint32_t)a->table.n ? a->scale * tri_ref_weight_at(&a->table, row, (size_t)j) : 0;
      if (a->position_table.data)
        v += tri_ref_weight_at(&a->position_table, (size_t)(a->positions[t] + a->position_offset), (size_t)j);
      if (a->type_table.data) v += tri_ref_weight_at(&a->type_table, a->types ? (size_t)a->types[t] : 0, (size_t)j);
      out[j] = (float)v;
    }
  }
}
TRI_REF_OP(embed)

static bool norm_fits(const tri_norm_args *a) {
  bool same = (!a->delta.data || (a->delta.rows == a->x.rows && a->delta.cols == a->x.cols)) &&
              (!a->out.data || (a->out.rows == a->x.rows && a->out.cols == a->x.cols));
  same = same && (!a->square_sums || (a->kind == TRI_NORM_RMS && a->whole_cols >= a->x.cols));
  return mat_ok(&a->x) && same;
}

/* x += delta_scale * delta is stored first, since x is the residual that later layers read; out is optional. */
static void norm_run(const tri_norm_args *a) {
  int n = a->x.cols;
  for (int t = 0; t < a->x.rows; t++) {
    float *x = tri_mat_row(&a->x, t);
    if (a->delta.data)
      for (int j = 0; j < n; j++) x[j] += a->delta_scale * tri_mat_row(&a->delta, t)[j];
    if (!a->out.data) continue;
    double mean = 0, square = 0;
    if (a->kind == TRI_NORM_LAYER) {
      for (int j = 0; j < n; j++) mean += x[j];
      mean /= n;
    }
    for (int j = 0; j < n; j++) square += (x[j] - mean) * (x[j] - mean);
    double factor = 1 / sqrt((a->square_sums ? a->square_sums[t] / a->whole_cols : square / n) + a->eps);
    float *out = tri_mat_row(&a->out, t);
    for (int j = 0; j < n; j++) {
      double gain = a->weight ? (double)a->weight[j] + a->weight_offset : 1;
      out[j] = (float)((x[j] - mean) * factor * gain + (a->bias ? a->bias[j] : 0));
    }
  }
}
TRI_REF_OP(norm)

static bool is_like(const tri_mat *m, const tri_mat *x) {
  return !m->data || (m->rows == x->rows && m->cols == x->cols);
}

static bool branch_norm_fits(const tri_branch_norm_args *a) {
  bool same = is_like(&a->delta, &a->x) && is_like(&a->second, &a->x) && (a->delta.data || !a->second.data);
  for (int i = 0; i < TRI_BRANCH_NORM_OUTPUTS; i++) same = same && is_like(&a->out[i], &a->x);
  return mat_ok(&a->x) && same;
}

static double factor_of(const float *row, int n, float eps) {
  double square = 0;
  for (int j = 0; j < n; j++) square += (double)row[j] * row[j];
  return 1 / sqrt(square / n + eps);
}

/* Writes the row's norm, or where there is no weight the row itself. */
static void norm_result(const tri_branch_norm_args *a, float *row, const float *weight) {
  double factor = factor_of(row, a->x.cols, a->eps);
  for (int j = 0; weight && j < a->x.cols; j++)
    row[j] = (float)(row[j] * factor * ((double)weight[j] + a->weight_offset));
}

static void add_branches(const tri_branch_norm_args *a, int t) {
  float *x = tri_mat_row(&a->x, t), *delta = a->delta.data ? tri_mat_row(&a->delta, t) : NULL;
  float *second = a->second.data ? tri_mat_row(&a->second, t) : NULL;
  int n = a->x.cols;
  if (delta) norm_result(a, delta, a->delta_weight);
  if (second) norm_result(a, second, a->second_weight);
  for (int j = 0; second && j < n; j++) delta[j] += second[j];
  if (delta) norm_result(a, delta, a->sum_weight);
  for (int j = 0; delta && j < n; j++) x[j] += a->delta_scale * delta[j];
  for (int j = 0; j < n; j++) x[j] *= a->x_scale;
}

/* The first output may be x: it is the last to be written. */
static void branch_norm_run(const tri_branch_norm_args *a) {
  for (int t = 0; t < a->x.rows; t++) {
    add_branches(a, t);
    const float *x = tri_mat_row(&a->x, t);
    double factor = factor_of(x, a->x.cols, a->eps);
    int outputs = 0;
    while (outputs < TRI_BRANCH_NORM_OUTPUTS && a->out[outputs].data) outputs++;
    for (int i = outputs - 1; i >= 0; i--)
      for (int j = 0; j < a->x.cols; j++) {
        double gain = a->weight[i] ? (double)a->weight[i][j] + a->weight_offset : 1;
        tri_mat_row(&a->out[i], t)[j] = (float)(x[j] * factor * gain * a->scale[i]);
      }
  }
}
TRI_REF_OP(branch_norm)

static bool square_sums_fits(const tri_square_sums_args *a) { return mat_ok(&a->x); }

static void square_sums_run(const tri_square_sums_args *a) {
  for (int t = 0; t < a->x.rows; t++) {
    const float *x = tri_mat_row(&a->x, t);
    double sum = 0;
    for (int j = 0; j < a->x.cols; j++) sum += (double)x[j] * x[j];
    a->sums[t] = (float)sum;
  }
}
TRI_REF_OP(square_sums)

static bool gate_rows_fits(const tri_gate_rows_args *a) { return mat_ok(&a->x); }

static void gate_rows_run(const tri_gate_rows_args *a) {
  for (int t = 0; t < a->x.rows; t++) {
    double factor = a->plain ? a->gate[t] : 1 / (1 + exp(-a->gate[t]));
    for (int j = 0; j < a->x.cols; j++) tri_mat_row(&a->x, t)[j] = (float)(tri_mat_row(&a->x, t)[j] * factor);
  }
}
TRI_REF_OP(gate_rows)

static bool softcap_fits(const tri_softcap_args *a) { return mat_ok(&a->x); }

static void softcap_run(const tri_softcap_args *a) {
  for (int t = 0; t < a->x.rows; t++) {
    float *x = tri_mat_row(&a->x, t);
    for (int j = 0; j < a->x.cols; j++) {
      double v = (double)a->scale * x[j];
      x[j] = (float)(a->cap > 0 ? a->cap * tanh(v / a->cap) : v);
    }
  }
}
TRI_REF_OP(softcap)

tri_status tri_ref_linear_plan(tri_backend *be, const tri_linear_args *a, tri_op_plan *plan) {
  (void)be;
  *plan = (tri_op_plan){0};
  bool fits = a->x.rows == a->out.rows && a->x.cols == a->w.k && a->out.cols == a->w.n;
  bool ok = mat_ok(&a->x) && mat_ok(&a->out) && weight_ok(&a->w) && fits && !tri_act_has_limit(a->act);
  if (!ok) return TRI_INVALID_ARGUMENT;
  plan->workspace = (size_t)a->w.k * sizeof(double);
  return !a->rounds_rows || tri_ref_rounds_for(&a->w) ? TRI_OK : TRI_INVALID_ARGUMENT;
}

/* The product is rounded to float32 before it is rounded again: the same two roundings as in vectors, and so the same
 * elements. */
static void round_group(tri_dtype t, const float *x, int n, double *out) {
  float max = 0;
  bool finite = tri_quantize_max(x, (size_t)n, &max);
  double scale = finite ? tri_rounding_scale(t, max) : NAN;
  for (int j = 0; j < n; j++) {
    float scaled = x[j] * tri_rounding_factor(t, max);
    float rounded = t == TRI_I8 ? rintf(scaled) : tri_f8_e4m3_to_f32(tri_f32_to_f8_e4m3(scaled));
    out[j] = finite ? rounded * scale : NAN;
  }
}

bool tri_ref_rounds_for(const tri_weight *w) {
  return (w->dtype == TRI_I8 && !w->groups.cols) ||
         (w->dtype == TRI_F8_E4M3 && (!w->groups.cols || w->groups.cols == TRI_INT8_GROUP) && !w->groups.skip_col);
}

void tri_ref_round_row(const tri_weight *w, const float *x, double *out) {
  int group = tri_rounding_group(w);
  for (int j = 0; j < w->k; j += group) round_group(w->dtype, x + j, w->k - j < group ? w->k - j : group, out + j);
}

/* out = act(x w^T scale + bias), to which the old `out` is added with accumulate, after the activation. */
void tri_ref_linear_launch(tri_backend *be, const tri_op_plan *plan, const tri_linear_args *a) {
  double *x = be->workspace;
  (void)plan;
  for (int t = 0; t < a->x.rows; t++) {
    const float *row = tri_mat_row(&a->x, t);
    for (int j = 0; j < a->w.k; j++) x[j] = row[j];
    if (a->rounds_rows) tri_ref_round_row(&a->w, row, x);
    for (int i = 0; i < a->w.n; i++) {
      double sum = 0;
      for (int j = 0; j < a->w.k; j++) sum += x[j] * tri_ref_weight_at(&a->w, (size_t)i, (size_t)j);
      sum = tri_formula_act(a->act, sum + (a->bias ? a->bias[i] : 0));
      float *out = tri_mat_row(&a->out, t) + i;
      *out = (float)(a->accumulate ? *out + sum : sum);
    }
  }
}

static bool head_linear_fits(const tri_head_linear_args *a) {
  bool ok = mat_ok(&a->x) && mat_ok(&a->out) && weight_ok(&a->w) && a->x.rows == a->out.rows && a->num_heads > 0;
  if (!ok || a->w.n % a->num_heads || a->x_stride < 0) return false;
  int n = a->w.n / a->num_heads;
  int64_t others = a->num_heads - 1;
  bool fits =
      a->out_stride >= n && others * a->x_stride + a->w.k <= a->x.cols && others * a->out_stride + n <= a->out.cols;
  return fits;
}

/* Head h has rows h * n .. of w and its own part of the columns of x and out. */
static void head_linear_run(const tri_head_linear_args *a) {
  size_t n = (size_t)(a->w.n / a->num_heads);
  for (int t = 0; t < a->x.rows; t++)
    for (int h = 0; h < a->num_heads; h++) {
      const float *x = tri_mat_row(&a->x, t) + (size_t)h * (size_t)a->x_stride;
      float *out = tri_mat_row(&a->out, t) + (size_t)h * (size_t)a->out_stride;
      for (size_t j = 0; j < n; j++) {
        double sum = 0;
        for (int i = 0; i < a->w.k; i++) sum += x[i] * tri_ref_weight_at(&a->w, (size_t)h * n + j, (size_t)i);
        out[j] = (float)sum;
      }
    }
}
TRI_REF_OP(head_linear)

static bool glu_fits(const tri_glu_args *a) {
  bool fits = a->gate_up.rows == a->out.rows && a->gate_up.cols == 2 * a->out.cols;
  fits = fits && tri_ref_glu_ok(a->act, a->limit);
  return mat_ok(&a->gate_up) && mat_ok(&a->out) && fits;
}

/* A row of gate_up has all gates first, then all ups. */
static void glu_run(const tri_glu_args *a) {
  int f = a->out.cols;
  for (int t = 0; t < a->out.rows; t++) {
    const float *in = tri_mat_row(&a->gate_up, t);
    for (int j = 0; j < f; j++) tri_mat_row(&a->out, t)[j] = (float)tri_formula_glu(a->act, a->limit, in[j], in[f + j]);
  }
}
TRI_REF_OP(glu)

static bool gather_rows_fits(const tri_gather_rows_args *a) {
  return mat_ok(&a->x) && mat_ok(&a->out) && a->x.cols == a->out.cols;
}

static void gather_rows_run(const tri_gather_rows_args *a) {
  for (int t = 0; t < a->out.rows; t++)
    for (int j = 0; j < a->out.cols; j++) tri_mat_row(&a->out, t)[j] = tri_mat_row(&a->x, a->rows[t])[j];
}
TRI_REF_OP(gather_rows)

static bool mean_rows_fits(const tri_mean_rows_args *a) {
  return mat_ok(&a->x) && mat_ok(&a->out) && a->x.cols == a->out.cols;
}

static void mean_rows_run(const tri_mean_rows_args *a) {
  for (int s = 0; s < a->out.rows; s++) {
    int n = a->start[s + 1] - a->start[s];
    for (int j = 0; j < a->out.cols; j++) {
      double sum = 0;
      for (int i = a->start[s]; i < a->start[s + 1]; i++) sum += tri_mat_row(&a->x, i)[j];
      tri_mat_row(&a->out, s)[j] = (float)(n > 0 ? sum / n : 0);
    }
  }
}
TRI_REF_OP(mean_rows)

/* By way of the backend's own two halves. The glu's plan says nothing. */
tri_status tri_ref_gated_linear_plan(tri_backend *be, const tri_gated_linear_args *a, tri_op_plan *plan) {
  tri_op_plan glu;
  bool fits = a->up.w.n == 2 * a->glu.out.cols && a->up.act == TRI_ACT_NONE && !a->up.accumulate &&
              a->up.out.data == a->glu.gate_up.data && a->up.out.ld == a->glu.gate_up.ld;
  tri_status st = fits ? be->ops.linear_plan(be, &a->up, plan) : TRI_INVALID_ARGUMENT;
  return st == TRI_OK ? be->ops.glu_plan(be, &a->glu, &glu) : st;
}

void tri_ref_gated_linear_launch(tri_backend *be, const tri_op_plan *plan, const tri_gated_linear_args *a) {
  const tri_op_plan none = {0};
  be->ops.linear_launch(be, plan, &a->up);
  be->ops.glu_launch(be, &none, &a->glu);
}

static tri_part_plan part_of(const tri_op_plan *plan) {
  return (tri_part_plan){plan->variant, plan->split, plan->workspace};
}
static tri_op_plan whole_of(const tri_part_plan *part) {
  return (tri_op_plan){.variant = part->variant, .split = part->split, .workspace = part->workspace};
}

/* By way of the backend's own two parts, again. */
tri_status tri_ref_gated_mlp_plan(tri_backend *be, const tri_gated_mlp_args *a, tri_op_plan *plan) {
  const tri_mat *hidden = &a->gated.glu.out, *x = &a->down.x;
  tri_op_plan first = {0}, second = {0};
  bool fits = hidden->data == x->data && hidden->ld == x->ld && hidden->rows == x->rows && hidden->cols == x->cols &&
              hidden->dtype == x->dtype;
  *plan = (tri_op_plan){0};
  if (!fits) return TRI_INVALID_ARGUMENT;
  TRI_CHECK(be->ops.gated_linear_plan(be, &a->gated, &first));
  TRI_CHECK(be->ops.linear_plan(be, &a->down, &second));
  plan->workspace = first.workspace > second.workspace ? first.workspace : second.workspace;
  plan->parts[0] = part_of(&first);
  plan->parts[1] = part_of(&second);
  return TRI_OK;
}

void tri_ref_gated_mlp_launch(tri_backend *be, const tri_op_plan *plan, const tri_gated_mlp_args *a) {
  tri_op_plan first = whole_of(&plan->parts[0]), second = whole_of(&plan->parts[1]);
  be->ops.gated_linear_launch(be, &first, &a->gated);
  be->ops.linear_launch(be, &second, &a->down);
}
