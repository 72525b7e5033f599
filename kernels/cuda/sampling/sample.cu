/* SPDX-License-Identifier: Apache-2.0 */
/* Sampling: a block for each row; argmax.cu is for steps whose rows are all greedy. Nothing is sorted. Two passes over
 * a row are enough for most: one for its largest logit, and one for the sum of the weights, which also lists the few
 * candidates that top_k or top_p can leave; all else happens among those. Where cuts leave more than a list has room
 * for, the searches go over the whole row. */
#include "kernels/cuda/sampling/sample.cuh"

/* Largest ones of the threads that bound the candidates of top_p: of logits in no particular order, about a thousand
 * are as large. */
enum { GUESS = 640 };

/* ---- what changes logits, and back ---- */

/* A row, its words and its part of the scratch. */
typedef struct edits {
  float *row;
  uint32_t vocab;
  const uint32_t *ids; /* with a bias, banned */
  const float *biases;
  float *saved;
} edits;

__device__ static inline edits edits_of(const tri_cuda_sample_args &a, const tri_cuda_sample_row &d) {
  const uint32_t *words = a.words + d.words;
  int named = d.num_bias + d.num_banned;
  return {row_at(a.logits, blockIdx.x), (uint32_t)a.logits.cols, words, (const float *)(words + named),
          a.saved + d.words};
}

__device__ static inline const uint32_t *mask_of(const tri_cuda_sample_args &a, const tri_cuda_sample_row &d) {
  return d.masked ? a.masks + d.mask : NULL;
}

/* The first entry of an id adds those of all entries of that id, in their order. */
__device__ static void add_biases(const edits &e, int n) {
  for (int i = threadIdx.x; i < n; i += THREADS) {
    uint32_t id = e.ids[i];
    bool first = id < e.vocab;
    for (int j = 0; j < i; j++) first &= e.ids[j] != id;
    if (!first) continue;
    float x = e.row[id];
    for (int j = i; j < n; j++)
      if (e.ids[j] == id) x += e.biases[j];
    e.row[id] = x;
  }
}

/* Applies biases, then bans, to the row itself, and keeps the old values: logprobs are of the model's own logits, and
 * passes over the row need not look ids up. */
__device__ static void edit(const edits &e, const tri_cuda_sample_row &d) {
  int named = d.num_bias + d.num_banned;
  for (int i = threadIdx.x; i < named; i += THREADS)
    if (e.ids[i] < e.vocab) e.saved[i] = e.row[e.ids[i]];
  __syncthreads();
  add_biases(e, d.num_bias);
  __syncthreads();
  for (int i = d.num_bias + threadIdx.x; i < named; i += THREADS)
    if (e.ids[i] < e.vocab) e.row[e.ids[i]] = -INFINITY;
  __syncthreads();
}

/* Entries of one id saved one value. */
__device__ static void undo(const edits &e, const tri_cuda_sample_row &d) {
  __syncthreads();
  for (int i = threadIdx.x; i < d.num_bias + d.num_banned; i += THREADS)
    if (e.ids[i] < e.vocab) e.row[e.ids[i]] = e.saved[i];
  __syncthreads();
}

/* ---- the sample ---- */

/* The rank up to which logits have min_p times the best one's probability. */
__device__ static uint64_t likely(const tri_cuda_sample_row &d, uint64_t best) {
  double max = value_of(best), floor = max + d.temperature * log((double)d.min_p);
  return floor > max ? best : last_of(place_of(__double2float_ru(floor)));
}

/* The least sum that is top_p of the whole, and of one element at least. */
__device__ static inline uint64_t nucleus(float top_p, uint64_t mass) {
  return max((uint64_t)__double2ull_ru((double)top_p * (double)mass), (uint64_t)1);
}

/* Samples from what min_p, top_k and then top_p leave. row: all logits, or a list of those that top_k leaves and of
 * more. *largest: of them. Each cut lowers `to`, the last rank that stays; shorten only makes later passes shorter, and
 * where its guess was too short for top_p the whole row is searched. */
__device__ static int sample_row(sampler *s, view row, int vocab, const tri_cuda_sample_row &d, float *largest) {
  uint64_t best = first_of(row, s->tops, s->room), to = UINT64_MAX, mass = 0;
  float max = *largest = value_of(best);
  if (d.temperature <= 0 || !isfinite(max)) return token_of(best);
  bool top_k = d.top_k > 0 && d.top_k < row.n, top_p = d.top_p < 1;
  scale w = scale_of(max, d.temperature);
  view v = row;
  if (d.min_p > 0) to = likely(d, best);
  if (!row.ids && (top_k || top_p)) v = shorten(s, row, top_k ? d.top_k : GUESS, to, top_k ? ones() : w, &mass);
  if (top_k) to = take(s, v, to, (uint64_t)d.top_k, ones());
  if ((top_k || row.ids) && top_p) mass = mass_of(s, v, to, w);
  if (top_p) {
    uint64_t need = nucleus(d.top_p, mass);
    if (!top_k && v.ids && mass_of(s, v, to, w) < need) v = row;
    to = take(s, v, to, need, w);
  }
  return sample(s, v, vocab, to, w, d.uniform);
}

/* ---- logprobs ---- */

/* The first n of the row in the order, which has as many, to best_x and best_ids, in any order. Returns the weight of
 * all. */
__device__ static uint64_t find_best(sampler *s, view row, int n, scale w) {
  list best = {s->best_x, s->best_ids, BEST};
  uint64_t mass;
  view v = shorten(s, row, (uint64_t)n, UINT64_MAX, w, &mass);
  if (n) gather(s, v, best, take(s, v, UINT64_MAX, (uint64_t)n, ones()), 0, ones());
  return mass;
}

/* Each of the best, by one thread, to its place among them. */
__device__ static void report_best(const sampler *s, int n, double log_sum, tri_sample_result *r) {
  int i = threadIdx.x, before = 0;
  if (i >= TRI_MAX_LOGPROBS) return;
  if (i >= n) {
    r->top_ids[i] = 0;
    r->top_logprobs[i] = 0;
    return;
  }
  uint64_t rank = rank_of(s->best_x[i], s->best_ids[i]);
  for (int j = 0; j < n; j++) before += rank_of(s->best_x[j], s->best_ids[j]) < rank;
  r->top_ids[before] = (uint32_t)s->best_ids[i];
  r->top_logprobs[before] = (float)(value_of(rank) - log_sum);
}

__device__ static void report(sampler *s, view row, int wanted, int token, tri_sample_result *r) {
  float max = value_of(first_of(row, s->tops, s->room));
  int n = min(min(wanted, (int)TRI_MAX_LOGPROBS), row.n);
  uint64_t mass = find_best(s, row, n, scale_of(max, 1));
  double log_sum = isinf(max) ? NAN : max + log((double)mass) - UNIT * 0.69314718055994531;
  report_best(s, n, log_sum, r);
  if (threadIdx.x) return;
  r->num_top = n;
  r->logprob = (float)(value_at(place_of(row.x[token])) - log_sum);
}

/* Counts the ids of a piece of a history. Grid: pieces, 1024 threads. */
__global__ static void __launch_bounds__(THREADS)
    count_kernel(const tri_cuda_history *pieces, const uint32_t *words, uint32_t vocab) {
  const tri_cuda_history h = pieces[blockIdx.x];
  const uint32_t *ids = words + h.words;
  for (uint32_t i = threadIdx.x; i < vocab && h.begins; i += THREADS) h.counts[i] = 0;
  __syncthreads();
  for (int i = threadIdx.x; i < h.n; i += THREADS) {
    if (ids[i] >= vocab) continue;
    if (i < h.num_prompt)
      atomicOr(&h.counts[ids[i]], TRI_COUNTED_PROMPT);
    else
      atomicAdd(&h.counts[ids[i]], 1u);
  }
}

void tri_cuda_count(cudaStream_t stream, const tri_cuda_history *pieces, int num_pieces, const uint32_t *words,
                    int vocab) {
  if (num_pieces) count_kernel<<<num_pieces, THREADS, 0, stream>>>(pieces, words, (uint32_t)vocab);
}

/* tri_sample_is_broken. */
__device__ static inline bool is_broken(const tri_cuda_sample_row &d, float largest) {
  return !isfinite(largest) && (largest != -INFINITY || (!d.masked && !d.num_banned));
}

/* Draws a row's token. logits [R, vocabulary], samples and results [R]. Grid R, 1024 threads. Shared memory: a sampler.
 */
__global__ static void __launch_bounds__(THREADS) sample_kernel(tri_cuda_sample_args a) {
  __shared__ sampler s;
  tri_cuda_sample_row d = a.samples[blockIdx.x];
  tri_sample_result *r = &a.results[blockIdx.x];
  edits e = edits_of(a, d);
  view row = {e.row, NULL, 0, a.logits.cols}, allowed = row;
  allowed.mask = mask_of(a, d);
  allowed.counts = d.counts;
  allowed.d = &d;
  edit(e, d);
  int token = (int)d.target;
  bool broken = false;
  if (d.target == TRI_SAMPLE_NO_TARGET) {
    float largest;
    token = sample_row(&s, allowed, row.n, d, &largest);
    broken = is_broken(d, largest);
  }
  __syncthreads();
  if (!threadIdx.x && d.counts) d.counts[token]++;
  if (!threadIdx.x) report_token(a, token, broken);
  if (d.num_logprobs < 0) {
    report_best(&s, 0, 0, r);
    return;
  }
  undo(e, d);
  report(&s, row, d.num_logprobs, token, r);
  if (!threadIdx.x) r->broken |= isnan(r->logprob);
}

/* ---- over a cut vocabulary ---- */

/* Lists a row's candidates in a part of the vocabulary. logits [R, ids of the part] to part [R, width]. Grid R, 1024
 * threads. Shared memory: a sampler. */
__global__ static void __launch_bounds__(THREADS) part_kernel(tri_cuda_sample_args a) {
  __shared__ sampler s;
  view row = {row_at(a.logits, blockIdx.x), NULL, 0, a.logits.cols};
  tri_cuda_sample_row d = a.samples[blockIdx.x];
  int n = d.temperature > 0 ? min(d.top_k, row.n) : 1;
  edit(edits_of(a, d), d);
  row.mask = mask_of(a, d);
  uint64_t best = first_of(row, s.tops, s.room);
  if (n > 1)
    find_best(&s, row, n, ones());
  else if (!threadIdx.x) {
    s.best_x[0] = value_of(best);
    s.best_ids[0] = (int32_t)(uint32_t)best;
  }
  __syncthreads();
  tri_sample_candidate *out = a.part + (size_t)blockIdx.x * a.width;
  for (int i = threadIdx.x; i < a.width; i += THREADS) {
    out[i].logit = i < n ? value_at(place_of(s.best_x[i])) : -INFINITY;
    out[i].id = i < n ? a.first_id + (uint32_t)s.best_ids[i] : TRI_NO_CANDIDATE;
  }
  float largest = value_of(best);
  if (largest > -INFINITY || !is_broken(d, largest)) return;
  __syncthreads();
  if (threadIdx.x) return;
  out[0].logit = -INFINITY;
  out[0].id = TRI_BROKEN_CANDIDATE;
}

/* The candidates of all parts to s->x and s->ids, in any order. *broken: a part has none. */
__device__ static view list_candidates(sampler *s, const tri_cuda_sample_args &a, bool *broken) {
  int without = 0;
  if (!threadIdx.x) s->listed = 0;
  __syncthreads();
  for (int i = threadIdx.x; i < a.num_parts * a.width; i += THREADS) {
    size_t in_part = (size_t)(i / a.width) * gridDim.x + blockIdx.x;
    tri_sample_candidate c = a.parts[in_part * a.width + i % a.width];
    without |= c.id == TRI_BROKEN_CANDIDATE;
    if (c.id == TRI_NO_CANDIDATE || c.id == TRI_BROKEN_CANDIDATE) continue;
    int at = atomicAdd(&s->listed, 1);
    s->x[at] = c.logit;
    s->ids[at] = (int32_t)c.id;
  }
  *broken = __syncthreads_or(without) != 0;
  view all = {s->x, s->ids, 0, s->listed};
  return all;
}

/* Draws a row's token out of the parts' candidates. parts [num_parts, R, width] to results [R]. Grid R, 1024 threads.
 * Shared memory: a sampler. */
__global__ static void __launch_bounds__(THREADS) merge_kernel(tri_cuda_sample_args a) {
  __shared__ sampler s;
  bool broken;
  view all = list_candidates(&s, a, &broken);
  float largest;
  int token;
  if (a.samples) {
    tri_cuda_sample_row d = a.samples[blockIdx.x];
    token = sample_row(&s, all, a.logits.cols, d, &largest);
  } else {
    uint64_t best = first_of(all, NULL, s.room);
    token = token_of(best);
    largest = value_of(best);
  }
  if (!threadIdx.x) report_token(a, token, broken || largest == INFINITY);
}

void tri_cuda_sample_rows(cudaStream_t stream, const tri_cuda_sample_args *a) {
  sample_kernel<<<a->logits.rows, THREADS, 0, stream>>>(*a);
}

void tri_cuda_best_of_part(cudaStream_t stream, const tri_cuda_sample_args *a) {
  part_kernel<<<a->logits.rows, THREADS, 0, stream>>>(*a);
}

void tri_cuda_sample_merged(cudaStream_t stream, const tri_cuda_sample_args *a) {
  merge_kernel<<<a->logits.rows, THREADS, 0, stream>>>(*a);
}
