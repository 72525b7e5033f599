/* Sampling, the host's part. What the rows ask for goes to the device in one copy and the results come back in one;
 * where every row wants nothing but its most probable token, only the ids come. */
#include <string.h>

#include "kernels/cuda/cuda.h"
#include "kernels/ref/ref.h"
#include "kernels/sampling.h"

enum { ALIGN = 16, LEAST = 1 << 20, DRAW = 0, ARGMAX = 1 };

static bool has_penalties(const tri_sample_params *p) {
  return p->repetition_penalty != 1 || p->presence_penalty != 0 || p->frequency_penalty != 0;
}

/* Whether the raw logits' maximum is the answer. */
static bool is_plain(const tri_sample_params *p) {
  return p->temperature <= 0 && p->num_logprobs < 0 && !p->num_logit_bias && !p->num_banned && !has_penalties(p);
}

static int history_of(const tri_sample_args *a, int row) {
  return has_penalties(a->params[row]) ? a->num_history[row] : 0;
}

/* Where things lie on the device, in bytes from the beginning. The host's copy ends in front of the results. */
typedef struct layout {
  size_t words, results, saved, counts, end;
} layout;

static size_t aligned(size_t bytes) { return (bytes + ALIGN - 1) / ALIGN * ALIGN; }

static layout layout_of(const tri_sample_args *a) {
  size_t rows = (size_t)a->logits.rows, words = 0;
  layout l;
  for (int i = 0; i < a->logits.rows; i++) {
    const tri_sample_params *p = a->params[i];
    words += 2 * (size_t)p->num_logit_bias + (size_t)p->num_banned + (size_t)history_of(a, i);
  }
  l.words = aligned(rows * sizeof(tri_cuda_draw));
  l.results = l.words + aligned(words * sizeof(uint32_t));
  l.saved = l.results + aligned(rows * sizeof(tri_sample_result));
  l.counts = l.saved + aligned(words * sizeof(float));
  l.end = l.counts + aligned(words * sizeof(int32_t));
  return l;
}

/* Twice what is needed, as histories grow with every step; without them the first time is mostly the last. */
static tri_status make_room(tri_backend *be, size_t on_host, size_t on_device) {
  tri_cuda_drawing *d = &tri_cuda_of(be)->drawing;
  size_t host = 2 * on_host + LEAST, device = 2 * on_device + LEAST;
  if (on_host > d->host_bytes) {
    tri_cuda_note(be, cudaStreamSynchronize(tri_cuda_of(be)->stream));
    tri_cuda_pinned_free(d->host);
    d->host_bytes = 0;
    tri_status st = tri_cuda_pinned_alloc(d->host, host);
    if (st != TRI_OK) return st;
    d->host_bytes = host;
  }
  if (on_device > d->device_bytes) {
    be->ops.mem_free(be, TRI_MEM_STAGING, d->device, d->device_bytes);
    d->device = NULL, d->device_bytes = 0;
    tri_status st = be->ops.mem_alloc(be, TRI_MEM_STAGING, device, (void **)&d->device);
    if (st != TRI_OK) return st;
    d->device_bytes = device;
  }
  return TRI_OK;
}

tri_status tri_cuda_sample_plan(tri_backend *be, const tri_sample_args *a, tri_op_plan *plan) {
  tri_status st = tri_ref_sample_plan(be, a, plan);
  if (st != TRI_OK) return st;
  plan->workspace = 0;
  plan->variant = ARGMAX;
  if (a->logits.cols > 1 << TRI_CUDA_VOCAB_BITS) return TRI_OUT_OF_RANGE;
  for (int i = 0; i < a->logits.rows; i++)
    if (!is_plain(a->params[i])) plan->variant = DRAW;
  layout l = layout_of(a);
  return make_room(be, l.results, l.end);
}

static uint32_t *put(uint32_t *to, const void *from, int n) {
  if (n) memcpy(to, from, (size_t)n * sizeof *to);
  return to + n;
}

static void pack(const tri_sample_args *a, tri_cuda_draw *draws, uint32_t *words) {
  uint32_t *at = words;
  for (int i = 0; i < a->logits.rows; i++) {
    const tri_sample_params *p = a->params[i];
    draws[i] = (tri_cuda_draw){.temperature = p->temperature,
                               .top_p = p->top_p,
                               .min_p = p->min_p,
                               .repetition_penalty = p->repetition_penalty,
                               .presence_penalty = p->presence_penalty,
                               .frequency_penalty = p->frequency_penalty,
                               .top_k = p->top_k,
                               .num_logprobs = p->num_logprobs,
                               .num_bias = p->num_logit_bias,
                               .num_banned = p->num_banned,
                               .num_prompt = a->num_prompt[i],
                               .num_history = history_of(a, i),
                               .words = (size_t)(at - words),
                               .uniform = (uint64_t)(tri_sample_uniform(p->seed, a->counter[i]) * 0x1p53)};
    for (int j = 0; j < p->num_logit_bias; j++) *at++ = p->logit_bias[j].id;
    at = put(at, p->banned, p->num_banned);
    at = put(at, a->history[i], draws[i].num_history);
    for (int j = 0; j < p->num_logit_bias; j++) at = put(at, &p->logit_bias[j].bias, 1);
  }
}

/* What the rows ask for, to the device. The copy out of this turn's memory that was begun two launches ago is over long
 * since, or is waited for. */
static void send(tri_backend *be, const tri_sample_args *a, layout l) {
  tri_cuda_impl *impl = tri_cuda_of(be);
  tri_cuda_drawing *d = &impl->drawing;
  char *host = d->host[d->turn ^= 1];
  tri_cuda_note(be, cudaEventSynchronize(d->sent[d->turn]));
  pack(a, (tri_cuda_draw *)host, (uint32_t *)(host + l.words));
  tri_cuda_note(be, cudaMemcpyAsync(d->device, host, l.results, cudaMemcpyHostToDevice, impl->stream));
  tri_cuda_note(be, cudaEventRecord(d->sent[d->turn], impl->stream));
}

/* Nothing waits. After an error the results mean nothing, but are ids all the same: zeros. */
void tri_cuda_sample_launch(tri_backend *be, const tri_op_plan *plan, const tri_sample_args *a, tri_stream *stream) {
  tri_cuda_impl *impl = tri_cuda_of(be);
  char *device = impl->drawing.device;
  size_t bytes = (size_t)a->logits.rows * sizeof *a->results;
  layout l = layout_of(a);
  tri_cuda_draw_args args = {.logits = a->logits,
                             .draws = (const tri_cuda_draw *)device,
                             .words = (const uint32_t *)(device + l.words),
                             .saved = (float *)(device + l.saved),
                             .counts = (int32_t *)(device + l.counts),
                             .results = (tri_sample_result *)(device + l.results),
                             .drawn = a->drawn};
  if (!a->logits.rows) return;
  memset(a->results, 0, bytes);
  if (plan->variant == ARGMAX) {
    tri_cuda_argmax(impl->stream, &args);
  } else {
    send(be, a, l);
    tri_cuda_draw_rows(impl->stream, &args);
  }
  tri_cuda_note(be, cudaGetLastError());
  be->ops.download(be, a->results, args.results, bytes, stream);
}
