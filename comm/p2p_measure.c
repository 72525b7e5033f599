/* Whether sums over peers' memory come out right on these devices, and which way is the fastest. */
#include "comm/p2p.h"

#include "kernels/cuda/cuda.h"
#include "runtime/base/mem.h"

enum { CALLS = 32, REPEATS = 4, MODULUS = 1021 };

static cudaStream_t stream_of(const tri_backend *be) { return tri_cuda_of(be)->stream; }

static tri_status wrong(tri_error *err, const char *what, cudaError_t e) {
  cudaGetLastError(); /* it does not stick */
  return tri_fail(err, TRI_UNSUPPORTED, "all_reduce", "%s: %s", what, cudaGetErrorString(e));
}

static tri_status finish(tri_comm *c, tri_backend *be, tri_error *err) {
  cudaError_t e = cudaStreamSynchronize(stream_of(be));
  if (e != cudaSuccess) return wrong(err, "the device", e);
  if (tri_comm_query(c) == TRI_OK) return TRI_OK;
  return tri_fail(err, TRI_UNSUPPORTED, "all_reduce", "what peers wrote did not come");
}

/* Small integers: their sums are exact. */
static float addend(int rank, size_t i) { return (float)((i * 7 + (size_t)rank * 13) % MODULUS) - MODULUS / 2; }

static tri_status check_way(tri_comm *c, tri_backend *be, tri_p2p_way way, float *buf, float *host, tri_error *err) {
  size_t count = tri_p2p_size(TRI_P2P_SIZES - 1) / sizeof *buf;
  while (!tri_p2p_fits(c, way, count)) count /= 2;
  for (size_t i = 0; i < count; i++) host[i] = addend(c->rank, i);
  cudaError_t e = cudaMemcpyAsync(buf, host, count * sizeof *buf, cudaMemcpyHostToDevice, stream_of(be));
  if (e != cudaSuccess) return wrong(err, "the device", e);
  tri_status st = tri_p2p_sum(c, way, buf, count);
  if (st != TRI_OK) return tri_fail(err, TRI_UNSUPPORTED, "all_reduce", "a sum: %s", tri_status_text(st));
  e = cudaMemcpyAsync(host, buf, count * sizeof *buf, cudaMemcpyDeviceToHost, stream_of(be));
  if (e != cudaSuccess) return wrong(err, "the device", e);
  TRI_TRY(finish(c, be, err));
  for (size_t i = 0; i < count; i++) {
    float want = 0;
    for (int r = 0; r < c->size; r++) want += addend(r, i);
    if (host[i] != want) return tri_fail(err, TRI_UNSUPPORTED, "all_reduce", "a sum over peers' memory came out wrong");
  }
cleanup:
  return st;
}

tri_status tri_p2p_check(tri_comm *c, tri_backend *be, float *buf, tri_error *err) {
  float *host = tri_malloc(tri_p2p_size(TRI_P2P_SIZES - 1), 1);
  tri_status st = host ? TRI_OK : tri_fail(err, TRI_NO_MEMORY, "all_reduce", "no memory");
  for (int w = 0; st == TRI_OK && w < TRI_P2P_LIBRARY; w++) st = check_way(c, be, (tri_p2p_way)w, buf, host, err);
  tri_free(host);
  return st;
}

/* ---- times ---- */

struct clock {
  cudaEvent_t start, stop;
  cudaGraphExec_t calls;
};

static tri_status record(tri_comm *c, tri_backend *be, tri_p2p_way way, float *buf, size_t count,
                         cudaGraphExec_t *out) {
  cudaGraph_t graph = NULL;
  tri_status st = TRI_OK;
  if (cudaStreamBeginCapture(stream_of(be), cudaStreamCaptureModeThreadLocal) != cudaSuccess) return TRI_DEVICE_LOST;
  for (int i = 0; i < CALLS && st == TRI_OK; i++) st = tri_p2p_sum(c, way, buf, count);
  cudaError_t e = cudaStreamEndCapture(stream_of(be), &graph);
  if (e == cudaSuccess && st == TRI_OK) e = cudaGraphInstantiate(out, graph, 0);
  if (graph) cudaGraphDestroy(graph);
  return e == cudaSuccess ? st : TRI_DEVICE_LOST;
}

/* The sum in front makes the devices begin together. The best of a few: what lies above it is somebody else's. */
static tri_status replay(tri_comm *c, tri_backend *be, struct clock *k, float *buf, double *us) {
  cudaStream_t s = stream_of(be);
  for (int i = 0; i < REPEATS; i++) {
    float ms = 0;
    tri_status st = tri_p2p_sum(c, TRI_P2P_ONE_SHOT, buf, 1);
    if (st != TRI_OK) return st;
    if (cudaEventRecord(k->start, s) != cudaSuccess || cudaGraphLaunch(k->calls, s) != cudaSuccess ||
        cudaEventRecord(k->stop, s) != cudaSuccess || cudaStreamSynchronize(s) != cudaSuccess ||
        cudaEventElapsedTime(&ms, k->start, k->stop) != cudaSuccess)
      return TRI_DEVICE_LOST;
    double each = (double)ms * 1000 / CALLS;
    if (i && (i == 1 || each < *us)) *us = each; /* the first one warms up */
  }
  return TRI_OK;
}

static tri_status time_way(tri_comm *c, tri_backend *be, struct clock *k, tri_p2p_way way, float *buf, size_t count,
                           double *us) {
  tri_status st;
  TRI_TRY(tri_p2p_sum(c, way, buf, count)); /* NCCL connects at the first call of a kind */
  if (cudaStreamSynchronize(stream_of(be)) != cudaSuccess) return TRI_DEVICE_LOST;
  TRI_TRY(record(c, be, way, buf, count, &k->calls));
  TRI_TRY(replay(c, be, k, buf, us));
cleanup:
  if (k->calls) cudaGraphExecDestroy(k->calls);
  k->calls = NULL;
  return st;
}

tri_status tri_p2p_measure(tri_comm *c, tri_backend *be, float *buf, tri_p2p_figures *out, tri_error *err) {
  struct clock k = {0};
  tri_status st = TRI_OK;
  cudaError_t e = cudaMemsetAsync(buf, 0, tri_p2p_size(TRI_P2P_SIZES - 1), stream_of(be)); /* sums of sums overflow */
  if (e == cudaSuccess) e = cudaEventCreate(&k.start);
  if (e == cudaSuccess) e = cudaEventCreate(&k.stop);
  if (e != cudaSuccess) st = TRI_DEVICE_LOST;
  for (int i = 0; i < TRI_P2P_SIZES; i++)
    for (int w = 0; w < TRI_P2P_WAYS && st == TRI_OK; w++) {
      size_t count = tri_p2p_size(i) / sizeof *buf;
      if (tri_p2p_fits(c, (tri_p2p_way)w, count)) st = time_way(c, be, &k, (tri_p2p_way)w, buf, count, &out->us[i][w]);
    }
  if (k.start) cudaEventDestroy(k.start);
  if (k.stop) cudaEventDestroy(k.stop);
  if (st == TRI_OK) return finish(c, be, err);
  cudaGetLastError();
  return tri_fail(err, TRI_UNSUPPORTED, "all_reduce", "measuring: %s", tri_status_text(st));
}
