/* SPDX-License-Identifier: Apache-2.0 */
/* All-reduce over peers' memory, or by NCCL: the algorithm and the launch's shape for a message. */
#include "comm/device/p2p_impl.h"

/* Small messages in small blocks over many processors, large ones with all the threads there are. */
static tri_cuda_reduce_shape shape_of(const tri_comm *c, tri_p2p_algorithm algorithm, size_t count) {
  const tri_p2p_impl *p = tri_p2p_impl_of(c);
  tri_cuda_reduce_shape s = {p->threads, p->blocks, algorithm == TRI_P2P_TWO_SHOTS};
  size_t vectors = (count + 3) / 4;
  if (s.two_shots) vectors = (vectors + (size_t)c->size - 1) / (size_t)c->size;
  while (s.threads < TRI_CUDA_REDUCE_THREADS && (size_t)s.threads * (size_t)s.blocks < vectors) s.threads *= 2;
  return s;
}

bool tri_p2p_fits(const tri_comm *c, tri_p2p_algorithm algorithm, size_t count) {
  return algorithm == TRI_P2P_LIBRARY ||
         tri_cuda_reduce_fits(&tri_p2p_impl_of(c)->reduce, shape_of(c, algorithm, count), count);
}

tri_p2p_algorithm tri_p2p_algorithm_of(const tri_comm *c, size_t count) {
  return tri_p2p_fastest(&tri_p2p_impl_of(c)->figures, count * sizeof(float));
}

tri_status tri_p2p_sum(tri_comm *c, tri_p2p_algorithm algorithm, float *buf, size_t count) {
  tri_p2p_impl *p = tri_p2p_impl_of(c);
  tri_status st = tri_comm_begin(c);
  if (st != TRI_OK || !count) return st;
  if (algorithm == TRI_P2P_LIBRARY) return tri_comm_note(c, tri_comm_all_reduce(c->fallback, buf, count));
  p->reduce.limit_ns = (uint64_t)c->cfg.timeout_ms * 1000000;
  tri_cuda_reduce_launch(tri_p2p_stream(c), &p->reduce, shape_of(c, algorithm, count), buf, count);
  return cudaGetLastError() == cudaSuccess ? TRI_OK : tri_comm_fail(c, TRI_DEVICE_LOST);
}

/* ---- all-gather ---- */

/* Own messages are of words. */
static bool has_words(const void *send, const void *recv, size_t bytes) {
  return ((uintptr_t)send | (uintptr_t)recv | bytes) % sizeof(uint32_t) == 0;
}

bool tri_p2p_gather_fits(const tri_comm *c, const void *send, const void *recv, size_t bytes) {
  return has_words(send, recv, bytes) && bytes < TRI_CUDA_REDUCE_BYTES &&
         tri_p2p_fits(c, TRI_P2P_ONE_SHOT, tri_cuda_gather_floats(bytes / sizeof(uint32_t)));
}

/* The kernel does what a sum of one shot does but for adding, of a third more bytes, and NCCL's takes no less than its
 * sum of as many bytes: there is no need to measure gathers, too. */
tri_p2p_algorithm tri_p2p_gather_algorithm_of(const tri_comm *c, const void *send, const void *recv, size_t bytes) {
  const tri_p2p_figures *f = &tri_p2p_impl_of(c)->figures;
  const size_t carried = tri_cuda_gather_floats(bytes / sizeof(uint32_t)) * sizeof(float);
  if (!tri_p2p_gather_fits(c, send, recv, bytes)) return TRI_P2P_LIBRARY;
  double own = tri_p2p_us(f, TRI_P2P_ONE_SHOT, carried);
  return own > 0 && own < tri_p2p_us(f, TRI_P2P_LIBRARY, bytes) ? TRI_P2P_ONE_SHOT : TRI_P2P_LIBRARY;
}

tri_status tri_p2p_gather(tri_comm *c, tri_p2p_algorithm algorithm, const void *send, void *recv, size_t bytes) {
  tri_p2p_impl *p = tri_p2p_impl_of(c);
  const size_t words = bytes / sizeof(uint32_t);
  tri_status st = tri_comm_begin(c);
  if (st != TRI_OK || !bytes) return st;
  if (algorithm == TRI_P2P_LIBRARY) return tri_comm_note(c, tri_comm_all_gather(c->fallback, send, recv, bytes));
  p->reduce.limit_ns = (uint64_t)c->cfg.timeout_ms * 1000000;
  tri_cuda_gather_launch(tri_p2p_stream(c), &p->reduce, shape_of(c, TRI_P2P_ONE_SHOT, tri_cuda_gather_floats(words)),
                         send, recv, words);
  return cudaGetLastError() == cudaSuccess ? TRI_OK : tri_comm_fail(c, TRI_DEVICE_LOST);
}

void tri_p2p_tune(tri_comm *c, int threads, int blocks) {
  tri_p2p_impl_of(c)->threads = threads;
  tri_p2p_impl_of(c)->blocks = blocks;
}

int tri_p2p_threads(const tri_comm *c) { return tri_p2p_impl_of(c)->threads; }
int tri_p2p_blocks(const tri_comm *c) { return tri_p2p_impl_of(c)->blocks; }
