/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of attention on tensor cores (FlashAttention-2's arrangement, Dao 2023): tiles of 16-bit keys and
 * values that pass through shared memory, and a warp's 16 rows of queries with their running maximum, sum and weighted
 * values. Scores never leave the registers. Queries are rounded to the keys' type, as are the weights before the
 * values; sums and the softmax are float32. */
#ifndef TRI_KERNELS_CUDA_ATTENTION_TILES_CUH
#define TRI_KERNELS_CUDA_ATTENTION_TILES_CUH

#include "kernels/cuda/attention/attention.cuh"
#include "kernels/cuda/device/fast_math.cuh"
#include "kernels/cuda/device/mma.cuh"

enum { TILE_WARPS = 4, TILE_THREADS = TILE_WARPS * WARP, MAX_DEPTH = 16, STAGES = 2 };
#define LOG2E 1.44269504f

/* Sizes of a tile for heads of DEPTH * 16 elements. A row of a tile has CHUNKS pieces, whose places are exchanged so
 * that eight rows of one column lie in different banks. */
template <int DEPTH> struct shape {
  static constexpr int LARGE = DEPTH <= 8 ? 16 : 32, CHUNKS = DEPTH <= 4 ? 8 : LARGE, KEYS = DEPTH <= 8 ? 64 : 32;
  static constexpr int TILE = KEYS * CHUNKS * PIECE; /* elements */
  static constexpr size_t BYTES = (size_t)STAGES * 2 * TILE * 2;
};

template <int DEPTH> __device__ static inline int place(int row, int chunk) {
  return (row * shape<DEPTH>::CHUNKS + (chunk ^ (row & 7))) * PIECE;
}

/* A key that fetch leaves alone; where there is none it puts zeros. */
enum { NO_KEY = -1, LATER = -2 };

/* Returns true where keys may be read before the wait but for those that the step may write: of single tokens only few
 * may be. Chunks of a step may see all keys of others. */
static inline bool has_early_keys(const tri_attention_args &a) {
  return a.causal && a.batch->max_query <= 1 && !a.batch->is_chunk;
}
/* Returns true where a step of single tokens may write a key of a sequence: that of its own token, which is the last
 * one that it sees, or the last one of a block, which another sequence may fill (tri_batch). */
__device__ static inline bool may_be_new(const tri_attention_args &a, int key, int own) {
  return key == own || (key + 1) % a.kv.block_size == 0;
}

/* Writes the offsets of a tile's keys, one for each row. */
template <int KEYS>
__device__ static inline void locate(const tri_attention_args &a, const int32_t *kv_blocks, int kv_head, int key0,
                                     int end, int64_t *offsets) {
  int row = threadIdx.x;
  if (row < KEYS) offsets[row] = key0 + row < end ? (int64_t)kv_offset(a.kv, kv_blocks, key0 + row, kv_head) : NO_KEY;
}

/* Begins the copies of a tile of keys and one of values, 16 bytes a thread at a time; the caller commits them.
 * Neighbouring threads have neighbouring pieces of a row. The pieces after a head's end are zeros: they are multiplied,
 * too. */
template <typename T, int DEPTH>
__device__ static inline void fetch(const tri_attention_args &a, const int64_t *offsets, T *k, T *v) {
  constexpr int CHUNKS = DEPTH * 2, KEYS = shape<DEPTH>::KEYS;
  int pieces = a.kv.head_dim / PIECE;
#pragma unroll
  for (int i = 0; i < KEYS * CHUNKS / TILE_THREADS; i++) {
    int at = i * TILE_THREADS + (int)threadIdx.x, row = at / CHUNKS, chunk = at % CHUNKS;
    int64_t offset = offsets[row];
    if (offset == LATER) continue;
    bool there = offset >= 0 && chunk < pieces;
    size_t from = there ? (size_t)offset + (size_t)(chunk * PIECE) : 0;
    copy_async(k + place<DEPTH>(row, chunk), (const T *)a.kv.k + from, there);
    copy_async(v + place<DEPTH>(row, chunk), (const T *)a.kv.v + from, there);
  }
}

/* A lane's part of 16 rows: rows lane / 4 and + 8. max is the row's, in units of log 2; sum has the lane's own columns
 * alone, and is added over the row's four lanes at the end. */
template <int DEPTH> struct rows_state { float max[2], sum[2], out[DEPTH * 2][4]; };

/* Computes the scores of KEYS keys; k: the first one's row, a multiple of 8. Along the keys inside: a sum then waits
 * for its last addition only after all others have had one. Of few keys there are too few of them, and each has two. */
template <typename T, int DEPTH, int KEYS>
__device__ static inline void scores(float (&s)[KEYS / 8][4], const uint32_t (&q)[DEPTH][4], const T *k) {
  constexpr int CHAINS = KEYS <= 16 ? 2 : 1;
  int lane = threadIdx.x % WARP, row = lane / 16 * 8 + lane % 8, half = lane / 8 % 2;
  float sums[CHAINS][KEYS / 8][4] = {};
#pragma unroll
  for (int d = 0; d < DEPTH; d++) {
#pragma unroll
    for (int n = 0; n < KEYS / 16; n++) {
      uint32_t r[4];
      load_matrices(r, k + place<DEPTH>(n * 16 + row, 2 * d + half));
      mma<T>::run(sums[d % CHAINS][2 * n], q[d], r[0], r[1]);
      mma<T>::run(sums[d % CHAINS][2 * n + 1], q[d], r[2], r[3]);
    }
  }
#pragma unroll
  for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
    for (int i = 0; i < 4; i++) s[n][i] = CHAINS > 1 ? sums[0][n][i] + sums[CHAINS - 1][n][i] : sums[0][n][i];
}

/* The keys that a token may see, and the position it looks from. */
struct sight {
  int position, first, last, head;
};

/* Scales and masks; scores are in units of log 2 afterwards. whole: every row sees all keys of the tile. */
template <int KEYS, bool PLAIN>
__device__ static inline void finish_scores(const tri_attention_args &a, float (&s)[KEYS / 8][4], int key0,
                                            const sight (&sees)[2], bool whole) {
  int column = threadIdx.x % 4 * 2;
  float factor = a.scale * LOG2E;
#pragma unroll
  for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
    for (int i = 0; i < 4; i++) {
      int key = key0 + n * 8 + column + i % 2;
      const sight &t = sees[i / 2];
      float x = PLAIN ? s[n][i] * factor : adjust(a, s[n][i], t.head, key, t.position) * LOG2E;
      s[n][i] = whole || (key >= t.first && key <= t.last) ? x : -INFINITY;
    }
}

/* One step of the online softmax: scores become weights, and the results so far are scaled to the new maximum. A row
 * that has seen no key yet has the maximum -infinity, which as the base would make its weights not a number. */
template <int DEPTH, int KEYS> __device__ static inline void soften(rows_state<DEPTH> &r, float (&s)[KEYS / 8][4]) {
#pragma unroll
  for (int h = 0; h < 2; h++) {
    float top = r.max[h];
#pragma unroll
    for (int n = 0; n < KEYS / 8; n++) top = fmaxf(top, fmaxf(s[n][2 * h], s[n][2 * h + 1]));
    top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
    top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
    float base = top == -INFINITY ? 0 : top, old = power_of_two(r.max[h] - base), sum = 0;
    r.max[h] = top;
#pragma unroll
    for (int n = 0; n < KEYS / 8; n++) {
      s[n][2 * h] = power_of_two(s[n][2 * h] - base);
      s[n][2 * h + 1] = power_of_two(s[n][2 * h + 1] - base);
      sum += s[n][2 * h] + s[n][2 * h + 1];
    }
    r.sum[h] = r.sum[h] * old + sum;
#pragma unroll
    for (int d = 0; d < DEPTH * 2; d++) {
      r.out[d][2 * h] *= old;
      r.out[d][2 * h + 1] *= old;
    }
  }
}

/* Adds weights times values. Two results of the scores' MMA, packed, are the A operand of this one (FlashAttention-2),
 * so that weights stay in registers. */
template <typename T, int DEPTH, int KEYS>
__device__ static inline void add_values(rows_state<DEPTH> &r, const float (&s)[KEYS / 8][4], const T *v) {
  int lane = threadIdx.x % WARP, row = lane % 16, half = lane / 16;
#pragma unroll
  for (int n = 0; n < KEYS / 16; n++) {
    const float *low = s[2 * n], *high = s[2 * n + 1];
    const uint32_t p[4] = {mma<T>::pack(low[0], low[1]), mma<T>::pack(low[2], low[3]), mma<T>::pack(high[0], high[1]),
                           mma<T>::pack(high[2], high[3])};
#pragma unroll
    for (int d = 0; d < DEPTH; d++) {
      uint32_t m[4];
      load_transposed(m, v + place<DEPTH>(n * 16 + row, 2 * d + half));
      mma<T>::run(r.out[2 * d], p, m[0], m[1]);
      mma<T>::run(r.out[2 * d + 1], p, m[2], m[3]);
    }
  }
}

template <int DEPTH> __device__ static inline void clear(rows_state<DEPTH> &r) {
#pragma unroll
  for (int h = 0; h < 2; h++) {
    r.max[h] = -INFINITY;
    r.sum[h] = 0;
  }
#pragma unroll
  for (int d = 0; d < DEPTH * 2; d++)
#pragma unroll
    for (int i = 0; i < 4; i++) r.out[d][i] = 0;
}

#endif
