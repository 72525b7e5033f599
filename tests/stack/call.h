/* SPDX-License-Identifier: Apache-2.0 */
/* A client of the gateway: one HTTP request over a connection of its own, and its answer as it comes. */
#ifndef TRI_TESTS_STACK_CALL_H
#define TRI_TESTS_STACK_CALL_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

typedef struct call {
  struct call *next;
  int fd;
  tri_buf out, in;             /* bytes still to be sent; bytes that have come */
  tri_buf body;                /* of the answer, without the lengths of its chunks, and a NUL that len does not count */
  size_t sent, head_len, read; /* read: of `in` */
  long left;                   /* bytes of the body, or of a chunk, that are still to come; -1: not known */
  int status;                  /* 0: the head has not come */
  bool chunked, whole, over,
      deaf; /* whole: all of it is there; over: the connection has ended; deaf: it does not read */
} call;

/* Connects, and sends this with the next turns. */
call *call_open(int port, const char *bytes, size_t len);
void call_turn(call *c);
void call_close(call *c);

/* Writes the value of a header line; an empty text: there is none. */
void call_field(const call *c, const char *name, char *out, size_t cap);

/* Compares with JSON in which ' stands for ". Objects have these members and no others, unless one is "..."; arrays
 * these elements, unless the last one is "...". The texts "*" and "#" stand for anything and for any number, "<0" for a
 * number below 0, and "/EXPRESSION/" for a text that matches. NULL: there is no difference; else what is wrong, in
 * `why`. */
const char *json_differs(const json_t *have, const char *want, char *why, size_t cap);

#endif
