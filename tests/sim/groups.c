/* SPDX-License-Identifier: Apache-2.0 */
/* Groups: they register, draw a token of every choice in each step, die, stand still, and are started again. */
#include <string.h>

#include "tests/sim/sim.h"

enum { MOST_ENTRIES = 256, BEAM_STEPS = 8, BEAM_CHUNK = 7 };

typedef struct entries {
  tri_group_token t[MOST_ENTRIES];
  uint32_t num;
  uint32_t top_ids[2];
  float top_logprobs[2];
} entries;

/* ---- starts ---- */

static void say_health(sim *s, uint32_t index) {
  const fake_group *g = &s->groups[index];
  tri_group_msg m = {.op = TRI_GROUP_HEALTH,
                     .health = {.group = index,
                                .epoch = g->epoch,
                                .step = g->step,
                                .busy = g->num_jobs > 0,
                                .running = (uint32_t)g->num_jobs}};
  network_group_says(s, index, &m);
}

static bool lives(const sim *s, const event *e) {
  const fake_group *g = &s->groups[e->who];
  return g->epoch == e->epoch && (g->state == FAKE_LOADING || g->state == FAKE_READY);
}

static void report(sim *s, const event *e) {
  if (!lives(s, e)) return;
  say_health(s, e->who);
  events_add(s, (event){.at = s->now + SECOND, .run = report, .who = e->who, .epoch = e->epoch});
}

static void step(sim *s, const event *e);

static void become_ready(sim *s, const event *e) {
  if (!lives(s, e)) return;
  s->groups[e->who].state = FAKE_READY;
  tri_group_msg m = {.op = TRI_GROUP_READY, .ready = {.group = e->who, .epoch = e->epoch}};
  network_group_says(s, e->who, &m);
  events_add(s, (event){.at = s->now + MS, .run = step, .who = e->who, .epoch = e->epoch});
}

static void boot(sim *s, const event *e) {
  fake_group *g = &s->groups[e->who];
  if (g->state != FAKE_DOWN || s->draining || s->abandoned || !s->core) return;
  *g = (fake_group){.state = FAKE_LOADING,
                    .epoch = g->epoch + 1,
                    .cut_epoch = g->cut_epoch,
                    .counted_epoch = g->counted_epoch,
                    .slots = g->slots};
  tri_group_msg m = {.op = TRI_GROUP_REGISTER,
                     .reg = {.group = e->who,
                             .world = 1,
                             .tp = 1,
                             .pp = 1,
                             .dp = 1,
                             .ep = 1,
                             .epoch = g->epoch,
                             .max_model_len = MODEL_LEN,
                             .vocab_size = VOCAB,
                             .kv_blocks = 1000,
                             .block_size = 16,
                             .max_num_seqs = (uint64_t)g->slots}};
  network_group_says(s, e->who, &m);
  events_add(
      s, (event){.at = s->now + rng_range(s, 50, 1500) * MS, .run = become_ready, .who = e->who, .epoch = g->epoch});
  events_add(s, (event){.at = s->now + SECOND / 2, .run = report, .who = e->who, .epoch = g->epoch});
}

void groups_open(sim *s) {
  s->num_groups = s->day == DAY_ONE_LIFE ? 1 : (uint32_t)rng_range(s, 1, MAX_GROUPS - 1);
  for (uint32_t i = 0; i < s->num_groups; i++) {
    s->groups[i].slots = (int)rng_range(s, MAX_CHOICES, 8);
    events_add(s, (event){.at = s->now + rng_range(s, 0, 500) * MS, .run = boot, .who = i});
  }
  events_add(s, (event){.at = s->now + rng_range(s, 500, 5000) * MS, .run = groups_fault, .lasts = true});
}

void groups_begin_all(sim *s) {
  for (uint32_t i = 0; i < s->num_groups; i++)
    events_add(s, (event){.at = s->now + rng_range(s, 0, 500) * MS, .run = boot, .who = i});
}

/* The supervisor counts on, or is another one that begins anew. */
void groups_end_all(sim *s) {
  bool anew = rng_chance(s, 50);
  for (uint32_t i = 0; i < s->num_groups; i++) {
    const fake_group *g = &s->groups[i];
    s->groups[i] = (fake_group){
        .epoch = g->epoch, .cut_epoch = g->cut_epoch, .counted_epoch = g->counted_epoch, .slots = g->slots};
    if (anew) s->groups[i].epoch = s->groups[i].cut_epoch = s->groups[i].counted_epoch = 0;
  }
  /* The groups that died under a request are not known any more. */
  for (int i = 0; i < s->num_requests; i++) s->requests[i].kills = s->requests[i].all_kills = 0;
}

/* ---- deaths ---- */

void groups_count_death(sim *s, uint32_t index, uint64_t epoch) {
  fake_group *g = &s->groups[index];
  if (epoch <= g->counted_epoch) return;
  g->counted_epoch = epoch;
  for (int i = 0; i < s->num_requests; i++) s->requests[i].deaths += s->requests[i].submitted_ns > 0;
}

static void end_process(sim *s, uint32_t index) {
  fake_group *g = &s->groups[index];
  if (g->state != FAKE_LOADING && g->state != FAKE_READY) return;
  s->kills++;
  g->state = FAKE_DOWN;
  g->num_jobs = 0;
  if (rng_chance(s, 30)) g->cut_epoch = g->epoch;
  if (s->verbose)
    printf("%8.3f group %u dies, epoch %llu\n", (double)s->now / 1e9, index, (unsigned long long)g->epoch);
  if (s->day == DAY_ONE_LIFE) return;
  events_add(s, (event){.at = s->now + rng_range(s, 20, 5000) * MS, .run = boot, .who = index});
}

static void kill_lost(sim *s, const event *e) {
  if (s->groups[e->who].epoch == e->epoch) end_process(s, e->who);
}

void groups_lost(sim *s, uint32_t index, uint64_t epoch) {
  groups_count_death(s, index, epoch);
  if (s->groups[index].epoch != epoch) return;
  events_add(s, (event){.at = s->now + SECOND / 2, .run = kill_lost, .who = index, .epoch = epoch});
}

void groups_fault(sim *s, const event *e) {
  uint32_t index = (uint32_t)rng_range(s, 0, s->num_groups - 1);
  fake_group *g = &s->groups[index];
  (void)e;
  if (s->calm) return;
  int64_t what = rng_range(s, 1, 100);
  if (what <= 50) {
    end_process(s, index);
  } else if (what <= 60) {
    g->stalled = true;
  } else if (what <= 80) {
    g->net.in.held_ns = s->now + rng_range(s, 100, 8000) * MS;
  } else if (what <= 90) {
    g->net.out.full_ns = s->now + rng_range(s, 10, 2000) * MS;
  } else {
    s->skew += rng_range(s, 100, 6000) * MS; /* less than a client is waited for (deliver.c) */
    if (s->verbose) printf("%8.3f the clock jumps, to %.3f\n", (double)s->now / 1e9, (double)world_clock(s) / 1e9);
    s->jumps++;
  }
  events_add(s, (event){.at = s->now + rng_range(s, 200, 6000) * MS, .run = groups_fault, .lasts = true});
}

/* ---- steps ---- */

static tri_group_token *add(entries *out, const group_job *j, uint32_t choice) {
  if (out->num == MOST_ENTRIES) return NULL;
  tri_group_token *t = &out->t[out->num++];
  *t = (tri_group_token){.job = j->id, .choice = choice, .offset = j->num[choice], .top_ids = out->top_ids};
  t->top_logprobs = out->top_logprobs;
  return t;
}

static void add_end(entries *out, group_job *j, uint32_t choice, tri_finish reason) {
  tri_group_token *t = add(out, j, choice);
  if (!t) return;
  t->flags = TRI_TOKEN_LAST | TRI_TOKEN_NONE;
  t->reason = reason;
  j->ended[choice] = true;
}

static void add_token(entries *out, group_job *j, uint32_t choice) {
  const request *r = j->request;
  if (j->num[choice] >= (uint64_t)r->lengths[choice]) {
    add_end(out, j, choice, r->reasons[choice]); /* it came with all of them */
    return;
  }
  tri_group_token *t = add(out, j, choice);
  if (!t) return;
  t->token = request_token(r, choice, t->offset);
  if (!j->begun) t->flags |= TRI_TOKEN_WAITED;
  if (r->submit.sampling.logprobs >= 0) {
    t->flags |= TRI_TOKEN_LOGPROB;
    t->logprob = request_logprob(r, choice, t->offset);
    t->num_top = (int)r->submit.sampling.logprobs;
  }
  if (++j->num[choice] < (uint64_t)r->lengths[choice]) return;
  t->flags |= TRI_TOKEN_LAST | (r->reasons[choice] == TRI_FINISH_STOP ? TRI_TOKEN_STOP_ID : 0);
  t->reason = r->reasons[choice];
  j->ended[choice] = true;
}

/* Adds what is left of the prompt's log probabilities, some in a step. */
static bool add_scores(sim *s, entries *out, group_job *j) {
  const request *r = j->request;
  int64_t most = rng_range(s, 1, 8);
  for (; j->num_scored < r->submit.num_token_ids && most > 0; most--) {
    tri_group_token *t = add(out, j, 0);
    if (!t) return false;
    t->flags = TRI_TOKEN_PROMPT | TRI_TOKEN_LOGPROB;
    t->offset = j->num_scored;
    t->token = r->prompt[j->num_scored];
    t->logprob = request_logprob(r, MAX_CHOICES, j->num_scored++);
  }
  return j->num_scored == r->submit.num_token_ids;
}

static void run_search(entries *out, group_job *j) {
  int64_t n = j->request->submit.sampling.n;
  int left = BEAM_CHUNK;
  if (++j->steps < BEAM_STEPS) return;
  for (uint32_t i = 0; i < (uint32_t)n; i++)
    for (; !j->ended[i] && left; left--) add_token(out, j, i);
}

static void run_job(sim *s, entries *out, group_job *j) {
  const tri_sampling *p = &j->request->submit.sampling;
  for (uint32_t i = 0; j->deadline_ns && s->now >= j->deadline_ns && i < (uint32_t)p->n; i++)
    if (!j->ended[i]) add_end(out, j, i, TRI_FINISH_ABORT);
  if (p->num_beams > 1) {
    run_search(out, j);
  } else if (p->prompt_logprobs < 0 || add_scores(s, out, j)) {
    for (uint32_t i = 0; i < (uint32_t)p->n; i++)
      if (!j->ended[i]) add_token(out, j, i);
  }
  j->begun = true;
}

static bool is_done(const group_job *j) {
  for (int64_t i = 0; i < j->request->submit.sampling.n; i++)
    if (!j->ended[i]) return false;
  return true;
}

static void remove_job(fake_group *g, int i) {
  g->num_jobs--;
  memmove(&g->jobs[i], &g->jobs[i + 1], (size_t)(g->num_jobs - i) * sizeof *g->jobs);
}

/* Runs the oldest jobs, as many as there are slots. False: one of them has killed the group. */
static bool run_jobs(sim *s, fake_group *g, entries *out) {
  int slots = g->slots;
  for (int i = 0; i < g->num_jobs; i++) {
    group_job *j = &g->jobs[i];
    int needs = (int)(j->request->submit.sampling.num_beams > 1 ? j->request->submit.sampling.num_beams
                                                                : j->request->submit.sampling.n);
    if (needs > slots) break;
    slots -= needs;
    if (j->request->poison) {
      /* The core may hold a job for one that had not begun, where words of its group are on their way. */
      j->request->kills += g->net.in.last_ns <= s->now;
      j->request->all_kills++;
      if (s->verbose)
        printf("%8.3f job %llu, request %d, kills its group\n", (double)s->now / 1e9, (unsigned long long)j->id,
               (int)(j->request - s->requests));
      return false;
    }
    run_job(s, out, j);
  }
  for (int i = g->num_jobs - 1; i >= 0; i--)
    if (is_done(&g->jobs[i])) remove_job(g, i);
  return true;
}

static void step(sim *s, const event *e) {
  fake_group *g = &s->groups[e->who];
  entries out = {.num = 0, .top_ids = {11, 12}, .top_logprobs = {-1, -2}};
  if (!lives(s, e)) return;
  if (g->leaving && !g->num_jobs) {
    g->state = FAKE_GONE;
    return;
  }
  events_add(s, (event){.at = s->now + rng_range(s, 4, 30) * MS, .run = step, .who = e->who, .epoch = e->epoch});
  if (g->stalled || !g->num_jobs) return;
  g->step++;
  if (!run_jobs(s, g, &out)) {
    end_process(s, e->who);
  } else if (out.num) {
    tri_group_msg m = {.op = TRI_GROUP_TOKENS,
                       .tokens = {.epoch = g->epoch, .step = g->step, .num = out.num, .tokens = out.t}};
    network_group_says(s, e->who, &m);
  }
}

/* ---- from the core ---- */

static void take_assign(sim *s, fake_group *g, const tri_group_assign *a) {
  check_assign(s, a);
  request *r = request_of_seed(s, a->seed);
  if (!r || g->num_jobs == MAX_REQUESTS) return;
  group_job *j = &g->jobs[g->num_jobs++];
  *j = (group_job){.id = a->job, .request = r, .num_scored = a->num_scored ? a->num_scored : 1};
  if (a->remaining_ms >= 0) j->deadline_ns = s->now + a->remaining_ms * MS;
  for (size_t i = 0; i < a->num_drawn_counts; i++) {
    j->ended[i] = a->drawn_counts[i] == TRI_DRAWN_ENDED;
    if (!j->ended[i]) j->num[i] = a->drawn_counts[i];
  }
}

void groups_receive(sim *s, const event *e) {
  fake_group *g = &s->groups[e->who];
  tri_group_msg m;
  tri_error err = {0};
  if (!lives(s, e)) return;
  tri_arena_reset(s->arena);
  if (tri_group_msg_unpack(e->data, e->len, s->arena, &m, &err) != TRI_OK) {
    fail(s, "a message to a group does not unpack: %s: %s", err.field, err.message);
    return;
  }
  if (m.op == TRI_GROUP_ASSIGN) take_assign(s, g, &m.assign);
  if (m.op == TRI_GROUP_DRAIN) g->leaving = true;
  for (int i = g->num_jobs - 1; m.op == TRI_GROUP_ABORT && i >= 0; i--)
    if (g->jobs[i].id == m.abort.job) remove_job(g, i);
}
