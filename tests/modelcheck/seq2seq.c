/* SPDX-License-Identifier: Apache-2.0 */
/* Encoder-decoders: the encoder's states and the logits of given answers, greedy answers of all sources together, and
 * beam searches. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "worker/schedule/beam.h"
#include "tests/modelcheck/modelcheck.h"

/* The searches that the reference has made, all with 4 beams. */
static const struct {
  const char *name;
  double length_penalty;
  tri_early_stopping early_stopping;
} searches[MC_SEARCHES] = {
    {"beam", 1, TRI_EARLY_FALSE}, {"beam_long", 2, TRI_EARLY_TRUE}, {"beam_never", 0.6, TRI_EARLY_NEVER}};
enum { NUM_BEAMS = 4 };

static int64_t *read_ids(const struct mc_check *c, const char *what, int i, int *len) {
  char name[64];
  const tri_st_tensor *t;
  snprintf(name, sizeof name, "%s.%d", what, i);
  int64_t *ids = mc_read_tensor(&c->exp, name, &t);
  *len = ids ? (int)t->shape[0] : 0;
  return ids;
}

/* A slot's blocks: those of the answer from the end of its region, those of the source from its front. */
static int region(const struct mc_check *c) { return c->engine->limits.num_blocks / MAX_PROMPTS; }
static int32_t answer_block(const struct mc_check *c, int slot, int i) { return slot * region(c) + region(c) - 1 - i; }

static void add_source(struct mc_check *c, int slot, const int64_t *source, int n) {
  uint32_t ids[MAX_ROWS];
  int32_t blocks[MAX_ROWS];
  int bs = c->engine->limits.block_size, num_blocks = (n + bs - 1) / bs;
  if (!tri_replica_is_leader(&c->replica)) return;
  for (int i = 0; i < n; i++) ids[i] = (uint32_t)source[i];
  for (int i = 0; i < num_blocks; i++) blocks[i] = slot * region(c) + i;
  tri_plan_seq s = {
      .slot = (uint32_t)slot, .kind = TRI_SEQ_SOURCE, .num_tokens = (uint32_t)n, .num_blocks = (uint32_t)num_blocks};
  tri_plan_add(c->writer, &s, ids, blocks, NULL, 0);
}

static void add_tokens(struct mc_check *c, int slot, int flags, int start, int n, const uint32_t *ids, int logprobs) {
  const tri_model_config *m = &c->engine->model;
  tri_sample_params params = {.top_p = 1,
                              .repetition_penalty = 1,
                              .num_logprobs = logprobs,
                              .banned = m->eos_token_ids,
                              .num_banned = m->num_eos_token_ids};
  int32_t blocks[MAX_ROWS];
  int bs = c->engine->limits.block_size, first = (start + bs - 1) / bs, end = (start + n + bs - 1) / bs;
  if (!tri_replica_is_leader(&c->replica)) return;
  for (int i = first; i < end; i++) blocks[i - first] = answer_block(c, slot, i);
  tri_plan_seq s = {.slot = (uint32_t)slot,
                    .kind = start ? TRI_SEQ_DECODE : TRI_SEQ_CHUNK,
                    .flags =
                        (uint8_t)(flags | TRI_SEQ_FLAG_SAMPLE | (start ? 0 : TRI_SEQ_FLAG_FIRST | TRI_SEQ_FLAG_PARAMS)),
                    .num_tokens = (uint32_t)n,
                    .start = (uint32_t)start,
                    .first_block = (uint32_t)first,
                    .num_blocks = (uint32_t)(end - first)};
  tri_plan_add(c->writer, &s, ids, blocks, &params, (uint32_t)n);
}

/* Slot `to` goes on from where `from` stands, on blocks of its own. */
static void add_fork(struct mc_check *c, int to, int from, int length) {
  int32_t blocks[MAX_ROWS];
  int bs = c->engine->limits.block_size, n = (length + bs - 1) / bs;
  if (!tri_replica_is_leader(&c->replica)) return;
  for (int i = 0; i < n; i++) {
    blocks[i] = answer_block(c, to, i);
    tri_plan_add_copy(c->writer, answer_block(c, from, i), blocks[i]);
  }
  tri_sample_params params = {.top_p = 1, .repetition_penalty = 1, .num_logprobs = TRI_MAX_LOGPROBS};
  tri_plan_seq s = {.slot = (uint32_t)to,
                    .kind = TRI_SEQ_FORK,
                    .flags = TRI_SEQ_FLAG_PARAMS,
                    .fork_from = (uint32_t)from,
                    .num_blocks = (uint32_t)n};
  tri_plan_add(c->writer, &s, NULL, blocks, &params, 0);
}

static void worse(double *worst, double e) { *worst = !(e <= *worst) ? e : *worst; }

/* Source i and the answer that it is given, in one step. */
static tri_status check_logits(struct mc_check *c, int i, double *error) {
  int n, len;
  tri_step_token sampled[MAX_PROMPTS];
  tri_step_result r = {.tokens = sampled};
  uint32_t ids[MAX_ROWS];
  const tri_model_config *m = &c->engine->model;
  int64_t *source = read_ids(c, "source", i, &n);
  tri_status st = TRI_OK;
  *error = NAN;
  if (!source) return TRI_OK;
  c->trace.logit_row = 0;
  for (int k = 0; k < c->exp.len[i]; k++) ids[k] = (uint32_t)c->exp.prompt[i][k];
  mc_begin_step(c);
  add_source(c, i, source, n);
  add_tokens(c, i, TRI_SEQ_FLAG_ALL_LOGITS, 0, c->exp.len[i], ids, -1);
  TRI_TRY(mc_run_step(c, &r));
  if (!tri_replica_is_leader(&c->replica)) goto cleanup;
  *error = 0;
  for (int k = 0; k < 2; k++) {
    char name[64];
    const tri_st_tensor *t;
    snprintf(name, sizeof name, "%s.%d", k ? "encoder" : "logits", i);
    float *want = mc_read_tensor(&c->exp, name, &t);
    len = k ? n * (int)m->hidden_size : c->exp.len[i] * (int)m->vocab_size;
    bool fits = want && t->bytes == (size_t)len * sizeof *want;
    worse(error, fits ? mc_nmse(k ? c->trace.encoder_hidden : c->trace.logits, want, (size_t)len) : NAN);
    tri_free(want);
  }
cleanup:
  tri_free(source);
  return st;
}

/* All sources together, none of which may end: how many tokens are the reference's, and which one comes next. */
static tri_status check_greedy(struct mc_check *c, int *same, uint32_t *next) {
  tri_step_token sampled[MAX_PROMPTS];
  tri_step_result r = {.tokens = sampled};
  uint32_t tokens[MAX_PROMPTS][MAX_GREEDY];
  tri_status st;
  for (int k = 0; k + 1 < c->exp.num_greedy; k++) {
    mc_begin_step(c);
    for (int i = 0; i < c->exp.num_prompts && !k; i++) {
      int n;
      int64_t *source = read_ids(c, "source", i, &n);
      add_source(c, i, source, n);
      tri_free(source);
    }
    for (int i = 0; i < c->exp.num_prompts; i++) {
      if (!k) tokens[i][0] = (uint32_t)c->engine->model.seq2seq.decoder_start_token_id;
      add_tokens(c, i, TRI_SEQ_FLAG_BAN, k, 1, &tokens[i][k], -1);
    }
    TRI_TRY(mc_run_step(c, &r));
    for (int i = 0; i < c->exp.num_prompts; i++) tokens[i][k + 1] = sampled[i].sample.token;
  }
  for (int i = 0; i < c->exp.num_prompts; i++) {
    for (same[i] = 0; same[i] < c->exp.num_greedy; same[i]++)
      if (tokens[i][same[i]] != (uint32_t)c->exp.greedy[i][same[i]]) break;
    next[i] = same[i] < c->exp.num_greedy ? tokens[i][same[i]] : 0;
  }
cleanup:
  return st;
}

/* Puts each beam into the slot of the beam that it continues; of several, all but the first into slots whose beams have
 * ended, by way of forks. */
static void place_beams(struct mc_check *c, const tri_beams *b, int *slot, int length) {
  int next[NUM_BEAMS], taken[NUM_BEAMS] = {0}, first_free = 0;
  for (int i = 0; i < b->num_live; i++) {
    next[i] = taken[slot[b->parent[i]]] ? -1 : slot[b->parent[i]];
    if (next[i] >= 0) taken[next[i]] = 1;
  }
  for (int i = 0; i < b->num_live; i++) {
    if (next[i] >= 0) continue;
    while (taken[first_free]) first_free++;
    taken[first_free] = 1;
    next[i] = first_free;
    add_fork(c, next[i], slot[b->parent[i]], length);
  }
  memcpy(slot, next, (size_t)b->num_live * sizeof *slot);
}

/* One source's search. Every rank follows it, since all of them see what is sampled. */
static tri_status search(struct mc_check *c, int which, int i, bool *right) {
  const tri_model_config *m = &c->engine->model;
  tri_beam_params p = {.num_beams = NUM_BEAMS,
                       .length_penalty = searches[which].length_penalty,
                       .early_stopping = searches[which].early_stopping,
                       .max_tokens = c->exp.num_greedy - 1,
                       .eos = m->eos_token_ids,
                       .num_eos = m->num_eos_token_ids};
  tri_step_token sampled[MAX_PROMPTS];
  tri_step_result r = {.tokens = sampled};
  tri_beams *b = NULL;
  int n, len, slot[NUM_BEAMS] = {0};
  uint32_t start = (uint32_t)m->seq2seq.decoder_start_token_id;
  int64_t *source = read_ids(c, "source", i, &n), *want = read_ids(c, searches[which].name, i, &len);
  tri_status st;
  TRI_TRY(source && want ? TRI_OK : TRI_NOT_FOUND);
  TRI_TRY(tri_beams_create(&p, &b));
  for (int length = 0; !b->done; length++) {
    const tri_sample_result *of_beam[NUM_BEAMS];
    mc_begin_step(c);
    if (!length) add_source(c, 0, source, n);
    if (length) place_beams(c, b, slot, length);
    for (int k = 0; k < b->num_live; k++)
      add_tokens(c, slot[k], 0, length, 1, length ? &b->token[k] : &start, TRI_MAX_LOGPROBS);
    TRI_TRY(mc_run_step(c, &r));
    for (int k = 0; k < b->num_live; k++) of_beam[k] = &sampled[k].sample;
    tri_beams_advance(b, of_beam);
  }
  const tri_hypothesis *best = &b->answers[0];
  *right = best->finished && best->length + 1 == len && want[0] == start;
  for (int k = 0; *right && k < best->length; k++) *right = best->tokens[k] == (uint32_t)want[k + 1];
cleanup:
  tri_beams_destroy(b);
  tri_free(source), tri_free(want);
  return st;
}

tri_status mc_check_seq2seq(struct mc_check *c, bool *right) {
  double limit = mc_limit(c), worst = 0, error[MAX_PROMPTS];
  int same[MAX_PROMPTS], missed = 0;
  uint32_t next[MAX_PROMPTS];
  bool leader = tri_replica_is_leader(&c->replica), found[MAX_PROMPTS][MC_SEARCHES];
  tri_status st = TRI_OK;
  for (int i = 0; i < c->exp.num_prompts; i++) TRI_TRY(check_logits(c, i, &error[i]));
  TRI_TRY(check_greedy(c, same, next));
  for (int i = 0; i < c->exp.num_prompts; i++)
    for (int s = 0; s < MC_SEARCHES; s++) TRI_TRY(search(c, s, i, &found[i][s]));
  *right = true;
  for (int i = 0; leader && i < c->exp.num_prompts; i++) {
    int beams = found[i][0] + found[i][1] + found[i][2];
    bool same_text = c->rounds || mc_greedy_right(c, i, same[i], next[i]);
    bool ok = error[i] <= limit && same_text;
    missed += MC_SEARCHES - beams;
    printf("source %d: nmse %.2e (limit %.2g), greedy %d of %d, beam searches %d of %d%s\n", i, error[i], limit,
           same[i], c->exp.num_greedy, beams, MC_SEARCHES, ok ? "" : "   <-- wrong");
    worse(&worst, error[i]);
    *right &= ok;
  }
  if (leader && !c->rounds && !mc_beams_right(c, missed)) {
    printf("%d of %d beam searches end elsewhere (the reference's in this type: %d)   <-- wrong\n", missed,
           c->exp.num_prompts * MC_SEARCHES, c->rounding.missed);
    *right = false;
  }
  if (leader)
    printf("%s %s tp %d pp %d %s: worst nmse %.2e (limit %.2g)\n", *right ? "RIGHT" : "WRONG", c->dir, c->a.tp, c->a.pp,
           c->a.backend, worst, limit);
cleanup:
  return st;
}
