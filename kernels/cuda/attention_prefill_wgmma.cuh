/* The parts of prompt attention on Hopper (FlashAttention-3's arrangement, Shah et al. 2024): a block's shared memory,
 * and what its warpgroups do with a tile of keys. Scores, weights and results stay in registers; queries, keys and
 * values lie in shared memory as rows of 128 bytes, swizzled. */
#ifndef TRI_KERNELS_CUDA_ATTENTION_PREFILL_WGMMA_CUH
#define TRI_KERNELS_CUDA_ATTENTION_PREFILL_WGMMA_CUH

#include "kernels/cuda/attention_prompts.cuh"

/* Sizes of a block for heads of up to D elements: D is 64, 128 or 256. Rows are pairs of a token and a query head of
 * the same KV head. Queries in float32 come in parts of 32 elements; of heads above 128 few parts at a time have room.
 * Short heads spend as long on powers as on products: a third warpgroup hides more of it. */
template <int D> struct hopper {
  static constexpr int CONSUMERS = D == 64 ? 3 : 2, ROWS = 64 * CONSUMERS, THREADS = (1 + CONSUMERS) * WARPGROUP;
  static constexpr int KEYS = D <= 128 ? 128 : 64, STAGES = 2, CHUNKS = D / 64;
  static constexpr int PARTS = D / 32, SLOTS = D <= 128 ? PARTS : 2;
  static constexpr int PRODUCER_REGISTERS = CONSUMERS == 3 ? 32 : 24;
  static constexpr int CONSUMER_REGISTERS = CONSUMERS == 3 ? 160 : 240;
  static constexpr bool TAKES_TURNS = D == 64; /* products of one warpgroup at a time: the others soften meanwhile */
  static constexpr unsigned TILE_BYTES = KEYS * D * 2;
};

template <int D> struct hopper_room {
  using x = hopper<D>;
  uint16_t q[x::CHUNKS][x::ROWS][ROW];
  uint16_t k[x::STAGES][x::CHUNKS][x::KEYS][ROW], v[x::STAGES][x::CHUNKS][x::KEYS][ROW];
  float parts[x::SLOTS][x::ROWS][ROW / 2];
  barrier full_q[x::SLOTS], empty_q[x::SLOTS];
  barrier full_k[x::STAGES], empty_k[x::STAGES], full_v[x::STAGES], empty_v[x::STAGES];
};

/* Barriers of warpgroups: those in which they wait for their turn, and each one's own. */
enum { TURN = 1, OWN = 4 };

/* The maps of queries, keys and values, and what their boxes hold. */
struct prompt_maps {
  tri_tensor_map q, k, v;
  int tokens, box; /* of a tile; keys of one copy: a power of two */
  bool narrow;     /* queries are of 16 bits, as keys are */
};

/* ---- queries ---- */

/* Rounds the warpgroup's rows of float32 queries, part by part as they come, to where products read them. `part`: the
 * number of the next one. */
template <typename T, int D>
__device__ static inline void take_queries(hopper_room<D> &room, unsigned &part, int group) {
  using x = hopper<D>;
  named_sync(OWN + group, WARPGROUP); /* the last product with the old ones has ended in all warps */
#pragma unroll 1
  for (int p = 0; p < x::PARTS; p++, part++) {
    unsigned at = place_in<x::SLOTS>(part);
    barrier_wait(&room.full_q[at], parity_in<x::SLOTS>(part));
    round_part<T>(&room.parts[at][group * 64], &room.q[p / 2][group * 64], p % 2);
    __syncwarp();
    release(&room.empty_q[at], true);
  }
  show_shared_to_engines();
  named_sync(OWN + group, WARPGROUP);
}

/* ---- products ---- */

/* s = q k'. */
template <typename T, int D>
__device__ static inline void begin_scores(float (&s)[hopper<D>::KEYS / 2], uint64_t q, uint64_t k) {
  using x = hopper<D>;
#pragma unroll
  for (int i = 0; i < D / 16; i++)
    wgmma<T, x::KEYS>::run(s, q + behind(i / 4 * x::ROWS * 128 + i % 4 * 32),
                           k + behind(i / 4 * x::KEYS * 128 + i % 4 * 32), i > 0);
}

/* out += p v. */
template <typename T, int D>
__device__ static inline void begin_values(float (&out)[D / 2], const uint32_t (&p)[hopper<D>::KEYS / 16][4],
                                           uint64_t v) {
#pragma unroll
  for (int i = 0; i < hopper<D>::KEYS / 16; i++) wgmma<T, D, true>::run(out, p[i], v + behind(i * 16 * 128), true);
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

/* Scores that are more than products: in units of log 2 afterwards. The tangent is exact to 2e-7: an error of a score
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

#endif
