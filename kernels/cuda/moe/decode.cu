/* SPDX-License-Identifier: Apache-2.0 */
/* Experts with few rows each: bound by reading the weights. A block takes tiles of 16 rows of an expert's weights; its
 * warps cut k among themselves, each with the loads of 4 KiB under way, those of its next tile among them, and meet in
 * shared memory, where their sums are added in the order of warps. Weights are the left operand of the MMAs, so
 * that up to eight of an expert's rows cost as much as one. Of the first GEMM's tiles eight rows are gates and eight
 * their ups, which meet in a thread. More rows than 8 NT are further units, for which the weights are read again.
 *
 * The second GEMM has two forms. With up to 8 tokens a block owns 16 columns of out: it goes through all experts and
 * adds each token's choices in their order. Otherwise tiles go to whichever block is free, the results of each choice
 * to memory, and a further kernel adds them in order. */
#include "kernels/cuda/moe/moe.h"
#include "kernels/cuda/moe/fragments.cuh"
#include "kernels/cuda/moe/work.cuh"

enum {
  TEAM_WARPS = 8, /* of those that cut k */
  TEAM = TEAM_WARPS * WARP,
  AHEAD = 4, /* stages whose weights are under way */
  TILE = 16
};

/* A GEMM: a.x or the hidden rows with one expert's weights after the other. */
typedef struct few_gemm {
  tri_moe_experts_args a;
  tri_weight w;
  const float *bias;
  int units, tiles; /* rows of out for an expert, and tiles that they are cut into */
  tri_mat x;        /* of tokens, or of the map's rows */
  tri_mat hidden;   /* [N, F], what the first one writes */
  float *partial;   /* [T * top_k, H], what the second one writes */
} few_gemm;

/* ---- weights on their way ---- */

/* A lane's two rows of a tile, each from its own 16 bytes of the first stage on. */
typedef struct tile_rows {
  const char *low, *high;
} tile_rows;

template <bool PAIRED> __device__ static inline tile_rows rows_of_tile(const few_gemm &p, int expert, int tile) {
  int lane = threadIdx.x % WARP, half = PAIRED ? TILE / 2 : TILE;
  int low = min(tile * half + lane / 4, p.units - 1), high = low + p.units;
  if (!PAIRED) high = min(tile * half + lane / 4 + 8, p.units - 1);
  size_t bytes = (size_t)p.w.k * element_bytes(p.w.dtype), first = (size_t)expert * (size_t)(PAIRED ? 2 : 1) * p.units;
  const char *at = (const char *)p.w.data + lane % 4 * LANE_BYTES;
  return {at + (first + (size_t)low) * bytes, at + (first + (size_t)high) * bytes};
}

/* Stage `stage` of a tile's rows of k_bytes; after their end there is nothing, which is 0. */
__device__ static inline void load_stage(raw_weights &w, const tile_rows &t, int stage, int k_bytes) {
  int at = stage * STAGE_BYTES;
  bool there = at + (int)(threadIdx.x % 4) * LANE_BYTES < k_bytes;
  w.low = there ? __ldcs((const uint4 *)(t.low + at)) : make_uint4(0, 0, 0, 0);
  w.high = there ? __ldcs((const uint4 *)(t.high + at)) : make_uint4(0, 0, 0, 0);
}

/* A warp's place in its weights: group `group` of AHEAD stages of a tile's rows. Groups go to the warps by turns. */
typedef struct weight_stream {
  raw_weights ring[AHEAD];
  int warp, groups, k_bytes;
} weight_stream;

/* The stream is continuous: while a tile's last group is multiplied, the first of the next tile is fetched, so that
 * loads do not pause between two tiles. */
__device__ static inline void open_stream(weight_stream &s, const few_gemm &p) {
  s.warp = threadIdx.x / WARP % TEAM_WARPS;
  s.k_bytes = p.w.k * (int)element_bytes(p.w.dtype);
  s.groups = (s.k_bytes + AHEAD * STAGE_BYTES - 1) / (AHEAD * STAGE_BYTES);
}

__device__ static inline void begin_stream(weight_stream &s, const tile_rows &t) {
#pragma unroll
  for (int u = 0; u < AHEAD; u++)
    if (s.warp < s.groups) load_stage(s.ring[u], t, s.warp * AHEAD + u, s.k_bytes);
}

/* A lane's activations of a stage, of each eight rows. */
template <typename W, typename X, int NT> struct stage_inputs {
  activations<W, X> f[NT];
  /* After the end of k weights are 0, and the first elements stand for others. */
  __device__ void load(const tri_mat &x, const int (&row)[NT], int stage, int k, int eights) {
    int at = (stage * 4 + (int)(threadIdx.x % 4)) * activations<W, X>::ELEMENTS;
#pragma unroll
    for (int t = 0; t < NT; t++)
      if (NT == 1 || t < eights) f[t].load((const X *)x.data + (int64_t)row[t] * x.ld + (at < k ? at : 0));
  }
  __device__ void multiply(typename activations<W, X>::sum (&c)[NT][4], const raw_weights &raw, int eights) const {
    typename activations<W, X>::weights w(raw);
#pragma unroll
    for (int t = 0; t < NT; t++)
      if (NT == 1 || t < eights) f[t].multiply(c[t], w);
  }
};

/* Adds a tile's MMAs over the warp's part of k to c, and has the first weights of the next tile on their way then.
 * row: this lane's rows of x, one of each eight of `eights`. Where registers allow it, a stage's inputs come while the
 * one before is multiplied. */
template <typename W, typename X, int NT>
__device__ static inline void run_tile(weight_stream &s, const tile_rows &now, const tile_rows &next, bool more,
                                       const tri_mat &x, const int (&row)[NT], int eights,
                                       typename activations<W, X>::sum (&c)[NT][4]) {
  typedef stage_inputs<W, X, NT> inputs;
  enum { EARLY = sizeof(inputs) <= 32 };
  int k = s.k_bytes / (int)sizeof(W);
  inputs in[EARLY ? 2 : 1];
  if (EARLY && s.warp < s.groups) in[0].load(x, row, s.warp * AHEAD, k, eights);
  for (int group = s.warp; group < s.groups; group += TEAM_WARPS) {
    bool last = group + TEAM_WARPS >= s.groups;
    int ahead = last ? s.warp : group + TEAM_WARPS;
    tile_rows from = last ? next : now;
#pragma unroll
    for (int u = 0; u < AHEAD; u++) {
      int stage = group * AHEAD + u;
      if (EARLY) stage = u + 1 < AHEAD ? stage + 1 : (group + TEAM_WARPS) * AHEAD;
      in[EARLY * (u + 1) % 2].load(x, row, stage, k, eights);
      in[EARLY * u % 2].multiply(c, s.ring[u], eights);
      if (!last || more) load_stage(s.ring[u], from, ahead * AHEAD + u, s.k_bytes);
    }
  }
}

/* ---- sums ---- */

/* Room for the sums of a team's warps, as their lanes have them: two tiles' by turns, so that one barrier is enough. */
template <typename S, int NT> struct meeting { S sum[2][TEAM_WARPS][NT][WARP * 4]; };

template <typename S, int NT>
__device__ static inline void bring_sums(S (&to)[TEAM_WARPS][NT][WARP * 4], const weight_stream &s, const S (&c)[NT][4],
                                         int eights) {
  int lane = threadIdx.x % WARP;
  if (s.warp >= s.groups) return;
#pragma unroll
  for (int t = 0; t < NT; t++)
#pragma unroll
    for (int i = 0; i < 4; i++)
      if (t < eights) to[s.warp][t][lane * 4 + i] = c[t][i];
}

/* The order is that of the warps, so a result does not depend on which of them came first. Warps without a group have
 * left nothing. */
template <typename S, int NT>
__device__ static inline S sum_of_warps(const S (&from)[TEAM_WARPS][NT][WARP * 4], const weight_stream &s, int t,
                                        int i) {
  S sum = 0;
  for (int w = 0; w < TEAM_WARPS && w < s.groups; w++) sum += from[w][t][i];
  return sum;
}

/* A sum as a number: weights of integers have scales. Row: of the weights. */
__device__ static inline float scaled(const few_gemm &p, float sum, size_t row) {
  sum *= scale_of_sum(p.w, (int)row);
  return p.bias ? sum + p.bias[row] : sum;
}

/* ---- the first GEMM ---- */

/* Rows of the map are choices: T * top_k of them, by expert. */
__device__ static inline int token_of(const few_gemm &p, int row) { return p.a.map.choice[row] / p.a.top_k; }

/* The hidden units of a tile, of which an element's place says unit and row. */
template <typename S, int NT, bool PAIRED>
__device__ static inline void finish_up(const few_gemm &p, const weight_stream &s,
                                        const S (&sums)[TEAM_WARPS][NT][WARP * 4], work_rows rows, int tile) {
  enum { EACH = PAIRED ? 2 : 4, OF_EIGHT = WARP * EACH, UNITS = PAIRED ? TILE / 2 : TILE };
  for (int i = threadIdx.x; i < (rows.count + 7) / 8 * OF_EIGHT; i += TEAM) {
    int t = i / OF_EIGHT, lane = i % OF_EIGHT / EACH, j = i % EACH;
    int row = t * 8 + lane % 4 * 2 + j % 2, unit = tile * UNITS + lane / 4 + j / 2 * 8;
    if (row >= rows.count || unit >= p.units) continue;
    size_t at = (size_t)rows.expert * (size_t)(PAIRED ? 2 : 1) * (size_t)p.units + (size_t)unit;
    float y = scaled(p, sum_of_warps<S, NT>(sums, s, t, lane * 4 + j), at);
    if (PAIRED) {
      float up = scaled(p, sum_of_warps<S, NT>(sums, s, t, lane * 4 + j + 2), at + (size_t)p.units);
      y = glu_of(p.a.act, p.a.glu_limit, y, up);
    } else if (p.a.act != TRI_ACT_NONE) {
      y = act_of(p.a.act, y);
    }
    store_at(p.hidden, rows.first + row, (size_t)unit, y);
  }
}

/* The lane's rows of a unit; those that there are not are the last one. */
template <int NT, bool TOKENS>
__device__ static inline void find_rows(const few_gemm &p, work_rows rows, int (&row)[NT]) {
#pragma unroll
  for (int t = 0; t < NT; t++) {
    row[t] = rows.first + min(t * 8 + (int)(threadIdx.x % WARP) / 4, rows.count - 1);
    if (TOKENS) row[t] = token_of(p, row[t]);
  }
}

/* The first GEMM and the activation. x [T, H], w [experts, units or 2 units, H], hidden [N, units]. Any grid, 256
 * threads. Shared memory: the list of work, after it the warps' sums. */
template <typename W, typename X, int NT, bool PAIRED>
__global__ __launch_bounds__(TEAM, 2) static void up_kernel(few_gemm p) {
  typedef typename activations<W, X>::sum sum;
  extern __shared__ __align__(16) char shared[];
  meeting<sum, NT> *room = (meeting<sum, NT> *)(shared + work_list_ints(p.a.num_experts) * sizeof(int));
  int row[NT];
  weight_stream s;
  stamp_begun();
  wait_for_previous();
  let_next_begin_now(); /* what follows finds the map as it is */
  work_list list = list_work(p.a.map.first, p.a.num_experts, 8 * NT, (int *)shared);
  work_range range = range_of_block(list, p.tiles);
  if (range.begin >= range.end) return;
  work_place place = find_work(list, range.begin, p.tiles);
  tile_rows now = rows_of_tile<PAIRED>(p, list.expert[place.at], place.tile);
  open_stream(s, p);
  begin_stream(s, now);
  int unit = -1;
  for (int item = range.begin; item < range.end; item++) {
    work_rows rows = rows_of_work(list, place, 8 * NT);
    work_place following = next_work(list, place, p.tiles);
    tile_rows next = rows_of_tile<PAIRED>(p, list.expert[following.at], following.tile);
    sum c[NT][4] = {};
    int eights = (rows.count + 7) / 8, turn = (item - range.begin) % 2;
    if (place.unit != unit) find_rows<NT, true>(p, rows, row);
    unit = place.unit;
    run_tile<W, X, NT>(s, now, next, item + 1 < range.end, p.x, row, eights, c);
    bring_sums<sum, NT>(room->sum[turn], s, c, eights);
    __syncthreads();
    finish_up<sum, NT, PAIRED>(p, s, room->sum[turn], rows, place.tile);
    place = following;
    now = next;
  }
}

/* ---- the second GEMM, of any number of tokens ---- */

/* The results of each choice by themselves. x [N, F], w [experts, H, F], partial [T * top_k, H]. Any grid, 256 threads.
 * Shared memory as above. The first weights are on their way before the previous kernel, which made x, has ended. */
template <typename W, typename X, int NT> __global__ __launch_bounds__(TEAM, 2) static void down_kernel(few_gemm p) {
  typedef typename activations<W, X>::sum sum;
  extern __shared__ __align__(16) char shared[];
  meeting<sum, NT> *room = (meeting<sum, NT> *)(shared + work_list_ints(p.a.num_experts) * sizeof(int));
  int row[NT];
  weight_stream s;
  let_next_begin();
  work_list list = list_work(p.a.map.first, p.a.num_experts, 8 * NT, (int *)shared);
  work_range range = range_of_block(list, p.tiles);
  bool busy = range.begin < range.end;
  work_place place = {};
  tile_rows now = {};
  open_stream(s, p);
  if (busy) {
    place = find_work(list, range.begin, p.tiles);
    now = rows_of_tile<false>(p, list.expert[place.at], place.tile);
    begin_stream(s, now);
  }
  wait_for_previous();
  for (int item = range.begin; item < range.end; item++) {
    work_rows rows = rows_of_work(list, place, 8 * NT);
    work_place following = next_work(list, place, p.tiles);
    tile_rows next = rows_of_tile<false>(p, list.expert[following.at], following.tile);
    sum c[NT][4] = {};
    int eights = (rows.count + 7) / 8, turn = (item - range.begin) % 2;
    find_rows<NT, false>(p, rows, row);
    run_tile<W, X, NT>(s, now, next, item + 1 < range.end, p.x, row, eights, c);
    bring_sums<sum, NT>(room->sum[turn], s, c, eights);
    __syncthreads();
    for (int i = threadIdx.x; i < eights * TILE * 8; i += TEAM) {
      int column = place.tile * TILE + i % TILE, r = i / TILE, lane = i % 8 * 4 + r % 8 / 2;
      if (r >= rows.count || column >= p.units) continue;
      sum all = sum_of_warps<sum, NT>(room->sum[turn], s, r / 8, lane * 4 + r % 2 + i % TILE / 8 * 2);
      float y = scaled(p, all, (size_t)rows.expert * (size_t)p.units + (size_t)column);
      p.partial[(size_t)p.a.map.choice[rows.first + r] * (size_t)p.units + (size_t)column] = y;
    }
    place = following;
    now = next;
  }
}

/* ---- the second GEMM of up to 8 tokens ---- */

/* Adds the choices of a tile's columns. one: [T * top_k, 16], each choice's result. */
__device__ static inline void combine_tile(const tri_moe_experts_args &a, const float *one, int tile) {
  for (int i = threadIdx.x; i < a.out.rows * TILE; i += blockDim.x) {
    int t = i / TILE, column = tile * TILE + i % TILE;
    if (column >= a.out.cols) continue;
    float sum = a.accumulate ? load_at(a.out, t, (size_t)column) : 0;
    for (int c = t * a.top_k; c < (t + 1) * a.top_k; c++)
      if (a.map.row[c] >= 0) sum += a.weights[c] * one[c * TILE + i % TILE];
    store_at(a.out, t, (size_t)column, sum);
  }
}

/* 16 columns of out, of all tokens and experts. x [N, F], w [experts, H, F], out [T, H]. Grid H / 16; 256 threads, or
 * TEAMS times as many, whose teams take the experts by turns. Shared memory: the list of work, a result of each choice,
 * the sums of each team. The first weights are on their way before the previous kernel has ended. */
template <typename W, typename X, int TEAMS>
__global__ __launch_bounds__(TEAMS *TEAM, 2 / TEAMS) static void own_down_kernel(few_gemm p) {
  typedef typename activations<W, X>::sum sum;
  extern __shared__ __align__(16) char shared[];
  float *one = (float *)(shared + work_list_ints(p.a.num_experts) * sizeof(int));
  int team = threadIdx.x / TEAM, thread = threadIdx.x % TEAM;
  meeting<sum, 1> *room = (meeting<sum, 1> *)(one + (size_t)p.x.rows * TILE) + team;
  int row[1];
  weight_stream s;
  let_next_begin();
  work_list list = list_work(p.a.map.first, p.a.num_experts, 8, (int *)shared);
  int units = list.start[list.num];
  work_place place = {};
  tile_rows now = {}, next = {};
  open_stream(s, p);
  if (team < units) {
    place = find_work(list, team, 1);
    now = rows_of_tile<false>(p, list.expert[place.at], blockIdx.x);
    begin_stream(s, now);
  }
  wait_for_previous();
  for (int unit = team; unit - team < units; unit += TEAMS) {
    int turn = unit / TEAMS % 2;
    work_rows rows = {};
    if (unit < units) {
      sum c[1][4] = {};
      bool more = unit + TEAMS < units;
      rows = rows_of_work(list, place, 8);
      if (more) {
        place = find_work(list, unit + TEAMS, 1);
        next = rows_of_tile<false>(p, list.expert[place.at], blockIdx.x);
      }
      find_rows<1, false>(p, rows, row);
      run_tile<W, X, 1>(s, now, next, more, p.x, row, 1, c);
      bring_sums<sum, 1>(room->sum[turn], s, c, 1);
      now = next;
    }
    __syncthreads();
    for (int i = thread; i < rows.count * TILE; i += TEAM) {
      int r = i / TILE, column = min((int)blockIdx.x * TILE + i % TILE, p.units - 1), lane = i % 8 * 4 + r / 2;
      sum all = sum_of_warps<sum, 1>(room->sum[turn], s, 0, lane * 4 + r % 2 + i % TILE / 8 * 2);
      float y = scaled(p, all, (size_t)rows.expert * (size_t)p.units + (size_t)column);
      one[p.a.map.choice[rows.first + r] * TILE + i % TILE] = y;
    }
  }
  __syncthreads();
  combine_tile(p.a, one, blockIdx.x);
}

/* ---- launches ---- */

enum { OWN_TOKENS = 8, OWN_CHOICES = 256 };

static size_t list_bytes(const tri_moe_experts_args &a) { return work_list_ints(a.num_experts) * sizeof(int); }

template <typename W, typename X, int NT, bool PAIRED>
static void up(cudaStream_t stream, const few_gemm &p, int num_sms) {
  size_t shared = list_bytes(p.a) + sizeof(meeting<float, NT>);
  launch_overlapped(up_kernel<W, X, NT, PAIRED>, dim3(2u * (unsigned)num_sms), TEAM, shared, stream, p);
}

template <typename W, typename X, int NT> static void down(cudaStream_t stream, const few_gemm &p, int num_sms) {
  size_t shared = list_bytes(p.a) + sizeof(meeting<float, NT>);
  launch_overlapped(down_kernel<W, X, NT>, dim3(2u * (unsigned)num_sms), TEAM, shared, stream, p);
  tri_cuda_moe_combine(stream, &p.a, p.partial);
}

template <typename W, typename X> static void own_down(cudaStream_t stream, const few_gemm &p, int num_sms) {
  size_t shared = list_bytes(p.a) + (size_t)p.x.rows * TILE * sizeof(float), room = sizeof(meeting<float, 1>);
  if (p.tiles <= num_sms)
    launch_overlapped(own_down_kernel<W, X, 2>, dim3(p.tiles), 2 * TEAM, shared + 2 * room, stream, p);
  else
    launch_overlapped(own_down_kernel<W, X, 1>, dim3(p.tiles), TEAM, shared + room, stream, p);
}

/* Rows of an expert that are expected at most, in eights: more cost a further reading. With integers there are no
 * registers for more than two. */
static int eights_of(const tri_moe_experts_args &a) {
  int64_t mean = (int64_t)a.x.rows * a.top_k / a.num_experts;
  if (a.x.rows <= 8) return 1;
  return a.x.rows <= 16 || mean <= 4 || a.up.dtype == TRI_I8 ? 2 : 4;
}

/* True where there is a kernel for four eights. */
template <typename W> constexpr bool HAS_FOUR = sizeof(W) > 1;

template <typename W, typename X> static void ups(cudaStream_t stream, const few_gemm &p, int num_sms) {
  switch (2 * eights_of(p.a) + p.a.gated) {
  case 2: up<W, X, 1, false>(stream, p, num_sms); break;
  case 3: up<W, X, 1, true>(stream, p, num_sms); break;
  case 4: up<W, X, 2, false>(stream, p, num_sms); break;
  case 5: up<W, X, 2, true>(stream, p, num_sms); break;
  default:
    if constexpr (HAS_FOUR<W>)
      p.a.gated ? up<W, X, 4, true>(stream, p, num_sms) : up<W, X, 4, false>(stream, p, num_sms);
    break;
  }
}

/* True where the second GEMM's blocks own columns: each sees every choice of them, and no result of a choice goes
 * through memory. */
static bool owns_columns(const tri_moe_experts_args &a) {
  return a.x.rows <= OWN_TOKENS && (int64_t)a.x.rows * a.top_k <= OWN_CHOICES;
}

template <typename W, typename X> static void downs(cudaStream_t stream, const few_gemm &p, int num_sms) {
  if (owns_columns(p.a)) {
    own_down<W, X>(stream, p, num_sms);
    return;
  }
  switch (eights_of(p.a)) {
  case 1: down<W, X, 1>(stream, p, num_sms); break;
  case 2: down<W, X, 2>(stream, p, num_sms); break;
  default:
    if constexpr (HAS_FOUR<W>) down<W, X, 4>(stream, p, num_sms);
    break;
  }
}

template <typename W> static void floats(cudaStream_t stream, const few_gemm &u, const few_gemm &d, int num_sms) {
  if (u.x.dtype == TRI_F32)
    ups<W, float>(stream, u, num_sms);
  else
    ups<W, W>(stream, u, num_sms);
  downs<W, W>(stream, d, num_sms);
}

/* ---- around them ---- */

static size_t aligned(size_t bytes) { return (bytes + 255) & ~(size_t)255; }
static size_t choices_of(const tri_moe_experts_args &a) { return (size_t)a.x.rows * (size_t)a.top_k; }
static tri_dtype hidden_type(const tri_moe_experts_args &a) {
  if (a.up.dtype != TRI_I8) return a.up.dtype;
  return a.x.dtype == TRI_F16 ? TRI_F16 : TRI_BF16;
}

static size_t hidden_bytes(const tri_moe_experts_args &a) {
  return aligned(choices_of(a) * (size_t)a.down.k * element_bytes(hidden_type(a)));
}
static size_t partial_bytes(const tri_moe_experts_args &a) {
  return owns_columns(a) ? 0 : aligned(choices_of(a) * (size_t)a.x.cols * sizeof(float));
}

/* With weights of integers, rows are of 16 bits. */
static bool narrows_first(const tri_moe_experts_args &a) { return a.up.dtype == TRI_I8 && a.x.dtype == TRI_F32; }

size_t tri_cuda_moe_few_workspace(const tri_moe_experts_args *a) {
  size_t bytes = hidden_bytes(*a) + partial_bytes(*a);
  if (narrows_first(*a)) bytes += aligned((size_t)a->x.rows * (size_t)a->x.cols * 2);
  return bytes;
}

/* k in whole pieces, at places that are theirs. */
static bool is_in_pieces(const tri_weight &w) {
  return (size_t)w.k * element_bytes(w.dtype) % LANE_BYTES == 0 && w.k > 0 && (uintptr_t)w.data % LANE_BYTES == 0;
}

bool tri_cuda_moe_few_fits(const tri_moe_experts_args *a) {
  bool types = a->up.dtype == a->down.dtype && a->up.dtype != TRI_F32 && a->up.dtype != TRI_F8_E4M3 && !a->rounds_rows;
  bool rows = (uintptr_t)a->x.data % LANE_BYTES == 0 && (size_t)a->x.ld * element_bytes(a->x.dtype) % LANE_BYTES == 0;
  return types && rows && is_in_pieces(a->up) && is_in_pieces(a->down) && a->num_experts <= TRI_CUDA_MOE_EXPERTS;
}

void tri_cuda_moe_few(cudaStream_t stream, const tri_moe_experts_args *a, void *workspace, int num_sms) {
  int f = a->down.k, choices = (int)choices_of(*a);
  char *at = (char *)workspace;
  tri_mat hidden = {(float *)at, choices, f, f, hidden_type(*a)};
  float *partial = (float *)(at + hidden_bytes(*a));
  few_gemm u = {*a, a->up, a->up_bias, f, (int)blocks_for((size_t)f, a->gated ? TILE / 2 : TILE), a->x, hidden, NULL};
  few_gemm d = {*a, a->down, a->down_bias, a->x.cols, (int)blocks_for((size_t)a->x.cols, TILE), hidden, {}, partial};
  if (!a->x.rows || !a->x.cols) return;
  if (narrows_first(*a)) {
    u.x = {(float *)((char *)partial + partial_bytes(*a)), a->x.rows, a->x.cols, a->x.cols, hidden_type(*a)};
    tri_cuda_narrow(stream, &a->x, hidden_type(*a), u.x.data);
  }
  if (a->up.dtype == TRI_I8 && hidden.dtype == TRI_F16) {
    ups<int8_t, __half>(stream, u, num_sms);
    downs<int8_t, __half>(stream, d, num_sms);
  } else if (a->up.dtype == TRI_I8) {
    ups<int8_t, __nv_bfloat16>(stream, u, num_sms);
    downs<int8_t, __nv_bfloat16>(stream, d, num_sms);
  } else if (a->up.dtype == TRI_BF16) {
    floats<__nv_bfloat16>(stream, u, d, num_sms);
  } else {
    floats<__half>(stream, u, d, num_sms);
  }
}
