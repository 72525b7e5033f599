/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/step/batch.h"

#include <string.h>

#include "base/mem.h"

/* Plan to batch. Entries are applied in the plan's order, for a fork reads what an entry before it has put into its
 * slot. A batch is flat: tokens of all sequences one after the other, with where each sequence begins (seq_start) and
 * its blocks (block_start, block_table). Plans come from the leader, but are checked as if from a stranger: an id, a
 * block or a slot out of range would be read or written out of bounds on a device. */
tri_status tri_slots_create(const tri_limits *limits, tri_slots **out) {
  tri_slots *s = tri_calloc(1, sizeof *s);
  if (!s) return TRI_NO_MEMORY;
  /* One token more than a sequence can have: the sample after its last position is noted, too. */
  size_t n = (size_t)limits->max_num_seqs, history = (size_t)limits->max_model_len + 1;
  s->limits = *limits;
  s->blocks_per_seq = (limits->max_model_len + limits->block_size - 1) / limits->block_size;
  s->slots = tri_calloc(n, sizeof *s->slots);
  s->history = tri_calloc(n * history, sizeof *s->history);
  size_t mask_words = limits->whole_sequences ? 0 : tri_mask_words((size_t)limits->vocab_size);
  s->masks = tri_calloc(n * mask_words + 1, sizeof *s->masks);
  s->blocks = tri_calloc(n * (size_t)s->blocks_per_seq, sizeof *s->blocks);
  s->source_blocks = tri_calloc(limits->has_source ? n * (size_t)s->blocks_per_seq : 1, sizeof *s->source_blocks);
  if (!s->slots || !s->history || !s->masks || !s->blocks || !s->source_blocks) {
    tri_slots_destroy(s);
    return TRI_NO_MEMORY;
  }
  for (size_t i = 0; i < n; i++) {
    s->slots[i].history = s->history + i * history;
    s->slots[i].sampled = -1;
    s->slots[i].mask = mask_words ? s->masks + i * mask_words : NULL;
    s->slots[i].blocks = s->blocks + i * (size_t)s->blocks_per_seq;
    s->slots[i].source_blocks = limits->has_source ? s->source_blocks + i * (size_t)s->blocks_per_seq : NULL;
  }
  *out = s;
  return TRI_OK;
}

void tri_slots_destroy(tri_slots *s) {
  if (!s) return;
  tri_free(s->slots);
  tri_free(s->history);
  tri_free(s->masks);
  tri_free(s->blocks);
  tri_free(s->source_blocks);
  tri_free(s);
}

static void free_arrays(tri_batch_arrays *a) {
#define X(type, name, count) tri_free(a->name);
  TRI_BATCH_ARRAY_LIST(X)
#undef X
}

static bool make_arrays(const tri_limits *l, tri_batch_arrays *a, tri_batch *view) {
  size_t tokens = (size_t)l->max_num_batched_tokens, seqs = (size_t)l->max_num_seqs;
  size_t blocks = (size_t)((l->max_model_len + l->block_size - 1) / l->block_size);
  bool ok = true;
#define X(type, name, count) ok &= (a->name = tri_calloc(count, sizeof *a->name)) != NULL;
  TRI_BATCH_ARRAY_LIST(X)
#undef X
  *view = (tri_batch){.token_ids = a->token_ids,
                      .positions = a->positions,
                      .types = a->types,
                      .rope_len = a->rope_len,
                      .kv_slot = a->kv_slot,
                      .seq_start = a->seq_start,
                      .context_len = a->context_len,
                      .block_start = a->block_start,
                      .block_table = a->block_table,
                      .logit_rows = a->logit_rows};
  return ok;
}

tri_status tri_batch_builder_create(const tri_limits *l, tri_batch_builder **out) {
  tri_batch_builder *b = tri_calloc(1, sizeof *b);
  if (!b) return TRI_NO_MEMORY;
  b->samples = tri_calloc((size_t)l->max_num_seqs, sizeof *b->samples);
  b->sample_rows = tri_calloc((size_t)l->max_num_seqs, sizeof *b->sample_rows);
  bool ok = b->samples && b->sample_rows && make_arrays(l, &b->rows, &b->batch);
  if (ok && l->has_source)
    ok = make_arrays(l, &b->source_rows, &b->source) && make_arrays(l, &b->cross_rows, &b->cross);
  if (!ok) {
    tri_batch_builder_destroy(b);
    return TRI_NO_MEMORY;
  }
  b->cross.seq_start = b->rows.seq_start;
  *out = b;
  return TRI_OK;
}

void tri_batch_builder_destroy(tri_batch_builder *b) {
  if (!b) return;
  free_arrays(&b->rows);
  free_arrays(&b->source_rows);
  free_arrays(&b->cross_rows);
  tri_free(b->samples);
  tri_free(b->sample_rows);
  tri_free(b);
}

/* A result may come when its slot has another sequence (life) or has been fed the token from the device already. */
void tri_slot_learn(tri_slots *slots, const tri_sample_row *sample, uint32_t token) {
  tri_slot *s = &slots->slots[sample->slot];
  if (sample->target != TRI_SAMPLE_NO_TARGET) return; /* the chunk has brought it */
  if (s->life != sample->life || sample->position > slots->limits.max_model_len) return;
  s->history[sample->position] = token;
  if (s->num_history <= sample->position) s->num_history = sample->position + 1;
  if (s->length <= sample->position) s->sampled = -1; /* else it has been fed, and another sample follows it */
}

/* Reads the parameter block at *at and moves past it. Counts are bounded by the slot's arrays and by the plan's end
 * before anything is copied. The struct is copied, too: it need not be aligned in the plan. Parameters take away the
 * mask; set_mask runs after this function. */
static tri_status read_params(tri_slot *slot, const char **at, const char *end) {
  tri_plan_params p;
  if ((size_t)(end - *at) < sizeof p) return TRI_CORRUPT;
  memcpy(&p, *at, sizeof p);
  *at += sizeof p;
  tri_sample_params *sample = &p.sample;
  if (p.num_prompt > INT32_MAX || (unsigned)sample->num_logit_bias > TRI_MAX_LOGIT_BIAS ||
      (unsigned)sample->num_banned > TRI_MAX_BANNED)
    return TRI_CORRUPT;
  size_t bias = (size_t)sample->num_logit_bias * sizeof *slot->bias;
  size_t banned = (size_t)sample->num_banned * sizeof *slot->banned;
  if ((size_t)(end - *at) < bias + banned) return TRI_CORRUPT;
  memcpy(slot->bias, *at, bias);
  *at += bias;
  memcpy(slot->banned, *at, banned);
  *at += banned;
  slot->num_prompt = (int)p.num_prompt;
  sample->logit_bias = slot->bias;
  sample->banned = slot->banned;
  sample->mask = NULL;
  slot->params = *sample;
  return TRI_OK;
}

/* Gives the slot the mask that the plan brings, or that of the slot it is forked from. */
static tri_status set_mask(const tri_slots *slots, tri_slot *slot, const tri_plan_seq *q, const tri_plan_view *plan,
                           const uint32_t **at) {
  size_t words = tri_mask_words((size_t)slots->limits.vocab_size);
  const uint32_t *from = *at;
  if (q->kind == TRI_SEQ_FORK)
    from = slots->slots[q->fork_from].params.mask;
  else if (plan->h.mask_words != words)
    return TRI_CORRUPT;
  else
    *at += words;
  if (!from || !slot->mask) return TRI_CORRUPT;
  memcpy(slot->mask, from, words * sizeof *from);
  slot->params.mask = slot->mask;
  return TRI_OK;
}

static tri_status place_blocks(const tri_slots *slots, tri_slot *slot, const tri_plan_seq *q, const int32_t *blocks) {
  int32_t *to = q->kind == TRI_SEQ_SOURCE ? slot->source_blocks : slot->blocks;
  if ((uint64_t)q->first_block + q->num_blocks > (uint64_t)slots->blocks_per_seq) return TRI_CORRUPT;
  for (uint32_t i = 0; i < q->num_blocks; i++) {
    if (blocks[i] < 0 || blocks[i] >= slots->limits.num_blocks) return TRI_CORRUPT;
    to[q->first_block + i] = blocks[i];
  }
  return TRI_OK;
}

/* Forgets the sequence that the slot held. A new life: results of the old sequence that are still under way are then
 * dropped (tri_slot_learn). */
static void clear_slot(tri_slot *s) {
  s->length = s->num_history = 0;
  s->sampled = -1;
  s->life++;
}

/* Blocks are shared, not copied. Where the fork is to write into a shared one, the plan gives it another block in its
 * place and a copy to fill it. */
static void fork_slot(const tri_slots *slots, tri_slot *to, const tri_slot *from) {
  clear_slot(to);
  to->length = from->length;
  to->num_history = from->num_history;
  memcpy(to->history, from->history, (size_t)from->num_history * sizeof *to->history);
  memcpy(to->blocks, from->blocks, (size_t)slots->blocks_per_seq * sizeof *to->blocks);
  if (!slots->limits.has_source) return;
  to->source_len = from->source_len;
  memcpy(to->source_blocks, from->source_blocks, (size_t)slots->blocks_per_seq * sizeof *to->source_blocks);
}

/* A maximum instead of a comparison for each, so that the loop is vector code. */
static bool are_ids(const tri_slots *slots, const uint32_t *ids, int n) {
  uint32_t most = 0;
  for (int i = 0; i < n; i++) most = ids[i] > most ? ids[i] : most;
  return most < (uint32_t)slots->limits.vocab_size;
}

/* The batch's next token. */
static void add_token(const tri_slots *slots, const tri_batch_arrays *a, int t, uint32_t id, int pos,
                      const int32_t *blocks, int rope_len) {
  int block = slots->limits.block_size;
  a->token_ids[t] = id;
  a->positions[t] = pos;
  a->rope_len[t] = rope_len > pos + 1 ? rope_len : pos + 1;
  a->kv_slot[t] = (int64_t)blocks[pos / block] * block + pos % block;
}

/* The sequence whose n tokens have been added. */
static void add_sequence(const tri_slots *slots, const tri_batch_arrays *a, tri_batch *v, int n, int context,
                         const int32_t *blocks) {
  int block = slots->limits.block_size, used = (context + block - 1) / block, at = a->block_start[v->num_seqs];
  memcpy(a->block_table + at, blocks, (size_t)used * sizeof *blocks);
  a->block_start[v->num_seqs + 1] = at + used;
  v->num_tokens += n;
  a->context_len[v->num_seqs++] = context;
  a->seq_start[v->num_seqs] = v->num_tokens;
  if (context > v->max_context) v->max_context = context;
  if (n > v->max_query) v->max_query = n;
  v->num_single += n == 1;
}

/* The sample after a sequence's token i, from the next row of logits. */
static void add_sample(tri_batch_builder *b, const tri_slot *slot, const tri_plan_seq *q, int i, uint32_t target) {
  b->sample_rows[b->num_samples] = b->batch.num_logits;
  b->samples[b->num_samples++] = (tri_sample_row){.slot = q->slot,
                                                  .counter = q->counter,
                                                  .ban = q->flags & TRI_SEQ_FLAG_BAN,
                                                  .life = slot->life,
                                                  .position = slot->length + i + 1,
                                                  .target = target};
}

/* Notes which of a sequence's logits are wanted, and its samples. next: the id after its last token, of a chunk that is
 * scored and not sampled. */
static tri_status add_logits(tri_batch_builder *b, const tri_slots *slots, tri_slot *slot, const tri_plan_seq *q,
                             uint32_t next) {
  tri_batch *v = &b->batch;
  int n = (int)q->num_tokens;
  if (slots->limits.whole_sequences) { /* the last states, which some encoders pool */
    b->rows.logit_rows[v->num_logits++] = v->num_tokens + n - 1;
    return TRI_OK;
  }
  bool sample = q->flags & TRI_SEQ_FLAG_SAMPLE, score = q->flags & TRI_SEQ_FLAG_SCORE;
  bool all = score || q->flags & TRI_SEQ_FLAG_ALL_LOGITS;
  if ((all ? n : sample) > tri_limits_logits(&slots->limits) - v->num_logits) return TRI_CORRUPT;
  if ((score ? n : sample) > slots->limits.max_num_seqs - b->num_samples) return TRI_CORRUPT;
  for (int i = all ? 0 : n - sample; i < n; i++) {
    bool last = i == n - 1;
    if (last && sample) {
      slot->sampled = b->num_samples;
      slot->sampled_in = b->number;
      add_sample(b, slot, q, i, TRI_SAMPLE_NO_TARGET);
    } else if (score) {
      add_sample(b, slot, q, i, last ? next : slot->history[slot->length + i + 1]);
    }
    b->rows.logit_rows[v->num_logits++] = v->num_tokens + i;
  }
  return TRI_OK;
}

/* Appends an entry's tokens: to the slot's history, to the batch, and their logits and samples. A decode step whose
 * token is not there yet (the step before it is still under way) gets TRI_SAMPLED_ID and the sample's number:
 * embedding looks it up on the device. */
static tri_status add_tokens(tri_batch_builder *b, const tri_slots *slots, tri_slot *slot, const tri_plan_seq *q,
                             const uint32_t **ids) {
  tri_batch *v = &b->batch;
  int n = (int)q->num_tokens;
  bool whole = q->kind == TRI_SEQ_CHUNK && q->flags & TRI_SEQ_FLAG_FIRST &&
               !(q->flags & (TRI_SEQ_FLAG_SAMPLE | TRI_SEQ_FLAG_ALL_LOGITS | TRI_SEQ_FLAG_SCORE));
  if (slots->limits.whole_sequences && !whole) return TRI_CORRUPT;
  if (slots->limits.has_source && !slot->source_len) return TRI_CORRUPT;
  if (q->second_start && (slots->limits.num_types < 2 || q->second_start > INT32_MAX)) return TRI_CORRUPT;
  if (n < 1 || (int)q->start != slot->length || n > slots->limits.max_model_len - slot->length) return TRI_CORRUPT;
  bool given = q->kind == TRI_SEQ_CHUNK || !(q->flags & TRI_SEQ_FLAG_TOKEN_IN_SLOT);
  uint32_t num_ids = tri_plan_num_ids(q), next = TRI_SAMPLE_NO_TARGET;
  if (given) {
    if (!are_ids(slots, *ids, (int)num_ids)) return TRI_CORRUPT;
    memcpy(slot->history + slot->length, *ids, (size_t)n * sizeof **ids);
    if (num_ids > q->num_tokens) next = (*ids)[n];
    *ids += num_ids;
    if (slot->num_history < slot->length + n) slot->num_history = slot->length + n;
  } else if (slot->num_history < slot->length + n) {
    if (slot->sampled < 0 || slot->sampled_in != b->number - 1 || n != 1) return TRI_CORRUPT;
    slot->history[slot->length] = TRI_SAMPLED_ID | (uint32_t)slot->sampled;
  }
  for (int i = 0; i < n; i++) {
    int pos = slot->length + i;
    add_token(slots, &b->rows, v->num_tokens + i, slot->history[pos], pos, slot->blocks, (int)q->rope_len);
    b->rows.types[v->num_tokens + i] = q->second_start && pos + 1 >= (int)q->second_start;
  }
  slot->sampled = -1;
  TRI_CHECK(add_logits(b, slots, slot, q, next));
  slot->length += n;
  add_sequence(slots, &b->rows, v, n, slot->length, slot->blocks);
  if (slots->limits.has_source)
    add_sequence(slots, &b->cross_rows, &b->cross, n, slot->source_len, slot->source_blocks);
  return TRI_OK;
}

/* A source replaces what the slot held. */
static tri_status add_source(tri_batch_builder *b, const tri_slots *slots, tri_slot *slot, const tri_plan_seq *q,
                             const uint32_t **ids) {
  tri_batch *v = &b->source;
  int n = (int)q->num_tokens;
  if (n < 1 || n > slots->limits.max_model_len || v->num_seqs >= slots->limits.max_num_seqs) return TRI_CORRUPT;
  if (!are_ids(slots, *ids, n)) return TRI_CORRUPT;
  for (int i = 0; i < n; i++)
    add_token(slots, &b->source_rows, v->num_tokens + i, (*ids)[i], i, slot->source_blocks, 0);
  *ids += n;
  clear_slot(slot);
  slot->source_len = n;
  add_sequence(slots, &b->source_rows, v, n, n, slot->source_blocks);
  return TRI_OK;
}

/* A sequence is swapped in with its keys and values: it replaces what the slot held. */
static tri_status resume(const tri_slots *slots, tri_slot *slot, const tri_plan_seq *q, const uint32_t **ids) {
  int n = (int)q->num_tokens, block = slots->limits.block_size;
  if (slots->limits.whole_sequences || slots->limits.has_source) return TRI_CORRUPT;
  if (n < 1 || n >= slots->limits.max_model_len || !are_ids(slots, *ids, n)) return TRI_CORRUPT;
  if (q->first_block || (int)q->num_blocks != (n + block - 1) / block) return TRI_CORRUPT;
  clear_slot(slot);
  memcpy(slot->history, *ids, (size_t)n * sizeof **ids);
  *ids += n;
  slot->length = slot->num_history = n;
  return TRI_OK;
}

static void clear(tri_batch *v) {
  v->num_tokens = v->num_seqs = v->num_logits = v->max_context = v->max_query = v->num_single = 0;
}

/* The other data-parallel ranks run the step for what the plan's header says of this one, too. */
static bool is_as_told(const tri_batch *b, int longest) {
  return !longest || (b->max_query <= 1 && b->num_logits == b->num_tokens && b->max_context <= longest);
}

/* How far a plan's arrays have been read. */
struct reading {
  const uint32_t *ids;
  const int32_t *blocks;
  const uint32_t *masks;
  const char *params, *params_end;
};

/* Each section of the plan has a cursor in `at`, which moves by what the entry takes of it. */
static tri_status add_entry(tri_batch_builder *b, tri_slots *slots, const tri_plan_view *plan, const tri_plan_seq *q,
                            struct reading *at) {
  if (q->slot >= (uint32_t)slots->limits.max_num_seqs || q->fork_from >= (uint32_t)slots->limits.max_num_seqs)
    return TRI_CORRUPT;
  tri_slot *slot = &slots->slots[q->slot];
  if (q->flags & TRI_SEQ_FLAG_FIRST) clear_slot(slot);
  if (q->kind == TRI_SEQ_FORK && (q->fork_from == q->slot || slots->limits.whole_sequences)) return TRI_CORRUPT;
  if (q->kind == TRI_SEQ_SOURCE && !slots->limits.has_source) return TRI_CORRUPT;
  if (q->kind == TRI_SEQ_FORK) fork_slot(slots, slot, &slots->slots[q->fork_from]);
  TRI_CHECK(place_blocks(slots, slot, q, at->blocks));
  at->blocks += q->num_blocks;
  if (q->flags & TRI_SEQ_FLAG_PARAMS) TRI_CHECK(read_params(slot, &at->params, at->params_end));
  if (q->flags & TRI_SEQ_FLAG_MASK) TRI_CHECK(set_mask(slots, slot, q, plan, &at->masks));
  if (q->kind == TRI_SEQ_FORK) return TRI_OK;
  if (q->kind == TRI_SEQ_SOURCE) return add_source(b, slots, slot, q, &at->ids);
  if (q->kind == TRI_SEQ_RESUME) return resume(slots, slot, q, &at->ids);
  if (b->batch.num_seqs >= slots->limits.max_num_seqs) return TRI_CORRUPT;
  return add_tokens(b, slots, slot, q, &at->ids);
}

static bool are_swaps(const tri_limits *l, const int32_t *pairs, int n) {
  for (int i = 0; i < n; i++) {
    int32_t block = pairs[2 * i], host = pairs[2 * i + 1];
    if (block < 0 || block >= l->num_blocks || host < 0 || host >= l->num_host_blocks) return false;
  }
  return true;
}

tri_status tri_batch_build(tri_batch_builder *b, tri_slots *slots, const tri_plan_view *plan) {
  struct reading at = {plan->ids, plan->blocks, plan->masks, plan->params, plan->params + plan->h.params_bytes};
  clear(&b->batch);
  clear(&b->source);
  clear(&b->cross);
  b->num_samples = 0;
  b->number++;
  b->copies = plan->copies;
  b->num_copies = (int)plan->h.num_copies;
  b->swaps_out = plan->swaps_out;
  b->num_swaps_out = (int)plan->h.num_swaps_out;
  b->swaps_in = plan->swaps_in;
  b->num_swaps_in = (int)plan->h.num_swaps_in;
  b->dp_rank_tokens = plan->dp_rank_tokens;
  b->num_dp_ranks = (int)plan->h.num_dp_ranks;
  b->longest = (int)plan->h.longest;
  if (plan->h.num_tokens > (uint32_t)slots->limits.max_num_batched_tokens ||
      plan->h.num_seqs > tri_plan_entries(slots->limits.max_num_seqs) ||
      plan->h.longest > (uint32_t)slots->limits.max_model_len)
    return TRI_CORRUPT;
  for (int i = 0; i < 2 * b->num_copies; i++)
    if (plan->copies[i] < 0 || plan->copies[i] >= slots->limits.num_blocks) return TRI_CORRUPT;
  if (!are_swaps(&slots->limits, b->swaps_out, b->num_swaps_out) ||
      !are_swaps(&slots->limits, b->swaps_in, b->num_swaps_in))
    return TRI_CORRUPT;
  for (uint32_t i = 0; i < plan->h.num_seqs; i++) TRI_CHECK(add_entry(b, slots, plan, &plan->seqs[i], &at));
  return is_as_told(&b->batch, b->longest) ? TRI_OK : TRI_CORRUPT;
}

/* Row i of a sequence that does not exist, which changes nothing: it writes no keys (kv_slot -1), and attends to one
 * key of block 0. */
static void put_nobody(const tri_batch_arrays *a, int i) {
  a->token_ids[i] = 0;
  a->positions[i] = a->types[i] = 0;
  a->rope_len[i] = a->context_len[i] = 1;
  a->kv_slot[i] = -1;
  a->seq_start[i + 1] = i + 1;
  a->logit_rows[i] = i;
  a->block_table[a->block_start[i]] = 0;
  a->block_start[i + 1] = a->block_start[i] + 1;
}

void tri_batch_idle(const tri_batch_builder *b, tri_batch *out) {
  put_nobody(&b->rows, 0);
  *out = b->batch;
  out->num_tokens = out->num_seqs = out->num_single = out->max_query = out->max_context = 1;
}

int tri_batch_padded_rows(const tri_limits *limits, int n) {
  int rows = tri_batch_rows(n), most = limits->max_num_seqs;
  if (limits->max_num_batched_tokens < most) most = limits->max_num_batched_tokens;
  if (rows > most) rows = most;
  return rows < n ? n : rows;
}

void tri_batch_pad(const tri_batch_builder *b, int rows, tri_batch *out) {
  for (int i = b->batch.num_tokens; i < rows; i++) put_nobody(&b->rows, i);
  *out = b->batch;
  out->num_tokens = out->num_seqs = out->num_logits = out->num_single = rows;
  out->max_query = 1;
  if (!out->max_context) out->max_context = 1;
}

void tri_batch_pad_logits(const tri_batch_builder *b, const tri_limits *limits, tri_batch *out) {
  int n = b->batch.num_logits, rows = tri_batch_padded_rows(limits, n);
  *out = b->batch;
  if (!n || rows >= b->batch.num_tokens) return;
  for (int i = n; i < rows; i++) b->rows.logit_rows[i] = b->rows.logit_rows[n - 1];
  out->num_logits = rows;
}

void tri_batch_largest(const tri_batch_builder *b, const tri_limits *limits, tri_batch *out) {
  int seqs = limits->max_num_seqs, tokens = limits->max_num_batched_tokens, rows = seqs < tokens ? seqs : tokens;
  int blocks = (limits->max_model_len + limits->block_size - 1) / limits->block_size;
  for (int i = 0; i < rows; i++) put_nobody(&b->rows, i);
  b->rows.block_start[rows] = rows * blocks;
  *out = b->batch;
  out->num_tokens = out->num_seqs = out->num_logits = out->num_single = rows;
  out->max_query = out->max_context = 1;
}

static int at_least(int a, int b) { return a > b ? a : b; }
static int at_most(int a, int b) { return a < b ? a : b; }

/* Tokens first .. end - 1, of which the first is of sequence *seq, or of one after it: that of the last one,
 * afterwards. starts, contexts: where this chunk's begin.
 *
 * Views of the batch's arrays from `first` on, with starts and contexts of its own: a sequence that is cut in two has,
 * in its first part, the context up to the cut. */
static tri_batch cut_one(const tri_batch *from, int first, int end, int *seq, int32_t *starts, int32_t *contexts) {
  tri_batch c = *from;
  c.is_chunk = true;
  while (from->seq_start[*seq + 1] <= first) ++*seq;
  c.token_ids += first;
  c.positions += first;
  c.types += first;
  c.rope_len += first;
  c.kv_slot += first;
  c.block_start += *seq;
  c.seq_start = starts;
  c.context_len = contexts;
  c.num_tokens = end - first;
  c.num_seqs = c.num_logits = c.max_context = c.max_query = c.num_single = 0;
  for (; *seq < from->num_seqs && from->seq_start[*seq] < end; ++*seq) {
    int begin = at_least(from->seq_start[*seq], first), stop = at_most(from->seq_start[*seq + 1], end);
    int context = from->context_len[*seq] - (from->seq_start[*seq + 1] - stop);
    starts[c.num_seqs] = begin - first;
    contexts[c.num_seqs++] = context;
    c.max_context = at_least(c.max_context, context);
    c.max_query = at_least(c.max_query, stop - begin);
    c.num_single += stop - begin == 1;
  }
  starts[c.num_seqs] = c.num_tokens;
  --*seq;
  return c;
}

int tri_batch_cut(const tri_batch_builder *b, const tri_batch *from, int rows, tri_batch *out) {
  int n = 0, seq = 0, used = 0;
  for (int first = 0; first < from->num_tokens; first += rows) {
    int end = at_most(first + rows, from->num_tokens);
    out[n] = cut_one(from, first, end, &seq, b->rows.chunk_start + used, b->rows.chunk_context + used);
    /* A chunk has one start more than sequences: the end of the last one. */
    used += out[n++].num_seqs + 1;
  }
  return n;
}
