/* SPDX-License-Identifier: Apache-2.0 */
#include "text/tokenizer/postprocess.h"

#include <string.h>

enum { MAX_SPECIAL = 4096 }; /* on either side */

/* One row per type. load wraps the type's ids around those that are already there; NULL: it has none. */
typedef struct postprocessor_type {
  tok_type type;
  tri_status (*load)(tok_postprocessor *p, const tok_field *f, tri_error *err);
} postprocessor_type;

/* A later processor of a sequence sees the earlier ones' output as the text: its ids go outside.
 *
 * prefix and suffix grow outwards: the earlier prefix follows `before`, the earlier suffix precedes the new ids. */
static tri_status wrap(tok_postprocessor *p, tok_ids *before, const tok_ids *behind) {
  TRI_CHECK(tok_ids_append(before, p->prefix.data, p->prefix.len));
  TRI_CHECK(tok_ids_append(&p->suffix, behind->data, behind->len));
  tok_ids inner = p->prefix;
  p->prefix = *before;
  *before = inner;
  return TRI_OK;
}

/* special_tokens[name].ids */
static tri_status append_special(const tok_field *table, const tok_field *name, uint32_t vocab_size, tok_ids *out,
                                 tri_error *err) {
  const char *key;
  TRI_CHECK(tok_field_string(name, &key, NULL, err));
  tok_field entry = tok_field_get(table, key);
  if (!entry.node) return tok_field_fail(name, TRI_CORRUPT, err, "%.64s is not in special_tokens", key);
  TRI_CHECK(tok_field_object(&entry, "id ids tokens", err));
  tok_field ids = tok_field_get(&entry, "ids");
  TRI_CHECK(tok_field_array(&ids, err));
  for (size_t i = 0; i < tri_json_size(ids.node); i++) {
    uint32_t id;
    tok_field f = tok_field_at(&ids, i);
    TRI_CHECK(tok_field_id(&f, vocab_size, &id, err));
    TRI_CHECK(tok_ids_push(out, id));
  }
  return TRI_OK;
}

/* A piece of a template: {"SpecialToken": {"id": name, "type_id": n}} or {"Sequence": {"id": "A", "type_id": n}}. */
static tri_status load_piece(const tok_field *piece, const tok_field *table, uint32_t vocab_size, tok_ids *out,
                             bool *is_text, tri_error *err) {
  TRI_CHECK(tok_field_object(piece, "SpecialToken Sequence", err));
  if (tri_json_size(piece->node) != 1)
    return tok_field_fail(piece, TRI_CORRUPT, err, "must be either a SpecialToken or a Sequence");
  *is_text = tri_json_get(piece->node, "Sequence") != NULL;
  tok_field body = tok_field_get(piece, *is_text ? "Sequence" : "SpecialToken");
  TRI_CHECK(tok_field_object(&body, "id type_id", err));
  tok_field id = tok_field_get(&body, "id");
  if (!*is_text) return append_special(table, &id, vocab_size, out, err);
  const char *which;
  TRI_CHECK(tok_field_string(&id, &which, NULL, err));
  if (strcmp(which, "A") != 0)
    return tok_field_fail(&id, TRI_UNSUPPORTED, err, "a template for one text has no sequence %.16s", which);
  return TRI_OK;
}

/* A piece of a template for pairs: *sequence is 'A', 'B' or 0, whose ids then go to out. */
static tri_status load_pair_piece(const tok_field *piece, const tok_field *table, uint32_t vocab_size, tok_ids *out,
                                  char *sequence, int64_t *type) {
  tri_error ignored = {0}; /* what cannot be understood leaves the tokenizer without pairs */
  const char *which = tri_json_get_str(tri_json_get(piece->node, "Sequence"), "id");
  const tri_json *body = tri_json_get(piece->node, which ? "Sequence" : "SpecialToken");
  bool is_text = false;
  if (!tri_json_get_int(body, "type_id", type) || *type < 0 || *type > 1) return TRI_UNSUPPORTED;
  *sequence = which ? which[0] : 0;
  if (which) return (which[0] == 'A' || which[0] == 'B') && !which[1] ? TRI_OK : TRI_UNSUPPORTED;
  tri_status st = load_piece(piece, table, vocab_size, out, &is_text, &ignored);
  return st == TRI_OK || st == TRI_NO_MEMORY ? st : TRI_UNSUPPORTED;
}

/* Takes a template in which A comes before B, once each, and no token of the first type after one of the second. */
static tri_status load_pair(tok_pair *p, const tok_field *list, const tok_field *table, uint32_t vocab_size) {
  tok_ids *parts[] = {&p->before, &p->between, &p->behind};
  int part = 0;
  int64_t last = 0;
  for (size_t i = 0; i < tri_json_size(list->node); i++) {
    tok_field piece = tok_field_at(list, i);
    size_t had = parts[part]->len;
    char sequence;
    int64_t type;
    TRI_CHECK(load_pair_piece(&piece, table, vocab_size, parts[part], &sequence, &type));
    if (type < last || (sequence && (part == 2 || sequence != "AB"[part])) || (type && !part)) return TRI_UNSUPPORTED;
    last = type;
    if (part == 1 && !sequence && !type) p->first_between += parts[part]->len - had;
    if (part == 2 && type && !p->has_second_type) return TRI_UNSUPPORTED; /* B itself is of the first */
    p->has_second_type |= type;
    part += sequence != 0;
  }
  return part == 2 ? TRI_OK : TRI_UNSUPPORTED;
}

static tri_status take_pair(tok_postprocessor *p, const tok_field *list, const tok_field *table) {
  p->pair.before.max = p->pair.between.max = p->pair.behind.max = MAX_SPECIAL;
  if (p->num_templates++) return TRI_OK; /* pairs are not known then */
  tri_status st = load_pair(&p->pair, list, table, p->vocab_size);
  p->pair.known = st == TRI_OK;
  return st == TRI_NO_MEMORY ? st : TRI_OK;
}

/* The template of one text must be understood as a whole. That of a pair need not: without it the tokenizer has no
 * pairs. */
static tri_status load_template(tok_postprocessor *p, const tok_field *f, tri_error *err) {
  tok_ids before = {.max = MAX_SPECIAL}, behind = {.max = MAX_SPECIAL};
  bool seen_text = false;
  tri_status st;
  tok_field single = tok_field_get(f, "single"), table = tok_field_get(f, "special_tokens");
  TRI_TRY(tok_field_array(&single, err));
  for (size_t i = 0; i < tri_json_size(single.node); i++) {
    tok_field piece = tok_field_at(&single, i);
    bool is_text = false;
    TRI_TRY(load_piece(&piece, &table, p->vocab_size, seen_text ? &behind : &before, &is_text, err));
    if (is_text && seen_text)
      TRI_TRY(tok_field_fail(&piece, TRI_UNSUPPORTED, err, "the text stands in the template twice"));
    seen_text |= is_text;
  }
  if (!seen_text)
    st = tok_field_fail(&single, TRI_UNSUPPORTED, err, "the text does not stand in the template");
  else
    st = wrap(p, &before, &behind);
  tok_field pair = tok_field_get(f, "pair");
  if (st == TRI_OK) st = take_pair(p, &pair, &table);
cleanup:
  tok_ids_free(&before);
  tok_ids_free(&behind);
  return st;
}

/* ["</s>", 2] */
static tri_status read_named_id(const tok_field *f, uint32_t vocab_size, tok_ids *out, tri_error *err) {
  uint32_t id;
  TRI_CHECK(tok_field_array(f, err));
  if (tri_json_size(f->node) != 2) return tok_field_fail(f, TRI_CORRUPT, err, "must be a token and its id");
  tok_field second = tok_field_at(f, 1);
  TRI_CHECK(tok_field_id(&second, vocab_size, &id, err));
  return tok_ids_push(out, id);
}

/* cls A sep B sep, of two types; Roberta has one type and sep twice between the texts. */
static tri_status pair_around(tok_postprocessor *p, const tok_ids *cls, const tok_ids *sep, bool roberta) {
  tok_pair *q = &p->pair;
  q->known = !p->num_templates++;
  if (!q->known) return TRI_OK;
  q->before.max = q->between.max = q->behind.max = MAX_SPECIAL;
  TRI_CHECK(tok_ids_append(&q->before, cls->data, cls->len));
  for (int i = 0; i < 1 + roberta; i++) TRI_CHECK(tok_ids_append(&q->between, sep->data, sep->len));
  TRI_CHECK(tok_ids_append(&q->behind, sep->data, sep->len));
  q->first_between = q->between.len;
  q->has_second_type = !roberta;
  return TRI_OK;
}

/* cls before the text, sep after it. */
static tri_status load_around(tok_postprocessor *p, const tok_field *f, bool roberta, tri_error *err) {
  tok_ids before = {.max = MAX_SPECIAL}, behind = {.max = MAX_SPECIAL};
  tri_status st;
  tok_field cls = tok_field_get(f, "cls"), sep = tok_field_get(f, "sep");
  TRI_TRY(read_named_id(&cls, p->vocab_size, &before, err));
  TRI_TRY(read_named_id(&sep, p->vocab_size, &behind, err));
  TRI_TRY(pair_around(p, &before, &behind, roberta));
  st = wrap(p, &before, &behind);
cleanup:
  tok_ids_free(&before);
  tok_ids_free(&behind);
  return st;
}

static tri_status load_bert(tok_postprocessor *p, const tok_field *f, tri_error *err) {
  return load_around(p, f, false, err);
}

static tri_status load_roberta(tok_postprocessor *p, const tok_field *f, tri_error *err) {
  return load_around(p, f, true, err);
}

static tri_status load_any(void *processor, const tok_field *f, tri_error *err);

static tri_status load_sequence(tok_postprocessor *p, const tok_field *f, tri_error *err) {
  return tok_field_each(f, "processors", load_any, p, err);
}

static const postprocessor_type types[] = {
    {{"TemplateProcessing", "single pair special_tokens"}, load_template},
    {{"ByteLevel", "add_prefix_space trim_offsets use_regex"}, NULL}, /* moves offsets: not reported */
    {{"Sequence", "processors"}, load_sequence},
    {{"BertProcessing", "sep cls trim_offsets add_prefix_space"}, load_bert},
    {{"RobertaProcessing", "sep cls trim_offsets add_prefix_space"}, load_roberta},
};

static tri_status load_any(void *processor, const tok_field *f, tri_error *err) {
  size_t i;
  TRI_CHECK(tok_field_type(f, types, sizeof types / sizeof *types, sizeof *types, "post-processor", &i, err));
  tri_status st = types[i].load ? types[i].load(processor, f, err) : TRI_OK;
  if (st == TRI_NO_MEMORY) return tok_field_no_memory(f, err);
  if (st == TRI_TOO_LARGE) return tok_field_fail(f, st, err, "more than %d special tokens", MAX_SPECIAL);
  return st;
}

tri_status tok_postprocessor_load(tok_postprocessor *p, const tok_field *f, uint32_t vocab_size, tri_error *err) {
  p->prefix.max = p->suffix.max = MAX_SPECIAL;
  p->vocab_size = vocab_size;
  tri_status st = tok_field_is_null(f) ? TRI_OK : load_any(p, f, err);
  p->pair.known &= p->num_templates == 1;
  return st;
}

void tok_postprocessor_free(tok_postprocessor *p) {
  tok_ids_free(&p->prefix);
  tok_ids_free(&p->suffix);
  tok_ids_free(&p->pair.before);
  tok_ids_free(&p->pair.between);
  tok_ids_free(&p->pair.behind);
}
