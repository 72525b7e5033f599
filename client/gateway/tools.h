/* SPDX-License-Identifier: Apache-2.0 */
/* The tools of a request as its answer needs them: the names of functions and of their parameters, without the document
 * that they come from, which takes many times their bytes. */
#ifndef TRI_CLIENT_GATEWAY_TOOLS_H
#define TRI_CLIENT_GATEWAY_TOOLS_H

#include "base/json/json.h"

/* All zeros: there are none. */
typedef struct gw_tools {
  tri_buf names; /* one behind another: its length, its kind, its bytes */
} gw_tools;

/* Reads them from an array of OpenAI's form; what is none is left out. TRI_NO_MEMORY. Free *out in any case. */
tri_status gw_tools_read(const tri_json *tools, gw_tools *out);
void gw_tools_free(gw_tools *t);
/* t NULL: there are none. */
bool gw_tools_have(const gw_tools *t, const char *name, size_t len);
/* Returns whether a function has a parameter; one whose schema lists none may have any. */
bool gw_tools_take(const gw_tools *t, const char *name, size_t len, const char *key, size_t key_len);
/* Returns whether a parameter of a function is of the type string. */
bool gw_tools_take_text(const gw_tools *t, const char *name, size_t len, const char *key, size_t key_len);

#endif
