/* SPDX-License-Identifier: Apache-2.0 */
/* Attention of prompts on Hopper: blocks stay on their multiprocessors and go through tiles of tokens. Three warps
 * begin the copies of queries, keys and values; two or three warpgroups of 64 rows multiply and soften, so that the
 * MMAs of one run concurrently with the powers of another and its own (attention/prefill_wgmma.cuh). */
#include "kernels/cuda/attention/prefill_wgmma.cuh"
#include "kernels/cuda/cuda.h"

/* ---- shapes ---- */

/* Queries come as float32, or as the keys do. */
static bool has_queries(const tri_attention_args *a) {
  int per_piece = a->q.dtype == TRI_F32 ? 4 : 8;
  return (a->q.dtype == TRI_F32 || a->q.dtype == a->kv.dtype) && is_aligned(a->q.data) && a->q.ld % per_piece == 0;
}

bool tri_cuda_prefill_wgmma_fits(const tri_attention_args *a) {
  const tri_kv_layer *kv = &a->kv;
  bool groups = a->skipped_heads == 0 && a->num_heads == kv->num_kv_heads * a->heads_per_kv && a->heads_per_kv <= 64;
  return tri_cuda_prefill_mma_fits(a) && groups && has_boxes(kv) && kv->head_dim % 32 == 0 && kv->head_dim <= 256 &&
         is_aligned(kv->k) && is_aligned(kv->v) && has_queries(a) && a->scale > 0 && !a->position_bias &&
         (a->softcap <= 0 || kv->head_dim > 64) && (!a->alibi_slopes || kv->head_dim <= 128);
}

/* The blocks' sizes of a head, which do not depend on the queries' type. */
template <typename S> static tri_prompt_sizes sizes_of(void) { return {S::ROWS, S::KEYS, sizeof(part_results<S>)}; }
static tri_prompt_sizes sizes_for(const tri_attention_args *a) {
  if (a->kv.head_dim <= 64) return sizes_of<hopper<64, true>>();
  return a->kv.head_dim <= 128 ? sizes_of<hopper<128, true>>() : sizes_of<hopper<256, true>>();
}

static int box_of(const tri_attention_args *a, int keys) { return a->kv.block_size < keys ? a->kv.block_size : keys; }

void tri_cuda_prefill_wgmma_shape(const tri_attention_args *a, tri_attention_shape *out) {
  tri_prompt_sizes s = sizes_for(a);
  out->rows = s.rows / a->heads_per_kv;
  out->tile_units = a->kv.num_kv_heads;
  out->tile_keys = s.keys;
  out->tile_box = box_of(a, s.keys);
  out->tile_cost = a->kv.head_dim <= 128 ? 1 : 2; /* results are wider, tiles of keys shorter */
  out->tile_places = TRI_CUDA_PROMPT_PARTS / a->kv.num_kv_heads;
}

size_t tri_cuda_prefill_wgmma_workspace(const tri_attention_args *a, int places) {
  tri_prompt_sizes s = sizes_for(a);
  return (size_t)places * (size_t)a->kv.num_kv_heads * (size_t)(s.rows / 64) * s.results;
}

/* ---- copies ---- */

/* Which copy of a tile a lane of a warp begins: 64 elements, number `chunk`, of the keys of a box, number `box`.
 * Numbers of keys, boxes and KV blocks are powers of two: a division for each tile would take the warp longer than the
 * block needs to multiply one. */
struct copy_of_lane {
  int box, chunk, log_box, log_size;
  __device__ copy_of_lane(int keys, int log_box, int log_size) : log_box(log_box), log_size(log_size) {
    int lane = (int)threadIdx.x % WARP, log_boxes = __ffs(keys) - 1 - log_box;
    box = lane & ((1 << log_boxes) - 1);
    chunk = lane >> log_boxes;
  }
  /* Returns the cache's row of a key of an item, or -1 after the context, where there may be no KV block. */
  __device__ int row_of(const tri_attention_args &a, const prompt_item &item, const int32_t *kv_blocks, int key) const {
    if (key >= item.tile.context) return -1;
    int block = kv_blocks[key >> log_size];
    return (block * a.kv.num_kv_heads + item.unit) << log_size | (key & ((1 << log_size) - 1));
  }
};

/* Begins the copies of all items' keys, or of their values, tiles from the last key to the first. Where a tile lies is
 * read while the one before it waits for room. By a warp. */
template <typename S>
__device__ static void fetch_tiles(const tri_attention_args &a, const int32_t *block_table,
                                   const tri_attention_tile *tiles, int num_items, const prompt_maps &maps,
                                   const tri_tensor_map *map, barrier *full, barrier *empty,
                                   uint16_t (*to)[S::CHUNKS][S::KEYS][ROW]) {
  const copy_of_lane copy(S::KEYS, maps.log_box, maps.log_size);
  int box = 1 << maps.log_box, boxes = S::KEYS >> maps.log_box;
  bool loads = copy.chunk < S::CHUNKS;
  unsigned n = 0; /* number of the next tile */
  for (int round = 0, number; (number = item_number(round)) < num_items; round++) {
    prompt_item item = item_of<S::KEYS>(tiles, a.kv.num_kv_heads, box, number);
    const int32_t *kv_blocks = block_table + item.tile.blocks;
    int key0 = item.begin + (item.tiles - 1) * S::KEYS, valid = (item.tile.context - key0 + box - 1) >> maps.log_box;
    int row = copy.row_of(a, item, kv_blocks, key0 + copy.box * box);
    for (int i = item.tiles; i > 0; i--, n++) {
      unsigned at = place_in<S::STAGES>(n);
      int here = row, count = min(boxes, valid);
      key0 -= S::KEYS;
      valid = boxes;
      if (i > 1) row = copy.row_of(a, item, kv_blocks, key0 + copy.box * box);
      barrier_wait(&empty[at], parity_in<S::STAGES>(n) ^ 1);
      if (threadIdx.x % WARP == 0) barrier_expect(&full[at], (unsigned)(count * box * S::D * 2));
      __syncwarp();
      if (loads && copy.box < count)
        tile_load(to[at][copy.chunk][copy.box * box], map, &full[at], KEEP_USUAL, copy.chunk * ROW, here);
    }
  }
}

/* An item's queries in float32, part by part. What lies after a head's elements is zero. */
template <typename S>
__device__ static inline void load_parts(const tri_attention_args &a, const prompt_item &item, const prompt_maps &maps,
                                         hopper_room<S> &room, unsigned round) {
  for (unsigned p = 0; p < S::PARTS; p++) {
    unsigned part = round * S::PARTS + p, at = place_in<S::SLOTS>(part);
    barrier_wait(&room.empty_q[at], parity_in<S::SLOTS>(part) ^ 1);
    barrier_expect(&room.full_q[at], (unsigned)(maps.tokens * a.heads_per_kv * ROW * 2));
    tile_load(room.parts.at[at], &maps.q, &room.full_q[at], KEEP_SHORT, 0, (int)p, item.unit * a.heads_per_kv,
              item.tile.row);
  }
}

/* An item's queries of 16 bits go to where MMAs read them, once the last scores of the item before are there. */
template <typename S>
__device__ static inline void load_queries(const tri_attention_args &a, const prompt_item &item,
                                           const prompt_maps &maps, hopper_room<S> &room, unsigned round) {
  barrier_wait(room.empty_q, parity_in<1>(round) ^ 1);
  barrier_expect(room.full_q, (unsigned)(S::CHUNKS * maps.tokens * a.heads_per_kv * ROW * 2));
  for (int c = 0; c < S::CHUNKS; c++)
    tile_load(room.q[c], &maps.q, room.full_q, KEEP_SHORT, c * ROW, item.unit * a.heads_per_kv, item.tile.row);
}

/* Begins the copies of all items' queries. By a thread. */
template <typename S>
__device__ static void fetch_queries(const tri_attention_args &a, const tri_attention_tile *tiles, int num_items,
                                     const prompt_maps &maps, hopper_room<S> &room) {
  for (int round = 0, number; (number = item_number(round)) < num_items; round++) {
    prompt_item item = item_of<S::KEYS>(tiles, a.kv.num_kv_heads, 1 << maps.log_box, number);
    if constexpr (S::NARROW)
      load_queries<S>(a, item, maps, room, (unsigned)round);
    else
      load_parts<S>(a, item, maps, room, (unsigned)round);
  }
}

/* Three warps of the first warpgroup begin all copies: each waits for its own room alone. */
template <typename S>
__device__ static inline void produce(const tri_attention_args &a, const int32_t *block_table,
                                      const tri_attention_tile *tiles, int num_items, const prompt_maps &maps,
                                      hopper_room<S> &room, int warp) {
  if (warp == 0) fetch_tiles<S>(a, block_table, tiles, num_items, maps, &maps.k, room.full_k, room.empty_k, room.k);
  if (warp == 1) fetch_tiles<S>(a, block_table, tiles, num_items, maps, &maps.v, room.full_v, room.empty_v, room.v);
  if (warp == 2 && threadIdx.x % WARP == 0) fetch_queries<S>(a, tiles, num_items, maps, room);
}

/* ---- consumers ---- */

/* Puts zeros where a tile has no values: nothing times what memory has there may not be a number. Each warpgroup does
 * so on its own, and the others' zeros do it no harm. */
template <typename S> __device__ static inline void clear_tail(uint16_t (*v)[S::KEYS][ROW], int keys, int group) {
  int pieces = (S::KEYS - keys) * (ROW / PIECE);
  for (int c = 0; c < S::CHUNKS; c++)
    for (int i = threadIdx.x % WARPGROUP; i < pieces; i += WARPGROUP)
      *(uint4 *)(v[c][keys] + i * PIECE) = make_uint4(0, 0, 0, 0);
  show_shared_to_engines();
  named_sync(OWN + group, WARPGROUP);
}

/* Scores of a tile become weights. Masks only the tiles that some row does not see as a whole: those at the diagonal or
 * the context's end, and, with a window, those before the last row's first key. PLAIN scores stay as the MMA gave them:
 * their scale is multiplied within the exponent. */
template <typename S, bool PLAIN>
static __device__ __forceinline__ void weigh(const tri_attention_args &a, const prompt_item &item, int key0,
                                             float (&s)[S::KEYS / 2], prompt_rows &r, float (&old)[2]) {
  constexpr bool CAPS = S::D > 64, SLOPES = S::D <= 128;
  const tri_attention_tile &t = item.tile;
  int first_last = tri_last_key(a.causal, a.window, t.position, t.context);     /* the last key of the first row */
  int last_first = tri_first_key(a.window, a.chunked, t.position + t.rows - 1); /* the first key of the last row */
  if (!PLAIN) adjust_scores<CAPS, SLOPES>(a, item, s, key0, r);
  if (key0 + S::KEYS - 1 > first_last || key0 < last_first) mask_scores(a, item, s, key0, r);
  soften_scores(s, r, PLAIN ? a.scale * LOG2E : 1, old);
}

template <typename T, typename S>
static __device__ __forceinline__ void start_scores(hopper_room<S> &room, unsigned tile, uint64_t queries,
                                                    uint64_t keys, float (&s)[S::KEYS / 2]) {
  unsigned at = place_in<S::STAGES>(tile);
  mma_begin();
  begin_scores<T, S>(s, queries, keys + behind((int)(at * S::TILE_BYTES)));
  mma_commit();
}

template <typename T, typename S>
static __device__ __forceinline__ void start_values(hopper_room<S> &room, unsigned tile, uint64_t values,
                                                    const uint32_t (&p)[S::KEYS / 16][4], float (&out)[S::D / 2]) {
  unsigned at = place_in<S::STAGES>(tile);
  barrier_wait(&room.full_v[at], parity_in<S::STAGES>(tile));
  mma_begin();
  begin_values<T, S>(out, p, values + behind((int)(at * S::TILE_BYTES)));
  mma_commit();
}

/* Waits for the MMAs with the values of a tile, if they have begun. */
template <typename S>
static __device__ __forceinline__ void end_values(hopper_room<S> &room, unsigned tile, bool is_begun,
                                                  float (&out)[S::D / 2]) {
  mma_wait<0>();
  mma_hold(out);
  release(&room.empty_v[place_in<S::STAGES>(tile)], is_begun);
}

/* Returns true where an item's float32 queries are taken during the last MMAs of the one before, for which there
 * must be registers. Those of 16 bits come straight to their place, once that is released. */
template <typename S, bool PLAIN> __device__ constexpr bool takes_early(void) {
  return !S::NARROW && (S::D < 256 || PLAIN);
}

/* The queries of the item after this one: whether there are any, and of those in float32 the number of the next part.
 */
struct next_queries {
  bool there;
  unsigned part;
};

/* An item's rows of one warpgroup, whose queries are there; n is the number of its first tile, and then of the next
 * item's. The scores of a tile are under way while those of the one before are softened and their values added. The
 * wait for these MMAs stands at the top of the loop: at its end the assembler would move it up, before the
 * powers that are to run concurrently. */
template <typename T, typename S, bool PLAIN>
static __device__ __forceinline__ void attend(const tri_attention_args &a, const prompt_item &item,
                                              hopper_room<S> &room, unsigned &n, next_queries &next, int group,
                                              prompt_rows &r, float (&out)[S::D / 2]) {
  constexpr int STAGES = S::STAGES;
  float s[S::KEYS / 2], old[2];
  uint32_t p[S::KEYS / 16][4];
  const uint64_t queries = operand(room.q[0][group * 64], 1024, 1024), keys = operand(room.k, 1024, 1024),
                 values = operand(room.v, S::KEYS * 128, 1024);
  int key0 = item.begin + (item.tiles - 1) * S::KEYS;
  barrier_wait(&room.full_k[place_in<STAGES>(n)], parity_in<STAGES>(n));
  start_scores<T, S>(room, n, queries, keys, s);
  mma_wait<0>();
  mma_hold(s);
  release(&room.empty_k[place_in<STAGES>(n)], true);
  weigh<S, PLAIN>(a, item, key0, s, r, old);
  if (key0 + S::KEYS > item.tile.context) {
    barrier_wait(&room.full_v[place_in<STAGES>(n)], parity_in<STAGES>(n));
    clear_tail<S>(room.v[place_in<STAGES>(n)], item.tile.context - key0, group);
  }
#pragma unroll 1
  for (int i = 1; i < item.tiles; i++) {
    key0 -= S::KEYS;
    n++;
    end_values<S>(room, n - 2, i > 1, out);
    pack_weights<T>(p, s);
    scale_results(out, old);
    barrier_wait(&room.full_k[place_in<STAGES>(n)], parity_in<STAGES>(n));
    start_scores<T, S>(room, n, queries, keys, s);
    start_values<T, S>(room, n - 1, values, p, out);
    mma_wait<1>();
    mma_hold(s);
    release(&room.empty_k[place_in<STAGES>(n)], true);
    weigh<S, PLAIN>(a, item, key0, s, r, old);
  }
  end_values<S>(room, n - 1, item.tiles > 1, out);
  pack_weights<T>(p, s);
  scale_results(out, old);
  start_values<T, S>(room, n, values, p, out);
  if constexpr (S::NARROW)
    release(room.empty_q, true);
  else if (takes_early<S, PLAIN>() && next.there)
    take_queries<T, S>(room, next.part, group);
  end_values<S>(room, n, true, out);
  n++;
}

/* A lane's two rows at the beginning of an item. Of a cut tile the first part has the sink. */
template <bool PLAIN>
__device__ static inline prompt_rows begin_rows(const tri_attention_args &a, const prompt_item &item) {
  prompt_rows r;
#pragma unroll
  for (int h = 0; h < 2; h++) {
    r.token[h] = (first_row() + h * 8) / a.heads_per_kv;
    r.max[h] = -INFINITY;
    r.sum[h] = 0;
    if (!a.sinks || item.tile.split) continue;
    float sink = a.sinks[head_of(a, item, r, h)];
    r.max[h] = PLAIN ? sink / a.scale : sink * LOG2E;
    r.sum[h] = threadIdx.x % 4 == 0 ? 1 : 0;
  }
  return r;
}

/* Rows of tokens after the prompt's end are computed and not stored. */
template <typename T, typename S>
__device__ static inline void store_rows(const tri_attention_args &a, const prompt_item &item, const prompt_rows &r,
                                         const float (&out)[S::D / 2]) {
#pragma unroll
  for (int h = 0; h < 2; h++) {
    float sum = r.sum[h];
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    sum += __shfl_xor_sync(0xffffffffu, sum, 2);
    float factor = 1 / sum;
    size_t at = (size_t)(item.tile.row + r.token[h]) * (size_t)a.out.ld +
                (size_t)head_of(a, item, r, h) * (size_t)a.kv.head_dim;
    if (r.token[h] >= item.tile.rows) continue;
#pragma unroll
    for (int i = 0; i < S::D / 8; i++) {
      int column = i * 8 + (int)threadIdx.x % 4 * 2;
      float low = out[4 * i + 2 * h] * factor, high = out[4 * i + 2 * h + 1] * factor;
      if (column >= a.kv.head_dim) continue;
      if (a.out.dtype == TRI_F32)
        *(float2 *)(a.out.data + at + (size_t)column) = make_float2(low, high);
      else
        *(uint32_t *)((T *)a.out.data + at + (size_t)column) = mma<T>::pack(low, high);
    }
  }
}

/* Leaves a warpgroup's results of a part, and in the one that is the last of its tile puts together all of them, in
 * their order. Returns whether there is nothing left to wait for, as with tiles that are whole. */
template <typename S, bool PLAIN>
__device__ static inline bool meet(const tri_attention_args &a, const tri_attention_tile &tile, int unit,
                                   const prompt_meeting &m, int group, prompt_rows &r, float (&out)[S::D / 2]) {
  int splits = tile.splits, split = tile.split, pitch = a.kv.num_kv_heads * S::CONSUMERS;
  if (splits == 1) return true;
  int first = (tile.place - split) * pitch + unit * S::CONSUMERS + group;
  part_results<S> *results = (part_results<S> *)m.partial + first;
  leave_results<S>(results[split * pitch], r, out);
  if (!is_last_of_tile(m.counters + first, splits, group)) return false;
  combine_results<S>(results, pitch, splits, PLAIN ? a.scale * LOG2E : 1, r, out);
  return true;
}

/* A warpgroup of 64 rows: number `group`. */
template <typename T, typename S, bool PLAIN>
__device__ static inline void consume(const tri_attention_args &a, const tri_attention_tile *tiles, int num_items,
                                      const prompt_maps &maps, const prompt_meeting &m, hopper_room<S> &room,
                                      int group) {
  next_queries next = {false, 0};
  unsigned n = 0;
  if constexpr (takes_early<S, PLAIN>()) take_queries<T, S>(room, next.part, group);
#pragma unroll 1
  for (int round = 0; item_number(round) < num_items; round++) {
    prompt_item item = item_of<S::KEYS>(tiles, a.kv.num_kv_heads, 1 << maps.log_box, item_number(round));
    next.there = item_number(round + 1) < num_items;
    prompt_rows r = begin_rows<PLAIN>(a, item);
    float out[S::D / 2];
#pragma unroll
    for (int i = 0; i < S::D / 2; i++) out[i] = 0;
    if constexpr (S::NARROW)
      barrier_wait(room.full_q, parity_in<1>((unsigned)round));
    else if constexpr (!takes_early<S, PLAIN>())
      take_queries<T, S>(room, next.part, group);
    attend<T, S, PLAIN>(a, item, room, n, next, group, r, out);
    /* Which item it was is read again: in the loop registers are short. */
    int number = __shfl_sync(0xffffffffu, item_number(round), 0);
    item = item_of<S::KEYS>(tiles, a.kv.num_kv_heads, 1 << maps.log_box, number);
    const tri_attention_tile &tile = tiles[number / a.kv.num_kv_heads];
    if (meet<S, PLAIN>(a, tile, item.unit, m, group, r, out)) store_rows<T, S>(a, item, r, out);
  }
}

/* ---- the kernel ---- */

/* Full: one arrival, of the thread that begins the copies, and their bytes. Empty: an arrival of every warp of every
 * consumer, for all of them read each tile. */
template <typename S> __device__ static inline void make_barriers(hopper_room<S> &room) {
  enum { READERS = S::CONSUMERS * (WARPGROUP / WARP) };
  for (int i = 0; i < S::SLOTS; i++) {
    barrier_init(&room.full_q[i], 1);
    barrier_init(&room.empty_q[i], READERS);
  }
  for (int i = 0; i < S::STAGES; i++) {
    barrier_init(&room.full_k[i], 1);
    barrier_init(&room.empty_k[i], READERS);
    barrier_init(&room.full_v[i], 1);
    barrier_init(&room.empty_v[i], READERS);
  }
  barriers_are_made();
}

/* Attention of sequences of more than one token. q and out [T, heads * d]. Grid: as many blocks as there are
 * multiprocessors, or items (KV heads times tiles of tokens) where these are fewer; 384 threads, 512 for heads up to
 * 64 elements. Shared memory: hopper_room, up to 225 KiB. The kernel of the batch's single tokens may run concurrently.
 */
template <typename T, typename S, bool PLAIN>
__global__ __launch_bounds__(S::THREADS, 1) static void prefill_wgmma_kernel(tri_attention_args a,
                                                                             const int32_t *block_table,
                                                                             const tri_attention_tile *tiles,
                                                                             int num_items, prompt_meeting m,
                                                                             const __grid_constant__ prompt_maps maps) {
  extern __shared__ __align__(1024) char space[];
  hopper_room<S> &room = *(hopper_room<S> *)space;
  if (!HAS_HOPPER) return;
  stamp_begun();
  if (threadIdx.x == 0) {
    make_barriers<S>(room);
    prefetch_map(&maps.q);
    prefetch_map(&maps.k);
    prefetch_map(&maps.v);
  }
  wait_for_previous();
  let_next_begin_now();
  __syncthreads();
  int warp = __shfl_sync(0xffffffffu, (int)threadIdx.x / WARP, 0), group = warp * WARP / WARPGROUP;
  if (group == 0) {
    give_registers<S::PRODUCER_REGISTERS>();
    produce<S>(a, block_table, tiles, num_items, maps, room, warp);
  } else {
    take_registers<S::CONSUMER_REGISTERS>();
    consume<T, S, PLAIN>(a, tiles, num_items, maps, m, room, group - 1);
  }
}

/* ---- launches ---- */

/* Queries in float32 are seen as pairs of 16 bits. A box has the tokens of a tile, the query heads of one KV head, and
 * 64 elements of 16 bits, which are 32 floats. */
static bool map_queries(const tri_attention_args *a, prompt_maps *out) {
  uint64_t d = (uint64_t)a->kv.head_dim, ld = (uint64_t)a->q.ld, heads = (uint64_t)a->num_heads;
  uint32_t group = (uint32_t)a->heads_per_kv, tokens = (uint32_t)out->tokens;
  const tri_tiling parts = {
      4, {ROW, d / 32, heads, (uint64_t)a->q.rows}, {0, ROW * 2, d * 4, ld * 4}, {ROW, 1, group, tokens}};
  const tri_tiling whole = {3, {d, heads, (uint64_t)a->q.rows}, {0, d * 2, ld * 2}, {ROW, group, tokens}};
  return tri_cuda_map_tensor(&out->q, a->kv.dtype, a->q.data, a->q.dtype == TRI_F32 ? &parts : &whole) == TRI_OK;
}

static bool make_maps(const tri_attention_args *a, int rows, int keys, prompt_maps *out) {
  const tri_kv_layer *kv = &a->kv;
  uint64_t d = (uint64_t)kv->head_dim;
  uint64_t cached = (uint64_t)kv->num_blocks * (uint64_t)kv->num_kv_heads * (uint64_t)kv->block_size;
  out->tokens = rows / a->heads_per_kv;
  int box = box_of(a, keys);
  out->log_box = log_of(box);
  out->log_size = log_of(kv->block_size);
  const tri_tiling cache = {2, {d, cached}, {0, d * 2}, {ROW, (uint32_t)box}};
  return map_queries(a, out) && tri_cuda_map_tensor(&out->k, kv->dtype, kv->k, &cache) == TRI_OK &&
         tri_cuda_map_tensor(&out->v, kv->dtype, kv->v, &cache) == TRI_OK;
}

template <typename T, typename S, bool PLAIN>
static cudaError_t start(cudaStream_t stream, const tri_attention_args &a, const tri_attention_split &split,
                         int num_sms, const prompt_meeting &m) {
  constexpr size_t bytes = sizeof(hopper_room<S>);
  int items = split.num_tiles * a.kv.num_kv_heads;
  prompt_maps maps;
  if (!items) return cudaSuccess;
  if (!make_maps(&a, S::ROWS, S::KEYS, &maps)) return cudaErrorInvalidValue;
  cudaError_t e = allow_shared<prefill_wgmma_kernel<T, S, PLAIN>>(bytes);
  if (e == cudaSuccess)
    launch_overlapped(prefill_wgmma_kernel<T, S, PLAIN>, dim3(items < num_sms ? items : num_sms), S::THREADS, bytes,
                      stream, a, a.batch->block_table, split.tiles, items, m, maps);
  return e;
}

template <typename T, typename S>
static cudaError_t start_plain(cudaStream_t stream, const tri_attention_args &a, const tri_attention_split &split,
                               int num_sms, const prompt_meeting &m) {
  bool plain = a.softcap <= 0 && !a.alibi_slopes;
  return plain ? start<T, S, true>(stream, a, split, num_sms, m) : start<T, S, false>(stream, a, split, num_sms, m);
}

template <typename T, int D>
static cudaError_t start_type(cudaStream_t stream, const tri_attention_args &a, const tri_attention_split &split,
                              int num_sms, const prompt_meeting &m) {
  typedef hopper<D, false> wide;
  typedef hopper<D, true> narrow;
  if (a.q.dtype == TRI_F32) return start_plain<T, wide>(stream, a, split, num_sms, m);
  return start_plain<T, narrow>(stream, a, split, num_sms, m);
}

template <typename T>
static cudaError_t start_depth(cudaStream_t stream, const tri_attention_args &a, const tri_attention_split &split,
                               int num_sms, const prompt_meeting &m) {
  if (a.kv.head_dim <= 64) return start_type<T, 64>(stream, a, split, num_sms, m);
  if (a.kv.head_dim <= 128) return start_type<T, 128>(stream, a, split, num_sms, m);
  return start_type<T, 256>(stream, a, split, num_sms, m);
}

cudaError_t tri_cuda_prefill_wgmma(cudaStream_t stream, const tri_attention_args *a, const tri_attention_split *split,
                                   int num_sms, float *partial, unsigned *counters) {
  const prompt_meeting m = {partial, counters};
  if (a->kv.dtype == TRI_BF16) return start_depth<__nv_bfloat16>(stream, *a, *split, num_sms, m);
  if constexpr (HAS_BOTH_16) return start_depth<__half>(stream, *a, *split, num_sms, m);
  return cudaErrorNotSupported;
}
