/* SPDX-License-Identifier: Apache-2.0 */
/* One thread and a loop over the clusters: each has up to `concurrency` requests in flight, whatever the other does.
 *
 * A full queue is no failure: what it had no room for is sent again after a pause. The first request that fails
 * otherwise ends the run, as figures over a part of a text are no figures of the text. */
#include <math.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "tools/eval/eval.h"
#include "base/mem.h"
#include "base/wait.h"

enum { LOOK_MS = 500, PAUSE_MS = 200, MOST_TRIES = 1500, PROGRESS_MS = 100 };

/* ---- requests ---- */

static size_t prompt_of(const eval_plan *p, size_t item, eval_window *w) {
  *w = eval_window_at(p->tokens, p->window, p->stride, item % p->num_windows);
  size_t len = w->end - w->begin;
  return item < p->num_windows || len < p->prompt_tokens ? len : p->prompt_tokens;
}

/* A continuation is that of the model alone: what its folder says about sampling is overridden. */
static void make_request(const eval_plan *p, size_t item, trireme_request *r) {
  eval_window w;
  trireme_request_init(r);
  r->num_token_ids = prompt_of(p, item, &w);
  r->token_ids = p->ids + w.begin;
  r->no_cache = true; /* a second run is measured, too */
  r->temperature = 0;
  r->num_beams = 1;
  if (item < p->num_windows) {
    r->prompt_logprobs = p->compare ? 1 : 0;
    r->max_tokens = 0;
    return;
  }
  r->max_tokens = (int64_t)p->max_tokens;
  r->repetition_penalty = 1;
  r->ignore_eos = true;
}

/* Returns whether something is to be sent now; *item is it. */
static bool next_item(eval_side *s, size_t *item) {
  if (s->in_flight == s->plan->concurrency) return false;
  if (s->num_refused) {
    if (tri_now_ns() < s->pause_until_ns) return false;
    *item = s->refused[--s->num_refused];
    return true;
  }
  if (s->next == s->num_items) return false;
  *item = s->next++;
  return true;
}

static void put_off(eval_side *s, size_t item) {
  s->refused[s->num_refused++] = item;
  s->pause_until_ns = tri_deadline_after_ms(PAUSE_MS);
}

static int send_item(eval_side *s, size_t item) {
  trireme_error error = {0};
  trireme_request r;
  size_t i = 0;
  make_request(s->plan, item, &r);
  while (s->slots[i].in_use) i++;
  s->slots[i] = (eval_slot){.item = item};
  trireme_result result = trireme_submit(s->c, &r, &s->slots[i].id, &error);
  if (result == TRIREME_TIMEOUT || result == TRIREME_INTERRUPTED) { /* nothing was sent */
    put_off(s, item);
    return TRI_EXIT_OK;
  }
  if (result) return eval_side_fail(s, &error);
  s->slots[i].in_use = true;
  s->in_flight++;
  return TRI_EXIT_OK;
}

/* ---- answers ---- */

static eval_slot *slot_of(eval_side *s, uint64_t id) {
  for (size_t i = 0; i < s->plan->concurrency; i++)
    if (s->slots[i].in_use && s->slots[i].id == id) return &s->slots[i];
  return NULL;
}

/* Takes the log probability of the token at a place of the text. Those of a window's context are not wanted. */
static bool take_score(eval_side *s, const eval_window *w, size_t at, const trireme_choice *c, size_t k) {
  const trireme_logprobs *l = c->logprobs ? c->logprobs[k] : NULL;
  if (at >= w->end || c->ids[k] != s->plan->ids[at]) return false;
  if (at < w->first) return true;
  if (!l || !isfinite(l->logprob) || (s->plan->compare && !l->num_top)) return false;
  s->scores.logprob[at] = l->logprob;
  if (s->plan->compare) s->scores.best[at] = l->top_ids[0];
  return true;
}

static bool take_window(eval_side *s, eval_slot *slot, const trireme_choice *c) {
  eval_window w;
  prompt_of(s->plan, slot->item, &w);
  if (c->offset != slot->got) return false;
  for (size_t k = 0; k < c->num_ids; k++)
    if (!take_score(s, &w, w.begin + slot->got + k, c, k)) return false;
  slot->got += c->num_ids;
  return true;
}

static bool take_continuation(eval_side *s, eval_slot *slot, const trireme_choice *c) {
  size_t i = slot->item - s->plan->num_windows, most = s->plan->max_tokens;
  if (c->offset != slot->got || c->num_ids > most - slot->got) return false;
  if (c->num_ids) memcpy(s->continuations.ids + i * most + slot->got, c->ids, c->num_ids * sizeof *c->ids);
  slot->got += c->num_ids;
  s->continuations.num[i] = slot->got;
  return true;
}

static int on_tokens(eval_side *s, eval_slot *slot, const trireme_event *e) {
  bool window = slot->item < s->plan->num_windows;
  for (size_t i = 0; i < e->tokens.num; i++) {
    const trireme_choice *c = e->tokens.choices[i];
    if (c->of_prompt != window) continue;
    bool usable = window ? take_window(s, slot, c) : take_continuation(s, slot, c);
    if (!usable) return eval_side_cannot(s, "it answers without usable %s", window ? "log probabilities" : "tokens");
  }
  return TRI_EXIT_OK;
}

static int on_done(eval_side *s, eval_slot *slot, const trireme_event *e) {
  eval_window w;
  const char *why = e->done.num ? e->done.choices[0]->finish_reason : "error";
  size_t prompt = prompt_of(s->plan, slot->item, &w);
  size_t wanted = slot->item < s->plan->num_windows ? prompt : s->plan->max_tokens;
  slot->in_use = false;
  s->in_flight--;
  s->done++;
  s->tries = 0;
  if (slot->got == wanted) return TRI_EXIT_OK;
  trireme_error error = {.code = "internal"};
  snprintf(error.message, sizeof error.message, "a request ended after %zu of %zu tokens (%.40s)", slot->got, wanted,
           why);
  return eval_side_fail(s, &error);
}

/* A queue that is full names no field, as it is nothing about this request. A try counts where no request of ours is
 * left there, which would make room. */
static int on_error(eval_side *s, eval_slot *slot, const trireme_error *error) {
  bool full = !strcmp(error->code, "no_capacity") && !error->field[0];
  slot->in_use = false;
  s->in_flight--;
  s->tries += !s->in_flight;
  if (!full || s->tries > MOST_TRIES) return eval_side_refused(s, error);
  put_off(s, slot->item);
  return TRI_EXIT_OK;
}

static int on_event(eval_side *s, const trireme_event *e) {
  eval_slot *slot = slot_of(s, e->id);
  if (!slot) return TRI_EXIT_OK;
  switch (e->kind) {
  case TRIREME_EVENT_TOKENS: return on_tokens(s, slot, e);
  case TRIREME_EVENT_DONE: return on_done(s, slot, e);
  case TRIREME_EVENT_ERROR: return on_error(s, slot, &e->error);
  default: return TRI_EXIT_OK;
  }
}

/* ---- the loop ---- */

/* Sends what is due and takes one event. *idle stays true where neither was there. */
static int step(eval_side *s, bool *idle) {
  trireme_error error = {0};
  trireme_event e;
  for (size_t item; next_item(s, &item);) {
    int code = send_item(s, item);
    if (code) return code;
    *idle = false;
  }
  if (!s->in_flight) return TRI_EXIT_OK;
  trireme_result r = cli_next(s->c, 0, &s->presence, &e, &error);
  if (r == TRIREME_TIMEOUT || r == TRIREME_INTERRUPTED) return TRI_EXIT_OK;
  *idle = false;
  return r ? eval_side_fail(s, &error) : on_event(s, &e);
}

/* Waits until a cluster has said something. A pause after a full queue ends sooner. */
static void wait_for_any(const eval_side *sides, size_t num) {
  struct pollfd fds[2];
  int ms = LOOK_MS;
  for (size_t i = 0; i < num; i++) {
    fds[i] = (struct pollfd){.fd = trireme_fd(sides[i].c), .events = POLLIN};
    if (sides[i].num_refused) ms = PAUSE_MS / 4;
  }
  poll(fds, (nfds_t)num, ms);
}

/* Shows on a terminal how far it is; last: takes that away. */
static void show_progress(const eval_side *sides, size_t num, int64_t *shown_ns, bool last) {
  int64_t now = tri_now_ns();
  size_t done = 0, all = 0;
  if (!isatty(STDERR_FILENO) || (!last && now - *shown_ns < PROGRESS_MS * 1000000LL)) return;
  *shown_ns = now;
  for (size_t i = 0; i < num; i++) {
    done += sides[i].done;
    all += sides[i].num_items;
  }
  if (last)
    fprintf(stderr, "\r\033[K");
  else
    fprintf(stderr, "\r\033[Ktrireme: %zu of %zu requests", done, all);
}

static tri_status begin(eval_side *s, const eval_plan *p) {
  size_t most = p->max_tokens ? p->max_tokens : 1, ids;
  s->plan = p;
  s->presence.in_line = isatty(STDERR_FILENO);
  s->num_items = p->max_tokens ? 2 * p->num_windows : p->num_windows;
  if (!tri_size_mul(p->num_windows, most, &ids)) return TRI_NO_MEMORY;
  s->scores.logprob = tri_calloc(p->tokens, sizeof *s->scores.logprob);
  s->scores.best = tri_calloc(p->tokens, sizeof *s->scores.best);
  s->continuations.ids = tri_calloc(ids, sizeof *s->continuations.ids);
  s->continuations.num = tri_calloc(p->num_windows, sizeof *s->continuations.num);
  bool all = s->scores.logprob && s->scores.best && s->continuations.ids && s->continuations.num;
  return all ? TRI_OK : TRI_NO_MEMORY;
}

static bool all_done(const eval_side *sides, size_t num) {
  for (size_t i = 0; i < num; i++)
    if (sides[i].done < sides[i].num_items) return false;
  return true;
}

int eval_ask(eval_side *sides, size_t num, const eval_plan *plan) {
  int code = TRI_EXIT_OK;
  int64_t shown_ns = 0;
  for (size_t i = 0; i < num; i++)
    if (begin(&sides[i], plan) != TRI_OK)
      return cli_failed("trireme eval", "no memory for the answers of %zu windows", plan->num_windows);
  while (!code && !cli_signal && !all_done(sides, num)) {
    bool idle = true;
    for (size_t i = 0; i < num && !code; i++) code = step(&sides[i], &idle);
    show_progress(sides, num, &shown_ns, false);
    if (idle && !code) wait_for_any(sides, num);
  }
  show_progress(sides, num, &shown_ns, true);
  if (!code && !all_done(sides, num)) return cli_failed("trireme eval", "interrupted");
  return code;
}
