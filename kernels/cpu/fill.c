/* SPDX-License-Identifier: Apache-2.0 */
/* The CPU backend's slots, over those of the reference, and the choice of the instruction set at run time: one binary
 * has the kernels of all of them. */
#include <string.h>
#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "kernels/cpu/cpu.h"

#if defined(__x86_64__)
/* Asks the processor for tiles of bfloat16, and the system to keep them for all threads of the process: an old system
 * does not know them, and one that does not want them refuses. */
static bool has_tiles(void) {
#if defined(__linux__)
  enum { BF16 = 1 << 22, TILE = 1 << 24, ASK_FOR_STATE = 0x1023, TILE_DATA = 18 };
  unsigned a, b, c, d;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(d & BF16) || !(d & TILE)) return false;
  return !syscall(SYS_arch_prctl, ASK_FOR_STATE, TILE_DATA);
#else
  return false;
#endif
}
#endif

static bool can_run(const tri_cpu_isa *isa) {
#if defined(__x86_64__)
  if (isa == &tri_cpu_avx2)
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); /* no processor has these without F16C */
  if (isa == &tri_cpu_amx) return can_run(&tri_cpu_avx512vbmi) && has_tiles();
  if (isa == &tri_cpu_avx512vbmi && !__builtin_cpu_supports("avx512vbmi")) return false;
  if (isa == &tri_cpu_avx512 || isa == &tri_cpu_avx512vbmi)
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
#endif
  return isa == &tri_cpu_scalar;
}

static const tri_cpu_isa *const best_first[] = {
#if defined(__x86_64__)
    &tri_cpu_amx, &tri_cpu_avx512vbmi, &tri_cpu_avx512, &tri_cpu_avx2,
#endif
    &tri_cpu_scalar};
enum { NUM_ISAS = sizeof best_first / sizeof *best_first };

static const tri_cpu_isa *best_isa(void) {
  int i = 0;
  while (i < NUM_ISAS - 1 && !can_run(best_first[i])) i++;
  return best_first[i];
}

static tri_status choose_isa(const char *name, const tri_cpu_isa **out, tri_error *err) {
  *out = best_isa();
  if (!name) return TRI_OK;
  for (int i = 0; i < NUM_ISAS; i++) {
    if (strcmp(name, best_first[i]->name)) continue;
    *out = best_first[i];
    if (can_run(*out)) return TRI_OK;
    return tri_fail(err, TRI_UNSUPPORTED, "isa", "this processor cannot run %s code", name);
  }
  return tri_fail(err, TRI_UNSUPPORTED, "isa",
                  "no kernels for instruction set %s; known: amx, avx512vbmi, avx512, avx2, scalar", name);
}

/* Others take longer to make numbers of FP8 than to read numbers of twice the bytes. */
static bool prefers_fp8(const tri_cpu_isa *isa) {
#if defined(__x86_64__)
  return isa == &tri_cpu_amx || isa == &tri_cpu_avx512vbmi || isa == &tri_cpu_avx512;
#else
  (void)isa;
  return false;
#endif
}

bool tri_cpu_prefers_fp8(void) { return prefers_fp8(best_isa()); }

tri_status tri_backend_fill_cpu(tri_backend *be, const char *isa, tri_error *err) {
  const tri_cpu_isa *chosen = NULL;
  TRI_CHECK(choose_isa(isa, &chosen, err));
  tri_cpu_impl *impl = tri_calloc(1, sizeof *impl);
  if (!impl) return tri_fail(err, TRI_NO_MEMORY, "backend", "no memory for the CPU backend");
  impl->isa = chosen;
  be->impl = impl;
  be->isa = chosen->name;
  be->prefers_fp8 = prefers_fp8(chosen);
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
