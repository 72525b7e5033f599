/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/scheduler_kit.h"

#include <stdlib.h>
#include <string.h>

#include "base/wait.h"

enum { TEXT_ROOT = 1, SOURCE_ROOT = 2 }; /* the hash of nothing */

const uint32_t sim_eos[2] = {3, 5};

uint64_t sim_mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

int sim_range(struct sim *s, int lo, int hi) {
  s->rng = sim_mix(s->rng);
  return lo + (int)(s->rng % (uint64_t)(hi - lo + 1));
}

bool sim_chance(struct sim *s, int percent) { return sim_range(s, 1, 100) <= percent; }

int64_t sim_now(const struct sim *s) { return (s->iteration + 1) * (int64_t)MS; }

static uint64_t extend(uint64_t prefix, uint32_t token) { return sim_mix(prefix * 31 + token); }

static uint64_t extend_all(uint64_t h, const uint32_t *tokens, size_t n) {
  for (size_t i = 0; i < n; i++) h = extend(h, tokens[i]);
  return h;
}

static bool contains(const uint32_t *ids, int n, uint32_t id) {
  for (int i = 0; i < n; i++)
    if (ids[i] == id) return true;
  return false;
}

/* The ids that a draw may not give. */
struct barred {
  const uint32_t *banned;
  int num_banned;
  const tri_logit_bias *bias; /* those of minus infinity */
  int num_bias;
  const uint32_t *mask; /* NULL, or bits of the ids that may be drawn */
};

static bool may_come(const struct barred *b, uint32_t token) {
  for (int i = 0; i < b->num_bias; i++)
    if (b->bias[i].id == token && b->bias[i].bias < -1e30f) return false;
  return !contains(b->banned, b->num_banned, token) && (!b->mask || tri_mask_has(b->mask, token));
}

static uint32_t draw(uint64_t prefix, uint64_t seed, uint64_t counter, const struct barred *barred) {
  uint64_t x = sim_mix(prefix ^ sim_mix(seed) ^ counter * 77);
  for (;; x = sim_mix(x)) {
    uint32_t token = (uint32_t)(x % VOCAB);
    if (may_come(barred, token)) return token;
  }
}

/* The n best tokens behind a prefix. */
static void best_tokens(uint64_t prefix, int n, tri_sample_result *out) {
  float logprobs[VOCAB];
  for (uint32_t i = 0; i < VOCAB; i++)
    logprobs[i] = -(float)(sim_mix(prefix ^ (i * 77)) % 8192) / 1024 + (contains(sim_eos, 2, i) ? 1.5f : 0);
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

/* ---- the answers to a request that has the machine to itself ---- */

struct alone {
  const struct config *cfg;
  const tri_sampling *sampling;
  uint64_t root; /* of what stands in front of the answer */
  uint32_t stops[64];
  int num_stops, most;
  uint32_t mask[(VOCAB + 31) / 32];
};

static struct alone alone_of(const struct config *c, const struct request *r) {
  const tri_sampling *p = &r->assign.sampling;
  const tri_job_model *m = &c->model;
  struct alone a = {.cfg = c, .sampling = p};
  size_t n = r->assign.num_token_ids;
  a.most = c->limits.max_model_len - (c->limits.has_source ? m->num_start : (int)n);
  if (p->max_tokens >= 0 && p->max_tokens < a.most) a.most = (int)p->max_tokens;
  a.root = extend_all(c->limits.has_source ? SOURCE_ROOT : TEXT_ROOT, r->prompt, n);
  if (c->limits.has_source) a.root = extend_all(a.root, m->start, (size_t)m->num_start);
  for (int i = 0; !p->ignore_eos && i < m->num_eos; i++) a.stops[a.num_stops++] = m->eos[i];
  for (int i = 0; i < p->num_stop_token_ids; i++)
    if (!contains(a.stops, a.num_stops, p->stop_token_ids[i])) a.stops[a.num_stops++] = p->stop_token_ids[i];
  for (size_t i = 0; i < p->num_allowed_token_ids; i++) a.mask[r->allowed[i] / 32] |= 1u << r->allowed[i] % 32;
  return a;
}

/* Takes the tokens out that may not come yet, where others are left. */
static int without_stops(const struct alone *a, uint32_t *mask, int left) {
  const tri_sampling *p = a->sampling;
  int gone = 0;
  for (int i = 0; i < p->num_stop_token_ids; i++) {
    bool again = contains(p->stop_token_ids, i, p->stop_token_ids[i]);
    gone += !again && tri_mask_has(mask, p->stop_token_ids[i]);
  }
  if (gone == left) return left;
  for (int i = 0; i < p->num_stop_token_ids; i++) mask[p->stop_token_ids[i] / 32] &= ~(1u << p->stop_token_ids[i] % 32);
  return left - gone;
}

static void draw_constrained(const struct alone *a, uint64_t seed, struct choice *c) {
  constrained_walk walk;
  const tri_sampling *p = a->sampling;
  const tri_job_model *m = &a->cfg->model;
  uint64_t h = a->root;
  uint32_t mask[(VOCAB + 31) / 32];
  *c = (struct choice){.want_reason = TRI_FINISH_LENGTH};
  constrained_walk_begin(&walk, &p->constraint);
  while (c->num_want < a->most) {
    bool is_short = c->num_want < p->min_tokens;
    int left = constrained_walk_next(&walk, VOCAB, mask);
    if (is_short) left = without_stops(a, mask, left);
    c->bare = !left;
    if (c->bare) break;
    for (int i = 0; constrained_walk_may_end(&walk) && !is_short && !p->ignore_eos && i < m->num_eos; i++)
      mask[m->eos[i] / 32] |= 1u << m->eos[i] % 32;
    struct barred barred = {.mask = mask};
    uint32_t t = draw(h, seed, (uint64_t)c->num_want, &barred);
    c->want[c->num_want++] = t;
    h = extend(h, t);
    if (contains(m->eos, m->num_eos, t) || contains(a->stops, a->num_stops, t)) {
      c->want_reason = TRI_FINISH_STOP;
      break;
    }
    constrained_walk_take(&walk, t);
  }
  if (c->bare) c->want_reason = TRI_FINISH_STOP;
  if (c->bare) MUST(constrained_walk_may_end(&walk));
  constrained_walk_end(&walk);
}

static void draw_alone(const struct alone *a, uint64_t seed, struct choice *c) {
  tri_logit_bias never[TRI_MAX_STOP_IDS];
  const tri_job_model *m = &a->cfg->model;
  uint64_t h = a->root;
  ck_assert_int_le(m->num_bad, TRI_MAX_STOP_IDS);
  for (int i = 0; i < m->num_bad; i++) never[i] = (tri_logit_bias){m->bad[i], -1e38f};
  *c = (struct choice){.want_reason = TRI_FINISH_LENGTH};
  while (c->num_want < a->most) {
    struct barred barred = {.banned = a->stops, .bias = never, .num_bias = m->num_bad};
    if (c->num_want < a->sampling->min_tokens) barred.num_banned = a->num_stops;
    if (a->sampling->num_allowed_token_ids) barred.mask = a->mask;
    uint32_t t = draw(h, seed, (uint64_t)c->num_want, &barred);
    c->want[c->num_want++] = t;
    h = extend(h, t);
    if (!contains(a->stops, a->num_stops, t)) continue;
    c->want_reason = TRI_FINISH_STOP;
    return;
  }
}

static tri_beam_params beam_params(const struct alone *a) {
  const tri_sampling *p = a->sampling;
  const tri_job_model *m = &a->cfg->model;
  int given = a->cfg->limits.has_source ? m->num_start - 1 : 0;
  return (tri_beam_params){.num_beams = (int)p->num_beams,
                           .length_penalty = p->length_penalty,
                           .early_stopping = p->early_stopping,
                           .max_tokens = a->most + given,
                           .min_tokens = p->min_tokens ? (int)p->min_tokens + given : 0,
                           .given = given,
                           .eos = a->stops,
                           .num_eos = a->num_stops,
                           .bad = m->bad,
                           .num_bad = m->num_bad};
}

static void search_alone(const struct alone *a, struct request *r) {
  tri_beam_params p = beam_params(a);
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
  for (int k = 0; k < a->sampling->n; k++) {
    const tri_hypothesis *h = &b->answers[k];
    bool stop = contains(a->stops, a->num_stops, h->tokens[h->length - 1]);
    r->choice[k] = (struct choice){.num_want = h->length, .want_reason = stop ? TRI_FINISH_STOP : TRI_FINISH_LENGTH};
    memcpy(r->choice[k].want, h->tokens, (size_t)h->length * sizeof *h->tokens);
  }
  tri_beams_destroy(b);
}

void request_expect(struct sim *s, struct request *r) {
  struct alone a = alone_of(&s->cfg, r);
  if (r->assign.sampling.num_beams > 1) {
    search_alone(&a, r);
    return;
  }
  bool constrained = r->assign.sampling.constraint.kind != TRI_CONSTRAINT_NONE;
  for (uint32_t k = 0; k < (uint32_t)r->assign.sampling.n; k++)
    (constrained ? draw_constrained : draw_alone)(&a, r->assign.seed + k * 0x9e3779b97f4a7c15u, &r->choice[k]);
}

/* ---- set-up ---- */

void sim_add_host_blocks(struct sim *r, struct config *c) {
  tri_limits *l = &c->limits;
  if (sim_chance(r, 50)) return;
  l->num_host_blocks = sim_range(r, 1, sim_chance(r, 30) ? 8 : MAX_BLOCKS / l->block_size);
  if (!sim_chance(r, 40)) return;
  c->swap_cost.block_s = 1;
  c->swap_cost.token_s = sim_range(r, 1, 10) / (double)l->block_size / 4;
  c->swap_cost.free_tokens = sim_range(r, 0, 30);
  c->swap_cost.decode_s = sim_range(r, 0, 8);
}

static uint64_t collide(tri_sip_key key, const void *data, size_t len) {
  (void)key, (void)data, (void)len;
  return 7;
}

void sim_add_prefixes(struct sim *r, struct config *c) {
  c->limits.prefix_caching = sim_chance(r, 60);
  if (sim_chance(r, 20)) c->prefixes.hash = collide;
  c->follow_percent = sim_chance(r, 80) ? 60 : 0;
  c->salt_percent = sim_chance(r, 30) ? 30 : 0;
}

static void add_grammars(struct sim *s) {
  tri_job_model *m = &s->cfg.model;
  constrained_source_open(&s->grammars, VOCAB);
  ck_assert_int_eq(tri_mask_maker_create(NULL, &m->maker), TRI_OK);
  m->grammars = &s->grammars.source;
}

struct sim *sim_create(const struct config *cfg, uint64_t seed) {
  const tri_limits *l = &cfg->limits;
  struct sim *s = calloc(1, sizeof *s);
  ck_assert_ptr_nonnull(s);
  s->cfg = *cfg;
  if (!s->cfg.model.num_eos) s->cfg.model = (tri_job_model){.eos = sim_eos, .num_eos = 2};
  if (cfg->constrained_percent) add_grammars(s);
  s->rng = sim_mix(seed);
  ck_assert_int_le(l->num_blocks * l->block_size, MAX_BLOCKS);
  ck_assert_int_le(l->num_host_blocks * l->block_size, MAX_BLOCKS);
  ck_assert_int_le(l->max_num_seqs, MAX_SLOTS);
  ck_assert_int_le(l->max_model_len, MAX_LEN);
  tri_plan_sizes sizes = tri_limits_plan_sizes(l);
  tri_sched_config sc = {.limits = *l,
                         .num_micro_batches = cfg->micro_batches,
                         .prompt_tokens = cfg->prompt_tokens,
                         .depth = cfg->depth,
                         .swap_cost = cfg->swap_cost,
                         .prefixes = cfg->prefixes,
                         .by_priority = cfg->by_priority};
  ck_assert_int_eq(tri_sched_create(&sc, &s->sched), TRI_OK);
  ck_assert_int_eq(tri_plan_writer_create(&sizes, &s->writer), TRI_OK);
  ck_assert_int_eq(tri_outbox_init(&s->out, l->max_num_seqs), TRI_OK);
  s->outbox_cap = s->out.cap;
  for (int i = 0; i < 2; i++) {
    ck_assert_int_eq(tri_slots_create(l, &s->ranks[i].slots), TRI_OK);
    ck_assert_int_eq(tri_batch_builder_create(l, &s->ranks[i].batch), TRI_OK);
  }
  return s;
}

void sim_destroy(struct sim *s) {
  tri_sched_destroy(s->sched);
  tri_plan_writer_destroy(s->writer);
  tri_outbox_free(&s->out);
  tri_mask_maker_destroy(s->cfg.model.maker);
  constrained_source_close(&s->grammars);
  for (int i = 0; i < 2; i++) {
    tri_slots_destroy(s->ranks[i].slots);
    tri_batch_builder_destroy(s->ranks[i].batch);
  }
  free(s);
}

struct request *request_init(struct sim *s, int i, int prompt, int max_tokens, int n) {
  struct request *r = &s->requests[i];
  *r = (struct request){.abort_at = -1, .waited_ns = -1};
  r->assign = (tri_replica_assign){.job = 100 + (uint64_t)i, .remaining_ms = -1, .token_ids = r->prompt};
  r->assign.seed = sim_mix(s->rng + (uint64_t)i);
  r->assign.num_token_ids = (size_t)prompt;
  r->assign.sampling.n = n;
  r->assign.sampling.max_tokens = max_tokens;
  r->assign.sampling.logprobs = r->assign.sampling.prompt_logprobs = -1;
  r->assign.sampling.repetition_penalty = 1;
  for (int k = 0; k < prompt; k++) r->prompt[k] = (uint32_t)sim_range(s, 0, VOCAB - 1);
  return r;
}

tri_status sim_create_job(const struct sim *s, const struct request *r, tri_job **job, tri_error *err) {
  return tri_job_create(&r->assign, &s->cfg.limits, &s->cfg.model, sim_now(s), job, err);
}

/* Makes a search of a request, where its beams find blocks. */
static void make_search(struct sim *s, struct request *r) {
  const tri_sampling before = r->assign.sampling;
  tri_sampling *p = &r->assign.sampling;
  tri_error err;
  tri_job *job;
  p->num_beams = sim_range(s, 2, 4);
  p->n = sim_range(s, 1, (int)p->num_beams);
  p->max_tokens = sim_range(s, 2, 12);
  p->length_penalty = 1;
  p->logprobs = p->prompt_logprobs = -1;
  p->min_tokens = p->num_stop_token_ids = 0;
  p->ignore_eos = false;
  if (sim_create_job(s, r, &job, &err) == TRI_OK)
    tri_job_destroy(job);
  else
    *p = before;
}

/* Has the prompt begin like that of an earlier request, or with all of it and a part of its answer. */
static void follow(struct sim *s, int i, struct request *r) {
  const struct request *of = &s->requests[sim_range(s, 0, i - 1)];
  int n = (int)r->assign.num_token_ids, prompt = (int)of->assign.num_token_ids, answer = of->choice[0].num_want;
  int cut = sim_chance(s, 50) ? prompt + answer : sim_range(s, 0, prompt + answer);
  if (sim_chance(s, 50)) r->assign.num_token_ids = (size_t)(n = cut + 5 < MAX_LEN ? cut + 5 : cut);
  if (n >= s->cfg.limits.max_model_len) n = s->cfg.limits.max_model_len - 1;
  if (n < 1) n = 1;
  r->assign.num_token_ids = (size_t)n;
  for (int k = 0; k < n; k++) {
    if (k >= cut)
      r->prompt[k] = (uint32_t)sim_range(s, 0, VOCAB - 1);
    else
      r->prompt[k] = k < prompt ? of->prompt[k] : of->choice[0].want[k - prompt];
  }
}

/* Some requests name ids that alone may come, in any order and some twice. */
static void allow_some(struct request *r) {
  uint64_t x = sim_mix(r->assign.seed);
  tri_sampling *p = &r->assign.sampling;
  if (x % 4 || p->num_beams > 1 || p->constraint.kind != TRI_CONSTRAINT_NONE) return;
  p->allowed_token_ids = r->allowed;
  p->num_allowed_token_ids = 10 + x / 4 % (VOCAB - 10);
  for (size_t i = 0; i < p->num_allowed_token_ids; i++)
    r->allowed[i] = i < 10 ? 10 + (uint32_t)i * 7 : (uint32_t)((x = sim_mix(x)) % VOCAB);
}

/* Takes so many tokens of a choice as drawn. */
static void begin_choice(struct request *r, uint32_t k, int num, bool told) {
  tri_replica_assign *a = &r->assign;
  struct choice *c = &r->choice[k];
  c->got = num;
  c->ended = told;
  c->reason = c->want_reason;
  r->counts[k] = told ? TRI_SAMPLED_ENDED : (uint32_t)num;
  for (int i = 0; i < num && !told; i++) r->sampled[a->num_sampled++] = c->want[i];
}

void request_begin(struct sim *s, struct request *r) {
  tri_replica_assign *a = &r->assign;
  int prompt = (int)a->num_token_ids, n = (int)a->sampling.n, left = n;
  bool scores = a->sampling.prompt_logprobs >= 0, any = !scores || (a->sampling.max_tokens && sim_chance(s, 50));
  r->scored = scores && !any ? sim_range(s, 0, prompt - 1) : prompt - 1;
  if (scores) a->num_scored = (uint64_t)r->scored + 1;
  if (!scores) r->scored = 0;
  s->begun++;
  if (!any) return;
  for (uint32_t k = 0; k < (uint32_t)n; k++) {
    int want = r->choice[k].num_want, num = sim_chance(s, 20) ? want : sim_range(s, 0, want);
    bool told = num == want && left > 1 && sim_chance(s, 60);
    left -= told;
    begin_choice(r, k, num, told);
  }
  a->sampled = r->sampled;
  a->sampled_counts = r->counts;
  a->num_sampled_counts = (size_t)n;
}

void request_random(struct sim *s, int i) {
  static const tri_wire_str salts[2] = {{"one", 3}, {"two", 3}};
  int len = s->cfg.limits.max_model_len, longest = sim_chance(s, 30) ? len - 1 : 24;
  int prompt = sim_range(s, 1, longest < len - 1 ? longest : len - 1);
  struct request *r = request_init(s, i, prompt, sim_chance(s, 10) ? -1 : sim_range(s, 1, 40),
                                   sim_chance(s, 30) ? sim_range(s, 2, MAX_N) : 1);
  tri_sampling *p = &r->assign.sampling;
  if (i && s->cfg.follow_percent && sim_chance(s, s->cfg.follow_percent)) follow(s, i, r);
  if (s->cfg.salt_percent && sim_chance(s, s->cfg.salt_percent)) r->assign.cache_salt = salts[sim_range(s, 0, 1)];
  if (sim_chance(s, 30)) p->min_tokens = sim_range(s, 0, p->max_tokens > 0 ? (int)p->max_tokens : 10);
  p->ignore_eos = sim_chance(s, 30);
  p->num_stop_token_ids = sim_chance(s, 30) ? sim_range(s, 1, 3) : 0;
  for (int k = 0; k < p->num_stop_token_ids; k++) p->stop_token_ids[k] = (uint32_t)sim_range(s, 0, VOCAB - 1);
  if (sim_chance(s, 20)) p->logprobs = sim_range(s, 0, 5);
  if (sim_chance(s, 5)) p->repetition_penalty = 1.2f;
  p->priority = sim_range(s, -2, 2);
  r->arrive_at = sim_chance(s, 50) ? 0 : sim_range(s, 0, 60);
  if (sim_chance(s, 15)) r->abort_at = r->arrive_at + sim_range(s, 0, 50);
  if (sim_chance(s, 10)) r->assign.remaining_ms = sim_range(s, 0, 60);
  if (s->cfg.score_percent && sim_chance(s, s->cfg.score_percent)) {
    p->prompt_logprobs = sim_range(s, 0, 5);
    if (sim_chance(s, 30)) p->max_tokens = p->min_tokens = 0;
  }
  if (s->cfg.search_percent && sim_chance(s, s->cfg.search_percent)) make_search(s, r);
  if (s->cfg.constrained_percent && p->num_beams < 2 && p->max_tokens && sim_chance(s, s->cfg.constrained_percent))
    p->constraint = constrained_wire(sim_range(s, 0, CONSTRAINED_KINDS - 1));
  allow_some(r);
  request_expect(s, r);
  if (s->cfg.begun_percent && p->num_beams < 2 && sim_chance(s, s->cfg.begun_percent)) request_begin(s, r);
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

/* Moves blocks, each of which must be named once, and leaves nothing where they have been. */
static void move_blocks(struct sim *s, const int32_t *pairs, int n, bool out) {
  size_t bs = (size_t)s->cfg.limits.block_size;
  bool named[2][MAX_BLOCKS] = {{0}};
  for (int i = 0; i < n; i++) {
    size_t block = (size_t)pairs[2 * i], host = (size_t)pairs[2 * i + 1];
    MUST_SAY(!named[0][block] && !named[1][host], "block %zu or the host's %zu is moved twice", block, host);
    named[0][block] = named[1][host] = true;
    uint64_t *in_cache = &s->content[block * bs], *in_pool = &s->host[host * bs];
    memcpy(out ? in_pool : in_cache, out ? in_cache : in_pool, bs * sizeof *s->content);
    if (out && s->cfg.limits.prefix_caching) continue;
    memset(out ? in_cache : in_pool, 0xee, bs * sizeof *s->content);
  }
}

static void check_same_rows(const tri_batch *a, const tri_batch *b) {
  size_t t = (size_t)a->num_tokens, n = (size_t)a->num_seqs;
  MUST(a->num_tokens == b->num_tokens && a->num_seqs == b->num_seqs && a->num_logits == b->num_logits);
  if (!n) return;
  MUST(!memcmp(a->context_len, b->context_len, n * sizeof *a->context_len));
  MUST(!memcmp(a->seq_start, b->seq_start, (n + 1) * sizeof *a->seq_start));
  MUST(!memcmp(a->block_start, b->block_start, (n + 1) * sizeof *a->block_start));
  MUST(!memcmp(a->block_table, b->block_table, (size_t)a->block_start[n] * sizeof *a->block_table));
  if (a->kv_slot) MUST(!memcmp(a->kv_slot, b->kv_slot, t * sizeof *a->kv_slot));
}

/* Every rank must see the same step. */
static void check_same_batch(const tri_batch_builder *a, const tri_batch_builder *b) {
  size_t t = (size_t)a->batch.num_tokens;
  MUST(a->num_samples == b->num_samples);
  check_same_rows(&a->batch, &b->batch);
  check_same_rows(&a->source, &b->source);
  check_same_rows(&a->cross, &b->cross);
  MUST(!memcmp(a->batch.token_ids, b->batch.token_ids, t * sizeof *a->batch.token_ids));
  MUST(!memcmp(a->batch.positions, b->batch.positions, t * sizeof *a->batch.positions));
  MUST(!memcmp(a->batch.rope_len, b->batch.rope_len, t * sizeof *a->batch.rope_len));
}

static void compute_sources(struct sim *s, const tri_batch *b) {
  for (int q = 0; q < b->num_seqs; q++) {
    uint64_t h = SOURCE_ROOT;
    for (int t = b->seq_start[q]; t < b->seq_start[q + 1]; t++)
      *entry(s, tri_batch_blocks(b, q), t - b->seq_start[q]) = h = extend(h, b->token_ids[t]);
    s->sources++;
  }
}

/* Returns the number of the request whose sequence has the slot; -1: none's. */
static int request_in(const struct sim *s, uint32_t slot) {
  for (int i = 0; i < s->cfg.jobs; i++)
    for (int k = 0; s->requests[i].job && k < s->requests[i].job->num_seqs; k++)
      if (s->requests[i].job->seqs[k].slot == (int)slot) return i;
  return -1;
}

/* Cross-attention sees the whole source and nothing else. Returns what the answer's first entry follows. */
static uint64_t check_source(struct sim *s, const tri_batch_builder *b, int q, uint32_t slot) {
  uint64_t h = SOURCE_ROOT;
  if (!s->cfg.limits.has_source) return TEXT_ROOT;
  const tri_job *j = s->requests[request_in(s, slot)].job;
  MUST(b->cross.context_len[q] == j->num_source);
  for (int i = 0; i < j->num_source; i++) {
    h = extend(h, j->source[i]);
    MUST_SAY(*entry(s, tri_batch_blocks(&b->cross, q), i) == h, "entry %d of a source", i);
  }
  return h;
}

/* The live beams of a search are all in a step or none is. */
static void check_together(const struct sim *s, const int *seqs_of_request) {
  for (int i = 0; i < s->cfg.jobs; i++) {
    const tri_job *j = s->requests[i].job;
    if (j && j->search && seqs_of_request[i]) MUST(seqs_of_request[i] == j->search->beams->num_live);
  }
}

/* Returns the token as the embedding takes it. */
static uint32_t known(const struct sim *s, uint32_t id) {
  uint32_t token = id & TRI_SAMPLED_ID ? s->sampled[id & ~TRI_SAMPLED_ID] : id;
  MUST(token < VOCAB);
  return token;
}

/* One sequence's tokens: writes their entries and checks all entries that attention would read. */
static void execute_sequence(struct sim *s, const tri_batch_builder *b, int q, const tri_plan_seq *p) {
  const tri_slot *slot = &s->ranks[0].slots->slots[p->slot];
  const int32_t *blocks = tri_batch_blocks(&b->batch, q);
  int first = b->batch.seq_start[q], n = b->batch.seq_start[q + 1] - first;
  MUST(n >= 1);
  MUST(b->batch.context_len[q] == (int)p->start + n);
  uint64_t root = check_source(s, b, q, p->slot), h = root;
  for (int i = 0; i < n; i++) {
    int pos = (int)p->start + i, t = first + i;
    MUST(b->batch.positions[t] == pos);
    MUST(b->batch.rope_len[t] == (pos + 1 > slot->num_prompt ? pos + 1 : slot->num_prompt));
    uint64_t *e = entry(s, blocks, pos);
    MUST(e == &s->content[b->batch.kv_slot[t]]);
    *e = extend(pos ? *entry(s, blocks, pos - 1) : root, known(s, b->batch.token_ids[t]));
  }
  for (int pos = 0; pos < b->batch.context_len[q]; pos++) {
    h = extend(h, known(s, slot->history[pos]));
    MUST_SAY(*entry(s, blocks, pos) == h, "slot %u: the entry of position %d is not its own", p->slot, pos);
  }
}

/* A logprob that no other token, and no other tokens in front of it, would have. */
static float score_of(uint64_t prefix, uint32_t token) { return -(float)(sim_mix(prefix ^ token) % 4096); }

static tri_sample_result score(struct sim *s, const tri_sample_row *d, const tri_slot *slot) {
  int n = slot->params.num_logprobs;
  MUST(n >= 0 && d->position <= slot->length);
  if (d->position < slot->length) MUST(d->target == slot->history[d->position]);
  tri_sample_result r = {.token = d->target, .num_top = n};
  r.logprob = score_of(*entry(s, slot->blocks, d->position - 1), d->target);
  for (int k = 0; k < n; k++) {
    r.top_ids[k] = d->target + (uint32_t)k;
    r.top_logprobs[k] = (float)k;
  }
  s->scored++;
  return r;
}

/* A sampler that counts ids must see all that there are with a sequence's first draw, and with no later one. */
static void check_counted(struct sim *s, const tri_sample_row *d, const tri_slot *slot) {
  tri_counted *c = &s->counted[d->slot];
  bool known = c->life == d->life + 1, anew = tri_counts_anew(c, d);
  MUST(anew == !known);
  if (anew) MUST(slot->num_history == slot->length);
}

/* A slot that belongs to no request here is a shard's: its searches ask for more alternatives than a request may. */
static bool is_search(const struct sim *s, uint32_t slot, const tri_sample_params *p) {
  int i = request_in(s, slot);
  return i < 0 ? p->num_logprobs > MAX_LOGPROBS : s->requests[i].job->search != NULL;
}

static void execute_draws(struct sim *s, const tri_batch_builder *b, struct result *out) {
  tri_slots *slots = s->ranks[0].slots;
  out->r.tokens = out->tokens;
  for (int i = 0; i < b->num_samples; i++) {
    const tri_sample_row *d = &b->samples[i];
    const tri_slot *slot = &slots->slots[d->slot];
    const tri_sample_params *p = &slot->params;
    out->samples[i] = *d;
    if (d->target != TRI_SAMPLE_NO_TARGET) {
      out->tokens[out->r.num_tokens++] = (tri_step_token){d->slot, (uint32_t)d->position, score(s, d, slot)};
      s->sampled[i] = VOCAB;
      continue;
    }
    MUST((int)d->counter == d->position - slot->num_prompt);
    MUST(d->position == slot->length);
    if (p->repetition_penalty != 1) check_counted(s, d, slot);
    struct barred barred = {.banned = p->banned,
                            .num_banned = d->ban ? p->num_banned : 0,
                            .bias = p->logit_bias,
                            .num_bias = p->num_logit_bias,
                            .mask = p->mask};
    uint32_t t = draw(*entry(s, slot->blocks, slot->length - 1), p->seed, d->counter, &barred);
    tri_sample_result sample = {.token = t, .logprob = -(float)t, .num_top = p->num_logprobs > 0 ? p->num_logprobs : 0};
    if (is_search(s, d->slot, p))
      best_tokens(*entry(s, slot->blocks, slot->length - 1), p->num_logprobs, &sample);
    else
      for (int k = 0; k < sample.num_top; k++) sample.top_ids[k] = t + (uint32_t)k, sample.top_logprobs[k] = (float)k;
    out->tokens[out->r.num_tokens++] = (tri_step_token){d->slot, 0, sample};
    s->sampled[i] = t;
  }
}

void sim_execute(struct sim *s, int micro_batch) {
  size_t len;
  tri_plan_view plan;
  const void *bytes = tri_plan_finish(s->writer, &len);
  bool used[MAX_SLOTS] = {0};
  int seqs_of_request[MAX_JOBS] = {0};
  MUST(len <= tri_plan_max_bytes(s->writer));
  MUST(tri_plan_read(bytes, len, &plan) == TRI_OK);
  MUST(plan.h.micro_batch == (uint32_t)micro_batch);
  MUST(plan.h.num_tokens <= (uint32_t)s->cfg.limits.max_num_batched_tokens);
  for (int i = 0; i < 2; i++) MUST(tri_batch_build(s->ranks[i].batch, s->ranks[i].slots, &plan) == TRI_OK);
  const tri_batch_builder *b = s->ranks[0].batch;
  check_same_batch(b, s->ranks[1].batch);
  move_blocks(s, b->swaps_out, b->num_swaps_out, true);
  copy_blocks(s, b);
  move_blocks(s, b->swaps_in, b->num_swaps_in, false);
  compute_sources(s, &b->source);
  int q = 0;
  for (uint32_t i = 0; i < plan.h.num_seqs; i++) {
    const tri_plan_seq *p = &plan.seqs[i];
    if (p->kind == TRI_SEQ_FORK) {
      s->forks++;
      continue;
    }
    s->resumed += p->kind == TRI_SEQ_RESUME;
    if (p->kind == TRI_SEQ_RESUME || p->kind == TRI_SEQ_SOURCE) continue;
    MUST_SAY(!used[p->slot], "slot %u has tokens twice in one step", p->slot);
    used[p->slot] = true;
    s->ahead += (p->flags & TRI_SEQ_FLAG_TOKEN_IN_SLOT) != 0;
    int request = request_in(s, p->slot);
    if (request >= 0) seqs_of_request[request]++;
    execute_sequence(s, b, q++, p);
  }
  MUST(q == b->batch.num_seqs);
  check_together(s, seqs_of_request);
  s->tokens += b->batch.num_tokens;
  struct result *r = &s->results[s->num_results++];
  *r = (struct result){.micro_batch = micro_batch, .r = {.step = plan.h.step, .micro_batch = plan.h.micro_batch}};
  execute_draws(s, b, r);
  s->steps++;
}

/* ---- what the scheduler says ---- */

static void check_tops(const tri_replica_token *t, int64_t n) {
  MUST(t->num_top == n);
  for (int k = 0; k < t->num_top; k++) {
    MUST(t->top_ids[k] == t->token + (uint32_t)k);
    MUST(t->top_logprobs[k] == (float)k);
  }
}

static void check_logprobs(const struct request *r, const tri_replica_token *t) {
  int64_t n = r->assign.sampling.logprobs;
  MUST(!!(t->flags & TRI_TOKEN_LOGPROB) == (n >= 0));
  if (n < 0) return;
  MUST(t->logprob == -(float)t->token);
  check_tops(t, n);
}

/* The tokens of a prompt come once each, in order, as the prompt alone has them. */
static void hear_score(struct request *r, const tri_replica_token *t) {
  uint64_t h = 1;
  int at = ++r->scored;
  MUST(r->assign.sampling.prompt_logprobs >= 0 && t->flags & TRI_TOKEN_LOGPROB && !t->choice);
  MUST(t->offset == (uint64_t)at && at < (int)r->assign.num_token_ids && t->token == r->prompt[at]);
  for (int k = 0; k < at; k++) h = extend(h, r->prompt[k]);
  MUST_SAY(t->logprob == score_of(h, t->token), "token %d of the prompt of job %d", at, (int)t->job);
  check_tops(t, r->assign.sampling.prompt_logprobs);
}

static bool is_scored(const struct request *r) {
  return r->assign.sampling.prompt_logprobs < 0 || r->scored + 1 == (int)r->assign.num_token_ids;
}

void sim_hear(struct sim *s, const tri_replica_token *t) {
  MUST_SAY(t->job >= 100 && t->job < 100 + (uint64_t)s->cfg.jobs, "news of an unknown job");
  struct request *r = &s->requests[t->job - 100];
  MUST((int)t->choice < (int)r->assign.sampling.n);
  if (t->flags & TRI_TOKEN_PREEMPTED) {
    MUST(t->preemptions > r->preemptions);
    r->preemptions = t->preemptions;
  }
  if (t->flags & TRI_TOKEN_WAITED) {
    MUST(r->waited_ns < 0);
    r->waited_ns = (int64_t)t->waited_ns;
  }
  if (t->flags & TRI_TOKEN_CACHED) {
    MUST(t->flags & TRI_TOKEN_WAITED && t->cached > 0 &&
         t->cached < r->assign.num_token_ids + (r->assign.num_sampled_counts > 0));
    r->cached = (int)t->cached;
  }
  struct choice *c = &r->choice[t->choice];
  MUST_SAY(!c->ended, "news of a choice that has ended");
  if (t->flags & TRI_TOKEN_PROMPT) {
    hear_score(r, t);
    return;
  }
  MUST(t->choice || t->reason == TRI_FINISH_ABORT || is_scored(r));
  MUST(t->offset == (uint64_t)c->got);
  bool last = c->got + 1 == c->num_want && !c->bare;
  if (t->flags & TRI_TOKEN_NONE) {
    MUST(t->flags & TRI_TOKEN_LAST);
  } else {
    MUST(r->waited_ns >= 0);
    MUST_SAY(c->got < c->num_want && t->token == c->want[c->got], "job %d choice %u: token %d is %u, alone %u",
             (int)t->job, t->choice, c->got, t->token, c->want[c->got]);
    if (!c->got++) c->first_step = s->steps;
    c->last_step = s->steps;
    check_logprobs(r, t);
    MUST(!!(t->flags & TRI_TOKEN_LAST) == last);
    MUST(!!(t->flags & TRI_TOKEN_STOP_ID) == (last && c->want_reason == TRI_FINISH_STOP));
  }
  if (!(t->flags & TRI_TOKEN_LAST)) return;
  c->ended = true;
  c->reason = t->reason;
}

void sim_drain(struct sim *s) {
  for (uint32_t i = 0; i < s->out.num; i++) sim_hear(s, &s->out.tokens[i]);
  s->out.num = 0;
  for (tri_job *j; (j = tri_sched_retired(s->sched));) {
    s->requests[j->id - 100].job = NULL;
    tri_job_destroy(j);
  }
}

/* The owners of blocks and slots, by what sequences hold. */
struct books {
  int owner[MAX_BLOCKS], host_owner[MAX_BLOCKS]; /* numbers of requests, from 1 on */
  bool slots[MAX_SLOTS];
  uint64_t used, on_host;
  uint32_t running;
};

static void book_blocks(const struct sim *s, struct books *b, const int32_t *blocks, int n, int request) {
  for (int p = 0; p < n; p++) {
    int *o = &b->owner[blocks[p]];
    MUST_SAY(!*o || *o == request + 1 || s->cfg.limits.prefix_caching, "block %d belongs to two jobs", blocks[p]);
    b->used += !*o;
    *o = request + 1;
  }
}

/* The blocks of the slot, as its rank was told. */
static void check_slot(const struct sim *s, const tri_sequence *q) {
  const tri_slot *slot = &s->ranks[0].slots->slots[q->slot];
  for (int p = 0; p < q->num_blocks && !q->fresh && !q->fork_of; p++)
    MUST_SAY(slot->blocks[p] == q->blocks[p], "slot %d was not told of its block %d", q->slot, p);
  for (int p = 0; p < q->num_source_blocks && !q->fork_of; p++)
    MUST_SAY(slot->source_blocks[p] == q->source_blocks[p], "slot %d was not told of block %d of its source", q->slot,
             p);
}

static void book_sequence(const struct sim *s, struct books *b, const tri_sequence *q, int request) {
  const tri_sequence *first = &q->job->seqs[0];
  MUST(!q->num_host_blocks || q->state == TRI_SCHED_WAITING || (q->swapped && !q->num_blocks));
  for (int p = 0; p < q->num_host_blocks; p++, b->on_host++)
    MUST_SAY(!b->host_owner[q->host_blocks[p]]++, "the host's block %d has two owners", q->host_blocks[p]);
  if (q->job->search) MUST((q->state == TRI_SCHED_RUNNING) == (first->state == TRI_SCHED_RUNNING));
  if (q->state != TRI_SCHED_RUNNING) {
    MUST(!q->num_blocks && !q->num_source_blocks);
    return;
  }
  if (q->job->search) MUST(q->micro_batch == first->micro_batch);
  b->running++;
  MUST_SAY(!b->slots[q->slot], "slot %d has two owners", q->slot);
  b->slots[q->slot] = true;
  int blocks = q->swapped ? q->num_host_blocks : q->num_blocks;
  if (blocks || !q->job->search) MUST(blocks * s->cfg.limits.block_size >= q->num_computed);
  book_blocks(s, b, q->blocks, q->num_blocks, request);
  book_blocks(s, b, q->source_blocks, q->num_source_blocks, request);
  check_slot(s, q);
}

void sim_check_books(struct sim *s) {
  static struct books b;
  memset(&b, 0, sizeof b);
  for (int i = 0; i < s->cfg.jobs; i++)
    for (int k = 0; s->requests[i].job && k < s->requests[i].job->num_seqs; k++)
      book_sequence(s, &b, &s->requests[i].job->seqs[k], i);
  tri_sched_stats st = tri_sched_get_stats(s->sched);
  MUST(st.blocks_used == b.used);
  MUST(st.host_blocks_used == b.on_host);
  MUST(st.running == b.running);
  if (b.used > s->most_blocks) s->most_blocks = b.used;
}

/* ---- the loop ---- */

void sim_make_job(struct sim *s, struct request *r) {
  tri_error err = {0};
  ck_assert_msg(sim_create_job(s, r, &r->job, &err) == TRI_OK, "%s: %s", err.field, err.message);
  r->arrived = true;
}

void sim_arrive(struct sim *s, struct request *r) {
  sim_make_job(s, r);
  tri_sched_add(s->sched, r->job);
}

/* Beams of a search end together. */
static bool under_way(const struct sim *s, const tri_sequence *q) {
  if (q->job->search) return tri_job_under_way(s->sched, q->job);
  for (int i = 0; i < s->num_results; i++)
    if (q->state == TRI_SCHED_RUNNING && s->results[i].r.step == q->last_step) return true;
  return false;
}

/* Sequences that are aborted hold nothing after the reap, unless a step of them is under way. */
static void check_reaped(const struct sim *s) {
  for (int i = 0; i < s->cfg.jobs; i++) {
    const tri_job *j = s->requests[i].job;
    for (int k = 0; j && j->aborted && k < j->num_seqs; k++)
      ck_assert(j->seqs[k].state == TRI_SCHED_ENDED || under_way(s, &j->seqs[k]));
  }
}

/* An outbox as it was made has room for everything but the whole answers of searches. */
static bool may_fill(const struct sim *s) {
  for (int i = 0; i < s->cfg.jobs; i++)
    if (s->requests[i].assign.sampling.num_beams > 1) return true;
  return s->out.cap < s->outbox_cap;
}

void sim_take_events(struct sim *s) {
  for (int i = 0; i < s->cfg.jobs; i++) {
    struct request *r = &s->requests[i];
    if (!r->arrived && r->arrive_at <= s->iteration) sim_arrive(s, r);
    if (r->abort_at == s->iteration) ck_assert_int_eq(tri_sched_abort(s->sched, r->assign.job), r->job != NULL);
  }
  while (!tri_sched_reap(s->sched, sim_now(s), &s->out)) {
    MUST(s->out.num == s->out.cap && may_fill(s));
    sim_drain(s);
  }
  check_reaped(s);
  sim_drain(s);
}

void sim_take_result(struct sim *s, struct result *r) {
  *r = s->results[0];
  s->num_results--;
  memmove(s->results, s->results + 1, (size_t)s->num_results * sizeof *s->results);
  r->r.tokens = r->tokens;
  for (uint32_t i = 0; i < r->r.num_tokens; i++)
    tri_slot_learn(s->ranks[0].slots, &r->samples[i], r->tokens[i].sample.token);
}

void sim_return_result(struct sim *s) {
  struct result r;
  sim_take_result(s, &r);
  tri_sched_absorb(s->sched, r.micro_batch, &r.r, &s->out);
  sim_drain(s);
}

static bool all_arrived(const struct sim *s) {
  for (int i = 0; i < s->cfg.jobs; i++)
    if (!s->requests[i].arrived) return false;
  return true;
}

static int count_left_out(const struct sim *s, int micro_batch) {
  int n = 0;
  for (const tri_sequence *q = s->sched->micro_batches[micro_batch].running.head; q; q = q->next) n += q->mask_late;
  return n;
}

bool sim_iterate(struct sim *s) {
  bool moved = s->num_results > 0;
  if (s->cfg.model.maker && !sim_chance(s, s->cfg.slow_masks_percent)) tri_mask_maker_run(s->cfg.model.maker);
  sim_take_events(s);
  for (int micro_batch = 0; micro_batch < s->cfg.micro_batches; micro_batch++)
    while (!tri_sched_micro_batch_busy(s->sched, micro_batch) && tri_sched_compose(s->sched, micro_batch, s->writer)) {
      sim_execute(s, micro_batch);
      sim_check_books(s);
      s->left_out += count_left_out(s, micro_batch);
      moved = true;
    }
  do {
    if (s->num_results) sim_return_result(s);
  } while (s->num_results && !sim_chance(s, s->cfg.late_percent));
  sim_check_books(s);
  s->iteration++;
  if (!moved && s->cfg.model.maker) tri_mask_maker_run(s->cfg.model.maker);
  return moved;
}

void sim_run(struct sim *s) {
  int most = 100, idle = 0;
  for (int i = 0; i < s->cfg.jobs; i++)
    most += s->requests[i].arrive_at + 20 * (int)s->requests[i].assign.sampling.n * s->cfg.limits.max_model_len;
  while (!all_arrived(s) || tri_sched_has_work(s->sched)) {
    bool work = tri_sched_has_work(s->sched);
    idle = sim_iterate(s) || !work ? 0 : idle + 1;
    ck_assert_msg(idle < 4, "work waits and nothing runs");
    ck_assert_msg(s->iteration < most, "not done after %d iterations", most);
  }
  tri_sched_stats st = tri_sched_get_stats(s->sched);
  ck_assert_uint_eq(st.blocks_used, 0);
  ck_assert_uint_eq(st.host_blocks_used, 0);
  ck_assert_uint_eq(st.running, 0);
  ck_assert_uint_eq(st.waiting, 0);
}

void sim_check_told(const struct sim *s, uint64_t preemptions) {
  uint64_t told = 0;
  for (int i = 0; i < s->cfg.jobs; i++) {
    const struct request *r = &s->requests[i];
    bool may_abort = r->abort_at >= 0 || r->assign.remaining_ms >= 0;
    for (int k = 0; k < r->assign.sampling.n; k++) {
      const struct choice *c = &r->choice[k];
      ck_assert_msg(c->ended, "job %d choice %d never ended", i, k);
      if (may_abort && c->reason == TRI_FINISH_ABORT) continue;
      ck_assert_int_eq(c->got, c->num_want);
      ck_assert_int_eq(c->reason, c->want_reason);
    }
    told += r->preemptions;
  }
  ck_assert_uint_eq(told, preemptions); /* each before its job's end */
}

void sim_check_answers(const struct sim *s) { sim_check_told(s, tri_sched_get_stats(s->sched).preemptions); }
