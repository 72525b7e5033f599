/* SPDX-License-Identifier: Apache-2.0 */
/* Checks that sums over peers' memory come out right on these devices, and measures which algorithm is the fastest. */
#include "comm/device/p2p_impl.h"
#include "base/mem.h"

enum { CALLS = 32, REPEATS = 4, MODULUS = 1021 };

static tri_status finish(tri_comm *c, tri_error *err) {
  tri_status st = tri_p2p_need(cudaStreamSynchronize(tri_p2p_stream(c)), "the device", err);
  if (st != TRI_OK || tri_comm_query(c) == TRI_OK) return st;
  return tri_fail(err, TRI_UNSUPPORTED, "all_reduce", "what peers wrote did not come");
}

/* Small integers: their sums are exact. */
static float addend(int rank, size_t i) { return (float)((i * 7 + (size_t)rank * 13) % MODULUS) - MODULUS / 2; }

static tri_status check_algorithm(tri_comm *c, tri_p2p_algorithm algorithm, float *buf, float *host, tri_error *err) {
  size_t count = tri_p2p_size(TRI_P2P_SIZES - 1) / sizeof *buf;
  while (!tri_p2p_fits(c, algorithm, count)) count /= 2;
  for (size_t i = 0; i < count; i++) host[i] = addend(c->rank, i);
  cudaStream_t stream = tri_p2p_stream(c);
  size_t bytes = count * sizeof *buf;
  tri_status st = TRI_OK;
  TRI_CHECK(tri_p2p_need(cudaMemcpyAsync(buf, host, bytes, cudaMemcpyHostToDevice, stream), "the device", err));
  st = tri_p2p_sum(c, algorithm, buf, count);
  if (st != TRI_OK) return tri_fail(err, TRI_UNSUPPORTED, "all_reduce", "a sum: %s", tri_status_text(st));
  TRI_CHECK(tri_p2p_need(cudaMemcpyAsync(host, buf, bytes, cudaMemcpyDeviceToHost, stream), "the device", err));
  TRI_CHECK(finish(c, err));
  for (size_t i = 0; i < count; i++) {
    float want = 0;
    for (int r = 0; r < c->size; r++) want += addend(r, i);
    if (host[i] != want) return tri_fail(err, TRI_UNSUPPORTED, "all_reduce", "a sum over peers' memory came out wrong");
  }
  return st;
}

/* Words of a message: some are those of an empty place. */
enum { CHECKED_WORDS = 4099 };
static uint32_t word_of(int rank, size_t i) {
  return i % 5 ? (uint32_t)i * 2654435761u ^ (uint32_t)rank : UINT32_MAX - (uint32_t)rank;
}

/* Twice, so that both halves of the memory are used. */
static tri_status check_gather(tri_comm *c, void *buf, uint32_t *host, tri_error *err) {
  const size_t bytes = CHECKED_WORDS * sizeof *host, all = (size_t)c->size * bytes;
  char *recv = (char *)buf + all;
  cudaStream_t stream = tri_p2p_stream(c);
  for (size_t i = 0; i < CHECKED_WORDS; i++) host[i] = word_of(c->rank, i);
  TRI_CHECK(tri_p2p_need(cudaMemcpyAsync(buf, host, bytes, cudaMemcpyHostToDevice, stream), "the device", err));
  for (int i = 0; i < 2; i++) {
    tri_status st = tri_p2p_gather(c, TRI_P2P_ONE_SHOT, buf, recv, bytes);
    if (st != TRI_OK) return tri_fail(err, TRI_UNSUPPORTED, "all_gather", "a gather: %s", tri_status_text(st));
  }
  TRI_CHECK(tri_p2p_need(cudaMemcpyAsync(host, recv, all, cudaMemcpyDeviceToHost, stream), "the device", err));
  TRI_CHECK(finish(c, err));
  for (size_t i = 0; i < (size_t)c->size * CHECKED_WORDS; i++)
    if (host[i] != word_of((int)(i / CHECKED_WORDS), i % CHECKED_WORDS))
      return tri_fail(err, TRI_UNSUPPORTED, "all_gather", "a message over peers' memory came out wrong");
  return TRI_OK;
}

tri_status tri_p2p_check(tri_comm *c, float *buf, tri_error *err) {
  float *host = tri_malloc(tri_p2p_size(TRI_P2P_SIZES - 1), 1);
  tri_status st = host ? TRI_OK : tri_fail(err, TRI_NO_MEMORY, "all_reduce", "no memory");
  for (int w = 0; st == TRI_OK && w < TRI_P2P_LIBRARY; w++)
    st = check_algorithm(c, (tri_p2p_algorithm)w, buf, host, err);
  if (st == TRI_OK) st = check_gather(c, buf, (uint32_t *)host, err);
  tri_free(host);
  return st;
}

/* ---- times ---- */

struct measuring {
  tri_comm *c, *host;
  cudaStream_t stream;
  float *buf;
  cudaEvent_t start, stop;
  cudaGraphExec_t calls;
  cudaError_t failure; /* the first */
};

static const char *const algorithm_names[TRI_P2P_ALGORITHMS] = {"one shot", "two shots", "NCCL"};

/* Keeps what the device said first. */
static tri_status lost(struct measuring *m, cudaError_t e) {
  if (m->failure == cudaSuccess) m->failure = e;
  return TRI_DEVICE_LOST;
}

/* Before whatever the devices do together: where one rank cannot continue, none does. NCCL's kernels would wait for
 * it without end, and the host with them. */
static tri_status agree(const struct measuring *m, tri_status st) { return tri_comm_agree(m->host, st); }

/* CALLS sums in one graph: launches of single kernels would measure the host. */
static tri_status record(struct measuring *m, tri_p2p_algorithm algorithm, size_t count) {
  cudaGraph_t graph = NULL;
  tri_status st = TRI_OK;
  cudaError_t e = cudaStreamBeginCapture(m->stream, cudaStreamCaptureModeThreadLocal);
  if (e != cudaSuccess) return lost(m, e);
  for (int i = 0; i < CALLS && st == TRI_OK; i++) st = tri_p2p_sum(m->c, algorithm, m->buf, count);
  e = cudaStreamEndCapture(m->stream, &graph);
  if (e == cudaSuccess && st == TRI_OK) e = cudaGraphInstantiate(&m->calls, graph, 0);
  if (graph) cudaGraphDestroy(graph);
  return e == cudaSuccess ? st : lost(m, e);
}

/* The previous sum makes the devices begin together. */
static tri_status replay(struct measuring *m, double *us) {
  cudaStream_t s = m->stream;
  float ms = 0;
  TRI_CHECK(tri_p2p_sum(m->c, TRI_P2P_ONE_SHOT, m->buf, 1));
  cudaError_t e = cudaEventRecord(m->start, s);
  if (e == cudaSuccess) e = cudaGraphLaunch(m->calls, s);
  if (e == cudaSuccess) e = cudaEventRecord(m->stop, s);
  if (e == cudaSuccess) e = cudaStreamSynchronize(s);
  if (e == cudaSuccess) e = cudaEventElapsedTime(&ms, m->start, m->stop);
  if (e != cudaSuccess) return lost(m, e);
  *us = (double)ms * 1000 / CALLS;
  return TRI_OK;
}

/* The best of a few: what lies above it is noise of others. All ranks come here together, and leave with one verdict.
 */
static tri_status time_algorithm(struct measuring *m, tri_p2p_algorithm algorithm, size_t count, double *us) {
  tri_status st = tri_p2p_sum(m->c, algorithm, m->buf, count); /* NCCL connects at the first call of a kind */
  cudaError_t e = st == TRI_OK ? cudaStreamSynchronize(m->stream) : cudaSuccess;
  if (e != cudaSuccess) st = lost(m, e);
  if (st == TRI_OK) st = record(m, algorithm, count);
  st = agree(m, st);
  for (int i = 0; i < REPEATS && st == TRI_OK; i++) {
    double each = 0;
    st = agree(m, replay(m, &each));
    if (i && (i == 1 || each < *us)) *us = each; /* the first one warms up */
  }
  if (m->calls) cudaGraphExecDestroy(m->calls);
  m->calls = NULL;
  return st;
}

tri_status tri_p2p_measure(tri_comm *c, float *buf, tri_p2p_figures *out, tri_error *err) {
  struct measuring m = {.c = c, .host = tri_p2p_impl_of(c)->host, .stream = tri_p2p_stream(c), .buf = buf};
  cudaError_t e = cudaMemsetAsync(buf, 0, tri_p2p_size(TRI_P2P_SIZES - 1), m.stream); /* sums of sums overflow */
  if (e == cudaSuccess) e = cudaEventCreate(&m.start);
  if (e == cudaSuccess) e = cudaEventCreate(&m.stop);
  tri_status st = agree(&m, e == cudaSuccess ? TRI_OK : lost(&m, e));
  const char *what = "events";
  size_t bytes = 0;
  for (int i = 0; i < TRI_P2P_SIZES; i++)
    for (int w = 0; w < TRI_P2P_ALGORITHMS && st == TRI_OK; w++) {
      bytes = tri_p2p_size(i);
      what = algorithm_names[w];
      if (tri_p2p_fits(c, (tri_p2p_algorithm)w, bytes / sizeof *buf))
        st = time_algorithm(&m, (tri_p2p_algorithm)w, bytes / sizeof *buf, &out->us[i][w]);
    }
  if (m.start) cudaEventDestroy(m.start);
  if (m.stop) cudaEventDestroy(m.stop);
  if (st == TRI_OK) return finish(c, err);
  cudaGetLastError();
  return tri_fail(err, TRI_UNSUPPORTED, "all_reduce", "measuring %zu bytes by %s: %s (%s)", bytes, what,
                  tri_status_text(st), m.failure == cudaSuccess ? "another rank" : cudaGetErrorName(m.failure));
}
