/* SPDX-License-Identifier: Apache-2.0 */
/* Formulas in double that the host's reference and a device's kernels share. */
#ifndef TRI_KERNELS_REF_FORMULAS_H
#define TRI_KERNELS_REF_FORMULAS_H

#include <math.h>

#include "kernels/backend.h"

#ifdef __CUDACC__
#define TRI_FORMULA __host__ __device__ static inline
#else
#define TRI_FORMULA static inline
#endif

/* Elements of a value in a row, what it is multiplied with, and the elements of a row. */
TRI_FORMULA int tri_append_value_dim(const tri_qkv_rope_append_args *a) {
  return a->value_dim ? a->value_dim : a->head_dim;
}
TRI_FORMULA float tri_append_value_scale(const tri_qkv_rope_append_args *a) {
  return a->value_scale != 0 ? a->value_scale : 1;
}
TRI_FORMULA int tri_append_width(const tri_qkv_rope_append_args *a) {
  return (a->num_heads + a->num_kv_heads) * a->head_dim + a->num_kv_heads * tri_append_value_dim(a);
}

/* Not of SWIGLU_OAI and SWIGLU_CLAMPED, which need both halves. */
TRI_FORMULA double tri_formula_act(tri_act act, double x) {
  switch (act) {
  case TRI_ACT_NONE: return x;
  case TRI_ACT_RELU: return x < 0 ? 0 : x; /* NaN stays NaN */
  case TRI_ACT_GELU_ERF: return 0.5 * x * erfc(-x * M_SQRT1_2);
  case TRI_ACT_GELU_TANH: return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
  case TRI_ACT_SILU: return x / (1 + exp(-x));
  case TRI_ACT_QUICK_GELU: return x / (1 + exp(-1.702 * x));
  case TRI_ACT_TANH: return tanh(x);
  case TRI_ACT_SWIGLU_OAI:
  case TRI_ACT_SWIGLU_CLAMPED: break;
  }
  return x;
}

TRI_FORMULA double tri_formula_glu(tri_act act, double limit, double gate, double up) {
  bool clamped = act == TRI_ACT_SWIGLU_CLAMPED;
  if (!clamped && act != TRI_ACT_SWIGLU_OAI) return tri_formula_act(act, gate) * up;
  if (clamped) gate = tri_formula_act(TRI_ACT_SILU, gate);
  gate = gate > limit ? limit : gate; /* NaN stays NaN */
  if (up > limit)
    up = limit;
  else if (up < -limit)
    up = -limit;
  return clamped ? gate * up : gate / (1 + exp(-1.702 * gate)) * (up + 1);
}

/* The inverse frequency of pair i under a rotary scaling that stretches the base with the sequence's length. */
TRI_FORMULA float tri_formula_dynamic_frequency(float base, float factor, int rope_len, int original_max_len, int d,
                                                int i) {
  double stretch = (double)factor * rope_len / original_max_len - ((double)factor - 1);
  return (float)pow(base * pow(stretch, d / (d - 2.0)), -2.0 * i / d);
}

/* The factor of queries by their position: 1 at first, and one step more for every q_scale_every tokens, each
 * smaller than the one before. */
TRI_FORMULA float tri_formula_q_scale(const tri_rope_angles_args *a, int position) {
  int steps = (int)(((int64_t)position + a->q_scale_offset) / a->q_scale_every);
  return (float)(1 + a->q_scale_beta * log(1.0 + steps));
}

#endif
