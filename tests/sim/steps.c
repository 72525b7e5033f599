/* SPDX-License-Identifier: Apache-2.0 */
/* Steps of replicas: each draws a token of every choice that runs, and says how jobs end. */
#include <string.h>

#include "tests/sim/sim.h"

enum { MOST_ENTRIES = 256, BEAM_STEPS = 8, BEAM_CHUNK = 7 };

typedef struct entries {
  tri_replica_token t[MOST_ENTRIES];
  uint32_t num;
  uint32_t top_ids[2];
  float top_logprobs[2];
} entries;

static const entries no_entries = {.num = 0, .top_ids = {11, 12}, .top_logprobs = {-1, -2}};

static tri_replica_token *add(entries *out, const replica_job *j, uint32_t choice) {
  if (out->num == MOST_ENTRIES) return NULL;
  tri_replica_token *t = &out->t[out->num++];
  *t = (tri_replica_token){.job = j->id, .choice = choice, .offset = j->num[choice], .top_ids = out->top_ids};
  t->top_logprobs = out->top_logprobs;
  return t;
}

static void add_end(entries *out, replica_job *j, uint32_t choice, tri_finish reason) {
  tri_replica_token *t = add(out, j, choice);
  if (!t) return;
  t->flags = TRI_TOKEN_LAST | TRI_TOKEN_NONE;
  t->reason = reason;
  j->ended[choice] = true;
}

static void add_token(entries *out, replica_job *j, uint32_t choice) {
  const request *r = j->request;
  if (j->num[choice] >= (uint64_t)r->lengths[choice]) {
    add_end(out, j, choice, r->reasons[choice]); /* it came with all of them */
    return;
  }
  tri_replica_token *t = add(out, j, choice);
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
static bool add_scores(sim *s, entries *out, replica_job *j) {
  const request *r = j->request;
  int64_t most = rng_range(s, 1, 8);
  for (; j->num_scored < r->submit.num_token_ids && most > 0; most--) {
    tri_replica_token *t = add(out, j, 0);
    if (!t) return false;
    t->flags = TRI_TOKEN_PROMPT | TRI_TOKEN_LOGPROB;
    t->offset = j->num_scored;
    t->token = r->prompt[j->num_scored];
    t->logprob = request_logprob(r, MAX_CHOICES, j->num_scored++);
  }
  return j->num_scored == r->submit.num_token_ids;
}

static void run_search(entries *out, replica_job *j) {
  int64_t n = j->request->submit.sampling.n;
  int left = BEAM_CHUNK;
  if (++j->steps < BEAM_STEPS) return;
  for (uint32_t i = 0; i < (uint32_t)n; i++)
    for (; !j->ended[i] && left; left--) add_token(out, j, i);
}

/* Ends a job at its deadline, or as it was told to. */
static void reap(const sim *s, entries *out, replica_job *j) {
  bool over = j->aborted || (j->deadline_ns && s->now >= j->deadline_ns);
  for (uint32_t i = 0; over && i < (uint32_t)j->request->submit.sampling.n; i++)
    if (!j->ended[i]) add_end(out, j, i, TRI_FINISH_ABORT);
}

static void run_job(sim *s, entries *out, replica_job *j) {
  const tri_sampling *p = &j->request->submit.sampling;
  if (p->num_beams > 1) {
    run_search(out, j);
  } else if (p->prompt_logprobs < 0 || add_scores(s, out, j)) {
    for (uint32_t i = 0; i < (uint32_t)p->n; i++)
      if (!j->ended[i]) add_token(out, j, i);
  }
  j->begun = true;
}

static bool is_done(const replica_job *j) {
  for (int64_t i = 0; i < j->request->submit.sampling.n; i++)
    if (!j->ended[i]) return false;
  return true;
}

static void remove_done(fake_replica *g) {
  int left = 0;
  for (int i = 0; i < g->num_jobs; i++)
    if (!is_done(&g->jobs[i])) g->jobs[left++] = g->jobs[i];
  g->num_jobs = left;
}

/* Counts a replica that dies under a poison. The core may hold a job for one that had not begun, where words of its
 * replica are on their way. */
static void count_kill(sim *s, const fake_replica *g, const replica_job *j) {
  if (!g->line) return; /* no coordinator knows of it */
  j->request->kills += g->net.in.last_ns <= s->now && !lives_are_still(s);
  j->request->all_kills++;
}

/* Runs the oldest jobs, as many as there are slots. False: one of them has killed the replica. */
static bool run_jobs(sim *s, fake_replica *g, entries *out) {
  int slots = g->slots;
  for (int i = 0; i < g->num_jobs; i++) reap(s, out, &g->jobs[i]);
  remove_done(g);
  for (int i = 0; i < g->num_jobs; i++) {
    replica_job *j = &g->jobs[i];
    int needs = (int)(j->request->submit.sampling.num_beams > 1 ? j->request->submit.sampling.num_beams
                                                                : j->request->submit.sampling.n);
    if (needs > slots) break;
    slots -= needs;
    if (j->request->poison) {
      count_kill(s, g, j);
      if (s->verbose)
        printf("%8.3f job %llu, request %d, kills its group\n", (double)s->now / 1e9, (unsigned long long)j->id,
               (int)(j->request - s->requests));
      return false;
    }
    run_job(s, out, j);
  }
  remove_done(g);
  return true;
}

static void say(sim *s, uint32_t index, const entries *out) {
  const fake_replica *g = &s->replicas[index];
  tri_replica_msg m = {.op = TRI_REPLICA_TOKENS,
                       .tokens = {.epoch = g->epoch, .step = g->step, .num = out->num, .tokens = out->t}};
  if (out->num) network_replica_says(s, index, &m);
}

/* Some steps take long. */
static int64_t duration(sim *s) { return (rng_chance(s, 2) ? rng_range(s, 30, 400) : rng_range(s, 4, 30)) * MS; }

static void step(sim *s, const event *e) {
  fake_replica *g = &s->replicas[e->who];
  entries out = no_entries;
  if (!replicas_lives(s, e)) return;
  if (g->leaving && !g->num_jobs) {
    g->state = FAKE_GONE;
    return;
  }
  events_add(s, (event){.at = s->now + duration(s), .run = step, .who = e->who, .number = e->number, .lasts = true});
  if (g->stalled || !g->num_jobs) return;
  g->step++;
  if (run_jobs(s, g, &out))
    say(s, e->who, &out);
  else
    replicas_end(s, e->who, false);
}

void steps_begin(sim *s, uint32_t index) {
  uint64_t process = s->replicas[index].process;
  events_add(s, (event){.at = s->now + MS, .run = step, .who = index, .number = process, .lasts = true});
}

void steps_say_leftovers(sim *s, uint32_t index) {
  fake_replica *g = &s->replicas[index];
  entries out = no_entries;
  for (int i = 0; i < g->num_jobs; i++) {
    replica_job *j = &g->jobs[i];
    j->aborted |= rng_chance(s, 50);
    reap(s, &out, j);
    if (!j->aborted && !j->request->poison) run_job(s, &out, j);
  }
  remove_done(g);
  say(s, index, &out);
}
