/* SPDX-License-Identifier: Apache-2.0 */
/* OpenBLAS, for GEMMs of many rows with float32 inputs. It does not promise the same bits for other numbers of rows, so
 * deterministic mode never uses it. */
#include <cblas.h>

#include "kernels/cpu/cpu.h"
#include "base/wait.h"

/* Our pool's threads call single-threaded GEMMs side by side; a second pool inside the library would fight over the
 * cores. */
void tri_blas_setup(void) { openblas_set_num_threads(1); }

void tri_blas_gemm(int m, int n, int k, const float *x, size_t ldx, const float *w, size_t ldw, float beta, float *y,
                   size_t ldy) {
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, m, n, k, 1, x, (blasint)ldx, w, (blasint)ldw, beta, y,
              (blasint)ldy);
}

/* Even rounds time the library, odd ones our own panels with their packing, on a GEMM that fits the caches. The best of
 * TRIES counts, since anything else may run on the cores meanwhile. */
bool tri_blas_pays(const tri_cpu_isa *isa) {
  enum { M = 192, N = 192, K = 256, TRIES = 4, LD = K + 16 };
  size_t panel_floats = (size_t)isa->panel_cols * K;
  float *x = tri_calloc((size_t)(M + N) * LD + (size_t)M * N + panel_floats, sizeof *x);
  if (!x) return true;
  float *w = x + (size_t)M * LD, *y = w + (size_t)N * LD, *panel = y + (size_t)M * N;
  int64_t best[2] = {INT64_MAX, INT64_MAX};
  for (int t = 0; t < 2 * TRIES; t++) {
    int64_t start = tri_now_ns();
    tri_panel_pack pack = {.out = panel, .ldw = LD, .dtype = TRI_F32, .n = isa->panel_cols, .k = K};
    tri_panel p = {.x = x, .ldx = LD, .w = panel, .ldy = N, .m = M, .n = isa->panel_cols, .k = K};
    for (int j = 0; j < N && t % 2; j += isa->panel_cols) {
      pack.w = w + (size_t)j * LD;
      p.y = y + j;
      isa->pack(&pack);
      isa->panel(&p);
    }
    if (t % 2 == 0) tri_blas_gemm(M, N, K, x, LD, w, LD, 0, y, N);
    int64_t took = tri_now_ns() - start;
    if (took < best[t % 2]) best[t % 2] = took;
  }
  tri_free(x);
  return best[0] < 2 * best[1];
}
