/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels for prompts on Hopper share these: the order of their work, rings of buffers, queries, and the softmax of
 * scores in a warpgroup's registers. */
#ifndef TRI_KERNELS_CUDA_ATTENTION_PREFILL_CUH
#define TRI_KERNELS_CUDA_ATTENTION_PREFILL_CUH

#include "kernels/cuda/attention/split_plan.h"
#include "kernels/cuda/attention/tiles.cuh"
#include "kernels/cuda/device/hopper.cuh"

enum { ROW = 64 }; /* 16-bit elements of 128 bytes */

/* ---- what copies need ---- */

/* Boxes lie within KV blocks and fill tiles. */
static inline bool has_boxes(const tri_kv_layer *kv) {
  int size = kv->block_size;
  return size >= 16 && (size & (size - 1)) == 0 && (int64_t)kv->num_blocks * kv->num_kv_heads * size <= INT32_MAX;
}

static inline int log_of(int power_of_two) {
  int n = 0;
  while (1 << n < power_of_two) n++;
  return n;
}

static inline bool is_aligned(const void *p) { return (uintptr_t)p % 16 == 0; }

/* ---- rings ---- */

/* The place of number n in a ring of COUNT buffers, and the parity with which its barrier's phase ends. */
template <int COUNT> __device__ static inline unsigned place_in(unsigned n) { return n % COUNT; }
template <int COUNT> __device__ static inline unsigned parity_in(unsigned n) { return n / COUNT % 2; }

/* By one lane of each warp: the barrier counts warps. The lane's own reads have ended, and the caller sees to the
 * others' (an MMA wait, or __syncwarp). */
__device__ static inline void release(barrier *empty, bool is_used) {
  if (threadIdx.x % WARP == 0 && is_used) barrier_arrive(empty);
}

/* ---- work ---- */

/* A block does this at a time: a tile of tokens with the query heads of one KV head, or some of them. */
struct prompt_item {
  tri_attention_tile tile;
  int unit, begin, tiles; /* unit: which heads; tiles: of keys, which begin at `begin`, a multiple of a box */
};

/* Items are ordered by their length. Each block takes as many, to and fro, so that the sums of their lengths are alike;
 * a counter of what has been taken would do no better and cost its latency. */
__device__ static inline int item_number(int round) {
  int blocks = gridDim.x, block = blockIdx.x;
  return round * blocks + (round % 2 ? blocks - 1 - block : block);
}

/* KEYS: of a tile. Into how many parts it is cut is read when it is done: until then registers are short. */
template <int KEYS>
__device__ static inline prompt_item item_of(const tri_attention_tile *tiles, int num_units, int box, int number) {
  prompt_item i;
  const int4 *from = (const int4 *)(tiles + number / num_units);
  int4 low = from[0], high = from[1];
  static_assert(sizeof(tri_attention_tile) == 3 * sizeof(int4), "read in pieces");
  i.tile = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w, 1, -1, {}};
  i.unit = number % num_units;
  i.begin = i.tile.first & -box;
  i.tiles = (i.tile.end - i.begin + KEYS - 1) / KEYS;
  return i;
}

/* ---- queries ---- */

/* Rounds 64 rows of a part of the queries, which has 32 elements of each, to one half of the rows that MMAs read.
 * Both are swizzled. By the threads of a warpgroup. */
template <typename T>
__device__ static inline void round_part(const float (*part)[ROW / 2], uint16_t (*to)[ROW], int half) {
#pragma unroll
  for (int i = 0; i < 2; i++) {
    int piece = i * WARPGROUP + (int)threadIdx.x % WARPGROUP, row = piece / 4, column = piece % 4;
    float4 low = *(const float4 *)(part[row] + ((2 * column) ^ (row & 7)) * 4);
    float4 high = *(const float4 *)(part[row] + ((2 * column + 1) ^ (row & 7)) * 4);
    *(uint4 *)(to[row] + ((half * 4 + column) ^ (row & 7)) * PIECE) =
        make_uint4(mma<T>::pack(low.x, low.y), mma<T>::pack(low.z, low.w), mma<T>::pack(high.x, high.y),
                   mma<T>::pack(high.z, high.w));
  }
}

/* Descriptions of operands count in 16 bytes. */
__device__ constexpr uint64_t behind(int bytes) { return (uint64_t)(bytes / 16); }

/* ---- the softmax ---- */

/* A lane's two rows: their tokens' numbers in the tile, and their state. Maxima are in the scores' own unit. */
struct prompt_rows {
  int token[2];
  float max[2], sum[2];
};

/* A lane has the columns 8 i + 2 (lane % 4) and the next of an accumulator (hopper.cuh). Both bounds are taken relative
 * to the first of them, so that the inner loop compares constants. */
template <int COUNT>
__device__ static inline void mask_scores(const tri_attention_args &a, const prompt_item &item, float (&s)[COUNT],
                                          int key0, const prompt_rows &r) {
  int column = key0 + (int)threadIdx.x % 4 * 2, context = item.tile.context;
#pragma unroll
  for (int h = 0; h < 2; h++) {
    int position = item.tile.position + r.token[h], first = tri_first_key(a.window, a.chunked, position) - column,
        last = min(tri_last_key(a.causal, a.window, position, context), context - 1) - column;
#pragma unroll
    for (int i = 0; i < COUNT / 4; i++)
#pragma unroll
      for (int j = 0; j < 2; j++)
        if (8 * i + j < first || 8 * i + j > last) s[4 * i + 2 * h + j] = -INFINITY;
  }
}

/* Scores become weights. factor: of a score's unit in log 2. old: what the results so far are to be multiplied with.
 * Chains of maxima and sums are short: few warps are there to hide them. */
template <int COUNT>
__device__ static inline void soften_scores(float (&s)[COUNT], prompt_rows &r, float factor, float (&old)[2]) {
#pragma unroll
  for (int h = 0; h < 2; h++) {
    float low = r.max[h], high = -INFINITY;
#pragma unroll
    for (int i = 0; i < COUNT / 4; i++) {
      low = fmaxf(low, s[4 * i + 2 * h]);
      high = fmaxf(high, s[4 * i + 2 * h + 1]);
    }
    float top = fmaxf(low, high);
    top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
    top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
    float base = top == -INFINITY ? 0 : top * factor, first = 0, second = 0;
    old[h] = power_of_two(r.max[h] * factor - base);
    r.max[h] = top;
#pragma unroll
    for (int i = 0; i < COUNT / 4; i++) {
      s[4 * i + 2 * h] = power_of_two(s[4 * i + 2 * h] * factor - base);
      s[4 * i + 2 * h + 1] = power_of_two(s[4 * i + 2 * h + 1] * factor - base);
      first += s[4 * i + 2 * h];
      second += s[4 * i + 2 * h + 1];
    }
    r.sum[h] = r.sum[h] * old[h] + (first + second);
  }
}

/* The result's layout of one MMA is the A operand's of the next once pairs are packed: weights never leave the
 * registers. */
template <typename T, int COUNT>
__device__ static inline void pack_weights(uint32_t (&p)[COUNT / 8][4], const float (&s)[COUNT]) {
#pragma unroll
  for (int i = 0; i < COUNT / 8; i++)
#pragma unroll
    for (int j = 0; j < 4; j++) p[i][j] = mma<T>::pack(s[8 * i + 2 * j], s[8 * i + 2 * j + 1]);
}

template <int COUNT> __device__ static inline void scale_results(float (&out)[COUNT], const float (&factor)[2]) {
#pragma unroll
  for (int i = 0; i < COUNT; i++) out[i] *= factor[i / 2 % 2];
}

#endif
