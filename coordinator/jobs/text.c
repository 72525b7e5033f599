/* SPDX-License-Identifier: Apache-2.0 */
/* Text of choices: token ids become text that may be shown, as they come. Stop strings are found in it as it grows, and
 * what may become one is held back.
 *
 * Three ends of a text: text_len, all that the detokenizer has given; safe_len, what no stop string can take back any
 * more, which is what clients get; safe_after[i], safe_len as it was after token i, by which a message of some tokens
 * has exactly the text that these made certain. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "coordinator/jobs/jobs_impl.h"
#include "base/buf.h"
#include "text/unicode/unicode.h"

/* cap grows only when all of the lists have: a list that has grown alone is grown again, from the same cap, by the next
 * try. */
static bool grow_tokens(job_choice *ch, bool logprobs) {
  if (ch->num < ch->cap) return true;
  size_t cap = ch->cap ? 2 * ch->cap : 16;
  uint32_t *ids = tri_grow(ch->ids, ch->cap, cap, sizeof *ids);
  if (ids) ch->ids = ids;
  uint32_t *safe = tri_grow(ch->safe_after, ch->cap, cap, sizeof *safe);
  if (safe) ch->safe_after = safe;
  bool ok = ids && safe;
  if (logprobs) {
    size_t per = 1 + TRI_WIRE_MAX_LOGPROBS;
    float *lp = tri_grow(ch->logprobs, ch->cap * per, cap * per, sizeof *lp);
    if (lp) ch->logprobs = lp;
    uint32_t *top = tri_grow(ch->top_ids, ch->cap * TRI_WIRE_MAX_LOGPROBS, cap * TRI_WIRE_MAX_LOGPROBS, sizeof *top);
    if (top) ch->top_ids = top;
    uint8_t *n = tri_grow(ch->num_top, ch->cap, cap, sizeof *n);
    if (n) ch->num_top = n;
    ok = ok && lp && top && n;
  }
  if (ok) ch->cap = cap;
  return ok;
}

static bool append_text(job_choice *ch, const char *s, size_t n) {
  if (!n) return true;
  if (tri_array_reserve(&ch->text, ch->text_len, &ch->text_cap, n, 1) != TRI_OK) return false;
  memcpy(ch->text + ch->text_len, s, n);
  ch->text_len += n;
  return true;
}

/* Adds a token's text, of *n bytes. An id that a padded vocabulary has no text for adds none. */
static tri_status add_text_of(job_choice *ch, tri_detokenizer *d, uint32_t id, size_t *n) {
  const char *piece = NULL;
  tri_status st = tri_detokenizer_push(d, id, &piece, n);
  if (st != TRI_OK) *n = 0;
  if (st == TRI_NO_MEMORY) return st;
  return append_text(ch, piece, *n) ? TRI_OK : TRI_NO_MEMORY;
}

static tri_status add_rest(job_choice *ch) {
  const char *rest = NULL;
  size_t n = 0;
  tri_status st = tri_detokenizer_finish(ch->detok, &rest, &n);
  if (st != TRI_OK) return st == TRI_NO_MEMORY ? st : TRI_OK;
  return append_text(ch, rest, n) ? TRI_OK : TRI_NO_MEMORY;
}

static void keep_logprobs(job_choice *ch, size_t at, const tri_replica_token *t) {
  float *lp = ch->logprobs + at * (1 + TRI_WIRE_MAX_LOGPROBS);
  int n = t->num_top < TRI_WIRE_MAX_LOGPROBS ? t->num_top : TRI_WIRE_MAX_LOGPROBS;
  lp[0] = t->logprob;
  ch->num_top[at] = (uint8_t)n;
  if (!n) return; /* then there may be no lists either */
  memcpy(lp + 1, t->top_logprobs, (size_t)n * sizeof *lp);
  memcpy(ch->top_ids + at * TRI_WIRE_MAX_LOGPROBS, t->top_ids, (size_t)n * sizeof *ch->top_ids);
}

/* An ended choice keeps nothing but its output until it is forgotten. */
static void close_choice(job *j, job_choice *ch, tri_finish reason) {
  tri_detokenizer_destroy(ch->detok);
  ch->detok = NULL;
  ch->ended = true;
  ch->reason = reason;
  j->num_open--;
}

tri_status choice_end(job *j, job_choice *ch, tri_finish reason) {
  tri_status st = TRI_OK;
  if (ch->ended) return st;
  /* An unfinished character shows as one; held-back text cannot become a stop string any more. With an error the answer
   * may continue at the next start, where it can. */
  bool whole = reason != TRI_FINISH_ERROR;
  if (ch->detok && whole) st = add_rest(ch);
  if (whole) ch->safe_len = ch->text_len;
  close_choice(j, ch, reason);
  return st;
}

/* ---- stop strings ---- */

/* Looks for a stop string that ends in the last `fresh` bytes. True: text is cut before the one that is complete first
 * (the longest of those), which does not depend on how the text came in tokens. */
static bool cut_at_stop_string(const job *j, job_choice *ch, size_t fresh) {
  size_t old = ch->text_len - fresh, best = SIZE_MAX, best_end = SIZE_MAX;
  for (int i = 0; i < j->sampling.num_stop; i++) {
    const tri_wire_str *s = &j->sampling.stop[i];
    /* A string that was complete before is passed over: min_tokens let it through, and clients have it. */
    size_t from = old >= s->len ? old - s->len + 1 : 0;
    const char *at = s->len ? memmem(ch->text + from, ch->text_len - from, s->s, s->len) : NULL;
    if (!at) continue;
    size_t start = (size_t)(at - ch->text), end = start + s->len;
    if (end > best_end || (end == best_end && start > best)) continue;
    best = start;
    best_end = end;
    ch->stop_string = i;
  }
  if (best == SIZE_MAX) return false;
  ch->text_len = j->sampling.include_stop ? best_end : best;
  return true;
}

/* Returns the length of the text's longest end that could still grow into a stop string. */
static size_t held_back(const job *j, const job_choice *ch) {
  size_t most = 0;
  for (int i = 0; i < j->sampling.num_stop; i++) {
    const tri_wire_str *s = &j->sampling.stop[i];
    size_t n = s->len ? s->len - 1 : 0;
    if (n > ch->text_len) n = ch->text_len;
    for (; n > most; n--)
      if (!memcmp(ch->text + ch->text_len - n, s->s, n)) most = n;
  }
  return most;
}

/* ---- tokens ---- */

static bool is_stop_id(const tri_sampling *s, uint32_t id) {
  for (int i = 0; i < s->num_stop_token_ids; i++)
    if (s->stop_token_ids[i] == id) return true;
  return false;
}

/* A choice of a job that waits has no detokenizer: it takes more memory than the rest of the choice. */
static tri_status begin_text(const tri_core *c, const job *j, job_choice *ch) {
  if (ch->detok) return TRI_OK;
  TRI_CHECK(tri_detokenizer_create(c->cfg.tokenizer, j->sampling.skip_special_tokens, &ch->detok));
  if (c->cfg.model->seq2seq.on) return TRI_OK; /* a source is another text */
  tri_status st = tri_detokenizer_after(ch->detok, j->prompt_ids, j->num_prompt);
  if (st == TRI_OK) return TRI_OK;
  tri_detokenizer_destroy(ch->detok);
  ch->detok = NULL;
  return st;
}

/* The order: the token is recorded first, then its text, then stop strings are looked for in that, and last comes what
 * may be shown. A choice that a stop string ends is ended here alone: its replica learns of it by an abort (cut). */
static tri_status push(tri_core *c, job *j, job_choice *ch, const tri_replica_token *t) {
  size_t n = 0;
  tri_status st = TRI_OK;
  if (!grow_tokens(ch, j->sampling.logprobs >= 0)) return TRI_NO_MEMORY;
  if (c->cfg.tokenizer) TRI_CHECK(begin_text(c, j, ch));
  ch->ids[ch->num] = t->token;
  if (j->sampling.logprobs >= 0 && t->flags & TRI_TOKEN_LOGPROB) keep_logprobs(ch, ch->num, t);
  ch->num++;
  if (!c->restoring) c->totals.generation_tokens++;
  bool stops = t->flags & TRI_TOKEN_STOP_ID;
  ch->stopped_by_id = stops && is_stop_id(&j->sampling, t->token);
  if (c->cfg.tokenizer && (!stops || j->sampling.include_stop)) TRI_CHECK(add_text_of(ch, ch->detok, t->token, &n));
  uint64_t generated = ch->num;
  if (n && j->sampling.num_stop && generated > (uint64_t)j->sampling.min_tokens && cut_at_stop_string(j, ch, n)) {
    ch->safe_len = ch->text_len;
    ch->safe_after[ch->num - 1] = (uint32_t)ch->safe_len;
    close_choice(j, ch, TRI_FINISH_STOP);
    j->cut |= !(t->flags & TRI_TOKEN_LAST);
    return TRI_OK;
  }
  size_t safe = ch->text_len - held_back(j, ch);
  if (safe > ch->safe_len) ch->safe_len = safe;
  if (t->flags & TRI_TOKEN_LAST) st = choice_end(j, ch, t->reason);
  /* Text that a choice lets go later, ending without a token, belongs to no token: a client that attaches after the
   * last one gets it. */
  ch->safe_after[ch->num - 1] = (uint32_t)ch->safe_len;
  return st;
}

size_t choice_bytes(const job_choice *ch) {
  enum { DETOKENIZER = 2048 }; /* about what one has in the middle of a text, in ten blocks or so */
  size_t top = ch->top_ids ? ch->cap * TRI_WIRE_MAX_LOGPROBS : 0;
  size_t bytes = ch->detok ? DETOKENIZER : 0;
  bytes += block_bytes(ch->text_cap) + block_bytes(ch->cap * sizeof *ch->ids);
  bytes += block_bytes(ch->cap * sizeof *ch->safe_after) + block_bytes(top * sizeof *ch->top_ids);
  if (ch->logprobs) bytes += block_bytes((ch->cap + top) * sizeof *ch->logprobs) + block_bytes(ch->cap);
  return bytes;
}

tri_status choice_push(tri_core *c, job *j, job_choice *ch, const tri_replica_token *t) {
  size_t had = choice_bytes(ch);
  tri_status st = push(c, j, ch, t);
  flow_resize(c, &j->part, j->part.bytes - had + choice_bytes(ch));
  return st;
}

/* Scores have no text of their own: safe_after stays 0, so that messages of them carry none. */
static tri_status push_score(job_choice *p, const tri_replica_token *t) {
  if (!grow_tokens(p, true)) return TRI_NO_MEMORY;
  p->ids[p->num] = t->token;
  p->safe_after[p->num] = 0;
  keep_logprobs(p, p->num++, t);
  return TRI_OK;
}

tri_status prompt_score(job *j) {
  return push_score(&j->scored, &(tri_replica_token){.token = j->prompt_ids[0], .logprob = NAN});
}

tri_status prompt_push(tri_core *c, job *j, const tri_replica_token *t) {
  bool wanted = j->sampling.prompt_logprobs >= 0 && t->flags & TRI_TOKEN_LOGPROB && j->scored.num < j->num_prompt;
  if (!wanted) return TRI_CORRUPT;
  size_t had = choice_bytes(&j->scored);
  tri_status st = push_score(&j->scored, t);
  flow_resize(c, &j->part, j->part.bytes - had + choice_bytes(&j->scored));
  return st;
}

/* ---- the prompt's text ---- */

/* Returns the ids as numbers, each with a space after it, for a model without a tokenizer. */
static char *ids_text(const uint32_t *ids, size_t count, size_t *len) {
  enum { ID_BYTES = 12 };
  char *text = tri_malloc(count, ID_BYTES);
  for (size_t i = *len = 0; text && i < count; i++) *len += (size_t)snprintf(text + *len, ID_BYTES, "%u ", ids[i]);
  return text;
}

/* Returns the text as of generated tokens: special ones, and ids that a padded vocabulary has no text for, add none. */
static char *decoded_text(const tri_tokenizer *tokenizer, const uint32_t *ids, size_t count, size_t *len) {
  job_choice all = {0};
  tri_detokenizer *d;
  size_t n;
  if (tri_detokenizer_create(tokenizer, true, &d) != TRI_OK) return NULL;
  bool ok = (all.text = tri_malloc(64, 1)) != NULL; /* also where nothing adds to it */
  all.text_cap = 64;
  for (size_t i = 0; ok && i < count; i++) ok = add_text_of(&all, d, ids[i], &n) == TRI_OK;
  all.detok = d;
  ok = ok && add_rest(&all) == TRI_OK;
  tri_detokenizer_destroy(d);
  *len = all.text_len;
  if (ok) return all.text;
  tri_free(all.text);
  return NULL;
}

size_t count_hidden(const tri_core *c, const job *j, const uint32_t *ids, size_t num) {
  size_t i = 0;
  while (i < num && j->sampling.skip_special_tokens && tri_tokenizer_is_special(c->cfg.tokenizer, ids[i])) i++;
  return i;
}

void choices_begin(const tri_core *c, job *j) {
  if (!c->cfg.tokenizer || c->cfg.model->seq2seq.on) return; /* a source is another text */
  j->after_prompt = count_hidden(c, j, j->prompt_ids, j->num_prompt) < j->num_prompt;
}

tri_status refuse_untokenized(const tri_core *c, const char *field, tri_error *err) {
  const char *other = c->cfg.other_tokenizer;
  return tri_fail(err, TRI_UNSUPPORTED, field, "this model has no tokenizer.json%s%s%s: give token ids instead of text",
                  other ? ", and its " : "", other ? other : "", other ? " is not read" : "");
}

bool prompt_keep(job *j, tri_wire_str text) {
  tri_buf b = {0};
  if (tri_buf_reserve(&b, text.len + 1) != TRI_OK || tok_utf8_append_lossy(&b, text.s, text.len) != TRI_OK) {
    tri_buf_free(&b);
    return false;
  }
  j->prompt = b.data;
  j->prompt_len = b.len;
  return true;
}

tri_status prompt_echo(const tri_core *c, job *j) {
  j->prompt = c->cfg.tokenizer ? decoded_text(c->cfg.tokenizer, j->prompt_ids, j->num_prompt, &j->prompt_len)
                               : ids_text(j->prompt_ids, j->num_prompt, &j->prompt_len);
  return j->prompt ? TRI_OK : TRI_NO_MEMORY;
}

void choice_free(job_choice *ch) {
  tri_detokenizer_destroy(ch->detok);
  tri_free(ch->text);
  tri_free(ch->ids);
  tri_free(ch->safe_after);
  tri_free(ch->logprobs);
  tri_free(ch->top_ids);
  tri_free(ch->num_top);
}
