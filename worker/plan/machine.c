#include "worker/plan/machine.h"

#include "kernels/roofline.h"
#include "runtime/base/pool.h"
#include "runtime/base/topo.h"

/* docs/performance.md, NVIDIA H200: a read-only sum 4.57 to 4.59 TB/s; cuBLAS's bfloat16 at 4096 alone. */
const tri_ceilings tri_h200_ceilings = {4.57e12, 790e12};

const double tri_h200_link = 55e9; /* docs/performance.md, loading */

/* docs/performance-log.md: the products of a token of the 8 billion shape read 15.0 GB in 3.66 ms, which is 0.90 of
 * 4.57 TB/s. One behind the other, products run at 640 TFLOP/s of 790 (docs/performance.md). Attention of a prompt of
 * 2048 tokens reaches 167 TFLOP/s. A CPU's decode reads at 0.92 to 0.94 and its prompts run at 0.79 to 0.84. */
static const double READ_SHARE = 0.90, PRODUCT_SHARE = 0.81, DEVICE_ATTENTION = 0.21, HOST_ATTENTION = 0.5;

/* docs/design/layouts.md has where each figure is from. Those between hosts are assumed, not measured. */
static const tri_machine device_links = {
    .op_s = 2.4e-6,
    .near_sum = {1.7e-6, 0.2e-6, 214e9},
    .near_exchange = {2.75e-6, 0.47e-6, 214e9},
    .near_transfer = {11e-6, 0, 280e9},
    .far_sum = {10e-6, 1e-6, 50e9},
    .far_exchange = {10e-6, 1e-6, 50e9},
    .far_transfer = {15e-6, 0, 50e9},
};
static const tri_machine host_links = {
    .op_s = 5e-6,
    .near_sum = {5e-6, 1e-6, 5e9},
    .near_exchange = {5e-6, 1e-6, 5e9},
    .near_transfer = {10e-6, 0, 5e9},
    .far_sum = {50e-6, 5e-6, 1.25e9},
    .far_exchange = {50e-6, 5e-6, 1.25e9},
    .far_transfer = {50e-6, 0, 1.25e9},
};

tri_machine tri_machine_make(tri_ceilings best, bool device, int ranks_per_host) {
  tri_machine m = device ? device_links : host_links;
  m.read_bytes_per_s = best.read_bytes_per_s * READ_SHARE;
  m.flops_per_s = best.flops_per_s * PRODUCT_SHARE;
  m.attention_flops_per_s = best.flops_per_s * (device ? DEVICE_ATTENTION : HOST_ATTENTION);
  m.ranks_per_host = ranks_per_host;
  return m;
}

tri_status tri_machine_measure_backend(tri_backend *be, tri_ceilings *out) {
  enum { STREAM_BYTES = 64 << 20, ROUNDS = 3 };
  tri_roofline *floor = NULL;
  double read[ROUNDS], gemm[ROUNDS], piece = STREAM_BYTES / 4;
  TRI_CHECK(tri_roofline_create_quick(be, STREAM_BYTES, &floor));
  for (int i = 0; i < ROUNDS; i++) {
    read[i] = tri_roofline_read(floor, piece);
    gemm[i] = tri_roofline_gemm(floor);
  }
  tri_roofline_destroy(floor);
  *out =
      (tri_ceilings){.read_bytes_per_s = piece / tri_median(read, ROUNDS), .flops_per_s = 2 / tri_median(gemm, ROUNDS)};
  return TRI_OK;
}

tri_status tri_machine_measure(int ranks, tri_ceilings *out, tri_error *err) {
  tri_pool *pool = NULL;
  tri_backend *be = NULL;
  tri_status st;
  TRI_TRY(tri_pool_create(tri_topo_num_cores(), NULL, 0, &pool));
  TRI_TRY(tri_backend_create(&(tri_backend_config){.name = "cpu", .pool = pool}, &be, err));
  TRI_TRY(tri_machine_measure_backend(be, out));
  out->read_bytes_per_s /= ranks;
  out->flops_per_s /= ranks;
cleanup:
  tri_backend_destroy(be);
  tri_pool_destroy(pool);
  return st == TRI_OK ? st
                      : tri_fail(err, st, "read_bandwidth", "this host cannot be measured: %s", tri_status_text(st));
}
