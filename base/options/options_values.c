/* SPDX-License-Identifier: Apache-2.0 */
/* Names of options, and their values from text. */
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/buf.h"
#include "base/options/options_internal.h"

enum { CHOICES_TEXT = 240 };

/* ---- names ---- */

/* Returns a name's character in the form that all spellings share. */
static char plain(char c) { return c == '_' ? '-' : c; }

bool tri_option_same_name(const char *table, const char *given, size_t len) {
  for (size_t i = 0; i < len; i++)
    if (!table[i] || plain(table[i]) != plain(given[i])) return false;
  return table[len] == '\0';
}

const tri_option *tri_options_find(const tri_option *t, size_t count, const char *name, size_t len) {
  for (size_t i = 0; i < count; i++)
    if (tri_option_same_name(t[i].name, name, len) || (t[i].alias && tri_option_same_name(t[i].alias, name, len)))
      return &t[i];
  return NULL;
}

/* Edits (insert, delete, replace) between two names, by rows; names longer than the row count as far apart. */
static int distance(const char *a, const char *b) {
  enum { ROW = 48 };
  int row[ROW + 1], la = (int)strlen(a), lb = (int)strlen(b);
  if (la > ROW || lb > ROW) return ROW;
  for (int j = 0; j <= lb; j++) row[j] = j;
  for (int i = 1; i <= la; i++) {
    int diagonal = row[0];
    row[0] = i;
    for (int j = 1; j <= lb; j++) {
      int replace = diagonal + (plain(a[i - 1]) != plain(b[j - 1]));
      diagonal = row[j];
      int best = row[j] + 1 < row[j - 1] + 1 ? row[j] + 1 : row[j - 1] + 1;
      row[j] = replace < best ? replace : best;
    }
  }
  return row[lb];
}

int tri_nearest_name(const char *name, const void *names, size_t count, size_t stride) {
  int best = -1, best_distance = ((int)strlen(name) + 2) / 3; /* one edit in three letters is still a slip */
  if (best_distance > 4) best_distance = 4;
  for (size_t i = 0; i < count; i++) {
    const char *candidate;
    memcpy(&candidate, (const char *)names + i * stride, sizeof candidate);
    if (!candidate) continue;
    int d = distance(name, candidate);
    if (d < best_distance || (best < 0 && d == best_distance)) {
      best = (int)i;
      best_distance = d;
    }
  }
  if (best >= 0) return best;
  for (size_t i = 0; i < count && strlen(name) >= 4; i++) { /* an unfinished word: the first that continues it */
    const char *candidate;
    memcpy(&candidate, (const char *)names + i * stride, sizeof candidate);
    if (candidate && !strncmp(candidate, name, strlen(name))) return (int)i;
  }
  return -1;
}

/* ---- values ---- */

static bool has_limits(const tri_option *o) { return o->min != 0 || o->max != 0; }

const char *tri_option_limit(const tri_option *o, double x, char buf[32]) {
  static const char letters[] = " KMGT";
  int k = 0;
  for (; o->type == TRI_OPT_SIZE && x >= 1 && k < 4 && fmod(x, 1024) == 0; k++) x /= 1024;
  if (k)
    snprintf(buf, 32, "%.15g%c", x, letters[k]);
  else
    snprintf(buf, 32, "%.15g", x);
  return buf;
}

static tri_status check_limits(const tri_option *o, double x, const char *text, tri_error *err) {
  char lo[32], hi[32];
  if (!has_limits(o) || (x >= o->min && x <= o->max && !(o->not_zero && x == 0))) return TRI_OK;
  if (o->or_zero && x == 0) return TRI_OK;
  return tri_fail(err, TRI_OUT_OF_RANGE, o->name, "--%s is %s; allowed are %s%s to %s%s", o->name, text,
                  o->or_zero ? "0 and " : "", tri_option_limit(o, o->min, lo), tri_option_limit(o, o->max, hi),
                  o->not_zero ? ", but not 0" : "");
}

static tri_status not_a(const tri_option *o, const char *what, const char *text, tri_error *err) {
  return tri_fail(err, TRI_INVALID_ARGUMENT, o->name, "--%s needs %s, not \"%.80s\"", o->name, what, text);
}

/* Returns what a number of things is multiplied by, as vLLM has it: k is 1000, K is 1024. 0: there is no such end. */
static long long count_unit(const char *end) {
  static const char letters[] = "kmgKMG";
  const char *l = *end ? strchr(letters, *end) : NULL;
  long long unit = 1;
  if (!*end) return 1;
  if (!l || end[1]) return 0;
  for (long k = (l - letters) % 3; k >= 0; k--) unit *= l - letters < 3 ? 1000 : 1024;
  return unit;
}

static tri_status parse_integer(const tri_option *o, const char *text, int64_t lowest, int64_t highest, int64_t *out,
                                tri_error *err) {
  char *end;
  errno = 0;
  long long v = strtoll(text, &end, 10);
  long long unit = o->counts && end != text ? count_unit(end) : !*end;
  if (end == text || !unit || strchr(" \t\n\r\f\v", *text)) return not_a(o, "an integer", text, err);
  double x = (double)v * (double)unit;
  if (errno == ERANGE) x = v < 0 ? -INFINITY : INFINITY;
  TRI_CHECK(check_limits(o, x, text, err));
  if (v > LLONG_MAX / unit || v < LLONG_MIN / unit)
    errno = ERANGE;
  else
    v *= unit;
  if (errno == ERANGE || v < lowest || v > highest)
    return tri_fail(err, TRI_OUT_OF_RANGE, o->name, "--%s is %s; allowed are %lld to %lld", o->name, text,
                    (long long)lowest, (long long)highest);
  *out = v;
  return TRI_OK;
}

/* Bytes of a unit: K and KiB are 1024, as memory is counted, KB is 1000, as devices and disks are sold. 0: there is no
 * such unit. */
static uint64_t size_unit(const char *text) {
  static const char letters[] = "kmgt";
  const char *l = *text ? strchr(letters, *text | 0x20) : NULL;
  bool decimal = l && !strcasecmp(text + 1, "b");
  uint64_t unit = 1;
  if (!strcasecmp(text, "b")) return 1;
  if (!l || (text[1] && !decimal && strcasecmp(text + 1, "ib") != 0)) return 0;
  for (const char *k = letters; k <= l; k++) unit *= decimal ? 1000 : 1024;
  return unit;
}

static const char LETTERS[] = "a number that may end in K, M, G or T (or KiB ..., or KB ... for 1000)";

/* Whole part and fraction are read apart: a double has no room for all digits of a large size. */
static tri_status parse_size(const tri_option *o, const char *text, uint64_t *out, tri_error *err) {
  char *end;
  const char *what = o->no_letters ? "an integer from 0 to 18446744073709551615" : LETTERS;
  if (*text == '-' && text[1] >= '0' && text[1] <= '9')
    return tri_fail(err, TRI_INVALID_ARGUMENT, o->name, "--%s is %.80s; it must not be negative", o->name, text);
  if (*text < '0' || *text > '9') return not_a(o, what, text, err);
  errno = 0;
  unsigned long long v = strtoull(text, &end, 10);
  bool over = errno == ERANGE;
  double fraction = 0;
  if (*end && o->no_letters) return not_a(o, what, text, err);
  if (*end == '.') { /* 1.5G */
    char *after;
    fraction = strtod(end, &after);
    if (after == end + 1 || !*after || fraction >= 1) return not_a(o, what, text, err);
    end = after;
  }
  if (*end) {
    uint64_t unit = size_unit(end), rest;
    if (!unit) return not_a(o, what, text, err);
    rest = (uint64_t)(fraction * (double)unit);
    over |= v > (UINT64_MAX - rest) / unit;
    v = v * unit + rest;
  }
  TRI_CHECK(check_limits(o, over ? INFINITY : (double)v, text, err));
  if (over) return tri_fail(err, TRI_OUT_OF_RANGE, o->name, "--%s is %s, more than 64 bits hold", o->name, text);
  *out = v;
  return TRI_OK;
}

static tri_status parse_num(const tri_option *o, const char *text, double *out, tri_error *err) {
  char *end;
  double v = strtod(text, &end);
  uint64_t unit = end != text && *end && o->letters ? size_unit(end) : 1;
  if (end == text || (*end && !o->letters) || !unit || isnan(v))
    return not_a(o, o->letters ? LETTERS : "a number", text, err);
  v *= (double)unit;
  TRI_CHECK(check_limits(o, v, text, err));
  if (isinf(v) && !(has_limits(o) && isinf(o->max))) return not_a(o, "a finite number", text, err);
  *out = v;
  return TRI_OK;
}

/* Returns the choice that another program's name stands for, and its length; else the text itself. */
static const char *find_also(const tri_option *o, const char *text, size_t *len) {
  *len = strlen(text);
  for (const char *at = o->also; at && *at; at += strcspn(at, " "), at += strspn(at, " ")) {
    size_t name = strcspn(at, "=");
    char other[40];
    snprintf(other, sizeof other, "%.*s", (int)name, at);
    if (!tri_option_same_name(other, text, *len)) continue;
    *len = strcspn(at + name + 1, " ");
    return at + name + 1;
  }
  return text;
}

/* Adds the names that other programs have for the choices. */
static void add_also(const tri_option *o, char list[CHOICES_TEXT]) {
  for (const char *at = o->also; at && *at; at += strcspn(at, " "), at += strspn(at, " ")) {
    size_t used = strlen(list);
    snprintf(list + used, CHOICES_TEXT - used, "%s%.*s", at == o->also ? "; also " : ", ", (int)strcspn(at, "="), at);
  }
}

static tri_status parse_choice(const tri_option *o, const char *text, int *out, tri_error *err) {
  char list[CHOICES_TEXT] = "";
  size_t n = 0, len;
  const char *name = find_also(o, text, &len);
  for (; o->choices[n]; n++) {
    if (tri_option_same_name(o->choices[n], name, len)) {
      *out = (int)n;
      return TRI_OK;
    }
    size_t used = strlen(list);
    snprintf(list + used, sizeof list - used, "%s%s", n ? ", " : "", o->choices[n]);
  }
  add_also(o, list);
  return tri_fail(err, TRI_INVALID_ARGUMENT, o->name, "--%s is \"%.40s\"; it can be %s", o->name, text, list);
}

static tri_status parse_bool(const tri_option *o, const char *text, bool *out, tri_error *err) {
  static const char *const yes[] = {"true", "yes", "on", "1"}, *const no[] = {"false", "no", "off", "0"};
  for (int i = 0; i < 4; i++) {
    bool is_yes = strcmp(text, yes[i]) == 0;
    if (is_yes || strcmp(text, no[i]) == 0) {
      *out = is_yes;
      return TRI_OK;
    }
  }
  return not_a(o, "true or false", text, err);
}

tri_status tri_option_store(const tri_option *o, void *dest, const char *text, tri_error *err) {
  void *to = (char *)dest + o->offset;
  int64_t v;
  int choice = 0;
  tri_status st = TRI_UNSUPPORTED;
  if (o->choices && o->type != TRI_OPT_STRING) {
    st = parse_choice(o, text, &choice, err);
    if (st == TRI_OK) memcpy(to, &choice, sizeof choice);
    return st;
  }
  switch (o->type) {
  case TRI_OPT_BOOL: return parse_bool(o, text, to, err);
  case TRI_OPT_INT:
    st = parse_integer(o, text, INT32_MIN, INT32_MAX, &v, err);
    if (st == TRI_OK) *(int *)to = (int)v;
    return st;
  case TRI_OPT_UINT:
    st = parse_integer(o, text, 0, UINT32_MAX, &v, err);
    if (st == TRI_OK) *(unsigned *)to = (unsigned)v;
    return st;
  case TRI_OPT_INT64: return parse_integer(o, text, INT64_MIN, INT64_MAX, to, err);
  case TRI_OPT_SIZE: return parse_size(o, text, to, err);
  case TRI_OPT_NUM: return parse_num(o, text, to, err);
  case TRI_OPT_STRING:
  case TRI_OPT_LIST: break;
  }
  return st;
}

static tri_status append_string(tri_opt_list *list, size_t *cap, const char *text) {
  TRI_CHECK(tri_array_reserve(&list->items, list->count, cap, 1, sizeof *list->items));
  list->items[list->count++] = text;
  return TRI_OK;
}

/* Strings are copied into the parser's arena; choices are the table's own texts. A list begins anew with a stronger
 * source. */
tri_status tri_options_assign(tri_options *o, const tri_option *t, const char *text, tri_opt_source source,
                              tri_error *err) {
  struct tri_opt_state *state = &o->state[t - o->spec->options];
  if (source < state->source) return TRI_OK; /* a stronger one has spoken */
  tri_status st;
  if (t->type == TRI_OPT_STRING || t->type == TRI_OPT_LIST) {
    int choice;
    bool chosen = t->choices && t->type == TRI_OPT_STRING;
    if (chosen && (st = parse_choice(t, text, &choice, err)) != TRI_OK) return st;
    const char *copy = chosen ? t->choices[choice] : tri_arena_strndup(o->arena, text, strlen(text));
    if (!copy) return TRI_NO_MEMORY;
    void *to = (char *)o->dest + t->offset;
    if (t->type == TRI_OPT_STRING) {
      memcpy(to, &copy, sizeof copy);
    } else {
      tri_opt_list *list = to;
      if (source > state->source) list->count = 0;
      list->items = state->items;
      st = append_string(list, &state->cap, copy);
      state->items = list->items;
      if (st != TRI_OK) return st;
    }
  } else {
    TRI_CHECK(tri_option_store(t, o->dest, text, err));
  }
  if (source > TRI_FROM_FALLBACK) {
    state->text = tri_arena_strndup(o->arena, text, strlen(text));
    if (!state->text) return TRI_NO_MEMORY;
  }
  state->source = source;
  return TRI_OK;
}
