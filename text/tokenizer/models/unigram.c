/* SPDX-License-Identifier: Apache-2.0 */
/* The Unigram model: every token has a score, and a word becomes the sequence of tokens with the highest sum (Viterbi's
 * algorithm over the word's bytes). A character that is no token by itself can always be passed as unknown, at a price
 * below every token's.
 *
 * As in Kudo, "Subword Regularization" (ACL 2018), of which this is the best segmentation without sampling. Only the
 * sums of the last `window` places are kept, since no step is longer; the steps are kept for all places, to read the
 * path from its end. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "text/tokenizer/models/model.h"
#include "text/tokenizer/models/pieces.h"
#include "text/tokenizer/trie.h"
#include "text/unicode/unicode.h"

#define UNKNOWN_PENALTY 10.0
#define SUM_BOUND 100000.0

/* The last step of a path, when it is no token. */
#define UNREACHED UINT32_MAX
#define UNKNOWN_CHAR (UINT32_MAX - 1)

typedef struct unigram {
  const tok_vocab *vocab;
  tok_trie trie;
  double *scores; /* by id */
  double unknown_score;
  uint32_t unk;
  uint32_t byte_tokens[256];
  size_t window; /* a power of two above the longest step */
  bool byte_fallback;
  /* SentencePiece's own way to add up: sums are of single precision, and a run of unknown characters is no token. */
  bool single;
} unigram;

/* ---- loading ---- */

/* ["token", score] */
static tri_status load_token(unigram *u, tok_vocab *vocab, const tok_field *f, uint32_t id, tri_error *err) {
  const char *text;
  size_t len;
  TRI_CHECK(tok_field_array(f, err));
  tok_field token = tok_field_at(f, 0), score = tok_field_at(f, 1);
  TRI_CHECK(tok_field_string(&token, &text, &len, err));
  if (tri_json_size(f->node) != 2 || !tri_json_as_num(score.node, &u->scores[id]))
    return tok_field_fail(f, TRI_CORRUPT, err, "must be a token and its score");
  return tok_vocab_add_or_shadow(vocab, text, len, id);
}

/* Goes backwards, since of two tokens with one spelling the later one counts. */
static tri_status load_vocab(unigram *u, const tok_field *model, tok_vocab *vocab, tri_error *err) {
  tok_field f = tok_field_get(model, "vocab");
  TRI_CHECK(tok_field_array(&f, err));
  size_t count = tri_json_size(f.node);
  if (!count || count > TOK_MAX_IDS)
    return tok_field_fail(&f, TRI_OUT_OF_RANGE, err, "%zu tokens, must be 1..%d", count, TOK_MAX_IDS);
  u->scores = tri_calloc(count, sizeof *u->scores);
  if (!u->scores) return TRI_NO_MEMORY;
  double lowest = 0;
  for (size_t i = count; i--;) {
    tok_field token = tok_field_at(&f, i);
    TRI_CHECK(load_token(u, vocab, &token, (uint32_t)i, err));
    if (i == count - 1 || u->scores[i] < lowest) lowest = u->scores[i];
  }
  u->unknown_score = lowest - UNKNOWN_PENALTY;
  tri_status st = tok_trie_build(&u->trie, vocab);
  if (st == TRI_TOO_LARGE)
    tok_field_fail(&f, st, err, "a token exceeds %d bytes or all are too many", TOK_TRIE_LONGEST);
  return st;
}

static void size_window(unigram *u) {
  for (u->window = 8; u->window <= u->trie.longest;) u->window *= 2;
}

static void unigram_destroy(void *model) {
  unigram *u = model;
  if (!u) return;
  tok_trie_free(&u->trie);
  tri_free(u->scores);
  tri_free(u);
}

static tri_status unigram_load(const tok_field *f, tok_vocab *vocab, void **model, tri_error *err) {
  tri_status st;
  unigram *u = tri_calloc(1, sizeof *u);
  if (!u) return tok_field_no_memory(f, err);
  u->vocab = vocab;
  TRI_TRY(tok_field_object(f, "type unk_id vocab byte_fallback", err));
  TRI_TRY(tok_field_bool(f, "byte_fallback", &u->byte_fallback, err));
  TRI_TRY(load_vocab(u, f, vocab, err));
  /* The reference loads a file without one and fails at the first unknown character. */
  tok_field unk = tok_field_get(f, "unk_id");
  TRI_TRY(tok_field_id(&unk, (uint32_t)vocab->size, &u->unk, err));
  tok_vocab_find_bytes(vocab, u->byte_tokens);
  size_window(u);
  *model = u;
  u = NULL;
cleanup:
  if (st == TRI_NO_MEMORY) tok_field_no_memory(f, err);
  unigram_destroy(u);
  return st;
}

/* User pieces have scores above all others, which are logarithms of probabilities. As in SentencePiece 0.2.3; earlier
 * versions gave them other scores above all. */
static double score_of(const tok_piece *p) {
  return p->kind == TOK_PIECE_USER ? (float)(0.1 * (double)(p->len - 1)) : p->score;
}

static tri_status load_pieces(unigram *u, const tok_pieces *p) {
  float lowest = FLT_MAX; /* of normal pieces */
  u->scores = tri_calloc(p->count, sizeof *u->scores);
  if (!u->scores) return TRI_NO_MEMORY;
  for (size_t i = 0; i < p->count; i++) {
    u->scores[i] = score_of(&p->list[i]);
    if (p->list[i].kind == TOK_PIECE_NORMAL && p->list[i].score < lowest) lowest = p->list[i].score;
  }
  u->unknown_score = lowest - (float)UNKNOWN_PENALTY;
  return tok_trie_build(&u->trie, u->vocab);
}

tri_status tok_unigram_create(const tok_pieces *p, const tok_vocab *vocab, const tok_field *f, void **model,
                              tri_error *err) {
  tri_status st = TRI_NO_MEMORY;
  unigram *u = tri_calloc(1, sizeof *u);
  if (!u) goto cleanup;
  u->vocab = vocab;
  u->unk = p->unk;
  u->byte_fallback = p->byte_fallback;
  u->single = true;
  memcpy(u->byte_tokens, p->bytes, sizeof u->byte_tokens);
  TRI_TRY(load_pieces(u, p));
  size_window(u);
  *model = u;
  u = NULL;
cleanup:
  if (st == TRI_NO_MEMORY) tok_field_no_memory(f, err);
  if (st == TRI_TOO_LARGE) tok_field_fail(f, st, err, "a token exceeds %d bytes or all are too many", TOK_TRIE_LONGEST);
  unigram_destroy(u);
  return st;
}

/* ---- encoding ---- */

typedef struct unigram_work {
  uint32_t *last; /* by place in the word: the last step of the best path that ends there */
  size_t cap;
  double *sums; /* [window] of these paths, by place modulo window */
  tok_ids path; /* backwards */
} unigram_work;

static void unigram_work_destroy(void *work) {
  unigram_work *w = work;
  if (!w) return;
  tri_free(w->last);
  tri_free(w->sums);
  tok_ids_free(&w->path);
  tri_free(w);
}

static tri_status unigram_work_create(const void *model, void **work) {
  const unigram *u = model;
  unigram_work *w = tri_calloc(1, sizeof *w);
  if (w) w->sums = tri_calloc(u->window, sizeof *w->sums);
  if (!w || !w->sums) {
    unigram_work_destroy(w);
    return TRI_NO_MEMORY;
  }
  w->path.max = SIZE_MAX;
  *work = w;
  return TRI_OK;
}

static tri_status reserve(unigram_work *w, size_t len) {
  if (len == SIZE_MAX) return TRI_OVERFLOW;
  TRI_CHECK(tri_array_reserve(&w->last, 0, &w->cap, len + 1, sizeof *w->last));
  memset(w->last, 0xff, (len + 1) * sizeof *w->last); /* UNREACHED */
  return TRI_OK;
}

/* On equal sums the earlier found path stays, which is the one with the longer last step. */
static void reach(const unigram *u, unigram_work *w, size_t end, uint32_t step, double sum) {
  double *best = &w->sums[end & (u->window - 1)];
  if (u->single) sum = (float)sum;
  if (w->last[end] != UNREACHED && sum <= *best) return;
  *best = sum;
  w->last[end] = step;
}

/* SentencePiece keeps sums small, which changes how they are rounded: from a place where one is beyond the bound, all
 * count from its sum on. */
static void start_again(const unigram *u, unigram_work *w, size_t start, size_t len) {
  float from = (float)w->sums[start & (u->window - 1)];
  for (size_t i = start; i <= len && i - start < u->window; i++) {
    double *sum = &w->sums[i & (u->window - 1)];
    if (i == start || w->last[i] != UNREACHED) *sum = (float)*sum - from;
  }
}

/* Each place where a character begins is reached, by the unknown character before it if by no token: a sum that is
 * read has been set. Paths begin at such places alone. */
static void find_paths(const unigram *u, unigram_work *w, const char *word, size_t len) {
  size_t char_len;
  w->sums[0] = 0;
  for (size_t start = 0; start < len; start += char_len) {
    if (u->single && fabs(w->sums[start & (u->window - 1)]) > SUM_BOUND) start_again(u, w, start, len);
    double here = w->sums[start & (u->window - 1)];
    bool single = false; /* the character is a token */
    tok_utf8_decode(word + start, &char_len);
    uint32_t node = TOK_TRIE_ROOT;
    for (size_t i = start; i < len; i++) {
      node = tok_trie_step(&u->trie, node, (unsigned char)word[i]);
      if (node == TOK_TRIE_NONE) break;
      uint32_t id = u->trie.nodes[node].id;
      if (id == TOK_NO_ID) continue;
      single |= i + 1 - start == char_len;
      reach(u, w, i + 1, id, u->scores[id] + here);
    }
    if (!single) reach(u, w, start + char_len, UNKNOWN_CHAR, u->unknown_score + here);
  }
}

/* Leaves the path's steps in w->path, the last one first. */
static tri_status read_path_back(const unigram *u, unigram_work *w, const char *word, size_t len) {
  w->path.len = 0;
  for (size_t end = len; end;) {
    uint32_t step = w->last[end];
    TRI_CHECK(tok_ids_push(&w->path, step));
    end = step == UNKNOWN_CHAR ? tok_utf8_before(word, end) : end - u->vocab->entries[step].len;
  }
  return TRI_OK;
}

/* A run of unknown characters is one token, unless together they spell one after all, or bytes can stand for it. */
static tri_status push_unknown(const unigram *u, const char *run, size_t len, tok_ids *out) {
  if (!len) return TRI_OK;
  uint32_t id = !u->single && len <= u->trie.longest ? tok_vocab_find(u->vocab, run, len) : TOK_NO_ID;
  if (id != TOK_NO_ID) return tok_ids_push(out, id);
  bool bytes = u->byte_fallback;
  for (size_t i = 0; bytes && i < len; i++) bytes = u->byte_tokens[(unsigned char)run[i]] != TOK_NO_ID;
  if (!bytes) return tok_ids_push(out, u->unk);
  tri_status st = TRI_OK;
  for (size_t i = 0; st == TRI_OK && i < len; i++) st = tok_ids_push(out, u->byte_tokens[(unsigned char)run[i]]);
  return st;
}

static tri_status unigram_encode(const void *model, void *work, const char *word, size_t len, tok_ids *out) {
  const unigram *u = model;
  unigram_work *w = work;
  TRI_CHECK(reserve(w, len));
  find_paths(u, w, word, len);
  TRI_CHECK(read_path_back(u, w, word, len));
  size_t at = 0, run = 0; /* [run, at): unknown so far */
  for (size_t i = w->path.len; i--;) {
    uint32_t step = w->path.data[i];
    size_t step_len;
    if (step == UNKNOWN_CHAR)
      tok_utf8_decode(word + at, &step_len);
    else
      step_len = u->vocab->entries[step].len;
    if (step != UNKNOWN_CHAR && step != u->unk) { /* the unknown token, spelled out in the text, joins the run */
      TRI_CHECK(push_unknown(u, word + run, at - run, out));
      TRI_CHECK(tok_ids_push(out, step));
      run = at + step_len;
    }
    at += step_len;
  }
  return push_unknown(u, word + run, at - run, out);
}

const tok_model_type tok_model_unigram = {
    .name = "Unigram",
    .telltale = "unk_id",
    .load = unigram_load,
    .destroy = unigram_destroy,
    .work_create = unigram_work_create,
    .work_destroy = unigram_work_destroy,
    .encode = unigram_encode,
};
