/* SPDX-License-Identifier: Apache-2.0 */
/* Sums over the devices of a host: the two algorithms whose protocol exchange/all_reduce.h describes.
 *
 * A thread works alone: it sends its vectors to the threads of the same number on the other devices, and waits for
 * theirs. No thread reads what another one of its block received, so that nothing but the count of rounds needs a
 * barrier. Sums are added in the order of the ranks, the own addend among them, whichever comes first: every rank gets
 * the same bits. */
#include "kernels/cuda/exchange/rounds.cuh"

__device__ static inline uint4 sendable(float4 v) {
  return sendable(make_uint4(__float_as_uint(v.x), __float_as_uint(v.y), __float_as_uint(v.z), __float_as_uint(v.w)));
}

__device__ static inline float4 floats(uint4 v) {
  return make_float4(__uint_as_float(v.x), __uint_as_float(v.y), __uint_as_float(v.z), __uint_as_float(v.w));
}

/* ---- the summed buffer, whose address and length need not be multiples of a vector ---- */

/* The buffer that is summed, in place. */
struct span {
  float *data;
  int count;
  bool aligned;
};

/* Returns the i-th vector with no EMPTY word in it; what lies after the buffer's end is zero. */
__device__ static inline uint4 vector_of(const span &b, int i) {
  int at = 4 * i, left = b.count - at;
  if (b.aligned && left >= 4) return sendable(load4(b.data + at));
  float4 v = make_float4(b.data[at], 0, 0, 0);
  if (left > 1) v.y = b.data[at + 1];
  if (left > 2) v.z = b.data[at + 2];
  if (left > 3) v.w = b.data[at + 3];
  return sendable(v);
}

__device__ static inline void store_vector(const span &b, int i, float4 v) {
  int at = 4 * i, left = b.count - at;
  if (b.aligned && left >= 4) {
    store4(b.data + at, v);
    return;
  }
  b.data[at] = v.x;
  if (left > 1) b.data[at + 1] = v.y;
  if (left > 2) b.data[at + 2] = v.z;
  if (left > 3) b.data[at + 3] = v.w;
}

/* ---- sums ---- */

template <int RANKS> __device__ static inline float4 sum_of(const uint4 (&v)[RANKS]) {
  float4 s = floats(v[0]);
#pragma unroll
  for (int k = 1; k < RANKS; k++) {
    float4 x = floats(v[k]);
    s.x += x.x;
    s.y += x.y;
    s.z += x.z;
    s.w += x.w;
  }
  return s;
}

/* Own addend and those that came. */
template <int RANKS>
__device__ static inline bool receive_sum(const tri_cuda_reduce &r, uint4 *from, int room, uint4 own, float4 *sum,
                                          patience *p) {
  uint4 v[RANKS];
#pragma unroll
  for (int k = 0; k < RANKS; k++) v[k] = own;
  if (!receive<RANKS>(r, from, room, RANKS, v, p)) return false;
  *sum = sum_of<RANKS>(v);
  return true;
}

/* ---- kernels ---- */

/* Everything goes to everybody: one latency, (ranks - 1) times the bytes. A thread has the vectors i = first, first +
 * stride, ...; its k-th one lies at k * blockDim.x + threadIdx.x of the sender's room. buf [count]. At most 128 blocks,
 * all on the device at once, of up to 512 threads. */
template <int RANKS>
__global__ __launch_bounds__(TRI_CUDA_REDUCE_THREADS) static void one_shot(const __grid_constant__ tri_cuda_reduce r,
                                                                           const __grid_constant__ span buf,
                                                                           int vectors, int room) {
  let_next_begin();
  wait_for_previous();
  const uint32_t round = r.rounds[blockIdx.x];
  if (round == ENDED) return;
  const int threads = (int)blockDim.x, stride = threads * (int)gridDim.x, me = (int)threadIdx.x;
  const int first = (int)blockIdx.x * threads + me;
  for (int i = first, slot = r.rank * room + me; i < vectors; i += stride, slot += threads) {
    uint4 v = vector_of(buf, i);
#pragma unroll
    for (int d = 1; d < RANKS; d++) send(r, round, (r.rank + d) % RANKS, slot, v); /* not all to the same at once */
  }
  count_round(r, round);
  patience p = {};
  uint4 *from = half_of(r.memory[r.rank], round) + me;
  for (int i = first; i < vectors; i += stride, from += threads) {
    float4 sum;
    if (!receive_sum<RANKS>(r, from, room, vector_of(buf, i), &sum, &p)) return;
    store_vector(buf, i, sum);
  }
}

/* How many parts have an i-th vector: the last ones may be shorter, or empty. */
__device__ static inline int parts_with(int i, int part, int vectors) { return (vectors - i + part - 1) / part; }

/* Rank s sums the s-th part of the vectors, `part` long, and sends the sums on: 2 (ranks - 1) / ranks times the bytes,
 * two latencies. A thread has the same places of all parts, so that threads need not wait for each other. A half has a
 * room per rank for addends, then one per rank for sums. Shapes and grid are as in one_shot. */
template <int RANKS>
__global__ __launch_bounds__(TRI_CUDA_REDUCE_THREADS) static void two_shots(const __grid_constant__ tri_cuda_reduce r,
                                                                            const __grid_constant__ span buf,
                                                                            int vectors, int part, int room) {
  let_next_begin();
  wait_for_previous();
  const uint32_t round = r.rounds[blockIdx.x];
  if (round == ENDED) return;
  const int threads = (int)blockDim.x, stride = threads * (int)gridDim.x, me = (int)threadIdx.x;
  const int first = (int)blockIdx.x * threads + me, mine = r.rank * part;
  uint4 *const half = half_of(r.memory[r.rank], round);
  uint4 v[RANKS];
  for (int i = first, slot = r.rank * room + me; i < part; i += stride, slot += threads) {
    int until = parts_with(i, part, vectors);
#pragma unroll
    for (int k = 0; k < RANKS; k++)
      if (k != r.rank && k < until) v[k] = vector_of(buf, k * part + i);
#pragma unroll
    for (int k = 0; k < RANKS; k++)
      if (k != r.rank && k < until) send(r, round, k, slot, v[k]);
  }
  count_round(r, round);
  patience p = {};
  for (int i = first, slot = me; i < part && mine + i < vectors; i += stride, slot += threads) {
    float4 sum;
    if (!receive_sum<RANKS>(r, half + slot, room, vector_of(buf, mine + i), &sum, &p)) return;
    for (int d = 1; d < RANKS; d++) send(r, round, (r.rank + d) % RANKS, (RANKS + r.rank) * room + slot, sendable(sum));
    store_vector(buf, mine + i, sum);
  }
  for (int i = first, slot = RANKS * room + me; i < part; i += stride, slot += threads) {
    int until = parts_with(i, part, vectors);
#pragma unroll
    for (int k = 0; k < RANKS; k++) v[k] = make_uint4(0, 0, 0, 0);
    if (!receive<RANKS>(r, half + slot, room, until, v, &p)) return;
#pragma unroll
    for (int k = 0; k < RANKS; k++)
      if (k != r.rank && k < until) store_vector(buf, k * part + i, floats(v[k]));
  }
}

/* ---- host ---- */

bool tri_cuda_reduce_fits(const tri_cuda_reduce *r, tri_cuda_reduce_shape shape, size_t count) {
  if (count > TRI_CUDA_REDUCE_BYTES / sizeof(float)) return false;
  size_t rooms = (size_t)r->size * (shape.two_shots ? 2 : 1);
  return rooms * (size_t)cut_of(r->size, shape, count).room * sizeof(uint4) <= TRI_CUDA_REDUCE_HALF_BYTES;
}

template <int RANKS>
static void launch(cudaStream_t stream, const tri_cuda_reduce *r, tri_cuda_reduce_shape shape, span buf) {
  cut c = cut_of(RANKS, shape, (size_t)buf.count);
  unsigned blocks = (unsigned)c.blocks, threads = (unsigned)shape.threads;
  if (shape.two_shots)
    launch_overlapped(two_shots<RANKS>, dim3(blocks), threads, 0, stream, *r, buf, c.vectors, c.part, c.room);
  else
    launch_overlapped(one_shot<RANKS>, dim3(blocks), threads, 0, stream, *r, buf, c.vectors, c.room);
}

template <int RANKS> static cudaError_t load() {
  cudaFuncAttributes a;
  cudaError_t e = cudaFuncGetAttributes(&a, one_shot<RANKS>);
  return e == cudaSuccess ? cudaFuncGetAttributes(&a, two_shots<RANKS>) : e;
}

void tri_cuda_reduce_launch(cudaStream_t stream, const tri_cuda_reduce *r, tri_cuda_reduce_shape shape, float *buf,
                            size_t count) {
  span b = {buf, (int)count, (uintptr_t)buf % sizeof(uint4) == 0};
  switch (r->size) {
#define X(n)                                                                                                           \
  case n: launch<n>(stream, r, shape, b); break;
    RANK_COUNTS(X)
#undef X
  }
}

cudaError_t tri_cuda_reduce_load(int size) {
  switch (size) {
#define X(n)                                                                                                           \
  case n: return load<n>();
    RANK_COUNTS(X)
#undef X
  }
  return cudaErrorInvalidValue;
}
