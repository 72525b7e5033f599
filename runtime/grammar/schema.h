/* SPDX-License-Identifier: Apache-2.0 */
/* JSON Schema (draft 2020-12, and what draft 7 spells otherwise) as a network whose answers fit the schema. Whatever
 * comes is valid; of what is valid some never comes: keys come in the schema's order, texts in one spelling, white
 * space between tokens is nothing, one blank, or a line end and up to 40 blanks or tabs.
 *
 * What a keyword asks for and cannot be kept is refused, with the pointer to it (docs/design/grammar.md has the list).
 */
#ifndef TRI_RUNTIME_GRAMMAR_SCHEMA_H
#define TRI_RUNTIME_GRAMMAR_SCHEMA_H

#include "base/json/json.h"
#include "runtime/grammar/network.h"

enum {
  TRI_SCHEMA_MAX_DEPTH = 32,         /* of values that no schema says anything about */
  TRI_SCHEMA_MAX_PROPERTIES = 2000,  /* of an object */
  TRI_SCHEMA_MAX_VALUES = 10000,     /* of an enum */
  TRI_SCHEMA_MAX_ALTERNATIVES = 256, /* of anyOf and oneOf within each other */
  TRI_SCHEMA_MAX_SET = 1000,         /* schemas that must hold at once */
  TRI_SCHEMA_MAX_WORK = 6000000,     /* steps of the compiler, of some 10 ns each: a schema can ask for any number */
};

enum { TRI_SCHEMA_MAX_TEXTS = 64 }; /* of a frame */

/* The texts around those of JSON: `begin`, one of JSON, further ones after `separator` each, `end`. */
typedef struct tri_schema_frame {
  const char *begin, *separator, *end; /* not NUL-terminated; NULL without bytes is fine */
  size_t begin_len, separator_len, end_len;
  uint32_t most; /* texts of JSON, 1 to TRI_SCHEMA_MAX_TEXTS; a separator that may come has bytes */
} tri_schema_frame;

typedef struct tri_schema_options {
  bool no_white_space;
  const tri_schema_frame *frame; /* NULL: one text of JSON and nothing around it. Each fits the schema */
  uint64_t most_work;            /* 0: TRI_SCHEMA_MAX_WORK */
} tri_schema_options;

/* schema: of a document that may go once this returns. *out: tri_net_destroy. Errors: TRI_UNSUPPORTED,
 * TRI_INVALID_ARGUMENT (no schema, or nothing fits it), TRI_TOO_LARGE (also more work than the limit),
 * TRI_NO_MEMORY; err->field is the JSON pointer, with "..." in the place of its middle where it is too long. */
tri_status tri_schema_compile(const tri_json *schema, const tri_schema_options *options, tri_net **out, tri_error *err);
/* The same of a schema's text; TRI_INVALID_ARGUMENT: it is no JSON. */
tri_status tri_schema_compile_text(const char *text, size_t len, const tri_schema_options *options, tri_net **out,
                                   tri_error *err);
/* Any object: what json_object asks for. */
tri_status tri_schema_any_object(const tri_schema_options *options, tri_net **out, tri_error *err);

#endif
