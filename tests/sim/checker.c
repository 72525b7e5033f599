/* SPDX-License-Identifier: Apache-2.0 */
/* Checks of everything that clients and replicas are told, against what must come. */
#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "coordinator/jobs/jobs_impl.h"
#include "coordinator/queue/queue_impl.h"
#include "coordinator/replicas/replicas_impl.h"
#include "tests/sim/sim.h"

enum { MOST_KILLS = 3, MOST_OF_ALL = 8 };

void fail(sim *s, const char *fmt, ...) {
  va_list ap;
  if (s->failed) return; /* what follows may follow from it */
  s->failed = true;
  int n = snprintf(s->why, sizeof s->why, "seed %llu, at %.3f s: ", (unsigned long long)s->seed, (double)s->now / 1e9);
  va_start(ap, fmt);
  vsnprintf(s->why + n, sizeof s->why - (size_t)n, fmt, ap);
  va_end(ap);
}

/* ---- streams ---- */

static void check_scores(sim *s, stream *st, const tri_choice_tokens *t) {
  const request *r = &s->requests[st->request];
  if (t->offset != st->num_scored || t->offset + t->num_ids > r->submit.num_token_ids || !t->logprobs || st->num[0]) {
    fail(s, "request %d: log probabilities of the prompt from %llu, after %llu", st->request,
         (unsigned long long)t->offset, (unsigned long long)st->num_scored);
    return;
  }
  for (size_t k = 0; k < t->num_ids; k++) {
    uint64_t at = st->num_scored++;
    float want = request_logprob(r, MAX_CHOICES, at), got = t->logprobs[k].logprob;
    if (t->ids[k] != r->prompt[at] || (at ? got != want : !isnan(got)))
      fail(s, "request %d: a wrong log probability of token %llu of the prompt", st->request, (unsigned long long)at);
  }
}

static void check_tokens(sim *s, stream *st, const tri_choice_tokens *t) {
  const request *r = &s->requests[st->request];
  if (t->of_prompt) {
    check_scores(s, st, t);
    return;
  }
  if (t->index >= (uint32_t)r->submit.sampling.n || t->offset != st->num[t->index] ||
      t->offset + t->num_ids > (uint64_t)r->lengths[t->index]) {
    fail(s, "request %d: %zu tokens of choice %u from %llu, after %llu", st->request, t->num_ids, t->index,
         (unsigned long long)t->offset, (unsigned long long)st->num[t->index]);
    return;
  }
  if ((r->submit.sampling.logprobs >= 0) != (t->logprobs != NULL))
    fail(s, "request %d: log probabilities that were not asked for, or none", st->request);
  st->ahead = s->keeping.failed || (st->ahead && !t->num_ids);
  for (size_t k = 0; k < t->num_ids && !s->failed; k++) {
    uint64_t at = st->num[t->index]++;
    if (t->ids[k] != request_token(r, t->index, at))
      fail(s, "request %d: token %llu of choice %u is %u, not %u", st->request, (unsigned long long)at, t->index,
           t->ids[k], request_token(r, t->index, at));
    if (t->logprobs && t->logprobs[k].logprob != request_logprob(r, t->index, at))
      fail(s, "request %d: a wrong log probability of token %llu", st->request, (unsigned long long)at);
  }
}

static void check_done(sim *s, const stream *st, const tri_done *d) {
  const request *r = &s->requests[st->request];
  const tri_sampling *p = &r->submit.sampling;
  if (d->num_choices != (uint32_t)p->n || d->seed != p->seed)
    fail(s, "request %d: done with %u choices and seed %llu", st->request, d->num_choices, (unsigned long long)d->seed);
  for (uint32_t i = 0; i < (uint32_t)p->n && !s->failed; i++) {
    const struct tri_done_choice *c = &d->choices[i];
    bool cut = c->reason == TRI_FINISH_ABORT;
    bool behind = cut && st->ahead && c->completion_tokens < st->num[i]; /* it was cut off before it had them again */
    if (c->completion_tokens != st->num[i] && !behind)
      fail(s, "request %d: choice %u has %llu tokens, and %llu came", st->request, i,
           (unsigned long long)c->completion_tokens, (unsigned long long)st->num[i]);
    if (!cut && (c->reason != r->reasons[i] || c->completion_tokens != (uint64_t)r->lengths[i]))
      fail(s, "request %d: choice %u ended with %s after %llu tokens, not %s after %d", st->request, i,
           tri_finish_name(c->reason), (unsigned long long)c->completion_tokens, tri_finish_name(r->reasons[i]),
           r->lengths[i]);
    if (cut && !r->cancelled && !(d->timed_out && p->deadline_ms))
      fail(s, "request %d: choice %u was cut off, and nobody wanted that", st->request, i);
  }
}

/* A job is kept for the minute in which its client may come back, unless it was cancelled since its client had gone.
 * Then another one may have its name. */
static bool must_be_known(const sim *s, const request *r) { return r->told && !r->dropped && !s->keeping.lived_long; }

/* Says whether jobs end since the cluster does, of which the next start may know nothing: it goes on with them then. */
static bool may_go_on(const sim *s, bool is_error) {
  return s->abandoned || s->keeping.failed || (is_error && s->lives.many && (s->draining || s->day == DAY_ONE_LIFE));
}

/* An end of which a client has heard is so for ever, as far as a restart knows of it. */
static void check_same_end(sim *s, const stream *st, const tri_done *d) {
  request *r = &s->requests[st->request];
  for (int64_t i = 0; i < r->submit.sampling.n && !s->failed; i++) {
    tri_finish reason = d ? d->choices[i].reason : TRI_FINISH_ERROR;
    uint64_t count = d ? d->choices[i].completion_tokens : 0;
    if (r->ended && must_be_known(s, r) && (r->told_reasons[i] != reason || r->told_counts[i] != count))
      fail(s, "request %d: choice %d has ended with %s after %llu tokens, and before with %s after %llu", st->request,
           (int)i, tri_finish_name(reason), (unsigned long long)count, tri_finish_name(r->told_reasons[i]),
           (unsigned long long)r->told_counts[i]);
    r->told_reasons[i] = reason;
    r->told_counts[i] = count;
  }
  r->ended = !may_go_on(s, !d);
}

static bool is(tri_wire_str s, const char *word) { return s.len == strlen(word) && !memcmp(s.s, word, s.len); }

static bool a_replica_is_left(const sim *s) {
  for (uint32_t i = 0; i < s->num_replicas; i++) {
    const fake_replica *g = &s->replicas[i];
    if ((g->state == FAKE_LOADING || g->state == FAKE_READY) && g->epoch > g->counted_epoch) return true;
  }
  return false;
}

/* No replica comes any more, or jobs are not waited for. */
static bool may_be_lost(const sim *s, const request *r) {
  if (s->draining && (r->deaths || !a_replica_is_left(s))) return true; /* no start begins in a drain */
  return s->abandoned || (s->day == DAY_ONE_LIFE && s->replicas[0].counted_epoch) || r->deaths >= MOST_KILLS ||
         r->died || r->cut_off;
}

static void check_error(sim *s, const stream *st, const tri_server_msg *m) {
  const request *r = &s->requests[st->request];
  bool early = !st->accepted && !(s->keeping.on && must_be_known(s, r));
  /* A coordinator with a journal, whose end nobody has asked for, says that the next one goes on. */
  bool lost = is(m->error.code, "peer_lost") || (s->keeping.on && is(m->error.code, "coordinator_lost"));
  if (is(m->error.code, "taken_over") && st->former) return;
  if (lost) check_same_end(s, st, NULL);
  if (is(m->error.code, "not_found") && st->attaches && early) return;
  if (is(m->error.code, "draining") && s->draining && early) return;
  if (is(m->error.code, "no_capacity") && early) return;
  if (lost && may_be_lost(s, r)) return;
  fail(s, "request %d ended with an error: %.*s: %.*s", st->request, (int)m->error.code.len, m->error.code.s,
       (int)m->error.message.len, m->error.message.s);
}

bool check_is_open(const sim *s, const stream *st) {
  return !st->ended && !st->gone && s->requests[st->request].submitted_ns;
}

void check_reply(sim *s, stream *st, const tri_server_msg *m) {
  if (s->verbose)
    printf("%8.3f request %d, connection %d, stream %llu%s: %d\n", (double)s->now / 1e9, st->request, st->connection,
           (unsigned long long)st->id, st->attaches ? " (attached)" : "", (int)m->op);
  if (st->ended) fail(s, "request %d: something after the end", st->request);
  switch (m->op) {
  case TRI_REPLY_ACCEPTED:
    if (st->accepted) fail(s, "request %d was accepted twice", st->request);
    if (must_be_known(s, &s->requests[st->request]) && !m->accepted.existing)
      fail(s, "request %d is accepted as a new one", st->request);
    if (!s->keeping.on && m->accepted.existing && s->requests[st->request].life != s->lives.count)
      fail(s, "request %d is there already, and nobody has asked this coordinator for it", st->request);
    st->accepted = s->requests[st->request].told = true;
    break;
  case TRI_REPLY_TOKENS:
    if (!st->accepted) fail(s, "request %d: tokens before it was accepted", st->request);
    for (uint32_t i = 0; i < m->tokens.num; i++) check_tokens(s, st, &m->tokens.choices[i]);
    break;
  case TRI_REPLY_DONE:
    if (!st->accepted) fail(s, "request %d: done before it was accepted", st->request);
    check_done(s, st, &m->done);
    check_same_end(s, st, &m->done);
    st->ended = true;
    break;
  case TRI_REPLY_ERROR:
    check_error(s, st, m);
    st->ended = true;
    break;
  default: fail(s, "request %d: a reply of kind %d", st->request, (int)m->op);
  }
}

/* ---- replicas ---- */

/* Checks that the replica is told what the core has of the job, at the time at which it is told. */
static void check_sampled(sim *s, const job *one, const tri_replica_assign *a) {
  bool any = false;
  for (int64_t i = 0; i < one->sampling.n; i++) {
    const job_choice *ch = &one->choices[i];
    any |= ch->ended || ch->num;
    if (!a->num_sampled_counts) continue;
    if (a->sampled_counts[i] != (ch->ended ? TRI_SAMPLED_ENDED : ch->num))
      fail(s, "job %llu: choice %d goes on from %u, with %zu tokens", (unsigned long long)a->job, (int)i,
           a->sampled_counts[i], ch->num);
  }
  if (any != (a->num_sampled_counts > 0) && one->sampling.num_beams < 2)
    fail(s, "job %llu goes on without its tokens", (unsigned long long)a->job);
}

void check_company(sim *s, uint32_t index, const tri_replica_assign *a) {
  const job *one = job_find(s->core, a->job);
  bool alone = one && one->deaths >= 2;
  if (one) check_sampled(s, one, a);
  for (const job *j = TAILQ_FIRST(&s->core->jobs->active); j; j = TAILQ_NEXT(j, links)) {
    if (j == one || j->state != JOB_ASSIGNED || j->replica != index) continue;
    if (alone || j->deaths >= 2) fail(s, "job %llu gets company in group %u", (unsigned long long)a->job, index);
  }
}

static bool same_lists(const request *r, const tri_sampling *p) {
  const tri_sampling *q = &r->submit.sampling;
  if (p->num_logit_bias != q->num_logit_bias || p->num_allowed_token_ids != q->num_allowed_token_ids) return false;
  for (size_t i = 0; i < p->num_allowed_token_ids; i++)
    if (p->allowed_token_ids[i] != r->allowed[i]) return false;
  return !p->num_logit_bias || (p->logit_bias[0].id == r->bias.id && p->logit_bias[0].bias == r->bias.bias);
}

void check_assign(sim *s, const tri_replica_assign *a) {
  const request *r = request_of_seed(s, a->seed);
  const uint32_t *drawn = a->sampled;
  if (!r || a->num_token_ids != r->submit.num_token_ids ||
      memcmp(a->token_ids, r->prompt, a->num_token_ids * sizeof *r->prompt) != 0) {
    fail(s, "a group is given a prompt that nobody has sent");
    return;
  }
  const tri_sampling *p = &r->submit.sampling;
  if (a->sampling.n != p->n || a->sampling.max_tokens != p->max_tokens || !same_lists(r, &a->sampling))
    fail(s, "a group is given another request than was sent");
  if (a->remaining_ms > (p->deadline_ms ? p->deadline_ms : -1)) fail(s, "a deadline is further away than at first");
  for (size_t i = 0; i < a->num_sampled_counts && !s->failed; i++) {
    uint32_t n = a->sampled_counts[i];
    if (n == TRI_SAMPLED_ENDED) continue;
    if (n > (uint32_t)r->lengths[i]) fail(s, "more tokens than the answer has");
    for (uint32_t k = 0; k < n && !s->failed; k++)
      if (*drawn++ != request_token(r, (uint32_t)i, k)) fail(s, "token %u of choice %zu is fed wrong", k, i);
  }
}

/* ---- the end ---- */

static void check_tokens_of(sim *s, const stream *st, const job *j) {
  const request *r = &s->requests[st->request];
  for (int64_t i = 0; i < j->sampling.n && !s->failed; i++) {
    const job_choice *ch = &j->choices[i];
    if (ch->num < st->num[i] && !st->ahead && must_be_known(s, r))
      fail(s, "request %d: %zu tokens of choice %d are there after a restart, and a client has %llu", st->request,
           ch->num, (int)i, (unsigned long long)st->num[i]);
    for (size_t k = 0; k < ch->num && !s->failed; k++)
      if (ch->ids[k] != request_token(r, (uint32_t)i, k))
        fail(s, "request %d: token %zu of choice %d is another after a restart", st->request, k, (int)i);
  }
}

void check_restored(sim *s) {
  for (int i = 0; i < s->num_streams && !s->failed; i++) {
    const stream *st = &s->streams[i];
    const request *r = &s->requests[st->request];
    tri_peer owner = network_client(s->connections[st->connection].client, 0);
    const job *j = r->told ? job_find_request(s->core, &owner, &r->submit.request_id) : NULL;
    if (j)
      check_tokens_of(s, st, j);
    else if (must_be_known(s, r))
      fail(s, "request %d was accepted, and a restart has forgotten it", st->request);
  }
}

void check_end(sim *s) {
  if (!s->failed && !s->core) fail(s, "there is no coordinator any more");
  if (!s->failed && !tri_core_is_idle(s->core)) fail(s, "jobs never end");
  for (int i = 0; i < s->num_streams && !s->failed; i++) {
    const stream *st = &s->streams[i];
    if (check_is_open(s, st))
      fail(s, "request %d: its stream %llu of connection %d has no end%s%s%s", st->request, (unsigned long long)st->id,
           st->connection, st->accepted ? ", though accepted" : "", st->attaches ? ", attached" : "",
           st->former ? ", taken over" : "");
  }
  for (int i = 0; i < s->num_requests && !s->failed; i++)
    if (s->requests[i].kills > MOST_KILLS || s->requests[i].all_kills > MOST_OF_ALL)
      fail(s, "request %d has killed %d groups", i, s->requests[i].all_kills);
  /* Coordinators that have ended took some of the numbers with them, and left others in the journal. */
  if (!s->failed && !s->keeping.on && s->life_submits != s->life_ends)
    fail(s, "%llu requests, of which %llu were answered, failed or were cut off", (unsigned long long)s->life_submits,
         (unsigned long long)s->life_ends);
}
