/* SPDX-License-Identifier: Apache-2.0 */
/* The load of a benchmark: one thread, one connection, one event loop.
 *
 * An open loop: all arrivals are planned before the first request, and a slow server does not make them later.
 * --max-concurrency and chats close it. */
#include <math.h>
#include <poll.h>
#include <string.h>

#include "tools/serve_bench/serve_bench.h"
#include "base/buf.h"
#include "base/mem.h"
#include "base/wait.h"

enum { LONGEST_WAIT_NS = 500000000 };

void bench_load_free(bench_load *l) {
  tri_free(l->requests);
  tri_free(l->itl_ms);
  bench_chats_free(l);
  *l = (bench_load){0};
}

/* ---- events ---- */

static void add_gap(bench_load *l, double ms) {
  tri_status st = tri_array_reserve(&l->itl_ms, l->num_itl, &l->cap_itl, 1, sizeof *l->itl_ms);
  if (st == TRI_OK) l->itl_ms[l->num_itl++] = ms; /* else a gap less in the statistics */
}

static void on_tokens(bench_load *l, bench_request *r, const trireme_event *e, int64_t now) {
  size_t tokens = 0;
  for (size_t i = 0; i < e->tokens.num; i++) tokens += e->tokens.choices[i]->num_ids;
  if (!tokens) return;
  if (r->first_ns)
    add_gap(l, (double)(now - r->last_ns) * 1e-6);
  else
    r->first_ns = now;
  r->last_ns = now;
  r->output_tokens += tokens;
}

static bool ended_well(const trireme_event *e) {
  if (e->kind != TRIREME_EVENT_DONE) return e->kind != TRIREME_EVENT_ERROR;
  for (size_t i = 0; i < e->done.num; i++) {
    const char *reason = e->done.choices[i]->finish_reason;
    if (strcmp(reason, "stop") && strcmp(reason, "length")) return false;
  }
  return true;
}

static void on_end(bench_load *l, bench_request *r, const trireme_event *e, int64_t now) {
  r->end_ns = now;
  r->ok = ended_well(e);
  if (e->kind == TRIREME_EVENT_EMBEDDING) r->prompt_tokens = e->embedding.prompt_tokens;
  if (e->kind == TRIREME_EVENT_SCORES) r->prompt_tokens = e->scores.prompt_tokens;
  if (r->ok && e->kind == TRIREME_EVENT_DONE) {
    r->output_tokens = e->done.completion_tokens;
    r->cached_tokens = e->done.cached_tokens;
  }
  r->refused = e->kind == TRIREME_EVENT_ERROR && !strcmp(e->error.code, "no_capacity");
  l->refused += r->refused;
  if (!r->ok && !l->failed++) {
    if (e->kind == TRIREME_EVENT_ERROR)
      l->first_error = e->error;
    else
      snprintf(l->first_error.message, sizeof l->first_error.message,
               e->done.timed_out ? "its deadline_ms has passed" : "it was cancelled");
  }
  l->in_flight--;
  l->finished++;
}

/* Ids of a connection count up by one and nothing else is asked for during a load, so that the n-th request that was
 * sent has the id first_id + n. A request ends once: what comes for it later counts for nothing. */
static void on_event(bench_load *l, const trireme_event *e, int64_t now) {
  if (e->id < l->first_id || e->id - l->first_id >= l->sent) return;
  size_t i = l->order[e->id - l->first_id];
  bench_request *r = &l->requests[i];
  switch (e->kind) {
  case TRIREME_EVENT_ACCEPTED: r->prompt_tokens = e->accepted.prompt_tokens; break;
  case TRIREME_EVENT_TOKENS:
    on_tokens(l, r, e, now);
    for (size_t k = 0; k < e->tokens.num; k++) bench_chat_hear(l, i, e->tokens.choices[k]);
    break;
  case TRIREME_EVENT_DONE:
  case TRIREME_EVENT_ERROR:
  case TRIREME_EVENT_EMBEDDING:
  case TRIREME_EVENT_SCORES:
    if (r->end_ns) break;
    on_end(l, r, e, now);
    bench_chat_go_on(l, i);
    break;
  default: break;
  }
}

/* ---- the loop ---- */

/* A Poisson process: gaps are exponential, -ln(1 - u) / rate. Lengths have random numbers of their own, so that every
 * rate gets the same ones. */
static void plan_arrivals(const bench_run *b, bench_load *l, uint64_t *random) {
  uint64_t lengths = bench_lengths_seed(b->o->seed);
  double at = 0;
  for (size_t i = 0; i < l->num; i++) {
    l->requests[i].arrival_ns = (int64_t)at;
    l->requests[i].input_len = bench_lengths_draw(&b->lengths, bench_place(b, l->num, i), &lengths);
    if (isfinite(l->rate)) at += -log1p(-bench_uniform(random)) / l->rate * 1e9;
  }
}

static trireme_result send_next(bench_run *b, bench_load *l, uint64_t *random, trireme_error *error) {
  uint64_t id;
  size_t i = l->order[l->sent];
  bench_request *r = &l->requests[i];
  r->sent_ns = tri_now_ns() - l->start_ns;
  trireme_result st = bench_send(b, l, i, random, &id, error);
  if (st != TRIREME_OK) return st;
  if (!l->sent) l->first_id = id;
  l->sent++;
  if (++l->in_flight > l->most_in_flight) l->most_in_flight = l->in_flight;
  return TRIREME_OK;
}

/* Waits for an event or until the next arrival, which a wait in whole milliseconds would make late. It may return
 * sooner, as after a signal: the loop looks again. */
static void wait_for_arrival(const bench_run *b, int64_t ns) {
  struct pollfd p = {.fd = trireme_fd(b->c), .events = POLLIN};
  struct timespec t = {.tv_nsec = ns < LONGEST_WAIT_NS ? ns : LONGEST_WAIT_NS};
  if (ns > 0) ppoll(&p, 1, &t, NULL);
}

/* Never sleeps while something can be sent or has come: only a load that waits for its next arrival, or for any event
 * when there is nothing to send, does. */
static int loop(bench_run *b, bench_load *l, uint64_t *random) {
  trireme_error error = {0};
  int64_t most = b->o->max_concurrency ? b->o->max_concurrency : INT64_MAX;
  l->start_ns = tri_now_ns();
  while (l->finished < l->num && !cli_signal) {
    int64_t now = tri_now_ns() - l->start_ns;
    bool more = l->sent < l->due && l->in_flight < most;
    bool due = more && now >= l->requests[l->order[l->sent]].arrival_ns;
    if (due && send_next(b, l, random, &error) != TRIREME_OK) return cli_fail(&error);
    trireme_event e;
    trireme_result r = trireme_next(b->c, more ? 0 : -1, &e, &error);
    if (r == TRIREME_OK)
      on_event(l, &e, tri_now_ns() - l->start_ns);
    else if (r != TRIREME_TIMEOUT && r != TRIREME_INTERRUPTED)
      return cli_fail(&error);
    else if (more && !due)
      wait_for_arrival(b, l->requests[l->order[l->sent]].arrival_ns - (tri_now_ns() - l->start_ns));
  }
  l->end_ns = tri_now_ns() - l->start_ns;
  l->interrupted = l->finished < l->num;
  return TRI_EXIT_OK;
}

int bench_load_run(bench_run *b, size_t number, size_t num, bench_load *l) {
  uint64_t random = b->o->seed;
  *l = (bench_load){.rate = b->rates[number], .num = num};
  l->requests = tri_calloc(num, sizeof *l->requests);
  if (!l->requests) return cli_failed("trireme bench", "no memory for %zu requests", num);
  int code = bench_chats_begin(b, l);
  if (code) return code;
  plan_arrivals(b, l, &random);
  random ^= tri_mix64(number); /* other texts in each load: what the server has kept of one is of no use to the next */
  return loop(b, l, &random);
}
