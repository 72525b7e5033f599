/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of the sampler's kernels: passes of one block over a row, and searches in histograms where the
 * reference sorts.
 *
 * Two things make the answers independent of the order in which threads come. An element's rank (rank.cuh) is a number
 * of its own for each element. And a weight is an integer, of which
 * 2^UNIT is the largest logit's, so that sums are exact: the mass that a bin has, a sample's place in it and the number
 * of equal logits that a cut leaves are the same however a sum is taken. */
#ifndef TRI_KERNELS_CUDA_SAMPLING_SAMPLE_CUH
#define TRI_KERNELS_CUDA_SAMPLING_SAMPLE_CUH

#include "kernels/cuda/sampling/rank.cuh"

/* PIECE: neighbouring elements that a warp takes at a time. UNIT: with the largest vocabulary, weights add up to 2^63.
 */
enum { THREADS = 1024, EACH = 8, PIECE_BITS = 8, PIECE = 1 << PIECE_BITS, BINS = 2 * THREADS, CANDIDATES = 2048 };
enum { UNIT = 63 - TRI_CUDA_VOCAB_BITS };
enum { BEST = TRI_SAMPLE_CANDIDATES }; /* the most whose ids are returned: candidates, or those with logprobs */
static_assert((int)BEST >= TRI_MAX_LOGPROBS && (int)TRI_SAMPLE_MERGED <= (int)CANDIDATES, "lists have room");

/* Elements of a row: neighbours from id `first` on, or those that a list names. */
typedef struct view {
  const float *x;
  const int32_t *ids; /* NULL: neighbours */
  int first, n;
  const uint32_t *mask;   /* of neighbours: bits of the ids that may be sampled, others are minus infinity; NULL: all */
  const uint32_t *counts; /* of neighbours with penalties, which then apply wherever one is read; else NULL */
  const tri_cuda_sample_row *d;
} view;

typedef struct list {
  float *x;
  int32_t *ids;
  int room;
} list;

typedef struct sampler {
  uint64_t sums[BINS]; /* a histogram; once all is in, each bin's holds those before it, too */
  uint64_t room[WARP];
  float tops[THREADS]; /* the largest that each thread met */
  float x[CANDIDATES], best_x[BEST];
  int32_t ids[CANDIDATES], best_ids[BEST];
  int listed; /* elements that belong into the list; more than it has room for: the list is of no use */
} sampler;

/* weight = exp((x - max) / temperature), or one for every element. */
typedef struct scale {
  float max, rate, rest; /* rate + rest: log2(e) / temperature */
  bool ones;
} scale;

__device__ static inline uint64_t warp_sum(uint64_t x) {
  for (int o = WARP / 2; o; o /= 2) x += __shfl_xor_sync(0xffffffffu, x, o);
  return x;
}
__device__ static inline uint64_t block_sum(uint64_t x, uint64_t *room) {
  int lane = threadIdx.x % WARP;
  x = warp_sum(x);
  if (!lane) room[threadIdx.x / WARP] = x;
  __syncthreads();
  x = warp_sum(room[lane]);
  __syncthreads();
  return x;
}
__device__ static inline uint64_t block_min(uint64_t x, uint64_t *room) {
  int lane = threadIdx.x % WARP;
  x = warp_min(x);
  if (!lane) room[threadIdx.x / WARP] = x;
  __syncthreads();
  x = warp_min(room[lane]);
  __syncthreads();
  return x;
}

__device__ static inline scale ones(void) {
  scale w = {0, 0, 0, true};
  return w;
}
__device__ static inline scale scale_of(float max, float temperature) {
  double rate = fmin(1.4426950408889634 / (double)temperature, 1e38);
  scale w = {max, (float)rate, (float)(rate - (double)(float)rate), false};
  return w;
}

/* The exponent in two floats, so that the error is that of exp2f; then the float's digits as an integer. */
__device__ static inline uint64_t weight_of(scale w, float x) {
  if (w.ones) return 1;
  float d = x - w.max, t = d * w.rate;
  if (!(t > -UNIT - 1)) return 0;
  float whole = rintf(t), part = exp2f((t - whole) + fmaf(d, w.rest, fmaf(d, w.rate, -t)));
  uint32_t bits = __float_as_uint(part);
  int shift = (int)(bits >> 23) - 127 - 23 + UNIT + (int)whole;
  uint64_t digits = (bits & 0x7fffffu) | 0x800000u;
  return shift >= 0 ? digits << shift : digits >> -shift;
}

__device__ static inline int id_of(const view &v, int j) { return v.ids ? v.ids[j] : v.first + j; }

/* The formula of kernels/sampling.c, every operation rounded. */
__device__ static inline float penalised(const tri_cuda_sample_row &d, float x, uint32_t count) {
  if (!count) return x;
  x = x > 0 ? __fdiv_rn(x, d.repetition_penalty) : __fmul_rn(x, d.repetition_penalty);
  count &= ~TRI_COUNTED_PROMPT;
  if (!count) return x;
  x = __fsub_rn(x, __fmul_rn(d.frequency_penalty, (float)count));
  return __fsub_rn(x, d.presence_penalty);
}

/* This thread's elements of the piece at `base`: base + lane, and so on in steps of a warp. All are under way before
 * the first is needed. Returns how many there are. */
__device__ static inline int load_piece(const view &v, int base, float (&x)[EACH]) {
  int lane = threadIdx.x % WARP, n = min(max((v.n - base - lane + WARP - 1) / WARP, 0), (int)EACH);
#pragma unroll
  for (int u = 0; u < EACH; u++) x[u] = u < n ? v.x[base + lane + u * WARP] : 0;
  if (v.mask) {
#pragma unroll
    for (int u = 0; u < EACH; u++)
      if (u < n && !(v.mask[base / WARP + u] >> lane & 1)) x[u] = -INFINITY;
  }
  if (!v.counts) return n;
#pragma unroll
  for (int u = 0; u < EACH; u++)
    if (u < n) x[u] = penalised(*v.d, x[u], v.counts[base + lane + u * WARP]);
  return n;
}
__device__ static inline int first_piece(void) { return threadIdx.x / WARP * PIECE; }
enum { NEXT_PIECE = THREADS * EACH };

/* The first of the view in the order. tops[thread] becomes the largest value that the thread met, minus infinity where
 * it met none; NULL: not wanted. */
__device__ static uint64_t first_of(view v, float *tops, uint64_t *room) {
  uint64_t best = UINT64_MAX;
  float x[EACH];
  for (int base = first_piece(); base < v.n; base += NEXT_PIECE) {
    int n = load_piece(v, base, x), j = base + threadIdx.x % WARP;
#pragma unroll
    for (int u = 0; u < EACH; u++)
      if (u < n) best = min(best, rank_of(x[u], id_of(v, j + u * WARP)));
  }
  if (tops) tops[threadIdx.x] = best == UINT64_MAX ? -INFINITY : value_of(best);
  return block_min(best, room);
}

/* Shared memory counts in 32 bits by itself, in 64 only in a loop: so the halves are added one by one. */
__device__ static inline void add_to(uint64_t *sum, uint64_t x) {
  uint32_t *half = (uint32_t *)sum, low = (uint32_t)x, high = (uint32_t)(x >> 32);
  if (low && atomicAdd(half, low) > ~low) high++;
  if (high) atomicAdd(half + 1, high);
}

__device__ static void clear_sums(sampler *s) {
  __syncthreads();
  s->sums[threadIdx.x] = s->sums[threadIdx.x + THREADS] = 0;
  __syncthreads();
}

/* Turns the histogram into inclusive prefix sums, two bins for each thread. */
__device__ static void run_up_sums(sampler *s) {
  int t = threadIdx.x, lane = t % WARP, warp = t / WARP;
  __syncthreads();
  uint64_t first = s->sums[2 * t], own = first + s->sums[2 * t + 1], up_to = own;
  for (int o = 1; o < WARP; o *= 2) {
    uint64_t other = __shfl_up_sync(0xffffffffu, up_to, o);
    if (lane >= o) up_to += other;
  }
  if (lane == WARP - 1) s->room[warp] = up_to;
  __syncthreads();
  uint64_t before = warp_sum(lane < warp ? s->room[lane] : 0) + up_to - own;
  s->sums[2 * t] = before + first;
  s->sums[2 * t + 1] = before + own;
  __syncthreads();
}

/* The first bin with which the sums reach `need`, and how much of that is left for it. */
__device__ static inline int bin_of(const sampler *s, uint64_t *need) {
  int bin = 0;
  for (int step = BINS / 2; step; step /= 2)
    if (s->sums[bin + step - 1] < *need) bin += step;
  if (bin) *need -= s->sums[bin - 1];
  return bin;
}

/* The elements of ranks from .. to, element by element to bin (rank - from) >> shift. */
__device__ static void tally(sampler *s, view v, uint64_t from, uint64_t to, int shift, scale w) {
  float x[EACH];
  clear_sums(s);
  for (int base = first_piece(); base < v.n; base += NEXT_PIECE) {
    int n = load_piece(v, base, x), j = base + threadIdx.x % WARP;
#pragma unroll
    for (int u = 0; u < EACH; u++) {
      if (u >= n) continue;
      uint64_t rank = rank_of(x[u], id_of(v, j + u * WARP));
      if (rank >= from && rank <= to) add_to(&s->sums[(rank - from) >> shift], weight_of(w, x[u]));
    }
  }
  run_up_sums(s);
}

/* The elements of ranks up to `to`, to bin (id - first) >> shift. */
__device__ static void tally_ids(sampler *s, view v, uint64_t to, int first, int shift, scale w) {
  float x[EACH];
  bool whole = !v.ids && shift >= PIECE_BITS; /* all of a piece has one bin */
  clear_sums(s);
  for (int base = first_piece(); base < v.n; base += NEXT_PIECE) {
    int n = load_piece(v, base, x), j = base + threadIdx.x % WARP;
    uint64_t sum = 0;
#pragma unroll
    for (int u = 0; u < EACH; u++) {
      if (u >= n) continue;
      int id = id_of(v, j + u * WARP);
      uint32_t bin = (uint32_t)(id - first) >> shift;
      uint64_t weight = rank_of(x[u], id) <= to ? weight_of(w, x[u]) : 0;
      sum += weight;
      if (!whole && weight && bin < BINS) add_to(&s->sums[bin], weight);
    }
    if (!whole) continue;
    sum = warp_sum(sum);
    if (threadIdx.x % WARP == 0) add_to(&s->sums[(v.first + base - first) >> shift], sum);
  }
  run_up_sums(s);
}

/* The digits of a rank that are looked at one after the other, by their lowest bits: 53, 42 and 32 in the place, 11 and
 * 0 in the id. */
__device__ static inline int next_shift(int shift) {
  if (shift == 53) return 42;
  return shift == 42 ? 32 : 11 * (shift == 32);
}

/* Up to which rank the view's elements, those up to `to` at most, have to be taken to amount to `need`, which is above
 * 0. Eleven, eleven and ten bits of the place, and where only some of the equal ones at the end are needed, their ids.
 */
__device__ static uint64_t take(sampler *s, view v, uint64_t to, uint64_t need, scale w) {
  uint64_t from = 0;
  for (int shift = 53;; shift = next_shift(shift)) {
    tally(s, v, from, to, shift, w);
    if (s->sums[BINS - 1] < need) return to;
    int bin = bin_of(s, &need);
    uint64_t all = s->sums[bin] - (bin ? s->sums[bin - 1] : 0);
    from += (uint64_t)bin << shift;
    to = min(to, from + (((uint64_t)1 << shift) - 1));
    if (!shift) return to;
    if (shift == 32 && all - weight_of(w, value_of(from)) < need) return to;
  }
}

/* Lists the view's elements of ranks up to `to`, in any order, and returns the sum of the weights of those up to `all`.
 */
__device__ static uint64_t gather(sampler *s, view v, list out, uint64_t to, uint64_t all, scale w) {
  uint64_t sum = 0;
  float x[EACH];
  __syncthreads();
  if (!threadIdx.x) s->listed = 0;
  __syncthreads();
  for (int base = first_piece(); base < v.n; base += NEXT_PIECE) {
    int n = load_piece(v, base, x), j = base + threadIdx.x % WARP;
#pragma unroll
    for (int u = 0; u < EACH; u++) {
      if (u >= n) continue;
      int id = id_of(v, j + u * WARP);
      uint64_t rank = rank_of(x[u], id);
      if (rank <= all) sum += weight_of(w, x[u]);
      if (rank > to) continue;
      int at = atomicAdd(&s->listed, 1);
      if (at < out.room) {
        out.x[at] = x[u];
        out.ids[at] = id;
      }
    }
  }
  return block_sum(sum, s->room);
}

/* The same without a list: no element has rank 0. */
__device__ static uint64_t mass_of(sampler *s, view v, uint64_t to, scale w) {
  list none = {NULL, NULL, 0};
  return gather(s, v, none, 0, to, w);
}

/* The first `wanted` of the row in the order, and some more, are what is at least as large as the wanted-th largest of
 * the threads' own largest. With fewer threads than that there is no such bound, and where too many are as large no
 * list: then the row itself is returned. *mass, where there is a bound: the weight of all up to `to`. */
__device__ static view shorten(sampler *s, view row, uint64_t wanted, uint64_t to, scale w, uint64_t *mass) {
  view tops = {s->tops, NULL, 0, THREADS}, some = {s->x, s->ids, 0, 0};
  list out = {s->x, s->ids, CANDIDATES};
  uint64_t guess = 0;
  if (wanted > THREADS) return row;
  if (wanted) guess = last_of((uint32_t)(take(s, tops, UINT64_MAX, wanted, ones()) >> 32));
  *mass = gather(s, row, out, min(guess, to), to, w);
  some.n = s->listed;
  return s->listed <= CANDIDATES ? some : row;
}

/* The id at which the weights, in ascending order of id, pass `uniform` / 2^53 of their sum. */
__device__ static int sample(sampler *s, view v, int vocab, uint64_t to, scale w, uint64_t uniform) {
  int shift = PIECE_BITS;
  while ((vocab - 1) >> shift >= BINS) shift++;
  tally_ids(s, v, to, 0, shift, w);
  uint64_t need = __umul64hi(uniform << 11, s->sums[BINS - 1]) + 1;
  int first = bin_of(s, &need) << shift;
  if (!v.ids) {
    v.x += first;
    v.first = first;
    if (v.mask) v.mask += first / WARP;
    if (v.counts) v.counts += first;
    v.n = min(v.n - first, 1 << shift);
  }
  tally_ids(s, v, to, first, 0, w);
  return first + bin_of(s, &need);
}

#endif
