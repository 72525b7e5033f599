/* The parts of prompt attention on Hopper (FlashAttention-3's arrangement, Shah et al. 2024): a block's shared memory,
 * and what its warpgroups do with a tile of keys. Scores, weights and results stay in registers; queries, keys and
 * values lie in shared memory as rows of 128 bytes, swizzled. */
#ifndef TRI_KERNELS_CUDA_ATTENTION_PREFILL_WGMMA_CUH
#define TRI_KERNELS_CUDA_ATTENTION_PREFILL_WGMMA_CUH

#include "kernels/cuda/attention_tiles.cuh"
#include "kernels/cuda/hopper.cuh"

/* Sizes of a block for heads of up to D elements: D is 64, 128 or 256. Rows are pairs of a token and a query head of
 * the same KV head. Queries in float32 come in parts of 32 elements; of heads above 128 few parts at a time have room.
 * Short heads spend as long on powers as on products: a third warpgroup hides more of it. */
template <int D> struct hopper {
  static constexpr int CONSUMERS = D == 64 ? 3 : 2, ROWS = 64 * CONSUMERS, THREADS = (1 + CONSUMERS) * WARPGROUP;
  static constexpr int KEYS = D <= 128 ? 128 : 64, STAGES = 2, CHUNKS = D / 64;
  static constexpr int PARTS = D / 32, SLOTS = D <= 128 ? PARTS : 2;
  static constexpr int PRODUCER_REGISTERS = CONSUMERS == 3 ? 32 : 24;
  static constexpr int CONSUMER_REGISTERS = CONSUMERS == 3 ? 160 : 240;
  static constexpr bool TAKES_TURNS = D <= 128; /* products of one warpgroup at a time: the others soften meanwhile */
  static constexpr unsigned TILE_BYTES = KEYS * D * 2;
};

enum { ROW = 64 }; /* 16-bit elements of 128 bytes */

template <int D> struct hopper_room {
  using x = hopper<D>;
  uint16_t q[x::CHUNKS][x::ROWS][ROW];
  uint16_t k[x::STAGES][x::CHUNKS][x::KEYS][ROW], v[x::STAGES][x::CHUNKS][x::KEYS][ROW];
  float parts[x::SLOTS][x::ROWS][ROW / 2];
  barrier full_q[x::SLOTS], empty_q[x::SLOTS];
  barrier full_k[x::STAGES], empty_k[x::STAGES], full_v[x::STAGES], empty_v[x::STAGES];
};

/* The place of number n in a ring of COUNT buffers, and the parity with which its barrier's phase ends. */
template <int COUNT> __device__ static inline unsigned place_in(unsigned n) { return n % COUNT; }
template <int COUNT> __device__ static inline unsigned parity_in(unsigned n) { return n / COUNT % 2; }

/* Barriers of warpgroups: those in which they wait for their turn, and each one's own. */
enum { TURN = 1, OWN = 4 };

__device__ static inline void release(barrier *empty, bool is_used) {
  if (threadIdx.x % WARP == 0 && is_used) barrier_arrive(empty);
}

/* ---- work ---- */

/* A block does this at a time: a tile of tokens with one KV head. */
struct prompt_item {
  tri_attention_tile tile;
  int kv_head, begin, tiles; /* of keys: they begin at `begin`, a multiple of a box */
};

/* The maps of queries, keys and values, and what their boxes hold. */
struct prompt_maps {
  tri_tensor_map q, k, v;
  int tokens, box; /* of a tile; keys of one copy: a power of two */
  bool narrow;     /* queries are of 16 bits, as keys are */
};

/* Items are ordered by their length. Each block takes as many, to and fro, so that the sums of their lengths are alike;
 * a counter of what has been taken would do no better and cost its latency. */
__device__ static inline int item_number(int round) {
  int blocks = gridDim.x, block = blockIdx.x;
  return round * blocks + (round % 2 ? blocks - 1 - block : block);
}

template <int D>
__device__ static inline prompt_item item_of(const tri_attention_tile *tiles, int num_kv_heads, int box, int number) {
  prompt_item i;
  const int4 *from = (const int4 *)(tiles + number / num_kv_heads);
  int4 low = from[0], high = from[1];
  static_assert(sizeof(tri_attention_tile) == 2 * sizeof(int4), "read in two pieces");
  i.tile = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
  i.kv_head = number % num_kv_heads;
  i.begin = i.tile.first & -box;
  i.tiles = (i.tile.end - i.begin + hopper<D>::KEYS - 1) / hopper<D>::KEYS;
  return i;
}

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
#pragma unroll
    for (int i = 0; i < 2; i++) {
      int piece = i * WARPGROUP + (int)threadIdx.x % WARPGROUP, row = group * 64 + piece / 4, column = piece % 4;
      const float *from = room.parts[at][row];
      float4 low = *(const float4 *)(from + ((2 * column) ^ (row & 7)) * 4);
      float4 high = *(const float4 *)(from + ((2 * column + 1) ^ (row & 7)) * 4);
      *(uint4 *)(room.q[p / 2][row] + ((p % 2 * 4 + column) ^ (row & 7)) * PIECE) =
          make_uint4(mma<T>::pack(low.x, low.y), mma<T>::pack(low.z, low.w), mma<T>::pack(high.x, high.y),
                     mma<T>::pack(high.z, high.w));
    }
    __syncwarp();
    release(&room.empty_q[at], true);
  }
  show_shared_to_engines();
  named_sync(OWN + group, WARPGROUP);
}

/* ---- products ---- */

/* Descriptions of operands count in 16 bytes. */
__device__ constexpr uint64_t behind(int bytes) { return (uint64_t)(bytes / 16); }

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

/* A lane's two rows: their tokens' numbers in the tile, and their state. Maxima are in the scores' own unit. */
struct prompt_rows {
  int token[2];
  float max[2], sum[2];
};

/* This lane's first row of the block; the second one is eight further on. */
__device__ static inline int first_row(void) {
  int thread = (int)threadIdx.x - WARPGROUP;
  return thread / WARP * 16 + thread % WARP / 4;
}

/* Returns the query head of row h. */
__device__ static inline int head_of(const tri_attention_args &a, const prompt_item &item, const prompt_rows &r,
                                     int h) {
  return item.kv_head * a.heads_per_kv + first_row() + 8 * h - r.token[h] * a.heads_per_kv;
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

template <int COUNT>
__device__ static inline void mask_scores(const tri_attention_args &a, const prompt_item &item, float (&s)[COUNT],
                                          int key0, const prompt_rows &r) {
  int column = key0 + (int)threadIdx.x % 4 * 2, end = item.tile.context - 1;
#pragma unroll
  for (int h = 0; h < 2; h++) {
    int last = a.causal ? item.tile.position + r.token[h] : end, first = a.window > 0 ? last - a.window + 1 : 0;
    first -= column;
    last = min(last, end) - column;
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
