/* SPDX-License-Identifier: Apache-2.0 */
#include "text/tokenizer/pretokenize.h"

#include <string.h>

#include "base/mem.h"
#include "text/tokenizer/bytelevel.h"
#include "text/unicode/unicode.h"

/* Depth first: a step calls the next one for each piece as soon as it is cut, and the last one calls the model. The
 * depth of calls is the number of steps, and memory does not grow with the number of words.
 *
 * at_start goes down with the pieces for Metaspace's "first": of a piece it is true if the text began with it. */
typedef struct tok_pretok_run {
  const tok_pretokenizer *chain;
  tok_pretok_scratch *scratch;
  tok_word_fn fn;
  void *ctx;
} tok_pretok_run;

/* Hands a piece to the given step; after the last one it is a word. */
static tri_status give(tok_pretok_run *run, size_t step, const char *text, size_t len, bool at_start) {
  if (!len) return TRI_OK;
  if (step == run->chain->count) return run->fn(run->ctx, text, len);
  return run->chain->steps[step].apply(run, step, text, len, at_start);
}

/* ---- splitting by a pattern ---- */

/* Matches and the gaps between them arrive as segments in order. Three behaviours join neighbours, for which one
 * segment is held back. */
typedef struct splitter {
  tok_pretok_run *run;
  const tok_pretok_step *step;
  tri_status (*out)(tok_pretok_run *run, size_t index, const char *text, size_t len, bool at_start);
  size_t index;
  const char *text;
  size_t held_start, held_end;
  bool at_start;
  bool holding, held_match; /* held_match: of the last segment that went into it */
} splitter;

static tri_status flush(splitter *s) {
  if (!s->holding || s->held_start == s->held_end) return TRI_OK;
  return s->out(s->run, s->index, s->text + s->held_start, s->held_end - s->held_start, s->at_start && !s->held_start);
}

/* The invariant: [held_start, held_end) has not been handed out, and everything before it has been or was removed. */
static tri_status segment(splitter *s, size_t start, size_t end, bool match) {
  match ^= s->step->invert;
  bool joins = false;
  switch (s->step->behavior) {
  case TOK_SPLIT_REMOVED:
    if (match) return TRI_OK;
    break;
  case TOK_SPLIT_ISOLATED: break;
  case TOK_SPLIT_CONTIGUOUS: joins = s->holding && match == s->held_match; break;
  case TOK_SPLIT_MERGED_WITH_PREVIOUS: joins = s->holding && match && !s->held_match; break;
  case TOK_SPLIT_MERGED_WITH_NEXT: joins = s->holding && !match && s->held_match; break;
  }
  if (!joins) {
    TRI_CHECK(flush(s));
    s->held_start = start;
  }
  s->held_end = end;
  s->held_match = match;
  s->holding = true;
  return TRI_OK;
}

static tri_status next_match(tok_regex_walk *w, bool (*is)(uint32_t c), size_t *start, size_t *end) {
  if (!is) return tok_regex_next(w, start, end);
  for (size_t n; w->at < w->len; w->at += n) {
    if (!is(tok_utf8_decode(w->text + w->at, &n))) continue;
    *start = w->at;
    *end = w->at += n;
    return TRI_OK;
  }
  return TRI_NOT_FOUND;
}

/* All segments of a piece. An empty match is a segment of its own and so a cut. */
static tri_status split(splitter *s, size_t len) {
  tok_regex_walk walk = {.regex = s->step->regex, .scratch = s->run->scratch->regex, .text = s->text, .len = len};
  size_t done = 0, start, end;
  tri_status st;
  while ((st = next_match(&walk, s->step->is, &start, &end)) == TRI_OK) {
    if (done != start) TRI_CHECK(segment(s, done, start, false));
    TRI_CHECK(segment(s, start, end, true));
    done = end;
  }
  if (st != TRI_NOT_FOUND) return st;
  if (done != len) TRI_CHECK(segment(s, done, len, false));
  return flush(s);
}

static tri_status give_next(tok_pretok_run *run, size_t index, const char *text, size_t len, bool at_start) {
  return give(run, index + 1, text, len, at_start);
}

static tri_status apply_split(tok_pretok_run *run, size_t index, const char *text, size_t len, bool at_start) {
  const tok_pretok_step *step = &run->chain->steps[index];
  splitter s = {.run = run, .step = step, .out = give_next, .index = index, .text = text, .at_start = at_start};
  return split(&s, len);
}

/* ---- splitting without a pattern ---- */

/* Cuts before each character of another script than the last one's. What belongs to every script (a space), or to none
 * that is known, stays with what stands before it, and is lost where that is nothing: so does the reference. */
static tri_status apply_scripts(tok_pretok_run *run, size_t index, const char *text, size_t len, bool at_start) {
  uint32_t last = 0;
  size_t begin = len;
  for (size_t i = 0, n; i < len; i += n) {
    uint32_t script = tok_script(tok_utf8_decode(text + i, &n));
    if (!script || script == last) continue;
    if (last) TRI_CHECK(give(run, index + 1, text + begin, i - begin, at_start && !begin));
    begin = i;
    last = script;
  }
  return give(run, index + 1, text + begin, len - begin, at_start && !begin);
}

static tri_status apply_fixed_length(tok_pretok_run *run, size_t index, const char *text, size_t len, bool at_start) {
  uint64_t length = run->chain->steps[index].length;
  size_t begin = 0, chars = 0;
  for (size_t i = 0, n; i < len; i += n, chars++) {
    tok_utf8_decode(text + i, &n);
    if (chars < length) continue;
    TRI_CHECK(give(run, index + 1, text + begin, i - begin, at_start && !begin));
    begin = i;
    chars = 0;
  }
  return give(run, index + 1, text + begin, len - begin, at_start && !begin);
}

/* ---- the byte-level alphabet ---- */

/* Each step has a buffer of its own, since steps run nested: those after this one still read the buffer while they work
 * on the piece, and it is filled again only after they return. */
static tri_status give_mapped(tok_pretok_run *run, size_t index, const char *text, size_t len, bool at_start) {
  tri_buf *b = &run->scratch->steps[index].mapped;
  size_t room;
  if (!tri_size_mul(len, 2, &room)) return TRI_OVERFLOW;
  b->len = 0;
  TRI_CHECK(tri_buf_reserve(b, room));
  char *out = b->data;
  for (size_t i = 0; i < len; i++) {
    uint32_t c = tok_bytelevel_char((unsigned char)text[i]);
    if (c < 0x80) {
      *out++ = (char)c;
    } else { /* the alphabet ends at U+0143 */
      *out++ = (char)(0xc0 | c >> 6);
      *out++ = (char)(0x80 | (c & 0x3f));
    }
  }
  return give(run, index + 1, b->data, (size_t)(out - b->data), at_start);
}

static tri_status apply_byte_level(tok_pretok_run *run, size_t index, const char *text, size_t len, bool at_start) {
  const tok_pretok_step *step = &run->chain->steps[index];
  if (step->prefix_space && text[0] != ' ') {
    tri_buf *b = &run->scratch->steps[index].prefixed;
    b->len = 0;
    tri_status st;
    if ((st = tri_buf_append(b, " ", 1)) != TRI_OK || (st = tri_buf_append(b, text, len)) != TRI_OK) return st;
    text = b->data;
    len = b->len;
  }
  if (!step->regex) return give_mapped(run, index, text, len, at_start);
  splitter s = {.run = run, .step = step, .out = give_mapped, .index = index, .text = text, .at_start = at_start};
  return split(&s, len);
}

/* ---- Metaspace ---- */

/* text with visible spaces, and one before it where the scheme wants it. The text is not empty: give drops empty
 * pieces. */
static tri_status show_spaces(const tok_metaspace *m, const char *text, size_t len, bool at_start, tri_buf *out) {
  bool wanted = m->scheme == TOK_PREPEND_ALWAYS || (m->scheme == TOK_PREPEND_FIRST && at_start);
  bool has = text[0] == ' ' || (len >= m->len && !memcmp(text, m->replacement, m->len));
  out->len = 0;
  if (wanted && !has) TRI_CHECK(tri_buf_append(out, m->replacement, m->len));
  for (size_t i = 0, n; i < len; i += n) {
    const char *space = memchr(text + i, ' ', len - i);
    n = space ? (size_t)(space - text) - i : len - i;
    TRI_CHECK(tri_buf_append(out, text + i, n));
    if (!space) break;
    TRI_CHECK(tri_buf_append(out, m->replacement, m->len));
    n++;
  }
  return TRI_OK;
}

/* Cuts before each visible space. The replacement is a whole character, so that no other can have it inside. */
static tri_status apply_metaspace(tok_pretok_run *run, size_t index, const char *text, size_t len, bool at_start) {
  const tok_metaspace *m = &run->chain->steps[index].metaspace;
  tri_buf *b = &run->scratch->steps[index].mapped;
  TRI_CHECK(show_spaces(m, text, len, at_start, b));
  if (!m->split) return give(run, index + 1, b->data, b->len, at_start);
  size_t start = 0;
  for (size_t i = 1; i + m->len <= b->len; i++) {
    if (b->data[i] != m->replacement[0] || memcmp(b->data + i, m->replacement, m->len) != 0) continue;
    if (i > start) TRI_CHECK(give(run, index + 1, b->data + start, i - start, at_start && !start));
    start = i;
  }
  return give(run, index + 1, b->data + start, b->len - start, at_start && !start);
}

/* ---- loading ---- */

/* One row per type. load fills in what the object says of the row's step, compiles its pattern, and appends it. */
typedef struct pretok_type {
  tok_type type;
  tri_status (*load)(tok_pretokenizer *p, const struct pretok_type *type, const tok_field *f, tri_error *err);
  tok_pretok_step step;
  const char *pattern;
} pretok_type;

/* The chain owns step's regex from here on, also on failure. */
static tri_status add_step(tok_pretokenizer *p, tok_pretok_step step, const tok_field *f, tri_error *err) {
  if (p->count == TOK_MAX_STEPS) {
    tok_regex_destroy(step.regex);
    return tok_field_fail(f, TRI_TOO_LARGE, err, "more than %d pre-tokenizers", TOK_MAX_STEPS);
  }
  p->steps[p->count++] = step;
  return TRI_OK;
}

static tri_status add_split(tok_pretokenizer *p, tok_pretok_step step, const char *pattern, const tok_field *f,
                            tri_error *err) {
  TRI_CHECK(tok_regex_compile(pattern, strlen(pattern), false, f, &step.regex, err));
  return add_step(p, step, f, err);
}

static tri_status load_byte_level(tok_pretokenizer *p, const pretok_type *type, const tok_field *f, tri_error *err) {
  tok_pretok_step step = type->step;
  bool use_regex = true, trim_offsets = true; /* offsets are not reported */
  TRI_CHECK(tok_field_bool(f, "add_prefix_space", &step.prefix_space, err));
  TRI_CHECK(tok_field_bool(f, "trim_offsets", &trim_offsets, err));
  TRI_CHECK(tok_field_bool(f, "use_regex", &use_regex, err));
  return use_regex ? add_split(p, step, type->pattern, f, err) : add_step(p, step, f, err);
}

static tri_status read_behavior(const tok_field *object, tok_split_behavior *out, tri_error *err) {
  static const char *const names[] = {
      [TOK_SPLIT_ISOLATED] = "Isolated",
      [TOK_SPLIT_REMOVED] = "Removed",
      [TOK_SPLIT_MERGED_WITH_PREVIOUS] = "MergedWithPrevious",
      [TOK_SPLIT_MERGED_WITH_NEXT] = "MergedWithNext",
      [TOK_SPLIT_CONTIGUOUS] = "Contiguous",
  };
  const char *name;
  tok_field f = tok_field_get(object, "behavior");
  TRI_CHECK(tok_field_string(&f, &name, NULL, err));
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    if (strcmp(names[i], name) != 0) continue;
    *out = (tok_split_behavior)i;
    return TRI_OK;
  }
  return tok_field_fail(&f, TRI_UNSUPPORTED, err, "%.64s is not a split behavior", name);
}

static tri_status load_split(tok_pretokenizer *p, const pretok_type *type, const tok_field *f, tri_error *err) {
  tok_pretok_step step = type->step;
  TRI_CHECK(tok_field_bool(f, "invert", &step.invert, err));
  TRI_CHECK(read_behavior(f, &step.behavior, err));
  tok_field pattern = tok_field_get(f, "pattern");
  TRI_CHECK(tok_pattern_load(&pattern, &step.regex, err));
  return add_step(p, step, f, err);
}

/* Types that are a split by a pattern of their own. */
static tri_status load_known_split(tok_pretokenizer *p, const pretok_type *type, const tok_field *f, tri_error *err) {
  return add_split(p, type->step, type->pattern, f, err);
}

static tri_status load_digits(tok_pretokenizer *p, const pretok_type *type, const tok_field *f, tri_error *err) {
  tok_pretok_step step = type->step;
  bool individual = false;
  TRI_CHECK(tok_field_bool(f, "individual_digits", &individual, err));
  step.behavior = individual ? TOK_SPLIT_ISOLATED : TOK_SPLIT_CONTIGUOUS;
  return add_step(p, step, f, err);
}

static tri_status load_punctuation(tok_pretokenizer *p, const pretok_type *type, const tok_field *f, tri_error *err) {
  tok_pretok_step step = type->step;
  if (tri_json_get(f->node, "behavior")) TRI_CHECK(read_behavior(f, &step.behavior, err));
  return add_step(p, step, f, err);
}

static tri_status load_delimiter(tok_pretokenizer *p, const pretok_type *type, const tok_field *f, tri_error *err) {
  tok_pretok_step step = type->step;
  const char *text;
  size_t len;
  tok_field delimiter = tok_field_get(f, "delimiter");
  TRI_CHECK(tok_field_char(&delimiter, &text, &len, err));
  TRI_CHECK(tok_regex_compile(text, len, true, &delimiter, &step.regex, err));
  return add_step(p, step, f, err);
}

static tri_status load_metaspace(tok_pretokenizer *p, const pretok_type *type, const tok_field *f, tri_error *err) {
  tok_pretok_step step = type->step;
  TRI_CHECK(tok_metaspace_load(f, &step.metaspace, err));
  return add_step(p, step, f, err);
}

#define SPACE "\\s"

static tri_status load_plain(tok_pretokenizer *p, const pretok_type *type, const tok_field *f, tri_error *err) {
  return add_step(p, type->step, f, err);
}

static tri_status load_fixed_length(tok_pretokenizer *p, const pretok_type *type, const tok_field *f, tri_error *err) {
  tok_pretok_step step = type->step;
  tok_field length = tok_field_get(f, "length");
  if (length.node) TRI_CHECK(tok_field_count(&length, &step.length, err));
  if (!step.length) return tok_field_fail(&length, TRI_OUT_OF_RANGE, err, "a piece has at least one character");
  return add_step(p, step, f, err);
}

/* Words between white space, and each punctuation mark on its own. One object becomes two steps. */
static tri_status load_bert(tok_pretokenizer *p, const pretok_type *type, const tok_field *f, tri_error *err) {
  (void)type;
  tok_pretok_step space = {.apply = apply_split, .behavior = TOK_SPLIT_REMOVED};
  tok_pretok_step punctuation = {.apply = apply_split, .is = tok_is_punctuation, .behavior = TOK_SPLIT_ISOLATED};
  TRI_CHECK(add_split(p, space, SPACE, f, err));
  return add_step(p, punctuation, f, err);
}

static tri_status load_any(void *chain, const tok_field *f, tri_error *err);

static tri_status load_sequence(tok_pretokenizer *p, const pretok_type *type, const tok_field *f, tri_error *err) {
  (void)type;
  return tok_field_each(f, "pretokenizers", load_any, p, err);
}

/* ByteLevel's pattern is GPT-2's. Defaults of the format are in `step`, and load changes them by what the object says.
 */
static const pretok_type types[] = {
    {.type = {"ByteLevel", "add_prefix_space trim_offsets use_regex"},
     .load = load_byte_level,
     .step = {.apply = apply_byte_level, .behavior = TOK_SPLIT_ISOLATED, .prefix_space = true},
     .pattern = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"},
    {.type = {"Split", "pattern behavior invert"}, .load = load_split, .step = {.apply = apply_split}},
    {.type = {"Sequence", "pretokenizers"}, .load = load_sequence},
    {.type = {"Metaspace", TOK_METASPACE_KEYS}, .load = load_metaspace, .step = {.apply = apply_metaspace}},
    {.type = {"BertPreTokenizer", ""}, .load = load_bert},
    {.type = {"CharDelimiterSplit", "delimiter"},
     .load = load_delimiter,
     .step = {.apply = apply_split, .behavior = TOK_SPLIT_REMOVED}},
    {.type = {"Digits", "individual_digits"}, .load = load_digits, .step = {.apply = apply_split, .is = tok_is_number}},
    {.type = {"Punctuation", "behavior"},
     .load = load_punctuation,
     .step = {.apply = apply_split, .is = tok_is_punctuation, .behavior = TOK_SPLIT_ISOLATED}},
    {.type = {"UnicodeScripts", ""}, .load = load_plain, .step = {.apply = apply_scripts}},
    {.type = {"FixedLength", "length"}, .load = load_fixed_length, .step = {.apply = apply_fixed_length, .length = 5}},
    {.type = {"WhitespaceSplit", ""},
     .load = load_known_split,
     .step = {.apply = apply_split, .behavior = TOK_SPLIT_REMOVED},
     .pattern = SPACE},
    {.type = {"Whitespace", ""}, /* by Rust's \w, which has the two joiners in it */
     .load = load_known_split,
     .step = {.apply = apply_split, .behavior = TOK_SPLIT_REMOVED, .invert = true},
     .pattern = "[\\w\\x{200c}\\x{200d}]+|[^\\w\\x{200c}\\x{200d}\\s]+"},
};

static tri_status load_any(void *chain, const tok_field *f, tri_error *err) {
  size_t i;
  TRI_CHECK(tok_field_type(f, types, sizeof types / sizeof *types, sizeof *types, "pre-tokenizer", &i, err));
  return types[i].load(chain, &types[i], f, err);
}

tri_status tok_pretokenizer_load(tok_pretokenizer *p, const tok_field *f, tri_error *err) {
  return tok_field_is_null(f) ? TRI_OK : load_any(p, f, err);
}

tri_status tok_pretokenizer_of_bytes(tok_pretokenizer *p, const char *pattern, size_t len, const tok_field *where,
                                     tri_error *err) {
  tok_pretok_step words = {.apply = apply_split, .behavior = TOK_SPLIT_ISOLATED}, bytes = {.apply = apply_byte_level};
  TRI_CHECK(tok_regex_compile(pattern, len, false, where, &words.regex, err));
  TRI_CHECK(add_step(p, words, where, err));
  return add_step(p, bytes, where, err);
}

void tok_pretokenizer_free(tok_pretokenizer *p) {
  for (size_t i = 0; i < p->count; i++) tok_regex_destroy(p->steps[i].regex);
  p->count = 0;
}

tri_status tok_pretok_scratch_init(tok_pretok_scratch *s, tok_effort *effort) {
  *s = (tok_pretok_scratch){0};
  return tok_regex_scratch_create(effort, &s->regex);
}

void tok_pretok_scratch_free(tok_pretok_scratch *s) {
  tok_regex_scratch_destroy(s->regex);
  for (size_t i = 0; i < TOK_MAX_STEPS; i++) {
    tri_buf_free(&s->steps[i].prefixed);
    tri_buf_free(&s->steps[i].mapped);
  }
}

tri_status tok_pretokenize(const tok_pretokenizer *p, tok_pretok_scratch *s, const char *text, size_t len,
                           bool at_start, tok_word_fn fn, void *ctx) {
  tok_pretok_run run = {p, s, fn, ctx};
  for (size_t i = 0; i < p->count; i++) s->steps[i].prefixed.max = s->steps[i].mapped.max = tok_growth_limit(len);
  return give(&run, 0, text, len, at_start);
}
