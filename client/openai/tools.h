/* SPDX-License-Identifier: Apache-2.0 */
/* The tools of a request as its answer needs them: the names of functions and of their parameters, without the document
 * that they come from, which takes many times their bytes. */
#ifndef TRI_CLIENT_OPENAI_TOOLS_H
#define TRI_CLIENT_OPENAI_TOOLS_H

#include "base/json/json.h"

/* All zeros: there are none. */
typedef struct oai_tools {
  tri_buf names; /* one after another: its length, its kind, its bytes */
} oai_tools;

/* Reads them from an array of OpenAI's form; what is none is left out. TRI_NO_MEMORY. Free *out in any case. */
tri_status oai_tools_read(const tri_json *tools, oai_tools *out);
void oai_tools_free(oai_tools *t);
/* t NULL: there are none. */
bool oai_tools_have(const oai_tools *t, const char *name, size_t len);
/* Returns whether a function has a parameter; one whose schema lists none may have any. */
bool oai_tools_take(const oai_tools *t, const char *name, size_t len, const char *key, size_t key_len);
/* Returns whether a parameter of a function is of the type string. */
bool oai_tools_take_text(const oai_tools *t, const char *name, size_t len, const char *key, size_t key_len);

#endif
