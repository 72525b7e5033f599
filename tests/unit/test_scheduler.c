/* The leader's scheduler against a small engine that computes nothing but remembers everything.
 *
 * The engine executes each plan through the same tri_plan_read and tri_batch_build as a rank does. Its "KV cache"
 * holds, for every position of every block, a hash of the whole prefix up to there, computed from the entry before it
 * as the block table gives it; a draw is a hash of the last entry. A block that is shared wrongly, overwritten, not
 * copied or not recomputed changes what is drawn, and every output must be that of the request run alone. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/wait.h"
#include "worker/scheduler.h"

Suite *suite_scheduler(void);

enum { VOCAB = 97, MAX_JOBS = 40, MAX_LANES = 4, MAX_N = 5, MAX_LEN = 160, MAX_SLOTS = 24, MAX_BLOCKS = 2048 };
enum { MS = 1000000 };

/* ck_assert notes every call in a file, which is too slow for what is checked millions of times. */
#define MUST(condition) MUST_SAY(condition, "%s", #condition)
#define MUST_SAY(condition, ...)                                                                                       \
  do {                                                                                                                 \
    if (!(condition)) ck_abort_msg(__VA_ARGS__);                                                                       \
  } while (0)

static const uint32_t eos[] = {3, 5};
static const tri_job_model model = {.eos = eos, .num_eos = 2};

/* ---- requests and their answers ---- */

struct choice {
  uint32_t want[MAX_LEN];
  int num_want, got, first_step, last_step;
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
  int64_t waited_ns;    /* likewise; -1: not yet */
  struct choice choice[MAX_N];
};

struct config {
  tri_limits limits;
  int lanes, depth, jobs, prompt_tokens;
  int late_percent; /* of results that come back later */
  bool by_priority, whole_batches;
};

struct result {
  int lane;
  tri_step_result r;
  tri_step_token tokens[MAX_SLOTS];
  tri_draw draws[MAX_SLOTS];
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
  uint64_t content[MAX_BLOCKS];   /* [block * block_size + offset] */
  uint32_t drawn[MAX_SLOTS];      /* by the last step */
  tri_counted counted[MAX_SLOTS]; /* by slot */
  struct result results[MAX_LANES];
  int num_results, iteration, steps, copies, forks, ahead;
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

static bool contains(const uint32_t *ids, int n, uint32_t id) {
  for (int i = 0; i < n; i++)
    if (ids[i] == id) return true;
  return false;
}

static uint32_t draw(uint64_t prefix, uint64_t seed, uint64_t counter, const uint32_t *banned, int num_banned) {
  uint64_t x = mix(prefix ^ mix(seed) ^ counter * 77);
  while (contains(banned, num_banned, (uint32_t)(x % VOCAB))) x = mix(x);
  return (uint32_t)(x % VOCAB);
}

static int stop_ids(const tri_sampling *p, uint32_t out[]) {
  int n = 0;
  for (int i = 0; !p->ignore_eos && i < 2; i++) out[n++] = eos[i];
  for (int i = 0; i < p->num_stop_token_ids; i++) out[n++] = p->stop_token_ids[i];
  return n;
}

/* The answer to a request that has the machine to itself. */
static void answer_alone(const struct request *r, int max_model_len, uint32_t index, struct choice *c) {
  const tri_sampling *p = &r->assign.sampling;
  int prompt = (int)r->assign.num_token_ids, room = max_model_len - prompt, num_stops;
  int most = p->max_tokens < 0 || p->max_tokens > room ? room : (int)p->max_tokens;
  uint32_t stops[64];
  uint64_t h = 1, seed = r->assign.seed + index * 0x9e3779b97f4a7c15u;
  num_stops = stop_ids(p, stops);
  for (int i = 0; i < prompt; i++) h = extend(h, r->prompt[i]);
  *c = (struct choice){.want_reason = TRI_FINISH_LENGTH};
  while (c->num_want < most) {
    uint32_t t = draw(h, seed, (uint64_t)c->num_want, stops, c->num_want < p->min_tokens ? num_stops : 0);
    c->want[c->num_want++] = t;
    h = extend(h, t);
    if (!contains(stops, num_stops, t)) continue;
    c->want_reason = TRI_FINISH_STOP;
    return;
  }
}

/* ---- set-up ---- */

static struct sim *sim_create(const struct config *cfg, uint64_t seed) {
  const tri_limits *l = &cfg->limits;
  struct sim *s = calloc(1, sizeof *s);
  ck_assert_ptr_nonnull(s);
  s->cfg = *cfg;
  s->rng = mix(seed);
  ck_assert_int_le(l->num_blocks * l->block_size, MAX_BLOCKS);
  ck_assert_int_le(l->max_num_seqs, MAX_SLOTS);
  ck_assert_int_le(l->max_model_len, MAX_LEN);
  tri_sched_config sc = {.limits = *l,
                         .num_lanes = cfg->lanes,
                         .prompt_tokens = cfg->prompt_tokens,
                         .depth = cfg->depth,
                         .by_priority = cfg->by_priority,
                         .whole_batches = cfg->whole_batches};
  ck_assert_int_eq(tri_sched_create(&sc, &s->sched), TRI_OK);
  ck_assert_int_eq(tri_plan_writer_create(tri_plan_entries(l->max_num_seqs), (size_t)l->max_num_batched_tokens,
                                          tri_plan_blocks(l->max_num_seqs, l->max_num_batched_tokens, l->block_size),
                                          &s->writer),
                   TRI_OK);
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

static struct request *request_init(struct sim *s, int i, int prompt, int max_tokens, int n) {
  struct request *r = &s->requests[i];
  *r = (struct request){.abort_at = -1, .waited_ns = -1};
  r->assign = (tri_group_assign){.job = 100 + (uint64_t)i, .remaining_ms = -1, .token_ids = r->prompt};
  r->assign.seed = mix(s->rng + (uint64_t)i);
  r->assign.num_token_ids = (size_t)prompt;
  r->assign.sampling.n = n;
  r->assign.sampling.max_tokens = max_tokens;
  r->assign.sampling.logprobs = -1;
  r->assign.sampling.repetition_penalty = 1;
  for (int k = 0; k < prompt; k++) r->prompt[k] = (uint32_t)range(s, 0, VOCAB - 1);
  return r;
}

/* After the last change to the request. */
static void request_expect(struct sim *s, struct request *r) {
  for (uint32_t k = 0; k < (uint32_t)r->assign.sampling.n; k++)
    answer_alone(r, s->cfg.limits.max_model_len, k, &r->choice[k]);
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

/* As the embedding takes it. */
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
    MUST((int)d->counter == d->position - slot->num_prompt);
    MUST(d->position == slot->length);
    if (p->repetition_penalty != 1) check_counted(s, d, slot);
    uint32_t t =
        draw(*entry(s, slot->blocks, slot->length - 1), p->seed, d->counter, p->banned, d->ban ? p->num_banned : 0);
    tri_sample_result sample = {.token = t, .logprob = -(float)t, .num_top = p->num_logprobs > 0 ? p->num_logprobs : 0};
    for (int k = 0; k < sample.num_top; k++) sample.top_ids[k] = t + (uint32_t)k, sample.top_logprobs[k] = (float)k;
    out->draws[i] = *d;
    out->tokens[out->r.num_tokens++] = (tri_step_token){d->slot, sample};
    s->drawn[i] = t;
  }
}

static void execute(struct sim *s, int lane) {
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
  copy_blocks(s, b);
  int q = 0;
  for (uint32_t i = 0; i < plan.h.num_seqs; i++) {
    const tri_plan_seq *p = &plan.seqs[i];
    if (p->kind == TRI_SEQ_FORK) {
      s->forks++;
      continue;
    }
    MUST_SAY(!used[p->slot], "slot %u has tokens twice in one step", p->slot);
    used[p->slot] = true;
    s->ahead += (p->flags & TRI_SEQ_FLAG_TOKEN_IN_SLOT) != 0;
    execute_sequence(s, b, q++, p);
  }
  MUST(q == b->batch.num_seqs);
  struct result *r = &s->results[s->num_results++];
  *r = (struct result){.lane = lane, .r = {.step = plan.h.step, .lane = plan.h.lane}};
  execute_draws(s, b, r);
  s->steps++;
}

/* ---- what the scheduler says ---- */

static void check_logprobs(const struct request *r, const tri_group_token *t) {
  int64_t n = r->assign.sampling.logprobs;
  MUST(!!(t->flags & TRI_TOKEN_LOGPROB) == (n >= 0));
  if (n < 0) return;
  MUST(t->logprob == -(float)t->token);
  MUST(t->num_top == n);
  for (int k = 0; k < t->num_top; k++) {
    MUST(t->top_ids[k] == t->token + (uint32_t)k);
    MUST(t->top_logprobs[k] == (float)k);
  }
}

static void hear(struct sim *s, const tri_group_token *t) {
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
  struct choice *c = &r->choice[t->choice];
  MUST_SAY(!c->ended, "news of a choice that has ended");
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

static void drain(struct sim *s) {
  for (uint32_t i = 0; i < s->out.num; i++) hear(s, &s->out.tokens[i]);
  s->out.num = 0;
  for (tri_job *j; (j = tri_sched_retired(s->sched));) {
    s->requests[j->id - 100].job = NULL;
    tri_job_destroy(j);
  }
}

/* Blocks and slots against the sequences that hold them. */
static void check_books(const struct sim *s) {
  static int owner[MAX_BLOCKS];
  bool slots[MAX_SLOTS] = {0};
  uint64_t used = 0;
  uint32_t running = 0;
  memset(owner, 0, sizeof owner);
  for (int i = 0; i < s->cfg.jobs; i++)
    for (int k = 0; s->requests[i].job && k < s->requests[i].job->num_choices; k++) {
      const tri_sequence *q = &s->requests[i].job->seqs[k];
      if (q->state != TRI_SCHED_RUNNING) {
        MUST(q->num_blocks == 0);
        continue;
      }
      running++;
      MUST_SAY(!slots[q->slot], "slot %d has two owners", q->slot);
      slots[q->slot] = true;
      MUST((q->num_blocks * s->cfg.limits.block_size) >= q->num_computed);
      for (int p = 0; p < q->num_blocks; p++) {
        int *o = &owner[q->blocks[p]];
        MUST_SAY(!*o || *o == i + 1, "block %d belongs to two jobs", q->blocks[p]);
        used += !*o;
        *o = i + 1;
        if (q->fresh) continue;
        MUST_SAY(s->ranks[0].slots->slots[q->slot].blocks[p] == q->blocks[p], "slot %d was not told of its block %d",
                 q->slot, p);
      }
    }
  tri_sched_stats st = tri_sched_get_stats(s->sched);
  MUST(st.blocks_used == used);
  MUST(st.running == running);
}

/* ---- the loop ---- */

static int64_t sim_now(const struct sim *s) { return (s->iteration + 1) * (int64_t)MS; }

static void arrive(struct sim *s, struct request *r) {
  tri_error err = {0};
  ck_assert_msg(tri_job_create(&r->assign, &s->cfg.limits, &model, sim_now(s), &r->job, &err) == TRI_OK, "%s: %s",
                err.field, err.message);
  r->arrived = true;
  tri_sched_add(s->sched, r->job);
}

static bool under_way(const struct sim *s, const tri_sequence *q) {
  for (int i = 0; i < s->num_results; i++)
    if (q->state == TRI_SCHED_RUNNING && s->results[i].r.step == q->last_step) return true;
  return false;
}

/* What is aborted holds nothing after the reap, unless a step of it is under way. */
static void check_reaped(const struct sim *s) {
  for (int i = 0; i < s->cfg.jobs; i++) {
    const tri_job *j = s->requests[i].job;
    for (int k = 0; j && j->aborted && k < j->num_choices; k++)
      ck_assert(j->seqs[k].state == TRI_SCHED_ENDED || under_way(s, &j->seqs[k]));
  }
}

static void take_events(struct sim *s) {
  for (int i = 0; i < s->cfg.jobs; i++) {
    struct request *r = &s->requests[i];
    if (!r->arrived && r->arrive_at <= s->iteration) arrive(s, r);
    if (r->abort_at == s->iteration) ck_assert_int_eq(tri_sched_abort(s->sched, r->assign.job), r->job != NULL);
  }
  ck_assert(tri_sched_reap(s->sched, sim_now(s), &s->out));
  check_reaped(s);
  drain(s);
}

static void return_result(struct sim *s) {
  struct result r = s->results[0];
  s->num_results--;
  memmove(s->results, s->results + 1, (size_t)s->num_results * sizeof *s->results);
  r.r.tokens = r.tokens;
  for (uint32_t i = 0; i < r.r.num_tokens; i++)
    tri_slot_learn(s->ranks[0].slots, &r.draws[i], r.tokens[i].sample.token);
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
  for (int lane = 0; lane < s->cfg.lanes; lane++)
    while (!tri_sched_lane_busy(s->sched, lane) && tri_sched_compose(s->sched, lane, s->writer)) {
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
  int most = 100, idle = 0;
  for (int i = 0; i < s->cfg.jobs; i++)
    most += s->requests[i].arrive_at + 20 * (int)s->requests[i].assign.sampling.n * s->cfg.limits.max_model_len;
  while (!all_arrived(s) || tri_sched_has_work(s->sched)) {
    bool work = tri_sched_has_work(s->sched);
    idle = iterate(s) || !work ? 0 : idle + 1;
    ck_assert_msg(idle < 4, "work waits and nothing runs");
    ck_assert_msg(s->iteration < most, "not done after %d iterations", most);
  }
  tri_sched_stats st = tri_sched_get_stats(s->sched);
  ck_assert_uint_eq(st.blocks_used, 0);
  ck_assert_uint_eq(st.running, 0);
  ck_assert_uint_eq(st.waiting, 0);
}

/* Whole answers for whoever was not aborted, and every preemption told to its job. */
static void check_answers(const struct sim *s) {
  uint64_t preemptions = 0;
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
    preemptions += r->preemptions;
  }
  ck_assert_uint_eq(preemptions, tri_sched_get_stats(s->sched).preemptions); /* each is told before its job's end */
}

/* ---- properties over random workloads ---- */

static struct config random_config(uint64_t seed) {
  struct sim r = {.rng = mix(seed * 3 + 1)};
  struct config c = {.lanes = chance(&r, 50) ? 1 : range(&r, 2, MAX_LANES), .by_priority = chance(&r, 30)};
  c.jobs = range(&r, 1, MAX_JOBS);
  c.depth = c.lanes == 1 && chance(&r, 60) ? 2 : 1;
  c.late_percent = chance(&r, 50) ? 0 : 60;
  tri_limits *l = &c.limits;
  l->vocab_size = VOCAB;
  l->block_size = chance(&r, 20) ? 1 : range(&r, 2, 17);
  l->max_num_seqs = range(&r, MAX_N, MAX_SLOTS);
  l->max_num_batched_tokens = chance(&r, 30) ? l->max_num_seqs : range(&r, l->max_num_seqs, 200);
  l->max_model_len = range(&r, 20, MAX_LEN);
  int full = (l->max_model_len + l->block_size - 1) / l->block_size; /* the least that an engine accepts */
  l->num_blocks = chance(&r, 50) ? full + range(&r, 0, full) : full * range(&r, 2, l->max_num_seqs);
  if (l->num_blocks * l->block_size > MAX_BLOCKS) l->num_blocks = MAX_BLOCKS / l->block_size;
  if (c.lanes > 1 && chance(&r, 50)) c.prompt_tokens = range(&r, 1, 40);
  c.whole_batches = !c.by_priority && chance(&r, 20);
  return c;
}

static void random_request(struct sim *s, int i) {
  int len = s->cfg.limits.max_model_len, longest = chance(s, 30) ? len - 1 : 24;
  int prompt = range(s, 1, longest < len - 1 ? longest : len - 1);
  struct request *r =
      request_init(s, i, prompt, chance(s, 10) ? -1 : range(s, 1, 40), chance(s, 30) ? range(s, 2, MAX_N) : 1);
  tri_sampling *p = &r->assign.sampling;
  if (chance(s, 30)) p->min_tokens = range(s, 0, p->max_tokens > 0 ? (int)p->max_tokens : 10);
  p->ignore_eos = chance(s, 30);
  p->num_stop_token_ids = chance(s, 30) ? range(s, 1, 3) : 0;
  for (int k = 0; k < p->num_stop_token_ids; k++) p->stop_token_ids[k] = (uint32_t)range(s, 0, VOCAB - 1);
  if (chance(s, 20)) p->logprobs = range(s, 0, 5);
  if (chance(s, 5)) p->repetition_penalty = 1.2f;
  p->priority = range(s, -2, 2);
  r->arrive_at = chance(s, 50) ? 0 : range(s, 0, 60);
  if (chance(s, 15)) r->abort_at = r->arrive_at + range(s, 0, 50);
  if (chance(s, 10)) r->assign.remaining_ms = range(s, 0, 60);
  request_expect(s, r);
}

START_TEST(test_random_workloads) {
  uint64_t preemptions = 0;
  int copies = 0, forks = 0, ahead = 0;
  for (uint64_t seed = (uint64_t)_i * 100; seed < (uint64_t)_i * 100 + 100; seed++) {
    struct config c = random_config(seed);
    struct sim *s = sim_create(&c, seed);
    for (int i = 0; i < c.jobs; i++) random_request(s, i);
    run(s);
    check_answers(s);
    preemptions += tri_sched_get_stats(s->sched).preemptions;
    copies += s->copies, forks += s->forks, ahead += s->ahead;
    sim_destroy(s);
  }
  /* What the workloads are meant to provoke did happen. */
  ck_assert_uint_gt(preemptions, 100);
  ck_assert_int_gt(copies, 100);
  ck_assert_int_gt(forks, 100);
  ck_assert_int_gt(ahead, 1000);
}
END_TEST

/* ---- particular cases ---- */

static bool is_settled(const struct request *r) { return r->job && r->job->seqs[0].lane >= 0; }

static struct config simple_config(int seqs, int budget, int len, int block, int blocks, int jobs) {
  return (struct config){.limits = {.max_num_seqs = seqs,
                                    .max_num_batched_tokens = budget,
                                    .max_model_len = len,
                                    .block_size = block,
                                    .num_blocks = blocks,
                                    .vocab_size = VOCAB},
                         .lanes = 1,
                         .jobs = jobs};
}

/* Earlier requests get their first token no later than later ones, at whatever budget and however few blocks. */
START_TEST(test_first_come_first_served) {
  for (int budget = 8; budget <= 64; budget += 7) {
    struct config c = simple_config(8, budget, 100, 4, 30, 30);
    struct sim *s = sim_create(&c, (uint64_t)budget);
    for (int i = 0; i < c.jobs; i++) {
      struct request *r = request_init(s, i, range(s, 1, 60), range(s, 1, 30), 1);
      r->assign.sampling.priority = range(s, -3, 3); /* must not matter */
      r->arrive_at = i / 3;
      request_expect(s, r);
    }
    run(s);
    check_answers(s);
    for (int i = 1; i < c.jobs; i++)
      ck_assert_int_le(s->requests[i - 1].choice[0].first_step, s->requests[i].choice[0].first_step);
    sim_destroy(s);
  }
}
END_TEST

START_TEST(test_priority) {
  struct config c = simple_config(4, 16, 80, 4, 24, 24);
  c.by_priority = true;
  struct sim *s = sim_create(&c, 1);
  for (int i = 0; i < c.jobs; i++) {
    struct request *r = request_init(s, i, range(s, 1, 40), range(s, 1, 20), 1);
    r->assign.sampling.priority = range(s, -3, 3);
    request_expect(s, r);
  }
  run(s);
  check_answers(s);
  for (int i = 0; i < c.jobs; i++)
    for (int k = 0; k < c.jobs; k++) {
      const struct request *a = &s->requests[i], *b = &s->requests[k];
      int64_t pa = a->assign.sampling.priority, pb = b->assign.sampling.priority;
      if (pa < pb || (pa == pb && i < k)) ck_assert_int_le(a->choice[0].first_step, b->choice[0].first_step);
    }
  sim_destroy(s);
}
END_TEST

/* Request-level batches: prompts of 20 tokens join over several steps of 16, though the second request is done by then,
 * and afterwards nobody before the last of the batch has ended. Slots, or blocks, say how many a batch has. */
START_TEST(test_whole_batches) {
  static const struct {
    int slots, blocks, lanes, batch;
  } cases[] = {{4, 60, 1, 4}, {6, 15, 1, 2}, {8, 60, 1, 8}, {7, 60, 2, 7}};
  for (size_t k = 0; k < sizeof cases / sizeof *cases; k++)
    for (int whole = 0; whole < 2; whole++) {
      struct config c = simple_config(cases[k].slots, 16, 80, 4, cases[k].blocks, 7);
      c.lanes = cases[k].lanes;
      c.whole_batches = whole;
      struct sim *s = sim_create(&c, k);
      for (int i = 0; i < c.jobs; i++) {
        struct request *r = request_init(s, i, 20, i % 2 ? 1 : 20, 1);
        r->assign.sampling.ignore_eos = true;
        request_expect(s, r);
      }
      run(s);
      check_answers(s);
      if (whole) ck_assert_uint_eq(tri_sched_get_stats(s->sched).preemptions, 0);
      int early = 0, together = 0;
      for (int i = 0; i < c.jobs; i++)
        for (int j = i + 1; j < c.jobs; j++) {
          const struct choice *a = &s->requests[i].choice[0], *b = &s->requests[j].choice[0];
          if (i / cases[k].batch == j / cases[k].batch)
            together += i % 2 == 0 && b->first_step < a->last_step;
          else
            early += b->first_step <= a->last_step;
        }
      ck_assert_int_eq(early > 0, !whole && cases[k].batch < c.jobs);
      ck_assert_int_gt(together, 0);
      sim_destroy(s);
    }
}
END_TEST

/* Running requests make way for one that matters more: for want of a slot as many as it takes, for want of blocks only
 * where that lets it in, and never for one that matters as much. */
START_TEST(test_urgent) {
  static const struct {
    int slots, blocks, prompt, preempted;
    int64_t priority;
  } cases[] = {{2, 60, 10, 1, -1}, {4, 24, 66, 2, -1}, {2, 60, 10, 0, 0}, {2, 60, 10, 0, 1}};
  for (size_t k = 0; k < sizeof cases / sizeof *cases; k++)
    for (int lanes = 1; lanes <= 2; lanes++) {
      struct config c = simple_config(cases[k].slots, 64, 80, 4, cases[k].blocks, 3);
      c.by_priority = true;
      c.lanes = lanes;
      struct sim *s = sim_create(&c, k);
      for (int i = 0; i < c.jobs; i++) {
        bool urgent = i == c.jobs - 1;
        struct request *r = request_init(s, i, urgent ? cases[k].prompt : 20, urgent ? 4 : 30, 1);
        r->assign.sampling.ignore_eos = true;
        r->assign.sampling.priority = urgent ? cases[k].priority : 0;
        r->arrive_at = urgent ? 10 : 0;
        request_expect(s, r);
      }
      run(s);
      check_answers(s);
      const struct choice *late = &s->requests[c.jobs - 1].choice[0], *other = &s->requests[0].choice[0];
      uint64_t preempted = tri_sched_get_stats(s->sched).preemptions;
      if (!cases[k].preempted) ck_assert_uint_eq(preempted, 0);
      if (lanes == 1) ck_assert_uint_ge(preempted, (uint64_t)cases[k].preempted); /* coming back may take more */
      if (cases[k].preempted) ck_assert_int_le(late->first_step, 10 * lanes + 3);
      ck_assert_int_lt(other->first_step, late->first_step);
      sim_destroy(s);
    }
}
END_TEST

/* An abort at every iteration of a job's life: its blocks and slots are free one iteration later. */
START_TEST(test_abort_from_any_state) {
  for (int at = 0; at < 40; at++)
    for (int lanes = 1; lanes <= 2; lanes++) {
      struct config c = simple_config(6, 8, 60, 4, 20, 3);
      c.lanes = lanes;
      struct sim *s = sim_create(&c, (uint64_t)at);
      for (int i = 0; i < c.jobs; i++) {
        struct request *r = request_init(s, i, 20, 25, i == 1 ? 3 : 1);
        r->assign.sampling.ignore_eos = true;
        if (i == 1) r->abort_at = at;
        request_expect(s, r);
      }
      struct request *victim = &s->requests[1];
      while (!s->requests[0].arrived || tri_sched_has_work(s->sched)) {
        iterate(s);
        if (s->iteration > at) ck_assert_ptr_null(victim->job);
      }
      check_answers(s);
      ck_assert_uint_eq(tri_sched_get_stats(s->sched).blocks_used, 0);
      sim_destroy(s);
    }
}
END_TEST

START_TEST(test_deadline) {
  struct config c = simple_config(2, 8, 60, 4, 40, 3);
  struct sim *s = sim_create(&c, 5);
  static const int deadlines[] = {7, 0, 12}; /* running; at once; the third waits for a slot until then */
  for (int i = 0; i < c.jobs; i++) {
    struct request *r = request_init(s, i, 10, 50, i == 2 ? 2 : 1);
    r->assign.sampling.ignore_eos = true;
    r->assign.remaining_ms = deadlines[i];
    request_expect(s, r);
  }
  while (!s->requests[0].arrived || tri_sched_has_work(s->sched)) {
    iterate(s);
    for (int i = 0; i < c.jobs; i++) {
      if (s->iteration <= deadlines[i]) ck_assert_ptr_nonnull(s->requests[i].job);
      if (s->iteration > deadlines[i]) ck_assert_ptr_null(s->requests[i].job);
    }
  }
  check_answers(s);
  ck_assert_int_eq(s->requests[0].choice[0].reason, TRI_FINISH_ABORT);
  ck_assert_int_gt(s->requests[0].choice[0].got, 0);
  ck_assert_int_eq(s->requests[1].choice[0].got, 0);
  sim_destroy(s);
}
END_TEST

/* With one slot the second job waits for the first one's end, and is told so; the third is never taken in. */
START_TEST(test_wait) {
  struct config c = simple_config(1, 8, 60, 4, 40, 3);
  struct sim *s = sim_create(&c, 6);
  for (int i = 0; i < c.jobs; i++) {
    struct request *r = request_init(s, i, 10, 10, 1);
    r->assign.sampling.ignore_eos = true;
    if (i == 2) r->assign.remaining_ms = 5;
    request_expect(s, r);
  }
  run(s);
  check_answers(s);
  ck_assert_int_eq(s->requests[0].waited_ns, 0);
  ck_assert_int_ge(s->requests[1].waited_ns, 10 * MS);
  ck_assert_int_le(s->requests[1].waited_ns, 20 * MS);
  ck_assert_int_eq(s->requests[2].waited_ns, -1);
  sim_destroy(s);
}
END_TEST

/* A prompt of 50 tokens at a budget of 4 takes 13 steps, and a decode beside it misses none. */
START_TEST(test_chunked_prefill) {
  struct config c = simple_config(4, 4, 64, 16, 16, 2);
  struct sim *s = sim_create(&c, 3);
  for (int i = 0; i < 2; i++) {
    struct request *r = request_init(s, i, i ? 48 : 1, i ? 1 : 30, 1);
    r->assign.sampling.ignore_eos = true;
    r->arrive_at = i * 3;
    request_expect(s, r);
  }
  int before = 0;
  while (!s->requests[1].choice[0].ended) {
    iterate(s);
    ck_assert_int_eq(s->requests[0].choice[0].got, before + 1);
    before++;
  }
  /* Three tokens of each step are the prompt's from iteration 3 on. */
  ck_assert_int_eq(s->requests[1].choice[0].first_step, 3 + 16);
  run(s);
  check_answers(s);
  sim_destroy(s);
}
END_TEST

/* Chunks of one prompt follow each other through the stages: no lane waits for another one's result, and the prompt's
 * last chunk draws. A decode beside it has its own lane's steps, with no more of the prompt in each than is allowed. */
START_TEST(test_prompt_goes_with_every_lane) {
  for (int beside = 0; beside < 2; beside++) {
    struct config c = simple_config(4, 16, 100, 4, 60, 1 + beside);
    c.lanes = 3;
    c.prompt_tokens = 7;
    struct sim *s = sim_create(&c, 9);
    for (int i = 0; i < c.jobs; i++) {
      struct request *r = request_init(s, i, i < beside ? 1 : 65, i < beside ? 30 : 2, 1);
      r->assign.sampling.ignore_eos = true;
      r->arrive_at = i < beside ? 0 : 3;
      request_expect(s, r);
    }
    struct request *prompt = &s->requests[beside];
    while (s->iteration < 3) iterate(s);
    int steps = s->steps;
    take_events(s);
    for (int round = 0, got; !prompt->choice[0].got; round++) {
      got = s->requests[0].choice[0].got;
      for (int lane = 0; lane < c.lanes && !is_settled(prompt); lane++) {
        ck_assert(tri_sched_compose(s->sched, lane, s->writer));
        execute(s, lane);
        check_books(s);
      }
      ck_assert_int_lt(round, 4); /* 10 chunks of 7 tokens, 3 at a time */
      while (s->num_results) return_result(s);
      if (beside) ck_assert_int_eq(s->requests[0].choice[0].got, got + 1);
    }
    ck_assert_int_eq(s->steps - steps, 10 + beside); /* the first lane has its share without the prompt */
    run(s);
    check_answers(s);
    sim_destroy(s);
  }
}
END_TEST

/* Lanes stay even: sequences that come together, and those that are left where others have ended. */
START_TEST(test_lanes_are_even) {
  struct config c = simple_config(8, 64, 100, 4, 200, 8);
  c.lanes = 2;
  struct sim *s = sim_create(&c, 10);
  for (int i = 0; i < c.jobs; i++) {
    struct request *r = request_init(s, i, 5, i < 4 ? 4 : 60, 1);
    r->assign.sampling.ignore_eos = true;
    request_expect(s, r);
  }
  while (s->iteration < 40) {
    iterate(s);
    int running[2] = {0};
    for (int i = 0; i < c.jobs; i++)
      if (s->requests[i].job && s->requests[i].job->seqs[0].lane >= 0) running[s->requests[i].job->seqs[0].lane]++;
    if (s->iteration != 4) ck_assert_int_eq(running[0], running[1]); /* when four have just ended */
  }
  run(s);
  check_answers(s);
  sim_destroy(s);
}
END_TEST

/* Choices share the prompt's blocks: n choices cost little more than one. */
START_TEST(test_choices_share_blocks) {
  struct config c = simple_config(8, 64, 64, 4, 64, 1);
  struct sim *s = sim_create(&c, 4);
  struct request *r = request_init(s, 0, 41, 4, MAX_N);
  r->assign.sampling.ignore_eos = true;
  request_expect(s, r);
  uint64_t most = 0;
  while (!s->requests[0].arrived || tri_sched_has_work(s->sched)) {
    iterate(s);
    uint64_t used = tri_sched_get_stats(s->sched).blocks_used;
    most = used > most ? used : most;
  }
  check_answers(s);
  ck_assert_int_eq(s->forks, MAX_N - 1);
  ck_assert_uint_eq(most, 10 + MAX_N); /* 40 shared positions, and one block for each choice's own */
  sim_destroy(s);
}
END_TEST

/* Memory for one full sequence only: all others wait or are computed again, and everybody finishes. */
START_TEST(test_least_blocks) {
  for (int block = 1; block <= 16; block++) {
    struct config c = simple_config(8, 32, 48, block, (48 + block - 1) / block, 12);
    struct sim *s = sim_create(&c, (uint64_t)block);
    for (int i = 0; i < c.jobs; i++) {
      struct request *r = request_init(s, i, range(s, 1, 20), -1, i % 4 ? 1 : 3);
      r->assign.sampling.ignore_eos = true; /* up to max_model_len */
      request_expect(s, r);
    }
    run(s);
    check_answers(s);
    sim_destroy(s);
  }
}
END_TEST

/* More endings than the outbox holds: the rest come with the next reap, none is lost. */
START_TEST(test_full_outbox) {
  struct config c = simple_config(4, 16, 32, 4, 32, MAX_JOBS);
  struct sim *s = sim_create(&c, 7);
  int rounds = 0, ended = 0;
  for (int i = 0; i < c.jobs; i++) {
    request_expect(s, request_init(s, i, 5, 5, 4));
    arrive(s, &s->requests[i]);
    ck_assert(tri_sched_abort(s->sched, s->requests[i].assign.job));
  }
  for (bool all = false; !all; rounds++) {
    all = tri_sched_reap(s->sched, 0, &s->out);
    ended += (int)s->out.num;
    drain(s);
  }
  ck_assert_int_eq(ended, MAX_JOBS * 4);
  ck_assert_int_gt(rounds, 1);
  ck_assert(!tri_sched_has_work(s->sched));
  ck_assert(!tri_sched_abort(s->sched, 100));
  sim_destroy(s);
}
END_TEST

/* Destroyed in the middle of its work, with jobs in every state. */
START_TEST(test_destroy_busy) {
  struct config c = simple_config(4, 8, 64, 4, 40, 8);
  for (int steps = 0; steps < 12; steps++) {
    struct sim *s = sim_create(&c, 8);
    for (int i = 0; i < c.jobs; i++) request_expect(s, request_init(s, i, 9, 9, 1 + i % 3));
    for (int i = 0; i < steps; i++) iterate(s);
    sim_destroy(s);
  }
}
END_TEST

Suite *suite_scheduler(void) {
  Suite *suite = suite_create("scheduler");
  TCase *random = tcase_create("random"), *cases = tcase_create("cases");
  tcase_set_timeout(random, 120);
  tcase_add_loop_test(random, test_random_workloads, 0, 5);
  tcase_add_test(cases, test_first_come_first_served);
  tcase_add_test(cases, test_priority);
  tcase_add_test(cases, test_whole_batches);
  tcase_add_test(cases, test_urgent);
  tcase_add_test(cases, test_abort_from_any_state);
  tcase_add_test(cases, test_deadline);
  tcase_add_test(cases, test_wait);
  tcase_add_test(cases, test_chunked_prefill);
  tcase_add_test(cases, test_prompt_goes_with_every_lane);
  tcase_add_test(cases, test_lanes_are_even);
  tcase_add_test(cases, test_choices_share_blocks);
  tcase_add_test(cases, test_least_blocks);
  tcase_add_test(cases, test_full_outbox);
  tcase_add_test(cases, test_destroy_busy);
  suite_add_tcase(suite, random);
  suite_add_tcase(suite, cases);
  return suite;
}
