/* SPDX-License-Identifier: Apache-2.0 */
/* Compaction: a job that lives for long keeps all records behind its first one. It is recorded anew, as one record that
 * has all of it, and what is in front of that is no longer needed for it once that one is durable. */
#include "coordinator/state.h"

enum {
  JOBS_AT_ONCE = 64,      /* each is looked for among all */
  AT_ONCE = 1 << 20,      /* bytes of one round, but for what a single job has more */
  MOST_OF_ONE = 8 << 20,  /* of a job for which there is always room in a segment and the spare */
  TOKENS_AT_ONCE = 512,   /* of one message within the record */
  TOKEN_BYTES = 32,       /* of a token in it, about, */
  ALTERNATIVE_BYTES = 10, /* and of an alternative's number and log probability */
  JOB_BYTES = 1024        /* of what every job has beside its tokens */
};

/* Returns about how many bytes the record of a job has. */
static size_t bytes_of(const job *j) {
  size_t token = TOKEN_BYTES, tokens = j->scored.num;
  for (int64_t i = 0; i < j->sampling.n; i++) tokens += j->choices[i].num;
  if (j->sampling.logprobs >= 0 || j->scored.num) token += TRI_WIRE_MAX_LOGPROBS * ALTERNATIVE_BYTES;
  return JOB_BYTES + j->num_prompt * sizeof *j->prompt_ids + j->prompt_len + tokens * token;
}

uint64_t tri_core_record_bytes(const tri_core *c) {
  uint64_t bytes = 0;
  for (const job *j = TAILQ_FIRST(&c->active); j; j = TAILQ_NEXT(j, links))
    if (j->record) bytes += bytes_of(j);
  return bytes;
}

/* ---- one job ---- */

static void put_logprobs(const job_choice *ch, size_t at, tri_group_token *t) {
  const float *p = ch->logprobs + at * (1 + TRI_WIRE_MAX_LOGPROBS);
  t->flags |= TRI_TOKEN_LOGPROB;
  t->logprob = p[0];
  t->num_top = ch->num_top[at];
  t->top_ids = ch->top_ids + at * TRI_WIRE_MAX_LOGPROBS;
  t->top_logprobs = p + 1;
}

/* Says how a choice has ended, with its last token or behind it. One that a stop string has ended ends by that again.
 */
static void put_end(const job_choice *ch, bool with_token, tri_group_token *t) {
  t->reason = ch->reason;
  t->flags |= TRI_TOKEN_LAST;
  if (!with_token) t->flags |= TRI_TOKEN_NONE;
  if (with_token && ch->reason == TRI_FINISH_STOP && ch->stop_string < 0) t->flags |= TRI_TOKEN_STOP_ID;
}

static void put_news(const job *j, tri_group_token *t) {
  t->preemptions = j->preemptions;
  t->cached = j->cached_tokens;
  if (j->preemptions) t->flags |= TRI_TOKEN_PREEMPTED;
  if (j->begun_ns) t->flags |= TRI_TOKEN_WAITED | TRI_TOKEN_CACHED;
}

/* Records what a choice has, or the prompt's log probabilities, from number `from` on. */
static void record_choice(tri_core *c, const job *j, const job_choice *ch, uint32_t index, size_t from) {
  tri_group_token all[TOKENS_AT_ONCE];
  tri_group_tokens message = {.epoch = j->epoch, .tokens = all};
  bool of_prompt = ch == &j->scored, ended = !of_prompt && ch->ended;
  for (size_t at = from; at < ch->num || (ended && at == from && !ch->num);) {
    for (message.num = 0; message.num < TOKENS_AT_ONCE && at < ch->num; at++) {
      tri_group_token *t = &all[message.num++];
      *t = (tri_group_token){.job = j->id, .choice = index, .token = ch->ids[at], .offset = at};
      if (of_prompt) t->flags = TRI_TOKEN_PROMPT;
      if (ch->logprobs) put_logprobs(ch, at, t);
      if (ended && at + 1 == ch->num) put_end(ch, true, t);
    }
    if (!ch->num) {
      all[message.num] = (tri_group_token){.job = j->id, .choice = index};
      put_end(ch, false, &all[message.num++]);
      at++;
    }
    put_news(j, &all[0]);
    record_tokens(c, j->group, &message);
  }
}

/* A job that has run twice counts as such afterwards: what it draws again is told from what comes out of turn. */
static void record_whole(tri_core *c, int64_t now, job *j) {
  record_begin(c, j);
  record_accepted_again(c, now, j);
  for (uint32_t runs = 0; runs < j->runs && runs < 2; runs++) record_assigned(c, j);
  for (uint32_t deaths = 0; deaths < j->deaths; deaths++) record_died(c, j);
  if (j->scored.num) record_choice(c, j, &j->scored, 0, 1); /* the first token of a prompt has none */
  for (uint32_t i = 0; i < (uint32_t)j->sampling.n; i++) record_choice(c, j, &j->choices[i], i, 0);
  j->moved = record_end(c, j);
  c->has_moved |= j->moved != 0;
}

/* The answer comes from no group: it is recorded as if a first start of group 0 had given it. */
void record_answered(tri_core *c, job *j, uint64_t weights_hash) {
  record_accepted(c, j);
  if (!j->record) return;
  j->weights_hash = weights_hash;
  record_assigned(c, j);
  for (uint32_t i = 0; i < (uint32_t)j->sampling.n; i++) record_choice(c, j, &j->choices[i], i, 0);
}

/* ---- all of them ---- */

static uint64_t place_of(const job *j) { return j->moved ? j->moved : j->record; }

/* Returns the job whose record is the oldest that is needed; NULL where nothing can be done about that one now. */
static job *oldest(const tri_core *c) {
  job *found = NULL;
  for (job *j = TAILQ_FIRST(&c->active); j; j = TAILQ_NEXT(j, links))
    if (j->record && !j->over && (!found || place_of(j) < place_of(found))) found = j;
  for (const job *j = TAILQ_FIRST(&c->ended); j && found; j = TAILQ_NEXT(j, links))
    if (j->record && !j->over && j->record < place_of(found)) found = NULL; /* for its minute */
  bool may = found && !found->moved && found->record <= c->durable && found->state >= JOB_QUEUED;
  return may ? found : NULL;
}

size_t tri_core_compact_room(const tri_core *c, uint64_t before) {
  const job *j = oldest(c);
  size_t bytes = j && j->record < before ? bytes_of(j) : 0;
  return bytes > MOST_OF_ONE ? bytes + bytes / 2 : 0;
}

void tri_core_compact(tri_core *c, int64_t now, uint64_t before, size_t room) {
  size_t bytes = 0;
  for (int i = 0; i < JOBS_AT_ONCE && bytes < AT_ONCE; i++) {
    job *j = oldest(c);
    if (!j || j->record >= before || bytes_of(j) > (room ? room : MOST_OF_ONE)) return;
    room = 0; /* it is the first one's */
    record_whole(c, now, j);
    bytes += bytes_of(j);
  }
}

void tri_core_record_again(tri_core *c, int64_t now) {
  for (job *j = TAILQ_FIRST(&c->active); j; j = TAILQ_NEXT(j, links))
    if (j->record && !j->over && j->state >= JOB_QUEUED) record_whole(c, now, j);
}

static bool settle(const tri_core *c, struct job_list *list) {
  bool left = false;
  for (job *j = TAILQ_FIRST(list); j; j = TAILQ_NEXT(j, links)) {
    if (j->moved && j->moved <= c->durable) {
      j->record = j->moved;
      j->moved = 0;
    }
    left |= j->moved != 0;
  }
  return left;
}

void compact_settle(tri_core *c) {
  if (!c->has_moved) return;
  bool active = settle(c, &c->active), ended = settle(c, &c->ended);
  c->has_moved = active || ended;
}

bool tri_core_restore_whole(tri_core *c, uint64_t id, uint64_t number) {
  job *j = job_find(c, id);
  if (j) j->record = number; /* all in front of it was there as well */
  return j != NULL;
}
