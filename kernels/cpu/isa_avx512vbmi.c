/* SPDX-License-Identifier: Apache-2.0 */
/* The inner kernels for AVX-512 with VBMI, which looks up bytes (Ice Lake, Zen 4 and later). */
#if defined(__x86_64__)
#include <immintrin.h>
#include <string.h>

#include "kernels/cpu/cpu.h"

/* Every function from here on may use these instructions; the file needs no flags of its own. */
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx2,fma,f16c"))),   \
                             apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx2,fma,f16c")
#endif

#define TRI_ISA avx512vbmi
#define V_LOOKS_UP_BYTES
#include "kernels/cpu/vec_avx512.h"

#include "kernels/cpu/kern_table.h"

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#else
typedef int tri_cpu_no_avx512vbmi; /* a file must not be empty */
#endif
