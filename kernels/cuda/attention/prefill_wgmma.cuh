/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of prompt attention on Hopper (FlashAttention-3's arrangement, Shah et al. 2024): a block's shared memory,
 * and what its warpgroups do with a tile of keys. Scores, weights and results stay in registers; queries, keys and
 * values lie in shared memory as rows of 128 bytes, swizzled. */
#ifndef TRI_KERNELS_CUDA_ATTENTION_PREFILL_WGMMA_CUH
#define TRI_KERNELS_CUDA_ATTENTION_PREFILL_WGMMA_CUH

#include "kernels/cuda/attention/prefill.cuh"

/* Sizes of a block (S below) for heads of up to D elements: D is 64, 128 or 256. Rows are pairs of a token and a query
 * head of the same KV head. NARROW: queries have the keys' type. In float32 they come in parts of 32 elements, of which
 * those of heads above 128 have room for few at a time; without them more tiles of keys are on their way. Short heads
 * spend as long on powers as on MMAs: a third warpgroup hides more of it. */
template <int SIZE, bool IS_NARROW> struct hopper {
  static constexpr int D = SIZE;
  static constexpr bool NARROW = IS_NARROW;
  static constexpr int CONSUMERS = D == 64 ? 3 : 2, ROWS = 64 * CONSUMERS, THREADS = (1 + CONSUMERS) * WARPGROUP;
  static constexpr int KEYS = D <= 128 ? 128 : 64, CHUNKS = D / 64, STAGES = NARROW && D <= 128 ? 3 : 2;
  static constexpr int PARTS = NARROW ? 1 : D / 32, SLOTS = NARROW || D <= 128 ? PARTS : 2;
  static constexpr int PRODUCER_REGISTERS = CONSUMERS == 3 ? 32 : 24;
  static constexpr int CONSUMER_REGISTERS = CONSUMERS == 3 ? 160 : 240;
  static constexpr unsigned TILE_BYTES = KEYS * D * 2;
};

template <typename S, bool NARROW = S::NARROW> struct query_parts { float at[S::SLOTS][S::ROWS][ROW / 2]; };
template <typename S> struct query_parts<S, true> {};

template <typename S> struct hopper_room {
  uint16_t q[S::CHUNKS][S::ROWS][ROW];
  uint16_t k[S::STAGES][S::CHUNKS][S::KEYS][ROW], v[S::STAGES][S::CHUNKS][S::KEYS][ROW];
  query_parts<S> parts;
  barrier full_q[S::SLOTS], empty_q[S::SLOTS];
  barrier full_k[S::STAGES], empty_k[S::STAGES], full_v[S::STAGES], empty_v[S::STAGES];
};

/* Each warpgroup's own barrier: this number and those after it. */
enum { OWN = 1 };

/* The maps of queries, keys and values, and what their boxes hold. */
struct prompt_maps {
  tri_tensor_map q, k, v;
  int tokens;            /* of a tile */
  int log_box, log_size; /* keys of one copy and of a KV block: powers of two */
};

/* ---- queries ---- */

/* Rounds the warpgroup's rows of float32 queries, part by part as they come, to where MMAs read them. `part`: the
 * number of the next one. */
template <typename T, typename S>
__device__ static inline void take_queries(hopper_room<S> &room, unsigned &part, int group) {
  named_sync(OWN + group, WARPGROUP); /* the last MMA with the old ones has ended in all warps */
#pragma unroll 1
  for (int p = 0; p < S::PARTS; p++, part++) {
    unsigned at = place_in<S::SLOTS>(part);
    barrier_wait(&room.full_q[at], parity_in<S::SLOTS>(part));
    round_part<T>(&room.parts.at[at][group * 64], &room.q[p / 2][group * 64], p % 2);
    __syncwarp();
    release(&room.empty_q[at], true);
  }
  show_shared_to_engines();
  named_sync(OWN + group, WARPGROUP);
}

/* ---- MMAs ---- */

/* s = q k'. */
template <typename T, typename S>
__device__ static inline void begin_scores(float (&s)[S::KEYS / 2], uint64_t q, uint64_t k) {
#pragma unroll
  for (int i = 0; i < S::D / 16; i++)
    wgmma<T, S::KEYS>::run(s, q + behind(i / 4 * S::ROWS * 128 + i % 4 * 32),
                           k + behind(i / 4 * S::KEYS * 128 + i % 4 * 32), i > 0);
}

/* out += p v. */
template <typename T, typename S>
__device__ static inline void begin_values(float (&out)[S::D / 2], const uint32_t (&p)[S::KEYS / 16][4], uint64_t v) {
#pragma unroll
  for (int i = 0; i < S::KEYS / 16; i++) wgmma<T, S::D, true>::run(out, p[i], v + behind(i * 16 * 128), true);
}

/* ---- the softmax ---- */

/* This lane's first row of the block; the second one is eight further on. */
__device__ static inline int first_row(void) {
  int thread = (int)threadIdx.x - WARPGROUP;
  return thread / WARP * 16 + thread % WARP / 4;
}

/* Returns the query head of row h. */
__device__ static inline int head_of(const tri_attention_args &a, const prompt_item &item, const prompt_rows &r,
                                     int h) {
  return item.unit * a.heads_per_kv + first_row() + 8 * h - r.token[h] * a.heads_per_kv;
}

/* Scores that are more than MMAs: in units of log 2 afterwards. The tangent is exact to 2e-7: an error of a score
 * counts as it is, not by the score's size. CAPS, SLOPES: what there may be, as far as registers go. */
template <bool CAPS, bool SLOPES, int COUNT>
__device__ static inline void adjust_scores(const tri_attention_args &a, const prompt_item &item, float (&s)[COUNT],
                                            int key0, const prompt_rows &r) {
  if (CAPS && a.softcap > 0) {
    float inside = 2 * LOG2E * a.scale / a.softcap, outside = a.softcap * LOG2E;
#pragma unroll
    for (int i = 0; i < COUNT; i++) s[i] = outside - 2 * outside * reciprocal_of(power_of_two(s[i] * inside) + 1);
  } else {
#pragma unroll
    for (int i = 0; i < COUNT; i++) s[i] *= a.scale * LOG2E;
  }
#pragma unroll
  for (int h = 0; h < 2 && SLOPES && a.alibi_slopes; h++) {
    float slope = a.alibi_slopes[head_of(a, item, r, h)] * LOG2E;
    float first = slope * (float)(key0 + (int)threadIdx.x % 4 * 2 - item.tile.position - r.token[h]);
#pragma unroll
    for (int i = 0; i < COUNT / 4; i++) {
      s[4 * i + 2 * h] = fmaf(slope, (float)(8 * i), s[4 * i + 2 * h] + first);
      s[4 * i + 2 * h + 1] = fmaf(slope, (float)(8 * i + 1), s[4 * i + 2 * h + 1] + first);
    }
  }
}

/* ---- parts of a tile ---- */

/* The place where parts of cut tiles meet: results [part][unit][warpgroup], counters alike, of which a tile takes those
 * of its first part; zero before and after each kernel. */
struct prompt_meeting {
  float *partial;
  unsigned *counters;
};

/* Results that a warpgroup leaves of a part, as its threads have them: of each its values, then its rows' maxima and
 * sums. */
template <typename S> struct part_results {
  float4 values[S::D / 8][WARPGROUP];
  float4 rows[WARPGROUP];
};

/* Rows of a block, keys that it reads at a time, and the bytes of a part_results. */
struct tri_prompt_sizes {
  int rows, keys;
  size_t results;
};

template <typename S>
__device__ static inline void leave_results(part_results<S> &to, const prompt_rows &r, const float (&out)[S::D / 2]) {
  int thread = (int)threadIdx.x % WARPGROUP;
#pragma unroll
  for (int i = 0; i < S::D / 8; i++)
    to.values[i][thread] = make_float4(out[4 * i], out[4 * i + 1], out[4 * i + 2], out[4 * i + 3]);
  to.rows[thread] = make_float4(r.max[0], r.sum[0], r.max[1], r.sum[1]);
}

/* Returns true in the warpgroup that is the last of a tile, which then sees what all of them have left: its barriers
 * make the threads' stores the first one's to publish, and what that acquires everybody's. Nothing here branches by
 * lane: after such a branch the assembler keeps every loop ready for warps that have parted. */
__device__ static inline bool is_last_of_tile(unsigned *counter, int splits, int group) {
  unsigned before = 0, most = (unsigned)splits - 1; /* the last one's wraps to zero */
  bool first = threadIdx.x % WARPGROUP == 0;
  named_sync(OWN + group, WARPGROUP);
  asm volatile("{\n.reg .pred first;\nsetp.ne.s32 first, %3, 0;\n"
               "@first atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;\n}"
               : "+r"(before)
               : "l"(counter), "r"(most), "r"((int)first)
               : "memory");
  return any_in_group(OWN + group, WARPGROUP, first && before == most);
}

/* Puts together the parts of a tile, `pitch` results apart, in their order: the sums do not depend on which of them was
 * the last. factor: of a maximum's unit in log 2. */
template <typename S>
__device__ static inline void combine_results(const part_results<S> *from, int pitch, int splits, float factor,
                                              prompt_rows &r, float (&out)[S::D / 2]) {
  int thread = (int)threadIdx.x % WARPGROUP;
  float base[2];
#pragma unroll
  for (int h = 0; h < 2; h++) {
    r.max[h] = -INFINITY;
    r.sum[h] = 0;
  }
#pragma unroll 4
  for (int k = 0; k < splits; k++) {
    float4 x = __ldcg(&from[k * pitch].rows[thread]);
    r.max[0] = fmaxf(r.max[0], x.x);
    r.max[1] = fmaxf(r.max[1], x.z);
  }
#pragma unroll
  for (int h = 0; h < 2; h++) base[h] = r.max[h] == -INFINITY ? 0 : r.max[h] * factor;
#pragma unroll
  for (int i = 0; i < S::D / 2; i++) out[i] = 0;
#pragma unroll 1
  for (int k = 0; k < splits; k++) {
    const part_results<S> &part = from[k * pitch];
    float4 x = __ldcg(&part.rows[thread]);
    float first = power_of_two(x.x * factor - base[0]), second = power_of_two(x.z * factor - base[1]);
    r.sum[0] += x.y * first;
    r.sum[1] += x.w * second;
#pragma unroll
    for (int i = 0; i < S::D / 8; i++) {
      float4 v = __ldcg(&part.values[i][thread]);
      out[4 * i] += v.x * first;
      out[4 * i + 1] += v.y * first;
      out[4 * i + 2] += v.z * second;
      out[4 * i + 3] += v.w * second;
    }
  }
}

#endif
