/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/bench/steps.h"

#include "base/hash.h"

/* Every slot has its blocks in a row of its own: block k of slot s is s * blocks_per_seq + k. No scheduler is needed.
 */
static int blocks_per_seq(const tri_bench_steps *s) {
  return (int)(s->engine->limits.max_model_len / s->engine->limits.block_size) + 1;
}

tri_status tri_bench_steps_create(tri_engine *engine, int num_seqs, int input_len, int most_decodes,
                                  tri_bench_steps *out) {
  const tri_limits *l = &engine->limits;
  *out = (tri_bench_steps){.engine = engine, .num_seqs = num_seqs, .input_len = input_len};
  size_t blocks = (size_t)blocks_per_seq(out), ids = (size_t)(input_len + most_decodes + num_seqs);
  tri_plan_sizes sizes = {.seqs = (size_t)num_seqs + 1,
                          .ids = (size_t)l->max_num_batched_tokens + 1,
                          .blocks = blocks * (size_t)num_seqs + 8};
  TRI_CHECK(tri_plan_writer_create(&sizes, &out->writer));
  out->ids = tri_calloc(ids, sizeof *out->ids);
  out->blocks = tri_calloc(blocks + 1, sizeof *out->blocks);
  if (!out->ids || !out->blocks) return TRI_NO_MEMORY;
  for (size_t i = 0; i < ids; i++)
    out->ids[i] = (uint32_t)(tri_mix64((uint64_t)i) % (uint64_t)engine->model.vocab_size);
  return TRI_OK;
}

void tri_bench_steps_destroy(tri_bench_steps *s) {
  tri_plan_writer_destroy(s->writer);
  tri_free(s->ids);
  tri_free(s->blocks);
  *s = (tri_bench_steps){0};
}

/* Adds a prompt, or the next token of a sequence that decodes. A plan names only the blocks that its tokens begin:
 * those before are in the slot's table. */
static void add(tri_bench_steps *s, int slot, bool prompt, int start, int n) {
  static const uint8_t PROMPT = TRI_SEQ_FLAG_SAMPLE | TRI_SEQ_FLAG_FIRST | TRI_SEQ_FLAG_PARAMS,
                       NEXT = TRI_SEQ_FLAG_SAMPLE | TRI_SEQ_FLAG_TOKEN_IN_SLOT;
  int bs = s->engine->limits.block_size, first = (start + bs - 1) / bs, end = (start + n + bs - 1) / bs;
  for (int i = first; i < end; i++) s->blocks[i - first] = slot * blocks_per_seq(s) + i;
  uint8_t drawing = prompt ? PROMPT : NEXT;
  tri_plan_seq seq = {.slot = (uint32_t)slot,
                      .kind = prompt ? TRI_SEQ_CHUNK : TRI_SEQ_DECODE,
                      .flags = s->engine->limits.whole_sequences ? TRI_SEQ_FLAG_FIRST : drawing,
                      .num_tokens = (uint32_t)n,
                      .start = (uint32_t)start,
                      .first_block = (uint32_t)first,
                      .num_blocks = (uint32_t)(end - first),
                      .counter = (uint64_t)start};
  const tri_sample_params greedy = tri_sample_greedy();
  tri_plan_add(s->writer, &seq, s->ids + slot, s->blocks, &greedy, (uint32_t)n);
}

/* Every data-parallel rank has as much in the step as this one. */
static const void *finish(tri_bench_steps *s, size_t *len) {
  uint32_t tokens[TRI_MAX_DP_RANKS], longest[TRI_MAX_DP_RANKS];
  int dp = tri_replica_num_dp_ranks(s->engine->replica);
  for (int d = 0; d < dp; d++) {
    tokens[d] = s->writer->h.num_tokens;
    longest[d] = tri_plan_longest(s->writer);
  }
  if (dp > 1) tri_plan_set_dp_ranks(s->writer, tokens, longest, (uint32_t)dp);
  return tri_plan_finish(s->writer, len);
}

static tri_status run(tri_bench_steps *s) {
  size_t len;
  const tri_step_result *r;
  const void *plan = finish(s, &len);
  return tri_engine_step(s->engine, plan, len, &r);
}

tri_status tri_bench_steps_feed_some(tri_bench_steps *s, int first, int count) {
  tri_plan_begin(s->writer, 0, ++s->steps);
  for (int i = 0; i < count; i++) add(s, first + i, true, 0, s->input_len);
  return run(s);
}

tri_status tri_bench_steps_feed(tri_bench_steps *s) {
  int each = s->engine->limits.max_num_batched_tokens / s->input_len;
  if (each < 1) return TRI_OUT_OF_RANGE;
  for (int first = 0; first < s->num_seqs; first += each)
    TRI_CHECK(tri_bench_steps_feed_some(s, first, each < s->num_seqs - first ? each : s->num_seqs - first));
  return TRI_OK;
}

static void plan_decode(tri_bench_steps *s) {
  int at = s->input_len + s->decoded++;
  tri_plan_begin(s->writer, 0, ++s->steps);
  for (int i = 0; i < s->num_seqs; i++) add(s, i, false, at, 1);
}

tri_status tri_bench_steps_begin_decode(tri_bench_steps *s) {
  size_t len;
  plan_decode(s);
  const void *plan = finish(s, &len);
  return tri_engine_begin(s->engine, plan, len);
}

tri_status tri_bench_steps_decode(tri_bench_steps *s) {
  plan_decode(s);
  return run(s);
}
