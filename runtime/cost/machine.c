/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/cost/machine.h"

#include <math.h>
#include <string.h>

#include "kernels/roofline.h"
#include "base/pool.h"
#include "base/host/topo.h"

const char *const tri_device_kinds[] = {"h200", "h100", "a100", "l40s", "b200", NULL};

/* A read-only sum and cuBLAS's bfloat16 products at 4096, where they were measured. Of the others' data sheets 0.9 of
 * the memory's rate and 0.8 of the dense bfloat16 products, and of links what their nominal rate is to an H200's. */
static const tri_device_kind kinds[] = {
    {"h200", "NVIDIA H200", "H200", (int64_t)139 << 30, {4.57e12, 790e12}, 214e9, 55e9, true, true},
    {"h100", "NVIDIA H100 (80 GB)", "H100", (int64_t)78 << 30, {3.01e12, 806e12}, 214e9, 55e9, true, true},
    {"a100",
     "NVIDIA A100 (80 GB)",
     "A100",
     (int64_t)79 << 30,
     {0.9 * 2.039e12, 0.8 * 312e12},
     143e9,
     27e9,
     false,
     false},
    {"l40s", "NVIDIA L40S", "L40S", (int64_t)44 << 30, {0.9 * 864e9, 0.8 * 362e12}, 15e9, 27e9, false, false},
    {"b200", "NVIDIA B200", "B200", (int64_t)178 << 30, {0.9 * 8e12, 0.8 * 2.25e15}, 428e9, 55e9, false, false},
};
_Static_assert(sizeof kinds / sizeof *kinds + 1 == sizeof tri_device_kinds / sizeof *tri_device_kinds, "one name each");

const tri_device_kind *tri_device_kind_of(const char *name) {
  for (size_t i = 0; name && i < sizeof kinds / sizeof *kinds; i++)
    if (!strcmp(kinds[i].name, name)) return &kinds[i];
  return &kinds[0];
}

const tri_device_kind *tri_device_kind_find(const char *tactics_key) {
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
    if (strstr(tactics_key, kinds[i].driver_name)) return &kinds[i];
  return &kinds[0];
}

/* docs/performance-log.md: the products of a token of the 8 billion shape read 15.0 GB in 3.66 ms, which is 0.90 of
 * 4.57 TB/s. One after the other, products run at 640 TFLOP/s of 790 (docs/performance-log.md). Attention of a prompt
 * of 2048 tokens reaches 167 TFLOP/s. A CPU's decode reads at 0.92 to 0.94. */
static const double READ_SHARE = 0.90, HOST_READ_SHARE = 0.93, GEMM_SHARE = 0.81, DEVICE_ATTENTION = 0.21,
                    HOST_ATTENTION = 0.5;

/* docs/design/layouts.md: what products of 1, 2, 4 ... 1024 rows reach of BLAS's best on a CPU whose ops were not
 * timed. Those of few rows are measured where the weights lie in caches: reading them bounds the others. */
static const double HOST_ROWS[TRI_CPU_GEMM_ROWS] = {0.24, 0.45, 0.56, 0.62, 0.66, 0.60, 0.80, 0.88, 0.92, 0.96, 0.98};

/* docs/design/layouts.md has where each figure is from. Those between hosts are assumed, not measured. */
static const tri_machine device_links = {
    .op_s = 2.4e-6,
    .near_sum = {1.7e-6, 0.2e-6, 214e9},
    .near_all2all = {3.8e-6, 0.47e-6, 214e9},
    .near_transfer = {11e-6, 0, 280e9},
    .far_sum = {10e-6, 1e-6, 50e9},
    .far_all2all = {10e-6, 1e-6, 50e9},
    .far_transfer = {15e-6, 0, 50e9},
};
static const tri_machine host_links = {
    .op_s = 0.2e-6,
    .element_s = 0.1e-9,
    .near_sum = {5e-6, 1e-6, 5e9},
    .near_all2all = {5e-6, 1e-6, 5e9},
    .near_transfer = {10e-6, 0, 5e9},
    .far_sum = {50e-6, 5e-6, 1.25e9},
    .far_all2all = {50e-6, 5e-6, 1.25e9},
    .far_transfer = {50e-6, 0, 1.25e9},
};

tri_machine tri_machine_make(tri_ceilings best, const tri_device_kind *kind, int ranks_per_host) {
  bool device = kind != NULL;
  tri_machine m = device ? device_links : host_links;
  if (device) {
    m.near_sum.bytes_per_s = m.near_all2all.bytes_per_s = kind->link_bytes_per_s;
    m.near_transfer.bytes_per_s *= kind->link_bytes_per_s / kinds[0].link_bytes_per_s;
  }
  m.read_bytes_per_s = best.read_bytes_per_s * (device ? READ_SHARE : HOST_READ_SHARE);
  m.flops_per_s = best.flops_per_s * (device ? GEMM_SHARE : 1);
  if (!device) memcpy(m.row_shares, HOST_ROWS, sizeof HOST_ROWS);
  m.attention_flops_per_s = best.flops_per_s * (device ? DEVICE_ATTENTION : HOST_ATTENTION);
  m.ranks_per_host = ranks_per_host;
  return m;
}

void tri_machine_take_ops(tri_machine *m, const tri_host_rates *ops) {
  m->flops_per_s = 0;
  for (int i = 0; i < TRI_CPU_GEMM_ROWS; i++)
    if (ops->gemms[i] > m->flops_per_s) m->flops_per_s = ops->gemms[i];
  for (int i = 0; i < TRI_CPU_GEMM_ROWS; i++) m->row_shares[i] = ops->gemms[i] / m->flops_per_s;
  if (ops->attention > 0) m->attention_flops_per_s = ops->attention;
  m->query_flops_per_s = ops->queries;
  m->op_s = ops->op_s;
  m->element_s = ops->element_s;
}

/* The best of the rounds counts: other work on the host only makes them longer. */
tri_status tri_machine_measure_backend(tri_backend *be, const tri_cost_share *share, tri_host_figures *out) {
  enum { LEAST_BYTES = 1 << 20, MOST_BYTES = 64 << 20, PIECES = 4, ROUNDS = 9 };
  tri_roofline *floor = NULL;
  double read = INFINITY, gemm = INFINITY, bytes = share->dense_bytes < MOST_BYTES ? share->dense_bytes : MOST_BYTES;
  if (bytes < LEAST_BYTES) bytes = LEAST_BYTES;
  TRI_CHECK(tri_roofline_create_quick(be, (size_t)bytes / 64 * 64, &floor));
  for (int i = 0; i < ROUNDS; i++) {
    read = fmin(read, tri_roofline_read(floor, bytes / PIECES));
    gemm = fmin(gemm, tri_roofline_gemm(floor));
  }
  tri_roofline_destroy(floor);
  out->best = (tri_ceilings){.read_bytes_per_s = bytes / PIECES / read, .flops_per_s = 2 / gemm};
  return tri_host_rates_measure(be, share, &out->ops);
}

/* Makes threads as a rank has them: each on a core of its own, and awake for a while after each op. */
static tri_status make_pool(int threads, tri_pool **out) {
  enum { SPIN_US = 100, MOST = 1024 };
  int cores[MOST], oversubscribed;
  if (!threads) threads = tri_topo_num_cores();
  if (threads > MOST) threads = MOST;
  TRI_CHECK(tri_topo_assign(0, 1, threads, cores, &oversubscribed));
  return tri_pool_create(threads, cores, oversubscribed ? 0 : SPIN_US, out);
}

tri_status tri_machine_measure(const tri_cost_share *share, int ranks, int threads, tri_host_figures *out,
                               tri_error *err) {
  tri_pool *pool = NULL;
  tri_backend *be = NULL;
  tri_status st;
  TRI_TRY(make_pool(threads, &pool));
  TRI_TRY(tri_backend_create(&(tri_backend_config){.name = "cpu", .pool = pool}, &be, err));
  TRI_TRY(tri_machine_measure_backend(be, share, out));
  out->best.read_bytes_per_s /= ranks;
  out->best.flops_per_s /= ranks;
  for (int i = 0; i < TRI_CPU_GEMM_ROWS; i++) out->ops.gemms[i] /= ranks;
  out->ops.attention /= ranks;
  out->ops.queries /= ranks;
  out->ops.element_s *= ranks;
cleanup:
  tri_backend_destroy(be);
  tri_pool_destroy(pool);
  return st == TRI_OK ? st
                      : tri_fail(err, st, "read_bandwidth", "this host cannot be measured: %s", tri_status_text(st));
}
