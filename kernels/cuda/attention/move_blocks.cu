/* SPDX-License-Identifier: Apache-2.0 */
/* KV blocks between a device's cache and pinned memory of the host. A kernel reads and writes that memory itself:
 * pieces of a block and a layer are too short for copies by the driver, which reach 3 GB/s with 8 KiB and 22 with 32.
 */
#include "kernels/cuda/device/device.cuh"
#include "kernels/ops.h"

/* A few blocks fill the link and leave the other multiprocessors to other kernels. */
enum { MOVES = 256, BLOCKS = 16, THREADS = 512, AT_ONCE = 4 };

/* Pairs of one launch. */
struct moves {
  int2 pairs[MOVES]; /* the cache's block, the pool's */
  int count;
};

/* The addresses of blocks, in words. */
template <typename T> struct places {
  T *keys, *values; /* values NULL: a latent cache */
  T *pool;
  size_t words, stride; /* of a block, from a layer to the next */
  int layers;           /* of a block in the pool */
};

/* The layers of one turn: first, first + step and so on. Steps that swap in or out spread a block's layers over several
 * turns. */
struct turn {
  int first, step, count;
};

/* All loads of a round are under way before its first store. */
template <typename T> __device__ static void copy_words(T *to, const T *from, size_t words) {
  for (size_t first = threadIdx.x; first < words; first += THREADS * AT_ONCE) {
    T round[AT_ONCE];
#pragma unroll
    for (int k = 0; k < AT_ONCE; k++)
      if (first + k * THREADS < words) round[k] = from[first + k * THREADS];
#pragma unroll
    for (int k = 0; k < AT_ONCE; k++)
      if (first + k * THREADS < words) to[first + k * THREADS] = round[k];
  }
}

/* Copies keys and values of each pair and layer of a turn. Words of 16 or 2 bytes. 16 blocks of 512 threads, which
 * continue in steps of the grid. */
template <typename T>
__global__ static void __launch_bounds__(THREADS)
    move_kernel(const __grid_constant__ moves m, const __grid_constant__ places<T> p, turn t, bool out) {
  int parts = p.values ? 2 : 1, per_pair = parts * t.count;
  for (int piece = blockIdx.x; piece < m.count * per_pair; piece += gridDim.x) {
    int2 pair = m.pairs[piece / per_pair];
    int at = piece % per_pair, part = at % parts, layer = t.first + at / parts * t.step;
    T *in_cache = (part ? p.values : p.keys) + layer * p.stride + pair.x * p.words;
    T *in_pool = p.pool + (((size_t)pair.y * p.layers + layer) * parts + part) * p.words;
    copy_words(out ? in_pool : in_cache, out ? in_cache : in_pool, p.words);
  }
}

template <typename T>
static void move_turn(cudaStream_t stream, const tri_move_blocks_args *a, const places<T> &p, turn t) {
  for (int first = 0; first < a->num_pairs; first += MOVES) {
    moves m = {};
    m.count = a->num_pairs - first < MOVES ? a->num_pairs - first : MOVES;
    for (int i = 0; i < m.count; i++) m.pairs[i] = make_int2(a->pairs[2 * (first + i)], a->pairs[2 * (first + i) + 1]);
    move_kernel<T><<<BLOCKS, THREADS, 0, stream>>>(m, p, t, a->out);
  }
}

template <typename T> static void move(cudaStream_t stream, const tri_move_blocks_args *a, T *pool, size_t bytes) {
  places<T> p = {(T *)a->kv.k,      a->kv.v_dim ? NULL : (T *)a->kv.v, pool,
                 bytes / sizeof(T), a->layer_stride / sizeof(T),       a->num_layers};
  int turns = a->num_turns ? a->num_turns : 1;
  for (int i = 0; i < turns; i++) {
    int first = (a->turn + i) % turns;
    if (first < a->num_layers) move_turn(stream, a, p, {first, turns, (a->num_layers - first + turns - 1) / turns});
  }
}

void tri_cuda_move_blocks(cudaStream_t stream, const tri_move_blocks_args *a, void *) {
  size_t element = a->kv.dtype == TRI_F32 ? 4 : 2;
  size_t bytes = (size_t)a->kv.num_kv_heads * (size_t)a->kv.block_size * (size_t)a->kv.head_dim * element;
  void *pool;
  if (!a->num_pairs || cudaHostGetDevicePointer(&pool, a->host, 0) != cudaSuccess) return; /* the caller sees why */
  if (bytes % sizeof(uint4))
    move(stream, a, (uint16_t *)pool, bytes);
  else
    move(stream, a, (uint4 *)pool, bytes);
}
