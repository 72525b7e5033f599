/* SPDX-License-Identifier: Apache-2.0 */
/* The CPU backend's slots, over those of the reference, and the choice of the instruction set at run time: one binary
 * has the kernels of all of them. */
#include <string.h>

#include "kernels/cpu/cpu.h"

static bool can_run(const tri_cpu_isa *isa) {
#if defined(__x86_64__)
  if (isa == &tri_cpu_avx2)
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); /* no processor has these without F16C */
  if (isa == &tri_cpu_avx512)
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
#endif
  return isa == &tri_cpu_scalar;
}

static tri_status choose_isa(const char *name, const tri_cpu_isa **out, tri_error *err) {
  static const tri_cpu_isa *const best_first[] = {
#if defined(__x86_64__)
    &tri_cpu_avx512,
    &tri_cpu_avx2,
#endif
    &tri_cpu_scalar
  };
  for (size_t i = 0; i < sizeof best_first / sizeof *best_first; i++) {
    if (name && strcmp(name, best_first[i]->name)) continue;
    if (can_run(best_first[i])) {
      *out = best_first[i];
      return TRI_OK;
    }
    if (name) return tri_fail(err, TRI_UNSUPPORTED, "isa", "this processor cannot run %s code", name);
  }
  return tri_fail(err, TRI_UNSUPPORTED, "isa", "no kernels for instruction set %s; known: avx512, avx2, scalar", name);
}

tri_status tri_backend_fill_cpu(tri_backend *be, const char *isa, tri_error *err) {
  const tri_cpu_isa *chosen = NULL;
  TRI_CHECK(choose_isa(isa, &chosen, err));
  tri_cpu_impl *impl = tri_calloc(1, sizeof *impl);
  if (!impl) return tri_fail(err, TRI_NO_MEMORY, "backend", "no memory for the CPU backend");
  impl->isa = chosen;
  be->impl = impl;
  be->isa = chosen->name;
#define X(op) be->ops.op##_launch = tri_cpu_##op##_launch;
  TRI_OP_LIST(X)
#undef X
#define X(op) be->ops.op##_plan = tri_cpu_##op##_plan;
  TRI_CPU_PLANS(X)
#undef X
  tri_blas_setup();
  impl->use_blas = !be->deterministic && tri_blas_pays(chosen);
  return TRI_OK;
}
