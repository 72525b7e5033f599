/* SPDX-License-Identifier: Apache-2.0 */
#include "base/options/options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/host/process_limits.h"
#include "base/options/options_internal.h"
#include "base/standard_output.h"

/* ---- command line ---- */

/* Says of an error, which names our option, that another program's word was given for it. */
static void name_word(const char *arg, int len, const tri_option *t, tri_error *err) {
  size_t used = err ? strlen(err->message) : 0;
  if (used) snprintf(err->message + used, sizeof err->message - used, " (%.*s is --%s)", len, arg, t->name);
}

/* Handles argv[*i], which begins with a dash, and the value that belongs to it.
 *
 * A name may be followed by "=value" or by the value; "no-NAME" is a switch that is off; a name that is none of this
 * program's may be another program's word for one (tri_options_take_word). */
static tri_status parse_option(tri_options *o, int argc, char *const *argv, int *i, tri_error *err) {
  const char *arg = argv[*i], *name = arg + 1 + (arg[1] == '-'), *value = strchr(name, '=');
  size_t len = value ? (size_t)(value++ - name) : strlen(name);
  bool is_all = tri_option_same_name("help-all", name, len);
  bool is_help = is_all || tri_option_same_name("help", name, len) || (len == 1 && *name == 'h');
  bool is_version = o->spec->version && tri_option_same_name("version", name, len);
  o->help |= is_help;
  o->help_all |= is_all;
  o->version |= !is_help && is_version;
  if (is_help || is_version) return TRI_OK;
  bool is_config = o->spec->config_file && tri_option_same_name("config", name, len);
  const tri_option *t = is_config ? NULL : tri_options_find(o->spec->options, o->spec->count, name, len);
  if (!t && !is_config && len > 3 && !memcmp(name, "no", 2) && (name[2] == '-' || name[2] == '_')) {
    t = tri_options_find(o->spec->options, o->spec->count, name + 3, len - 3);
    if (t && t->type == TRI_OPT_BOOL && !value) return tri_options_assign(o, t, "false", TRI_FROM_ARGS, err);
    t = NULL;
  }
  bool is_word = !t && !is_config;
  if (is_word) {
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
  if (st != TRI_OK && is_word) name_word(arg, (int)(name + len - arg), t, err);
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

/* Sources in rising order: defaults, the file of --config, the environment, the command line. tri_options_assign
 * leaves a value alone that comes from a higher one, so that they can be read in any order; --config is known only
 * after the command line. */
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
      tri_options_print_help(spec, o->help_all, stdout);
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
