/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/scheduler_kit.h"

#include <stdlib.h>
#include <string.h>

#include "base/wait.h"

static const uint32_t eos[] = {3, 5};
static const tri_job_model model = {.eos = eos, .num_eos = 2};

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

static bool contains(const uint32_t *ids, int n, uint32_t id) {
  for (int i = 0; i < n; i++)
    if (ids[i] == id) return true;
  return false;
}

/* mask: NULL, or bits of the ids that may be drawn. */
static uint32_t draw(uint64_t prefix, uint64_t seed, uint64_t counter, const uint32_t *banned, int num_banned,
                     const uint32_t *mask) {
  uint64_t x = sim_mix(prefix ^ sim_mix(seed) ^ counter * 77);
  for (;; x = sim_mix(x)) {
    uint32_t token = (uint32_t)(x % VOCAB);
    if (!contains(banned, num_banned, token) && (!mask || tri_mask_has(mask, token))) return token;
  }
}

static int stop_ids(const tri_sampling *p, uint32_t out[]) {
  int n = 0;
  for (int i = 0; !p->ignore_eos && i < 2; i++) out[n++] = eos[i];
  for (int i = 0; i < p->num_stop_token_ids; i++) out[n++] = p->stop_token_ids[i];
  return n;
}

/* The n best tokens behind a prefix. */
static void best_tokens(uint64_t prefix, int n, tri_sample_result *out) {
  float logprobs[VOCAB];
  for (uint32_t i = 0; i < VOCAB; i++)
    logprobs[i] = -(float)(sim_mix(prefix ^ (i * 77)) % 8192) / 1024 + (contains(eos, 2, i) ? 1.5f : 0);
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

/* The answers of a search that has the machine to itself. */
static void search_alone(struct request *r, int max_model_len) {
  const tri_sampling *p = &r->assign.sampling;
  int prompt = (int)r->assign.num_token_ids, room = max_model_len - prompt;
  uint32_t stops[64];
  tri_beam_params params = {.num_beams = (int)p->num_beams,
                            .length_penalty = p->length_penalty,
                            .max_tokens = p->max_tokens < 0 || p->max_tokens > room ? room : (int)p->max_tokens,
                            .min_tokens = (int)p->min_tokens,
                            .eos = stops,
                            .num_eos = stop_ids(p, stops)};
  tri_beams *b;
  ck_assert_int_eq(tri_beams_create(&params, &b), TRI_OK);
  while (!b->done) {
    tri_sample_result drawn[TRI_MAX_BEAMS];
    const tri_sample_result *of_beam[TRI_MAX_BEAMS];
    for (int i = 0; i < b->num_live; i++) {
      uint64_t h = 1;
      for (int k = 0; k < prompt; k++) h = extend(h, r->prompt[k]);
      for (int k = 0; k < b->beams[i].length; k++) h = extend(h, b->beams[i].tokens[k]);
      best_tokens(h, tri_beam_alternatives(&params), &drawn[i]);
      of_beam[i] = &drawn[i];
    }
    tri_beams_advance(b, of_beam);
  }
  for (int k = 0; k < p->n; k++) {
    const tri_hypothesis *h = &b->answers[k];
    bool stop = contains(stops, params.num_eos, h->tokens[h->length - 1]);
    r->choice[k] = (struct choice){.num_want = h->length, .want_reason = stop ? TRI_FINISH_STOP : TRI_FINISH_LENGTH};
    memcpy(r->choice[k].want, h->tokens, (size_t)h->length * sizeof *h->tokens);
  }
  tri_beams_destroy(b);
}

/* The answer to a request that has the machine to itself. */
static void answer_alone(const struct request *r, int max_model_len, uint32_t index, struct choice *c) {
  const tri_sampling *p = &r->assign.sampling;
  int prompt = (int)r->assign.num_token_ids, room = max_model_len - prompt, num_stops;
  int most = p->max_tokens < 0 || p->max_tokens > room ? room : (int)p->max_tokens;
  uint32_t stops[64], mask[(VOCAB + 31) / 32] = {0};
  for (size_t i = 0; i < p->num_allowed_token_ids; i++) mask[r->allowed[i] / 32] |= 1u << r->allowed[i] % 32;
  uint64_t h = 1, seed = r->assign.seed + index * 0x9e3779b97f4a7c15u;
  num_stops = stop_ids(p, stops);
  for (int i = 0; i < prompt; i++) h = extend(h, r->prompt[i]);
  *c = (struct choice){.want_reason = TRI_FINISH_LENGTH};
  while (c->num_want < most) {
    uint32_t t = draw(h, seed, (uint64_t)c->num_want, stops, c->num_want < p->min_tokens ? num_stops : 0,
                      p->num_allowed_token_ids ? mask : NULL);
    c->want[c->num_want++] = t;
    h = extend(h, t);
    if (!contains(stops, num_stops, t)) continue;
    c->want_reason = TRI_FINISH_STOP;
    return;
  }
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

struct sim *sim_create(const struct config *cfg, uint64_t seed) {
  const tri_limits *l = &cfg->limits;
  struct sim *s = calloc(1, sizeof *s);
  ck_assert_ptr_nonnull(s);
  s->cfg = *cfg;
  s->rng = sim_mix(seed);
  ck_assert_int_le(l->num_blocks * l->block_size, MAX_BLOCKS);
  ck_assert_int_le(l->num_host_blocks * l->block_size, MAX_BLOCKS);
  ck_assert_int_le(l->max_num_seqs, MAX_SLOTS);
  ck_assert_int_le(l->max_model_len, MAX_LEN);
  tri_plan_sizes sizes = tri_limits_plan_sizes(l);
  tri_sched_config sc = {.limits = *l,
                         .num_lanes = cfg->lanes,
                         .prompt_tokens = cfg->prompt_tokens,
                         .depth = cfg->depth,
                         .swap_cost = cfg->swap_cost,
                         .prefixes = cfg->prefixes,
                         .by_priority = cfg->by_priority,
                         .whole_batches = cfg->whole_batches};
  ck_assert_int_eq(tri_sched_create(&sc, &s->sched), TRI_OK);
  ck_assert_int_eq(tri_plan_writer_create(&sizes, &s->writer), TRI_OK);
  ck_assert_int_eq(tri_outbox_init(&s->out, l->max_num_seqs), TRI_OK);
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
  for (int i = 0; i < 2; i++) {
    tri_slots_destroy(s->ranks[i].slots);
    tri_batch_builder_destroy(s->ranks[i].batch);
  }
  free(s);
}

struct request *request_init(struct sim *s, int i, int prompt, int max_tokens, int n) {
  struct request *r = &s->requests[i];
  *r = (struct request){.abort_at = -1, .waited_ns = -1};
  r->assign = (tri_group_assign){.job = 100 + (uint64_t)i, .remaining_ms = -1, .token_ids = r->prompt};
  r->assign.seed = sim_mix(s->rng + (uint64_t)i);
  r->assign.num_token_ids = (size_t)prompt;
  r->assign.sampling.n = n;
  r->assign.sampling.max_tokens = max_tokens;
  r->assign.sampling.logprobs = r->assign.sampling.prompt_logprobs = -1;
  r->assign.sampling.repetition_penalty = 1;
  for (int k = 0; k < prompt; k++) r->prompt[k] = (uint32_t)sim_range(s, 0, VOCAB - 1);
  return r;
}

void request_expect(struct sim *s, struct request *r) {
  if (r->assign.sampling.num_beams > 1) {
    search_alone(r, s->cfg.limits.max_model_len);
    return;
  }
  for (uint32_t k = 0; k < (uint32_t)r->assign.sampling.n; k++)
    answer_alone(r, s->cfg.limits.max_model_len, k, &r->choice[k]);
}

static tri_status create_job(const struct sim *s, const struct request *r, tri_job **job, tri_error *err) {
  return tri_job_create(&r->assign, &s->cfg.limits, &model, sim_now(s), job, err);
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
  if (create_job(s, r, &job, &err) == TRI_OK)
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
  if (x % 4 || p->num_beams > 1) return;
  p->allowed_token_ids = r->allowed;
  p->num_allowed_token_ids = 10 + x / 4 % (VOCAB - 10);
  for (size_t i = 0; i < p->num_allowed_token_ids; i++)
    r->allowed[i] = i < 10 ? 10 + (uint32_t)i * 7 : (uint32_t)((x = sim_mix(x)) % VOCAB);
}

/* Takes so many tokens of a choice as drawn. */
static void begin_choice(struct request *r, uint32_t k, int num, bool told) {
  tri_group_assign *a = &r->assign;
  struct choice *c = &r->choice[k];
  c->got = num;
  c->ended = told;
  c->reason = c->want_reason;
  r->counts[k] = told ? TRI_DRAWN_ENDED : (uint32_t)num;
  for (int i = 0; i < num && !told; i++) r->drawn[a->num_drawn++] = c->want[i];
}

void request_begin(struct sim *s, struct request *r) {
  tri_group_assign *a = &r->assign;
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
  a->drawn = r->drawn;
  a->drawn_counts = r->counts;
  a->num_drawn_counts = (size_t)n;
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

/* Every rank must see the same step. */
static void check_same_batch(const tri_batch_builder *a, const tri_batch_builder *b) {
  size_t t = (size_t)a->batch.num_tokens, n = (size_t)a->batch.num_seqs;
  MUST(a->batch.num_tokens == b->batch.num_tokens);
  MUST(a->batch.num_seqs == b->batch.num_seqs);
  MUST(a->batch.num_logits == b->batch.num_logits);
  MUST(a->num_draws == b->num_draws);
  MUST(!memcmp(a->batch.token_ids, b->batch.token_ids, t * sizeof *a->batch.token_ids));
  MUST(!memcmp(a->batch.positions, b->batch.positions, t * sizeof *a->batch.positions));
  MUST(!memcmp(a->batch.rope_len, b->batch.rope_len, t * sizeof *a->batch.rope_len));
  MUST(!memcmp(a->batch.kv_slot, b->batch.kv_slot, t * sizeof *a->batch.kv_slot));
  MUST(!memcmp(a->batch.context_len, b->batch.context_len, n * sizeof *a->batch.context_len));
  MUST(!memcmp(a->batch.seq_start, b->batch.seq_start, (n + 1) * sizeof *a->batch.seq_start));
}

/* Returns the token as the embedding takes it. */
static uint32_t known(const struct sim *s, uint32_t id) {
  uint32_t token = id & TRI_DRAWN_ID ? s->drawn[id & ~TRI_DRAWN_ID] : id;
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
  for (int i = 0; i < n; i++) {
    int pos = (int)p->start + i, t = first + i;
    MUST(b->batch.positions[t] == pos);
    MUST(b->batch.rope_len[t] == (pos + 1 > slot->num_prompt ? pos + 1 : slot->num_prompt));
    uint64_t *e = entry(s, blocks, pos);
    MUST(e == &s->content[b->batch.kv_slot[t]]);
    *e = extend(pos ? *entry(s, blocks, pos - 1) : 1, known(s, b->batch.token_ids[t]));
  }
  uint64_t h = 1;
  for (int pos = 0; pos < b->batch.context_len[q]; pos++) {
    h = extend(h, known(s, slot->history[pos]));
    MUST_SAY(*entry(s, blocks, pos) == h, "slot %u: the entry of position %d is not its own", p->slot, pos);
  }
}

/* A logprob that no other token, and no other tokens in front of it, would have. */
static float score_of(uint64_t prefix, uint32_t token) { return -(float)(sim_mix(prefix ^ token) % 4096); }

static tri_sample_result score(struct sim *s, const tri_draw *d, const tri_slot *slot) {
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
static void check_counted(struct sim *s, const tri_draw *d, const tri_slot *slot) {
  tri_counted *c = &s->counted[d->slot];
  bool known = c->life == d->life + 1, anew = tri_counts_anew(c, d);
  MUST(anew == !known);
  if (anew) MUST(slot->num_history == slot->length);
}

static void execute_draws(struct sim *s, const tri_batch_builder *b, struct result *out) {
  tri_slots *slots = s->ranks[0].slots;
  out->r.tokens = out->tokens;
  for (int i = 0; i < b->num_draws; i++) {
    const tri_draw *d = &b->draws[i];
    const tri_slot *slot = &slots->slots[d->slot];
    const tri_sample_params *p = &slot->params;
    out->draws[i] = *d;
    if (d->target != TRI_SAMPLE_NO_TARGET) {
      out->tokens[out->r.num_tokens++] = (tri_step_token){d->slot, (uint32_t)d->position, score(s, d, slot)};
      s->drawn[i] = VOCAB;
      continue;
    }
    MUST((int)d->counter == d->position - slot->num_prompt);
    MUST(d->position == slot->length);
    if (p->repetition_penalty != 1) check_counted(s, d, slot);
    uint32_t t = draw(*entry(s, slot->blocks, slot->length - 1), p->seed, d->counter, p->banned,
                      d->ban ? p->num_banned : 0, p->mask);
    tri_sample_result sample = {.token = t, .logprob = -(float)t, .num_top = p->num_logprobs > 0 ? p->num_logprobs : 0};
    if (p->num_logprobs > MAX_LOGPROBS)
      best_tokens(*entry(s, slot->blocks, slot->length - 1), p->num_logprobs, &sample);
    else
      for (int k = 0; k < sample.num_top; k++) sample.top_ids[k] = t + (uint32_t)k, sample.top_logprobs[k] = (float)k;
    out->tokens[out->r.num_tokens++] = (tri_step_token){d->slot, 0, sample};
    s->drawn[i] = t;
  }
}

void sim_execute(struct sim *s, int lane) {
  size_t len;
  tri_plan_view plan;
  const void *bytes = tri_plan_finish(s->writer, &len);
  bool used[MAX_SLOTS] = {0};
  MUST(len <= tri_plan_max_bytes(s->writer));
  MUST(tri_plan_read(bytes, len, &plan) == TRI_OK);
  MUST(plan.h.lane == (uint32_t)lane);
  MUST(plan.h.num_tokens <= (uint32_t)s->cfg.limits.max_num_batched_tokens);
  for (int i = 0; i < 2; i++) MUST(tri_batch_build(s->ranks[i].batch, s->ranks[i].slots, &plan) == TRI_OK);
  const tri_batch_builder *b = s->ranks[0].batch;
  check_same_batch(b, s->ranks[1].batch);
  move_blocks(s, b->swaps_out, b->num_swaps_out, true);
  copy_blocks(s, b);
  move_blocks(s, b->swaps_in, b->num_swaps_in, false);
  int q = 0;
  for (uint32_t i = 0; i < plan.h.num_seqs; i++) {
    const tri_plan_seq *p = &plan.seqs[i];
    if (p->kind == TRI_SEQ_FORK) {
      s->forks++;
      continue;
    }
    s->resumed += p->kind == TRI_SEQ_RESUME;
    if (p->kind == TRI_SEQ_RESUME) continue;
    MUST_SAY(!used[p->slot], "slot %u has tokens twice in one step", p->slot);
    used[p->slot] = true;
    s->ahead += (p->flags & TRI_SEQ_FLAG_TOKEN_IN_SLOT) != 0;
    execute_sequence(s, b, q++, p);
  }
  MUST(q == b->batch.num_seqs);
  s->tokens += b->batch.num_tokens;
  struct result *r = &s->results[s->num_results++];
  *r = (struct result){.lane = lane, .r = {.step = plan.h.step, .lane = plan.h.lane}};
  execute_draws(s, b, r);
  s->steps++;
}

/* ---- what the scheduler says ---- */

static void check_tops(const tri_group_token *t, int64_t n) {
  MUST(t->num_top == n);
  for (int k = 0; k < t->num_top; k++) {
    MUST(t->top_ids[k] == t->token + (uint32_t)k);
    MUST(t->top_logprobs[k] == (float)k);
  }
}

static void check_logprobs(const struct request *r, const tri_group_token *t) {
  int64_t n = r->assign.sampling.logprobs;
  MUST(!!(t->flags & TRI_TOKEN_LOGPROB) == (n >= 0));
  if (n < 0) return;
  MUST(t->logprob == -(float)t->token);
  check_tops(t, n);
}

/* The tokens of a prompt come once each, in order, as the prompt alone has them. */
static void hear_score(struct request *r, const tri_group_token *t) {
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

void sim_hear(struct sim *s, const tri_group_token *t) {
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
         t->cached < r->assign.num_token_ids + (r->assign.num_drawn_counts > 0));
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
  if (t->flags & TRI_TOKEN_NONE) {
    MUST(t->flags & TRI_TOKEN_LAST);
  } else {
    MUST(r->waited_ns >= 0);
    MUST_SAY(c->got < c->num_want && t->token == c->want[c->got], "job %d choice %u: token %d is %u, alone %u",
             (int)t->job, t->choice, c->got, t->token, c->want[c->got]);
    if (!c->got++) c->first_step = s->steps;
    c->last_step = s->steps;
    check_logprobs(r, t);
    MUST(!!(t->flags & TRI_TOKEN_LAST) == (c->got == c->num_want));
    MUST(!!(t->flags & TRI_TOKEN_STOP_ID) == (c->got == c->num_want && c->want_reason == TRI_FINISH_STOP));
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

void sim_check_books(const struct sim *s) {
  static int owner[MAX_BLOCKS], host_owner[MAX_BLOCKS];
  bool slots[MAX_SLOTS] = {0};
  uint64_t used = 0, on_host = 0;
  uint32_t running = 0;
  memset(owner, 0, sizeof owner);
  memset(host_owner, 0, sizeof host_owner);
  for (int i = 0; i < s->cfg.jobs; i++)
    for (int k = 0; s->requests[i].job && k < s->requests[i].job->num_choices; k++) {
      const tri_sequence *q = &s->requests[i].job->seqs[k];
      MUST(!q->num_host_blocks || q->state == TRI_SCHED_WAITING || (q->away && !q->num_blocks));
      for (int p = 0; p < q->num_host_blocks; p++, on_host++)
        MUST_SAY(!host_owner[q->host_blocks[p]]++, "the host's block %d has two owners", q->host_blocks[p]);
      if (q->state != TRI_SCHED_RUNNING) {
        MUST(q->num_blocks == 0);
        continue;
      }
      running++;
      MUST_SAY(!slots[q->slot], "slot %d has two owners", q->slot);
      slots[q->slot] = true;
      int blocks = q->away ? q->num_host_blocks : q->num_blocks;
      MUST(blocks * s->cfg.limits.block_size >= q->num_computed);
      for (int p = 0; p < q->num_blocks; p++) {
        int *o = &owner[q->blocks[p]];
        MUST_SAY(!*o || *o == i + 1 || s->cfg.limits.prefix_caching, "block %d belongs to two jobs", q->blocks[p]);
        used += !*o;
        *o = i + 1;
        if (q->fresh) continue;
        MUST_SAY(s->ranks[0].slots->slots[q->slot].blocks[p] == q->blocks[p], "slot %d was not told of its block %d",
                 q->slot, p);
      }
    }
  tri_sched_stats st = tri_sched_get_stats(s->sched);
  MUST(st.blocks_used == used);
  MUST(st.host_blocks_used == on_host);
  MUST(st.running == running);
}

/* ---- the loop ---- */

void sim_make_job(struct sim *s, struct request *r) {
  tri_error err = {0};
  ck_assert_msg(create_job(s, r, &r->job, &err) == TRI_OK, "%s: %s", err.field, err.message);
  r->arrived = true;
}

void sim_arrive(struct sim *s, struct request *r) {
  sim_make_job(s, r);
  tri_sched_add(s->sched, r->job);
}

static bool under_way(const struct sim *s, const tri_sequence *q) {
  for (int i = 0; i < s->num_results; i++)
    if (q->state == TRI_SCHED_RUNNING && s->results[i].r.step == q->last_step) return true;
  return false;
}

/* Sequences that are aborted hold nothing after the reap, unless a step of them is under way. */
static void check_reaped(const struct sim *s) {
  for (int i = 0; i < s->cfg.jobs; i++) {
    const tri_job *j = s->requests[i].job;
    for (int k = 0; j && j->aborted && k < j->num_choices; k++)
      ck_assert(j->seqs[k].state == TRI_SCHED_ENDED || under_way(s, &j->seqs[k]));
  }
}

void sim_take_events(struct sim *s) {
  for (int i = 0; i < s->cfg.jobs; i++) {
    struct request *r = &s->requests[i];
    if (!r->arrived && r->arrive_at <= s->iteration) sim_arrive(s, r);
    if (r->abort_at == s->iteration) ck_assert_int_eq(tri_sched_abort(s->sched, r->assign.job), r->job != NULL);
  }
  ck_assert(tri_sched_reap(s->sched, sim_now(s), &s->out));
  check_reaped(s);
  sim_drain(s);
}

void sim_take_result(struct sim *s, struct result *r) {
  *r = s->results[0];
  s->num_results--;
  memmove(s->results, s->results + 1, (size_t)s->num_results * sizeof *s->results);
  r->r.tokens = r->tokens;
  for (uint32_t i = 0; i < r->r.num_tokens; i++)
    tri_slot_learn(s->ranks[0].slots, &r->draws[i], r->tokens[i].sample.token);
}

void sim_return_result(struct sim *s) {
  struct result r;
  sim_take_result(s, &r);
  tri_sched_absorb(s->sched, r.lane, &r.r, &s->out);
  sim_drain(s);
}

static bool all_arrived(const struct sim *s) {
  for (int i = 0; i < s->cfg.jobs; i++)
    if (!s->requests[i].arrived) return false;
  return true;
}

bool sim_iterate(struct sim *s) {
  bool moved = s->num_results > 0;
  sim_take_events(s);
  for (int lane = 0; lane < s->cfg.lanes; lane++)
    while (!tri_sched_lane_busy(s->sched, lane) && tri_sched_compose(s->sched, lane, s->writer)) {
      sim_execute(s, lane);
      sim_check_books(s);
      moved = true;
    }
  do {
    if (s->num_results) sim_return_result(s);
  } while (s->num_results && !sim_chance(s, s->cfg.late_percent));
  sim_check_books(s);
  s->iteration++;
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
