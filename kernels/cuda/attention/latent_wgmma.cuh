/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of prompt attention over latent caches on Hopper: a block's shared memory, and what its warpgroups do with
 * a tile (attention/latent_wgmma.cu says who does what when). */
#ifndef TRI_KERNELS_CUDA_ATTENTION_LATENT_WGMMA_CUH
#define TRI_KERNELS_CUDA_ATTENTION_LATENT_WGMMA_CUH

#include "kernels/cuda/attention/prefill.cuh"

enum { ROWS = 64, KEYS = 64, CHUNKS = 9, MAX_VALUES = 512, HALF = 4, QUARTERS = 4, CHUNK_BYTES = KEYS * ROW * 2 };
enum { LAST = CHUNKS - 1, COLUMNS = MAX_VALUES / QUARTERS }; /* COLUMNS: of a quarter */
enum { THREADS = 3 * WARPGROUP, PRODUCER_REGISTERS = 24, CONSUMER_REGISTERS = 240 };

/* Barriers of warpgroups: of both, of weights by their owner, and each one's own. */
enum { BOTH = 1, READY = 2, OWN = 4 };

/* A block's shared memory: rows of 64 elements (128 bytes) in planes of their own, which is what 128-byte swizzling and
 * wgmma want. A row of 576 elements has nine such chunks, eight of values in four quarters, and the last one of the
 * rotary part. */
struct latent_room {
  uint16_t q[CHUNKS][ROWS][ROW];
  uint16_t tiles[STAGES][CHUNKS][KEYS][ROW];
  float max[2][ROWS], factor[2][ROWS], sum[2][ROWS]; /* by the warpgroup that tells the other one */
  barrier full[STAGES][CHUNKS], empty[STAGES][QUARTERS];
};

/* The maps of queries and of the cache, and what their boxes hold. */
struct latent_maps {
  tri_tensor_map q, kv;
  int tokens, heads, pieces;  /* of a block; of all heads */
  int box, log_box, log_size; /* keys of one copy, and of a KV block: powers of two */
};

/* The owner of a stage reads its chunks in this order, which is that in which they are free: its own columns are. */
__device__ static inline int chunk_at(int i, int stage) { return i == LAST ? i : i ^ (stage * HALF); }

/* Warpgroup GROUP of two. What differs between them is known to the compiler: there is no register to spare. */

/* This lane's first row; the second one is eight further on. */
__device__ static inline int first_row(void) {
  return (int)threadIdx.x % WARPGROUP / WARP * 16 + (int)threadIdx.x % WARP / 4;
}

/* Copies 64 rows of 64 queries that have the cache's type. Both are swizzled alike. By the threads of a warpgroup. */
__device__ static inline void copy_part(const uint16_t (*part)[ROW], uint16_t (*to)[ROW]) {
  int own = (int)threadIdx.x % WARPGROUP;
#pragma unroll
  for (int i = own; i < own + ROWS * ROW / PIECE; i += WARPGROUP) ((uint4 *)to)[i] = ((const uint4 *)part)[i];
}

/* Moves an entry of the ring with queries, all of them or one half in float32, to where MMAs read them. */
template <typename T, int GROUP, int QUERIES>
__device__ static inline void take_entry(latent_room &room, unsigned n, int half) {
#pragma unroll 1
  for (int i = 0; i < CHUNKS; i++) {
    int chunk = chunk_at(i, GROUP), part = half * CHUNKS + chunk;
    barrier_wait(&room.full[GROUP][chunk], parity_in<STAGES>(n));
    if constexpr (QUERIES == 1)
      copy_part(room.tiles[GROUP][chunk], room.q[chunk]);
    else
      round_part<T>((const float(*)[ROW / 2]) room.tiles[GROUP][chunk], room.q[part / 2], part % 2);
    __syncwarp();
    release(&room.empty[GROUP][chunk_at(i == LAST ? i - 1 : i, GROUP) / 2], i == LAST || (i % 2 && i < LAST - 1));
  }
}

/* Takes an item's queries, in one entry of the ring or two from number n on, of which the warpgroup has the one whose
 * place is its own. The old ones are not needed: both have had all weights that came of them. */
template <typename T, int GROUP, int QUERIES>
__device__ static inline void take_queries(latent_room &room, unsigned n) {
  unsigned half = (n ^ GROUP) & 1;
  if (half < QUERIES) take_entry<T, GROUP, QUERIES>(room, n + half, (int)half);
  show_shared_to_engines();
  named_sync(BOTH, 2 * WARPGROUP);
}

/* Begins the MMAs of the queries and a tile, as its chunks come. */
template <typename T, int GROUP>
static __device__ __forceinline__ void start_scores(latent_room &room, unsigned n, float (&s)[KEYS / 2]) {
  const uint64_t queries = operand(room.q, 1024, 1024), keys = operand(room.tiles[GROUP], 1024, 1024);
#pragma unroll
  for (int i = 0; i < CHUNKS; i++) {
    int chunk = chunk_at(i, GROUP);
    barrier_wait(&room.full[GROUP][chunk], parity_in<STAGES>(n));
    mma_begin();
#pragma unroll
    for (int j = 0; j < ROW / 16; j++)
      wgmma<T, KEYS>::run(s, queries + behind(chunk * CHUNK_BYTES + j * 32),
                          keys + behind(chunk * CHUNK_BYTES + j * 32), i + j > 0);
  }
  mma_commit();
}

/* Begins to add a tile's values, a quarter and then the next: those of an own one, */
template <typename T, int GROUP>
static __device__ __forceinline__ void start_own(latent_room &room, const uint32_t (&p)[KEYS / 16][4],
                                                 float (&out)[2][COLUMNS / 2]) {
  const uint64_t values = operand(room.tiles[GROUP][GROUP * HALF], CHUNK_BYTES, 1024);
#pragma unroll
  for (int b = 0; b < 2; b++) {
    mma_begin();
#pragma unroll
    for (int i = 0; i < KEYS / 16; i++)
      wgmma<T, COLUMNS, true>::run(out[b], p[i], values + behind(b * 2 * CHUNK_BYTES + i * 16 * 128), true);
    mma_commit();
  }
}
/* or of one of the other's. */
template <typename T, int GROUP>
static __device__ __forceinline__ void start_others(latent_room &room, float (&out)[2][COLUMNS / 2]) {
  const uint64_t weights = operand(room.tiles[GROUP ^ 1][LAST], 1024, 1024),
                 values = operand(room.tiles[GROUP ^ 1][GROUP * HALF], CHUNK_BYTES, 1024);
#pragma unroll
  for (int b = 0; b < 2; b++) {
    mma_begin();
#pragma unroll
    for (int i = 0; i < KEYS / 16; i++)
      wgmma<T, COLUMNS, true>::run(out[b], weights + behind(i * 32),
                                   values + behind(b * 2 * CHUNK_BYTES + i * 16 * 128), true);
    mma_commit();
  }
}

/* Waits for the MMAs with a tile's values, the last ones that have begun. The quarters are free one by one. */
template <int GROUP>
static __device__ __forceinline__ void end_values(latent_room &room, int stage, float (&out)[2][COLUMNS / 2]) {
  mma_wait<1>();
  release(&room.empty[stage][2 * GROUP], true);
  mma_wait<0>();
  mma_hold(out[0]);
  mma_hold(out[1]);
  release(&room.empty[stage][2 * GROUP + 1], true);
}

/* Multiplies the results so far; maxima change seldom once a few tiles have been seen. */
static __device__ __forceinline__ void scale_all(float (&out)[2][COLUMNS / 2], const float (&factor)[2]) {
  if (!__any_sync(0xffffffffu, factor[0] != 1 || factor[1] != 1)) return;
  scale_results(out[0], factor);
  scale_results(out[1], factor);
}

/* Puts zeros where the warpgroup's columns of a tile have no values: nothing times what memory has there may not be a
 * number. */
template <int GROUP> __device__ static inline void clear_tail(uint16_t (*tile)[KEYS][ROW], int keys) {
  int pieces = (KEYS - keys) * (ROW / PIECE);
  for (int c = 0; c < HALF; c++)
    for (int i = threadIdx.x % WARPGROUP; i < pieces; i += WARPGROUP)
      *(uint4 *)(tile[GROUP * HALF + c][keys] + i * PIECE) = make_uint4(0, 0, 0, 0);
  show_shared_to_engines();
  named_sync(OWN + GROUP, WARPGROUP);
}

/* Scores become weights, for the owner in registers and for the other warpgroup in the tile's last chunk. */
template <typename T, int GROUP>
static __device__ __forceinline__ void weigh(const tri_attention_args &a, const prompt_item &item, latent_room &room,
                                             int key0, float (&s)[KEYS / 2], uint32_t (&p)[KEYS / 16][4],
                                             prompt_rows &r, float (&old)[2]) {
  /* the last key of the first row */
  int first_last = tri_last_key(a.causal, 0, item.tile.position, item.tile.context);
  if (key0 + KEYS - 1 > first_last) mask_scores(a, item, s, key0, r);
  soften_scores(s, r, a.scale * LOG2E, old);
  pack_weights<T>(p, s);
  named_sync(OWN + GROUP, WARPGROUP); /* the MMAs with the keys have ended in all warps */
#pragma unroll
  for (int h = 0; h < 2; h++) {
    int row = first_row() + 8 * h, lane = threadIdx.x % 4;
#pragma unroll
    for (int i = 0; i < KEYS / 8; i++)
      *(uint32_t *)(room.tiles[GROUP][LAST][row] + (i ^ (row & 7)) * PIECE + 2 * lane) = p[i / 2][i % 2 * 2 + h];
    if (lane == 0) {
      room.max[GROUP][row] = r.max[h];
      room.factor[GROUP][row] = old[h];
    }
  }
  show_shared_to_engines();
  named_arrive(READY + GROUP, 2 * WARPGROUP);
}

/* Waits for the weights of the other's tile; rows continue from its maxima. keys: that the tile has. */
template <int GROUP>
static __device__ __forceinline__ void follow(latent_room &room, int keys, prompt_rows &r,
                                              float (&out)[2][COLUMNS / 2]) {
  float old[2];
  named_sync(READY + (GROUP ^ 1), 2 * WARPGROUP);
#pragma unroll
  for (int h = 0; h < 2; h++) {
    r.max[h] = room.max[GROUP ^ 1][first_row() + 8 * h];
    old[h] = room.factor[GROUP ^ 1][first_row() + 8 * h];
    r.sum[h] *= old[h];
  }
  scale_all(out, old);
  if (keys < KEYS) clear_tail<GROUP>(room.tiles[GROUP ^ 1], keys);
}

#endif
