/* SPDX-License-Identifier: Apache-2.0 */
/* Sampling, the host's part. What the rows ask for goes to the device in one copy and the results are copied back in
 * one; where every row wants nothing but its most probable token, only the ids come. Histories are counted on the
 * device, and go there once, before a sequence's first sample. */
#include <string.h>

#include "kernels/cuda/cuda.h"
#include "kernels/ref/ref.h"
#include "kernels/sampling.h"

enum { ALIGN = 16, SAMPLE = 0, ARGMAX = 1 };
/* A load of history: its pieces, and after them their ids. Longer ones and more go in several loads. */
enum { LOAD_PIECES = 512, LOAD_IDS = 1 << 18, LOAD_AT = LOAD_PIECES * (int)sizeof(tri_cuda_history) };
enum { LEAST = LOAD_AT + LOAD_IDS * (int)sizeof(uint32_t) };

/* True where the raw logits' maximum is the answer. */
static bool is_plain(const tri_sample_params *p) {
  return p->temperature <= 0 && p->num_logprobs < 0 && !p->num_logit_bias && !p->num_banned && !p->mask &&
         !tri_sample_has_penalties(p);
}

/* Offsets of things on the device, in bytes from the beginning. The host's copy ends before the results. */
typedef struct layout {
  size_t words, masks, results, saved, end;
} layout;

static size_t aligned(size_t bytes) { return (bytes + ALIGN - 1) / ALIGN * ALIGN; }

static layout layout_for(size_t rows, size_t words, size_t mask_words) {
  layout l;
  l.words = aligned(rows * sizeof(tri_cuda_sample_row));
  l.masks = l.words + aligned(words * sizeof(uint32_t));
  l.results = l.masks + aligned(mask_words * sizeof(uint32_t));
  l.saved = l.results + aligned(rows * sizeof(tri_sample_result));
  l.end = l.saved + aligned(words * sizeof(float));
  return l;
}

static size_t words_of(const tri_sample_args *a) {
  size_t words = 0;
  for (int i = 0; i < a->logits.rows; i++)
    words += 2 * (size_t)a->params[i]->num_logit_bias + (size_t)a->params[i]->num_banned;
  return words;
}

static layout layout_of(const tri_sample_args *a) {
  size_t masks = 0;
  for (int i = 0; i < a->logits.rows; i++) masks += a->params[i]->mask != NULL;
  return layout_for((size_t)a->logits.rows, words_of(a), masks * tri_mask_words((size_t)a->logits.cols));
}

/* The masks have had their use by then: the results lie where they were. */
static layout layout_of_merge(const tri_sample_args *a) { return layout_for((size_t)a->logits.rows, words_of(a), 0); }

/* Rooms only grow. The device's is freed by a call that waits for what uses it; pinned memory needs the wait here. */
static tri_status make_room(tri_backend *be, size_t on_host, size_t on_device) {
  tri_cuda_staging *s = tri_cuda_drawing(be);
  if (on_host < LEAST) on_host = LEAST;
  if (on_device < LEAST) on_device = LEAST;
  bool grows = on_host > s->host_bytes;
  if (grows) tri_cuda_note(be, cudaStreamSynchronize(tri_cuda_stream(be)));
  return tri_cuda_staging_grow(be, s, grows ? on_host : 0, on_device > s->device_bytes ? on_device : 0);
}

tri_status tri_cuda_reserve_samples(tri_backend *be, int rows, int edits, int vocab) {
  layout l = layout_for((size_t)rows, 2 * (size_t)rows * (size_t)edits, (size_t)rows * tri_mask_words((size_t)vocab));
  return make_room(be, l.results, l.end);
}

/* ARGMAX needs no parameters on the device at all. */
static tri_status choose(const tri_sample_args *a, tri_op_plan *plan) {
  *plan = (tri_op_plan){.variant = ARGMAX};
  if (a->logits.cols > 1 << TRI_CUDA_VOCAB_BITS) return TRI_OUT_OF_RANGE;
  for (int i = 0; i < a->logits.rows; i++) {
    if (!is_plain(a->params[i])) plan->variant = SAMPLE;
    if (tri_sample_has_penalties(a->params[i]) && !a->counts) return TRI_INVALID_ARGUMENT;
  }
  return TRI_OK;
}

tri_status tri_cuda_sample_plan(tri_backend *be, const tri_sample_args *a, tri_op_plan *plan) {
  TRI_CHECK(tri_ref_sample_plan(be, a, plan));
  TRI_CHECK(choose(a, plan));
  layout l = layout_of(a);
  return make_room(be, l.results, l.end);
}

/* ---- histories ---- */

/* Sends what is in the load's two parts, and counts it. */
static void count_load(tri_backend *be, const tri_sample_args *a, int pieces, size_t ids) {
  tri_cuda_staging *s = tri_cuda_drawing(be);
  if (!pieces) return;
  tri_cuda_staging_send(be, s, LOAD_AT + ids * sizeof(uint32_t));
  tri_cuda_count(tri_cuda_stream(be), (const tri_cuda_history *)s->device, pieces,
                 (const uint32_t *)(s->device + LOAD_AT), a->logits.cols);
  tri_cuda_note(be, cudaGetLastError());
}

static uint32_t *counts_of(const tri_sample_args *a, int row) {
  return a->counts + (size_t)a->sequence[row] * (size_t)a->logits.cols;
}

static int smaller(int a, int b) { return a < b ? a : b; }
static int prompt_of(int num_prompt, int from) { return num_prompt > from ? num_prompt - from : 0; }

/* Counts the histories of rows whose sequence samples for the first time. */
static void count_fresh(tri_backend *be, const tri_sample_args *a) {
  char *load = NULL;
  int pieces = 0, ids = 0;
  for (int i = 0; i < a->logits.rows; i++) {
    if (!tri_sample_has_penalties(a->params[i]) || !a->fresh[i]) continue;
    for (int at = 0, n; at == 0 || at < a->num_history[i]; at += n) {
      if (pieces == LOAD_PIECES || ids == LOAD_IDS) {
        count_load(be, a, pieces, (size_t)ids);
        pieces = ids = 0;
      }
      if (!pieces) load = tri_cuda_staging_turn(be, tri_cuda_drawing(be));
      n = smaller(a->num_history[i] - at, LOAD_IDS - ids);
      ((tri_cuda_history *)load)[pieces++] =
          (tri_cuda_history){counts_of(a, i), (size_t)ids, n, smaller(n, prompt_of(a->num_prompt[i], at)), at == 0};
      if (n) memcpy((uint32_t *)(load + LOAD_AT) + ids, a->history[i] + at, (size_t)n * sizeof(uint32_t));
      ids += n;
      if (!n) break;
    }
  }
  count_load(be, a, pieces, (size_t)ids);
}

/* ---- rows ---- */

/* Copies a number of p's that the sampler looks at. */
#define COPY(d, type, name, option, least, most, def, absent, sampler, help) COPY_##sampler(d, name)
#define COPY_NONE(d, name)
#define COPY_FLOAT(d, name) (d).name = p->name;
#define COPY_INT(d, name) (d).name = p->name;

/* Copies n bits of a mask, from that of `first` on. Returns the words that they take. */
static size_t pack_mask(const uint32_t *mask, uint32_t first, size_t n, uint32_t *out) {
  uint32_t shift = first % 32;
  mask += first / 32;
  for (size_t i = 0; i < tri_mask_words(n); i++) {
    bool goes_on = shift && 32 * i + 32 - shift < n; /* else there may be no further word */
    out[i] = mask[i] >> shift | (goes_on ? mask[i + 1] << (32 - shift) : 0);
  }
  return tri_mask_words(n);
}

/* Ids that count from the first one of the part; lower ones are beyond any. */
static void pack(const tri_sample_args *a, uint32_t first_id, tri_cuda_sample_row *samples, uint32_t *words,
                 uint32_t *masks) {
  uint32_t *at = words;
  size_t mask = 0;
  for (int i = 0; i < a->logits.rows; i++) {
    const tri_sample_params *p = a->params[i];
    samples[i] = (tri_cuda_sample_row){.num_logprobs = p->num_logprobs,
                                       .num_bias = p->num_logit_bias,
                                       .num_banned = p->num_banned,
                                       .target = tri_sample_target(a, i),
                                       .counts = tri_sample_has_penalties(p) ? counts_of(a, i) : NULL,
                                       .words = (size_t)(at - words),
                                       .mask = mask,
                                       .masked = p->mask != NULL,
                                       .uniform = (uint64_t)(tri_sample_uniform(p->seed, a->counter[i]) * 0x1p53)};
    TRI_SAMPLING_NUMBERS(COPY, samples[i])
    for (int j = 0; j < p->num_logit_bias; j++) *at++ = p->logit_bias[j].id - first_id;
    for (int j = 0; j < p->num_banned; j++) *at++ = p->banned[j] - first_id;
    for (int j = 0; j < p->num_logit_bias; j++) memcpy(at++, &p->logit_bias[j].bias, sizeof *at);
    if (p->mask) mask += pack_mask(p->mask, first_id, (size_t)a->logits.cols, masks + mask);
  }
}

/* Sends the rows' parameters to the device. The copy out of this turn's memory was begun two turns ago, and is over
 * long since, but where long histories have taken turns of this launch: then it is waited for. */
static void send(tri_backend *be, const tri_sample_args *a, uint32_t first_id, layout l) {
  tri_cuda_staging *s = tri_cuda_drawing(be);
  char *host = tri_cuda_staging_turn(be, s);
  pack(a, first_id, (tri_cuda_sample_row *)host, (uint32_t *)(host + l.words), (uint32_t *)(host + l.masks));
  tri_cuda_staging_send(be, s, l.results);
}

static tri_cuda_sample_args args_of(const tri_backend *be, const tri_op_plan *plan, const tri_sample_args *a,
                                    layout l) {
  char *device = tri_cuda_drawing(be)->device;
  return (tri_cuda_sample_args){.logits = a->logits,
                                .samples = plan->variant == SAMPLE ? (const tri_cuda_sample_row *)device : NULL,
                                .words = (const uint32_t *)(device + l.words),
                                .masks = (const uint32_t *)(device + l.masks),
                                .saved = (float *)(device + l.saved),
                                .results = (tri_sample_result *)(device + l.results),
                                .sampled = a->sampled};
}

/* Nothing waits. After an error the results mean nothing, but are ids all the same: zeros. */
static void bring(tri_backend *be, const tri_sample_args *a, const tri_cuda_sample_args *args) {
  size_t bytes = (size_t)a->logits.rows * sizeof *a->results;
  memset(a->results, 0, bytes);
  be->ops.download(be, a->results, args->results, bytes);
}

void tri_cuda_sample_launch(tri_backend *be, const tri_op_plan *plan, const tri_sample_args *a) {
  tri_cuda_sample_args args = args_of(be, plan, a, layout_of(a));
  if (!a->logits.rows) return;
  if (plan->variant == ARGMAX) {
    tri_cuda_argmax(tri_cuda_stream(be), &args, tri_cuda_of(be)->num_sms);
  } else {
    count_fresh(be, a);
    send(be, a, 0, layout_of(a));
    tri_cuda_sample_rows(tri_cuda_stream(be), &args);
  }
  tri_cuda_note(be, cudaGetLastError());
  bring(be, a, &args);
}

/* ---- over a cut vocabulary ---- */

/* There is room for sample_merge's results, too: what sample_part sends must stay until then. */
tri_status tri_cuda_sample_part_plan(tri_backend *be, const tri_sample_part_args *a, tri_op_plan *plan) {
  TRI_CHECK(tri_ref_sample_part_plan(be, a, plan));
  TRI_CHECK(choose(&a->rows, plan));
  layout l = layout_of(&a->rows);
  return make_room(be, l.results, l.end);
}

void tri_cuda_sample_part_launch(tri_backend *be, const tri_op_plan *plan, const tri_sample_part_args *a) {
  tri_cuda_sample_args args = args_of(be, plan, &a->rows, layout_of(&a->rows));
  args.width = a->width;
  args.first_id = a->first_id;
  args.part = a->candidates;
  if (!a->rows.logits.rows) return;
  if (plan->variant == ARGMAX) {
    tri_cuda_argmax(tri_cuda_stream(be), &args, tri_cuda_of(be)->num_sms);
  } else {
    send(be, &a->rows, a->first_id, layout_of(&a->rows));
    tri_cuda_best_of_part(tri_cuda_stream(be), &args);
  }
  tri_cuda_note(be, cudaGetLastError());
}

tri_status tri_cuda_sample_merge_plan(tri_backend *be, const tri_sample_merge_args *a, tri_op_plan *plan) {
  TRI_CHECK(tri_ref_sample_merge_plan(be, a, plan));
  return choose(&a->rows, plan);
}

/* The rows' parameters, but for the ids, are those that sample_part has sent. */
void tri_cuda_sample_merge_launch(tri_backend *be, const tri_op_plan *plan, const tri_sample_merge_args *a) {
  tri_cuda_sample_args args = args_of(be, plan, &a->rows, layout_of_merge(&a->rows));
  args.width = a->width;
  args.num_parts = a->num_parts;
  args.parts = a->candidates;
  if (!a->rows.logits.rows) return;
  tri_cuda_sample_merged(tri_cuda_stream(be), &args);
  tri_cuda_note(be, cudaGetLastError());
  if (a->rows.results) bring(be, &a->rows, &args);
}
