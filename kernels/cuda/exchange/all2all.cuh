/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels of the exchange of rows share this: where things lie in the boxes, and waiting for them. */
#ifndef TRI_KERNELS_CUDA_EXCHANGE_ALL2ALL_CUH
#define TRI_KERNELS_CUDA_EXCHANGE_ALL2ALL_CUH

#include "kernels/cuda/exchange/all2all.h"
#include "kernels/cuda/exchange/peers.cuh"

enum { AHEAD = 4 }; /* vectors of a thread on their way at a time */

/* ---- boxes ---- */

/* Returns the number of a row's place in one of two halves: [half][source][row], as all2all.h has it for tables and
 * rows. */
__device__ static inline size_t place_of(const tri_cuda_all2all &e, uint32_t half, int source, int row) {
  return ((size_t)half * (size_t)e.cfg.ranks + (size_t)source) * (size_t)e.cfg.max_rows + (size_t)row;
}

/* Returns where `owner` finds the table of a row of `source`. */
__device__ static inline uint4 *table_box(const tri_cuda_all2all &e, int owner, uint32_t round, int source, int row) {
  return (uint4 *)e.memory[owner] + place_of(e, round % 2, source, row) * (size_t)e.table_vectors;
}

/* Returns where it finds the row itself: after the tables. */
__device__ static inline uint4 *row_box(const tri_cuda_all2all &e, int owner, uint32_t round, int source, int row) {
  uint4 *rows = (uint4 *)e.memory[owner] + place_of(e, 2, 0, 0) * (size_t)e.table_vectors;
  return rows + place_of(e, round % 2, source, row) * (size_t)e.row_vectors;
}

/* Returns where it finds what `source` gives back of its row: after the rows. */
__device__ static inline uint4 *result_box(const tri_cuda_all2all &e, int owner, int source, int row) {
  return row_box(e, owner, 0, 0, 0) + place_of(e, 2, source, row) * (size_t)e.row_vectors;
}

/* ---- waiting ---- */

/* Fills v with what comes to `count` places, `step` vectors apart, which are empty afterwards. False: it does not come.
 * All of them are looked at before any is judged, so that a miss costs one latency, not one for each. KEEPS: what has
 * come is not looked at again, which spares bandwidth where others need it, and has more instructions. */
template <bool KEEPS>
__device__ static inline bool receive(const tri_cuda_all2all &e, uint4 *from, int step, int count, uint4 (&v)[AHEAD],
                                      patience *p) {
  bool all;
#pragma unroll
  for (int j = 0; j < AHEAD; j++)
    if (KEEPS) v[j] = nothing();
  do {
    all = true;
#pragma unroll
    for (int j = 0; j < AHEAD; j++)
      if (j < count && !(KEEPS && has_come(v[j]))) v[j] = look(from + j * step);
#pragma unroll
    for (int j = 0; j < AHEAD; j++) all &= (j >= count) | has_come(v[j]);
  } while (!all && may_go_on(e.error, e.limit_ns, p));
  if (!all) e.rounds->over = 1;
#pragma unroll
  for (int j = 0; j < AHEAD; j++)
    if (all && j < count) make_empty(from + j * step);
  return all;
}

/* ---- slots ---- */

__device__ static inline bool has_slot(const tri_cuda_all2all &e, int rank, int32_t slot) {
  return slot >= e.cfg.first_slot[rank] && slot < e.cfg.end_slot[rank];
}

/* Returns a bit for each rank that has one of a row's slots; by a warp. */
__device__ static inline unsigned ranks_with(const tri_cuda_all2all &e, const int32_t *slots) {
  unsigned ranks = 0;
  for (int c = threadIdx.x % WARP; c < e.cfg.top_k; c += WARP)
    for (int r = 0; r < e.cfg.ranks; r++) ranks |= (unsigned)has_slot(e, r, slots[c]) << r;
  return __reduce_or_sync(ALL_LANES, ranks);
}

/* ---- launches ---- */

/* Many rows are sent by some blocks and received by the others, so that what comes is taken while more is sent. Stores
 * to a peer wait for the link in their multiprocessor, and a multiprocessor that does nothing but send leaves its loads
 * unused: there are two blocks for each, and the first half of all sends, the second receives. Blocks come onto a
 * device in their order, one to each multiprocessor before a second one, so that a multiprocessor that was free gets
 * one of both kinds.
 *
 * All of them are on the device at once: their launch bounds promise room for two on a multiprocessor and leave some to
 * a kernel that runs concurrently, which a peer may wait for. If a block is late all the same, since another kernel has
 * its place, no rank waits for ever: blocks that send wait for no peer, and they come first.
 *
 * A row is sent in pieces of PIECE vectors, each by a warp, and the warps take them in the order of the rows: the first
 * rows are there long before the last are sent. PAUSE_NS is between two looks for what has not come, which take
 * bandwidth from what does. */
enum { MANY_THREADS = 256, PIECE = AHEAD * WARP, PAUSE_NS = 250 };

static inline int many_blocks(int num_sms) { return 2 * num_sms; }

static inline int pieces_of(int vectors) { return (vectors + PIECE - 1) / PIECE; }

/* Returns whether the rows that a rank may send take the link longer than they take the kernels for few rows. */
static inline bool is_large(const tri_cuda_all2all *e, int stride) {
  enum { LARGE = 3 << 20 };
  return (int64_t)stride * (e->cfg.ranks - 1) * e->row_vectors * 16 > LARGE;
}

/* Cuts each of `rows` into parts of some vectors, about `wanted` of all rows, none shorter than `least` but a row's
 * last. *parts: of a row; *length: vectors of a part. */
static inline void cut_rows(int vectors, int rows, int wanted, int least, int *parts, int *length) {
  int n = rows < wanted ? wanted / rows : 1, most = (vectors + least - 1) / least;
  if (n > most) n = most;
  *length = (vectors + n - 1) / n;
  *parts = (vectors + *length - 1) / *length;
}

static inline bool are_whole(const void *p, size_t bytes) { return (uintptr_t)p % 16 == 0 && bytes % 16 == 0; }

template <typename... Args> static inline cudaError_t load_kernel(void (*kernel)(Args...)) {
  cudaFuncAttributes a;
  return cudaFuncGetAttributes(&a, kernel);
}

#endif
