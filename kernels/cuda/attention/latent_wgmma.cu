/* SPDX-License-Identifier: Apache-2.0 */
/* Attention of prompts over latent caches of 16 bits on Hopper (FlashMLA's arrangement, DeepSeek 2025). A block has 64
 * pairs of a token and a head, and goes through tiles of 64 rows of the cache, which are keys and, but for their last
 * chunk, values. The sums of 64 results of 512 elements fill the registers of two warpgroups: each has half of their
 * columns. Tiles are theirs in turn: a tile's owner multiplies it with the queries and softens the scores, both add it
 * up. So one multiplies while the other one softens or waits for a tile. The weights go to the other one by way of the
 * tile's last chunk, which is not needed once there are scores.
 *
 * A ring of two tiles is all that there is room for: an owner's tiles have one place. Its quarters are filled again one
 * by one, as soon as their values have been added. Queries come through the ring, too: those of float32 are two tiles'
 * worth, those of the cache's type one. */
#include "kernels/cuda/attention/latent_wgmma.cuh"
#include "kernels/cuda/cuda.h"

/* ---- shapes ---- */

bool tri_cuda_latent_wgmma_fits(const tri_attention_args *a) {
  const tri_kv_layer *kv = &a->kv;
  int per_piece = a->q.dtype == TRI_F32 ? 4 : 8;
  bool types =
      (a->q.dtype == TRI_F32 || a->q.dtype == kv->dtype) && (a->out.dtype == TRI_F32 || a->out.dtype == kv->dtype);
  return tri_cuda_latent_mma_fits(a) && types && has_boxes(kv) && is_aligned(kv->k) && is_aligned(a->q.data) &&
         a->q.ld % per_piece == 0 && a->scale > 0;
}

static int pieces_of(const tri_attention_args *a) { return (a->num_heads + ROWS - 1) / ROWS; }
static int heads_of(const tri_attention_args *a) { return (a->num_heads + pieces_of(a) - 1) / pieces_of(a); }

int tri_cuda_latent_wgmma_tokens(const tri_attention_args *a) { return ROWS / heads_of(a); }

/* ---- copies ---- */

/* Fills the place of number n of the ring with entry e of an item: QUERIES with its queries, then its tiles of keys
 * from the last to the first. Each lane begins one copy at most, of a chunk of a box. Boxes after the context have no
 * blocks.
 */
template <int QUERIES>
__device__ static inline void load_entry(const tri_attention_args &a, const prompt_item &item, const int32_t *kv_blocks,
                                         const latent_maps &maps, latent_room &room, unsigned n, int e) {
  int stage = (int)place_in<STAGES>(n), lane = threadIdx.x % WARP, row = 0, valid = 1;
  int log_boxes = e < QUERIES ? 0 : __ffs(KEYS) - 1 - maps.log_box, boxes = 1 << log_boxes;
  int number = lane & (boxes - 1), bytes = maps.tokens * maps.heads * 128;
  if (e >= QUERIES) {
    int key0 = item.begin + (item.tiles - 1 - (e - QUERIES)) * KEYS, key = key0 + number * maps.box;
    valid = min(boxes, (item.tile.context - key0 + maps.box - 1) >> maps.log_box);
    bytes = valid * maps.box * 128;
    if (number < valid) row = kv_blocks[key >> maps.log_size] << maps.log_size | (key & ((1 << maps.log_size) - 1));
  }
  for (int q = 0; q < QUARTERS; q++) {
    int i = lane >> log_boxes, chunk = chunk_at(2 * q + i, stage);
    bool is_mine = i < (q == QUARTERS - 1 ? 3 : 2) && number < valid;
    barrier *full = &room.full[stage][is_mine ? chunk : 0];
    barrier_wait(&room.empty[stage][chunk_at(2 * q, stage) / 2], parity_in<STAGES>(n) ^ 1);
    if (is_mine && number == 0) barrier_expect(full, (unsigned)bytes);
    __syncwarp();
    if (is_mine && e < QUERIES)
      tile_load(room.tiles[stage][chunk], &maps.q, full, KEEP_SHORT, (e * CHUNKS + chunk) * ROW, item.unit * maps.heads,
                item.tile.row);
    else if (is_mine)
      tile_load(room.tiles[stage][chunk][number * maps.box], &maps.kv, full, KEEP_USUAL, chunk * ROW, row);
  }
}

/* The warp that begins all copies. */
template <int QUERIES>
__device__ static inline void produce(const tri_attention_args &a, const int32_t *block_table,
                                      const tri_attention_tile *tiles, int num_items, const latent_maps &maps,
                                      latent_room &room) {
  unsigned n = 0;
  for (int round = 0, number; (number = item_number(round)) < num_items; round++) {
    prompt_item item = item_of<KEYS>(tiles, maps.pieces, maps.box, number);
    for (int e = 0; e < QUERIES + item.tiles; e++)
      load_entry<QUERIES>(a, item, block_table + item.tile.blocks, maps, room, n++, e);
  }
}

/* ---- consumers ---- */

/* An own tile, number n of the ring, and the other's before it unless it is the first of all: its values are added
 * while the scores are softened. What they are added to is made ready before all MMAs: once those have begun,
 * the assembler lets nothing else touch it. */
template <typename T, int GROUP, bool IS_FIRST>
static __device__ __forceinline__ void attend_tile(const tri_attention_args &a, const prompt_item &item,
                                                   latent_room &room, unsigned n, int key0, int keys, prompt_rows &r,
                                                   float (&out)[2][COLUMNS / 2]) {
  float s[KEYS / 2], old[2];
  uint32_t p[KEYS / 16][4];
  if (!IS_FIRST) follow<GROUP>(room, keys, r, out);
  start_scores<T, GROUP>(room, n, s);
  if (!IS_FIRST) start_others<T, GROUP>(room, out);
  mma_wait<IS_FIRST ? 0 : 2>();
  mma_hold(s);
  weigh<T, GROUP>(a, item, room, key0, s, p, r, old);
  if (IS_FIRST) {
    if (keys < KEYS) clear_tail<GROUP>(room.tiles[GROUP], keys);
  } else {
    end_values<GROUP>(room, GROUP ^ 1, out);
    scale_all(out, old);
  }
  start_own<T, GROUP>(room, p, out);
  end_values<GROUP>(room, GROUP, out);
}

/* All tiles of an item, the first one of which is number n of the ring. Tiles before the first own one and after the
 * last are the other's. */
template <typename T, int GROUP>
static __device__ __forceinline__ void attend(const tri_attention_args &a, const prompt_item &item, latent_room &room,
                                              unsigned n, prompt_rows &r, float (&out)[2][COLUMNS / 2]) {
  int key0 = item.begin + (item.tiles - 1) * KEYS, keys = item.tile.context - key0; /* of the first tile */
  int i = (int)(n ^ (unsigned)GROUP) & 1;
  if (i == 0) {
    attend_tile<T, GROUP, true>(a, item, room, n, key0, keys, r, out);
    i = 2;
  }
#pragma unroll 1
  for (; i < item.tiles; i += 2)
    attend_tile<T, GROUP, false>(a, item, room, n + (unsigned)i, key0 - i * KEYS, i == 1 ? keys : KEYS, r, out);
  if (i > item.tiles) return;
  follow<GROUP>(room, i == 1 ? keys : KEYS, r, out);
  start_others<T, GROUP>(room, out);
  end_values<GROUP>(room, GROUP ^ 1, out);
}

/* The warpgroup's columns of an item's rows. */
template <typename T, int GROUP>
__device__ static inline void store_rows(const tri_attention_args &a, const prompt_item &item, const latent_maps &maps,
                                         latent_room &room, const prompt_rows &r, const float (&out)[2][COLUMNS / 2]) {
  float sum[2];
#pragma unroll
  for (int h = 0; h < 2; h++) {
    sum[h] = r.sum[h] + __shfl_xor_sync(0xffffffffu, r.sum[h], 1);
    sum[h] += __shfl_xor_sync(0xffffffffu, sum[h], 2);
    if (threadIdx.x % 4 == 0) room.sum[GROUP][first_row() + 8 * h] = sum[h];
  }
  named_sync(BOTH, 2 * WARPGROUP);
#pragma unroll
  for (int h = 0; h < 2; h++) {
    int row = first_row() + 8 * h, head = item.unit * maps.heads + row - r.token[h] * maps.heads;
    int column = 2 * GROUP * COLUMNS + (int)threadIdx.x % 4 * 2, left = a.kv.v_dim - column;
    float factor = 1 / (sum[h] + room.sum[GROUP ^ 1][row]);
    size_t at = (size_t)(item.tile.row + r.token[h]) * (size_t)a.out.ld + (size_t)head * (size_t)a.kv.v_dim;
    float *to = a.out.data + at + column;
    T *narrow = (T *)a.out.data + at + column;
    if (r.token[h] >= item.tile.rows || head >= a.num_heads) continue;
#pragma unroll
    for (int i = 0; i < COLUMNS / 4; i++) {
      const float *from = out[i / (COLUMNS / 8)] + i % (COLUMNS / 8) * 4 + 2 * h;
      if (i * 8 >= left) continue;
      if (a.out.dtype == TRI_F32)
        *(float2 *)(to + i * 8) = make_float2(from[0] * factor, from[1] * factor);
      else
        *(uint32_t *)(narrow + i * 8) = mma<T>::pack(from[0] * factor, from[1] * factor);
    }
  }
}

/* Both consumers count the ring's entries alike, an item's QUERIES with queries before its tiles, so that entry n
 * belongs to warpgroup n % 2 for them and for the producer: nothing else tells them. */
template <typename T, int GROUP, int QUERIES>
__device__ static inline void consume(const tri_attention_args &a, const tri_attention_tile *tiles, int num_items,
                                      const latent_maps &maps, latent_room &room) {
  unsigned n = 0;
#pragma unroll 1
  for (int round = 0; item_number(round) < num_items; round++) {
    prompt_item item = item_of<KEYS>(tiles, maps.pieces, maps.box, item_number(round));
    prompt_rows r;
    float out[2][COLUMNS / 2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
      r.token[h] = (first_row() + 8 * h) / maps.heads;
      r.max[h] = -INFINITY;
      r.sum[h] = 0;
#pragma unroll
      for (int i = 0; i < COLUMNS / 2; i++) out[h][i] = 0;
    }
    take_queries<T, GROUP, QUERIES>(room, n);
    n += QUERIES;
    attend<T, GROUP>(a, item, room, n, r, out);
    n += (unsigned)item.tiles;
    store_rows<T, GROUP>(a, item, maps, room, r, out);
  }
}

/* ---- the kernel ---- */

/* Full: one arrival, of the lane that begins a chunk's first copy, and the bytes of all. Empty: the four warps of one
 * warpgroup, which for queries is the stage's owner, and for a tile the one whose columns a quarter has. */
__device__ static inline void make_barriers(latent_room &room) {
  for (int i = 0; i < STAGES; i++) {
    for (int c = 0; c < CHUNKS; c++) barrier_init(&room.full[i][c], 1);
    for (int q = 0; q < QUARTERS; q++) barrier_init(&room.empty[i][q], WARPGROUP / WARP);
  }
  barriers_are_made();
}

/* Attention of sequences of more than one token. q [T, heads * d], out [T, heads * v_dim]. Grid: as many blocks as
 * there are multiprocessors, or items (pieces of heads times tiles of tokens) where these are fewer; 384 threads.
 * Shared memory: latent_room, 218 KiB. The kernel of the batch's single tokens may run concurrently. QUERIES: entries
 * of the ring with an item's queries, two of float32 or one of type T. */
template <typename T, int QUERIES>
__global__ __launch_bounds__(THREADS, 1) static void latent_wgmma_kernel(tri_attention_args a,
                                                                         const int32_t *block_table,
                                                                         const tri_attention_tile *tiles, int num_items,
                                                                         const __grid_constant__ latent_maps maps) {
  extern __shared__ __align__(1024) char space[];
  latent_room &room = *(latent_room *)space;
  if (!HAS_HOPPER) return;
  stamp_begun();
  if (threadIdx.x == 0) {
    make_barriers(room);
    prefetch_map(&maps.q);
    prefetch_map(&maps.kv);
  }
  wait_for_previous();
  let_next_begin_now();
  __syncthreads();
  int warp = __shfl_sync(0xffffffffu, (int)threadIdx.x / WARP, 0), group = warp * WARP / WARPGROUP;
  if (group == 0) {
    give_registers<PRODUCER_REGISTERS>();
    if (warp == 0) produce<QUERIES>(a, block_table, tiles, num_items, maps, room);
  } else {
    take_registers<CONSUMER_REGISTERS>();
    if (group == 1)
      consume<T, 0, QUERIES>(a, tiles, num_items, maps, room);
    else
      consume<T, 1, QUERIES>(a, tiles, num_items, maps, room);
  }
}

/* ---- launches ---- */

/* Queries of float32 are seen as pairs of 16 bits. What lies after a row's elements is zero. */
static bool make_maps(const tri_attention_args *a, latent_maps *out) {
  const tri_kv_layer *kv = &a->kv;
  uint64_t d = (uint64_t)kv->head_dim;
  out->pieces = pieces_of(a);
  out->heads = heads_of(a);
  out->tokens = tri_cuda_latent_wgmma_tokens(a);
  out->box = kv->block_size < KEYS ? kv->block_size : KEYS;
  out->log_box = log_of(out->box);
  out->log_size = log_of(kv->block_size);
  const tri_tiling cache = {
      2, {d, (uint64_t)kv->num_blocks * (uint64_t)kv->block_size}, {0, d * 2}, {ROW, (uint32_t)out->box}};
  uint64_t wide = a->q.dtype == TRI_F32 ? 2 : 1;
  const tri_tiling queries = {3,
                              {d * wide, (uint64_t)a->num_heads, (uint64_t)a->q.rows},
                              {0, d * wide * 2, (uint64_t)a->q.ld * wide * 2},
                              {ROW, (uint32_t)out->heads, (uint32_t)out->tokens}};
  return tri_cuda_map_tensor(&out->q, kv->dtype, a->q.data, &queries) == TRI_OK &&
         tri_cuda_map_tensor(&out->kv, kv->dtype, kv->k, &cache) == TRI_OK;
}

template <typename T, int QUERIES>
static cudaError_t start(cudaStream_t stream, const tri_attention_args &a, const tri_attention_split &split,
                         int num_sms) {
  static_assert((int)ROWS == (int)TRI_CUDA_LATENT_ROWS, "the choice of a kernel counts tiles");
  constexpr size_t bytes = sizeof(latent_room);
  int items = split.num_tiles * pieces_of(&a);
  latent_maps maps;
  if (!items) return cudaSuccess;
  if (!make_maps(&a, &maps)) return cudaErrorInvalidValue;
  cudaError_t e = allow_shared<latent_wgmma_kernel<T, QUERIES>>(bytes);
  if (e == cudaSuccess)
    launch_overlapped(latent_wgmma_kernel<T, QUERIES>, dim3(items < num_sms ? items : num_sms), THREADS, bytes, stream,
                      a, a.batch->block_table, split.tiles, items, maps);
  return e;
}

template <typename T>
static cudaError_t start_of_type(cudaStream_t stream, const tri_attention_args &a, const tri_attention_split &split,
                                 int num_sms) {
  return a.q.dtype == TRI_F32 ? start<T, 2>(stream, a, split, num_sms) : start<T, 1>(stream, a, split, num_sms);
}

cudaError_t tri_cuda_latent_wgmma(cudaStream_t stream, const tri_attention_args *a, const tri_attention_split *split,
                                  int num_sms) {
  return a->kv.dtype == TRI_BF16 ? start_of_type<__nv_bfloat16>(stream, *a, *split, num_sms)
                                 : start_of_type<__half>(stream, *a, *split, num_sms);
}
