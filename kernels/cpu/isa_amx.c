/* SPDX-License-Identifier: Apache-2.0 */
/* The inner kernels for AVX-512 with VBMI and, for GEMMs of many rows, the tiles of AMX (Sapphire Rapids and later). */
#if defined(__x86_64__)
#include <immintrin.h>
#include <string.h>

#include "kernels/cpu/cpu.h"

/* Every function from here on may use these instructions; the file needs no flags of its own. */
#if defined(__clang__)
#pragma clang attribute push(                                                                                          \
    __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx2,fma,f16c,amx-tile,amx-bf16"))),          \
    apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx2,fma,f16c,amx-tile,amx-bf16")
#endif

#define TRI_ISA amx
#define V_LOOKS_UP_BYTES
#include "kernels/cpu/vec_avx512.h"

#include "kernels/cpu/kern_tiles.h"

#include "kernels/cpu/kern_table.h"

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#else
typedef int tri_cpu_no_amx; /* a file must not be empty */
#endif
