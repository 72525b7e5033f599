/* SPDX-License-Identifier: Apache-2.0 */
/* --help, from the table. */
#include <stdarg.h>
#include <string.h>

#include "base/options/options_internal.h"

enum { HELP_COLUMN = 30, HELP_WIDTH = 100, HELP_TEXT = 1024 };

static const char *metavar(const tri_option *o) {
  if (o->metavar) return o->metavar;
  switch (o->type) {
  case TRI_OPT_SIZE: return "SIZE";
  case TRI_OPT_NUM: return "X";
  case TRI_OPT_STRING:
  case TRI_OPT_LIST: return "TEXT";
  default: return "N";
  }
}

__attribute__((format(printf, 2, 3))) static void add(char *buf, const char *fmt, ...) {
  size_t used = strlen(buf);
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(buf + used, HELP_TEXT - used, fmt, ap);
  va_end(ap);
}

/* "help [0.1 to 1; default 0.9; env X]" */
static void describe(const tri_option *o, char *buf) {
  char lo[32], hi[32];
  const char *sep = " [";
  add(buf, "%s", o->help ? o->help : "");
  if (o->min != 0 || o->max != 0) {
    add(buf, "%s%s%s to %s%s", sep, o->or_zero ? "0 and " : "", tri_option_limit(o, o->min, lo),
        tri_option_limit(o, o->max, hi), o->not_zero ? ", but not 0" : "");
    sep = "; ";
  }
  if (o->fallback && o->fallback[0] && !(o->type == TRI_OPT_BOOL && !strcmp(o->fallback, "false"))) {
    add(buf, "%sdefault %s", sep, o->type != TRI_OPT_BOOL ? o->fallback : "on");
    sep = "; ";
  }
  if (o->type == TRI_OPT_LIST) {
    add(buf, "%srepeatable", sep);
    sep = "; ";
  }
  if (o->env) {
    add(buf, "%senvironment %s", sep, o->env);
    sep = "; ";
  }
  if (sep[0] == ';') add(buf, "]");
}

/* Words of text from the column that the line is at now, wrapped at the width and indented to HELP_COLUMN. */
static void print_wrapped(FILE *out, const char *text, int at) {
  if (at > HELP_COLUMN - 2) {
    fputc('\n', out);
    at = 0;
  }
  fprintf(out, "%*s", HELP_COLUMN - at, "");
  at = HELP_COLUMN;
  while (*text) {
    size_t word = strcspn(text, " \n");
    if (at > HELP_COLUMN && at + 1 + (int)word > HELP_WIDTH) {
      fprintf(out, "\n%*s", HELP_COLUMN, "");
      at = HELP_COLUMN;
    }
    at += fprintf(out, "%s%.*s", at > HELP_COLUMN ? " " : "", (int)word, text);
    text += word;
    if (*text == '\n') at = HELP_WIDTH; /* the next word begins a line */
    while (*text == ' ' || *text == '\n') text++;
  }
  fputc('\n', out);
}

static void print_option(FILE *out, const tri_option *o) {
  char head[HELP_TEXT] = "  ", text[HELP_TEXT] = "";
  bool on = o->type == TRI_OPT_BOOL && o->fallback && !strcmp(o->fallback, "true");
  if (o->alias && strlen(o->alias) <= 3) add(head, "-%s, ", o->alias);
  if (o->alias) add(head, "--%s, ", o->alias);
  add(head, "--%s%s", on ? "[no-]" : "", o->name);
  if (o->choices) {
    for (size_t i = 0; o->choices[i]; i++) add(head, "%s%s", i ? "," : " {", o->choices[i]);
    add(head, "}");
  } else if (o->type != TRI_OPT_BOOL) {
    add(head, " %s", metavar(o));
  }
  describe(o, text);
  print_wrapped(out, text, fprintf(out, "%s", head));
}

static bool same_group(const char *a, const char *b) { return !strcmp(a ? a : "Options", b ? b : "Options"); }

/* Returns true when option i is the first of its group that is shown. */
static bool is_first(const tri_options_spec *s, size_t i) {
  for (size_t j = 0; j < i; j++)
    if (!s->options[j].hidden && same_group(s->options[j].group, s->options[i].group)) return false;
  return true;
}

static void print_group(FILE *out, const tri_options_spec *s, size_t first) {
  const char *group = s->options[first].group;
  fprintf(out, "\n%s:\n", group ? group : "Options");
  for (size_t i = first; i < s->count; i++)
    if (!s->options[i].hidden && same_group(s->options[i].group, group)) print_option(out, &s->options[i]);
}

static void print_all(FILE *out, const tri_options_spec *s) {
  for (size_t i = 0; i < s->count; i++)
    if (!s->options[i].hidden && is_first(s, i)) print_group(out, s, i);
}

static void print_usual(FILE *out, const tri_options_spec *s) {
  fputs("\nUsual options:\n", out);
  for (size_t i = 0; i < s->num_usual; i++) {
    const tri_option *o = tri_options_find(s->options, s->count, s->usual[i].name, strlen(s->usual[i].name));
    char head[HELP_TEXT] = "  ";
    if (!o) continue;
    if (o->alias && strlen(o->alias) <= 3) add(head, "-%s, ", o->alias);
    add(head, "--%s", o->name);
    if (o->type != TRI_OPT_BOOL) add(head, " %s", o->choices ? "NAME" : metavar(o));
    print_wrapped(out, s->usual[i].help, fprintf(out, "%s", head));
  }
}

void tri_options_print_help(const tri_options_spec *s, bool all, FILE *out) {
  bool short_help = s->usual && !all;
  fprintf(out, "Usage: %s %s\n", s->program, s->usage ? s->usage : "[OPTION]...");
  if (s->summary) fprintf(out, "\n%s\n", s->summary);
  (short_help ? print_usual : print_all)(out, s);
  fputs("\nGeneral:\n", out);
  if (s->config_file)
    print_wrapped(out, "read options from a YAML file of \"name: value\" lines; the command line wins",
                  fprintf(out, "  --config FILE"));
  print_wrapped(out, "show this and exit", fprintf(out, "  -h, --help"));
  if (s->usual) print_wrapped(out, "show every option and exit", fprintf(out, "  --help-all"));
  if (s->version) print_wrapped(out, "show the version and exit", fprintf(out, "  --version"));
  if (s->epilog) fprintf(out, "\n%s", s->epilog);
}
