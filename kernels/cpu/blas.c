#include <cblas.h>

#include "kernels/cpu/cpu.h"

/* Our pool's threads call single-threaded products side by side; a second pool inside the library would fight over the
 * cores. */
void tri_blas_setup(void) { openblas_set_num_threads(1); }

void tri_blas_gemm(int m, int n, int k, const float *x, size_t ldx, const float *w, size_t ldw, float beta, float *y,
                   size_t ldy) {
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, m, n, k, 1, x, (blasint)ldx, w, (blasint)ldw, beta, y,
              (blasint)ldy);
}
