/* SPDX-License-Identifier: Apache-2.0 */
/* Loading, and a text's path through a tokenizer's parts:
 *
 *   repair UTF-8 -> added tokens -> normalizer -> added tokens (normalized) -> pre-tokenizer -> model -> post-processor
 *
 * Each part is a tok_*.c file with a table of its types. */
#include <string.h>

#include "base/mem.h"
#include "base/xxh3.h"
#include "text/tokenizer/tokenizer_impl.h"
#include "text/unicode/unicode.h"

struct tri_tokenizer_scratch {
  const tok_model_type *model_type;
  void *model_work;
  tok_normalize_scratch normalize;
  tok_pretok_scratch pretok;
  tok_effort effort;
  tri_buf repaired;
  tok_ids ids;
  tok_spans given, foreign, in_gap; /* as they came; of the repaired text; of what is being normalized */
};

/* ---- loading ---- */

/* Ids may have holes: what a post-processor adds must be tokens. */
static tri_status check_special_ids(const tok_vocab *v, const tok_ids *ids, const tok_field *f, tri_error *err) {
  for (size_t i = 0; i < ids->len; i++)
    if (!tok_vocab_at(v, ids->data[i]))
      return tok_field_fail(f, TRI_CORRUPT, err, "adds the id %u, which no token has", ids->data[i]);
  return TRI_OK;
}

/* The order counts: added tokens are normalized and take ids after the model's, the post-processor's ids must be below
 * all of them, and the decoder goes through the whole vocabulary. */
static tri_status load_parts(tri_tokenizer *t, const tok_field *root, tri_error *err) {
  /* The library that trains these files applies truncation and padding only on request of its caller, who overrides
   * what the file says; here the caller's limits rule. */
  static const char keys[] =
      "version truncation padding added_tokens normalizer pre_tokenizer model post_processor decoder";
  const tok_model_type *type;
  TRI_CHECK(tok_field_object(root, keys, err));
  tok_field model = tok_field_get(root, "model"), added = tok_field_get(root, "added_tokens"),
            normalizer = tok_field_get(root, "normalizer"), pretokenizer = tok_field_get(root, "pre_tokenizer"),
            postprocessor = tok_field_get(root, "post_processor"), decoder = tok_field_get(root, "decoder");
  TRI_CHECK(tok_normalizer_load(&t->normalizer, &normalizer, err));
  TRI_CHECK(tok_pretokenizer_load(&t->pretokenizer, &pretokenizer, err));
  TRI_CHECK(tok_model_find(&model, &type, err));
  TRI_CHECK(type->load(&model, &t->vocab, &t->model, err));
  t->model_type = type;
  TRI_CHECK(tok_added_vocab_load(&t->added, &added, &t->vocab, &t->normalizer, err));
  TRI_CHECK(tok_postprocessor_load(&t->postprocessor, &postprocessor, (uint32_t)t->vocab.size, err));
  TRI_CHECK(check_special_ids(&t->vocab, &t->postprocessor.prefix, &postprocessor, err));
  TRI_CHECK(check_special_ids(&t->vocab, &t->postprocessor.suffix, &postprocessor, err));
  tok_pair *pair = &t->postprocessor.pair;
  const tok_ids *of_pair[] = {&pair->before, &pair->between, &pair->behind};
  for (int i = 0; i < 3; i++) pair->known &= check_special_ids(&t->vocab, of_pair[i], &postprocessor, NULL) == TRI_OK;
  TRI_CHECK(tok_decoder_load(&t->decoder, &decoder, &t->vocab, &t->added, err));
  return TRI_OK;
}

static tri_status load_document(const tri_json_doc *doc, tri_tokenizer **out, tri_error *err) {
  tok_field root = tok_field_root(tri_json_root(doc));
  tri_status st = TRI_NO_MEMORY;
  tri_tokenizer *t = tri_calloc(1, sizeof *t);
  if (!t) goto cleanup;
  TRI_TRY(tok_vocab_init(&t->vocab));
  TRI_TRY(load_parts(t, &root, err));
  *out = t;
  t = NULL;
cleanup:
  if (st == TRI_NO_MEMORY) tok_field_no_memory(&root, err);
  tri_tokenizer_destroy(t);
  return st;
}

tri_status tri_tokenizer_load(const char *path, tri_tokenizer **out, tri_error *err) {
  char *text;
  size_t len;
  TRI_CHECK(tri_json_read_text(path, TOK_MAX_FILE, &text, &len, err));
  tri_status st = tri_tokenizer_parse(text, len, out, err);
  if (st != TRI_OK) tri_error_in_file(err, path);
  tri_free(text);
  return st;
}

tri_status tri_tokenizer_parse(const char *json, size_t len, tri_tokenizer **out, tri_error *err) {
  tri_json_doc *doc = NULL;
  if (len > TOK_MAX_FILE)
    return tri_fail(err, TRI_TOO_LARGE, NULL, "%zu bytes of JSON, the limit is %d", len, TOK_MAX_FILE);
  TRI_CHECK(tri_json_parse_with(json, len, tok_real_read, &doc, err));
  tri_status st = load_document(doc, out, err);
  tri_json_free(doc);
  if (st == TRI_OK) (*out)->hash = tri_xxh3(json, len);
  return st;
}

uint64_t tri_tokenizer_hash(const tri_tokenizer *t) { return t->hash; }

void tri_tokenizer_destroy(tri_tokenizer *t) {
  if (!t) return;
  if (t->model_type) t->model_type->destroy(t->model);
  tok_decoder_free(&t->decoder);
  tok_postprocessor_free(&t->postprocessor);
  tok_pretokenizer_free(&t->pretokenizer);
  tok_normalizer_free(&t->normalizer);
  tok_added_vocab_free(&t->added);
  tok_vocab_free(&t->vocab);
  tri_free(t);
}

/* ---- vocabulary ---- */

uint32_t tri_tokenizer_vocab_size(const tri_tokenizer *t) { return (uint32_t)t->vocab.size; }

const char *tri_tokenizer_token(const tri_tokenizer *t, uint32_t id) {
  const tok_entry *e = tok_vocab_at(&t->vocab, id);
  return e ? e->text : NULL;
}

size_t tri_tokenizer_token_bytes(const tri_tokenizer *t, uint32_t id, char *out, size_t cap) {
  return id < t->vocab.size ? tok_decode_inner(&t->decoder, id, out, cap) : 0;
}

bool tri_tokenizer_id(const tri_tokenizer *t, const char *token, size_t len, uint32_t *id) {
  const tok_added *added = tok_added_vocab_find(&t->added, token, len);
  uint32_t found = added ? added->id : tok_vocab_find(&t->vocab, token, len);
  if (found == TOK_NO_ID) return false;
  *id = found;
  return true;
}

bool tri_tokenizer_is_special(const tri_tokenizer *t, uint32_t id) {
  const tok_entry *e = tok_vocab_at(&t->vocab, id);
  return e && e->special;
}

/* ---- encoding ---- */

tri_status tri_tokenizer_scratch_create(const tri_tokenizer *t, tri_tokenizer_scratch **out) {
  tri_status st = TRI_NO_MEMORY;
  tri_tokenizer_scratch *s = tri_calloc(1, sizeof *s);
  if (!s) return st;
  s->model_type = t->model_type;
  TRI_TRY(tok_pretok_scratch_init(&s->pretok, &s->effort));
  TRI_TRY(tok_regex_scratch_create(&s->effort, &s->normalize.regex));
  TRI_TRY(t->model_type->work_create(t->model, &s->model_work));
  *out = s;
  s = NULL;
cleanup:
  tri_tokenizer_scratch_destroy(s);
  return st;
}

void tri_tokenizer_scratch_destroy(tri_tokenizer_scratch *s) {
  if (!s) return;
  s->model_type->work_destroy(s->model_work);
  tok_pretok_scratch_free(&s->pretok);
  tok_normalize_scratch_free(&s->normalize);
  tri_buf_free(&s->repaired);
  tok_ids_free(&s->ids);
  tok_spans_free(&s->given);
  tok_spans_free(&s->foreign);
  tok_spans_free(&s->in_gap);
  tri_free(s);
}

void tri_tokenizer_scratch_stop_at(tri_tokenizer_scratch *s, const atomic_bool *stop) { s->effort.stop = stop; }

typedef struct encoding {
  const tri_tokenizer *t;
  tri_tokenizer_scratch *s;
  const char *text;    /* the whole one, repaired */
  size_t next_foreign; /* those before it lie before what is still to be normalized */
} encoding;

/* at_start: nothing stood before text. */
typedef tri_status (*gap_fn)(encoding *e, const char *text, size_t len, bool at_start);

/* Appends the ids of the set's tokens in text[from, to) and hands what lies between them to gap. */
/* Runs twice over a text: added tokens that are not normalized are cut out first, those that are, from what lies
 * between after the normalizer. */
static tri_status around_added(encoding *e, const tok_added_set *set, const char *text, size_t from, size_t to,
                               const tok_spans *foreign, bool at_start, gap_fn gap) {
  tok_added_scan scan = {
      .set = set, .text = text, .len = to, .at = from, .done = from, .foreign = foreign->len ? foreign : NULL};
  size_t start, end;
  uint32_t id;
  while (tok_added_next(&scan, &start, &end, &id)) {
    if (scan.done < start) TRI_CHECK(gap(e, text + scan.done, start - scan.done, at_start && !scan.done));
    TRI_CHECK(tok_ids_push(&e->s->ids, id));
    scan.done = end;
  }
  return scan.done < to ? gap(e, text + scan.done, to - scan.done, at_start && !scan.done) : TRI_OK;
}

/* Returns whether the ids from `first` on have a special token that the word spells; one for what is unknown is none.
 */
static bool spells_special(const encoding *e, const char *word, size_t len, size_t first) {
  for (size_t i = first; i < e->s->ids.len; i++) {
    const tok_entry *token = tok_vocab_at(&e->t->vocab, e->s->ids.data[i]);
    if (token && token->special && token->len && memmem(word, len, token->text, token->len)) return true;
  }
  return false;
}

/* A model may have special tokens in its own vocabulary, so that it makes them of text in which they were not
 * recognised. Where some text is foreign, such a word is cut in halves until it has none. */
static tri_status encode_word(void *ctx, const char *word, size_t len) {
  encoding *e = ctx;
  size_t first = e->s->ids.len, half = len / 2;
  if (tok_effort_stopped(&e->s->effort)) return TRI_ABORTED;
  TRI_CHECK(e->t->model_type->encode(e->t->model, e->s->model_work, word, len, &e->s->ids));
  if (!e->s->foreign.len || !spells_special(e, word, len, first)) return TRI_OK;
  while (half && ((unsigned char)word[half] & 0xc0) == 0x80) half--;
  if (!half) return TRI_OK; /* one character */
  e->s->ids.len = first;
  TRI_CHECK(encode_word(ctx, word, half));
  return encode_word(ctx, word + half, len - half);
}

static tri_status encode_words(encoding *e, const char *text, size_t len, bool at_start) {
  return tok_pretokenize(&e->t->pretokenizer, &e->s->pretok, text, len, at_start, encode_word, e);
}

/* Sets in_gap to the spans in len bytes at text, a gap of the whole; gaps come in order. */
static tri_status cut_spans(encoding *e, const char *text, size_t len) {
  const tok_spans *all = &e->s->foreign;
  size_t from = (size_t)(text - e->text), end = from + len;
  e->s->in_gap.len = 0;
  while (e->next_foreign < all->len && all->data[e->next_foreign].to <= from) e->next_foreign++;
  for (size_t i = e->next_foreign; i < all->len && all->data[i].from < end; i++) {
    size_t a = all->data[i].from < from ? from : all->data[i].from, b = all->data[i].to < end ? all->data[i].to : end;
    TRI_CHECK(tok_spans_add(&e->s->in_gap, a - from, b - from));
  }
  return TRI_OK;
}

static tri_status encode_normalized(encoding *e, const char *text, size_t len, bool at_start) {
  const tok_added_set *set = &e->t->added.normalized;
  tok_spans *spans = &e->s->in_gap;
  spans->len = 0;
  if (e->s->foreign.len && set->has_special) TRI_CHECK(cut_spans(e, text, len));
  TRI_CHECK(
      tok_normalize(&e->t->normalizer, &e->s->normalize, text, len, &at_start, spans->len ? spans : NULL, &text, &len));
  return around_added(e, set, text, 0, len, spans, at_start, encode_words);
}

/* Text with ill-formed UTF-8 is replaced by a repaired copy; after this, everything is valid. The spans go along. */
static tri_status repair(tri_tokenizer_scratch *s, const char **text, size_t *len) {
  if (tok_utf8_valid_prefix(*text, *len) == *len) return TRI_OK;
  tok_spans given = s->foreign;
  s->foreign = s->given;
  s->given = given;
  s->foreign.len = 0;
  tok_spans_walk walk = {.from = &s->given, .to = &s->foreign};
  s->repaired.len = 0;
  TRI_CHECK(tok_utf8_repair(&s->repaired, *text, *len, s->given.len ? &walk : NULL));
  *text = s->repaired.data;
  *len = s->repaired.len;
  return TRI_OK;
}

/* Appends a text's ids; `foreign` are its spans. */
static tri_status encode_text(encoding *e, const char *text, size_t len) {
  tok_effort_begin(&e->s->effort, len);
  TRI_CHECK(repair(e->s, &text, &len));
  e->text = text;
  tok_stretches_at at = {0};
  for (size_t from = 0, to; from < len; from = to) {
    to = tok_stretch_end(&e->t->stretches, &at, text, len, from);
    TRI_CHECK(around_added(e, &e->t->added.raw, text, from, to, &e->s->foreign, true, encode_normalized));
  }
  return TRI_OK;
}

static tri_status set_foreign(tri_tokenizer_scratch *s, const tri_span *spans, size_t num, size_t len) {
  s->foreign.len = 0;
  for (size_t i = 0; i < num; i++) {
    size_t after = i ? spans[i - 1].to : 0;
    if (spans[i].from < after || spans[i].from > spans[i].to || spans[i].to > len) return TRI_INVALID_ARGUMENT;
    if (spans[i].from < spans[i].to) TRI_CHECK(tok_spans_add(&s->foreign, spans[i].from, spans[i].to));
  }
  return TRI_OK;
}

tri_status tri_tokenizer_encode(const tri_tokenizer *t, tri_tokenizer_scratch *s, const char *text, size_t len,
                                bool add_special, size_t max_tokens, const uint32_t **ids, size_t *count) {
  return tri_tokenizer_encode_spans(t, s, text, len, NULL, 0, add_special, max_tokens, ids, count);
}

tri_status tri_tokenizer_encode_spans(const tri_tokenizer *t, tri_tokenizer_scratch *s, const char *text, size_t len,
                                      const tri_span *spans, size_t num_spans, bool add_special, size_t max_tokens,
                                      const uint32_t **ids, size_t *count) {
  encoding e = {.t = t, .s = s};
  tok_ids none = {0};
  const tok_ids *prefix = add_special ? &t->postprocessor.prefix : &none;
  const tok_ids *suffix = add_special ? &t->postprocessor.suffix : &none;
  TRI_CHECK(set_foreign(s, spans, num_spans, len));
  s->ids.len = 0;
  s->ids.max = max_tokens ? max_tokens : SIZE_MAX;
  TRI_CHECK(tok_ids_append(&s->ids, prefix->data, prefix->len));
  TRI_CHECK(encode_text(&e, text, len));
  TRI_CHECK(tok_ids_append(&s->ids, suffix->data, suffix->len));
  *ids = s->ids.data;
  *count = s->ids.len;
  return TRI_OK;
}

bool tri_tokenizer_has_pairs(const tri_tokenizer *t) { return t->postprocessor.pair.known; }

tri_status tri_tokenizer_encode_pair(const tri_tokenizer *t, tri_tokenizer_scratch *s, const char *text, size_t len,
                                     const char *pair, size_t pair_len, size_t max_tokens, const uint32_t **ids,
                                     size_t *count, size_t *second) {
  const tok_pair *p = &t->postprocessor.pair;
  encoding e = {.t = t, .s = s};
  s->foreign.len = 0;
  if (!p->known) return TRI_UNSUPPORTED;
  s->ids.len = 0;
  s->ids.max = max_tokens ? max_tokens : SIZE_MAX;
  TRI_CHECK(tok_ids_append(&s->ids, p->before.data, p->before.len));
  TRI_CHECK(encode_text(&e, text, len));
  size_t second_type = s->ids.len + p->first_between + 1;
  TRI_CHECK(tok_ids_append(&s->ids, p->between.data, p->between.len));
  TRI_CHECK(encode_text(&e, pair, pair_len));
  TRI_CHECK(tok_ids_append(&s->ids, p->behind.data, p->behind.len));
  *ids = s->ids.data;
  *count = s->ids.len;
  *second = p->has_second_type ? second_type : 0;
  return TRI_OK;
}

/* Appends a text's first ids, at most so many. */
static tri_status encode_beginning(encoding *e, const char *text, size_t len, size_t most, size_t *count) {
  tok_ids *ids = &e->s->ids;
  size_t before = ids->len;
  ids->max = most < SIZE_MAX - before ? before + most : SIZE_MAX;
  ids->fills = true;
  tri_status st = encode_text(e, text, len);
  ids->fills = false;
  *count = ids->len - before;
  return st == TRI_TOO_LARGE && *count == most ? TRI_OK : st;
}

/* Cuts the longer of two texts so that both have room, or both to halves of it. */
static void share_room(size_t room, size_t *a, size_t *b) {
  size_t *shorter = *a <= *b ? a : b, *longer = *a <= *b ? b : a;
  if (*shorter > room / 2) *shorter = room / 2;
  if (*longer > room - *shorter) *longer = room - *shorter;
}

/* The ids of the texts are made one after the other, and what stays of the second moves to its place. */
tri_status tri_tokenizer_encode_truncated(const tri_tokenizer *t, tri_tokenizer_scratch *s, const char *text,
                                          size_t len, const char *pair, size_t pair_len, size_t max_tokens,
                                          const uint32_t **out, size_t *count, size_t *second) {
  const tok_postprocessor *p = &t->postprocessor;
  const tok_ids none = {0}, *between = pair ? &p->pair.between : &none;
  const tok_ids *before = pair ? &p->pair.before : &p->prefix, *behind = pair ? &p->pair.behind : &p->suffix;
  encoding e = {.t = t, .s = s};
  s->foreign.len = 0;
  tok_ids *ids = &s->ids;
  size_t special = before->len + between->len + behind->len, len_a, len_b = 0;
  if (pair && !p->pair.known) return TRI_UNSUPPORTED;
  if (!max_tokens) max_tokens = SIZE_MAX;
  if (special > max_tokens) return TRI_TOO_LARGE;
  size_t room = max_tokens - special;
  ids->len = 0;
  ids->max = SIZE_MAX;
  TRI_CHECK(tok_ids_append(ids, before->data, before->len));
  TRI_CHECK(encode_beginning(&e, text, len, room, &len_a));
  if (pair) TRI_CHECK(encode_beginning(&e, pair, pair_len, room, &len_b));
  size_t had_a = len_a;
  share_room(room, &len_a, &len_b);
  ids->max = SIZE_MAX;
  TRI_CHECK(tok_ids_append(ids, between->data, between->len)); /* makes the array long enough */
  TRI_CHECK(tok_ids_append(ids, behind->data, behind->len));
  *out = ids->data;
  *count = *second = 0;
  if (!ids->data) return TRI_OK; /* there is no token, and no place for one */
  uint32_t *a = ids->data + before->len, *b = a + len_a + between->len;
  if (len_b) memmove(b, a + had_a, len_b * sizeof *b);
  if (between->len) memcpy(a + len_a, between->data, between->len * sizeof *a);
  if (behind->len) memcpy(b + len_b, behind->data, behind->len * sizeof *b);
  ids->len = special + len_a + len_b;
  *count = ids->len;
  *second = pair && p->pair.has_second_type ? before->len + len_a + p->pair.first_between + 1 : 0;
  return TRI_OK;
}

/* The whole text is encoded, since how it falls apart depends on what stands before it; then the ids before its end
 * go. */
tri_status tri_tokenizer_encode_end(const tri_tokenizer *t, tri_tokenizer_scratch *s, const char *text, size_t len,
                                    bool add_special, size_t max_tokens, const uint32_t **ids, size_t *count) {
  size_t before = add_special ? t->postprocessor.prefix.len : 0;
  size_t special = add_special ? before + t->postprocessor.suffix.len : 0;
  if (max_tokens && special > max_tokens) return TRI_TOO_LARGE;
  TRI_CHECK(tri_tokenizer_encode(t, s, text, len, add_special, 0, ids, count));
  if (!max_tokens || *count <= max_tokens) return TRI_OK;
  uint32_t *all = s->ids.data, *from = all + before;
  size_t gone = *count - max_tokens;
  memmove(from, from + gone, (*count - before - gone) * sizeof *all);
  s->ids.len = *count = max_tokens;
  return TRI_OK;
}
