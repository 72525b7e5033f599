/* SPDX-License-Identifier: Apache-2.0 */
/* Words of the command line that are not of the table: other programs' names for options, and mistakes. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/options/options_internal.h"
#include "base/text.h"

static tri_status unknown_option(const tri_options *o, const char *arg, const char *name, size_t len, tri_error *err) {
  char given[64];
  snprintf(given, sizeof given, "%.*s", (int)(len < 60 ? len : 60), name);
  int i = tri_nearest_name(given, (const char *)o->spec->options + offsetof(tri_option, name), o->spec->count,
                           sizeof(tri_option));
  if (i >= 0)
    return tri_fail(err, TRI_UNKNOWN_FIELD, given, "there is no option %.60s; did you mean --%s?", arg,
                    o->spec->options[i].name);
  return tri_fail(err, TRI_UNKNOWN_FIELD, given, "there is no option %.60s", arg);
}

static const tri_option_word *find_word(const tri_options_spec *s, const char *name, size_t len) {
  for (size_t i = 0; i < s->num_words; i++)
    for (const char *w = s->words[i].words; *w; w += strspn(w, " ")) {
      char word[64];
      size_t n = strcspn(w, " ");
      snprintf(word, sizeof word, "%.*s", (int)n, w);
      if (tri_option_same_name(word, name, len)) return &s->words[i];
      w += n;
    }
  return NULL;
}

/* Returns the word, or the one that "no-" stands before, where it is a switch that changes nothing. */
static const tri_option_word *find_switch(const tri_options_spec *s, const char *name, size_t len) {
  const tri_option_word *w = find_word(s, name, len);
  if (w || len <= 3 || memcmp(name, "no", 2) != 0 || (name[2] != '-' && name[2] != '_')) return w;
  w = find_word(s, name + 3, len - 3);
  return w && w->instead && w->values == TRI_WORD_ALONE ? w : NULL;
}

/* Returns whether an argument belongs to a word. */
static bool belongs(tri_word_values values, const char *arg) {
  if (values == TRI_WORD_SWITCH) return tri_has_word("on off auto true false 0 1 enabled disabled", arg);
  return values == TRI_WORD_NUMBERS && *arg && strspn(arg, "0123456789.,") == strlen(arg);
}

/* Notes a word that changes nothing, and continues after its arguments. */
static tri_status skip_word(tri_options *o, const tri_option_word *w, int argc, char *const *argv, int *i,
                            tri_error *err) {
  const char *arg = argv[*i];
  bool has_value = strchr(arg, '=') != NULL;
  size_t name = strcspn(arg, "="), room = name + strlen(w->instead) + 32;
  char *note = tri_arena_alloc(o->arena, room, 1);
  if (!note) return TRI_NO_MEMORY;
  snprintf(note, room, "%.*s has no effect: %s", (int)name, arg, w->instead);
  o->notes[o->num_notes++] = note;
  if (has_value) return TRI_OK;
  if (w->values == TRI_WORD_VALUE && *i + 1 >= argc)
    return tri_fail(err, TRI_INVALID_ARGUMENT, w->words, "%s needs a value", arg);
  if (w->values == TRI_WORD_VALUE) ++*i;
  while (*i + 1 < argc && belongs(w->values, argv[*i + 1])) {
    ++*i;
    if (w->values == TRI_WORD_SWITCH) break;
  }
  return TRI_OK;
}

tri_status tri_options_take_word(tri_options *o, size_t len, int argc, char *const *argv, int *i, const tri_option **t,
                                 tri_error *err) {
  const char *arg = argv[*i], *name = arg + 1 + (arg[1] == '-');
  const tri_option_word *w = find_switch(o->spec, name, len);
  if (!w) return unknown_option(o, arg, name, len, err);
  if (w->why)
    return tri_fail(err, TRI_UNKNOWN_FIELD, w->words, "there is no option %.*s: %s", (int)(name + len - arg), arg,
                    w->why);
  if (w->instead) return skip_word(o, w, argc, argv, i, err);
  *t = w->option ? tri_options_find(o->spec->options, o->spec->count, w->option, strlen(w->option)) : NULL;
  return TRI_OK;
}
