/* SPDX-License-Identifier: Apache-2.0 */
#include "base/options/options.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/process_limits.h"
#include "base/options/options_internal.h"
#include "base/standard_output.h"

enum { CONFIG_DEPTH_TEXT = 160 };

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
  return tri_fail(err, TRI_OUT_OF_RANGE, o->name, "--%s is %s; allowed are %s to %s%s", o->name, text,
                  tri_option_limit(o, o->min, lo), tri_option_limit(o, o->max, hi), o->not_zero ? ", but not 0" : "");
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
  tri_status st = check_limits(o, x, text, err);
  if (st != TRI_OK) return st;
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
  tri_status st = check_limits(o, over ? INFINITY : (double)v, text, err);
  if (st != TRI_OK) return st;
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
  tri_status st = check_limits(o, v, text, err);
  if (st != TRI_OK) return st;
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

static tri_status parse_choice(const tri_option *o, const char *text, int *out, tri_error *err) {
  char list[CONFIG_DEPTH_TEXT] = "";
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
  tri_status st = tri_array_reserve(&list->items, list->count, cap, 1, sizeof *list->items);
  if (st != TRI_OK) return st;
  list->items[list->count++] = text;
  return TRI_OK;
}

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
    st = tri_option_store(t, o->dest, text, err);
    if (st != TRI_OK) return st;
  }
  if (source > TRI_FROM_FALLBACK) {
    state->text = tri_arena_strndup(o->arena, text, strlen(text));
    if (!state->text) return TRI_NO_MEMORY;
  }
  state->source = source;
  return TRI_OK;
}

/* ---- command line ---- */

/* Handles argv[*i], which begins with a dash, and the value that belongs to it. */
static tri_status parse_option(tri_options *o, int argc, char *const *argv, int *i, tri_error *err) {
  const char *arg = argv[*i], *name = arg + 1 + (arg[1] == '-'), *value = strchr(name, '=');
  size_t len = value ? (size_t)(value++ - name) : strlen(name);
  bool is_help = tri_option_same_name("help", name, len) || (len == 1 && *name == 'h');
  bool is_version = o->spec->version && tri_option_same_name("version", name, len);
  o->help |= is_help;
  o->version |= !is_help && is_version;
  if (is_help || is_version) return TRI_OK;
  bool is_config = o->spec->config_file && tri_option_same_name("config", name, len);
  const tri_option *t = is_config ? NULL : tri_options_find(o->spec->options, o->spec->count, name, len);
  if (!t && !is_config && len > 3 && !memcmp(name, "no", 2) && plain(name[2]) == '-') {
    t = tri_options_find(o->spec->options, o->spec->count, name + 3, len - 3);
    if (t && t->type == TRI_OPT_BOOL && !value) return tri_options_assign(o, t, "false", TRI_FROM_ARGS, err);
    t = NULL;
  }
  if (!t && !is_config) {
    TRI_CHECK(tri_options_take_word(o, len, argc, argv, i, &t, err));
    if (!t) return TRI_OK;
  }
  if (t && t->type == TRI_OPT_BOOL && !value) return tri_options_assign(o, t, "true", TRI_FROM_ARGS, err);
  if (!value) {
    if (*i + 1 >= argc) return tri_fail(err, TRI_INVALID_ARGUMENT, t ? t->name : "config", "%s needs a value", arg);
    value = argv[++*i];
  }
  if (is_config) o->config = value;
  tri_status st = is_config ? TRI_OK : tri_options_assign(o, t, value, TRI_FROM_ARGS, err);
  while (st == TRI_OK && t && t->several && *i + 1 < argc && argv[*i + 1][0] != '-')
    st = tri_options_assign(o, t, argv[++*i], TRI_FROM_ARGS, err);
  return st;
}

static tri_status parse_args(tri_options *o, int argc, char *const *argv, tri_error *err) {
  bool only_args = false;
  for (int i = 1; i < argc; i++) {
    const char *a = argv[i];
    tri_status st = TRI_OK;
    if (!only_args && !strcmp(a, "--"))
      only_args = true;
    else if (!only_args && a[0] == '-' && a[1])
      st = parse_option(o, argc, argv, &i, err);
    else
      o->args[o->num_args++] = a;
    if (st != TRI_OK) return st;
    if (o->help || o->version) break; /* what follows is not looked at */
  }
  return TRI_OK;
}

/* A first argument that stands for an option, as `serve DIR` for `serve --model DIR`. */
static tri_status take_arg_option(tri_options *o, tri_error *err) {
  const char *name = o->spec->arg_option;
  if (!name || !o->num_args) return TRI_OK;
  const tri_option *t = tri_options_find(o->spec->options, o->spec->count, name, strlen(name));
  const struct tri_opt_state *state = &o->state[t - o->spec->options];
  if (state->source == TRI_FROM_ARGS)
    return tri_fail(err, TRI_INVALID_ARGUMENT, name, "%.80s and --%s %.80s exclude each other", o->args[0], name,
                    state->text);
  TRI_CHECK(tri_options_assign(o, t, o->args[0], TRI_FROM_ARGS, err));
  o->num_args--;
  memmove(o->args, o->args + 1, (size_t)o->num_args * sizeof *o->args);
  return TRI_OK;
}

static tri_status parse_environment(tri_options *o, tri_error *err) {
  for (size_t i = 0; i < o->spec->count; i++) {
    const tri_option *t = &o->spec->options[i];
    const char *text = t->env ? getenv(t->env) : NULL;
    if (!text || !*text) continue;
    tri_error e = {0};
    tri_status st = tri_options_assign(o, t, text, TRI_FROM_ENV, &e);
    if (st != TRI_OK) return tri_fail(err, st, t->name, "%s: %s", t->env, e.message);
  }
  return TRI_OK;
}

static tri_status check_args(const tri_options *o, tri_error *err) {
  const tri_options_spec *s = o->spec;
  if (o->num_args < s->min_args)
    return tri_fail(err, TRI_INVALID_ARGUMENT, NULL, "%s needs %s%d argument%s, not %d", s->program,
                    s->max_args == s->min_args ? "" : "at least ", s->min_args, s->min_args == 1 ? "" : "s",
                    o->num_args);
  if (s->max_args >= 0 && o->num_args > s->max_args)
    return tri_fail(err, TRI_INVALID_ARGUMENT, NULL, "\"%.60s\" is one argument too many", o->args[s->max_args]);
  return TRI_OK;
}

tri_status tri_options_parse(const tri_options_spec *spec, void *dest, int argc, char *const *argv, tri_options **out,
                             tri_error *err) {
  tri_status st = TRI_OK;
  tri_options *o = tri_calloc(1, sizeof *o);
  if (!o) return TRI_NO_MEMORY;
  o->spec = spec;
  o->dest = dest;
  o->state = tri_calloc(spec->count ? spec->count : 1, sizeof *o->state);
  o->args = tri_calloc((size_t)(argc > 0 ? argc : 1), sizeof *o->args);
  o->notes = tri_calloc((size_t)(argc > 0 ? argc : 1), sizeof *o->notes);
  st = o->state && o->args && o->notes ? tri_arena_create(4096, &o->arena) : TRI_NO_MEMORY;
  if (st != TRI_OK) goto cleanup;
  for (size_t i = 0; i < spec->count; i++)
    if (spec->options[i].fallback)
      TRI_TRY(tri_options_assign(o, &spec->options[i], spec->options[i].fallback, TRI_FROM_FALLBACK, err));
  TRI_TRY(parse_args(o, argc, argv, err));
  if (!o->help && !o->version) {
    TRI_TRY(take_arg_option(o, err));
    TRI_TRY(parse_environment(o, err));
    if (o->config) TRI_TRY(tri_options_load_file(o, o->config, err));
    TRI_TRY(check_args(o, err));
  }
  *out = o;
  o = NULL;
cleanup:
  tri_options_free(o);
  return st;
}

void tri_options_free(tri_options *o) {
  if (!o) return;
  for (size_t i = 0; o->state && i < o->spec->count; i++) tri_free(o->state[i].items);
  tri_arena_destroy(o->arena);
  tri_free(o->state);
  tri_free(o->args);
  tri_free(o->notes);
  tri_free(o);
}

int tri_options_main(const tri_options_spec *spec, void *dest, int argc, char *const *argv, tri_options **out) {
  tri_file_open_standard(false);
  tri_error err = {0};
  tri_options *o = NULL;
  tri_status st = tri_process_limits(&err);
  if (st != TRI_OK) {
    fprintf(stderr, "%s: %s\n", spec->program, err.message);
    return TRI_EXIT_FAILED;
  }
  st = tri_options_parse(spec, dest, argc, argv, &o, &err);
  if (st != TRI_OK) {
    fprintf(stderr, "%s: %s\nTry '%s --help'.\n", spec->program, err.message[0] ? err.message : tri_status_text(st),
            spec->program);
    return st == TRI_NO_MEMORY || st == TRI_IO ? TRI_EXIT_FAILED : TRI_EXIT_USAGE;
  }
  if (o->help || o->version) {
    if (o->help)
      tri_options_print_help(spec, stdout);
    else
      printf("%s\n", spec->version);
    tri_options_free(o);
    return tri_stdout_end(spec->program, TRI_EXIT_OK);
  }
  *out = o;
  return -1;
}

/* ---- questions ---- */

int tri_options_num_args(const tri_options *o) { return o->num_args; }
const char *tri_options_arg(const tri_options *o, int i) { return i >= 0 && i < o->num_args ? o->args[i] : NULL; }

const char *tri_options_note(const tri_options *o, int i) { return i >= 0 && i < o->num_notes ? o->notes[i] : NULL; }

static tri_opt_source source_of(const tri_options *o, const char *name) {
  const tri_option *t = tri_options_find(o->spec->options, o->spec->count, name, strlen(name));
  return t ? o->state[t - o->spec->options].source : TRI_FROM_NOWHERE;
}

bool tri_options_given(const tri_options *o, const char *name) { return source_of(o, name) > TRI_FROM_FALLBACK; }

bool tri_options_commanded(const tri_options *o, const char *name) { return source_of(o, name) == TRI_FROM_ARGS; }

const char *tri_options_text(const tri_options *o, const char *name) {
  const tri_option *t = tri_options_find(o->spec->options, o->spec->count, name, strlen(name));
  return t ? o->state[t - o->spec->options].text : NULL;
}

int tri_exit_code(tri_status st) {
  switch (st) {
  case TRI_OK: return TRI_EXIT_OK;
  case TRI_USAGE: return TRI_EXIT_USAGE;
  case TRI_DEVICE_LOST: return TRI_EXIT_DEVICE;
  case TRI_OVERFLOW:
  case TRI_NO_CAPACITY: return TRI_EXIT_REFUSED;
  default: return tri_status_is_refusal(st) ? TRI_EXIT_REFUSED : TRI_EXIT_FAILED;
  }
}
