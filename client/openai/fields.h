/* SPDX-License-Identifier: Apache-2.0 */
/* Members of a request's JSON object, each of which goes to a field. null is as good as absent; a name that is not
 * known is ignored and reported, or refused. Texts lie in the document that they were read from, until they are kept.
 */
#ifndef TRI_CLIENT_OPENAI_FIELDS_H
#define TRI_CLIENT_OPENAI_FIELDS_H

#include "client/trireme.h"
#include "base/buf.h"
#include "base/json/json.h"

enum {
  OAI_MAX_PROMPTS = 2048, /* as OpenAI's API has it */
  OAI_FIELD_BYTES = 65,   /* of a name that is reported, and a NUL */
};

/* Names of a request that mean nothing here. */
typedef struct oai_ignored {
  bool allowed;    /* false: they are refused */
  char names[200]; /* with commas between them, of the first */
} oai_ignored;

typedef struct oai_field {
  const char *name;
  /* Takes a value that is not null. */
  tri_status (*take)(void *request, const struct oai_field *f, const tri_json *v, tri_error *err);
  size_t offset; /* of the member that it goes to */
} oai_field;

typedef struct oai_field_table {
  const oai_field *fields; /* NULL: the end of a list of tables */
  size_t num;
} oai_field_table;
#define OAI_TABLE(fields)                                                                                              \
  { (fields), sizeof(fields) / sizeof *(fields) }

/* Gives each member of a request's object to its field, of the first table that has it. Also for other threads than
 * the loop's. */
tri_status oai_fields_read(const oai_field_table *tables, const tri_json *object, void *request, oai_ignored *ignored,
                           tri_error *err);
/* Notes a name that means nothing here, or refuses it. */
tri_status oai_ignore(oai_ignored *ignored, const char *key, tri_error *err);
tri_status oai_take_int(void *request, const oai_field *f, const tri_json *v, tri_error *err);
tri_status oai_take_num(void *request, const oai_field *f, const tri_json *v, tri_error *err);
tri_status oai_take_bool(void *request, const oai_field *f, const tri_json *v, tri_error *err);
tri_status oai_take_name(void *request, const oai_field *f, const tri_json *v, tri_error *err); /* const char * */
tri_status oai_take_json(void *request, const oai_field *f, const tri_json *v, tri_error *err); /* const tri_json * */
/* Refuses all but the value that asks for nothing: false, 0, an empty array. */
tri_status oai_take_unsupported(void *request, const oai_field *f, const tri_json *v, tri_error *err);
tri_status oai_take_nothing(void *request, const oai_field *f, const tri_json *v,
                            tri_error *err); /* it has no effect */
tri_status oai_wrong(tri_error *err, const oai_field *f, const char *wanted);

/* A text, or token ids; a text's bytes lie in the document. */
typedef struct oai_input {
  const char *text;
  size_t len;
  uint32_t *ids;
  size_t num_ids;
} oai_input;
typedef struct oai_inputs {
  oai_input *items;
  size_t num; /* 0: it was not given */
} oai_inputs;
/* Reads a text, an array of texts, ids, or an array of arrays of ids. */
tri_status oai_take_inputs(void *request, const oai_field *f, const tri_json *v, tri_error *err);
void oai_inputs_free(oai_inputs *in);
/* The bytes that a text of a document takes in oai_keep_text; s may be NULL. */
size_t oai_kept_text(const char *s, size_t len);
/* Copies a text after others, where there is room for it already, so that it outlives its document. */
void oai_keep_text(tri_buf *room, const char **s, size_t len);
size_t oai_kept_inputs(const oai_inputs *in); /* the same of the texts of inputs */
void oai_keep_inputs(tri_buf *room, oai_inputs *in);
size_t oai_inputs_bytes(const oai_inputs *in); /* memory of them, but for texts */
tri_status oai_read_ids(const oai_field *f, const tri_json *v, uint32_t **out, size_t *num, tri_error *err);

#endif
