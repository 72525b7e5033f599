/* SPDX-License-Identifier: Apache-2.0 */
/* Step plans and results: what is written is read back, and damaged bytes never reach beyond the slots. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "runtime/step/batch.h"
#include "runtime/step/step_plan.h"

Suite *suite_step_plan(void);

static const tri_limits limits = {.max_num_seqs = 6,
                                  .max_num_batched_tokens = 40,
                                  .max_model_len = 64,
                                  .block_size = 8,
                                  .num_blocks = 24,
                                  .num_host_blocks = 4,
                                  .vocab_size = 500,
                                  .max_num_logits = 40};

static uint64_t state;
static uint64_t next(void) {
  state ^= state >> 12, state ^= state << 25, state ^= state >> 27;
  return state * 0x2545f4914f6cdd1du;
}

struct kit {
  tri_plan_writer *w;
  tri_slots *slots;
  tri_batch_builder *b;
};

static struct kit make_kit(void) {
  struct kit k = {0};
  tri_plan_sizes sizes = {.seqs = 2 * (size_t)limits.max_num_seqs,
                          .ids = (size_t)limits.max_num_batched_tokens + (size_t)limits.max_model_len,
                          .blocks = 64,
                          .swaps = 4,
                          .masks = 3,
                          .mask_words = tri_mask_words((size_t)limits.vocab_size)};
  ck_assert_int_eq(tri_plan_writer_create(&sizes, &k.w), TRI_OK);
  ck_assert_int_eq(tri_slots_create(&limits, &k.slots), TRI_OK);
  ck_assert_int_eq(tri_batch_builder_create(&limits, &k.b), TRI_OK);
  return k;
}

static void free_kit(struct kit *k) {
  tri_plan_writer_destroy(k->w);
  tri_slots_destroy(k->slots);
  tri_batch_builder_destroy(k->b);
}

static const tri_logit_bias bias[] = {{7, 1.5f}, {8, -100}};
static const uint32_t banned[] = {2, 3, 4};
static const tri_sample_params params = {.temperature = 0.7f,
                                         .top_p = 0.9f,
                                         .min_p = 0.05f,
                                         .top_k = 40,
                                         .repetition_penalty = 1.1f,
                                         .presence_penalty = -0.5f,
                                         .frequency_penalty = 0.25f,
                                         .seed = 0x123456789abcdef0,
                                         .num_logprobs = 5,
                                         .logit_bias = bias,
                                         .num_logit_bias = 2,
                                         .banned = banned,
                                         .num_banned = 3};
static uint32_t prompt[32];

/* A prompt of 12 in slot 0, its fork in slot 1, and a chunk of 20 of another prompt in slot 3. */
static const void *first_plan(struct kit *k, size_t *bytes) {
  static const int32_t blocks_a[] = {5, 9}, blocks_b[] = {1, 2, 3};
  for (uint32_t i = 0; i < 32; i++) prompt[i] = 100 + i;
  tri_plan_begin(k->w, 1, 77);
  ck_assert(tri_plan_has_room(k->w, 12, 2, 0));
  tri_plan_add(
      k->w,
      &(tri_plan_seq){.slot = 0,
                      .kind = TRI_SEQ_CHUNK,
                      .flags = TRI_SEQ_FLAG_FIRST | TRI_SEQ_FLAG_SAMPLE | TRI_SEQ_FLAG_PARAMS | TRI_SEQ_FLAG_BAN,
                      .num_tokens = 12,
                      .num_blocks = 2,
                      .counter = 3},
      prompt, blocks_a, &params, 12);
  tri_plan_add(k->w, &(tri_plan_seq){.slot = 1, .kind = TRI_SEQ_FORK, .flags = TRI_SEQ_FLAG_FIRST, .fork_from = 0},
               NULL, NULL, NULL, 0);
  tri_plan_add(k->w,
               &(tri_plan_seq){.slot = 3,
                               .kind = TRI_SEQ_CHUNK,
                               .flags = TRI_SEQ_FLAG_FIRST | TRI_SEQ_FLAG_ALL_LOGITS | TRI_SEQ_FLAG_PARAMS,
                               .num_tokens = 20,
                               .num_blocks = 3,
                               .rope_len = 40},
               prompt, blocks_b, &params, 30);
  tri_plan_add_copy(k->w, 5, 6);
  return tri_plan_finish(k->w, bytes);
}

static tri_status apply(struct kit *k, const void *bytes, size_t n) {
  tri_plan_view v;
  tri_status st = tri_plan_read(bytes, n, &v);
  return st == TRI_OK ? tri_batch_build(k->b, k->slots, &v) : st;
}

START_TEST(round_trip) {
  struct kit k = make_kit();
  size_t n;
  const void *bytes = first_plan(&k, &n);
  ck_assert_uint_le(n, tri_plan_max_bytes(k.w));
  tri_plan_view v;
  ck_assert_int_eq(tri_plan_read(bytes, n, &v), TRI_OK);
  ck_assert(v.h.micro_batch == 1 && v.h.step == 77 && v.h.num_seqs == 3 && v.h.num_tokens == 32 && v.h.num_ids == 32);
  ck_assert(v.h.num_blocks == 5 && v.h.num_copies == 1 && v.h.num_params == 2 && v.copies[0] == 5 && v.copies[1] == 6);
  ck_assert_int_eq(tri_batch_build(k.b, k.slots, &v), TRI_OK);

  const tri_batch *b = &k.b->batch;
  ck_assert(b->num_tokens == 32 && b->num_seqs == 2 && b->max_context == 20 && b->max_query == 20);
  ck_assert(b->seq_start[0] == 0 && b->seq_start[1] == 12 && b->seq_start[2] == 32);
  ck_assert(b->context_len[0] == 12 && b->context_len[1] == 20);
  for (int t = 0; t < 32; t++) {
    int pos = t < 12 ? t : t - 12, block = t < 12 ? (pos < 8 ? 5 : 9) : 1 + pos / 8;
    ck_assert(b->token_ids[t] == 100u + (uint32_t)pos && b->positions[t] == pos);
    ck_assert(b->kv_slot[t] == (int64_t)block * 8 + pos % 8);
    ck_assert_int_eq(b->rope_len[t], t < 12 ? pos + 1 : 40);
  }
  ck_assert(b->block_table[0] == 5 && b->block_table[1] == 9);
  ck_assert_int_eq(tri_batch_blocks(b, 1)[2], 3);
  ck_assert_int_eq(b->num_logits, 1 + 20); /* one draw, and every token of the observed one */
  ck_assert_int_eq(b->logit_rows[0], 11);
  for (int i = 0; i < 20; i++) ck_assert_int_eq(b->logit_rows[1 + i], 12 + i);
  ck_assert(k.b->num_samples == 1 && k.b->samples[0].slot == 0 && k.b->samples[0].counter == 3 && k.b->samples[0].ban);
  ck_assert(k.b->sample_rows[0] == 0 && k.b->num_copies == 1);

  const tri_slot *s = &k.slots->slots[0];
  ck_assert(s->length == 12 && s->num_history == 12 && s->num_prompt == 12);
  ck_assert(s->params.temperature == 0.7f && s->params.top_p == 0.9f && s->params.min_p == 0.05f);
  ck_assert(s->params.top_k == 40 && s->params.repetition_penalty == 1.1f && s->params.presence_penalty == -0.5f);
  ck_assert(s->params.frequency_penalty == 0.25f && s->params.seed == params.seed && s->params.num_logprobs == 5);
  ck_assert(s->params.num_logit_bias == 2 && s->params.logit_bias[1].id == 8 && s->params.logit_bias[1].bias == -100);
  ck_assert(s->params.num_banned == 3 && s->params.banned[2] == 4);
  s = &k.slots->slots[1];
  ck_assert(s->length == 12 && s->num_history == 12 && s->history[11] == 111 && s->blocks[1] == 9);

  /* The drawn token lies in the slot; the rest of the other prompt comes in a second chunk; a block is replaced. */
  static const int32_t fresh[] = {20}, more[] = {4};
  tri_slot_learn(k.slots, &k.b->samples[0], 42);
  tri_plan_begin(k.w, 1, 78);
  tri_plan_add(k.w,
               &(tri_plan_seq){.slot = 0,
                               .kind = TRI_SEQ_DECODE,
                               .flags = TRI_SEQ_FLAG_SAMPLE | TRI_SEQ_FLAG_TOKEN_IN_SLOT,
                               .num_tokens = 1,
                               .start = 12,
                               .first_block = 1,
                               .num_blocks = 1,
                               .counter = 4},
               NULL, fresh, NULL, 0);
  tri_plan_add(
      k.w,
      &(tri_plan_seq){.slot = 1, .kind = TRI_SEQ_DECODE, .flags = TRI_SEQ_FLAG_SAMPLE, .num_tokens = 1, .start = 12},
      (const uint32_t[]){43}, NULL, NULL, 0);
  tri_plan_add(k.w,
               &(tri_plan_seq){.slot = 3,
                               .kind = TRI_SEQ_CHUNK,
                               .flags = TRI_SEQ_FLAG_SAMPLE,
                               .num_tokens = 10,
                               .start = 20,
                               .first_block = 3,
                               .num_blocks = 1},
               prompt + 20, more, NULL, 0);
  bytes = tri_plan_finish(k.w, &n);
  ck_assert_int_eq(apply(&k, bytes, n), TRI_OK);
  ck_assert(b->num_tokens == 12 && b->num_seqs == 3 && b->num_logits == 3 && k.b->num_samples == 3);
  ck_assert(b->token_ids[0] == 42 && b->token_ids[1] == 43 && b->token_ids[2] == 120 && b->token_ids[11] == 129);
  ck_assert(b->kv_slot[0] == 20 * 8 + 4 && b->kv_slot[1] == 9 * 8 + 4 && b->kv_slot[2] == 3 * 8 + 4);
  ck_assert(b->kv_slot[11] == 4 * 8 + 5 && k.slots->slots[3].length == 30);
  free_kit(&k);
}
END_TEST

/* What a batch promises to the kernels, whatever plan it was made from. */
static void check_batch(const struct kit *k) {
  const tri_batch *b = &k->b->batch;
  ck_assert(b->num_tokens >= 0 && b->num_tokens <= limits.max_num_batched_tokens);
  ck_assert(b->num_seqs >= 0 && b->num_seqs <= limits.max_num_seqs && b->num_logits <= limits.max_num_logits);
  ck_assert(k->b->num_samples <= limits.max_num_seqs && b->seq_start[b->num_seqs] == b->num_tokens);
  for (int t = 0; t < b->num_tokens; t++)
    if (b->token_ids[t] >= (uint32_t)limits.vocab_size || b->positions[t] < 0 ||
        b->positions[t] >= limits.max_model_len || b->kv_slot[t] < 0 ||
        b->kv_slot[t] >= (int64_t)limits.num_blocks * limits.block_size)
      ck_abort_msg("token %d lies outside", t);
  for (int i = 0; i < b->num_logits; i++)
    if (b->logit_rows[i] < 0 || b->logit_rows[i] >= b->num_tokens) ck_abort_msg("logits of row %d", b->logit_rows[i]);
  for (int i = 0; i < k->b->num_samples; i++)
    if (k->b->sample_rows[i] < 0 || k->b->sample_rows[i] >= b->num_logits ||
        k->b->samples[i].slot >= (uint32_t)limits.max_num_seqs)
      ck_abort_msg("draw %d", i);
  for (int s = 0; s < b->num_seqs; s++) {
    if (b->seq_start[s + 1] <= b->seq_start[s] || b->context_len[s] < b->seq_start[s + 1] - b->seq_start[s] ||
        b->context_len[s] > limits.max_model_len)
      ck_abort_msg("sequence %d", s);
    int blocks = (b->context_len[s] + limits.block_size - 1) / limits.block_size;
    if (b->block_start[0] || b->block_start[s + 1] - b->block_start[s] != blocks)
      ck_abort_msg("block table of sequence %d", s);
    for (int p = 0; p < blocks; p++)
      if (tri_batch_blocks(b, s)[p] < 0 || tri_batch_blocks(b, s)[p] >= limits.num_blocks)
        ck_abort_msg("block table of sequence %d", s);
  }
  for (int i = 0; i < limits.max_num_seqs; i++) {
    const tri_slot *s = &k->slots->slots[i];
    ck_assert(s->length >= 0 && s->length <= limits.max_model_len && s->num_prompt >= 0);
    ck_assert(s->num_history >= 0 && s->num_history <= limits.max_model_len + 1);
    ck_assert(s->params.num_logit_bias >= 0 && s->params.num_logit_bias <= TRI_MAX_LOGIT_BIAS);
    ck_assert(s->params.num_banned >= 0 && s->params.num_banned <= TRI_MAX_BANNED);
  }
}

/* Exactly n bytes on the heap, so that a sanitizer sees a read beyond them. */
static void try_bytes(struct kit *k, const char *bytes, size_t n) {
  char *copy = tri_malloc(n, 1);
  memcpy(copy, bytes, n);
  tri_status st = apply(k, copy, n);
  if (st == TRI_OK)
    check_batch(k);
  else
    ck_assert_int_eq(st, TRI_CORRUPT);
  tri_free(copy);
}

static void reset(struct kit *k) {
  tri_slots_destroy(k->slots);
  ck_assert_int_eq(tri_slots_create(&limits, &k->slots), TRI_OK);
}

static tri_status step_in_slot(struct kit *k, uint32_t slot, uint32_t start, uint8_t flags) {
  static const uint32_t ids[] = {11, 12};
  static const int32_t blocks[] = {3};
  bool first = flags & TRI_SEQ_FLAG_FIRST;
  tri_plan_view v;
  size_t len;
  tri_plan_begin(k->w, 0, 1);
  tri_plan_add(k->w,
               &(tri_plan_seq){.slot = slot,
                               .kind = first ? TRI_SEQ_CHUNK : TRI_SEQ_DECODE,
                               .flags = flags | TRI_SEQ_FLAG_SAMPLE,
                               .num_tokens = first ? 2 : 1,
                               .start = start,
                               .num_blocks = first},
               ids, blocks, NULL, 0);
  const void *bytes = tri_plan_finish(k->w, &len);
  ck_assert_int_eq(tri_plan_read(bytes, len, &v), TRI_OK);
  return tri_batch_build(k->b, k->slots, &v);
}

/* A step goes on with what the one before draws, before anybody knows it; with what an earlier one drew it does not. */
START_TEST(pending_draws) {
  struct kit k = make_kit();
  ck_assert_int_eq(step_in_slot(&k, 2, 0, TRI_SEQ_FLAG_FIRST), TRI_OK);
  tri_sample_row first = k.b->samples[0];
  ck_assert_int_eq(first.position, 2);
  ck_assert_int_eq(step_in_slot(&k, 2, 2, TRI_SEQ_FLAG_TOKEN_IN_SLOT), TRI_OK);
  ck_assert_uint_eq(k.b->batch.token_ids[0], TRI_SAMPLED_ID);
  tri_slot_learn(k.slots, &first, 77);
  const tri_slot *s = &k.slots->slots[2];
  ck_assert(s->history[2] == 77 && s->num_history == 3 && s->sampled == 0);
  tri_sample_row second = k.b->samples[0];
  ck_assert_int_eq(step_in_slot(&k, 4, 0, TRI_SEQ_FLAG_FIRST), TRI_OK);
  ck_assert_int_eq(step_in_slot(&k, 2, 3, TRI_SEQ_FLAG_TOKEN_IN_SLOT), TRI_CORRUPT);
  tri_slot_learn(k.slots, &second, 78);
  ck_assert_int_eq(step_in_slot(&k, 2, 3, TRI_SEQ_FLAG_TOKEN_IN_SLOT), TRI_OK);
  ck_assert_uint_eq(k.b->batch.token_ids[0], 78);
  /* The slot's next sequence never hears of the draws of the one before. */
  second = k.b->samples[0];
  ck_assert_int_eq(step_in_slot(&k, 2, 0, TRI_SEQ_FLAG_FIRST), TRI_OK);
  tri_slot_learn(k.slots, &second, 79);
  ck_assert_int_eq(s->num_history, 2);
  free_kit(&k);
}
END_TEST

START_TEST(truncations) {
  struct kit k = make_kit();
  size_t n;
  const char *bytes = first_plan(&k, &n);
  for (size_t cut = 0; cut < n; cut++) {
    tri_plan_view v;
    char *copy = tri_malloc(cut, 1);
    memcpy(copy, bytes, cut);
    ck_assert_int_eq(tri_plan_read(copy, cut, &v), TRI_CORRUPT);
    tri_free(copy);
  }
  char *longer = tri_calloc(n + 8, 1);
  memcpy(longer, bytes, n);
  for (size_t more = 1; more <= 8; more++) {
    tri_plan_view v;
    ck_assert_int_eq(tri_plan_read(longer, n + more, &v), TRI_CORRUPT);
  }
  tri_free(longer);
  free_kit(&k);
}
END_TEST

/* Adds a step of one token to slot `slot`, which has `start` tokens. */
static void add_masked(struct kit *k, uint32_t slot, uint32_t start, uint8_t flags, const tri_sample_params *p) {
  static const int32_t block = 3;
  static const uint32_t id = 5;
  tri_plan_add(
      k->w,
      &(tri_plan_seq){
          .slot = slot, .kind = TRI_SEQ_CHUNK, .flags = flags, .num_tokens = 1, .start = start, .num_blocks = !start},
      &id, &block, p, 1);
}

static tri_status finish(struct kit *k) {
  size_t n;
  const void *bytes = tri_plan_finish(k->w, &n);
  ck_assert_uint_le(n, tri_plan_max_bytes(k->w));
  return apply(k, bytes, n);
}

static bool has_mask(const struct kit *k, int slot, const uint32_t *mask) {
  const uint32_t *got = k->slots->slots[slot].params.mask;
  return mask && got ? !memcmp(got, mask, tri_mask_words((size_t)limits.vocab_size) * sizeof *mask) : got == mask;
}

/* A mask comes with parameters or alone, goes on to a fork, and ends where parameters come without one. */
START_TEST(masks) {
  enum { WITH = TRI_SEQ_FLAG_PARAMS | TRI_SEQ_FLAG_MASK };
  struct kit k = make_kit();
  uint32_t one[16] = {0x11, 0x22, [15] = 0xfffff}, other[16] = {1};
  tri_sample_params p = params, q = params;
  p.mask = one;
  q.mask = other;
  tri_plan_begin(k.w, 0, 1);
  for (int i = 0; i < 3; i++) {
    ck_assert(tri_plan_has_mask_room(k.w));
    add_masked(&k, (uint32_t)i, 0, TRI_SEQ_FLAG_FIRST | WITH, i == 1 ? &q : &p);
  }
  ck_assert(!tri_plan_has_mask_room(k.w));
  tri_plan_seq fork = {.slot = 4, .kind = TRI_SEQ_FORK, .flags = WITH, .fork_from = 1};
  tri_plan_add(k.w, &fork, NULL, NULL, &q, 1);
  ck_assert_int_eq(finish(&k), TRI_OK);
  ck_assert(has_mask(&k, 0, one) && has_mask(&k, 1, other) && has_mask(&k, 2, one) && has_mask(&k, 4, other));

  tri_plan_begin(k.w, 0, 2);
  add_masked(&k, 0, 1, TRI_SEQ_FLAG_MASK, &q);
  add_masked(&k, 1, 1, TRI_SEQ_FLAG_PARAMS, &params);
  add_masked(&k, 2, 1, 0, NULL);
  ck_assert_int_eq(finish(&k), TRI_OK);
  ck_assert(has_mask(&k, 0, other) && has_mask(&k, 1, NULL) && has_mask(&k, 2, one) && has_mask(&k, 4, other));
  ck_assert(k.slots->slots[0].params.top_k == params.top_k);

  tri_plan_begin(k.w, 0, 3); /* of a slot that has none */
  fork.fork_from = 1;
  tri_plan_add(k.w, &fork, NULL, NULL, &q, 1);
  ck_assert_int_eq(finish(&k), TRI_CORRUPT);
  tri_plan_begin(k.w, 0, 4); /* of another vocabulary */
  add_masked(&k, 3, 0, TRI_SEQ_FLAG_FIRST | WITH, &p);
  k.slots->limits.vocab_size += 32;
  ck_assert_int_eq(finish(&k), TRI_CORRUPT);
  free_kit(&k);
}
END_TEST

START_TEST(bit_flips) {
  struct kit k = make_kit();
  size_t n;
  const char *plan = first_plan(&k, &n);
  char *bytes = tri_malloc(n, 1);
  memcpy(bytes, plan, n);
  for (size_t bit = 0; bit < 8 * n; bit++) {
    bytes[bit / 8] ^= (char)(1 << bit % 8);
    reset(&k);
    try_bytes(&k, bytes, n);
    bytes[bit / 8] ^= (char)(1 << bit % 8);
  }
  tri_free(bytes);
  free_kit(&k);
}
END_TEST

/* Plans of valid form and any content: counts that agree, fields that need not. */
static const void *random_plan(struct kit *k, size_t *bytes) {
  static const uint32_t edges[] = {0, 1, 2, 5, 6, 7, 8, 20, 24, 63, 64, 65, 0x7fffffff, 0x80000000, 0xffffffff};
#define EDGE() (next() % 3 ? (uint32_t)(next() % 8) : edges[next() % (sizeof edges / sizeof *edges)])
  uint32_t ids[64];
  int32_t blocks[64];
  tri_sample_params p = params;
  tri_plan_begin(k->w, (uint32_t)next(), next());
  for (uint64_t n = next() % 8; n; n--) {
    tri_plan_seq q = {.slot = EDGE(),
                      .kind = (uint8_t)(next() % 5),
                      .flags = (uint8_t)next(),
                      .num_tokens = (uint32_t)(next() % 12),
                      .start = EDGE(),
                      .first_block = EDGE(),
                      .num_blocks = (uint32_t)(next() % 5),
                      .fork_from = EDGE(),
                      .rope_len = EDGE(),
                      .counter = next()};
    if (next() % 2 && q.slot < (uint32_t)limits.max_num_seqs) q.start = (uint32_t)k->slots->slots[q.slot].length;
    for (int i = 0; i < 64; i++) ids[i] = next() % 50 ? (uint32_t)(next() % 500) : EDGE();
    for (int i = 0; i < 64; i++) blocks[i] = (int32_t)(next() % 50 ? next() % 24 : EDGE());
    p.num_logprobs = (int)EDGE(), p.top_k = (int)EDGE();
    if (!tri_plan_has_room(k->w, q.num_tokens + 1, q.num_blocks, 1) || !tri_plan_has_mask_room(k->w)) break;
    p.mask = ids; /* 64 words are enough */
    tri_plan_add(k->w, &q, ids, blocks, &p, EDGE());
    if (next() % 4 == 0) tri_plan_add_copy(k->w, (int32_t)(next() % 20 ? next() % 24 : EDGE()), (int32_t)EDGE());
  }
  if (next() % 8 == 0) tri_plan_add_swap_out(k->w, (int32_t)EDGE(), (int32_t)(next() % 4));
  if (next() % 8 == 0) tri_plan_add_swap_in(k->w, (int32_t)(next() % 24), (int32_t)EDGE());
  return tri_plan_finish(k->w, bytes);
}

START_TEST(plans_of_any_content) {
  struct kit k = make_kit();
  state = 12345;
  int accepted = 0;
  for (int i = 0; i < 20000; i++) {
    size_t n;
    const void *bytes = random_plan(&k, &n);
    ck_assert_uint_le(n, tri_plan_max_bytes(k.w));
    tri_status st = apply(&k, bytes, n);
    ck_assert(st == TRI_OK || st == TRI_CORRUPT);
    if (st == TRI_OK) {
      accepted++;
      check_batch(&k);
      for (int d = 0; d < k.b->num_samples; d++) tri_slot_learn(k.slots, &k.b->samples[d], (uint32_t)(next() % 500));
    }
    if (next() % 64 == 0) reset(&k);
  }
  ck_assert_int_gt(accepted, 200); /* the generator reaches beyond refusals */
  free_kit(&k);
}
END_TEST

/* A sequence of 12 tokens comes back into blocks 7 and 3, and goes on with its 13th. */
static const void *resume_plan(struct kit *k, const tri_plan_seq *q, size_t *bytes) {
  static const int32_t blocks[] = {7, 3, 4};
  uint32_t ids[64]; /* as many as some refused plan has */
  for (uint32_t i = 0; i < 64; i++) ids[i] = 100 + i;
  tri_plan_begin(k->w, 0, 9);
  tri_plan_add_swap_out(k->w, 7, 1);
  tri_plan_add_swap_in(k->w, 7, 2);
  tri_plan_add_swap_in(k->w, 3, 0);
  tri_plan_add(k->w, q, ids, blocks, &params, 10);
  tri_plan_seq next = {.slot = 2, .kind = TRI_SEQ_DECODE, .flags = TRI_SEQ_FLAG_SAMPLE, .num_tokens = 1, .start = 12};
  tri_plan_add(k->w, &next, ids + 12, NULL, NULL, 0);
  return tri_plan_finish(k->w, bytes);
}

static const tri_plan_seq resumed = {
    .slot = 2, .kind = TRI_SEQ_RESUME, .flags = TRI_SEQ_FLAG_PARAMS, .num_tokens = 12, .num_blocks = 2};

START_TEST(resumed_sequence) {
  struct kit k = make_kit();
  size_t n;
  tri_plan_view v;
  const void *bytes = resume_plan(&k, &resumed, &n);
  ck_assert_int_eq(tri_plan_read(bytes, n, &v), TRI_OK);
  ck_assert(v.h.num_tokens == 1 && v.h.num_ids == 13 && v.h.num_swaps_out == 1 && v.h.num_swaps_in == 2);
  ck_assert_int_eq(tri_batch_build(k.b, k.slots, &v), TRI_OK);
  ck_assert(k.b->num_swaps_out == 1 && k.b->swaps_out[0] == 7 && k.b->swaps_out[1] == 1);
  ck_assert(k.b->num_swaps_in == 2 && k.b->swaps_in[2] == 3 && k.b->swaps_in[3] == 0);
  const tri_batch *b = &k.b->batch;
  ck_assert(b->num_tokens == 1 && b->num_seqs == 1 && b->context_len[0] == 13 && b->token_ids[0] == 112);
  ck_assert(b->kv_slot[0] == 3 * 8 + 4 && b->positions[0] == 12);
  const tri_slot *s = &k.slots->slots[2];
  ck_assert(s->length == 13 && s->num_history == 13 && s->num_prompt == 10 && s->history[3] == 103);
  ck_assert_int_eq(tri_plan_longest(k.w), 13);
  free_kit(&k);
}
END_TEST

START_TEST(refused_swaps) {
  struct kit k = make_kit();
  size_t n;
  for (int how = 0; how < 6; how++) {
    tri_plan_seq q = resumed;
    if (how == 0) q.num_tokens = 0;
    if (how == 1) q.num_tokens = 64; /* no room for another one; more than the blocks hold */
    if (how == 2) q.num_blocks = 1;
    if (how == 3) q.num_blocks = 3;
    if (how == 4) q.first_block = 1;
    if (how == 5) q.num_tokens = 17;
    const void *bytes = resume_plan(&k, &q, &n);
    ck_assert_msg(apply(&k, bytes, n) == TRI_CORRUPT, "accepted: %d", how);
  }
  static const int32_t pairs[][2] = {{-1, 0}, {24, 0}, {0, -1}, {0, 4}};
  for (size_t i = 0; i < 2 * sizeof pairs / sizeof *pairs; i++) {
    tri_plan_begin(k.w, 0, 1);
    (i % 2 ? tri_plan_add_swap_in : tri_plan_add_swap_out)(k.w, pairs[i / 2][0], pairs[i / 2][1]);
    const void *bytes = tri_plan_finish(k.w, &n);
    ck_assert_int_eq(apply(&k, bytes, n), TRI_CORRUPT);
  }
  free_kit(&k);
}
END_TEST

START_TEST(refused_plans) {
  static const struct {
    const char *what;
    tri_plan_seq q;
  } bad[] = {
      {"a slot that does not exist", {.slot = 6, .flags = TRI_SEQ_FLAG_FIRST, .num_tokens = 1}},
      {"a source that does not exist", {.slot = 0, .kind = TRI_SEQ_FORK, .fork_from = 6}},
      {"a fork of itself", {.slot = 0, .kind = TRI_SEQ_FORK, .fork_from = 0}},
      {"a start that is not the slot's length", {.slot = 0, .flags = TRI_SEQ_FLAG_FIRST, .num_tokens = 1, .start = 1}},
      {"no tokens", {.slot = 0, .flags = TRI_SEQ_FLAG_FIRST | TRI_SEQ_FLAG_SAMPLE}},
      {"blocks beyond the table",
       {.slot = 0, .flags = TRI_SEQ_FLAG_FIRST, .num_tokens = 1, .first_block = 8, .num_blocks = 1}},
      {"blocks far beyond the table",
       {.slot = 0, .flags = TRI_SEQ_FLAG_FIRST, .num_tokens = 1, .first_block = 0xffffffff, .num_blocks = 1}},
      {"a token that nobody drew",
       {.slot = 0, .kind = TRI_SEQ_DECODE, .flags = TRI_SEQ_FLAG_FIRST | TRI_SEQ_FLAG_TOKEN_IN_SLOT, .num_tokens = 1}},
  };
  static const uint32_t ids[] = {1, 2};
  static const int32_t blocks[] = {1};
  struct kit k = make_kit();
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    size_t n;
    tri_plan_begin(k.w, 0, 1);
    tri_plan_add(k.w, &bad[i].q, ids, blocks, NULL, 0);
    const void *bytes = tri_plan_finish(k.w, &n);
    ck_assert_msg(apply(&k, bytes, n) == TRI_CORRUPT, "accepted: %s", bad[i].what);
  }
  for (int which = 0; which < 3; which++) { /* an id, a block and a copied block outside the model */
    uint32_t id = which == 0 ? 500 : 1;
    int32_t block = which == 1 ? 24 : 1;
    size_t n;
    tri_plan_begin(k.w, 0, 1);
    tri_plan_add(k.w, &(tri_plan_seq){.flags = TRI_SEQ_FLAG_FIRST, .num_tokens = 1, .num_blocks = 1}, &id, &block, NULL,
                 0);
    if (which == 2) tri_plan_add_copy(k.w, 1, -1);
    const void *bytes = tri_plan_finish(k.w, &n);
    ck_assert_int_eq(apply(&k, bytes, n), TRI_CORRUPT);
  }
  /* 65 tokens of a model of 64, in chunks */
  uint32_t many[40] = {0};
  for (int chunk = 0; chunk < 2; chunk++) {
    size_t n;
    tri_plan_begin(k.w, 0, 1);
    tri_plan_add(k.w,
                 &(tri_plan_seq){
                     .flags = chunk ? 0 : TRI_SEQ_FLAG_FIRST, .num_tokens = chunk ? 25 : 40, .start = chunk ? 40 : 0},
                 many, NULL, NULL, 0);
    const void *bytes = tri_plan_finish(k.w, &n);
    ck_assert_int_eq(apply(&k, bytes, n), chunk ? TRI_CORRUPT : TRI_OK);
  }
  free_kit(&k);
}
END_TEST

/* An encoder's plans: whole sequences, nothing drawn. */
START_TEST(whole_sequences) {
  static const struct {
    tri_status st;
    tri_plan_seq q;
  } plans[] = {
      {TRI_OK, {.flags = TRI_SEQ_FLAG_FIRST, .num_tokens = 2, .num_blocks = 1}},
      {TRI_CORRUPT, {.num_tokens = 1, .start = 2}}, /* more of the sequence */
      {TRI_OK, {.flags = TRI_SEQ_FLAG_FIRST, .num_tokens = 1}},
      {TRI_CORRUPT, {.flags = TRI_SEQ_FLAG_FIRST | TRI_SEQ_FLAG_SAMPLE, .num_tokens = 2}},
      {TRI_CORRUPT, {.flags = TRI_SEQ_FLAG_FIRST | TRI_SEQ_FLAG_ALL_LOGITS, .num_tokens = 2}},
      {TRI_CORRUPT, {.flags = TRI_SEQ_FLAG_FIRST | TRI_SEQ_FLAG_SCORE, .num_tokens = 1}},
      {TRI_CORRUPT, {.kind = TRI_SEQ_DECODE, .flags = TRI_SEQ_FLAG_SCORE | TRI_SEQ_FLAG_SAMPLE, .num_tokens = 1}},
      {TRI_CORRUPT, {.kind = TRI_SEQ_DECODE, .flags = TRI_SEQ_FLAG_FIRST, .num_tokens = 1}},
      {TRI_CORRUPT, {.slot = 1, .kind = TRI_SEQ_FORK}},
  };
  static const uint32_t ids[] = {1, 2};
  static const int32_t blocks[] = {1};
  struct kit k = make_kit();
  k.slots->limits.whole_sequences = true;
  for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) {
    size_t n;
    tri_plan_begin(k.w, 0, 1);
    tri_plan_add(k.w, &plans[i].q, ids, blocks, NULL, 0);
    const void *bytes = tri_plan_finish(k.w, &n);
    ck_assert_msg(apply(&k, bytes, n) == plans[i].st, "plan %zu", i);
    if (plans[i].st == TRI_OK) ck_assert(k.b->batch.num_logits == k.b->batch.num_seqs && k.b->num_samples == 0);
  }
  free_kit(&k);
}
END_TEST

/* A chunk of slot 2 that is scored, of the tokens from `start` on. */
static tri_status score_chunk(struct kit *k, uint32_t start, uint32_t tokens, int flags) {
  static const int32_t blocks[] = {1, 2, 3};
  tri_plan_seq q = {.slot = 2,
                    .flags = (uint8_t)(TRI_SEQ_FLAG_SCORE | flags),
                    .num_tokens = tokens,
                    .start = start,
                    .num_blocks = start ? 0 : 3,
                    .counter = 9};
  size_t n;
  if (!start) q.flags |= TRI_SEQ_FLAG_FIRST | TRI_SEQ_FLAG_PARAMS;
  tri_plan_begin(k->w, 0, 1);
  tri_plan_add(k->w, &q, prompt + start, blocks, &params, 12);
  const void *bytes = tri_plan_finish(k->w, &n);
  return apply(k, bytes, n);
}

/* Each token of a prompt gets its row of logits and a draw whose token is given: the next one, which the plan has for
 * the chunk's last one, too. Behind the prompt's last token is drawn. */
START_TEST(scored_chunks) {
  struct kit k = make_kit();
  const tri_slot *slot = &k.slots->slots[2];
  for (uint32_t i = 0; i < 32; i++) prompt[i] = 100 + i;
  ck_assert_int_eq(score_chunk(&k, 0, 5, 0), TRI_OK);
  ck_assert(k.b->batch.num_logits == 5 && k.b->num_samples == 5 && slot->length == 5 && slot->sampled < 0);
  for (int i = 0; i < 5; i++) {
    const tri_sample_row *d = &k.b->samples[i];
    ck_assert(d->target == 101u + (uint32_t)i && d->position == i + 1 && k.b->sample_rows[i] == i);
    tri_slot_learn(k.slots, d, 7);
  }
  ck_assert(slot->num_history == 5 && slot->history[1] == 101 && slot->history[4] == 104);
  ck_assert_int_eq(score_chunk(&k, 5, 3, TRI_SEQ_FLAG_SAMPLE), TRI_OK);
  ck_assert(k.b->num_samples == 3 && k.b->samples[0].target == 106 && k.b->samples[1].target == 107);
  ck_assert(k.b->samples[2].target == TRI_SAMPLE_NO_TARGET && k.b->samples[2].position == 8 && slot->sampled == 2);
  tri_slot_learn(k.slots, &k.b->samples[2], 7);
  ck_assert(slot->num_history == 9 && slot->history[8] == 7);
  /* No more than there is room for: draws, ids of the vocabulary. */
  ck_assert_int_eq(score_chunk(&k, 0, (uint32_t)limits.max_num_seqs, 0), TRI_OK);
  ck_assert_int_eq(score_chunk(&k, 0, (uint32_t)limits.max_num_seqs + 1, 0), TRI_CORRUPT);
  prompt[5] = (uint32_t)limits.vocab_size;
  ck_assert_int_eq(score_chunk(&k, 0, 5, 0), TRI_CORRUPT);
  ck_assert_int_eq(score_chunk(&k, 0, 5, TRI_SEQ_FLAG_SAMPLE), TRI_OK);
  prompt[5] = 105;
  free_kit(&k);
}
END_TEST

/* ---- results ---- */

/* Prompts of one token each in `count` slots: what decode steps look like. */
static void apply_singles(tri_plan_writer *w, tri_slots *slots, tri_batch_builder *b, int count) {
  size_t n;
  tri_plan_view v;
  tri_plan_begin(w, 0, 1);
  for (int i = 0; i < count; i++) {
    int32_t block = i + 1;
    uint32_t id = 200 + (uint32_t)i;
    tri_plan_add(w,
                 &(tri_plan_seq){.slot = (uint32_t)i,
                                 .kind = TRI_SEQ_CHUNK,
                                 .flags = TRI_SEQ_FLAG_FIRST | TRI_SEQ_FLAG_SAMPLE | TRI_SEQ_FLAG_PARAMS,
                                 .num_tokens = 1,
                                 .num_blocks = 1},
                 &id, &block, &params, 1);
  }
  const void *bytes = tri_plan_finish(w, &n);
  ck_assert_int_eq(tri_plan_read(bytes, n, &v), TRI_OK);
  ck_assert_int_eq(tri_batch_build(b, slots, &v), TRI_OK);
}

static void check_padded(int count, int max_num_seqs, int wanted) {
  tri_limits l = limits;
  l.max_num_seqs = max_num_seqs, l.max_num_batched_tokens = l.max_num_logits = 100, l.num_blocks = 101;
  tri_plan_writer *w;
  tri_slots *slots;
  tri_batch_builder *b;
  tri_batch padded;
  ck_assert_int_eq(tri_plan_writer_create(&(tri_plan_sizes){.seqs = 100, .ids = 100, .blocks = 100}, &w), TRI_OK);
  ck_assert_int_eq(tri_slots_create(&l, &slots), TRI_OK);
  ck_assert_int_eq(tri_batch_builder_create(&l, &b), TRI_OK);
  apply_singles(w, slots, b, count);
  ck_assert(b->batch.max_query == 1 && b->batch.num_single == count && b->batch.num_logits == count);
  tri_batch_pad(b, tri_batch_padded_rows(&l, count), &padded);
  ck_assert_int_eq(padded.num_tokens, wanted);
  ck_assert(padded.num_seqs == wanted && padded.num_logits == wanted && padded.num_single == wanted);
  ck_assert(b->batch.num_tokens == count && padded.max_query == 1 && padded.max_context == 1);
  for (int i = 0; i < wanted; i++) {
    const int32_t *blocks = tri_batch_blocks(&padded, i);
    bool real = i < count;
    ck_assert_uint_eq(padded.token_ids[i], real ? 200u + (uint32_t)i : 0);
    ck_assert(padded.seq_start[i] == i && padded.seq_start[i + 1] == i + 1 && padded.context_len[i] == 1);
    ck_assert(padded.positions[i] == 0 && padded.types[i] == 0 && padded.rope_len[i] == 1 && padded.logit_rows[i] == i);
    ck_assert_int_eq(padded.kv_slot[i], real ? (i + 1) * l.block_size : -1);
    ck_assert_int_eq(blocks[0], real ? i + 1 : 0);
  }
  tri_plan_writer_destroy(w);
  tri_slots_destroy(slots);
  tri_batch_builder_destroy(b);
}

/* A chunk of a slot, with its logits wanted or not. */
static void add_chunk(struct kit *k, uint32_t slot, uint32_t start, uint32_t tokens, bool sample) {
  static const int32_t blocks[] = {0, 1, 2, 3};
  tri_plan_seq s = {
      .slot = slot,
      .kind = TRI_SEQ_CHUNK,
      .flags = (uint8_t)((start ? 0 : TRI_SEQ_FLAG_FIRST | TRI_SEQ_FLAG_PARAMS) | (sample ? TRI_SEQ_FLAG_SAMPLE : 0)),
      .num_tokens = tokens,
      .start = start,
      .num_blocks = start ? 0 : 4};
  tri_plan_add(k->w, &s, prompt, blocks, &params, 1);
}

static uint32_t longest_of(struct kit *k, uint32_t start, uint32_t tokens, bool sample) {
  tri_plan_begin(k->w, 0, 1);
  tri_plan_add(k->w, &(tri_plan_seq){.slot = 1, .kind = TRI_SEQ_FORK}, NULL, NULL, NULL, 0);
  add_chunk(k, 2, 3, 1, true);
  if (tokens) add_chunk(k, 0, start, tokens, sample);
  return tri_plan_longest(k->w);
}

/* The longest context is told only where all sequences have one token and its logits are wanted. */
START_TEST(longest_context) {
  struct kit k = make_kit();
  tri_plan_begin(k.w, 0, 1);
  ck_assert_uint_eq(tri_plan_longest(k.w), 1);
  ck_assert_uint_eq(longest_of(&k, 0, 0, true), 4);
  ck_assert_uint_eq(longest_of(&k, 9, 1, true), 10);
  ck_assert_uint_eq(longest_of(&k, 9, 1, false), 0);
  ck_assert_uint_eq(longest_of(&k, 9, 2, true), 0);
  free_kit(&k);
}
END_TEST

/* Builds the batch of a shard with these tokens at a sequence's start, as others are told of it. */
static tri_status build_told(uint32_t tokens, uint32_t own, uint32_t other, int *told) {
  struct kit k = make_kit();
  size_t n;
  tri_plan_begin(k.w, 0, 1);
  if (tokens) add_chunk(&k, 0, 0, tokens, true);
  tri_plan_set_dp_ranks(k.w, (uint32_t[]){tokens, 7}, (uint32_t[]){own, other}, 2);
  const void *bytes = tri_plan_finish(k.w, &n);
  tri_status st = apply(&k, bytes, n);
  *told = k.b->longest;
  if (st == TRI_OK)
    ck_assert(k.b->num_dp_ranks == 2 && k.b->dp_rank_tokens[0] == tokens && k.b->dp_rank_tokens[1] == 7);
  free_kit(&k);
  return st;
}

START_TEST(shards_are_told) {
  int told;
  ck_assert(build_told(1, 1, 60, &told) == TRI_OK && told == 60);
  ck_assert(build_told(0, 1, 60, &told) == TRI_OK && told == 60);
  ck_assert(build_told(1, 1, 0, &told) == TRI_OK && told == 0); /* another one has prompts */
  ck_assert(build_told(5, 0, 60, &told) == TRI_OK && told == 0);
  ck_assert_int_eq(build_told(5, 60, 60, &told), TRI_CORRUPT); /* not what was told */
  ck_assert_int_eq(build_told(1, 1, 65, &told), TRI_CORRUPT);  /* longer than any sequence */
}
END_TEST

/* The largest batch fills the block table, and leaves nothing for the next one. */
START_TEST(largest_batch) {
  struct kit k = make_kit();
  tri_batch largest;
  size_t n;
  tri_batch_largest(k.b, &limits, &largest);
  int rows = largest.num_seqs;
  ck_assert(rows == limits.max_num_seqs && largest.num_tokens == rows && largest.num_logits == rows);
  ck_assert_int_eq(largest.block_start[rows], rows * limits.max_model_len / limits.block_size);
  ck_assert(largest.kv_slot[rows - 1] == -1 && largest.context_len[rows - 1] == 1);
  const void *bytes = first_plan(&k, &n);
  ck_assert_int_eq(apply(&k, bytes, n), TRI_OK);
  ck_assert(k.b->batch.block_start[0] == 0 && k.b->batch.block_start[1] == 2 && k.b->batch.block_start[2] == 5);
  free_kit(&k);
}
END_TEST

START_TEST(padding) {
  static const int steps[][2] = {{1, 1},   {2, 2},   {3, 4},   {5, 8},   {9, 16},  {16, 16}, {17, 24},
                                 {24, 24}, {25, 32}, {33, 40}, {48, 48}, {49, 56}, {65, 72}, {97, 100}};
  for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) check_padded(steps[i][0], 100, steps[i][1]);
  check_padded(5, 6, 6); /* no more than there are slots */
}
END_TEST

/* So many prompts of 3 tokens whose last logits are wanted. */
static void check_padded_logits(int prompts, int wanted) {
  struct kit k = make_kit();
  tri_batch padded;
  size_t n;
  tri_plan_begin(k.w, 0, 1);
  for (int i = 0; i < prompts; i++) add_chunk(&k, (uint32_t)i, 0, 3, true);
  const void *bytes = tri_plan_finish(k.w, &n);
  ck_assert_int_eq(apply(&k, bytes, n), TRI_OK);
  tri_batch_pad_logits(k.b, &limits, &padded);
  ck_assert(padded.num_tokens == 3 * prompts && padded.num_seqs == prompts && k.b->batch.num_logits == prompts);
  ck_assert_int_eq(padded.num_logits, wanted);
  for (int i = 0; i < wanted; i++) ck_assert_int_eq(padded.logit_rows[i], 3 * (i < prompts ? i : prompts - 1) + 2);
  free_kit(&k);
}

START_TEST(padded_logits) {
  check_padded_logits(1, 1);
  check_padded_logits(3, 4);
  check_padded_logits(5, 6); /* no more than there are slots */
  struct kit k = make_kit(); /* all rows' logits are wanted */
  tri_batch padded;
  size_t n;
  tri_plan_begin(k.w, 0, 1);
  for (uint32_t i = 0; i < 3; i++) add_chunk(&k, i, 0, 1, true);
  const void *bytes = tri_plan_finish(k.w, &n);
  ck_assert_int_eq(apply(&k, bytes, n), TRI_OK);
  tri_batch_pad_logits(k.b, &limits, &padded);
  ck_assert_int_eq(padded.num_logits, 3);
  free_kit(&k);
}
END_TEST

START_TEST(padded_rows) {
  ck_assert_int_eq(tri_batch_rows(128), 128);
  ck_assert_int_eq(tri_batch_rows(129), 144);
  ck_assert_int_eq(tri_batch_rows(257), 288);
  for (int n = 1, sizes = 0, last = 0; n <= 4096; n++) {
    int rows = tri_batch_rows(n);
    ck_assert(rows >= n && tri_batch_rows(rows) == rows && (n <= 16 || rows - n < 8 || rows - n < n / 8));
    sizes += rows != last;
    last = rows;
    if (n == 256) ck_assert_int_eq(sizes, 27); /* each is recorded */
  }
}
END_TEST

START_TEST(results) {
  enum { N = 5 };
  tri_step_token tokens[N], back[N];
  tri_step_result r = {.step = 1ull << 40, .micro_batch = 2, .num_tokens = N, .tokens = tokens}, got = {.tokens = back};
  memset(tokens, 0, sizeof tokens);
  for (int i = 0; i < N; i++) {
    tokens[i].slot = (uint32_t)i * 3;
    tokens[i].sample = (tri_sample_result){.token = 100u + (uint32_t)i, .logprob = -0.5f * (float)i, .num_top = i * 5};
    tokens[i].sample.broken = i % 2;
    for (int t = 0; t < i * 5; t++)
      tokens[i].sample.top_ids[t] = (uint32_t)t, tokens[i].sample.top_logprobs[t] = (float)-t;
  }
  size_t cap = tri_result_max_bytes(N);
  char *buf = tri_calloc(cap, 1);
  ck_assert_uint_eq(tri_result_pack(&r, buf, cap - 1), 0); /* nothing rather than a part */
  size_t n = tri_result_pack(&r, buf, cap);
  ck_assert(n > 0 && n <= cap);
  ck_assert_int_eq(tri_result_unpack(buf, n, &got, N), TRI_OK);
  ck_assert(got.step == r.step && got.micro_batch == 2 && got.num_tokens == N);
  for (int i = 0; i < N; i++) {
    const tri_sample_result *a = &tokens[i].sample, *b = &back[i].sample;
    ck_assert(back[i].slot == tokens[i].slot && a->token == b->token && a->logprob == b->logprob &&
              a->num_top == b->num_top && a->broken == b->broken);
    ck_assert(!memcmp(a->top_ids, b->top_ids, (size_t)a->num_top * 4));
    ck_assert(!memcmp(a->top_logprobs, b->top_logprobs, (size_t)a->num_top * 4));
  }
  ck_assert_int_eq(tri_result_unpack(buf, n, &got, N - 1), TRI_CORRUPT); /* more than there is room for */
  for (size_t cut = 0; cut < n; cut++) {
    char *copy = tri_malloc(cut, 1);
    memcpy(copy, buf, cut);
    ck_assert_int_eq(tri_result_unpack(copy, cut, &got, N), TRI_CORRUPT);
    tri_free(copy);
  }
  for (size_t bit = 0; bit < 8 * n; bit++) {
    char *copy = tri_malloc(n, 1);
    memcpy(copy, buf, n);
    copy[bit / 8] ^= (char)(1 << bit % 8);
    tri_status st = tri_result_unpack(copy, n, &got, N);
    ck_assert(st == TRI_OK || st == TRI_CORRUPT);
    ck_assert(got.num_tokens <= N);
    tri_free(copy);
  }
  tri_free(buf);
}
END_TEST

Suite *suite_step_plan(void) {
  Suite *s = suite_create("step_plan");
  TCase *c = tcase_create("plan");
  tcase_set_timeout(c, 60);
  tcase_add_test(c, round_trip);
  tcase_add_test(c, truncations);
  tcase_add_test(c, bit_flips);
  tcase_add_test(c, masks);
  tcase_add_test(c, plans_of_any_content);
  tcase_add_test(c, resumed_sequence);
  tcase_add_test(c, refused_swaps);
  tcase_add_test(c, refused_plans);
  tcase_add_test(c, whole_sequences);
  tcase_add_test(c, scored_chunks);
  suite_add_tcase(s, c);
  c = tcase_create("result");
  tcase_add_test(c, largest_batch);
  tcase_add_test(c, longest_context);
  tcase_add_test(c, shards_are_told);
  tcase_add_test(c, padding);
  tcase_add_test(c, padded_logits);
  tcase_add_test(c, padded_rows);
  tcase_add_test(c, pending_draws);
  tcase_add_test(c, results);
  suite_add_tcase(s, c);
  return s;
}
