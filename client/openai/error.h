/* SPDX-License-Identifier: Apache-2.0 */
/* Errors as OpenAI's API has them. */
#ifndef TRI_CLIENT_OPENAI_ERROR_H
#define TRI_CLIENT_OPENAI_ERROR_H

#include "client/trireme.h"
#include "base/buf.h"

/* An error as a response has it. */
typedef struct oai_error {
  int status;
  const char *code, *param, *message; /* param may be empty */
} oai_error;

/* Writes {"error": {...}}. */
void oai_error_json(tri_buf *b, const oai_error *e);
/* Returns the error that a request's error of libtrireme or the coordinator comes to; it points into *e. */
oai_error oai_error_of(const trireme_error *e);
oai_error oai_error_of_status(const tri_error *e); /* of a request that was not understood */

#endif
