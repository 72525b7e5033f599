/* SPDX-License-Identifier: Apache-2.0 */
/* Configuration files. The only user of libyaml. */
#include <errno.h>
#include <string.h>
#include <yaml.h>

#include "base/options/options_internal.h"

enum { MAX_FILE = 1 << 20 };

typedef struct reader {
  tri_options *o;
  const char *path;
  tri_error *err;
  yaml_parser_t parser;
  yaml_event_t event;
  bool has_event;
} reader;

static tri_status fail_at(reader *r, const char *name, yaml_mark_t at, tri_status st, const char *text) {
  return tri_fail(r->err, st, name, "%s:%zu:%zu: %s", r->path, at.line + 1, at.column + 1, text);
}

static tri_status next_event(reader *r) {
  if (r->has_event) yaml_event_delete(&r->event);
  r->has_event = yaml_parser_parse(&r->parser, &r->event) != 0;
  if (!r->has_event) {
    if (r->parser.error == YAML_MEMORY_ERROR) return TRI_NO_MEMORY;
    return fail_at(r, NULL, r->parser.problem_mark, TRI_CORRUPT, r->parser.problem ? r->parser.problem : "not YAML");
  }
  if (r->event.type == YAML_ALIAS_EVENT)
    return fail_at(r, NULL, r->event.start_mark, TRI_UNSUPPORTED, "aliases are not supported");
  return TRI_OK;
}

static const char *scalar(const reader *r) { return (const char *)r->event.data.scalar.value; }

/* The text may hold a NUL ("\0" in quotes), which would cut it off. */
static bool scalar_whole(const reader *r) { return strlen(scalar(r)) == r->event.data.scalar.length; }

static tri_status assign_scalar(reader *r, const tri_option *t) {
  tri_error e = {0};
  if (!scalar_whole(r))
    return fail_at(r, t->name, r->event.start_mark, TRI_INVALID_ARGUMENT, "a value must not contain a NUL");
  tri_status st = tri_options_assign(r->o, t, scalar(r), TRI_FROM_FILE, &e);
  if (st == TRI_OK || st == TRI_NO_MEMORY) return st;
  return fail_at(r, t->name, r->event.start_mark, st, e.message);
}

/* Reads the value after a key. t: NULL for another program's option, which is read over. */
static tri_status read_value(reader *r, const tri_option *t, const char *name) {
  tri_status st = next_event(r);
  if (st != TRI_OK) return st;
  if (r->event.type == YAML_SCALAR_EVENT) return t ? assign_scalar(r, t) : TRI_OK;
  if (r->event.type != YAML_SEQUENCE_START_EVENT || (t && t->type != TRI_OPT_LIST))
    return fail_at(r, name, r->event.start_mark, TRI_INVALID_ARGUMENT,
                   t && t->type == TRI_OPT_LIST ? "needs a value or a list" : "needs one value");
  for (;;) {
    if ((st = next_event(r))) return st;
    if (r->event.type == YAML_SEQUENCE_END_EVENT) return TRI_OK;
    if (r->event.type != YAML_SCALAR_EVENT)
      return fail_at(r, name, r->event.start_mark, TRI_INVALID_ARGUMENT, "a list holds plain values only");
    if (t && (st = assign_scalar(r, t))) return st;
  }
}

/* seen: a bit for each option of the table. libyaml lets a name stand twice, which is a mistake here. */
static tri_status read_pair(reader *r, uint64_t *seen) {
  const tri_options_spec *s = r->o->spec;
  char text[200], name[96];
  if (r->event.type != YAML_SCALAR_EVENT)
    return fail_at(r, NULL, r->event.start_mark, TRI_INVALID_ARGUMENT, "needs the name of an option");
  snprintf(name, sizeof name, "%s", scalar(r));
  const tri_option *t = tri_options_find(s->options, s->count, scalar(r), r->event.data.scalar.length);
  if (t) {
    size_t i = (size_t)(t - s->options);
    if (i < 512 && seen[i / 64] >> (i % 64) & 1)
      return fail_at(r, t->name, r->event.start_mark, TRI_INVALID_ARGUMENT, "this option is there twice");
    if (i < 512) seen[i / 64] |= UINT64_C(1) << (i % 64);
  } else if (!tri_options_find(s->elsewhere, s->elsewhere ? s->num_elsewhere : 0, scalar(r),
                               r->event.data.scalar.length)) {
    int i = tri_nearest_name(name, (const char *)s->options + offsetof(tri_option, name), s->count, sizeof(tri_option));
    snprintf(text, sizeof text,
             i >= 0 ? "there is no option \"%.60s\"; did you mean %s?" : "there is no option \"%.60s\"", name,
             i >= 0 ? s->options[i].name : "");
    return fail_at(r, name, r->event.start_mark, TRI_UNKNOWN_FIELD, text);
  }
  return read_value(r, t, name);
}

/* One mapping of names to scalars or sequences: what else YAML has (aliases, nesting, several documents) is refused
 * with its place. */
static tri_status read_document(reader *r) {
  uint64_t seen[8] = {0};
  tri_status st;
  if ((st = next_event(r)) || (st = next_event(r))) return st; /* stream start, document start */
  if (r->event.type == YAML_STREAM_END_EVENT) return TRI_OK;   /* an empty file */
  if ((st = next_event(r))) return st;
  if (r->event.type != YAML_MAPPING_START_EVENT)
    return fail_at(r, NULL, r->event.start_mark, TRI_INVALID_ARGUMENT, "needs lines of \"name: value\"");
  for (;;) {
    if ((st = next_event(r))) return st;
    if (r->event.type == YAML_MAPPING_END_EVENT) break;
    if ((st = read_pair(r, seen))) return st;
  }
  if ((st = next_event(r)) || (st = next_event(r))) return st; /* document end, stream end */
  if (r->event.type != YAML_STREAM_END_EVENT)
    return fail_at(r, NULL, r->event.start_mark, TRI_UNSUPPORTED, "one document per file");
  return TRI_OK;
}

tri_status tri_options_load_file(tri_options *o, const char *path, tri_error *err) {
  reader r = {.o = o, .path = path, .err = err};
  FILE *f = fopen(path, "re");
  if (!f) /* a name that is not there is a typing mistake */
    return tri_fail(err, errno == ENOENT || errno == ENOTDIR ? TRI_NOT_FOUND : TRI_IO, "config", "cannot open %s: %s",
                    path, strerror(errno));
  tri_status st = TRI_NO_MEMORY;
  char *text = tri_malloc(MAX_FILE + 1, 1);
  size_t len = text ? fread(text, 1, MAX_FILE + 1, f) : 0;
  bool failed = ferror(f);
  fclose(f);
  if (!text) return st;
  if (failed)
    st = tri_fail(err, TRI_IO, "config", "cannot read %s", path);
  else if (len > MAX_FILE)
    st = tri_fail(err, TRI_TOO_LARGE, "config", "%s is larger than %d bytes", path, MAX_FILE);
  else if (yaml_parser_initialize(&r.parser)) {
    yaml_parser_set_input_string(&r.parser, (const unsigned char *)text, len);
    st = read_document(&r);
    if (r.has_event) yaml_event_delete(&r.event);
    yaml_parser_delete(&r.parser);
  }
  tri_free(text);
  return st;
}
