/* SPDX-License-Identifier: Apache-2.0 */
/* A request from its call to its last answer:
 *
 *   added, unsent -> sent -> accepted -> (tokens: seen) -> forgotten with its last answer
 *        ^                                  |
 *        +--- the connection was lost ------+   as itself, or once seen as an attach
 *
 * An attach gives the whole answer again, from its beginning. Each part of an answer (a choice, or the prompt)
 * therefore has two extents: `ids` and `text`, what the program was given, and `ids_now` and `text_now`, what has come
 * over this connection. While the second is shorter, what comes is swallowed and hashed; where it reaches the first,
 * the hashes must be equal, or it is another answer; from there on both grow together. A hash stands for what was
 * given, so that no answer has to be stored.
 *
 * Cancels are requests too. One whose submit is kept is linked to it and, once accepted, lives as long as the submit:
 * over a new connection both are sent again in their order. One without such a submit ends with its answer.
 *
 * Lists: an entry is in `all`, in the order of the calls, and in `unsent` while it waits; or in `ended` alone, where it
 * waits to be given as an error. Buckets of a hash table find it by its number and, for a submit, by its request id. */
#include "client/kept.h"

#include <stdio.h>
#include <string.h>
#include <sys/queue.h>

#include "base/hash.h"
#include "base/mem.h"

enum { FIRST_BUCKETS = 512, WORDS = 400 };
static const int64_t STEADY_NS = 5000000000; /* of a connection that is not lost again by what was asked */
static const char LOST[] = "coordinator_lost";

/* How much of something has come, and a hash of it. */
typedef struct extent {
  uint64_t len, hash;
} extent;

/* The answer of one choice, or the prompt's tokens: as far as the program has it, and as far as it has come from the
 * coordinator that is asked now. */
typedef struct part {
  extent ids, text, ids_now, text_now;
} part;

typedef struct kept kept;
TAILQ_HEAD(kept_list, kept);
LIST_HEAD(kept_chain, kept);

struct kept {
  TAILQ_ENTRY(kept) links; /* of all, or of those that have ended */
  TAILQ_ENTRY(kept) unsent_links;
  LIST_ENTRY(kept) chain;        /* of its bucket */
  LIST_ENTRY(kept) submit_chain; /* likewise, of a submit */
  struct kept_chain cancels;     /* of a submit */
  LIST_ENTRY(kept) cancel_links; /* of a cancel that has a target */
  kept *target;                  /* of a cancel, the submit that it cancels; NULL: that is not kept */
  uint64_t id;
  tri_client_op op;
  tri_request_id request_id; /* of a submit */
  bool fixed;                /* the same request draws the same again */
  bool unsent, accepted;
  bool cancelled;  /* of a submit: a cancel of it was accepted */
  bool attaches;   /* it was sent again as an attach */
  bool seen;       /* the program has something of the answer */
  int64_t lost_ns; /* when its connection was lost, with no answer since; 0: it was not */
  part prompt, *parts;
  size_t num_parts;
  size_t len;
  char bytes[];
};

typedef struct bucket {
  struct kept_chain by_id, by_request_id;
} bucket;

struct tri_kept {
  int64_t patience_ns;
  struct kept_list all, unsent, ended;
  bucket *buckets; /* [num_buckets], a power of two, of at least as many as all has */
  size_t num_buckets, num_all;
  tri_buf attach;     /* memory of tri_kept_next */
  char why[WORDS];    /* of those that have ended */
  char reason[WORDS]; /* by which the coordinator ends */
};

tri_status tri_kept_create(int64_t patience_ns, tri_kept **out) {
  tri_kept *k = tri_calloc(1, sizeof *k);
  if (!k) return TRI_NO_MEMORY;
  k->buckets = tri_calloc(FIRST_BUCKETS, sizeof *k->buckets);
  if (!k->buckets) {
    tri_free(k);
    return TRI_NO_MEMORY;
  }
  k->num_buckets = FIRST_BUCKETS;
  k->patience_ns = patience_ns;
  TAILQ_INIT(&k->all);
  TAILQ_INIT(&k->unsent);
  TAILQ_INIT(&k->ended);
  *out = k;
  return TRI_OK;
}

static void entry_free(kept *e) {
  tri_free(e->parts);
  tri_free(e);
}

static void free_list(struct kept_list *list) {
  for (kept *e; (e = TAILQ_FIRST(list));) {
    TAILQ_REMOVE(list, e, links);
    entry_free(e);
  }
}

void tri_kept_destroy(tri_kept *k) {
  if (!k) return;
  free_list(&k->all);
  free_list(&k->ended);
  tri_buf_free(&k->attach);
  tri_free(k->buckets);
  tri_free(k);
}

/* ---- found by number and by request id ---- */

static bucket *bucket_of_id(const tri_kept *k, uint64_t id) { return &k->buckets[id & (k->num_buckets - 1)]; }

static bucket *bucket_of_request(const tri_kept *k, const tri_request_id *r) {
  return &k->buckets[tri_hash_bytes(TRI_HASH_SEED, r, sizeof *r) & (k->num_buckets - 1)];
}

static kept *find(const tri_kept *k, uint64_t id) {
  kept *e = LIST_FIRST(&bucket_of_id(k, id)->by_id);
  while (e && e->id != id) e = LIST_NEXT(e, chain);
  return e;
}

static kept *find_submit(const tri_kept *k, const tri_request_id *request_id) {
  kept *e = LIST_FIRST(&bucket_of_request(k, request_id)->by_request_id);
  while (e && memcmp(&e->request_id, request_id, sizeof *request_id)) e = LIST_NEXT(e, submit_chain);
  return e;
}

static void put_in_buckets(tri_kept *k, kept *e) {
  LIST_INSERT_HEAD(&bucket_of_id(k, e->id)->by_id, e, chain);
  if (e->op == TRI_OP_SUBMIT) LIST_INSERT_HEAD(&bucket_of_request(k, &e->request_id)->by_request_id, e, submit_chain);
}

/* Makes room for one more, so that no chain becomes long. */
static tri_status grow_buckets(tri_kept *k) {
  size_t num;
  if (k->num_all < k->num_buckets) return TRI_OK;
  if (!tri_size_mul(k->num_buckets, 2, &num)) return TRI_OVERFLOW;
  bucket *grown = tri_calloc(num, sizeof *grown);
  if (!grown) return TRI_NO_MEMORY;
  tri_free(k->buckets);
  k->buckets = grown;
  k->num_buckets = num;
  for (kept *e = TAILQ_FIRST(&k->all); e; e = TAILQ_NEXT(e, links)) put_in_buckets(k, e);
  return TRI_OK;
}

/* ---- kept and forgotten ---- */

static void set_unsent(tri_kept *k, kept *e, bool unsent) {
  if (e->unsent == unsent) return;
  e->unsent = unsent;
  if (unsent)
    TAILQ_INSERT_TAIL(&k->unsent, e, unsent_links);
  else
    TAILQ_REMOVE(&k->unsent, e, unsent_links);
}

static void set_target(kept *cancel, kept *target) {
  if (cancel->target) LIST_REMOVE(cancel, cancel_links);
  cancel->target = target;
  if (target) LIST_INSERT_HEAD(&target->cancels, cancel, cancel_links);
}

/* The cancels of a submit must have been seen to. */
static void take_out(tri_kept *k, kept *e) {
  set_unsent(k, e, false);
  set_target(e, NULL);
  LIST_REMOVE(e, chain);
  if (e->op == TRI_OP_SUBMIT) LIST_REMOVE(e, submit_chain);
  TAILQ_REMOVE(&k->all, e, links);
  k->num_all--;
}

/* Forgets an entry, and with a submit the cancels that were kept for it alone. */
static void forget(tri_kept *k, kept *e) {
  for (kept *c; (c = LIST_FIRST(&e->cancels));) {
    set_target(c, NULL);
    if (c->accepted) forget(k, c); /* it has none itself */
  }
  take_out(k, e);
  entry_free(e);
}

void tri_kept_forget(tri_kept *k, uint64_t id) {
  kept *e = find(k, id);
  if (e) forget(k, e);
}

/* Other numbers of a request, as a temperature of 0, leave a rounding to decide which of two tokens is the better one;
 * so does a seed, but for both what has come is compared. */
static bool draws_are_fixed(const tri_sampling *s) {
  return s->has_seed || (s->has_temperature && s->temperature == 0) || (s->has_num_beams && s->num_beams > 1);
}

static void find_target(const tri_kept *k, kept *cancel, const tri_client_msg *m) {
  kept *target = m->cancel.has_target ? find(k, m->cancel.target) : find_submit(k, &m->cancel.request_id);
  if (target && target->op == TRI_OP_SUBMIT) set_target(cancel, target);
}

/* A cancel that has had no answer yet counts: one that is refused is kept no longer. */
static bool is_cancelled(const kept *submit) { return submit->cancelled || !LIST_EMPTY(&submit->cancels); }

tri_status tri_kept_add(tri_kept *k, const tri_client_msg *m, const void *bytes, size_t len) {
  size_t size;
  if (!tri_size_add(sizeof(kept), len, &size)) return TRI_OVERFLOW;
  TRI_CHECK(grow_buckets(k));
  kept *e = tri_calloc(size, 1);
  if (!e) return TRI_NO_MEMORY;
  e->id = m->id;
  e->op = m->op;
  e->len = len;
  memcpy(e->bytes, bytes, len);
  if (m->op == TRI_OP_SUBMIT) {
    e->request_id = m->submit.request_id;
    e->fixed = draws_are_fixed(&m->submit.sampling);
  }
  if (m->op == TRI_OP_CANCEL) find_target(k, e, m);
  TAILQ_INSERT_TAIL(&k->all, e, links);
  k->num_all++;
  put_in_buckets(k, e);
  set_unsent(k, e, true);
  return TRI_OK;
}

bool tri_kept_next(tri_kept *k, const void **bytes, size_t *len) {
  kept *e = TAILQ_FIRST(&k->unsent);
  if (!e) return false;
  *bytes = e->bytes;
  *len = e->len;
  if (!e->attaches) return true;
  tri_client_msg m = {.op = TRI_OP_ATTACH, .id = e->id, .attach = {.request_id = e->request_id}};
  if (tri_client_msg_pack(&m, &k->attach) != TRI_OK) return false;
  *bytes = k->attach.data;
  *len = k->attach.len;
  return true;
}

void tri_kept_sent(tri_kept *k) {
  kept *e = TAILQ_FIRST(&k->unsent);
  if (e) set_unsent(k, e, false);
}

/* ---- what an answer has had ---- */

static void begin_again(kept *e) {
  static const extent none = {.hash = TRI_HASH_SEED};
  e->prompt.ids_now = e->prompt.text_now = none;
  for (size_t i = 0; i < e->num_parts; i++) e->parts[i].ids_now = e->parts[i].text_now = none;
}

static part *part_of(kept *e, const tri_choice_tokens *t) {
  static const extent none = {.hash = TRI_HASH_SEED};
  if (t->of_prompt) {
    if (!e->prompt.ids.hash) e->prompt = (part){none, none, none, none};
    return &e->prompt;
  }
  if (t->index >= TRI_WIRE_MAX_N) return NULL;
  if (t->index >= e->num_parts) {
    part *grown = tri_grow(e->parts, e->num_parts, t->index + 1, sizeof *grown);
    if (!grown) return NULL;
    e->parts = grown;
    for (; e->num_parts <= t->index; e->num_parts++) e->parts[e->num_parts] = (part){none, none, none, none};
  }
  return &e->parts[t->index];
}

/* Takes n elements more in. Returns how many of them the program has had; *same: they are those. */
static size_t advance(extent *had, extent *now, const void *p, size_t n, size_t size, bool *same) {
  size_t old = had->len - now->len < n ? (size_t)(had->len - now->len) : n;
  now->hash = tri_hash_bytes(now->hash, p, old * size);
  now->len += old;
  if (now->len < had->len) return old;
  *same = *same && now->hash == had->hash;
  if (n > old) now->hash = tri_hash_bytes(now->hash, (const char *)p + old * size, (n - old) * size);
  now->len += n - old;
  *had = *now;
  return old;
}

/* Leaves out of one choice's tokens what the program has; false: they are not what follows here. */
static bool trim(kept *e, tri_choice_tokens *t) {
  part *p = part_of(e, t);
  if (!p) return false;
  bool same = e->op != TRI_OP_SUBMIT || !t->num_ids || t->offset == p->ids_now.len;
  size_t ids = advance(&p->ids, &p->ids_now, t->ids, t->num_ids, sizeof *t->ids, &same);
  size_t text = advance(&p->text, &p->text_now, t->text.s, t->text.len, 1, &same);
  t->offset += ids;
  t->num_ids -= ids;
  t->text.len -= text;
  if (ids) t->ids += ids;
  if (ids && t->logprobs) t->logprobs += ids;
  if (text) t->text.s += text;
  return same;
}

static bool is_whole(const part *p) { return p->ids.len == p->ids_now.len && p->text.len == p->text_now.len; }

/* Has as much come, before this end, as the program has, and as the end says? Tokens come in a stream alone. */
static bool all_whole(const kept *e, const tri_server_msg *m) {
  bool whole = is_whole(&e->prompt);
  for (size_t i = 0; i < e->num_parts; i++) {
    const part *p = &e->parts[i];
    bool counted = e->op == TRI_OP_SUBMIT && p->ids_now.len && i < m->done.num_choices;
    whole = whole && is_whole(p) && (!counted || m->done.choices[i].completion_tokens == p->ids_now.len);
  }
  return whole;
}

/* ---- what a coordinator says ---- */

static tri_wire_str str(const char *s) { return (tri_wire_str){s, strlen(s)}; }

static void say_error(tri_server_msg *m, uint64_t id, const char *code, const char *message) {
  m->op = TRI_REPLY_ERROR;
  m->id = id;
  m->error.code = str(code);
  m->error.message = str(message);
  m->error.field = str("");
}

static bool is_code(const tri_server_msg *m, const char *code) {
  return m->error.code.len == strlen(code) && !memcmp(m->error.code.s, code, m->error.code.len);
}

static tri_kept_verdict end_differently(tri_kept *k, kept *e, tri_server_msg *m) {
  say_error(m, e->id, LOST,
            "the coordinator was lost, and the one that is there now has another answer than the one that has begun, "
            "or a part of the answer was left out");
  forget(k, e);
  return KEPT_GIVE_AND_CANCEL;
}

static tri_kept_verdict take_tokens(tri_kept *k, tri_arena *arena, kept *e, tri_server_msg *m) {
  uint32_t left = 0;
  bool same = true;
  tri_choice_tokens *own = tri_arena_alloc(arena, m->tokens.num ? m->tokens.num : 1, sizeof *own);
  for (uint32_t i = 0; own && same && i < m->tokens.num; i++) {
    tri_choice_tokens t = m->tokens.choices[i];
    bool empty = !t.num_ids && !t.text.len;
    same = trim(e, &t);
    if (empty || t.num_ids || t.text.len) own[left++] = t;
  }
  if (!own || !same) return end_differently(k, e, m);
  if (!left) return KEPT_DROP;
  e->seen = true;
  m->tokens.num = left;
  m->tokens.choices = own;
  return KEPT_GIVE;
}

/* An error ends a request, but for two cases. A coordinator that ends says so of each job: KEPT_LEAVING, and the next
 * one continues it. One that does not know the job of an attach is asked again for it from the beginning where the
 * draws are fixed: KEPT_DROP. */
static tri_kept_verdict take_error(tri_kept *k, kept *e, tri_server_msg *m) {
  bool forgotten = is_code(m, "not_found") && e->attaches;
  if (is_code(m, LOST)) {
    snprintf(k->reason, sizeof k->reason, "%.*s", (int)m->error.message.len, m->error.message.s);
    return KEPT_LEAVING;
  }
  if (forgotten && is_cancelled(e)) {
    say_error(m, e->id, "aborted", "the job was cancelled while there was no coordinator");
  } else if (forgotten && e->fixed) {
    e->attaches = false;
    begin_again(e);
    set_unsent(k, e, true);
    return KEPT_DROP;
  } else if (forgotten) {
    say_error(m, e->id, LOST,
              "the coordinator was lost, and the one that is there now does not know the job, which had begun without "
              "a seed of its own and cannot be continued");
  }
  return KEPT_GIVE;
}

/* A cancel that was accepted is sent again with its submit over another connection, until that has ended. */
static bool is_over_as_cancel(const kept *e, const tri_server_msg *m) {
  return e->op == TRI_OP_CANCEL && (m->op != TRI_REPLY_ACCEPTED || !e->target);
}

/* A second `accepted`, and any answer to a cancel that was sent again, says nothing new to the program; the last one
 * still ends the entry. */
tri_kept_verdict tri_kept_take(tri_kept *k, tri_arena *arena, tri_server_msg *m) {
  kept *e = find(k, m->id);
  tri_kept_verdict verdict = KEPT_GIVE;
  bool odd = !m->id || m->op == TRI_REPLY_HELLO; /* no answer to a request, whatever is kept */
  if (!e || odd) return odd ? KEPT_GIVE : KEPT_DROP;
  bool ends = (m->op != TRI_REPLY_ACCEPTED && m->op != TRI_REPLY_TOKENS) || is_over_as_cancel(e, m);
  bool again = e->accepted && (m->op == TRI_REPLY_ACCEPTED || e->op == TRI_OP_CANCEL);
  if (again) e->lost_ns = 0;
  if (again && ends) forget(k, e);
  if (again) return KEPT_DROP;
  if (m->op == TRI_REPLY_TOKENS) verdict = take_tokens(k, arena, e, m);
  if (m->op == TRI_REPLY_DONE && !all_whole(e, m)) verdict = end_differently(k, e, m);
  if (verdict == KEPT_GIVE_AND_CANCEL) return verdict;
  if (m->op == TRI_REPLY_ERROR) verdict = take_error(k, e, m);
  e->accepted |= m->op == TRI_REPLY_ACCEPTED;
  if (e->target && e->accepted) e->target->cancelled = true;
  if (verdict == KEPT_GIVE) e->lost_ns = 0;
  if (verdict == KEPT_GIVE && ends) forget(k, e);
  return verdict;
}

/* ---- without a connection ---- */

/* Moves an entry to those that have ended; its cancels stand for themselves from then on. */
static void end(tri_kept *k, kept *e, const char *why) {
  for (kept *c; (c = LIST_FIRST(&e->cancels));) set_target(c, NULL);
  take_out(k, e);
  if (e->op == TRI_OP_CANCEL && e->accepted) { /* it has had its answer */
    entry_free(e);
    return;
  }
  TAILQ_INSERT_TAIL(&k->ended, e, links);
  if (why != k->why) snprintf(k->why, sizeof k->why, "%s", why);
}

/* A request may be what ends each coordinator it is sent to. Its time runs from the first loss after it was sent, and
 * only an answer or a connection that has lasted stops it; after the patience it ends, and the others have peace. */
void tri_kept_lost(tri_kept *k, int64_t now_ns, int64_t lasted_ns) {
  for (kept *e = TAILQ_FIRST(&k->all), *next; e; e = next) {
    next = TAILQ_NEXT(e, links);
    if (lasted_ns >= STEADY_NS && !e->unsent) e->lost_ns = 0;
    bool in_vain = e->lost_ns && now_ns - e->lost_ns >= k->patience_ns;
    if (in_vain) {
      end(k, e, "the connection to the coordinator was lost each time that this was asked");
      continue;
    }
    if (!e->lost_ns && !e->unsent) e->lost_ns = now_ns;
    e->attaches = e->op == TRI_OP_SUBMIT && e->seen;
    begin_again(e);
    set_unsent(k, e, false);
    set_unsent(k, e, true); /* in their order */
  }
}

void tri_kept_end_all(tri_kept *k, const char *why) {
  for (kept *e; (e = TAILQ_FIRST(&k->all));) end(k, e, why);
}

bool tri_kept_has_ended(const tri_kept *k) { return !TAILQ_EMPTY(&k->ended); }

bool tri_kept_take_ended(tri_kept *k, tri_server_msg *m) {
  kept *e = TAILQ_FIRST(&k->ended);
  if (!e) return false;
  say_error(m, e->id, LOST, k->why);
  TAILQ_REMOVE(&k->ended, e, links);
  entry_free(e);
  return true;
}

const char *tri_kept_reason(const tri_kept *k) { return k->reason; }
