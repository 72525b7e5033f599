/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/step/step_plan.h"

#include <string.h>

#include "base/mem.h"

enum { MOST_MASK_WORDS = 1 << 26 }; /* of ids of 31 bits */

/* Room for parameters is that of as many small ones as there are entries, and a few of the largest kind:
 * tri_plan_has_room always keeps the largest free, and an entry without room waits for the next step. */
tri_status tri_plan_writer_create(const tri_plan_sizes *most, tri_plan_writer **out) {
  tri_plan_writer *w = tri_calloc(1, sizeof *w);
  if (!w) return TRI_NO_MEMORY;
  w->max_seqs = most->seqs;
  w->max_ids = most->ids;
  w->max_blocks = most->blocks;
  w->max_copies = most->seqs;
  w->max_swaps = most->swaps;
  w->max_masks = most->masks;
  w->mask_words = most->mask_words;
  w->max_params = most->seqs * (sizeof(tri_plan_params) + 64) +
                  4 * (sizeof(tri_plan_params) + TRI_MAX_LOGIT_BIAS * sizeof(tri_logit_bias) + TRI_MAX_BANNED * 4);
  w->cap = sizeof w->h + most->seqs * sizeof *w->seqs + most->ids * 4 + most->blocks * 4 + w->max_copies * 8 +
           2 * most->swaps * 8 + most->masks * most->mask_words * 4 + w->max_params + sizeof w->dp_rank_tokens;
  w->seqs = tri_calloc(most->seqs, sizeof *w->seqs);
  w->ids = tri_calloc(most->ids, sizeof *w->ids);
  w->blocks = tri_calloc(most->blocks, sizeof *w->blocks);
  w->copies = tri_calloc(w->max_copies, 2 * sizeof *w->copies);
  w->swaps_out = tri_calloc(most->swaps + 1, 2 * sizeof *w->swaps_out);
  w->swaps_in = tri_calloc(most->swaps + 1, 2 * sizeof *w->swaps_in);
  w->masks = tri_calloc(most->masks * most->mask_words + 1, sizeof *w->masks);
  w->params = tri_calloc(w->max_params, 1);
  w->bytes = tri_calloc(w->cap, 1);
  if (!w->seqs || !w->ids || !w->blocks || !w->copies || !w->swaps_out || !w->swaps_in || !w->masks || !w->params ||
      !w->bytes) {
    tri_plan_writer_destroy(w);
    return TRI_NO_MEMORY;
  }
  *out = w;
  return TRI_OK;
}

void tri_plan_writer_destroy(tri_plan_writer *w) {
  if (!w) return;
  tri_free(w->seqs);
  tri_free(w->ids);
  tri_free(w->blocks);
  tri_free(w->copies);
  tri_free(w->swaps_out);
  tri_free(w->swaps_in);
  tri_free(w->masks);
  tri_free(w->params);
  tri_free(w->bytes);
  tri_free(w);
}

void tri_plan_begin(tri_plan_writer *w, uint32_t micro_batch, uint64_t step) {
  w->h = (tri_plan_header){.magic = TRI_PLAN_MAGIC, .micro_batch = micro_batch, .step = step};
}

bool tri_plan_has_room(const tri_plan_writer *w, size_t ids, size_t blocks, size_t copies) {
  size_t largest_params = sizeof(tri_plan_params) + TRI_MAX_LOGIT_BIAS * sizeof(tri_logit_bias) + TRI_MAX_BANNED * 4;
  return w->h.num_seqs < w->max_seqs && w->max_ids - w->h.num_ids >= ids && w->max_blocks - w->h.num_blocks >= blocks &&
         w->max_copies - w->h.num_copies >= copies && w->max_params - w->h.params_bytes >= largest_params;
}

bool tri_plan_has_mask_room(const tri_plan_writer *w) { return w->h.num_masks < w->max_masks; }

size_t tri_plan_params_bytes(const tri_sample_params *p) {
  return sizeof(tri_plan_params) + (size_t)p->num_logit_bias * sizeof *p->logit_bias +
         (size_t)p->num_banned * sizeof *p->banned;
}

static void put(tri_plan_writer *w, const void *p, size_t n) {
  if (n) memcpy(w->params + w->h.params_bytes, p, n);
  w->h.params_bytes += (uint32_t)n;
}

/* The others change a slot alone. */
static bool has_tokens(const tri_plan_seq *s) { return s->kind != TRI_SEQ_FORK && s->kind != TRI_SEQ_RESUME; }

/* A fork's tokens are in the history that it copies, and a decode's may be in the slot. A chunk that is scored and not
 * sampled also brings the token that its last one is scored for. */
uint32_t tri_plan_num_ids(const tri_plan_seq *s) {
  bool decode = s->kind == TRI_SEQ_DECODE;
  if (s->kind == TRI_SEQ_FORK || (decode && s->flags & TRI_SEQ_FLAG_TOKEN_IN_SLOT)) return 0;
  bool one_more = s->flags & TRI_SEQ_FLAG_SCORE && !(s->flags & TRI_SEQ_FLAG_SAMPLE);
  return s->num_tokens + one_more;
}

void tri_plan_add(tri_plan_writer *w, const tri_plan_seq *seq, const uint32_t *ids, const int32_t *blocks,
                  const tri_sample_params *params, uint32_t num_prompt) {
  w->seqs[w->h.num_seqs++] = *seq;
  if (has_tokens(seq)) w->h.num_tokens += seq->num_tokens;
  uint32_t num_ids = tri_plan_num_ids(seq);
  if (num_ids) memcpy(w->ids + w->h.num_ids, ids, num_ids * sizeof *ids);
  w->h.num_ids += num_ids;
  if (seq->num_blocks) memcpy(w->blocks + w->h.num_blocks, blocks, seq->num_blocks * sizeof *blocks);
  w->h.num_blocks += seq->num_blocks;
  if (tri_plan_brings_mask(seq)) {
    memcpy(w->masks + w->h.num_masks++ * w->mask_words, params->mask, w->mask_words * sizeof *w->masks);
    w->h.mask_words = (uint32_t)w->mask_words;
  }
  if (!(seq->flags & TRI_SEQ_FLAG_PARAMS)) return;
  tri_plan_params p = {.sample = *params, .num_prompt = num_prompt};
  p.sample.logit_bias = NULL;
  p.sample.banned = NULL;
  p.sample.mask = NULL;
  put(w, &p, sizeof p);
  put(w, params->logit_bias, (size_t)params->num_logit_bias * sizeof *params->logit_bias);
  put(w, params->banned, (size_t)params->num_banned * sizeof *params->banned);
  w->h.num_params++;
}

void tri_plan_add_copy(tri_plan_writer *w, int32_t src, int32_t dst) {
  w->copies[2 * w->h.num_copies] = src;
  w->copies[2 * w->h.num_copies + 1] = dst;
  w->h.num_copies++;
}

static void add_pair(int32_t *pairs, uint32_t *n, int32_t block, int32_t host_block) {
  pairs[2 * *n] = block;
  pairs[2 * *n + 1] = host_block;
  ++*n;
}

void tri_plan_add_swap_out(tri_plan_writer *w, int32_t block, int32_t host_block) {
  add_pair(w->swaps_out, &w->h.num_swaps_out, block, host_block);
}

void tri_plan_add_swap_in(tri_plan_writer *w, int32_t block, int32_t host_block) {
  add_pair(w->swaps_in, &w->h.num_swaps_in, block, host_block);
}

uint32_t tri_plan_longest(const tri_plan_writer *w) {
  uint32_t longest = 1;
  for (uint32_t i = 0; i < w->h.num_seqs; i++) {
    const tri_plan_seq *s = &w->seqs[i];
    if (!has_tokens(s)) continue;
    if (s->kind == TRI_SEQ_SOURCE || s->num_tokens != 1) return 0;
    if (!(s->flags & (TRI_SEQ_FLAG_SAMPLE | TRI_SEQ_FLAG_ALL_LOGITS | TRI_SEQ_FLAG_SCORE))) return 0;
    if (s->start + 1 > longest) longest = s->start + 1;
  }
  return longest;
}

/* A recorded step is replayed by all data-parallel ranks or by none: one rank whose step cannot be one makes `longest`
 * 0 for all. */
void tri_plan_set_dp_ranks(tri_plan_writer *w, const uint32_t *tokens, const uint32_t *longest, uint32_t num_dp_ranks) {
  bool all = true;
  memcpy(w->dp_rank_tokens, tokens, num_dp_ranks * sizeof *tokens);
  w->h.num_dp_ranks = num_dp_ranks;
  w->h.longest = 0;
  for (uint32_t d = 0; d < num_dp_ranks; d++) {
    all &= longest[d] > 0;
    if (longest[d] > w->h.longest) w->h.longest = longest[d];
  }
  if (!all) w->h.longest = 0;
}

/* Sections follow each other without gaps, in the order in which tri_plan_read takes them. */
const void *tri_plan_finish(tri_plan_writer *w, size_t *bytes) {
  char *at = w->bytes;
  const struct {
    const void *p;
    size_t n;
  } parts[] = {
      {&w->h, sizeof w->h},
      {w->seqs, w->h.num_seqs * sizeof *w->seqs},
      {w->ids, w->h.num_ids * sizeof *w->ids},
      {w->blocks, w->h.num_blocks * sizeof *w->blocks},
      {w->copies, w->h.num_copies * 2 * sizeof *w->copies},
      {w->swaps_out, w->h.num_swaps_out * 2 * sizeof *w->swaps_out},
      {w->swaps_in, w->h.num_swaps_in * 2 * sizeof *w->swaps_in},
      {w->dp_rank_tokens, w->h.num_dp_ranks * sizeof *w->dp_rank_tokens},
      {w->masks, w->h.num_masks * w->mask_words * sizeof *w->masks},
      {w->params, w->h.params_bytes},
  };
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
    memcpy(at, parts[i].p, parts[i].n);
    at += parts[i].n;
  }
  *bytes = (size_t)(at - w->bytes);
  return w->bytes;
}

size_t tri_plan_max_bytes(const tri_plan_writer *w) { return w->cap; }

/* Returns the bytes at *at and passes over them. */
static const void *take(const char **at, size_t bytes) {
  const void *p = *at;
  *at += bytes;
  return p;
}

/* Counts are multiplied in 64 bits and must come to len exactly; then the entries' own counts must come to the
 * header's. So a reader that goes through the entries stays inside of the arrays. */
tri_status tri_plan_read(const void *bytes, size_t len, tri_plan_view *out) {
  tri_plan_view v;
  const char *at = bytes;
  if (len < sizeof v.h) return TRI_CORRUPT;
  memcpy(&v.h, at, sizeof v.h);
  uint64_t need = sizeof v.h + (uint64_t)v.h.num_seqs * sizeof *v.seqs + (uint64_t)v.h.num_ids * 4 +
                  (uint64_t)v.h.num_blocks * 4 + (uint64_t)v.h.num_copies * 8 + (uint64_t)v.h.num_swaps_out * 8 +
                  (uint64_t)v.h.num_swaps_in * 8 + (uint64_t)v.h.num_dp_ranks * 4 + v.h.params_bytes;
  if (v.h.mask_words > MOST_MASK_WORDS || !v.h.num_masks != !v.h.mask_words) return TRI_CORRUPT;
  need += (uint64_t)v.h.num_masks * v.h.mask_words * 4;
  if (v.h.magic != TRI_PLAN_MAGIC || need != len || v.h.num_dp_ranks > TRI_MAX_DP_RANKS || v.h.kind >= TRI_PLAN_KINDS)
    return TRI_CORRUPT;
  if (v.h.longest && !v.h.num_dp_ranks) return TRI_CORRUPT;
  at += sizeof v.h;
  v.seqs = take(&at, v.h.num_seqs * sizeof *v.seqs);
  v.ids = take(&at, v.h.num_ids * sizeof *v.ids);
  v.blocks = take(&at, v.h.num_blocks * sizeof *v.blocks);
  v.copies = take(&at, v.h.num_copies * 2 * sizeof *v.copies);
  v.swaps_out = take(&at, v.h.num_swaps_out * 2 * sizeof *v.swaps_out);
  v.swaps_in = take(&at, v.h.num_swaps_in * 2 * sizeof *v.swaps_in);
  v.dp_rank_tokens = take(&at, v.h.num_dp_ranks * sizeof *v.dp_rank_tokens);
  v.masks = take(&at, (size_t)v.h.num_masks * v.h.mask_words * sizeof *v.masks);
  v.params = at;
  uint64_t ids = 0, blocks = 0, tokens = 0, params = 0, masks = 0;
  for (uint32_t i = 0; i < v.h.num_seqs; i++) {
    const tri_plan_seq *s = &v.seqs[i];
    if (s->kind > TRI_SEQ_RESUME) return TRI_CORRUPT;
    blocks += s->num_blocks;
    params += !!(s->flags & TRI_SEQ_FLAG_PARAMS);
    masks += tri_plan_brings_mask(s);
    if (s->flags & TRI_SEQ_FLAG_SCORE && (s->kind != TRI_SEQ_CHUNK || s->num_tokens == UINT32_MAX)) return TRI_CORRUPT;
    if (has_tokens(s)) tokens += s->num_tokens;
    ids += tri_plan_num_ids(s);
  }
  if (ids != v.h.num_ids || blocks != v.h.num_blocks || tokens != v.h.num_tokens || params != v.h.num_params ||
      masks != v.h.num_masks)
    return TRI_CORRUPT;
  *out = v;
  return TRI_OK;
}

/* A result's bytes: packed_header, then for each token packed_token, num_top ids and as many logprobs. */
struct packed_token {
  uint32_t slot, scored, token;
  float logprob;
  uint32_t num_top; /* and IS_BROKEN */
};
#define IS_BROKEN (1u << 31)

struct packed_header {
  uint64_t step;
  uint32_t micro_batch, num_tokens;
};

size_t tri_result_max_bytes(size_t max_tokens) {
  return sizeof(struct packed_header) + max_tokens * (sizeof(struct packed_token) + TRI_MAX_LOGPROBS * 8);
}

/* Returns the end of the bytes that it puts at `at`. */
static char *give(char *at, const void *from, size_t bytes) {
  memcpy(at, from, bytes);
  return at + bytes;
}

/* One check of cap for the most that the tokens can take, and none in the loop. */
size_t tri_result_pack(const tri_step_result *r, void *buf, size_t cap) {
  char *at = buf, *end = at + cap;
  struct packed_header h = {r->step, r->micro_batch, r->num_tokens};
  if (cap < tri_result_max_bytes(r->num_tokens)) return 0;
  at = give(at, &h, sizeof h);
  for (uint32_t i = 0; i < r->num_tokens && at < end; i++) {
    const tri_sample_result *s = &r->tokens[i].sample;
    size_t top = (size_t)s->num_top * 4;
    struct packed_token t = {r->tokens[i].slot, r->tokens[i].scored, s->token, s->logprob,
                             (uint32_t)s->num_top | (s->broken ? IS_BROKEN : 0)};
    at = give(at, &t, sizeof t);
    at = give(at, s->top_ids, top);
    at = give(at, s->top_logprobs, top);
  }
  return (size_t)(at - (char *)buf);
}

/* Numbers are bounded before anything is copied by them: top_ids and top_logprobs have TRI_MAX_LOGPROBS places. Records
 * are copied out, as they need not be aligned. */
tri_status tri_result_unpack(const void *buf, size_t len, tri_step_result *r, size_t max_tokens) {
  const char *at = buf, *end = at + len;
  struct packed_header h;
  if (len < sizeof h) return TRI_CORRUPT;
  memcpy(&h, take(&at, sizeof h), sizeof h);
  if (h.num_tokens > max_tokens) return TRI_CORRUPT;
  r->step = h.step;
  r->micro_batch = h.micro_batch;
  r->num_tokens = h.num_tokens;
  for (uint32_t i = 0; i < h.num_tokens; i++) {
    struct packed_token t;
    tri_sample_result *s = &r->tokens[i].sample;
    if ((size_t)(end - at) < sizeof t) return TRI_CORRUPT;
    memcpy(&t, take(&at, sizeof t), sizeof t);
    s->broken = t.num_top & IS_BROKEN;
    t.num_top &= ~IS_BROKEN;
    if (t.num_top > TRI_MAX_LOGPROBS || (size_t)(end - at) < t.num_top * 8) return TRI_CORRUPT;
    r->tokens[i].slot = t.slot;
    r->tokens[i].scored = t.scored;
    s->token = t.token;
    s->logprob = t.logprob;
    s->num_top = (int)t.num_top;
    memcpy(s->top_ids, take(&at, t.num_top * 4), t.num_top * 4);
    memcpy(s->top_logprobs, take(&at, t.num_top * 4), t.num_top * 4);
  }
  return TRI_OK;
}
