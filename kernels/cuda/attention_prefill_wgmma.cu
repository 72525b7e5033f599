/* Attention of prompts on Hopper: blocks stay on their multiprocessors and go through tiles of tokens. One warp begins
 * the copies of queries, keys and values; two or three warpgroups of 64 rows multiply and soften, so that the products
 * of one run beside the powers of another, and beside its own (attention_prefill_wgmma.cuh). */
#include "kernels/cuda/attention_prefill_wgmma.cuh"
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

int tri_cuda_prefill_wgmma_tokens(const tri_attention_args *a) {
  return (a->kv.head_dim <= 64 ? hopper<64>::ROWS : hopper<128>::ROWS) / a->heads_per_kv;
}

/* ---- copies ---- */

/* A tile of keys or values: one copy for each 64 elements of each box, each by a lane of its own. The boxes behind the
 * context have no blocks. */
template <int D>
__device__ static inline void load_tile(const tri_attention_args &a, const prompt_item &item, const int32_t *kv_blocks,
                                        int key0, int box, const tri_tensor_map *map, barrier *full, barrier *empty,
                                        unsigned parity, uint16_t (*to)[hopper<D>::KEYS][ROW]) {
  int lane = threadIdx.x % WARP, boxes = hopper<D>::KEYS / box, number = lane % boxes, chunk = lane / boxes;
  int key = key0 + number * box, size = a.kv.block_size, row = 0;
  int valid = min(boxes, (item.tile.context - key0 + box - 1) / box);
  bool loads = chunk < hopper<D>::CHUNKS && number < valid;
  if (loads) row = (kv_blocks[key / size] * a.kv.num_kv_heads + item.unit) * size + key % size;
  barrier_wait(empty, parity ^ 1);
  if (lane == 0) barrier_expect(full, (unsigned)(valid * box * D * 2));
  __syncwarp();
  if (loads) tile_load(to[chunk][number * box], map, full, KEEP_USUAL, chunk * ROW, row);
}

/* Parts first .. end - 1 of an item's queries in float32. What lies behind a head's elements is zero. */
template <int D>
__device__ static inline void load_parts(const tri_attention_args &a, const prompt_item &item, const prompt_maps &maps,
                                         hopper_room<D> &room, unsigned &part, int first, int end) {
  constexpr int SLOTS = hopper<D>::SLOTS;
  for (int p = first; p < end; p++, part++) {
    unsigned at = place_in<SLOTS>(part);
    barrier_wait(&room.empty_q[at], parity_in<SLOTS>(part) ^ 1);
    if (threadIdx.x % WARP == 0) {
      barrier_expect(&room.full_q[at], (unsigned)(maps.tokens * a.heads_per_kv * ROW * 2));
      tile_load(room.parts[at], &maps.q, &room.full_q[at], KEEP_SHORT, 0, p, item.unit * a.heads_per_kv, item.tile.row);
    }
    __syncwarp();
  }
}

/* An item's queries of 16 bits go to where products read them, once the last scores of the item before are there. */
template <int D>
__device__ static inline void load_queries(const tri_attention_args &a, const prompt_item &item,
                                           const prompt_maps &maps, hopper_room<D> &room, unsigned round) {
  int lane = threadIdx.x % WARP;
  barrier_wait(room.empty_q, parity_in<1>(round) ^ 1);
  if (lane == 0) barrier_expect(room.full_q, (unsigned)(hopper<D>::CHUNKS * maps.tokens * a.heads_per_kv * ROW * 2));
  __syncwarp();
  if (lane < hopper<D>::CHUNKS)
    tile_load(room.q[lane], &maps.q, room.full_q, KEEP_SHORT, lane * ROW, item.unit * a.heads_per_kv, item.tile.row);
}

/* The warp that begins all copies, in the order in which they are needed: tiles from the last key to the first. */
template <int D>
__device__ static inline void produce(const tri_attention_args &a, const int32_t *block_table,
                                      const tri_attention_tile *tiles, int num_items, const prompt_maps &maps,
                                      hopper_room<D> &room) {
  using x = hopper<D>;
  unsigned part = 0, k = 0, v = 0; /* numbers of the next ones */
  for (int round = 0, number; (number = item_number(round)) < num_items; round++) {
    prompt_item item = item_of<x::KEYS>(tiles, a.kv.num_kv_heads, maps.box, number);
    const int32_t *kv_blocks = block_table + item.tile.blocks;
    if (!maps.narrow) load_parts<D>(a, item, maps, room, part, 0, x::SLOTS);
    for (int i = item.tiles; i >= 0; i--) {
      int key0 = item.begin + i * x::KEYS;
      unsigned to_k = place_in<x::STAGES>(k), to_v = place_in<x::STAGES>(v);
      if (i > 0)
        load_tile<D>(a, item, kv_blocks, key0 - x::KEYS, maps.box, &maps.k, &room.full_k[to_k], &room.empty_k[to_k],
                     parity_in<x::STAGES>(k++), room.k[to_k]);
      if (i == item.tiles && maps.narrow)
        load_queries<D>(a, item, maps, room, (unsigned)round);
      else if (i == item.tiles)
        load_parts<D>(a, item, maps, room, part, x::SLOTS, x::PARTS);
      else
        load_tile<D>(a, item, kv_blocks, key0, maps.box, &maps.v, &room.full_v[to_v], &room.empty_v[to_v],
                     parity_in<x::STAGES>(v++), room.v[to_v]);
    }
  }
}

/* ---- consumers ---- */

/* Puts zeros where a tile has no values: nothing times what memory has there may not be a number. Each warpgroup does
 * so on its own, and the others' zeros do it no harm. */
template <int D> __device__ static inline void clear_tail(uint16_t (*v)[hopper<D>::KEYS][ROW], int keys, int group) {
  int pieces = (hopper<D>::KEYS - keys) * (ROW / PIECE);
  for (int c = 0; c < hopper<D>::CHUNKS; c++)
    for (int i = threadIdx.x % WARPGROUP; i < pieces; i += WARPGROUP)
      *(uint4 *)(v[c][keys] + i * PIECE) = make_uint4(0, 0, 0, 0);
  show_shared_to_engines();
  named_sync(OWN + group, WARPGROUP);
}

template <int D, bool PLAIN>
static __device__ __forceinline__ void weigh(const tri_attention_args &a, const prompt_item &item, int key0,
                                             float (&s)[hopper<D>::KEYS / 2], prompt_rows &r, float (&old)[2]) {
  constexpr bool CAPS = D > 64, SLOPES = D <= 128;
  const tri_attention_tile &t = item.tile;
  int first_last = a.causal ? t.position : t.context - 1; /* the last key of the first row */
  int last_first = (a.causal ? t.position + t.rows : t.context) - a.window;
  if (!PLAIN) adjust_scores<CAPS, SLOPES>(a, item, s, key0, r);
  if (key0 + hopper<D>::KEYS - 1 > first_last || (a.window > 0 && key0 < last_first)) mask_scores(a, item, s, key0, r);
  soften_scores(s, r, PLAIN ? a.scale * LOG2E : 1, old);
}

template <typename T, int D>
static __device__ __forceinline__ void start_scores(hopper_room<D> &room, unsigned tile, uint64_t queries,
                                                    uint64_t keys, float (&s)[hopper<D>::KEYS / 2]) {
  unsigned at = place_in<hopper<D>::STAGES>(tile);
  products_begin();
  begin_scores<T, D>(s, queries, keys + behind((int)(at * hopper<D>::TILE_BYTES)));
  products_commit();
}

template <typename T, int D>
static __device__ __forceinline__ void start_values(hopper_room<D> &room, unsigned tile, uint64_t values,
                                                    const uint32_t (&p)[hopper<D>::KEYS / 16][4], float (&out)[D / 2]) {
  unsigned at = place_in<hopper<D>::STAGES>(tile);
  barrier_wait(&room.full_v[at], parity_in<hopper<D>::STAGES>(tile));
  products_begin();
  begin_values<T, D>(out, p, values + behind((int)(at * hopper<D>::TILE_BYTES)));
  products_commit();
}

/* Waits for the products with the values of a tile, if they have begun. */
template <int D>
static __device__ __forceinline__ void end_values(hopper_room<D> &room, unsigned tile, bool is_begun,
                                                  float (&out)[D / 2]) {
  products_wait<0>();
  products_hold(out);
  release(&room.empty_v[place_in<hopper<D>::STAGES>(tile)], is_begun);
}

/* Returns true where an item's float32 queries are taken beside the last products of the one before, for which there
 * must be registers. */
__device__ constexpr bool takes_early(int d, bool plain) { return d < 256 || plain; }

/* The queries of the item behind this one: whether there are any, and where they come from. */
struct next_queries {
  bool there, narrow; /* narrow: in 16 bits, and straight to their place once that is released */
  unsigned part;      /* of those in float32, the number of the next one */
};

/* An item's rows of one warpgroup, whose queries are there; n is the number of its first tile, and then of the next
 * item's. The scores of a tile are under way while those of the one
 * before are softened and their values added. The wait for these products stands at the top of the loop: at its end the
 * assembler would move it up, in front of the powers that are to run beside them. */
template <typename T, int D, bool PLAIN>
static __device__ __forceinline__ void attend(const tri_attention_args &a, const prompt_item &item,
                                              hopper_room<D> &room, unsigned &n, next_queries &next, int group,
                                              prompt_rows &r, float (&out)[D / 2]) {
  using x = hopper<D>;
  constexpr int STAGES = x::STAGES;
  float s[x::KEYS / 2], old[2];
  uint32_t p[x::KEYS / 16][4];
  const uint64_t queries = operand(room.q[0][group * 64], 1024, 1024), keys = operand(room.k, 1024, 1024),
                 values = operand(room.v, x::KEYS * 128, 1024);
  int key0 = item.begin + (item.tiles - 1) * x::KEYS;
  barrier_wait(&room.full_k[place_in<STAGES>(n)], parity_in<STAGES>(n));
  start_scores<T, D>(room, n, queries, keys, s);
  products_wait<0>();
  products_hold(s);
  release(&room.empty_k[place_in<STAGES>(n)], true);
  weigh<D, PLAIN>(a, item, key0, s, r, old);
  if (key0 + x::KEYS > item.tile.context) {
    barrier_wait(&room.full_v[place_in<STAGES>(n)], parity_in<STAGES>(n));
    clear_tail<D>(room.v[place_in<STAGES>(n)], item.tile.context - key0, group);
  }
#pragma unroll 1
  for (int i = 1; i < item.tiles; i++) {
    key0 -= x::KEYS;
    n++;
    end_values<D>(room, n, i > 1, out); /* of tile n - 2, whose place tile n has */
    pack_weights<T>(p, s);
    scale_results(out, old);
    barrier_wait(&room.full_k[place_in<STAGES>(n)], parity_in<STAGES>(n));
    if (x::TAKES_TURNS) named_sync(TURN + group, 2 * WARPGROUP);
    start_scores<T, D>(room, n, queries, keys, s);
    start_values<T, D>(room, n - 1, values, p, out);
    if (x::TAKES_TURNS) named_arrive(TURN + (group + 1) % x::CONSUMERS, 2 * WARPGROUP);
    products_wait<1>();
    products_hold(s);
    release(&room.empty_k[place_in<STAGES>(n)], true);
    weigh<D, PLAIN>(a, item, key0, s, r, old);
  }
  end_values<D>(room, n - 1, item.tiles > 1, out);
  pack_weights<T>(p, s);
  scale_results(out, old);
  start_values<T, D>(room, n, values, p, out);
  if (next.narrow)
    release(room.empty_q, true);
  else if (takes_early(D, PLAIN) && next.there)
    take_queries<T, D>(room, next.part, group);
  end_values<D>(room, n, true, out);
  n++;
}

/* A lane's two rows at the beginning of an item. */
template <bool PLAIN>
__device__ static inline prompt_rows begin_rows(const tri_attention_args &a, const prompt_item &item) {
  prompt_rows r;
#pragma unroll
  for (int h = 0; h < 2; h++) {
    r.token[h] = (first_row() + h * 8) / a.heads_per_kv;
    r.max[h] = -INFINITY;
    r.sum[h] = 0;
    if (!a.sinks) continue;
    float sink = a.sinks[head_of(a, item, r, h)];
    r.max[h] = PLAIN ? sink / a.scale : sink * LOG2E;
    r.sum[h] = threadIdx.x % 4 == 0 ? 1 : 0;
  }
  return r;
}

template <typename T, int D>
__device__ static inline void store_rows(const tri_attention_args &a, const prompt_item &item, const prompt_rows &r,
                                         const float (&out)[D / 2]) {
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
    for (int i = 0; i < D / 8; i++) {
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

/* A warpgroup of 64 rows: number `group`. */
template <typename T, int D, bool PLAIN>
__device__ static inline void consume(const tri_attention_args &a, const tri_attention_tile *tiles, int num_items,
                                      const prompt_maps &maps, hopper_room<D> &room, int group) {
  using x = hopper<D>;
  next_queries next = {false, maps.narrow, 0};
  unsigned n = 0;
  if (x::TAKES_TURNS && group == 0) named_arrive(TURN, 2 * WARPGROUP);
  if (takes_early(D, PLAIN) && !next.narrow) take_queries<T, D>(room, next.part, group);
#pragma unroll 1
  for (int round = 0; item_number(round) < num_items; round++) {
    prompt_item item = item_of<x::KEYS>(tiles, a.kv.num_kv_heads, maps.box, item_number(round));
    next.there = item_number(round + 1) < num_items;
    prompt_rows r = begin_rows<PLAIN>(a, item);
    float out[D / 2];
#pragma unroll
    for (int i = 0; i < D / 2; i++) out[i] = 0;
    if (next.narrow)
      barrier_wait(room.full_q, parity_in<1>((unsigned)round));
    else if (!takes_early(D, PLAIN))
      take_queries<T, D>(room, next.part, group);
    attend<T, D, PLAIN>(a, item, room, n, next, group, r, out);
    store_rows<T, D>(a, item, r, out);
  }
}

/* ---- the kernel ---- */

template <int D> __device__ static inline void make_barriers(hopper_room<D> &room) {
  using x = hopper<D>;
  enum { READERS = x::CONSUMERS * (WARPGROUP / WARP) };
  for (int i = 0; i < x::SLOTS; i++) {
    barrier_init(&room.full_q[i], 1);
    barrier_init(&room.empty_q[i], READERS);
  }
  for (int i = 0; i < x::STAGES; i++) {
    barrier_init(&room.full_k[i], 1);
    barrier_init(&room.empty_k[i], READERS);
    barrier_init(&room.full_v[i], 1);
    barrier_init(&room.empty_v[i], READERS);
  }
  barriers_are_made();
}

/* Attention of sequences of more than one token. q and out [T, heads * d]. Grid: as many blocks as there are
 * multiprocessors, or items (KV heads times tiles of tokens) where these are fewer; 384 threads, 512 for heads up to
 * 64 elements. Shared memory: hopper_room, 136, 224 or 224 KiB for heads of 64, 128 and 256. The kernel of the batch's
 * single tokens may run beside it. */
template <typename T, int D, bool PLAIN>
__global__ __launch_bounds__(hopper<D>::THREADS,
                             1) static void prefill_wgmma_kernel(tri_attention_args a, const int32_t *block_table,
                                                                 const tri_attention_tile *tiles, int num_items,
                                                                 const __grid_constant__ prompt_maps maps) {
  using x = hopper<D>;
  extern __shared__ __align__(1024) char space[];
  hopper_room<D> &room = *(hopper_room<D> *)space;
  if (!HAS_HOPPER) return;
  if (threadIdx.x == 0) {
    make_barriers<D>(room);
    prefetch_map(&maps.q);
    prefetch_map(&maps.k);
    prefetch_map(&maps.v);
  }
  wait_for_previous();
  let_next_begin();
  __syncthreads();
  int warp = __shfl_sync(0xffffffffu, (int)threadIdx.x / WARP, 0), group = warp * WARP / WARPGROUP;
  if (group == 0) {
    give_registers<x::PRODUCER_REGISTERS>();
    if (warp == 0) produce<D>(a, block_table, tiles, num_items, maps, room);
  } else {
    take_registers<x::CONSUMER_REGISTERS>();
    consume<T, D, PLAIN>(a, tiles, num_items, maps, room, group - 1);
  }
}

/* ---- launches ---- */

/* Queries in float32 are seen as pairs of 16 bits. */
static bool map_queries(const tri_attention_args *a, prompt_maps *out) {
  uint64_t d = (uint64_t)a->kv.head_dim, ld = (uint64_t)a->q.ld, heads = (uint64_t)a->num_heads;
  uint32_t group = (uint32_t)a->heads_per_kv, tokens = (uint32_t)out->tokens;
  const tri_tiling parts = {
      4, {ROW, d / 32, heads, (uint64_t)a->q.rows}, {0, ROW * 2, d * 4, ld * 4}, {ROW, 1, group, tokens}};
  const tri_tiling whole = {3, {d, heads, (uint64_t)a->q.rows}, {0, d * 2, ld * 2}, {ROW, group, tokens}};
  out->narrow = a->q.dtype != TRI_F32;
  return tri_cuda_map_tensor(&out->q, a->kv.dtype, a->q.data, out->narrow ? &whole : &parts) == TRI_OK;
}

static bool make_maps(const tri_attention_args *a, int rows, int keys, prompt_maps *out) {
  const tri_kv_layer *kv = &a->kv;
  uint64_t d = (uint64_t)kv->head_dim;
  uint64_t cached = (uint64_t)kv->num_blocks * (uint64_t)kv->num_kv_heads * (uint64_t)kv->block_size;
  out->tokens = rows / a->heads_per_kv;
  out->box = kv->block_size < keys ? kv->block_size : keys;
  const tri_tiling cache = {2, {d, cached}, {0, d * 2}, {ROW, (uint32_t)out->box}};
  return map_queries(a, out) && tri_cuda_map_tensor(&out->k, kv->dtype, kv->k, &cache) == TRI_OK &&
         tri_cuda_map_tensor(&out->v, kv->dtype, kv->v, &cache) == TRI_OK;
}

template <typename T, int D, bool PLAIN>
static cudaError_t start(cudaStream_t stream, const tri_attention_args &a, const tri_attention_cut &cut, int num_sms) {
  using x = hopper<D>;
  constexpr size_t bytes = sizeof(hopper_room<D>);
  int items = cut.num_tiles * a.kv.num_kv_heads;
  prompt_maps maps;
  if (!items) return cudaSuccess;
  if (!make_maps(&a, x::ROWS, x::KEYS, &maps)) return cudaErrorInvalidValue;
  cudaError_t e = allow_shared<prefill_wgmma_kernel<T, D, PLAIN>>(bytes);
  if (e == cudaSuccess)
    launch_overlapped(prefill_wgmma_kernel<T, D, PLAIN>, dim3(items < num_sms ? items : num_sms), x::THREADS, bytes,
                      stream, a, a.batch->block_table, cut.tiles, items, maps);
  return e;
}

template <typename T, int D>
static cudaError_t start_plain(cudaStream_t stream, const tri_attention_args &a, const tri_attention_cut &cut,
                               int num_sms) {
  bool plain = a.softcap <= 0 && !a.alibi_slopes;
  return plain ? start<T, D, true>(stream, a, cut, num_sms) : start<T, D, false>(stream, a, cut, num_sms);
}

template <typename T>
static cudaError_t start_depth(cudaStream_t stream, const tri_attention_args &a, const tri_attention_cut &cut,
                               int num_sms) {
  if (a.kv.head_dim <= 64) return start_plain<T, 64>(stream, a, cut, num_sms);
  if (a.kv.head_dim <= 128) return start_plain<T, 128>(stream, a, cut, num_sms);
  return start_plain<T, 256>(stream, a, cut, num_sms);
}

cudaError_t tri_cuda_prefill_wgmma(cudaStream_t stream, const tri_attention_args *a, const tri_attention_cut *cut,
                                   int num_sms) {
  return a->kv.dtype == TRI_BF16 ? start_depth<__nv_bfloat16>(stream, *a, *cut, num_sms)
                                 : start_depth<__half>(stream, *a, *cut, num_sms);
}
