/* SPDX-License-Identifier: Apache-2.0 */
/* Chat templates: the part of Jinja2 that the templates of published models use, as jinja2 3.1 renders them in the
 * immutable sandbox that the reference has (trim_blocks, lstrip_blocks, loop controls, `generation` blocks, and a
 * tojson that is json.dumps without ensure_ascii).
 *
 * A template is parsed once and rendered many times, also by several threads at once. A render has memory of its own,
 * and limits: a template comes from the model's author, the messages from any client. */
#ifndef TRI_TEXT_JINJA_JINJA_H
#define TRI_TEXT_JINJA_JINJA_H

#include "base/buf.h"
#include "base/json/json.h"
#include "base/span.h"
#include "base/status.h"

enum {
  TRI_JINJA_MOST_SOURCE = 1 << 20, /* bytes of a template */
  TRI_JINJA_MOST_TEXT = 1 << 24,   /* bytes that it may write */
  TRI_JINJA_MOST_MEMORY = 1 << 26, /* bytes that a render may take for its values */
  TRI_JINJA_MOST_NODES = 10000000, /* steps of a render: nodes that it visits, and shares of long operations */
  TRI_JINJA_MOST_DEPTH = 100,      /* of nested expressions and blocks */
  TRI_JINJA_MOST_CALLS = 64,       /* of macros inside each other */
  TRI_JINJA_MOST_RANGE = 100000,
  TRI_JINJA_MOST_MS = 2000, /* of a processor's time: on a busy machine a render may take longer */
};

typedef struct tri_jinja tri_jinja;

/* TRI_CORRUPT: a syntax error, with its line, or something of Jinja2 that is not here, by its name. */
tri_status tri_jinja_parse(const char *source, size_t len, tri_jinja **out, tri_error *err);
void tri_jinja_free(tri_jinja *t); /* NULL is fine */

/* A variable of a render. */
typedef struct tri_jinja_variable {
  const char *name;
  const tri_json *json; /* borrowed; NULL: text is the value, */
  const char *text;     /* and without it none is */
  bool foreign;         /* strings in it come from a client: see tri_jinja_output */
  const char *own;      /* but for members of this name: a role is a part of many templates' tokens; NULL: none */
  /* A list of objects whose members may be null for "there is none": such a null is none for tests, and an empty text
   * for what prints it or takes a text or a list, where Jinja2 has "None" or an error. */
  bool soft_nulls;
} tri_jinja_variable;

/* A text, and its bytes that come from foreign variables, so that a tokenizer can leave special tokens in them alone.
 */
typedef struct tri_jinja_output {
  tri_buf text;
  tri_span *spans; /* in order, apart from each other */
  size_t num_spans, cap_spans;
} tri_jinja_output;
void tri_jinja_output_free(tri_jinja_output *o);

typedef struct tri_jinja_input {
  const tri_jinja_variable *variables;
  size_t num_variables;
  int64_t now_s; /* seconds since 1970 in the local time zone, for strftime_now */
} tri_jinja_input;

/* The kinds of errors of a render: err->field. */
#define TRI_JINJA_RAISED "raise_exception" /* the template has refused its input: the message is for the client */
#define TRI_JINJA_UNDEFINED "undefined"
#define TRI_JINJA_TYPE "type"
#define TRI_JINJA_LIMIT "limit"
#define TRI_JINJA_SYNTAX "syntax"

/* Writes to *out, whose memory is used again. TRI_INVALID_ARGUMENT: the template has failed; err->field says how.
 * TRI_TOO_LARGE: a limit. TRI_NO_MEMORY. */
tri_status tri_jinja_render(const tri_jinja *t, const tri_jinja_input *in, tri_jinja_output *out, tri_error *err);

#endif
