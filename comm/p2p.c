#include "comm/p2p.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "comm/nccl.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/reduce.h"
#include "runtime/base/mem.h"

enum { SETUP_MS = 5000, LEAST_THREADS = 128 };

struct impl {
  tri_comm *host, *rest;
  tri_backend *backend;
  tri_cuda_reduce reduce;
  int threads, blocks;
  bool opened[TRI_CUDA_REDUCE_RANKS];
  tri_p2p_figures figures;
  tri_p2p_way ways[TRI_P2P_SIZES];
};

static struct impl *impl_of(const tri_comm *c) { return c->impl; }
static cudaStream_t stream_of(const tri_comm *c) { return tri_cuda_of(impl_of(c)->backend)->stream; }

static tri_status fail(tri_comm *c, tri_status st) {
  int none = TRI_OK;
  atomic_compare_exchange_strong(&c->error, &none, (int)st);
  return tri_comm_query(c);
}

static tri_status begin(tri_comm *c) {
  atomic_fetch_add_explicit(&c->sequence, 1, memory_order_relaxed);
  return tri_comm_query(c);
}

static tri_status noted(tri_comm *c, tri_status st) { return st == TRI_OK ? st : fail(c, st); }

/* ---- sums ---- */

/* Small messages in small blocks over many processors, large ones with all the threads there are. */
static tri_cuda_reduce_shape shape_of(const tri_comm *c, tri_p2p_way way, size_t count) {
  const struct impl *p = impl_of(c);
  tri_cuda_reduce_shape s = {p->threads, p->blocks, way == TRI_P2P_TWO_SHOTS};
  size_t vectors = (count + 3) / 4;
  if (s.two_shots) vectors = (vectors + (size_t)c->size - 1) / (size_t)c->size;
  while (s.threads < TRI_CUDA_REDUCE_THREADS && (size_t)s.threads * (size_t)s.blocks < vectors) s.threads *= 2;
  return s;
}

bool tri_p2p_fits(const tri_comm *c, tri_p2p_way way, size_t count) {
  return way == TRI_P2P_LIBRARY || tri_cuda_reduce_fits(&impl_of(c)->reduce, shape_of(c, way, count), count);
}

tri_p2p_way tri_p2p_way_of(const tri_comm *c, size_t count) {
  for (int k = 0; k < TRI_P2P_SIZES; k++)
    if (count * sizeof(float) <= tri_p2p_size(k)) return impl_of(c)->ways[k];
  return TRI_P2P_LIBRARY;
}

tri_status tri_p2p_sum(tri_comm *c, tri_p2p_way way, float *buf, size_t count) {
  struct impl *p = impl_of(c);
  tri_status st = begin(c);
  if (st != TRI_OK || !count) return st;
  if (way == TRI_P2P_LIBRARY) return noted(c, p->rest->ops->all_reduce(p->rest, buf, count, NULL));
  p->reduce.limit_ns = (uint64_t)c->timeout_ms * 1000000;
  tri_cuda_reduce_launch(stream_of(c), &p->reduce, shape_of(c, way, count), buf, count);
  return cudaGetLastError() == cudaSuccess ? TRI_OK : fail(c, TRI_DEVICE_LOST);
}

static tri_status p2p_all_reduce(tri_comm *c, float *buf, size_t count, tri_stream *stream) {
  (void)stream;
  return tri_p2p_sum(c, tri_p2p_way_of(c, count), buf, count);
}

/* ---- what the other communicator does ---- */

static tri_status p2p_all_gather(tri_comm *c, const void *send, void *recv, size_t bytes, tri_stream *stream) {
  tri_comm *rest = impl_of(c)->rest;
  tri_status st = begin(c);
  return st == TRI_OK ? noted(c, rest->ops->all_gather(rest, send, recv, bytes, stream)) : st;
}

static tri_status p2p_broadcast(tri_comm *c, void *buf, size_t bytes, int root, tri_stream *stream) {
  tri_comm *rest = impl_of(c)->rest;
  tri_status st = begin(c);
  return st == TRI_OK ? noted(c, rest->ops->broadcast(rest, buf, bytes, root, stream)) : st;
}

static tri_status p2p_barrier(tri_comm *c) {
  tri_comm *rest = impl_of(c)->rest;
  tri_status st = begin(c);
  return st == TRI_OK ? noted(c, rest->ops->barrier(rest)) : st;
}

static tri_status p2p_isend(tri_comm *c, const void *buf, size_t bytes, int peer, int tag, tri_comm_req *req,
                            tri_stream *stream) {
  tri_comm *rest = impl_of(c)->rest;
  tri_status st = begin(c);
  return st == TRI_OK ? noted(c, rest->ops->isend(rest, buf, bytes, peer, tag, req, stream)) : st;
}

static tri_status p2p_wait(tri_comm *c, tri_comm_req *req) {
  tri_comm *rest = impl_of(c)->rest;
  tri_status st = tri_comm_query(c);
  return st == TRI_OK ? noted(c, rest->ops->wait(rest, req)) : st;
}

static tri_status p2p_recv(tri_comm *c, void *buf, size_t bytes, int peer, int tag, tri_stream *stream) {
  tri_comm *rest = impl_of(c)->rest;
  tri_status st = begin(c);
  return st == TRI_OK ? noted(c, rest->ops->recv(rest, buf, bytes, peer, tag, stream)) : st;
}

static tri_status p2p_try_recv(tri_comm *c, void *buf, size_t cap, int peer, int tag, size_t *bytes) {
  (void)buf, (void)cap, (void)peer, (void)tag, (void)bytes;
  return fail(c, TRI_UNSUPPORTED);
}

static tri_status p2p_split(tri_comm *c, int color, int key, tri_comm **out) {
  (void)color, (void)key, (void)out;
  return fail(c, TRI_UNSUPPORTED);
}

static tri_status p2p_poll(tri_comm *c) {
  tri_status st = tri_comm_query(c);
  return st == TRI_OK ? noted(c, tri_comm_poll(impl_of(c)->rest)) : st;
}

static void p2p_abort(tri_comm *c) {
  tri_comm *rest = impl_of(c)->rest;
  fail(c, TRI_ABORTED);
  rest->ops->abort(rest);
}

static void close_peers(tri_comm *c) {
  struct impl *p = impl_of(c);
  cudaStreamSynchronize(stream_of(c));
  for (int r = 0; r < c->size; r++)
    if (p->opened[r]) cudaIpcCloseMemHandle(p->reduce.memory[r]);
}

/* Memory that the others have closed, if they are still there. */
static void release(tri_comm *c) {
  struct impl *p = impl_of(c);
  cudaFree(p->reduce.memory[c->rank]);
  cudaFree(p->reduce.rounds);
  cudaGetLastError(); /* nothing here is worth telling */
  tri_free(p);
  cudaFreeHost(c);
}

static void p2p_destroy(tri_comm *c) {
  tri_comm *rest = impl_of(c)->rest, *host = impl_of(c)->host;
  bool sound = tri_comm_query(c) == TRI_OK && tri_comm_query(host) == TRI_OK;
  /* Who is gone must not be waited for: neither by our kernels, which look at the error, nor by the other one's. */
  if (!sound) fail(c, TRI_ABORTED);
  if (!sound) rest->ops->abort(rest), rest->ops->destroy(rest);
  close_peers(c);
  if (sound) host->ops->barrier(host);
  release(c);
  if (sound) rest->ops->destroy(rest);
}

static const tri_comm_ops p2p_ops = {
    .name = "p2p",
    .all_reduce = p2p_all_reduce,
    .all_gather = p2p_all_gather,
    .broadcast = p2p_broadcast,
    .barrier = p2p_barrier,
    .isend = p2p_isend,
    .wait = p2p_wait,
    .recv = p2p_recv,
    .try_recv = p2p_try_recv,
    .split = p2p_split,
    .poll = p2p_poll,
    .abort = p2p_abort,
    .destroy = p2p_destroy,
};

/* ---- set-up ---- */

static tri_status need(cudaError_t e, const char *what, tri_error *err) {
  if (e == cudaSuccess) return TRI_OK;
  cudaGetLastError(); /* it does not stick */
  return tri_fail(err, TRI_UNSUPPORTED, "all_reduce", "%s: %s", what, cudaGetErrorString(e));
}

/* All ranks learn whether all can, and why one cannot: none goes on alone. TRI_UNSUPPORTED on every rank, then. */
static tri_status agree(tri_comm *host, const tri_error *mine, tri_error *err) {
  struct verdict {
    int32_t failed;
    char why[156];
  } verdict = {.failed = mine->status != TRI_OK}, all[TRI_CUDA_REDUCE_RANKS];
  snprintf(verdict.why, sizeof verdict.why, "%.155s", mine->message);
  tri_status st = host->ops->all_gather(host, &verdict, all, sizeof verdict, NULL);
  if (st != TRI_OK) return tri_fail(err, st, "comm", "the ranks cannot reach each other: %s", tri_status_text(st));
  for (int r = 0; r < host->size; r++)
    if (all[r].failed) return tri_fail(err, TRI_UNSUPPORTED, "all_reduce", "rank %d: %.155s", r, all[r].why);
  return TRI_OK;
}

/* What the others must know of a rank. */
struct card {
  char boot[40]; /* identifies the host's kernel since it was started */
  int32_t processors;
  cudaIpcMemHandle_t handle;
};

/* This rank's side: memory, emptied, that others can open. The communicator lies where the device sees its error. */
static tri_status make(tri_backend *be, tri_comm *host, tri_comm **out, struct card *card, tri_error *err) {
  tri_comm *c = NULL;
  struct impl *p = tri_calloc(1, sizeof *p);
  tri_status st = p ? TRI_OK : tri_fail(err, TRI_NO_MEMORY, "all_reduce", "no memory");
  if (st == TRI_OK) st = need(cudaHostAlloc((void **)&c, sizeof *c, cudaHostAllocMapped), "no pinned memory", err);
  if (st != TRI_OK) {
    tri_free(p);
    return st;
  }
  memset(c, 0, sizeof *c);
  *c = (tri_comm){.ops = &p2p_ops,
                  .rank = host->rank,
                  .size = host->size,
                  .policy = host->policy,
                  .timeout_ms = SETUP_MS,
                  .impl = p};
  p->host = host, p->backend = be;
  p->reduce.rank = c->rank, p->reduce.size = c->size;
  *out = c;
  cudaStream_t stream = stream_of(c);
  char **memory = &p->reduce.memory[c->rank];
  size_t counters = TRI_CUDA_REDUCE_BLOCKS * sizeof *p->reduce.rounds;
  TRI_TRY(need(cudaHostGetDevicePointer((void **)&p->reduce.error, (void *)&c->error, 0), "no mapped memory", err));
  TRI_TRY(need(cudaMalloc((void **)memory, TRI_CUDA_REDUCE_BYTES), "no device memory", err));
  TRI_TRY(need(cudaMalloc((void **)&p->reduce.rounds, counters), "no device memory", err));
  TRI_TRY(need(cudaMemsetAsync(*memory, TRI_CUDA_REDUCE_EMPTY, TRI_CUDA_REDUCE_BYTES, stream), "the device", err));
  TRI_TRY(need(cudaMemsetAsync(p->reduce.rounds, 0, counters, stream), "the device", err));
  TRI_TRY(need(tri_cuda_reduce_load(c->size), "its kernels", err));
  TRI_TRY(need(cudaStreamSynchronize(stream), "the device", err));
  TRI_TRY(need(cudaIpcGetMemHandle(&card->handle, *memory), "device memory cannot be shared", err));
  int device = tri_cuda_of(be)->device, fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
  if (fd < 0 || read(fd, card->boot, sizeof card->boot - 1) <= 0)
    st = tri_fail(err, TRI_UNSUPPORTED, "all_reduce", "the host has no boot_id");
  if (fd >= 0) close(fd);
  if (st == TRI_OK)
    st = need(cudaDeviceGetAttribute(&card->processors, cudaDevAttrMultiProcessorCount, device), "the device", err);
cleanup:
  return st;
}

/* Every block must be on its device at once: those of the smallest device count. */
static tri_status open_peers(tri_comm *c, const struct card *mine, tri_error *err) {
  struct impl *p = impl_of(c);
  struct card all[TRI_CUDA_REDUCE_RANKS];
  tri_status st = p->host->ops->all_gather(p->host, mine, all, sizeof *mine, NULL);
  if (st != TRI_OK) return tri_fail(err, st, "comm", "the ranks cannot reach each other: %s", tri_status_text(st));
  p->threads = LEAST_THREADS, p->blocks = TRI_CUDA_REDUCE_BLOCKS;
  for (int r = 0; r < c->size; r++) {
    if (memcmp(all[r].boot, all[0].boot, sizeof all[r].boot)) /* the same cards everywhere, the same verdict */
      return tri_fail(err, TRI_UNSUPPORTED, "all_reduce", "ranks 0 and %d are on different hosts", r);
    if (all[r].processors < p->blocks) p->blocks = all[r].processors;
  }
  tri_error here = {0};
  for (int r = 0; r < c->size && here.status == TRI_OK; r++) {
    if (r == c->rank) continue;
    cudaError_t e = cudaIpcOpenMemHandle((void **)&p->reduce.memory[r], all[r].handle, cudaIpcMemLazyEnablePeerAccess);
    p->opened[r] = e == cudaSuccess;
    need(e, "a peer's memory cannot be opened", &here);
  }
  return agree(p->host, &here, err);
}

static void choose(struct impl *p) {
  for (int k = 0; k < TRI_P2P_SIZES; k++) {
    const double *us = p->figures.us[k];
    p->ways[k] = TRI_P2P_LIBRARY;
    for (int w = 0; w < TRI_P2P_LIBRARY; w++)
      if (us[w] > 0 && us[w] < us[p->ways[k]]) p->ways[k] = (tri_p2p_way)w;
  }
}

/* "..., 128K 4.8 - 7.3, ..." */
static void describe(tri_comm *c) {
  const struct impl *p = impl_of(c);
  int n = snprintf(c->about, sizeof c->about, "all-reduce over %d devices, us (one shot, two, NCCL)", c->size);
  for (int k = 0; k < TRI_P2P_SIZES; k++) {
    n += snprintf(c->about + n, sizeof c->about - (size_t)n, "%s %zuK", k ? "," : ":", tri_p2p_size(k) >> 10);
    for (int w = 0; w < TRI_P2P_WAYS; w++)
      n += p->figures.us[k][w] > 0 ? snprintf(c->about + n, sizeof c->about - (size_t)n, " %.1f", p->figures.us[k][w])
                                   : snprintf(c->about + n, sizeof c->about - (size_t)n, " -");
  }
}

/* The slowest rank's figures count, on all ranks the same. */
static tri_status choose_together(tri_comm *c, tri_error *err) {
  struct impl *p = impl_of(c);
  tri_p2p_figures all[TRI_CUDA_REDUCE_RANKS];
  tri_status st = p->host->ops->all_gather(p->host, &p->figures, all, sizeof *all, NULL);
  if (st != TRI_OK) return tri_fail(err, st, "comm", "the ranks cannot reach each other: %s", tri_status_text(st));
  for (int r = 0; r < c->size; r++)
    for (int k = 0; k < TRI_P2P_SIZES; k++)
      for (int w = 0; w < TRI_P2P_WAYS; w++)
        if (all[r].us[k][w] > p->figures.us[k][w]) p->figures.us[k][w] = all[r].us[k][w];
  choose(p);
  describe(c);
  return TRI_OK;
}

/* With the memory open on all sides: whether it works, and how fast. */
static tri_status try_out(tri_comm *c, tri_error *err) {
  struct impl *p = impl_of(c);
  float *buf = NULL;
  tri_error here = {0};
  tri_status st;
  need(cudaMalloc((void **)&buf, tri_p2p_size(TRI_P2P_SIZES - 1)), "no device memory", &here);
  TRI_TRY(agree(p->host, &here, err));
  tri_p2p_check(c, p->backend, buf, &here);
  TRI_TRY(agree(p->host, &here, err));
  tri_p2p_measure(c, p->backend, buf, &p->figures, &here);
  TRI_TRY(agree(p->host, &here, err));
  TRI_TRY(choose_together(c, err));
cleanup:
  cudaFree(buf);
  return st;
}

tri_status tri_comm_p2p_create(tri_backend *be, tri_comm *host, tri_comm *rest, tri_comm **out, tri_error *err) {
  tri_comm *c = NULL;
  struct card card = {0};
  tri_error here = {0};
  tri_status st;
  if (host->size < 2 || host->size > TRI_CUDA_REDUCE_RANKS)
    return tri_fail(err, TRI_UNSUPPORTED, "all_reduce", "groups of 2 to %d devices, not %d", TRI_CUDA_REDUCE_RANKS,
                    host->size);
  make(be, host, &c, &card, &here);
  TRI_TRY(agree(host, &here, err));
  impl_of(c)->rest = rest;
  TRI_TRY(open_peers(c, &card, err));
  TRI_TRY(try_out(c, err));
  c->timeout_ms = host->timeout_ms;
  *out = c;
  return TRI_OK;
cleanup:
  if (c) close_peers(c);
  if (st == TRI_UNSUPPORTED) host->ops->barrier(host); /* all come here */
  if (c) release(c);
  return st;
}

tri_status tri_comm_device_create(tri_backend *be, tri_comm *host, bool sums, tri_comm **out, tri_error *err) {
  tri_comm *nccl = NULL;
  tri_error why = {0};
  tri_status st = tri_comm_nccl_create(be, host, &nccl, err);
  if (st != TRI_OK) return st;
  *out = nccl;
  if (!sums || be->no_peer_sums) return TRI_OK;
  st = tri_comm_p2p_create(be, host, nccl, out, &why);
  if (st == TRI_OK) return TRI_OK;
  if (st == TRI_UNSUPPORTED) {
    *out = nccl;
    snprintf(nccl->about, sizeof nccl->about, "all-reduce by NCCL alone: %.200s", why.message);
    return TRI_OK;
  }
  *out = NULL;
  nccl->ops->abort(nccl);
  nccl->ops->destroy(nccl);
  return tri_fail(err, st, why.field, "%s", why.message);
}

void tri_p2p_tune(tri_comm *c, int threads, int blocks) {
  impl_of(c)->threads = threads;
  impl_of(c)->blocks = blocks;
}

int tri_p2p_threads(const tri_comm *c) { return impl_of(c)->threads; }
int tri_p2p_blocks(const tri_comm *c) { return impl_of(c)->blocks; }
