/* SPDX-License-Identifier: Apache-2.0 */
/* Byte pair merging without a list of merges: two neighbours become one where the vocabulary has a token that they
 * spell together. This is what the files of SentencePiece and tiktoken mean; the order, by score or by rank, decides
 * the result as in bpe_merge.h.
 *
 * A symbol is a part of the word, which need not be a token by itself: only at the end do symbols become ids. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "text/tokenizer/models/bpe_joins.h"
#include "text/tokenizer/models/pieces.h"
#include "text/tokenizer/models/word_cache.h"
#include "text/unicode/unicode.h"

#define NONE UINT32_MAX

typedef struct bpe_pieces {
  const tok_vocab *vocab;
  uint32_t *ranks; /* by id; of user pieces, which nothing merges to, NONE */
  tok_joins joins; /* characters that stand side by side in a token */
  tok_user_pieces user;
  uint32_t bytes[256];
  uint32_t unk;
  size_t longest; /* bytes of the longest token */
  bool byte_fallback, whole_words;
} bpe_pieces;

/* ---- loading ---- */

static int compare_scores(const void *x, const void *y) {
  const tok_piece *const *a = x, *const *b = y;
  return ((*a)->score < (*b)->score) - ((*a)->score > (*b)->score);
}

/* Equal scores are equal ranks: of such the leftmost merges first. */
static tri_status rank_pieces(bpe_pieces *b, const tok_pieces *p) {
  const tok_piece **sorted = tri_malloc(p->count, sizeof *sorted);
  uint32_t *ranks = b->ranks = tri_malloc(p->count, sizeof *ranks);
  size_t count = 0;
  if (!sorted || !ranks) {
    tri_free(sorted);
    return TRI_NO_MEMORY;
  }
  for (size_t i = 0; i < p->count; i++) {
    ranks[i] = NONE;
    if (p->list[i].kind == TOK_PIECE_NORMAL) sorted[count++] = &p->list[i];
    if (p->list[i].len > b->longest) b->longest = p->list[i].len;
  }
  qsort(sorted, count, sizeof *sorted, compare_scores);
  for (size_t i = 0; i < count; i++) {
    size_t id = (size_t)(sorted[i] - p->list);
    bool equal = i && sorted[i - 1]->score == sorted[i]->score;
    ranks[id] = equal ? ranks[sorted[i - 1] - p->list] : (uint32_t)i;
  }
  tri_free(sorted);
  return TRI_OK;
}

/* A merge across two characters makes a token that has both side by side: where no token has, a word can be cut. */
static tri_status index_joins(bpe_pieces *b, const tok_pieces *p) {
  size_t pairs = 0;
  for (size_t i = 0; i < p->count; i++)
    if (p->list[i].kind == TOK_PIECE_NORMAL) pairs += tok_utf8_count(p->list[i].text, p->list[i].len);
  TRI_CHECK(tok_joins_init(&b->joins, pairs));
  for (size_t i = 0; i < p->count; i++) {
    const tok_piece *piece = &p->list[i];
    uint32_t last = 0;
    for (size_t at = 0, n; piece->kind == TOK_PIECE_NORMAL && at < piece->len; at += n) {
      uint32_t c = tok_utf8_decode(piece->text + at, &n);
      if (at) tok_joins_add(&b->joins, last, c);
      last = c;
    }
  }
  return TRI_OK;
}

static void bpe_pieces_destroy(void *model) {
  bpe_pieces *b = model;
  if (!b) return;
  tok_user_pieces_free(&b->user);
  tok_joins_free(&b->joins);
  tri_free(b->ranks);
  tri_free(b);
}

tri_status tok_bpe_pieces_create(const tok_pieces *p, const tok_vocab *vocab, const tok_field *f, void **model,
                                 tri_error *err) {
  tri_status st = TRI_NO_MEMORY;
  bpe_pieces *b = tri_calloc(1, sizeof *b);
  if (!b) goto cleanup;
  b->vocab = vocab;
  b->unk = p->unk;
  b->byte_fallback = p->byte_fallback;
  b->whole_words = p->whole_words;
  memcpy(b->bytes, p->bytes, sizeof b->bytes);
  for (size_t i = 0; i < p->count; i++)
    if (p->list[i].kind == TOK_PIECE_UNUSED) {
      tok_field piece = tok_field_at(f, i);
      TRI_TRY(tok_field_fail(&piece, TRI_UNSUPPORTED, err, "an unused token of a BPE model is not supported"));
    }
  TRI_TRY(rank_pieces(b, p));
  TRI_TRY(index_joins(b, p));
  TRI_TRY(tok_user_pieces_build(&b->user, p, f, err));
  *model = b;
  b = NULL;
cleanup:
  if (st == TRI_NO_MEMORY) tok_field_no_memory(f, err);
  bpe_pieces_destroy(b);
  return st;
}

/* ---- encoding ---- */

struct symbol {
  uint32_t at, len;    /* in the run; len 0: merged into the one before */
  uint32_t prev, next; /* NONE at the ends */
};

/* A pair of neighbours that spell a token, of so many bytes. It goes stale when either side grows, and is then dropped
 * when it comes up. */
struct candidate {
  uint32_t rank, at, len;
};

typedef struct bpe_pieces_work {
  struct symbol *symbols;
  struct candidate *heap;
  size_t symbol_cap, heap_cap;
  tok_ids ids; /* of the run */
  tok_word_cache cache;
} bpe_pieces_work;

static void bpe_pieces_work_destroy(void *work) {
  bpe_pieces_work *w = work;
  if (!w) return;
  tri_free(w->symbols);
  tri_free(w->heap);
  tok_ids_free(&w->ids);
  tri_free(w);
}

static tri_status bpe_pieces_work_create(const void *model, void **work) {
  (void)model;
  bpe_pieces_work *w = tri_calloc(1, sizeof *w);
  if (!w) return TRI_NO_MEMORY;
  w->ids.max = SIZE_MAX;
  *work = w;
  return TRI_OK;
}

/* Returns the rank of the token that a text spells, NONE without one. */
static uint32_t rank_of(const bpe_pieces *b, const char *text, size_t len) {
  uint32_t id = len <= b->longest ? tok_vocab_find(b->vocab, text, len) : TOK_NO_ID;
  return id == TOK_NO_ID ? NONE : b->ranks[id];
}

/* Text that is no token: its bytes, or the unknown token, of which a run of such text has one. */
static tri_status push_unknown(const bpe_pieces *b, const char *text, size_t len, tok_ids *out) {
  if (!b->byte_fallback) return b->unk == TOK_NO_ID ? TRI_OK : tok_ids_push(out, b->unk);
  for (size_t i = 0; i < len; i++) TRI_CHECK(tok_ids_push(out, b->bytes[(unsigned char)text[i]]));
  return TRI_OK;
}

static tri_status push_symbol(const bpe_pieces *b, const char *text, size_t len, tok_ids *out) {
  uint32_t id = len <= b->longest ? tok_vocab_find(b->vocab, text, len) : TOK_NO_ID;
  return id == TOK_NO_ID ? push_unknown(b, text, len, out) : tok_ids_push(out, id);
}

/* ---- short runs: scan for the lowest rank ---- */

enum { SHORT_RUN = 40 }; /* bytes */

/* Quadratic, but in a word's few symbols. starts[i] is where symbol i begins, and starts[count] the end. */
static tri_status merge_short(const bpe_pieces *b, const char *run, size_t len, tok_ids *out) {
  uint32_t starts[SHORT_RUN + 1], rank[SHORT_RUN]; /* rank: of the pair (i, i + 1) */
  size_t count = 0;
  for (size_t i = 0, n; i < len; i += n) {
    tok_utf8_decode(run + i, &n);
    starts[count++] = (uint32_t)i;
  }
  starts[count] = (uint32_t)len;
  for (size_t i = 0; i + 1 < count; i++) rank[i] = rank_of(b, run + starts[i], starts[i + 2] - starts[i]);
  while (count > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < count; i++)
      if (rank[i] < rank[best]) best = i;
    if (rank[best] == NONE) break;
    count--;
    memmove(starts + best + 1, starts + best + 2, (count - best) * sizeof *starts);
    memmove(rank + best, rank + best + 1, (count - best) * sizeof *rank);
    for (size_t i = best ? best - 1 : 0; i <= best && i + 1 < count; i++)
      rank[i] = rank_of(b, run + starts[i], starts[i + 2] - starts[i]);
  }
  for (size_t i = 0; i < count; i++) TRI_CHECK(push_symbol(b, run + starts[i], starts[i + 1] - starts[i], out));
  return TRI_OK;
}

/* ---- long runs: a linked list and a heap of candidates ---- */

static tri_status reserve(bpe_pieces_work *w, size_t n) {
  if (n >= NONE) return TRI_TOO_LARGE;
  TRI_CHECK(tri_array_reserve(&w->symbols, 0, &w->symbol_cap, n, sizeof *w->symbols));
  /* At most n - 1 at first; each of at most n - 1 merges takes one out and puts two in. */
  return tri_array_reserve(&w->heap, 0, &w->heap_cap, 2 * n, sizeof *w->heap);
}

static bool before(struct candidate a, struct candidate b) { return a.rank != b.rank ? a.rank < b.rank : a.at < b.at; }

static void push(struct candidate *heap, size_t *n, struct candidate c) {
  size_t i = (*n)++;
  for (; i && before(c, heap[(i - 1) / 2]); i = (i - 1) / 2) heap[i] = heap[(i - 1) / 2];
  heap[i] = c;
}

static struct candidate pop(struct candidate *heap, size_t *n) {
  struct candidate top = heap[0], moving = heap[--*n];
  size_t i = 0;
  for (size_t child; (child = 2 * i + 1) < *n; i = child) {
    if (child + 1 < *n && before(heap[child + 1], heap[child])) child++;
    if (!before(heap[child], moving)) break;
    heap[i] = heap[child];
  }
  heap[i] = moving;
  return top;
}

static void push_pair(const bpe_pieces *b, bpe_pieces_work *w, const char *run, size_t *count, uint32_t at) {
  const struct symbol *s = &w->symbols[at];
  if (s->next == NONE) return;
  uint32_t len = s->len + w->symbols[s->next].len, rank = rank_of(b, run + s->at, len);
  if (rank != NONE) push(w->heap, count, (struct candidate){rank, at, len});
}

/* O(n log n) for n symbols. */
static tri_status merge_long(const bpe_pieces *b, bpe_pieces_work *w, const char *run, size_t len, tok_ids *out) {
  TRI_CHECK(reserve(w, len));
  struct symbol *symbols = w->symbols;
  uint32_t size = 0;
  size_t count = 0;
  for (size_t i = 0, n; i < len; i += n) {
    tok_utf8_decode(run + i, &n);
    symbols[size] = (struct symbol){(uint32_t)i, (uint32_t)n, size - 1, size + 1}; /* prev of the first is NONE */
    size++;
  }
  symbols[size - 1].next = NONE;
  for (uint32_t i = 0; i + 1 < size; i++) push_pair(b, w, run, &count, i);
  while (count) {
    struct candidate c = pop(w->heap, &count);
    struct symbol *left = &symbols[c.at];
    if (!left->len || left->next == NONE || left->len + symbols[left->next].len != c.len) continue;
    struct symbol *right = &symbols[left->next];
    left->len = c.len;
    right->len = 0;
    left->next = right->next;
    if (left->next != NONE) symbols[left->next].prev = c.at;
    if (left->prev != NONE) push_pair(b, w, run, &count, left->prev);
    push_pair(b, w, run, &count, c.at);
  }
  /* The first symbol is never merged away. */
  for (uint32_t i = 0; i != NONE; i = symbols[i].next)
    TRI_CHECK(push_symbol(b, run + symbols[i].at, symbols[i].len, out));
  return TRI_OK;
}

/* ---- words ---- */

/* Appends a run's ids; of unknown tokens side by side only the first, also where the one before is the word's last so
 * far. */
static tri_status append(const bpe_pieces *b, const uint32_t *ids, size_t count, bool *after_unk, tok_ids *out) {
  if (b->unk == TOK_NO_ID || b->byte_fallback) return tok_ids_append(out, ids, count);
  for (size_t i = 0; i < count; i++) {
    if (ids[i] != b->unk || !*after_unk) TRI_CHECK(tok_ids_push(out, ids[i]));
    *after_unk = ids[i] == b->unk;
  }
  return TRI_OK;
}

static tri_status encode_run(const bpe_pieces *b, bpe_pieces_work *w, const char *run, size_t len, bool *after_unk,
                             tok_ids *out) {
  tok_cached_word *c = tok_cache_slot(&w->cache, run, len);
  if (tok_cache_has(c, run, len)) return append(b, c->ids, c->count, after_unk, out);
  /* No id stands for more than the longest token, except an unknown one: a run that cannot fit the caller's limit is
   * given up before its merges are worked out. */
  bool bounded = (b->unk == TOK_NO_ID || b->byte_fallback) && !out->fills;
  if (bounded && len / b->longest > out->max - out->len) return TRI_TOO_LARGE;
  w->ids.len = 0;
  if (len <= SHORT_RUN)
    TRI_CHECK(merge_short(b, run, len, &w->ids));
  else
    TRI_CHECK(merge_long(b, w, run, len, &w->ids));
  tok_cache_put(c, run, len, w->ids.data, w->ids.len);
  return append(b, w->ids.data, w->ids.len, after_unk, out);
}

/* Returns the end of the run that begins with a word's bytes: characters that can merge, up to the next user piece. */
static size_t run_end(const bpe_pieces *b, const char *s, size_t len) {
  uint32_t id, last;
  size_t end, n;
  last = tok_utf8_decode(s, &end);
  for (; end < len; end += n) {
    uint32_t c = tok_utf8_decode(s + end, &n);
    if (!tok_joins_can(&b->joins, last, c) || tok_user_piece_at(&b->user, s + end, len - end, &id)) break;
    last = c;
  }
  return end;
}

static tri_status bpe_pieces_encode(const void *model, void *work, const char *word, size_t len, tok_ids *out) {
  const bpe_pieces *b = model;
  bool after_unk = false;
  uint32_t id = b->whole_words && len <= b->longest ? tok_vocab_find(b->vocab, word, len) : TOK_NO_ID;
  if (id != TOK_NO_ID) return tok_ids_push(out, id);
  for (size_t at = 0, n; at < len; at += n) {
    n = tok_user_piece_at(&b->user, word + at, len - at, &id);
    if (n) {
      TRI_CHECK(tok_ids_push(out, id));
      after_unk = false;
      continue;
    }
    n = run_end(b, word + at, len - at);
    TRI_CHECK(encode_run(b, work, word + at, n, &after_unk, out));
  }
  return TRI_OK;
}

const tok_model_type tok_model_bpe_pieces = {
    .destroy = bpe_pieces_destroy,
    .work_create = bpe_pieces_work_create,
    .work_destroy = bpe_pieces_work_destroy,
    .encode = bpe_pieces_encode,
};
