/* SPDX-License-Identifier: Apache-2.0 */
/* The BPE model: symbols of one character each, merged by rank. The vocabulary's own alphabet (byte-level or plain) is
 * the pre-tokenizer's affair; here a word is characters.
 *
 * A word is looked for in the cache of words, then among the tokens (with ignore_merges a token is itself whatever its
 * merges say), and only then split and merged. */
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "text/tokenizer/models/bpe_joins.h"
#include "text/tokenizer/models/bpe_merge.h"
#include "text/tokenizer/models/model.h"
#include "text/tokenizer/models/word_cache.h"
#include "text/unicode/unicode.h"

enum { DIRECT = 0x800 }; /* characters of one and two bytes, the whole byte-level alphabet among them */

typedef struct span {
  const char *s;
  size_t len;
} span;

typedef struct bpe {
  const tok_vocab *vocab;
  tok_merges merges;
  tok_joins joins;
  uint32_t direct[DIRECT];   /* code point -> id or TOK_NO_ID */
  uint32_t byte_tokens[256]; /* "<0x00>".., for byte_fallback */
  uint32_t unk;              /* TOK_NO_ID: unknown characters vanish */
  size_t longest;            /* characters of the longest token */
  span prefix, suffix;       /* of symbols inside a word, and of a word's last one; in the vocabulary's arena */
  bool fuse_unk, byte_fallback, ignore_merges;
} bpe;

/* ---- loading ---- */

/* "a b" or ["a", "b"]. */
static tri_status read_pair(const tok_field *f, span *left, span *right, tri_error *err) {
  size_t len;
  const char *line = tri_json_as_str(f->node, &len);
  if (line) {
    const char *space = memchr(line, ' ', len);
    if (!space || memchr(space + 1, ' ', (size_t)(line + len - space - 1)))
      return tok_field_fail(f, TRI_CORRUPT, err, "a merge is two tokens with one space between them");
    *left = (span){line, (size_t)(space - line)};
    *right = (span){space + 1, (size_t)(line + len - space - 1)};
  } else {
    if (tri_json_kind_of(f->node) != TRI_JSON_ARRAY || tri_json_size(f->node) != 2)
      return tok_field_fail(f, TRI_CORRUPT, err, "a merge is a string or a pair of strings");
    left->s = tri_json_as_str(tri_json_at(f->node, 0), &left->len);
    right->s = tri_json_as_str(tri_json_at(f->node, 1), &right->len);
    if (!left->s || !right->s) return tok_field_fail(f, TRI_CORRUPT, err, "a merge is a pair of strings");
  }
  if (!left->len || !right->len) return tok_field_fail(f, TRI_CORRUPT, err, "a merge of an empty token");
  return TRI_OK;
}

static tri_status find_part(const tok_vocab *v, span text, const tok_field *f, uint32_t *id, tri_error *err) {
  *id = tok_vocab_find(v, text.s, text.len);
  if (*id != TOK_NO_ID) return TRI_OK;
  return tok_field_fail(f, TRI_CORRUPT, err, "token %.*s of the merge is not in the vocabulary",
                        (int)(text.len < 64 ? text.len : 64), text.s);
}

/* The merge's result is found by its spelling, since the file names the two parts alone. With a subword prefix ("##")
 * the right part loses it. */
static tri_status load_merge(bpe *b, const tok_field *f, uint32_t rank, tri_buf *joined, tri_error *err) {
  span left, right;
  tok_merge m = {.rank = rank};
  TRI_CHECK(read_pair(f, &left, &right, err));
  TRI_CHECK(find_part(b->vocab, left, f, &m.left, err));
  TRI_CHECK(find_part(b->vocab, right, f, &m.right, err));
  if (right.len < b->prefix.len)
    return tok_field_fail(f, TRI_CORRUPT, err, "the second token lacks the subword prefix");
  joined->len = 0;
  TRI_CHECK(tri_buf_append(joined, left.s, left.len));
  TRI_CHECK(tri_buf_append(joined, right.s + b->prefix.len, right.len - b->prefix.len));
  TRI_CHECK(find_part(b->vocab, (span){joined->data, joined->len}, f, &m.id, err));
  tok_merges_put(&b->merges, m);
  return TRI_OK;
}

/* A list taken over from a merges.txt may still have its first line. */
static bool is_version_line(const tri_json *j) {
  const char *s = tri_json_as_str(j, NULL);
  return s && !strncmp(s, "#version", 8);
}

static tri_status load_merges(bpe *b, const tok_field *model, tri_error *err) {
  tri_buf joined = {0};
  tri_status st;
  tok_field f = tok_field_get(model, "merges");
  TRI_TRY(tok_field_array(&f, err));
  size_t count = tri_json_size(f.node);
  uint32_t rank = 0;
  if (count >= UINT32_MAX) return tok_field_fail(&f, TRI_TOO_LARGE, err, "%zu merges", count);
  TRI_TRY(tok_merges_init(&b->merges, count));
  for (size_t i = 0; i < count; i++) {
    tok_field merge = tok_field_at(&f, i);
    if (!is_version_line(merge.node)) TRI_TRY(load_merge(b, &merge, rank++, &joined, err));
  }
cleanup:
  tri_buf_free(&joined);
  return st;
}

static tri_status load_unk(bpe *b, const tok_field *model, tri_error *err) {
  const char *text;
  size_t len;
  tok_field f = tok_field_get(model, "unk_token");
  b->unk = TOK_NO_ID;
  if (tok_field_is_null(&f)) return TRI_OK;
  tri_status st = tok_field_string(&f, &text, &len, err);
  if (st != TRI_OK || !len) return st; /* some converters write "" for none */
  b->unk = tok_vocab_find(b->vocab, text, len);
  if (b->unk == TOK_NO_ID) return tok_field_fail(&f, TRI_CORRUPT, err, "%.64s is not in the vocabulary", text);
  return TRI_OK;
}

/* The share of merges that are left out at random, for training: a server's answers do not change from call to call. */
static tri_status check_dropout(const tok_field *model, tri_error *err) {
  tok_field f = tok_field_get(model, "dropout");
  double dropout = 0;
  if (tok_field_is_null(&f)) return TRI_OK;
  if (!tri_json_as_num(f.node, &dropout) || !(dropout >= 0 && dropout <= 1))
    return tok_field_fail(&f, TRI_OUT_OF_RANGE, err, "must be within 0..1");
  if (dropout > 0)
    tri_log(TRI_LOG_WARN, "tokenizer", "%s is %g: it is not applied here, all merges are made", f.path, dropout);
  return TRI_OK;
}

/* Copied, since the file's text is freed after loading. */
static tri_status load_affix(const tok_field *model, const char *key, const tok_vocab *vocab, span *out,
                             tri_error *err) {
  tok_field f = tok_field_get(model, key);
  if (tok_field_is_null(&f)) return TRI_OK;
  tri_status st = tok_field_string(&f, &out->s, &out->len, err);
  if (st == TRI_OK && !(out->s = tri_arena_strndup(vocab->texts, out->s, out->len))) st = TRI_NO_MEMORY;
  return st;
}

/* Tables that spare the encoder its look-ups. */
static void index_characters(bpe *b) {
  const tok_vocab *v = b->vocab;
  memset(b->direct, 0xff, sizeof b->direct);
  for (uint32_t id = 0; id < v->size; id++) {
    const tok_entry *e = tok_vocab_at(v, id);
    if (!e || !e->len) continue;
    size_t chars = 0, len;
    for (size_t i = 0; i < e->len; i += len, chars++) {
      uint32_t c = tok_utf8_decode(e->text + i, &len);
      if (len == e->len && c < DIRECT) b->direct[c] = id;
    }
    if (chars > b->longest) b->longest = chars;
  }
  tok_vocab_find_bytes(v, b->byte_tokens);
}

/* Words are split into characters, bytes and unknowns. With affixes a character has several symbols: no cuts then. */
static tri_status index_joins(bpe *b) {
  const tok_vocab *v = b->vocab;
  if (b->prefix.len || b->suffix.len) return TRI_OK;
  bool *first = tri_calloc(v->size + 1, sizeof *first);
  if (!first) return TRI_NO_MEMORY;
  for (uint32_t id = 0; id < v->size; id++) {
    const tok_entry *e = tok_vocab_at(v, id);
    first[id] = e && e->len && tok_utf8_count(e->text, e->len) == 1;
  }
  for (int i = 0; i < 256; i++)
    if (b->byte_tokens[i] != TOK_NO_ID) first[b->byte_tokens[i]] = true;
  if (b->unk != TOK_NO_ID) first[b->unk] = true;
  tri_status st = tok_joins_build(&b->joins, &b->merges, first, v->size);
  tri_free(first);
  return st;
}

static void bpe_destroy(void *model) {
  bpe *b = model;
  if (!b) return;
  tok_joins_free(&b->joins);
  tok_merges_free(&b->merges);
  tri_free(b);
}

static tri_status bpe_load(const tok_field *f, tok_vocab *vocab, void **model, tri_error *err) {
  static const char keys[] = "type dropout unk_token continuing_subword_prefix end_of_word_suffix fuse_unk "
                             "byte_fallback ignore_merges vocab merges";
  tri_status st;
  bpe *b = tri_calloc(1, sizeof *b);
  if (!b) return tok_field_no_memory(f, err);
  b->vocab = vocab;
  TRI_TRY(tok_field_object(f, keys, err));
  TRI_TRY(check_dropout(f, err));
  TRI_TRY(load_affix(f, "continuing_subword_prefix", vocab, &b->prefix, err));
  TRI_TRY(load_affix(f, "end_of_word_suffix", vocab, &b->suffix, err));
  TRI_TRY(tok_field_bool(f, "fuse_unk", &b->fuse_unk, err));
  TRI_TRY(tok_field_bool(f, "byte_fallback", &b->byte_fallback, err));
  TRI_TRY(tok_field_bool(f, "ignore_merges", &b->ignore_merges, err));
  tok_field tokens = tok_field_get(f, "vocab");
  TRI_TRY(tok_vocab_load(vocab, &tokens, err));
  TRI_TRY(load_merges(b, f, err));
  TRI_TRY(load_unk(b, f, err));
  index_characters(b);
  TRI_TRY(index_joins(b));
  *model = b;
  b = NULL;
cleanup:
  if (st == TRI_NO_MEMORY) tok_field_no_memory(f, err);
  bpe_destroy(b);
  return st;
}

/* ---- encoding ---- */

typedef struct bpe_work {
  tok_merge_work merge;
  tok_ids symbols;
  tri_buf spelled;
  tok_word_cache cache;
} bpe_work;

static tri_status bpe_work_create(const void *model, void **work) {
  (void)model;
  bpe_work *w = tri_calloc(1, sizeof *w);
  if (!w) return TRI_NO_MEMORY;
  *work = w;
  return TRI_OK;
}

static void bpe_work_destroy(void *work) {
  bpe_work *w = work;
  if (!w) return;
  tok_merge_work_free(&w->merge);
  tok_ids_free(&w->symbols);
  tri_buf_free(&w->spelled);
  tri_free(w);
}

/* A character as the vocabulary spells it at its place in the word. */
static tri_status spell(const bpe *b, bpe_work *w, span c, bool first, bool last, span *out) {
  span prefix = first ? (span){0} : b->prefix, suffix = last ? b->suffix : (span){0};
  *out = c;
  if (!prefix.len && !suffix.len) return TRI_OK;
  w->spelled.len = 0;
  TRI_CHECK(tri_buf_append(&w->spelled, prefix.s, prefix.len));
  TRI_CHECK(tri_buf_append(&w->spelled, c.s, c.len));
  TRI_CHECK(tri_buf_append(&w->spelled, suffix.s, suffix.len));
  *out = (span){w->spelled.data, w->spelled.len};
  return TRI_OK;
}

static uint32_t symbol_id(const bpe *b, span symbol) {
  size_t len;
  uint32_t c = tok_utf8_decode(symbol.s, &len);
  return len == symbol.len && c < DIRECT ? b->direct[c] : tok_vocab_find(b->vocab, symbol.s, symbol.len);
}

static bool falls_back(const bpe *b, span symbol) {
  bool all = b->byte_fallback;
  for (size_t i = 0; all && i < symbol.len; i++) all = b->byte_tokens[(unsigned char)symbol.s[i]] != TOK_NO_ID;
  return all;
}

/* The word's characters as symbols. An unknown one is held back until the next known character, so that a run of them
 * can become one; byte tokens in between overtake it, which is odd but what the format's reference does. */
static tri_status split_characters(const bpe *b, bpe_work *w, const char *word, size_t len, tok_ids *out) {
  bool unk_pending = false;
  for (size_t i = 0, n; i < len; i += n) {
    span symbol;
    tok_utf8_decode(word + i, &n);
    TRI_CHECK(spell(b, w, (span){word + i, n}, i == 0, i + n == len, &symbol));
    uint32_t id = symbol_id(b, symbol);
    if (id != TOK_NO_ID) {
      if (unk_pending) TRI_CHECK(tok_ids_push(out, b->unk));
      unk_pending = false;
      TRI_CHECK(tok_ids_push(out, id));
    } else if (falls_back(b, symbol)) {
      for (size_t k = 0; k < symbol.len; k++) TRI_CHECK(tok_ids_push(out, b->byte_tokens[(unsigned char)symbol.s[k]]));
    } else if (b->unk != TOK_NO_ID) {
      if (unk_pending && !b->fuse_unk) TRI_CHECK(tok_ids_push(out, b->unk));
      unk_pending = true;
    }
  }
  return unk_pending ? tok_ids_push(out, b->unk) : TRI_OK;
}

/* Merges the symbols in runs whose neighbours cannot join: a text without words (SentencePiece's BPE has no
 * pre-tokenizer) is merged in pieces that stay in the processor's caches. */
static tri_status merge_runs(const bpe *b, bpe_work *w) {
  uint32_t *ids = w->symbols.data;
  size_t kept = 0;
  if (w->symbols.len <= TOK_SHORT_WORD) return tok_merge_word(&b->merges, &w->merge, ids, &w->symbols.len);
  for (size_t start = 0, end; start < w->symbols.len; start = end) {
    for (end = start + 1; end < w->symbols.len && tok_joins_can(&b->joins, ids[end - 1], ids[end]);) end++;
    size_t n = end - start;
    TRI_CHECK(tok_merge_word(&b->merges, &w->merge, ids + start, &n));
    memmove(ids + kept, ids + start, n * sizeof *ids);
    kept += n;
  }
  w->symbols.len = kept;
  return TRI_OK;
}

static tri_status merge_uncached(const bpe *b, bpe_work *w, const char *word, size_t len, size_t room) {
  /* No token has more characters than the longest, hence none is merged from more symbols: a word that cannot fit the
   * caller's limit is given up before its merges are worked out. */
  w->symbols.len = 0;
  if (!tri_size_mul(room, b->longest, &w->symbols.max)) w->symbols.max = SIZE_MAX;
  TRI_CHECK(split_characters(b, w, word, len, &w->symbols));
  return merge_runs(b, w);
}

/* A cached word gives its ids whatever the limit; tok_ids_append refuses those that are too many. */
static tri_status bpe_encode(const void *model, void *work, const char *word, size_t len, tok_ids *out) {
  const bpe *b = model;
  bpe_work *w = work;
  tok_cached_word *c = tok_cache_slot(&w->cache, word, len);
  if (tok_cache_has(c, word, len)) return tok_ids_append(out, c->ids, c->count);
  tri_status st;
  uint32_t whole = b->ignore_merges ? tok_vocab_find(b->vocab, word, len) : TOK_NO_ID;
  if (whole != TOK_NO_ID) return tok_ids_push(out, whole);
  size_t room = out->fills ? SIZE_MAX : out->max - out->len;
  if ((st = merge_uncached(b, w, word, len, room)) != TRI_OK) return st;
  tok_cache_put(c, word, len, w->symbols.data, w->symbols.len);
  return tok_ids_append(out, w->symbols.data, w->symbols.len);
}

const tok_model_type tok_model_bpe = {
    .name = "BPE",
    .telltale = "merges",
    .load = bpe_load,
    .destroy = bpe_destroy,
    .work_create = bpe_work_create,
    .work_destroy = bpe_work_destroy,
    .encode = bpe_encode,
};
