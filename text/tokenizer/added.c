/* SPDX-License-Identifier: Apache-2.0 */
#include "text/tokenizer/added.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "text/unicode/unicode.h"

/* Matching needs no automaton: the patterns are sorted, and the range of those that share the text's next bytes is
 * narrowed by binary search, byte by byte. `first` gives the range for one byte, so that most places of a text cost
 * one look-up. */
enum { MAX_ADDED = 1 << 18 };

/* ---- loading ---- */

static tri_status read_token(const tok_field *f, tok_added *t, tri_error *err) {
  TRI_CHECK(tok_field_object(f, "id content single_word lstrip rstrip normalized special", err));
  tok_field id = tok_field_get(f, "id"), content = tok_field_get(f, "content");
  TRI_CHECK(tok_field_id(&id, TOK_MAX_IDS, &t->id, err));
  TRI_CHECK(tok_field_string(&content, &t->text, &t->len, err));
  if (t->len > TOK_LONGEST_ADDED)
    return tok_field_fail(&content, TRI_TOO_LARGE, err, "%zu bytes, the limit is %d", t->len, TOK_LONGEST_ADDED);
  TRI_CHECK(tok_field_bool(f, "single_word", &t->single_word, err));
  TRI_CHECK(tok_field_bool(f, "lstrip", &t->lstrip, err));
  TRI_CHECK(tok_field_bool(f, "rstrip", &t->rstrip, err));
  TRI_CHECK(tok_field_bool(f, "special", &t->special, err));
  /* The reference's default where the file does not say. */
  t->normalized = !t->special;
  TRI_CHECK(tok_field_bool(f, "normalized", &t->normalized, err));
  t->shown_normal = t->normalized;
  return TRI_OK;
}

static bool is_listed(const tok_vocab *vocab, const tok_added *t) {
  const tok_entry *e = tok_vocab_at(vocab, t->id);
  return e && e->len == t->len && !memcmp(e->text, t->text, t->len);
}

/* The reference ignores the file's id: a token that the model or the list already has keeps that, others are numbered
 * after the model. Where that disagrees with the file, ids of some model are wrong. */
static tri_status place_token(const tok_field *f, tok_added *t, tok_vocab *vocab, uint32_t *next, tri_error *err) {
  tok_field field = tok_field_get(f, "id");
  uint32_t id = tok_vocab_find(vocab, t->text, t->len);
  if (id == TOK_NO_ID && is_listed(vocab, t)) id = t->id;
  bool known = id != TOK_NO_ID;
  if (!known) id = *next;
  if (id != t->id)
    return tok_field_fail(&field, TRI_CORRUPT, err, "%.64s has id %u here, but its place in the vocabulary is %u",
                          t->text, t->id, id);
  if (!known) {
    tri_status st = tok_vocab_add_unlisted(vocab, t->text, t->len, id);
    if (st == TRI_NO_MEMORY) return tok_field_no_memory(f, err);
    if (st != TRI_OK) return tok_field_fail(&field, TRI_CORRUPT, err, "id %u is used twice", id);
  }
  if (id >= *next) *next = id + 1;
  vocab->entries[id].special |= t->special;
  t->text = vocab->entries[id].text;
  return TRI_OK;
}

static int compare_bytes(const char *a, size_t an, const char *b, size_t bn) {
  int c = memcmp(a, b, an < bn ? an : bn);
  return c ? c : (an > bn) - (an < bn);
}

static int compare_tokens(const void *x, const void *y) {
  const tok_added *a = x, *b = y;
  return compare_bytes(a->text, a->len, b->text, b->len);
}

static int compare_copies(const void *x, const void *y) {
  const tok_added *a = x, *b = y;
  int c = compare_tokens(a, b);
  return c ? c : (a->place > b->place) - (a->place < b->place);
}

/* The last copy counts of a token that the file has twice; what an earlier one says of decoding stays. */
static void merge_copies(tok_added_vocab *a) {
  size_t kept = 0;
  qsort(a->tokens, a->count, sizeof *a->tokens, compare_copies);
  for (size_t i = 0; i < a->count; i++) {
    tok_added t = a->tokens[i];
    if (kept && !compare_tokens(&a->tokens[kept - 1], &t)) {
      kept--;
      t.special |= a->tokens[kept].special;
      t.shown_normal |= a->tokens[kept].shown_normal;
    }
    a->tokens[kept++] = t;
  }
  a->count = kept;
}

/* Two tokens may share a normalized spelling; the earlier one in the file, which has the lower id, matches. */
static int compare_patterns(const void *x, const void *y) {
  const struct tok_added_pattern *a = x, *b = y;
  int c = compare_bytes(a->text, a->len, b->text, b->len);
  return c ? c : (a->token->id > b->token->id) - (a->token->id < b->token->id);
}

static tri_status normalize_token(tok_added_vocab *a, tok_added *t, const tok_normalizer *n,
                                  tok_normalize_scratch *scratch) {
  t->normal = t->text;
  t->normal_len = t->len;
  if (!t->shown_normal) return TRI_OK;
  TRI_CHECK(tok_normalize(n, scratch, t->text, t->len, NULL, NULL, &t->normal, &t->normal_len));
  if (t->normal != t->text && !(t->normal = tri_arena_strndup(a->texts, t->normal, t->normal_len)))
    return TRI_NO_MEMORY;
  return TRI_OK;
}

/* `first` is a counting sort's prefix sums over the patterns' first bytes. */
static tri_status build_set(const tok_added_vocab *a, tok_added_set *set, bool normalized) {
  set->patterns = tri_calloc(a->count ? a->count : 1, sizeof *set->patterns);
  if (!set->patterns) return TRI_NO_MEMORY;
  for (size_t i = 0; i < a->count; i++) {
    const tok_added *t = &a->tokens[i];
    if (t->normalized != normalized) continue;
    struct tok_added_pattern p = {t->text, t->len, t};
    if (normalized) p = (struct tok_added_pattern){t->normal, t->normal_len, t};
    if (!p.len) continue;
    set->patterns[set->count++] = p;
    set->has_special |= t->special;
  }
  qsort(set->patterns, set->count, sizeof *set->patterns, compare_patterns);
  for (size_t i = 0; i < set->count; i++) set->first[(unsigned char)set->patterns[i].text[0] + 1]++;
  for (size_t b = 0; b < 256; b++) set->first[b + 1] += set->first[b];
  return TRI_OK;
}

/* The reference leaves special tokens out by what decoders see of an id, which it looks for among the special tokens'
 * texts: a normalized token whose spelling differs from its text stays, one that is spelled like another special token
 * goes. */
static void mark_skipped(const tok_added_vocab *a, tok_vocab *vocab) {
  for (uint32_t id = 0; a->count && id < vocab->size; id++) {
    tok_entry *e = &vocab->entries[id];
    if (!e->text) continue;
    const tok_added *t = tok_added_vocab_find(a, e->text, e->len);
    if (t && t->id == id) {
      size_t len;
      const char *shown = tok_added_shown(t, &len);
      t = tok_added_vocab_find(a, shown, len);
    }
    e->skipped = t && t->special;
  }
}

static tri_status allocate(tok_added_vocab *a, size_t count, const tok_field *f, tri_error *err) {
  if (count > MAX_ADDED) return tok_field_fail(f, TRI_TOO_LARGE, err, "%zu tokens, the limit is %d", count, MAX_ADDED);
  a->tokens = tri_calloc(count ? count : 1, sizeof *a->tokens);
  return a->tokens ? TRI_OK : tok_field_no_memory(f, err);
}

static tri_status load_tokens(tok_added_vocab *a, const tok_field *f, tok_vocab *vocab, tri_error *err) {
  size_t count = tri_json_size(f->node);
  uint32_t next = (uint32_t)vocab->count;
  TRI_CHECK(allocate(a, count, f, err));
  for (size_t i = 0; i < count; i++) {
    tok_field field = tok_field_at(f, i);
    tok_added *t = &a->tokens[a->count];
    tri_status st = read_token(&field, t, err);
    if (st != TRI_OK) return st;
    if (!t->len) continue; /* as the reference does */
    t->place = i;
    if ((st = place_token(&field, t, vocab, &next, err)) != TRI_OK) return st;
    a->count++;
  }
  return TRI_OK;
}

tri_status tok_added_vocab_load(tok_added_vocab *a, const tok_field *f, tok_vocab *vocab, const tok_normalizer *n,
                                tri_error *err) {
  tok_normalize_scratch scratch = {0};
  tri_status st;
  if (!tok_field_is_null(f)) TRI_TRY(tok_field_array(f, err));
  TRI_TRY(tri_arena_create(1 << 12, &a->texts));
  TRI_TRY(load_tokens(a, f, vocab, err));
  merge_copies(a);
  for (size_t i = 0; i < a->count; i++) TRI_TRY(normalize_token(a, &a->tokens[i], n, &scratch));
  TRI_TRY(build_set(a, &a->raw, false));
  TRI_TRY(build_set(a, &a->normalized, true));
  mark_skipped(a, vocab);
cleanup:
  if (st == TRI_NO_MEMORY) tok_field_no_memory(f, err);
  tok_normalize_scratch_free(&scratch);
  return st;
}

static tri_status take_token(tok_added_vocab *a, const tok_added *from, tok_vocab *vocab, const tok_field *f,
                             tri_error *err) {
  tok_added *t = &a->tokens[a->count];
  tri_status st = TRI_OK;
  *t = *from;
  if (!is_listed(vocab, t)) st = tok_vocab_add_unlisted(vocab, t->text, t->len, t->id);
  if (st == TRI_NO_MEMORY) return tok_field_no_memory(f, err);
  if (st != TRI_OK) return tok_field_fail(f, TRI_CORRUPT, err, "id %u of %.64s is another token's", t->id, t->text);
  t->place = a->count++;
  t->text = t->normal = vocab->entries[t->id].text;
  t->normal_len = t->len;
  vocab->entries[t->id].special |= t->special;
  vocab->entries[t->id].skipped |= t->special;
  return TRI_OK;
}

tri_status tok_added_vocab_take(tok_added_vocab *a, const tok_added *tokens, size_t count, tok_vocab *vocab,
                                const tok_field *f, tri_error *err) {
  TRI_CHECK(allocate(a, count, f, err));
  for (size_t i = 0; i < count; i++) TRI_CHECK(take_token(a, &tokens[i], vocab, f, err));
  merge_copies(a);
  tri_status st = build_set(a, &a->raw, false);
  if (st == TRI_OK) st = build_set(a, &a->normalized, true);
  return st == TRI_NO_MEMORY ? tok_field_no_memory(f, err) : st;
}

void tok_added_vocab_free(tok_added_vocab *a) {
  tri_free(a->tokens);
  tri_free(a->raw.patterns);
  tri_free(a->normalized.patterns);
  tri_arena_destroy(a->texts);
  *a = (tok_added_vocab){0};
}

const tok_added *tok_added_vocab_find(const tok_added_vocab *a, const char *text, size_t len) {
  tok_added key = {.text = text, .len = len};
  return a->count ? bsearch(&key, a->tokens, a->count, sizeof *a->tokens, compare_tokens) : NULL;
}

const char *tok_added_shown(const tok_added *t, size_t *len) {
  *len = t->shown_normal ? t->normal_len : t->len;
  return t->shown_normal ? t->normal : t->text;
}

/* ---- matching ---- */

/* The first of patterns[low..high) whose byte at depth is >= byte; all have at least depth bytes and agree before it.
 * One that ends there comes before the rest. */
static size_t lower_bound(const tok_added_set *set, size_t low, size_t high, size_t depth, unsigned byte) {
  while (low < high) {
    size_t mid = low + (high - low) / 2;
    const struct tok_added_pattern *p = &set->patterns[mid];
    if (p->len > depth && (unsigned char)p->text[depth] >= byte)
      high = mid;
    else
      low = mid + 1;
  }
  return low;
}

/* Returns the first of the patterns that end at depth, which are the first of patterns[low..high), that is allowed. */
static const struct tok_added_pattern *ending_at(const tok_added_set *set, size_t low, size_t high, size_t depth,
                                                 size_t own) {
  for (; low < high && set->patterns[low].len == depth; low++)
    if (depth <= own || !set->patterns[low].token->special) return &set->patterns[low];
  return NULL;
}

/* The longest pattern that text begins with: the sorted list is narrowed byte by byte, like a walk down a trie. Special
 * tokens may have the first `own` bytes alone. */
static const struct tok_added_pattern *longest_at(const tok_added_set *set, const char *text, size_t len, size_t own) {
  const struct tok_added_pattern *best = NULL, *found;
  unsigned char b = (unsigned char)text[0];
  size_t low = set->first[b], high = set->first[b + 1];
  for (size_t depth = 1; low < high; depth++) {
    if ((found = ending_at(set, low, high, depth, own))) best = found;
    if (depth == len) break;
    b = (unsigned char)text[depth];
    low = lower_bound(set, low, high, depth, b);
    high = lower_bound(set, low, high, depth, b + 1u);
  }
  return best;
}

static bool stands_alone(const char *text, size_t len, size_t start, size_t end) {
  size_t n;
  if (start && tok_is_word(tok_utf8_decode(text + tok_utf8_before(text, start), &n))) return false;
  return end == len || !tok_is_word(tok_utf8_decode(text + end, &n));
}

/* Returns how many bytes from here on are not foreign. */
static size_t own_bytes(tok_added_scan *s) {
  if (!s->foreign) return SIZE_MAX;
  while (s->next_foreign < s->foreign->len && s->foreign->data[s->next_foreign].to <= s->at) s->next_foreign++;
  if (s->next_foreign == s->foreign->len) return SIZE_MAX;
  size_t from = s->foreign->data[s->next_foreign].from;
  return from > s->at ? from - s->at : 0;
}

bool tok_added_next(tok_added_scan *s, size_t *start, size_t *end, uint32_t *id) {
  const tok_added_set *set = s->set;
  while (set->count && s->at < s->len) {
    unsigned char b = (unsigned char)s->text[s->at];
    const struct tok_added_pattern *p = NULL;
    if (set->first[b] != set->first[b + 1]) p = longest_at(set, s->text + s->at, s->len - s->at, own_bytes(s));
    if (!p) {
      s->at++;
      continue;
    }
    size_t from = s->at, to = from + p->len, n;
    s->at = to; /* also after a match that is discarded below */
    if (p->token->single_word && !stands_alone(s->text, s->len, from, to)) continue;
    if (p->token->lstrip) {
      for (size_t before; from > s->done; from = before) {
        before = tok_utf8_before(s->text, from);
        if (!tok_is_space(tok_utf8_decode(s->text + before, &n))) break;
      }
      if (from < s->done) from = s->done; /* the previous match took white space that is part of this one */
    }
    if (p->token->rstrip)
      while (to < s->len && tok_is_space(tok_utf8_decode(s->text + to, &n))) to += n;
    if (from >= to) {
      s->done = to;
      continue;
    }
    *start = from;
    *end = to;
    *id = p->token->id;
    return true;
  }
  return false;
}
