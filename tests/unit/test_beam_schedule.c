/* SPDX-License-Identifier: Apache-2.0 */
/* The leader's scheduler with sources and beam searches, against a small engine as in test_scheduler.c: it executes
 * plans as ranks do, its "KV cache" holds a hash of every prefix, that of an answer begins with the hash of its source,
 * and what it draws follows from the last entry. Every answer must be that of the request alone. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "base/wait.h"
#include "worker/schedule/scheduler_impl.h"

Suite *suite_beam_schedule(void);

enum { VOCAB = 61, MAX_JOBS = 24, MAX_LANES = 3, MAX_LEN = 64, MAX_SLOTS = 16, MAX_ENTRIES = 4096, MAX_N = 6 };
enum { MS = 1000000, TEXT_ROOT = 1, SOURCE_ROOT = 2 };

/* ck_assert notes every call in a file, which is too slow for what is checked millions of times. */
#define MUST(condition) MUST_SAY(condition, "%s", #condition)
#define MUST_SAY(condition, ...)                                                                                       \
  do {                                                                                                                 \
    if (!(condition)) ck_abort_msg(__VA_ARGS__);                                                                       \
  } while (0)

static const uint32_t eos[] = {3, 11}, bad[] = {7};

struct choice {
  uint32_t want[MAX_LEN];
  int num_want, got;
  tri_finish want_reason, reason;
  bool ended;
};

struct request {
  tri_group_assign assign;
  uint32_t prompt[MAX_LEN];
  int arrive_at, abort_at; /* iterations; abort_at -1: never */
  tri_job *job;            /* while the scheduler has it */
  bool arrived;
  uint32_t preemptions; /* as the entries have told */
  struct choice choice[MAX_N];
};

struct config {
  tri_limits limits;
  tri_job_model model;
  int lanes, jobs, late_percent;
  bool by_priority;
};

struct result {
  int lane;
  tri_step_result r;
  tri_step_token tokens[MAX_SLOTS];
};

/* What one rank keeps. The second rank never hears what was drawn, as a first stage does not. */
struct rank {
  tri_slots *slots;
  tri_batch_builder *batch;
};

struct sim {
  struct config cfg;
  uint64_t rng;
  struct rank ranks[2];
  tri_sched *sched;
  tri_plan_writer *writer;
  tri_outbox out;
  uint64_t content[MAX_ENTRIES]; /* [block * block_size + offset] */
  struct result results[MAX_LANES];
  int num_results, iteration, copies, forks, sources, restarts;
  uint64_t most_blocks;
  struct request requests[MAX_JOBS];
};

static uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

static int range(struct sim *s, int lo, int hi) {
  s->rng = mix(s->rng);
  return lo + (int)(s->rng % (uint64_t)(hi - lo + 1));
}

static bool chance(struct sim *s, int percent) { return range(s, 1, 100) <= percent; }
static uint64_t extend(uint64_t prefix, uint32_t token) { return mix(prefix * 31 + token); }

static uint64_t extend_all(uint64_t h, const uint32_t *tokens, size_t n) {
  for (size_t i = 0; i < n; i++) h = extend(h, tokens[i]);
  return h;
}

static bool contains(const uint32_t *ids, int n, uint32_t id) {
  for (int i = 0; i < n; i++)
    if (ids[i] == id) return true;
  return false;
}

/* The n best tokens behind a prefix. */
static void best_tokens(uint64_t prefix, int n, tri_sample_result *out) {
  float logprobs[VOCAB];
  for (uint32_t i = 0; i < VOCAB; i++)
    logprobs[i] = -(float)(mix(prefix ^ (i * 77)) % 8192) / 1024 + (contains(eos, 2, i) ? 1.5f : 0);
  out->num_top = n;
  for (int k = 0; k < n; k++) {
    uint32_t best = 0;
    for (uint32_t i = 1; i < VOCAB; i++)
      if (logprobs[i] > logprobs[best]) best = i;
    out->top_ids[k] = best;
    out->top_logprobs[k] = logprobs[best];
    logprobs[best] = -1000;
  }
}

static uint32_t draw(uint64_t prefix, uint64_t seed, const uint32_t *banned, int num_banned, const tri_logit_bias *bias,
                     int num_bias) {
  uint64_t x = mix(prefix ^ mix(seed));
  for (;; x = mix(x)) {
    uint32_t t = (uint32_t)(x % VOCAB);
    bool never = contains(banned, num_banned, t);
    for (int i = 0; i < num_bias; i++) never |= bias[i].id == t && bias[i].bias < -1e30f;
    if (!never) return t;
  }
}

/* ---- the answers to a request that has the machine to itself ---- */

struct alone {
  uint64_t root; /* of what stands in front of the answer */
  uint32_t stops[8];
  int num_stops, most, min_tokens;
};

static struct alone alone_of(const struct config *c, const struct request *r) {
  const tri_sampling *p = &r->assign.sampling;
  struct alone a = {.min_tokens = (int)p->min_tokens};
  size_t n = r->assign.num_token_ids;
  int prompt = c->limits.has_source ? c->model.num_start : (int)n;
  a.most = c->limits.max_model_len - prompt;
  if (p->max_tokens >= 0 && p->max_tokens < a.most) a.most = (int)p->max_tokens;
  a.root = extend_all(TEXT_ROOT, r->prompt, n);
  if (c->limits.has_source)
    a.root = extend_all(extend_all(SOURCE_ROOT, r->prompt, n), c->model.start, (size_t)c->model.num_start);
  for (int i = 0; !p->ignore_eos && i < c->model.num_eos; i++) a.stops[a.num_stops++] = c->model.eos[i];
  for (int i = 0; i < p->num_stop_token_ids; i++)
    if (!contains(a.stops, a.num_stops, p->stop_token_ids[i])) a.stops[a.num_stops++] = p->stop_token_ids[i];
  return a;
}

static void drawn_alone(const struct alone *a, const struct config *cfg, uint64_t seed, struct choice *c) {
  tri_logit_bias never[1];
  uint64_t h = a->root;
  for (int i = 0; i < cfg->model.num_bad; i++) never[i] = (tri_logit_bias){cfg->model.bad[i], -1e38f};
  *c = (struct choice){.want_reason = TRI_FINISH_LENGTH};
  while (c->num_want < a->most) {
    bool ban = c->num_want < a->min_tokens;
    uint32_t t = draw(h, seed, a->stops, ban ? a->num_stops : 0, never, cfg->model.num_bad);
    c->want[c->num_want++] = t;
    h = extend(h, t);
    if (!contains(a->stops, a->num_stops, t)) continue;
    c->want_reason = TRI_FINISH_STOP;
    return;
  }
}

static tri_beam_params beam_params(const struct alone *a, const struct config *cfg, const tri_sampling *s) {
  int given = cfg->limits.has_source ? cfg->model.num_start - 1 : 0;
  return (tri_beam_params){.num_beams = (int)s->num_beams,
                           .length_penalty = s->length_penalty,
                           .early_stopping = s->early_stopping,
                           .max_tokens = a->most + given,
                           .min_tokens = a->min_tokens ? a->min_tokens + given : 0,
                           .given = given,
                           .eos = a->stops,
                           .num_eos = a->num_stops,
                           .bad = cfg->model.bad,
                           .num_bad = cfg->model.num_bad};
}

static void searched_alone(const struct alone *a, const struct config *cfg, struct request *r) {
  const tri_sampling *s = &r->assign.sampling;
  tri_beam_params p = beam_params(a, cfg, s);
  tri_beams *b;
  ck_assert_int_eq(tri_beams_create(&p, &b), TRI_OK);
  while (!b->done) {
    tri_sample_result drawn[TRI_MAX_BEAMS];
    const tri_sample_result *of_beam[TRI_MAX_BEAMS];
    for (int i = 0; i < b->num_live; i++) {
      uint64_t h = extend_all(a->root, b->beams[i].tokens, (size_t)b->beams[i].length);
      best_tokens(h, tri_beam_alternatives(&p), &drawn[i]);
      of_beam[i] = &drawn[i];
    }
    tri_beams_advance(b, of_beam);
  }
  for (int k = 0; k < s->n; k++) {
    const tri_hypothesis *h = &b->answers[k];
    bool stop = contains(a->stops, a->num_stops, h->tokens[h->length - 1]);
    r->choice[k] = (struct choice){.num_want = h->length, .want_reason = stop ? TRI_FINISH_STOP : TRI_FINISH_LENGTH};
    memcpy(r->choice[k].want, h->tokens, (size_t)h->length * sizeof *h->tokens);
  }
  tri_beams_destroy(b);
}

/* After the last change to the request. */
static void request_expect(struct sim *s, struct request *r) {
  struct alone a = alone_of(&s->cfg, r);
  if (r->assign.sampling.num_beams > 1) {
    searched_alone(&a, &s->cfg, r);
    return;
  }
  for (uint32_t k = 0; k < (uint32_t)r->assign.sampling.n; k++)
    drawn_alone(&a, &s->cfg, r->assign.seed + k * 0x9e3779b97f4a7c15u, &r->choice[k]);
}

/* ---- set-up ---- */

static struct sim *sim_create(const struct config *cfg, uint64_t seed) {
  const tri_limits *l = &cfg->limits;
  struct sim *s = calloc(1, sizeof *s);
  ck_assert_ptr_nonnull(s);
  s->cfg = *cfg;
  s->rng = mix(seed);
  ck_assert_int_le(l->num_blocks * l->block_size, MAX_ENTRIES);
  tri_plan_sizes sizes = tri_limits_plan_sizes(l);
  tri_sched_config sc = {.limits = *l, .num_lanes = cfg->lanes, .by_priority = cfg->by_priority};
  ck_assert_int_eq(tri_sched_create(&sc, &s->sched), TRI_OK);
  ck_assert_int_eq(tri_plan_writer_create(&sizes, &s->writer), TRI_OK);
  ck_assert_int_eq(tri_outbox_init(&s->out, l->max_num_seqs), TRI_OK);
  for (int i = 0; i < 2; i++) {
    ck_assert_int_eq(tri_slots_create(l, &s->ranks[i].slots), TRI_OK);
    ck_assert_int_eq(tri_batch_builder_create(l, &s->ranks[i].batch), TRI_OK);
  }
  return s;
}

static void sim_destroy(struct sim *s) {
  tri_sched_destroy(s->sched);
  tri_plan_writer_destroy(s->writer);
  tri_outbox_free(&s->out);
  for (int i = 0; i < 2; i++) {
    tri_slots_destroy(s->ranks[i].slots);
    tri_batch_builder_destroy(s->ranks[i].batch);
  }
  free(s);
}

static struct request *request_init(struct sim *s, int i, int prompt, int max_tokens, int num_beams, int n) {
  struct request *r = &s->requests[i];
  *r = (struct request){.abort_at = -1};
  r->assign = (tri_group_assign){.job = 100 + (uint64_t)i, .remaining_ms = -1, .token_ids = r->prompt};
  r->assign.seed = mix(s->rng + (uint64_t)i);
  r->assign.num_token_ids = (size_t)prompt;
  r->assign.sampling = (tri_sampling){.n = n,
                                      .prompt_logprobs = -1,
                                      .max_tokens = max_tokens,
                                      .logprobs = -1,
                                      .num_beams = num_beams,
                                      .length_penalty = 1,
                                      .repetition_penalty = 1};
  for (int k = 0; k < prompt; k++) r->prompt[k] = (uint32_t)range(s, 0, VOCAB - 1);
  return r;
}

/* ---- the engine ---- */

static uint64_t *entry(struct sim *s, const int32_t *blocks, int position) {
  int bs = s->cfg.limits.block_size;
  return &s->content[blocks[position / bs] * bs + position % bs];
}

static void copy_blocks(struct sim *s, const tri_batch_builder *b) {
  size_t bs = (size_t)s->cfg.limits.block_size;
  for (int i = 0; i < b->num_copies; i++)
    memcpy(&s->content[(size_t)b->copies[2 * i + 1] * bs], &s->content[(size_t)b->copies[2 * i] * bs],
           bs * sizeof *s->content);
  s->copies += b->num_copies;
}

static void check_same(const tri_batch *a, const tri_batch *b) {
  size_t t = (size_t)a->num_tokens, n = (size_t)a->num_seqs;
  MUST(a->num_tokens == b->num_tokens && a->num_seqs == b->num_seqs && a->num_logits == b->num_logits);
  if (!n) return;
  MUST(!memcmp(a->context_len, b->context_len, n * sizeof *a->context_len));
  MUST(!memcmp(a->seq_start, b->seq_start, (n + 1) * sizeof *a->seq_start));
  MUST(!memcmp(a->block_start, b->block_start, (n + 1) * sizeof *a->block_start));
  MUST(!memcmp(a->block_table, b->block_table, (size_t)a->block_start[n] * sizeof *a->block_table));
  if (a->kv_slot) MUST(!memcmp(a->kv_slot, b->kv_slot, t * sizeof *a->kv_slot));
}

static void compute_source(struct sim *s, const tri_batch *v, int q) {
  const int32_t *blocks = tri_batch_blocks(v, q);
  uint64_t h = SOURCE_ROOT;
  for (int t = v->seq_start[q]; t < v->seq_start[q + 1]; t++)
    *entry(s, blocks, t - v->seq_start[q]) = h = extend(h, v->token_ids[t]);
  s->sources++;
}

/* The job whose sequence has the slot. */
static const tri_job *job_in(const struct sim *s, uint32_t slot) {
  for (int i = 0; i < s->cfg.jobs; i++)
    for (int k = 0; s->requests[i].job && k < s->requests[i].job->num_seqs; k++)
      if (s->requests[i].job->seqs[k].slot == (int)slot) return s->requests[i].job;
  return NULL;
}

/* What cross-attention sees is the whole source and nothing else. Returns what the answer's first entry follows. */
static uint64_t check_source(struct sim *s, const tri_batch_builder *b, int q, const tri_job *j) {
  uint64_t h = SOURCE_ROOT;
  if (!s->cfg.limits.has_source) return TEXT_ROOT;
  MUST(b->cross.context_len[q] == j->num_source);
  for (int i = 0; i < j->num_source; i++) {
    h = extend(h, j->source[i]);
    MUST_SAY(*entry(s, tri_batch_blocks(&b->cross, q), i) == h, "entry %d of a source", i);
  }
  return h;
}

static void execute_sequence(struct sim *s, const tri_batch_builder *b, int q, const tri_plan_seq *p) {
  const tri_slot *slot = &s->ranks[0].slots->slots[p->slot];
  const tri_job *j = job_in(s, p->slot);
  const int32_t *blocks = tri_batch_blocks(&b->batch, q);
  int first = b->batch.seq_start[q], n = b->batch.seq_start[q + 1] - first;
  MUST(n >= 1 && j);
  uint64_t h = check_source(s, b, q, j);
  for (int i = 0; i < n; i++) {
    int pos = (int)p->start + i;
    *entry(s, blocks, pos) = extend(pos ? *entry(s, blocks, pos - 1) : h, b->batch.token_ids[first + i]);
  }
  for (int pos = 0; pos < b->batch.context_len[q]; pos++) {
    h = extend(h, slot->history[pos]);
    MUST_SAY(*entry(s, blocks, pos) == h, "slot %u: the entry of position %d is not its own", p->slot, pos);
  }
}

static void execute_draws(struct sim *s, const tri_batch_builder *b, struct result *out) {
  tri_slots *slots = s->ranks[0].slots;
  out->r.tokens = out->tokens;
  for (int i = 0; i < b->num_draws; i++) {
    const tri_draw *d = &b->draws[i];
    const tri_slot *slot = &slots->slots[d->slot];
    const tri_sample_params *p = &slot->params;
    uint64_t h = *entry(s, slot->blocks, slot->length - 1);
    tri_sample_result sample = {
        .token = draw(h, p->seed, p->banned, d->ban ? p->num_banned : 0, p->logit_bias, p->num_logit_bias)};
    if (p->num_logprobs > 0) best_tokens(h, p->num_logprobs, &sample);
    out->tokens[out->r.num_tokens++] = (tri_step_token){d->slot, 0, sample};
    tri_slot_learn(slots, d, sample.token);
  }
}

/* The live beams of a search are all in a step or none is. */
static void check_together(const struct sim *s, const int *tokens_of_job) {
  for (int i = 0; i < s->cfg.jobs; i++) {
    const tri_job *j = s->requests[i].job;
    if (!j || !j->search || !tokens_of_job[i]) continue;
    MUST(tokens_of_job[i] == j->search->beams->num_live);
  }
}

static void execute(struct sim *s, int lane) {
  size_t len;
  tri_plan_view plan;
  const void *bytes = tri_plan_finish(s->writer, &len);
  bool used[MAX_SLOTS] = {0};
  int seqs_of_job[MAX_JOBS] = {0}, q = 0, source = 0;
  MUST(len <= tri_plan_max_bytes(s->writer));
  MUST(tri_plan_read(bytes, len, &plan) == TRI_OK);
  MUST(plan.h.num_tokens <= (uint32_t)s->cfg.limits.max_num_batched_tokens);
  for (int i = 0; i < 2; i++) MUST(tri_batch_build(s->ranks[i].batch, s->ranks[i].slots, &plan) == TRI_OK);
  const tri_batch_builder *b = s->ranks[0].batch, *other = s->ranks[1].batch;
  check_same(&b->batch, &other->batch), check_same(&b->source, &other->source), check_same(&b->cross, &other->cross);
  MUST(!memcmp(b->batch.token_ids, other->batch.token_ids, (size_t)b->batch.num_tokens * sizeof(uint32_t)));
  copy_blocks(s, b);
  for (; source < b->source.num_seqs; source++) compute_source(s, &b->source, source);
  for (uint32_t i = 0; i < plan.h.num_seqs; i++) {
    const tri_plan_seq *p = &plan.seqs[i];
    s->forks += p->kind == TRI_SEQ_FORK;
    if (p->kind == TRI_SEQ_FORK || p->kind == TRI_SEQ_SOURCE) continue;
    MUST_SAY(!used[p->slot], "slot %u has tokens twice in one step", p->slot);
    used[p->slot] = true;
    seqs_of_job[job_in(s, p->slot)->id - 100]++;
    execute_sequence(s, b, q++, p);
  }
  MUST(q == b->batch.num_seqs);
  check_together(s, seqs_of_job);
  struct result *r = &s->results[s->num_results++];
  *r = (struct result){.lane = lane, .r = {.step = plan.h.step, .lane = plan.h.lane}};
  execute_draws(s, b, r);
}

/* ---- what the scheduler says ---- */

static void hear(struct sim *s, const tri_group_token *t) {
  struct request *r = &s->requests[t->job - 100];
  MUST((int)t->choice < (int)r->assign.sampling.n);
  if (t->flags & TRI_TOKEN_PREEMPTED) {
    MUST(t->preemptions > r->preemptions);
    r->preemptions = t->preemptions;
  }
  struct choice *c = &r->choice[t->choice];
  MUST_SAY(!c->ended, "news of a choice that has ended");
  if (t->flags & TRI_TOKEN_NONE) {
    MUST(t->flags & TRI_TOKEN_LAST);
  } else {
    MUST(t->offset == (uint64_t)c->got);
    MUST_SAY(c->got < c->num_want && t->token == c->want[c->got], "job %d choice %u: token %d is %u, alone %u",
             (int)t->job, t->choice, c->got, t->token, c->want[c->got]);
    c->got++;
    MUST(!!(t->flags & TRI_TOKEN_LAST) == (c->got == c->num_want));
    MUST(!!(t->flags & TRI_TOKEN_STOP_ID) == (c->got == c->num_want && c->want_reason == TRI_FINISH_STOP));
  }
  if (!(t->flags & TRI_TOKEN_LAST)) return;
  c->ended = true;
  c->reason = t->reason;
}

static void drain(struct sim *s) {
  for (uint32_t i = 0; i < s->out.num; i++) hear(s, &s->out.tokens[i]);
  s->out.num = 0;
  for (tri_job *j; (j = tri_sched_retired(s->sched));) {
    s->requests[j->id - 100].job = NULL;
    tri_job_destroy(j);
  }
}

struct books {
  int owner[MAX_ENTRIES]; /* of each block */
  uint64_t used;
  uint32_t running;
  bool slots[MAX_SLOTS];
};

static void book_blocks(struct books *b, const int32_t *blocks, int n, int job) {
  for (int p = 0; p < n; p++) {
    int *o = &b->owner[blocks[p]];
    MUST_SAY(!*o || *o == job + 1, "block %d belongs to two jobs", blocks[p]);
    b->used += !*o;
    *o = job + 1;
  }
}

static void book_job(const struct sim *s, struct books *b, int i) {
  const tri_job *j = s->requests[i].job;
  for (int k = 0; k < j->num_seqs; k++) {
    const tri_sequence *q = &j->seqs[k];
    if (j->search) MUST((q->state == TRI_SCHED_RUNNING) == (j->seqs[0].state == TRI_SCHED_RUNNING));
    if (q->state != TRI_SCHED_RUNNING) {
      MUST(!q->num_blocks && !q->num_source_blocks);
      continue;
    }
    if (j->search) MUST(q->lane == j->seqs[0].lane);
    MUST_SAY(!b->slots[q->slot], "slot %d has two owners", q->slot);
    b->running++;
    b->slots[q->slot] = true;
    book_blocks(b, q->blocks, q->num_blocks, i);
    book_blocks(b, q->source_blocks, q->num_source_blocks, i);
    const tri_slot *slot = &s->ranks[0].slots->slots[q->slot];
    for (int p = 0; p < q->num_blocks && !q->fresh && !q->fork_of; p++) MUST(slot->blocks[p] == q->blocks[p]);
    for (int p = 0; p < q->num_source_blocks && !q->fork_of; p++) MUST(slot->source_blocks[p] == q->source_blocks[p]);
  }
}

/* Blocks and slots against the sequences that hold them. */
static void check_books(struct sim *s) {
  static struct books b;
  memset(&b, 0, sizeof b);
  for (int i = 0; i < s->cfg.jobs; i++)
    if (s->requests[i].job) book_job(s, &b, i);
  tri_sched_stats st = tri_sched_get_stats(s->sched);
  MUST(st.blocks_used == b.used);
  MUST(st.running == b.running);
  if (b.used > s->most_blocks) s->most_blocks = b.used;
}

/* ---- the loop ---- */

static tri_status arrive(struct sim *s, struct request *r, tri_error *err) {
  tri_status st = tri_job_create(&r->assign, &s->cfg.limits, &s->cfg.model, (int64_t)s->iteration * MS, &r->job, err);
  r->arrived = true;
  if (st == TRI_OK) tri_sched_add(s->sched, r->job);
  return st;
}

static void take_events(struct sim *s) {
  for (int i = 0; i < s->cfg.jobs; i++) {
    struct request *r = &s->requests[i];
    tri_error err = {0};
    if (!r->arrived && r->arrive_at <= s->iteration)
      ck_assert_msg(arrive(s, r, &err) == TRI_OK, "%s: %s", err.field, err.message);
    if (r->abort_at == s->iteration) ck_assert_int_eq(tri_sched_abort(s->sched, r->assign.job), r->job != NULL);
  }
  while (!tri_sched_reap(s->sched, (int64_t)s->iteration * MS, &s->out)) {
    MUST(s->out.num == s->out.cap);
    drain(s);
  }
  drain(s);
}

static void return_result(struct sim *s) {
  struct result r = s->results[0];
  s->num_results--;
  memmove(s->results, s->results + 1, (size_t)s->num_results * sizeof *s->results);
  r.r.tokens = r.tokens;
  tri_sched_absorb(s->sched, r.lane, &r.r, &s->out);
  drain(s);
}

static bool all_arrived(const struct sim *s) {
  for (int i = 0; i < s->cfg.jobs; i++)
    if (!s->requests[i].arrived) return false;
  return true;
}

/* One round over all lanes. False when nothing could be started and nothing was under way. */
static bool iterate(struct sim *s) {
  bool moved = s->num_results > 0;
  take_events(s);
  for (int lane = 0; lane < s->cfg.lanes; lane++) {
    if (tri_sched_lane_busy(s->sched, lane) || !tri_sched_compose(s->sched, lane, s->writer)) continue;
    execute(s, lane);
    check_books(s);
    moved = true;
  }
  do {
    if (s->num_results) return_result(s);
  } while (s->num_results && !chance(s, s->cfg.late_percent));
  check_books(s);
  s->iteration++;
  return moved;
}

static void run(struct sim *s) {
  int idle = 0;
  while (!all_arrived(s) || tri_sched_has_work(s->sched)) {
    bool work = tri_sched_has_work(s->sched);
    idle = iterate(s) || !work ? 0 : idle + 1;
    ck_assert_msg(idle < 4, "work waits and nothing runs");
    ck_assert_msg(s->iteration < 100000, "not done after %d iterations", s->iteration);
  }
  tri_sched_stats st = tri_sched_get_stats(s->sched);
  ck_assert_uint_eq(st.blocks_used, 0);
  ck_assert_uint_eq(st.running, 0);
  ck_assert_uint_eq(st.waiting, 0);
}

/* Whole answers for whoever was not aborted. */
static void check_answers(const struct sim *s) {
  uint64_t preemptions = 0;
  for (int i = 0; i < s->cfg.jobs; i++) {
    const struct request *r = &s->requests[i];
    bool may_abort = r->abort_at >= 0 || r->assign.remaining_ms >= 0;
    for (int k = 0; k < r->assign.sampling.n; k++) {
      const struct choice *c = &r->choice[k];
      MUST_SAY(c->ended, "job %d choice %d never ended", i, k);
      if (may_abort && c->reason == TRI_FINISH_ABORT) continue;
      MUST(c->got == c->num_want && c->reason == c->want_reason);
    }
    preemptions += r->preemptions;
  }
  MUST(preemptions == tri_sched_get_stats(s->sched).preemptions); /* each is told before its job's end */
}

/* ---- random workloads ---- */

static struct config simple(bool source, int slots, int budget, int len, int block, int blocks, int jobs) {
  return (struct config){.limits = {.max_num_seqs = slots,
                                    .max_num_batched_tokens = budget,
                                    .max_model_len = len,
                                    .block_size = block,
                                    .num_blocks = blocks,
                                    .vocab_size = VOCAB,
                                    .has_source = source},
                         .model = {.eos = eos, .num_eos = 1, .start = {0, 9}, .num_start = source},
                         .lanes = 1,
                         .jobs = jobs};
}

static struct config random_config(uint64_t seed) {
  struct sim r = {.rng = mix(seed * 3 + 1)};
  bool source = chance(&r, 60);
  struct config c = simple(source, range(&r, MAX_N, MAX_SLOTS), 0, range(&r, 12, MAX_LEN), range(&r, 1, 9), 0,
                           range(&r, 1, MAX_JOBS));
  tri_limits *l = &c.limits;
  l->max_num_batched_tokens = range(&r, l->max_num_seqs, 90);
  if (l->max_num_batched_tokens < 12) l->max_num_batched_tokens = 12;
  int full = (l->max_model_len + l->block_size - 1) / l->block_size * (source ? 2 : 1); /* an engine has no less */
  l->num_blocks = chance(&r, 60) ? full + range(&r, 0, full) : full * range(&r, 2, l->max_num_seqs);
  if (l->num_blocks * l->block_size > MAX_ENTRIES) l->num_blocks = MAX_ENTRIES / l->block_size;
  if (!source && chance(&r, 40)) c.lanes = range(&r, 2, MAX_LANES); /* encoder-decoders have one stage */
  c.late_percent = chance(&r, 50) ? 0 : 60;
  c.by_priority = chance(&r, 30);
  c.model.num_start = source ? range(&r, 1, 2) : 0;
  c.model.num_eos = range(&r, 1, 2);
  c.model.bad = bad;
  c.model.num_bad = range(&r, 0, 1);
  return c;
}

static void random_request(struct sim *s, int i) {
  const tri_limits *l = &s->cfg.limits;
  int most = l->has_source ? l->max_num_batched_tokens - s->cfg.model.num_start : l->max_model_len - 1;
  if (most > l->max_model_len) most = l->max_model_len;
  if (most > 20 && chance(s, 70)) most = 20;
  int beams = chance(s, 60) ? range(s, 2, s->cfg.model.num_eos > 1 ? 5 : MAX_N) : 1;
  int n = beams > 1 ? range(s, 1, beams) : chance(s, 30) ? range(s, 2, MAX_N) : 1;
  struct request *r = request_init(s, i, range(s, 1, most), chance(s, 10) ? -1 : range(s, 1, 30), beams, n);
  tri_sampling *p = &r->assign.sampling;
  if (chance(s, 30)) p->min_tokens = range(s, 0, p->max_tokens > 0 ? (int)p->max_tokens : 10);
  p->ignore_eos = chance(s, 20);
  p->length_penalty = range(s, -10, 20) / 10.0;
  p->early_stopping = (tri_early_stopping)range(s, TRI_EARLY_FALSE, TRI_EARLY_NEVER);
  p->priority = range(s, -2, 2);
  r->arrive_at = chance(s, 50) ? 0 : range(s, 0, 60);
  if (chance(s, 15)) r->abort_at = r->arrive_at + range(s, 0, 50);
  if (chance(s, 10)) r->assign.remaining_ms = range(s, 0, 60);
  tri_job *job = NULL;
  tri_error err = {0};
  if (tri_job_create(&r->assign, l, &s->cfg.model, 0, &job, &err) != TRI_OK) {
    ck_assert_str_eq(err.field, "num_beams"); /* too few blocks for a search, or too many alternatives */
    p->num_beams = 1;
  }
  tri_job_destroy(job);
  request_expect(s, r);
}

START_TEST(test_random_workloads) {
  uint64_t preemptions = 0;
  int copies = 0, forks = 0, sources = 0, searches = 0;
  for (uint64_t seed = (uint64_t)_i * 100; seed < (uint64_t)_i * 100 + 100; seed++) {
    struct config c = random_config(seed);
    struct sim *s = sim_create(&c, seed);
    for (int i = 0; i < c.jobs; i++) {
      random_request(s, i);
      searches += s->requests[i].assign.sampling.num_beams > 1;
    }
    run(s);
    check_answers(s);
    preemptions += tri_sched_get_stats(s->sched).preemptions;
    copies += s->copies, forks += s->forks, sources += s->sources;
    sim_destroy(s);
  }
  /* What the workloads are meant to provoke did happen. */
  ck_assert_uint_gt(preemptions, 100);
  ck_assert_int_gt(copies, 100);
  ck_assert_int_gt(forks, 1000);
  ck_assert_int_gt(sources, 300);
  ck_assert_int_gt(searches, 300);
}
END_TEST

/* ---- particular cases ---- */

/* An abort at every iteration of a search, from the queue to the last token of its answers: the others do not mind. */
START_TEST(test_abort_a_search) {
  for (int source = 0; source < 2; source++)
    for (int at = 0; at < 36; at++) {
      struct config c = simple(source, 6, 32, 40, 4, 40, 3);
      struct sim *s = sim_create(&c, (uint64_t)at);
      s->out.cap = 5;
      for (int i = 0; i < c.jobs; i++) {
        struct request *r = request_init(s, i, 9, 20, i ? 3 : 4, i ? 2 : 3);
        r->assign.sampling.ignore_eos = true;
        if (i == 1) r->abort_at = at;
        request_expect(s, r);
      }
      run(s);
      check_answers(s);
      sim_destroy(s);
    }
}
END_TEST

/* Answers longer than the outbox come in several pieces. */
START_TEST(test_small_outbox) {
  for (uint32_t cap = 1; cap < 8; cap++) {
    struct config c = simple(true, 8, 64, 48, 4, 200, 6);
    struct sim *s = sim_create(&c, cap);
    s->out.cap = cap;
    for (int i = 0; i < c.jobs; i++) {
      struct request *r = request_init(s, i, 5 + i, 30, 2 + i % 4, 2);
      if (i % 2) r->assign.sampling.ignore_eos = true;
      request_expect(s, r);
    }
    run(s);
    check_answers(s);
    sim_destroy(s);
  }
}
END_TEST

/* Just the blocks that one search can need: the others wait, or are pushed out and begin anew. */
START_TEST(test_least_blocks) {
  uint64_t preemptions = 0;
  for (int block = 1; block <= 8; block++) {
    int len = 24, beams = 4, blocks = (16 + block - 1) / block + beams * ((len + block - 1) / block);
    struct config c = simple(true, 12, 32, len, block, blocks, 8);
    struct sim *s = sim_create(&c, (uint64_t)block);
    for (int i = 0; i < c.jobs; i++) {
      struct request *r = request_init(s, i, range(s, 1, 16), -1, i % 3 ? beams : 1, i % 3 ? 2 : 3);
      r->assign.sampling.ignore_eos = true; /* up to max_model_len */
      request_expect(s, r);
    }
    run(s);
    check_answers(s);
    preemptions += tri_sched_get_stats(s->sched).preemptions;
    sim_destroy(s);
  }
  ck_assert_uint_gt(preemptions, 10);
}
END_TEST

/* Beams and choices share the source's blocks and those of the prompt. */
START_TEST(test_shared_blocks) {
  for (int beams = 0; beams < 2; beams++)
    for (int start = 1; start <= 2; start++) {
      struct config c = simple(true, 8, 64, 64, 4, 100, 1);
      c.model.num_start = start;
      struct sim *s = sim_create(&c, 4);
      struct request *r = request_init(s, 0, 40, 3, beams ? 5 : 1, 5);
      r->assign.sampling.ignore_eos = true;
      request_expect(s, r);
      run(s);
      check_answers(s);
      ck_assert_int_eq(s->sources, 1);
      ck_assert_uint_le(s->most_blocks, 10 + 2 * 5);
      sim_destroy(s);
    }
}
END_TEST

/* The model's bad tokens never come, whatever the request adds to them. */
START_TEST(test_bad_tokens) {
  static uint32_t never[VOCAB - 2]; /* more than a model has: all tokens but the last two */
  struct config c = simple(false, 4, 32, 40, 4, 40, 1);
  for (uint32_t i = 0; i < VOCAB - 2; i++) never[i] = i;
  c.model.bad = never, c.model.num_bad = VOCAB - 2;
  struct sim *s = sim_create(&c, 1);
  struct request *r = request_init(s, 0, 4, 30, 1, 1);
  struct tri_wire_bias bias = {.id = 1, .bias = 100};
  tri_error err = {0};
  r->assign.sampling.logit_bias = &bias, r->assign.sampling.num_logit_bias = 1;
  ck_assert_int_eq(arrive(s, r, &err), TRI_OK);
  ck_assert_int_eq(r->job->params.num_logit_bias, VOCAB - 1);
  ck_assert(r->job->params.logit_bias[0].bias == 100);
  for (int i = 1; i < VOCAB - 1; i++)
    ck_assert(r->job->params.logit_bias[i].id == (uint32_t)i - 1 && r->job->params.logit_bias[i].bias < -1e38f);
  sim_destroy(s);
}
END_TEST

START_TEST(test_refused) {
  static const struct {
    const char *field, *numbers[2];
    int prompt, beams, eos;
    tri_status status;
  } cases[] = {{"prompt", {"33", "max_model_len 32"}, 33, 1, 1, TRI_NO_CAPACITY},
               {"prompt", {"24", "max_num_batched_tokens 24"}, 24, 1, 1, TRI_NO_CAPACITY},
               {"num_beams", {"7", "max_num_seqs 6"}, 8, 7, 1, TRI_OUT_OF_RANGE},
               {"num_beams", {"6 beams", "can need 50 KV blocks, there are 20"}, 8, 6, 1, TRI_NO_CAPACITY},
               {"num_beams", {"24 best", "limit is 20"}, 8, 6, 3, TRI_OUT_OF_RANGE}};
  for (int i = 0; i < 5; i++) {
    static const uint32_t ends[] = {1, 2, 3};
    struct config c = simple(true, 6, 24, 32, 4, 20, 1);
    c.model.eos = ends, c.model.num_eos = cases[i].eos;
    struct sim *s = sim_create(&c, 1);
    struct request *r = request_init(s, 0, cases[i].prompt, -1, cases[i].beams, 1);
    tri_error err = {0};
    ck_assert_int_eq(arrive(s, r, &err), cases[i].status);
    ck_assert_str_eq(err.field, cases[i].field);
    for (int k = 0; k < 2; k++) ck_assert_msg(strstr(err.message, cases[i].numbers[k]), "%s", err.message);
    ck_assert_ptr_null(r->job);
    sim_destroy(s);
  }
}
END_TEST

/* Destroyed in the middle of its work, with searches in every state. */
START_TEST(test_destroy_busy) {
  for (int steps = 0; steps < 25; steps++) {
    struct config c = simple(true, 8, 32, 40, 4, 60, 6);
    struct sim *s = sim_create(&c, 8);
    for (int i = 0; i < c.jobs; i++) request_expect(s, request_init(s, i, 9, 9, 1 + i % 3, 1 + i % 3));
    for (int i = 0; i < steps; i++) iterate(s);
    sim_destroy(s);
  }
}
END_TEST

Suite *suite_beam_schedule(void) {
  Suite *suite = suite_create("beam_schedule");
  TCase *random = tcase_create("random"), *cases = tcase_create("cases");
  tcase_set_timeout(random, 120);
  tcase_add_loop_test(random, test_random_workloads, 0, 5);
  tcase_add_test(cases, test_abort_a_search);
  tcase_add_test(cases, test_small_outbox);
  tcase_add_test(cases, test_least_blocks);
  tcase_add_test(cases, test_shared_blocks);
  tcase_add_test(cases, test_bad_tokens);
  tcase_add_test(cases, test_refused);
  tcase_add_test(cases, test_destroy_busy);
  suite_add_tcase(suite, random);
  suite_add_tcase(suite, cases);
  return suite;
}
