/* SPDX-License-Identifier: Apache-2.0 */
/* The arguments of a call that are JSON, byte by byte. An object is passed on as it comes, byte for byte, as far as
 * brackets and a quote after it make it whole at any time: what they do not is held (a key until its value begins, and
 * all before the first value). Nothing (null, or a text without anything) is an empty object, and some models write an
 * object as a text of JSON: these are held until they are whole.
 *
 * So at each moment what was passed on, with `missing` after it, is an object of JSON: an answer that is cut leaves a
 * client with one that it can parse. */
#ifndef TRI_CLIENT_CHAT_CALL_ARGUMENTS_H
#define TRI_CLIENT_CHAT_CALL_ARGUMENTS_H

#include "client/chat/json_scan.h"
#include "base/buf.h"

typedef enum call_step {
  CALL_GOES_ON,
  CALL_ENDS,    /* with this byte */
  CALL_IS_NONE, /* which this byte shows */
} call_step;

typedef struct call_arguments {
  json_scan scan;
  char first;                      /* byte */
  char missing[JSON_SCAN_MISSING]; /* completes what has gone on */
  size_t num_missing;
  tri_buf held; /* what has come and not gone on */
} call_arguments;

/* Begins the next ones, and keeps the memory. */
void call_arguments_begin(call_arguments *a);
void call_arguments_free(call_arguments *a);
/* Takes a byte, of which the first is no white space, and appends what is passed on to `out`. A byte that shows that
 * they are none is not taken. */
tri_status call_arguments_byte(call_arguments *a, char c, tri_buf *out, call_step *step);
/* Appends what makes an object of that which has gone on. */
tri_status call_arguments_close(const call_arguments *a, tri_buf *out);

#endif
