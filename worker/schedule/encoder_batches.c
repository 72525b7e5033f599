/* SPDX-License-Identifier: Apache-2.0 */
/* An encoder's batches by their predicted cost, and those that they are compared with (TurboTransformers, Fang et al.
 * 2021, section 5): dp-hungry, dp-lazy, naive and none. They are rectangles: each sequence counts as long as the
 * longest one of its batch. The engine packs sequences without padding, so padding sequences fill
 * the rest of a rectangle. Products cost what they would; attention costs a little less, as a short sequence does not
 * attend to its own padding. */
#include <stdlib.h>
#include <string.h>

#include "worker/schedule/batch_planner.h"
#include "worker/schedule/scheduler_impl.h"

/* A waiting sequence. */
struct candidate {
  tri_sequence *q;
  int length, number; /* in the queue */
};

struct tri_encoder_batches {
  tri_batch_planner *planner;
  int max_batch;
  int num;                                      /* candidates */
  struct candidate candidates[TRI_BATCH_QUEUE]; /* in the order of the queue */
  struct candidate sorted[TRI_BATCH_QUEUE];     /* by length */
  int lengths[TRI_BATCH_QUEUE], ends[TRI_BATCH_QUEUE];
  bool chosen[TRI_BATCH_QUEUE]; /* by number */
  int num_chosen, longest, tokens;
  uint32_t *no_ids;        /* [max_model_len] zeros */
  int32_t *padding_blocks; /* [num_blocks] of the step that is being composed */
  int num_padding_blocks;
};

tri_status tri_encoder_batches_create(const tri_sched_config *c, tri_encoder_batches **out) {
  tri_encoder_batches *b = tri_calloc(1, sizeof *b);
  if (!b) return TRI_NO_MEMORY;
  /* Padding takes as many places as sequences do, at most. */
  b->max_batch = (c->limits.max_num_seqs + 1) / 2;
  if (b->max_batch > TRI_BATCH_QUEUE) b->max_batch = TRI_BATCH_QUEUE;
  b->no_ids = tri_calloc((size_t)c->limits.max_model_len, sizeof *b->no_ids);
  b->padding_blocks = tri_calloc((size_t)c->limits.num_blocks, sizeof *b->padding_blocks);
  tri_status st = tri_batch_planner_create(b->max_batch, c->limits.max_num_batched_tokens, &b->planner);
  if (st != TRI_OK || !b->no_ids || !b->padding_blocks) {
    tri_encoder_batches_destroy(b);
    return TRI_NO_MEMORY;
  }
  tri_batch_cost unmeasured;
  tri_batch_cost_init(&unmeasured, c->limits.max_model_len, c->limits.max_num_seqs, c->limits.max_num_batched_tokens);
  tri_batch_planner_set_cost(b->planner, &unmeasured);
  *out = b;
  return TRI_OK;
}

void tri_encoder_batches_destroy(tri_encoder_batches *b) {
  if (!b) return;
  tri_batch_planner_destroy(b->planner);
  tri_free(b->no_ids);
  tri_free(b->padding_blocks);
  tri_free(b);
}

void tri_sched_set_batch_cost(tri_sched *s, const tri_batch_cost *c) {
  s->enough_tokens = tri_batch_cost_enough_tokens(c);
  if (s->batches) tri_batch_planner_set_cost(s->batches->planner, c);
}

/* ---- which batch ---- */

/* Collects those that wait with the first one's priority, up to the planner's limit. */
static void collect(const tri_sched *s, tri_encoder_batches *b) {
  const tri_sequence *first = s->waiting.head;
  b->num = 0;
  for (tri_sequence *q = s->waiting.head; q && b->num < TRI_BATCH_QUEUE; q = q->next) {
    if (s->cfg.by_priority && q->job->priority != first->job->priority) return;
    b->candidates[b->num] = (struct candidate){q, q->num_tokens, b->num};
    b->chosen[b->num] = false;
    b->num++;
  }
}

static int by_length(const void *a, const void *b) {
  const struct candidate *x = a, *y = b;
  if (x->length != y->length) return x->length < y->length ? -1 : 1;
  return (x->number > y->number) - (x->number < y->number);
}

static void choose(tri_encoder_batches *b, const struct candidate *c) {
  b->chosen[c->number] = true;
  b->num_chosen++;
  b->tokens += c->length;
  if (c->length > b->longest) b->longest = c->length;
}

/* Divides them, sorted by length, at the least cost. Returns the number of batches. */
static int divide(tri_encoder_batches *b, double *seconds) {
  for (int i = 0; i < b->num; i++) b->sorted[i] = b->candidates[i];
  qsort(b->sorted, (size_t)b->num, sizeof *b->sorted, by_length);
  for (int i = 0; i < b->num; i++) b->lengths[i] = b->sorted[i].length;
  return tri_batch_planner_cut(b->planner, b->lengths, b->num, b->ends, seconds);
}

static int start_of(const tri_encoder_batches *b, int k) { return k ? b->ends[k - 1] : 0; }

/* Returns the batch that has the sequence which came first: where it is taken, none waits for ever. */
static int batch_of_first(const tri_encoder_batches *b) {
  int i = 0, k = 0;
  while (b->sorted[i].number) i++;
  while (b->ends[k] <= i) k++;
  return k;
}

/* Returns a batch that no sequence of the same length could join, for which waiting longer gains nothing; -1: there is
 * none. */
static int full_batch(const tri_sched *s, const tri_encoder_batches *b, int num) {
  for (int k = 0; k < num; k++) {
    int size = b->ends[k] - start_of(b, k), longest = b->lengths[b->ends[k] - 1];
    if (size >= b->max_batch || (size + 1) * longest > s->cfg.limits.max_num_batched_tokens) return k;
  }
  return -1;
}

/* Chooses as many as fit, in the order of the queue; none: one. */
static void choose_first(const tri_sched *s, tri_encoder_batches *b, int most) {
  for (int i = 0; i < b->num && b->num_chosen < most; i++) {
    int length = b->candidates[i].length, longest = length > b->longest ? length : b->longest;
    if (i && (b->num_chosen + 1) * longest > s->cfg.limits.max_num_batched_tokens) return;
    choose(b, &b->candidates[i]);
  }
}

/* Returns whether waiting longer would take the oldest request, of whatever priority, beyond half of its limit with the
 * time that all batches take. */
static bool is_due(const tri_sched *s, double seconds) {
  int64_t came = s->now_ns;
  for (const tri_sequence *q = s->waiting.head; q; q = q->next)
    if (q->job->came_ns < came) came = q->job->came_ns;
  return (double)(s->now_ns - came) + seconds * 1e9 >= (double)s->cfg.latency_limit_ns / 2;
}

/* False: no batch is due. */
static bool choose_batch(tri_sched *s, tri_encoder_batches *b) {
  b->num_chosen = b->longest = b->tokens = 0;
  if (s->cfg.encoder_batching == TRI_BATCHING_NONE || s->cfg.encoder_batching == TRI_BATCHING_NAIVE) {
    choose_first(s, b, s->cfg.encoder_batching == TRI_BATCHING_NAIVE ? b->max_batch : 1);
    return true;
  }
  double seconds;
  int num = divide(b, &seconds), k = batch_of_first(b);
  if (s->cfg.encoder_batching == TRI_BATCHING_DP_LAZY && !is_due(s, seconds)) k = full_batch(s, b, num);
  for (int i = k < 0 ? 0 : start_of(b, k); k >= 0 && i < b->ends[k]; i++) choose(b, &b->sorted[i]);
  return k >= 0;
}

/* ---- its places ---- */

static int padding_tokens(const tri_encoder_batches *b) { return b->num_chosen * b->longest - b->tokens; }
static int num_paddings(const tri_encoder_batches *b) { return (padding_tokens(b) + b->longest - 1) / b->longest; }

static bool fits(const tri_sched *s, const tri_encoder_batches *b) {
  int blocks = num_paddings(b) * tri_sched_blocks_for(s, b->longest);
  for (int i = 0; i < b->num; i++)
    if (b->chosen[i]) blocks += tri_sched_blocks_for(s, b->candidates[i].length);
  return b->num_chosen + num_paddings(b) <= tri_sched_num_free(s) && blocks <= tri_block_num_free(&s->pool);
}

/* Leaves the one that came last for another step, where slots or blocks do not suffice for all and their padding. */
static void drop_last(tri_encoder_batches *b) {
  int last = b->num - 1;
  while (!b->chosen[last]) last--;
  b->chosen[last] = false;
  b->num_chosen--;
  b->tokens -= b->candidates[last].length;
  b->longest = 0;
  for (int i = 0; i < b->num; i++)
    if (b->chosen[i] && b->candidates[i].length > b->longest) b->longest = b->candidates[i].length;
}

/* ---- its step ---- */

/* There are blocks and slots for it. */
static void take(tri_sched *s, tri_plan_writer *plan, tri_sequence *q, int micro_batch) {
  int first = 0;
  tri_seq_list_remove(&s->waiting, q);
  tri_sched_enter(s, q, tri_sched_free_slot(s));
  tri_sched_secure_blocks(s, q, q->num_tokens, false, plan, &first);
  tri_sched_emit(s, plan, q, q->num_tokens, first, true);
  if (!q->job->begun_ns) q->job->begun_ns = s->now_ns;
  tri_sched_move(s, q, micro_batch);
}

/* Adds a padding sequence. Steps run one after the other: its slot and its blocks are its own for this one alone. */
static void add_padding(tri_sched *s, tri_encoder_batches *b, tri_plan_writer *plan, int tokens) {
  int blocks = tri_sched_blocks_for(s, tokens);
  int32_t *own = b->padding_blocks + b->num_padding_blocks;
  tri_plan_seq e = {.slot = (uint32_t)tri_sched_free_slot(s),
                    .kind = TRI_SEQ_CHUNK,
                    .flags = TRI_SEQ_FLAG_FIRST,
                    .num_tokens = (uint32_t)tokens,
                    .num_blocks = (uint32_t)blocks};
  for (int i = 0; i < blocks; i++) own[i] = tri_block_take(&s->pool);
  b->num_padding_blocks += blocks;
  tri_plan_add(plan, &e, b->no_ids, own, NULL, 0);
}

static void pad(tri_sched *s, tri_encoder_batches *b, tri_plan_writer *plan, tri_sched_micro_batch *micro_batch) {
  micro_batch->padding_tokens = padding_tokens(b);
  micro_batch->num_paddings = num_paddings(b);
  b->num_padding_blocks = 0;
  for (int left = micro_batch->padding_tokens, n; left > 0; left -= n) {
    n = left < b->longest ? left : b->longest;
    add_padding(s, b, plan, n);
  }
  for (int i = 0; i < b->num_padding_blocks; i++) tri_block_drop(&s->pool, b->padding_blocks[i]);
}

void tri_encoder_admit(tri_sched *s, int micro_batch, tri_plan_writer *plan) {
  tri_encoder_batches *b = s->batches;
  if (!s->waiting.head || plan->h.num_seqs) return;
  collect(s, b);
  if (!choose_batch(s, b)) return;
  while (!fits(s, b)) {
    if (b->num_chosen == 1) return;
    drop_last(b);
  }
  for (int i = 0; i < b->num; i++)
    if (b->chosen[i]) take(s, plan, b->candidates[i].q, micro_batch);
  pad(s, b, plan, &s->micro_batches[micro_batch]);
}
