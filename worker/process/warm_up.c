/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/process/warm_up.h"

#include "base/mem.h"
#include "base/wait.h"

/* Lengths at which a device cuts the contexts of few sequences into 1, 2, 4, 8 and 16 parts. Many sequences keep it
 * busy uncut: two lengths serve those. Lanes have recordings of their own, and share the places for them. */
static const int contexts[] = {60, 200, 400, 900, 2000};
enum { NUM_CONTEXTS = sizeof contexts / sizeof *contexts, FEW_ROWS = 8, TWICE = 2 };

/* Tokens of prompts. Libraries choose a GEMM's kernel by its tiles of rows, and load it when it is first needed, while
 * the step waits. Steps of up to FEW_TOKENS are recorded for models that are small enough. */
enum { TILE = 128, MANY_TILES = 2048, FEW_TOKENS = 512 };

typedef struct warm_up {
  const tri_warm_up *u;
  uint32_t *ids;   /* [max_num_batched_tokens] zeros */
  int32_t *blocks; /* [blocks of the longest sequence] 0, 1, ... */
  int longest;     /* tokens of a sequence, of a source and its answer together */
  int steps;
} warm_up;

/* Asks for all that a sampler does where a vocabulary is whole, or for what parts of one can do. */
static const tri_sample_params params[TWICE] = {
    {.temperature = 1, .top_k = 50, .top_p = 0.9f, .repetition_penalty = 1.1f, .num_logprobs = 1},
    {.temperature = 1, .top_k = 50, .top_p = 1, .repetition_penalty = 1, .num_logprobs = -1},
};

static int smaller(int a, int b) { return a < b ? a : b; }
static uint32_t blocks_for(const warm_up *w, int tokens) {
  int size = w->u->limits.block_size;
  return (uint32_t)((tokens + size - 1) / size);
}

static bool is_over(const warm_up *w) { return tri_now_ns() >= w->u->until_ns; }

static tri_status run(warm_up *w) {
  w->steps++;
  return w->u->run(w->u->ctx);
}

/* ---- prompts ---- */

static void add_prompt(warm_up *w, int slot, int tokens) {
  const tri_limits *l = &w->u->limits;
  uint8_t flags = TRI_SEQ_FLAG_FIRST | TRI_SEQ_FLAG_PARAMS | TRI_SEQ_FLAG_SAMPLE;
  tri_plan_seq s = {.slot = (uint32_t)slot, .kind = TRI_SEQ_CHUNK, .num_tokens = (uint32_t)tokens};
  s.flags = l->whole_sequences ? TRI_SEQ_FLAG_FIRST : flags;
  s.num_blocks = blocks_for(w, tokens);
  tri_plan_add(w->u->plan, &s, w->ids, w->blocks, &params[w->steps % TWICE], (uint32_t)tokens);
}

/* An encoder-decoder's source of so many tokens, and the first one of its answer. */
static void add_source(warm_up *w, int slot, int tokens) {
  tri_plan_seq s = {.slot = (uint32_t)slot, .kind = TRI_SEQ_SOURCE, .num_tokens = (uint32_t)tokens};
  tri_plan_seq answer = {.slot = (uint32_t)slot, .kind = TRI_SEQ_CHUNK, .num_tokens = 1, .num_blocks = 1};
  answer.flags = TRI_SEQ_FLAG_FIRST | TRI_SEQ_FLAG_PARAMS | TRI_SEQ_FLAG_SAMPLE;
  s.num_blocks = blocks_for(w, tokens);
  tri_plan_add(w->u->plan, &s, w->ids, w->blocks, NULL, 0);
  tri_plan_add(w->u->plan, &answer, w->ids, w->blocks + s.num_blocks, &params[w->steps % TWICE], 1);
}

/* So many tokens in as few sequences as can be. */
static tri_status run_prompts(warm_up *w, int tokens) {
  const tri_limits *l = &w->u->limits;
  tri_plan_begin(w->u->plan, 0, 0);
  for (int slot = 0; tokens > l->has_source && slot < l->max_num_seqs; slot++) {
    int n = smaller(tokens - l->has_source, w->longest);
    (l->has_source ? add_source : add_prompt)(w, slot, n);
    tokens -= n + l->has_source;
  }
  return run(w);
}

static int next_prompts(int n) { return n < TILE || n >= MANY_TILES ? 2 * n : n + TILE; }

static tri_status warm_prompts(warm_up *w) {
  int most = w->u->limits.max_num_batched_tokens, n = 2;
  for (bool last = false; !last && !is_over(w); n = next_prompts(n)) {
    last = n >= most;
    TRI_CHECK(run_prompts(w, smaller(n, most)));
    if (n <= FEW_TOKENS && !is_over(w)) TRI_CHECK(run_prompts(w, smaller(n, most)));
  }
  return TRI_OK;
}

/* ---- decode steps ---- */

/* The prompt that all sequences of decode steps have. */
static tri_status run_context(warm_up *w, int context) {
  tri_plan_begin(w->u->plan, 0, 0);
  add_prompt(w, 0, context);
  return run(w);
}

/* Each slot gets the prompt, whose keys and values the first blocks hold. */
static void add_sequences(warm_up *w, int rows, int context) {
  const tri_sample_params *p = &params[w->steps % TWICE];
  tri_plan_seq s = {.kind = TRI_SEQ_RESUME, .flags = TRI_SEQ_FLAG_PARAMS, .num_tokens = (uint32_t)context};
  s.num_blocks = blocks_for(w, context);
  tri_plan_add(w->u->plan, &s, w->ids, w->blocks, p, (uint32_t)context);
  for (int i = 1; i < rows; i++) {
    tri_plan_seq fork = {.slot = (uint32_t)i, .kind = TRI_SEQ_FORK, .flags = TRI_SEQ_FLAG_PARAMS};
    tri_plan_add(w->u->plan, &fork, NULL, NULL, p, (uint32_t)context);
  }
}

/* The step `number` of so many sequences after their prompt. */
static tri_status decode(warm_up *w, int micro_batch, int rows, int context, int number) {
  uint32_t used = blocks_for(w, context + number), blocks = blocks_for(w, context + number + 1);
  tri_plan_begin(w->u->plan, (uint32_t)micro_batch, 0);
  if (!number) add_sequences(w, rows, context);
  for (int i = 0; i < rows; i++) {
    tri_plan_seq s = {.slot = (uint32_t)i, .kind = TRI_SEQ_DECODE, .flags = TRI_SEQ_FLAG_SAMPLE, .num_tokens = 1};
    s.start = (uint32_t)(context + number);
    s.first_block = used;
    s.num_blocks = blocks - used;
    tri_plan_add(w->u->plan, &s, w->ids, w->blocks + used, NULL, 0);
  }
  return run(w);
}

static tri_status warm_rows(warm_up *w, int rows, int context) {
  for (int micro_batch = 0; micro_batch < w->u->num_micro_batches && !is_over(w); micro_batch++)
    for (int i = 0; i < TWICE; i++) TRI_CHECK(decode(w, micro_batch, rows, context, i));
  return TRI_OK;
}

static tri_status warm_decodes(warm_up *w) {
  const tri_limits *l = &w->u->limits;
  int most = smaller(l->max_num_seqs, l->max_num_batched_tokens), room = smaller(w->longest, l->max_num_batched_tokens);
  int lengths = w->u->num_micro_batches < NUM_CONTEXTS ? NUM_CONTEXTS / w->u->num_micro_batches : 1;
  for (int i = 0; i < lengths && contexts[i] + TWICE <= room && !is_over(w); i++) {
    TRI_CHECK(run_context(w, contexts[i]));
    for (int n = 1;; n = smaller(tri_batch_rows(n + 1), most)) {
      bool wanted = n <= FEW_ROWS || i == 0 || i == NUM_CONTEXTS - 2;
      if (wanted) TRI_CHECK(warm_rows(w, n, contexts[i]));
      if (n == most) break;
    }
  }
  return TRI_OK;
}

tri_status tri_warm_up_run(const tri_warm_up *u, int *num_steps) {
  const tri_limits *l = &u->limits;
  warm_up w = {.u = u, .longest = l->max_model_len};
  int64_t room = (int64_t)(l->num_blocks - l->has_source) * l->block_size;
  tri_status st = TRI_OK;
  if (room < w.longest) w.longest = (int)room;
  w.ids = tri_calloc((size_t)l->max_num_batched_tokens, sizeof *w.ids);
  w.blocks = tri_calloc((size_t)blocks_for(&w, w.longest) + 1, sizeof *w.blocks);
  TRI_TRY(w.ids && w.blocks ? TRI_OK : TRI_NO_MEMORY);
  for (uint32_t i = 0; i <= blocks_for(&w, w.longest); i++) w.blocks[i] = (int32_t)i;
  TRI_TRY(warm_prompts(&w));
  if (!l->embeds && !l->has_source) TRI_TRY(warm_decodes(&w));
cleanup:
  tri_free(w.ids);
  tri_free(w.blocks);
  *num_steps = w.steps;
  return st;
}
