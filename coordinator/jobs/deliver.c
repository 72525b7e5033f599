/* SPDX-License-Identifier: Apache-2.0 */
/* Delivery to clients. A job with new output is marked; deliver_all sends what each client has not had yet. A client
 * that reads slowly keeps its job marked: its tokens merge into larger messages, and memory is bounded by the jobs' own
 * output.
 *
 * Every choice has two cursors, sent (tokens) and sent_text (bytes), which move only when a message was taken. So any
 * message may be refused with TRI_AGAIN, and the next attempt begins where this one stopped. A job says, in this order:
 * accepted, the prompt's echo, the prompt's logprobs, tokens, done; and nothing before its record is durable. */
#include <string.h>

#include "coordinator/jobs/jobs_impl.h"
#include "base/hash.h"

enum {
  IDS_PER_MESSAGE = 2048,
  IDS_WITH_LOGPROBS = 128,
  TEXT_PER_MESSAGE = 256 << 10,  /* bytes of an answer's text */
  DONE_TEXT = 512 << 10,         /* likewise, of all choices: with more, what is no stream comes in pieces, too */
  TEXTS_PER_MESSAGE = 128 << 10, /* bytes of the texts of tokens and their alternatives */
  MOST_PROMPT_IDS = 200000,      /* that `accepted` returns */
  LOOKED = 64,                   /* clients of one tick that are distinguished */
  MOST_DOUBLINGS = 6             /* of the time between two looks */
};

#define STUCK_NS (30 * 1000000000LL)  /* that a client may leave its queue full */
#define LOOK_NS (500 * 1000000LL)     /* without a word to a client, before it is looked for first */
#define ROUND_NS (100 * 1000000LL)    /* between two walks over the jobs for that */
#define ORPHAN_NS (60 * 1000000000LL) /* that a restored job waits for its client */
#define SOON_NS (20 * 1000000LL)      /* by then the socket knows that a connection has ended */

/* A reply has room for a whole status: what goes out with every token is filled in, not cleared first. */
static tri_status reply(tri_core *c, const job *j, tri_server_op op, tri_server_msg *m) {
  m->op = op;
  m->id = j->client_id;
  return c->cfg.io.to_client(c->cfg.io.ctx, &j->peer, m);
}

static tri_status send_accepted(tri_core *c, job *j) {
  tri_server_msg m;
  m.accepted.request_id = j->request_id;
  m.accepted.prompt_tokens = j->num_prompt;
  m.accepted.existing = j->known;
  m.accepted.token_ids_only = !c->cfg.tokenizer;
  m.accepted.cached = j->cached;
  bool ids = j->return_ids && j->prompt_ids && j->num_prompt <= MOST_PROMPT_IDS;
  m.accepted.token_ids = ids ? j->prompt_ids : NULL;
  m.accepted.num_token_ids = ids ? j->num_prompt : 0;
  return reply(c, j, TRI_REPLY_ACCEPTED, &m);
}

static tri_status send_tokens(tri_core *c, const job *j, const tri_choice_tokens *t) {
  tri_server_msg m;
  m.tokens.num = 1;
  m.tokens.choices = t;
  return reply(c, j, TRI_REPLY_TOKENS, &m);
}

/* Log probabilities of a message's tokens, and their texts. */
typedef struct logprobs_out {
  tri_token_logprobs tokens[IDS_WITH_LOGPROBS];
  tri_wire_str texts[IDS_WITH_LOGPROBS][TRI_WIRE_MAX_LOGPROBS];
  size_t used;
  char bytes[TEXTS_PER_MESSAGE];
} logprobs_out;

/* first: a text begins with the token. Without memory its text is that of the middle of one. */
static tri_wire_str put_text(logprobs_out *out, const tri_tokenizer *t, uint32_t id, bool first) {
  char *at = out->bytes + out->used;
  size_t n = 0;
  if (!first || tri_tokenizer_first_bytes(t, id, at, TRI_WIRE_MAX_TOKEN_TEXT, &n) != TRI_OK)
    n = tri_tokenizer_token_bytes(t, id, at, TRI_WIRE_MAX_TOKEN_TEXT);
  out->used += n;
  return (tri_wire_str){at, n};
}

/* Returns how many tokens of a choice, or of the scored prompt, a text may begin with: those up to the first that is
 * shown. */
static size_t count_first(const tri_core *c, const job *j, const job_choice *ch) {
  bool begins = ch == &j->scored || !j->after_prompt;
  return c->cfg.tokenizer && begins ? count_hidden(c, j, ch->ids, ch->num) + 1 : 0;
}

/* Collects up to n tokens of a choice from its cursor on; returns for how many there was room, at least one. */
static size_t put_logprobs(const tri_core *c, const job *j, const job_choice *ch, size_t n, logprobs_out *out) {
  enum { MOST_OF_ONE = (1 + TRI_WIRE_MAX_LOGPROBS) * TRI_WIRE_MAX_TOKEN_TEXT };
  size_t k = 0, first = count_first(c, j, ch);
  out->used = 0;
  for (; k < n && sizeof out->bytes - out->used >= MOST_OF_ONE; k++) {
    size_t at = ch->sent + k;
    const float *p = ch->logprobs + at * (1 + TRI_WIRE_MAX_LOGPROBS);
    tri_token_logprobs *l = &out->tokens[k];
    *l = (tri_token_logprobs){.logprob = p[0],
                              .num_top = ch->num_top[at],
                              .top_ids = ch->top_ids + at * TRI_WIRE_MAX_LOGPROBS,
                              .top_logprobs = p + 1};
    if (!c->cfg.tokenizer) continue;
    l->text = put_text(out, c->cfg.tokenizer, ch->ids[at], at < first);
    l->top_texts = out->texts[k];
    for (int i = 0; i < l->num_top; i++) out->texts[k][i] = put_text(out, c->cfg.tokenizer, l->top_ids[i], at < first);
  }
  return k;
}

/* Sends one message of choice i from its cursor on. */
static tri_status send_piece(tri_core *c, job *j, uint32_t i) {
  job_choice *ch = &j->choices[i];
  bool logprobs = j->sampling.logprobs >= 0;
  size_t limit = logprobs ? IDS_WITH_LOGPROBS : IDS_PER_MESSAGE, n = ch->num - ch->sent;
  if (j->cached && !logprobs) limit = n; /* it was small enough to be kept */
  logprobs_out *lp = logprobs ? tri_malloc(1, sizeof *lp) : NULL;
  if (logprobs && !lp) return TRI_AGAIN;
  if (n > limit) n = limit;
  if (logprobs) n = put_logprobs(c, j, ch, n, lp);
  /* The text that these tokens made certain; with the last ones all that there is. */
  size_t end = n ? ch->safe_after[ch->sent + n - 1] : ch->safe_len;
  if (end < ch->sent_text) end = ch->sent_text;
  for (; n > 1 && end - ch->sent_text > TEXT_PER_MESSAGE; end = ch->safe_after[ch->sent + n - 1]) n /= 2;
  tri_choice_tokens t = {.index = i,
                         .offset = ch->sent,
                         .text = {ch->text ? ch->text + ch->sent_text : "", end - ch->sent_text},
                         .ids = ch->ids + ch->sent,
                         .num_ids = n,
                         .logprobs = logprobs ? lp->tokens : NULL};
  tri_status st = send_tokens(c, j, &t);
  tri_free(lp);
  if (st != TRI_OK) return st;
  ch->sent += n;
  ch->sent_text = end;
  return TRI_OK;
}

/* Sends what the client has not had of the prompt's log probabilities. */
static tri_status send_scores(tri_core *c, job *j) {
  job_choice *p = &j->scored;
  logprobs_out *lp = p->sent < p->num ? tri_malloc(1, sizeof *lp) : NULL;
  tri_status st = TRI_OK;
  if (p->sent < p->num && !lp) return TRI_AGAIN;
  while (p->sent < p->num && st == TRI_OK) {
    size_t left = p->num - p->sent, n = put_logprobs(c, j, p, left < IDS_WITH_LOGPROBS ? left : IDS_WITH_LOGPROBS, lp);
    tri_choice_tokens t = {
        .offset = p->sent, .of_prompt = true, .ids = p->ids + p->sent, .num_ids = n, .logprobs = lp->tokens};
    st = send_tokens(c, j, &t);
    if (st == TRI_OK) p->sent += n;
  }
  tri_free(lp);
  return st;
}

static bool has_output(const job_choice *ch) { return ch->sent < ch->num || ch->sent_text < ch->safe_len; }

/* Returns how much of the prompt's text from echo_at on fits into a message, in whole characters. */
static size_t echo_piece(const job *j) {
  size_t left = j->prompt_len - j->echo_at, n = TEXT_PER_MESSAGE;
  if (left <= n) return left;
  while (n > TEXT_PER_MESSAGE - 3 && ((unsigned char)j->prompt[j->echo_at + n] & 0xc0) == 0x80) n--;
  return n;
}

/* The prompt's text comes first, but not again for a client that attaches after it. */
static tri_status send_echo(tri_core *c, job *j) {
  if (!j->echo || !j->prompt) return TRI_OK;
  for (; j->echo_sent < (uint32_t)j->sampling.n; j->echo_sent++, j->echo_at = 0)
    while (!j->choices[j->echo_sent].sent && !j->choices[j->echo_sent].ahead && j->echo_at < j->prompt_len) {
      tri_choice_tokens t = {.index = j->echo_sent, .text = {j->prompt + j->echo_at, echo_piece(j)}};
      TRI_CHECK(send_tokens(c, j, &t));
      j->echo_at += t.text.len;
    }
  return TRI_OK;
}

static size_t total_text(const job *j) {
  size_t n = j->echo ? (size_t)j->sampling.n * j->prompt_len : 0;
  for (int64_t i = 0; i < j->sampling.n; i++) n += j->choices[i].safe_len;
  return n;
}

/* Returns the texts of all choices, each after the prompt, one after the other. */
static char *echoed_texts(const job *j) {
  char *all = tri_malloc(total_text(j), 1), *p = all;
  for (int64_t i = 0; all && i < j->sampling.n; i++) {
    const job_choice *ch = &j->choices[i];
    memcpy(p, j->prompt, j->prompt_len);
    if (ch->safe_len) memcpy(p + j->prompt_len, ch->text, ch->safe_len);
    p += j->prompt_len + ch->safe_len;
  }
  return all;
}

static tri_status send_done(tri_core *c, job *j, bool with_text) {
  if (j->error) return reply_error(c, &j->peer, j->client_id, j->error);
  tri_server_msg m;
  tri_done *d = &m.done;
  char *echoed = NULL, *next;
  if (with_text && j->echo && j->prompt && !(echoed = echoed_texts(j))) return TRI_AGAIN;
  next = echoed;
  d->num_choices = (uint32_t)j->sampling.n;
  d->prompt_tokens = j->num_prompt;
  d->completion_tokens = 0;
  d->preemptions = j->preemptions;
  d->cached_tokens = j->cached_tokens;
  d->timed_out = j->timed_out;
  d->seed = j->seed;
  for (uint32_t i = 0; i < d->num_choices; i++) {
    const job_choice *ch = &j->choices[i];
    d->choices[i].reason = ch->reason;
    d->choices[i].completion_tokens = ch->num;
    d->choices[i].has_stop_string = ch->stop_string >= 0;
    d->choices[i].stop_string = d->choices[i].has_stop_string ? (uint64_t)ch->stop_string : 0;
    d->choices[i].has_stop_token_id = ch->stopped_by_id && ch->num && ch->stop_string < 0;
    d->choices[i].stop_token_id = d->choices[i].has_stop_token_id ? ch->ids[ch->num - 1] : 0;
    d->choices[i].text = (tri_wire_str){0};
    if (with_text) d->choices[i].text = (tri_wire_str){ch->text ? ch->text : "", ch->safe_len};
    if (with_text && echoed) {
      d->choices[i].text = (tri_wire_str){next, j->prompt_len + ch->safe_len};
      next += j->prompt_len + ch->safe_len;
    }
    d->completion_tokens += ch->num;
  }
  d->queue_ms = (double)job_queue_ns(j) / 1e6;
  d->first_token_ms = j->first_token_ns ? (double)(j->first_token_ns - j->submitted_ns) / 1e6 : 0;
  d->total_ms = (double)(j->ended_ns - j->submitted_ns) / 1e6;
  tri_status st = reply(c, j, TRI_REPLY_DONE, &m);
  tri_free(echoed);
  return st;
}

static tri_status deliver(tri_core *c, job *j) {
  if (j->embed) return embed_deliver(c, j);
  bool durable = record_is_durable(c, j);
  bool gives_up = c->ending && j->error; /* the next start has the job, or not: its client asks again */
  if (j->state <= JOB_TOKENIZING || j->done_sent || (!durable && !gives_up)) return TRI_OK;
  bool only_error = j->error && (!j->assigned_ns || !durable); /* it did not run, or that is not durable */
  bool accepted = !only_error;
  if (accepted && !j->accepted_sent) {
    TRI_CHECK(send_accepted(c, j));
    j->accepted_sent = true;
  }
  bool ended = j->state == JOB_ENDED;
  /* `done` has the text, but neither token ids nor log probabilities, which come before it. */
  bool whole = !j->stream && c->cfg.tokenizer && j->sampling.logprobs < 0 && total_text(j) <= DONE_TEXT;
  bool pieces = accepted && (j->stream || (ended && !whole && !j->error));
  if (pieces) TRI_CHECK(send_echo(c, j));
  if (pieces || (accepted && ended && !j->error)) TRI_CHECK(send_scores(c, j));
  for (uint32_t i = 0; pieces && i < (uint32_t)j->sampling.n; i++)
    while (has_output(&j->choices[i])) TRI_CHECK(send_piece(c, j, i));
  if (ended && !j->done_sent) {
    TRI_CHECK(send_done(c, j, whole));
    j->done_sent = true;
  }
  return TRI_OK;
}

static void lose_client(tri_core *c, int64_t now, job *j) {
  j->attached = false;
  if (j->on_disconnect != TRI_DISCONNECT_CANCEL || j->state == JOB_ENDED) return;
  j->dropped = true;
  job_abort(c, now, j);
}

static void deliver_job(tri_core *c, int64_t now, job *j) {
  tri_status st = deliver(c, j);
  if (j->stream) { /* what is no stream says little before its end */
    j->said_ns = now;
    j->looks = 0;
  }
  /* A client that reads nothing for so long is taken for gone. */
  if (st != TRI_AGAIN)
    j->stuck_ns = 0;
  else if (!j->stuck_ns)
    j->stuck_ns = now;
  else if (now - j->stuck_ns > STUCK_NS)
    st = TRI_CLOSED;
  if (st == TRI_AGAIN) {
    job_mark(c, j);
  } else if (st == TRI_CLOSED) {
    lose_client(c, now, j);
  }
}

/* Results of the looks of one tick, by a hash of the client: mostly one for each, however many jobs it has. */
typedef struct looked {
  tri_peer peer;
  tri_status st;
} looked;

static tri_status look_once(tri_core *c, looked *all, const tri_peer *peer) {
  looked *l = &all[tri_mix64(tri_hash_bytes(TRI_HASH_SEED, peer->bytes, peer->len)) % LOOKED];
  if (l->peer.len && tri_peer_equal(&l->peer, peer)) return l->st;
  l->peer = *peer;
  l->st = c->cfg.io.look(c->cfg.io.ctx, peer);
  return l->st;
}

void deliver_connections_ended(tri_core *c, int64_t now, const tri_connections *ended) {
  for (job *j = TAILQ_FIRST(&c->jobs->active); j; j = TAILQ_NEXT(j, links)) {
    if (!tri_connections_may_have(ended, j->peer.connection)) continue;
    j->looks = 0;
    if (j->said_ns > now - LOOK_NS + SOON_NS) j->said_ns = now - LOOK_NS + SOON_NS;
  }
}

/* Says that no client has come for a restored job, which does not continue without. */
static bool is_orphan(const job *j, int64_t now) {
  return j->orphan_ns && !j->attached && j->on_disconnect == TRI_DISCONNECT_CANCEL && now - j->orphan_ns > ORPHAN_NS;
}

/* A job may have nothing to say for long: its text waits for the tokenizer, it waits itself, or it says all at its end.
 * Looks come ever more seldom: each leaves a frame with a client that is there and does not read, whose
 * connection ends after 64 unread ones. */
void deliver_tick(tri_core *c, int64_t now) {
  if (now - c->jobs->looked_ns < ROUND_NS) return;
  looked all[LOOKED] = {0};
  c->jobs->looked_ns = now;
  for (job *j = TAILQ_FIRST(&c->jobs->active), *next; j; j = next) {
    next = TAILQ_NEXT(j, links);
    if (is_orphan(j, now)) {
      j->dropped = true;
      job_abort(c, now, j);
      continue;
    }
    bool due = now - j->said_ns >= LOOK_NS << j->looks;
    if (!due || !j->attached || j->on_disconnect != TRI_DISCONNECT_CANCEL) continue;
    tri_status st = look_once(c, all, &j->peer);
    j->said_ns = now;
    if (j->looks < MOST_DOUBLINGS) j->looks++;
    if (st == TRI_CLOSED) lose_client(c, now, j);
  }
}

void deliver_all(tri_core *c, int64_t now) {
  job *list = c->jobs->dirty;
  c->jobs->dirty = NULL;
  while (list) {
    job *j = list;
    list = j->dirty_next;
    j->dirty = false;
    if (j->attached) deliver_job(c, now, j);
    /* An encoder's answer, which may be large, cannot be asked for again. */
    if (j->embed && j->state == JOB_ENDED && !j->dirty && (j->done_sent || !j->attached)) job_forget(c, j);
  }
}
