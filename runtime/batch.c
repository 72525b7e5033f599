#include "runtime/batch.h"

#include <string.h>

#include "runtime/base/mem.h"

tri_status tri_slots_create(const tri_limits *limits, tri_slots **out) {
  tri_slots *s = tri_calloc(1, sizeof *s);
  if (!s) return TRI_NO_MEMORY;
  size_t n = (size_t)limits->max_num_seqs, history = (size_t)limits->max_model_len + 1;
  s->limits = *limits;
  s->pages_per_seq = (limits->max_model_len + limits->block_size - 1) / limits->block_size;
  s->slots = tri_calloc(n, sizeof *s->slots);
  s->history = tri_calloc(n * history, sizeof *s->history);
  s->pages = tri_calloc(n * (size_t)s->pages_per_seq, sizeof *s->pages);
  if (!s->slots || !s->history || !s->pages) {
    tri_slots_destroy(s);
    return TRI_NO_MEMORY;
  }
  for (size_t i = 0; i < n; i++) {
    s->slots[i].history = s->history + i * history;
    s->slots[i].pages = s->pages + i * (size_t)s->pages_per_seq;
  }
  *out = s;
  return TRI_OK;
}

void tri_slots_destroy(tri_slots *s) {
  if (!s) return;
  tri_free(s->slots), tri_free(s->history), tri_free(s->pages);
  tri_free(s);
}

tri_status tri_batch_builder_create(const tri_limits *l, tri_batch_builder **out) {
  tri_batch_builder *b = tri_calloc(1, sizeof *b);
  if (!b) return TRI_NO_MEMORY;
  size_t t = (size_t)l->max_num_batched_tokens, s = (size_t)l->max_num_seqs;
  size_t stride = (size_t)((l->max_model_len + l->block_size - 1) / l->block_size);
  b->token_ids = tri_calloc(t, sizeof *b->token_ids);
  b->positions = tri_calloc(t, sizeof *b->positions);
  b->rope_len = tri_calloc(t, sizeof *b->rope_len);
  b->kv_slot = tri_calloc(t, sizeof *b->kv_slot);
  b->logit_rows = tri_calloc(t, sizeof *b->logit_rows);
  b->seq_start = tri_calloc(s + 1, sizeof *b->seq_start);
  b->context_len = tri_calloc(s, sizeof *b->context_len);
  b->block_table = tri_calloc(s * stride, sizeof *b->block_table);
  b->draws = tri_calloc(s, sizeof *b->draws);
  b->draw_rows = tri_calloc(s, sizeof *b->draw_rows);
  if (!b->token_ids || !b->positions || !b->rope_len || !b->kv_slot || !b->logit_rows || !b->seq_start ||
      !b->context_len || !b->block_table || !b->draws || !b->draw_rows) {
    tri_batch_builder_destroy(b);
    return TRI_NO_MEMORY;
  }
  b->batch = (tri_batch){
      .block_table_stride = (int)stride,
      .token_ids = b->token_ids,
      .positions = b->positions,
      .rope_len = b->rope_len,
      .kv_slot = b->kv_slot,
      .seq_start = b->seq_start,
      .context_len = b->context_len,
      .block_table = b->block_table,
      .logit_rows = b->logit_rows,
  };
  *out = b;
  return TRI_OK;
}

void tri_batch_builder_destroy(tri_batch_builder *b) {
  if (!b) return;
  tri_free(b->token_ids), tri_free(b->positions), tri_free(b->rope_len), tri_free(b->kv_slot), tri_free(b->logit_rows);
  tri_free(b->seq_start), tri_free(b->context_len), tri_free(b->block_table), tri_free(b->draws),
      tri_free(b->draw_rows);
  tri_free(b);
}

void tri_slot_push(tri_slots *slots, uint32_t slot, uint32_t token) {
  tri_slot *s = &slots->slots[slot];
  if (s->num_history <= slots->limits.max_model_len) s->history[s->num_history++] = token;
}

/* Reads the parameter block at *at and moves past it. */
static tri_status read_params(tri_slot *slot, const char **at, const char *end) {
  tri_plan_params p;
  if ((size_t)(end - *at) < sizeof p) return TRI_CORRUPT;
  memcpy(&p, *at, sizeof p);
  *at += sizeof p;
  size_t bias = (size_t)p.num_logit_bias * sizeof *slot->bias, banned = (size_t)p.num_banned * sizeof *slot->banned;
  if (p.num_prompt > INT32_MAX || p.num_logit_bias > TRI_MAX_LOGIT_BIAS || p.num_banned > TRI_MAX_BANNED ||
      (size_t)(end - *at) < bias + banned)
    return TRI_CORRUPT;
  memcpy(slot->bias, *at, bias), *at += bias;
  memcpy(slot->banned, *at, banned), *at += banned;
  slot->num_prompt = (int)p.num_prompt;
  slot->params = (tri_sample_params){
      .temperature = p.temperature,
      .top_p = p.top_p,
      .min_p = p.min_p,
      .top_k = p.top_k,
      .repetition_penalty = p.repetition_penalty,
      .presence_penalty = p.presence_penalty,
      .frequency_penalty = p.frequency_penalty,
      .seed = p.seed,
      .num_logprobs = p.num_logprobs,
      .logit_bias = slot->bias,
      .num_logit_bias = (int)p.num_logit_bias,
      .banned = slot->banned,
      .num_banned = (int)p.num_banned,
  };
  return TRI_OK;
}

static tri_status place_pages(const tri_slots *slots, tri_slot *slot, const tri_plan_seq *q, const int32_t *pages) {
  if ((uint64_t)q->first_page + q->num_pages > (uint64_t)slots->pages_per_seq) return TRI_CORRUPT;
  for (uint32_t i = 0; i < q->num_pages; i++) {
    if (pages[i] < 0 || pages[i] >= slots->limits.num_pages) return TRI_CORRUPT;
    slot->pages[q->first_page + i] = pages[i];
  }
  return TRI_OK;
}

static void fork_slot(const tri_slots *slots, tri_slot *to, const tri_slot *from) {
  to->length = from->length;
  to->num_history = from->num_history;
  memcpy(to->history, from->history, (size_t)from->num_history * sizeof *to->history);
  memcpy(to->pages, from->pages, (size_t)slots->pages_per_seq * sizeof *to->pages);
}

static tri_status add_tokens(tri_batch_builder *b, const tri_slots *slots, tri_slot *slot, const tri_plan_seq *q,
                             const uint32_t **ids) {
  tri_batch *v = &b->batch;
  int n = (int)q->num_tokens, block = slots->limits.block_size;
  bool whole =
      q->kind == TRI_SEQ_CHUNK && q->flags & TRI_SEQ_FIRST && !(q->flags & (TRI_SEQ_SAMPLE | TRI_SEQ_ALL_LOGITS));
  if (slots->limits.whole_sequences && !whole) return TRI_CORRUPT;
  if (n < 1 || (int)q->start != slot->length || n > slots->limits.max_model_len - slot->length) return TRI_CORRUPT;
  if (q->kind == TRI_SEQ_CHUNK || !(q->flags & TRI_SEQ_TOKEN_IN_SLOT)) {
    memcpy(slot->history + slot->length, *ids, (size_t)n * sizeof **ids);
    *ids += n;
    if (slot->num_history < slot->length + n) slot->num_history = slot->length + n;
  } else if (slot->num_history < slot->length + n) {
    return TRI_CORRUPT;
  }
  for (int i = 0; i < n; i++) {
    int t = v->num_tokens + i, pos = slot->length + i;
    uint32_t id = slot->history[pos];
    if (id >= (uint32_t)slots->limits.vocab_size) return TRI_CORRUPT;
    b->token_ids[t] = id;
    b->positions[t] = pos;
    b->rope_len[t] = (int32_t)q->rope_len > pos + 1 ? (int32_t)q->rope_len : pos + 1;
    b->kv_slot[t] = (int64_t)slot->pages[pos / block] * block + pos % block;
  }
  bool sample = q->flags & TRI_SEQ_SAMPLE, all = q->flags & TRI_SEQ_ALL_LOGITS;
  if (v->num_logits + (all ? n : sample) > tri_limits_logits(&slots->limits)) return TRI_CORRUPT;
  for (int i = sample || all ? (all ? 0 : n - 1) : n; i < n; i++) b->logit_rows[v->num_logits++] = v->num_tokens + i;
  if (sample) {
    b->draw_rows[b->num_draws] = v->num_logits - 1;
    b->draws[b->num_draws++] = (tri_draw){q->slot, q->counter, q->flags & TRI_SEQ_BAN};
  }
  slot->length += n;
  memcpy(b->block_table + (size_t)v->num_seqs * (size_t)v->block_table_stride, slot->pages,
         (size_t)slots->pages_per_seq * sizeof *slot->pages);
  v->num_tokens += n;
  b->context_len[v->num_seqs++] = slot->length;
  b->seq_start[v->num_seqs] = v->num_tokens;
  if (slot->length > v->max_context) v->max_context = slot->length;
  if (n > v->max_query) v->max_query = n;
  return TRI_OK;
}

tri_status tri_batch_build(tri_batch_builder *b, tri_slots *slots, const tri_plan_view *plan) {
  tri_batch *v = &b->batch;
  const uint32_t *ids = plan->ids;
  const int32_t *pages = plan->pages;
  const char *params = plan->params, *params_end = params + plan->h.params_bytes;
  v->num_tokens = v->num_seqs = v->num_logits = v->max_context = v->max_query = 0;
  b->num_draws = 0;
  b->seq_start[0] = 0;
  b->copies = plan->copies;
  b->num_copies = (int)plan->h.num_copies;
  if (plan->h.num_tokens > (uint32_t)slots->limits.max_num_batched_tokens ||
      plan->h.num_seqs > 2 * (uint32_t)slots->limits.max_num_seqs)
    return TRI_CORRUPT;
  for (int i = 0; i < 2 * b->num_copies; i++)
    if (plan->copies[i] < 0 || plan->copies[i] >= slots->limits.num_pages) return TRI_CORRUPT;
  for (uint32_t i = 0; i < plan->h.num_seqs; i++) {
    const tri_plan_seq *q = &plan->seqs[i];
    tri_status st = TRI_OK;
    if (q->slot >= (uint32_t)slots->limits.max_num_seqs || q->source_slot >= (uint32_t)slots->limits.max_num_seqs)
      return TRI_CORRUPT;
    tri_slot *slot = &slots->slots[q->slot];
    if (q->flags & TRI_SEQ_FIRST) slot->length = slot->num_history = 0;
    if (q->kind == TRI_SEQ_FORK && (q->source_slot == q->slot || slots->limits.whole_sequences)) return TRI_CORRUPT;
    if (q->kind == TRI_SEQ_FORK) fork_slot(slots, slot, &slots->slots[q->source_slot]);
    st = place_pages(slots, slot, q, pages);
    pages += q->num_pages;
    if (st == TRI_OK && q->flags & TRI_SEQ_PARAMS) st = read_params(slot, &params, params_end);
    if (st == TRI_OK && q->kind != TRI_SEQ_FORK) {
      if (v->num_seqs >= slots->limits.max_num_seqs) return TRI_CORRUPT;
      st = add_tokens(b, slots, slot, q, &ids);
    }
    if (st != TRI_OK) return st;
  }
  return TRI_OK;
}
