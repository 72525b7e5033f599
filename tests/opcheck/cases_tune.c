/* SPDX-License-Identifier: Apache-2.0 */
/* Products by tactic: every tactic gives the same product, also where it cannot be used, and what is measured is such a
 * tactic. Only for backends that have tactics. */
#include <stdio.h>
#include <string.h>

#include "kernels/gemm_tactics.h"
#include "base/wait.h"
#include "tests/opcheck/opcheck.h"

/* A product on both sides, and what its output held before. */
typedef struct gemm {
  tri_linear_args host, device;
  tri_mat before;
  tri_dtype out;
  double limit;
} gemm;

static void build(oc *c, int i, gemm *p) {
  static const int rows[] = {1, 2, 3, 5, 8, 16, 17, 24, 64, 100, 129, 200, 0},
                   widths[] = {8, 64, 72, 128, 256, 1000, 1024, 33};
  static const tri_act acts[] = {TRI_ACT_NONE, TRI_ACT_NONE, TRI_ACT_RELU, TRI_ACT_GELU_TANH, TRI_ACT_GELU_ERF};
  tri_dtype t = i % 5 ? i % 2 ? TRI_BF16 : TRI_F16 : TRI_F32;
  int m = rows[i % 13], n = widths[i / 2 % 8], k = widths[i / 3 % 8];
  tri_linear_args a = {.x = oc_matrix(c, m, k, false), .w = oc_weight(c, t, n, k), .act = acts[i / 4 % 5]};
  a.bias = oc_chance(c, 40) ? oc_normals(c, (size_t)n, 1) : NULL;
  a.accumulate = oc_chance(c, 30);
  a.out = oc_matrix(c, m, n, !a.accumulate);
  bool narrow = t != TRI_F32 && oc_narrow_type(c) != TRI_F32;
  snprintf(c->what, sizeof c->what, "tune %s m %d n %d k %d act %d%s%s%s", tri_dtype_name(t), m, n, k, a.act,
           a.bias ? " bias" : "", a.accumulate ? " accumulate" : "", narrow ? " narrow" : "");
  p->host = p->device = a;
  p->device.x = oc_device_narrow(c, &p->host.x, narrow ? t : TRI_F32), p->device.w = oc_device_weight(c, &a.w);
  p->device.bias = oc_device(c, a.bias, (size_t)n * sizeof *a.bias);
  p->out = narrow && !a.accumulate && oc_chance(c, 60) ? t : TRI_F32;
  p->limit = t == TRI_BF16 ? 1e-5 : t == TRI_F16 ? 1e-7 : 1e-12; /* as for linear */
  p->before = a.out;
  size_t bytes = (size_t)m * (size_t)a.out.ld * sizeof(float);
  p->before.data = oc_host(c, bytes + sizeof(float));
  if (bytes) memcpy(p->before.data, a.out.data, bytes);
}

static void compare(oc *c, gemm *p) {
  tri_mat before = p->before;
  p->device.out = oc_device_narrow(c, &before, p->out);
  oc_status(c, TRI_OK, tri_run_linear(c->be, &p->device));
  oc_compare(c, &p->host.out, &p->device.out, p->limit);
}

static void choose(oc *c, const gemm *p, tri_tactic_kind kind, uint64_t word) {
  tri_tactic tactic = {.shape = tri_gemm_shape_of(&p->device), .kind = kind, .ns = 1, .default_ns = 1};
  if (tactic.shape.m <= 0) return;
  for (int i = 0; i < TRI_TACTIC_WORDS; i++) tactic.words[i] = word;
  oc_status(c, TRI_OK, tri_tactics_put(c->be->tactics, &tactic));
}

static void measure(oc *c, gemm *p) {
  tri_tune_gemm one = {.args = p->device};
  tri_tune_result result = {0};
  tri_tactics *measured = NULL;
  tri_mat before = p->before;
  oc_status(c, TRI_OK, tri_tactics_create(&measured));
  one.args.out = oc_device_narrow(c, &before, p->out);
  oc_status(c, TRI_OK, c->be->ops.tune(c->be, &one, 1, TRI_NEVER, measured, &result));
  oc_expect(c, result.measured + result.known == result.shapes, "%d of %d shapes", result.measured, result.shapes);
  for (size_t i = 0; i < measured->capacity; i++) {
    const tri_tactic *m = &measured->slots[i];
    if (m->shape.m) oc_expect(c, m->ns > 0 && m->ns <= m->default_ns, "%d ns instead of %d", m->ns, m->default_ns);
  }
  oc_status(c, TRI_OK, tri_tactics_put_all(c->be->tactics, measured));
  tri_tactics_destroy(measured);
  compare(c, p);
}

void oc_case_tune(oc *c, int i) {
  gemm p;
  build(c, i, &p);
  oc_status(c, TRI_OK, tri_run_linear(c->ref, &p.host));
  p.limit *= oc_lost_by_activation(c, &p.host);
  p.device.out.dtype = p.out; /* a part of the shape */
  measure(c, &p);
  choose(c, &p, TRI_TACTIC_OWN, 0);
  compare(c, &p);
  choose(c, &p, TRI_TACTIC_GEMM, 0);
  compare(c, &p);
  choose(c, &p, TRI_TACTIC_ALGO, UINT64_MAX); /* no algorithm of any library */
  compare(c, &p);
  choose(c, &p, TRI_TACTIC_DEFAULT, 0);
  compare(c, &p);
}
