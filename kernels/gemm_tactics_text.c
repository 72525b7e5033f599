/* SPDX-License-Identifier: Apache-2.0 */
/* Tactics as text; see gemm_tactics.h for the format. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/gemm_tactics.h"
#include "base/hash.h"

enum { MOST_DIM = 1 << 24 };

static const char header[] = "trireme-tactics 1";
static const char *const kinds[TRI_TACTIC_COUNT] = {"default", "own", "gemm", "algo"};
/* In the order of tri_act. */
static const char *const acts[] = {"none",       "relu", "gelu",       "gelu_tanh",     "silu",
                                   "quick_gelu", "tanh", "swiglu_oai", "swiglu_clamped"};
enum { NUM_ACTS = sizeof acts / sizeof *acts };
_Static_assert(NUM_ACTS == TRI_ACT_SWIGLU_CLAMPED + 1, "a name for each");

static uint32_t check_of(const tri_tactic *c) {
  uint64_t h = tri_hash_bytes(TRI_HASH_SEED, &c->shape, sizeof c->shape);
  h = tri_hash_bytes(h, c->words, sizeof c->words);
  return (uint32_t)(h ^ h >> 32);
}

/* ---- reading ---- */

/* The part of a line that is left to read. */
typedef struct cursor {
  const char *at, *end;
} cursor;

/* The next word: what comes before a space or the end, with the space after it. Empty: there is none. */
static cursor next_word(cursor *c) {
  cursor word = {c->at, c->at};
  while (word.end < c->end && *word.end != ' ') word.end++;
  c->at = word.end < c->end ? word.end + 1 : word.end;
  return word;
}

static bool is(cursor word, const char *text) {
  size_t len = (size_t)(word.end - word.at);
  return len == strlen(text) && !memcmp(word.at, text, len);
}

static bool take(cursor *c, const char *text) { return is(next_word(c), text); }

static int digit_of(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : 16;
}

/* Digits of a base, without a sign or superfluous zeros. */
static bool take_number(cursor *c, unsigned base, uint64_t most, uint64_t *out) {
  cursor word = next_word(c);
  uint64_t value = 0;
  if (word.at == word.end || (*word.at == '0' && word.end - word.at > 1)) return false;
  for (const char *p = word.at; p < word.end; p++) {
    unsigned digit = (unsigned)digit_of(*p);
    if (digit >= base || digit > most || value > (most - digit) / base) return false;
    value = value * base + digit;
  }
  *out = value;
  return true;
}

/* A word and a number from `least` to `most`. */
static bool take_int(cursor *c, const char *name, uint64_t least, uint64_t most, int32_t *out) {
  uint64_t value;
  if (!take(c, name) || !take_number(c, 10, most, &value) || value < least) return false;
  *out = (int32_t)value;
  return true;
}

static bool take_type(cursor *c, const char *name, int32_t *out) {
  if (!take(c, name)) return false;
  cursor word = next_word(c);
  for (tri_dtype t = TRI_F32; t <= TRI_BF16; t++)
    if (is(word, tri_dtype_name(t))) {
      *out = (int32_t)t;
      return true;
    }
  return false;
}

static bool take_name(cursor *c, const char *const *names, int count, int32_t *out) {
  cursor word = next_word(c);
  for (int i = 0; i < count; i++)
    if (is(word, names[i])) {
      *out = i;
      return true;
    }
  return false;
}

static bool take_words(cursor *c, tri_tactic *out) {
  uint64_t check;
  for (int i = 0; i < TRI_TACTIC_WORDS; i++)
    if (!take_number(c, 16, UINT64_MAX, &out->words[i])) return false;
  return take(c, "check") && take_number(c, 16, UINT32_MAX, &check) && check == check_of(out);
}

static bool take_note(cursor *c, tri_tactic *out) {
  size_t len = (size_t)(c->end - c->at);
  if (len >= sizeof out->note) return false;
  memcpy(out->note, c->at, len);
  c->at = c->end;
  return true;
}

/* NULL, or what is wrong with the line. */
static const char *read_tactic(cursor line, tri_tactic *out) {
  tri_gemm_shape *s = &out->shape;
  int32_t kind;
  *out = (tri_tactic){0};
  if (!take(&line, "linear")) return "is neither a tactic nor a `for` line";
  if (!take_int(&line, "m", 1, MOST_DIM, &s->m) || !take_int(&line, "n", 1, MOST_DIM, &s->n) ||
      !take_int(&line, "k", 1, MOST_DIM, &s->k))
    return "has no m, n and k";
  if (!take_type(&line, "w", &s->w) || !take_type(&line, "x", &s->x) || !take_type(&line, "out", &s->out))
    return "has no types w, x and out";
  if (!take(&line, "act") || !take_name(&line, acts, NUM_ACTS, &s->act) || !take_int(&line, "bias", 0, 1, &s->bias) ||
      !take_int(&line, "add", 0, 1, &s->add))
    return "has no act, bias and add";
  if (!take(&line, "use") || !take_name(&line, kinds, TRI_TACTIC_COUNT, &kind)) return "has no tactic that is known";
  out->kind = (tri_tactic_kind)kind;
  if (out->kind == TRI_TACTIC_ALGO && !take_words(&line, out)) return "has an algorithm that is damaged";
  if (!take_int(&line, "ns", 1, INT32_MAX, &out->ns) || !take_int(&line, "default", 1, INT32_MAX, &out->default_ns))
    return "has no times";
  if (line.at < line.end && (!take(&line, "#") || !take_note(&line, out))) return "has something after its times";
  return line.end[-1] == ' ' ? "ends in a space" : NULL;
}

/* Texts reach logs and messages: control characters are refused. */
static bool is_printable(cursor line) {
  for (const char *p = line.at; p < line.end; p++)
    if (*p < ' ' || *p > '~') return false;
  return true;
}

typedef struct tactics_reader {
  tri_tactics *into;
  const char *key;
  int line;
  bool any, wanted;  /* a `for` line has come; it is the key's */
  tri_status failed; /* other than through what the text says */
} tactics_reader;

/* NULL, or what is wrong with the line. */
static const char *read_line(tactics_reader *r, cursor line) {
  tri_tactic tactic;
  if (!is_printable(line)) return "has a byte that is not printable ASCII";
  if (r->line == 1) return is(line, header) ? NULL : "is not \"trireme-tactics 1\"";
  if (line.at == line.end || *line.at == '#') return NULL;
  cursor rest = line;
  if (take(&rest, "for")) {
    if (rest.at == rest.end) return "names no device";
    r->any = true;
    r->wanted = is(rest, r->key);
    return NULL;
  }
  const char *wrong = read_tactic(line, &tactic);
  if (wrong) return wrong;
  if (!r->any) return "comes before any `for` line";
  if (!r->wanted) return NULL;
  if (tri_tactics_get(r->into, &tactic.shape)) return "has a shape that was there before";
  r->failed = tri_tactics_put(r->into, &tactic);
  return r->failed == TRI_OK ? NULL : "is one too many";
}

static tri_status read_lines(tactics_reader *r, const char *text, size_t len, const char *name, tri_error *err) {
  const char *end = text + len;
  if (len > TRI_TACTICS_TEXT_MOST)
    return tri_fail(err, TRI_TOO_LARGE, name, "%s: %zu bytes are more than a table of tactics has", name, len);
  if (!len) return tri_fail(err, TRI_CORRUPT, name, "%s:1: there is nothing", name);
  while (text < end) {
    const char *stop = memchr(text, '\n', (size_t)(end - text));
    r->line++;
    const char *wrong = stop ? read_line(r, (cursor){text, stop}) : "does not end";
    if (r->failed == TRI_NO_MEMORY) return r->failed;
    if (wrong) return tri_fail(err, TRI_CORRUPT, name, "%s:%d: the line %s", name, r->line, wrong);
    text = stop + 1;
  }
  return TRI_OK;
}

/* Reads into a table of its own, so that a text that is refused at its last line has put nothing. */
tri_status tri_tactics_read(tri_tactics *c, const char *text, size_t len, const char *key, const char *name, int *num,
                            tri_error *err) {
  tactics_reader r = {.key = key};
  tri_status st;
  TRI_TRY(tri_tactics_create(&r.into));
  TRI_TRY(read_lines(&r, text, len, name, err));
  TRI_TRY(tri_tactics_put_all(c, r.into));
  if (num) *num = (int)r.into->count;
cleanup:
  tri_tactics_destroy(r.into);
  return st == TRI_OK ? st : tri_fail(err, st, name, "%s: %s", name, tri_status_text(st));
}

/* ---- writing ---- */

/* m last, so that the lines of one weight stand together by rising rows. */
static int by_shape(const void *a, const void *b) {
  const tri_gemm_shape *x = &(*(const tri_tactic *const *)a)->shape, *y = &(*(const tri_tactic *const *)b)->shape;
  const int32_t left[] = {x->n, x->k, x->w, x->x, x->out, x->act, x->bias, x->add, x->m};
  const int32_t right[] = {y->n, y->k, y->w, y->x, y->out, y->act, y->bias, y->add, y->m};
  for (size_t i = 0; i < sizeof left / sizeof *left; i++)
    if (left[i] != right[i]) return left[i] < right[i] ? -1 : 1;
  return 0;
}

static void print_tactic(FILE *f, const tri_tactic *c) {
  const tri_gemm_shape *s = &c->shape;
  fprintf(f,
          "linear m %" PRId32 " n %" PRId32 " k %" PRId32 " w %s x %s out %s act %s bias %" PRId32 " add %" PRId32
          " use %s",
          s->m, s->n, s->k, tri_dtype_name((tri_dtype)s->w), tri_dtype_name((tri_dtype)s->x),
          tri_dtype_name((tri_dtype)s->out), acts[s->act], s->bias, s->add, kinds[c->kind]);
  for (int i = 0; c->kind == TRI_TACTIC_ALGO && i < TRI_TACTIC_WORDS; i++) fprintf(f, " %" PRIx64, c->words[i]);
  if (c->kind == TRI_TACTIC_ALGO) fprintf(f, " check %" PRIx32, check_of(c));
  fprintf(f, " ns %" PRId32 " default %" PRId32, c->ns, c->default_ns);
  if (c->note[0]) fprintf(f, " # %s", c->note);
  fputc('\n', f);
}

tri_status tri_tactics_write(const tri_tactics *c, const char *key, char **out, size_t *len) {
  const tri_tactic **sorted = tri_calloc(c->count + 1, sizeof *sorted);
  char *text = NULL, *copy = NULL;
  size_t size = 0, n = 0;
  FILE *f = sorted ? open_memstream(&text, &size) : NULL;
  if (!f) {
    tri_free(sorted);
    return TRI_NO_MEMORY;
  }
  for (size_t i = 0; i < c->capacity; i++)
    if (c->slots[i].shape.m) sorted[n++] = &c->slots[i];
  qsort(sorted, n, sizeof *sorted, by_shape);
  fprintf(f, "%s\nfor %s\n", header, key);
  for (size_t i = 0; i < n; i++) print_tactic(f, sorted[i]);
  bool written = !ferror(f);
  if (!fclose(f) && written && (copy = tri_strndup(text, size))) {
    *out = copy;
    *len = size;
  }
  free(text);
  tri_free(sorted);
  return copy ? TRI_OK : TRI_NO_MEMORY;
}
