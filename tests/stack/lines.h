/* SPDX-License-Identifier: Apache-2.0 */
/* A connection of libtrireme, and requests over it as lines of `trireme submit --file`, `embed --file` and `classify
 * --file`. Answers are an array of the events as `submit --json` prints them. */
#ifndef TRI_TESTS_STACK_LINES_H
#define TRI_TESTS_STACK_LINES_H

#include "client/trireme.h"
#include "tests/stack/stack.h"

/* A connection that takes no turn of its own: to be closed before the stack is. */
trireme *lines_open(stack *s);

typedef enum line_kind { LINE_SUBMIT, LINE_EMBED, LINE_CLASSIFY } line_kind;
/* Sends one, in which ' stands for ", and returns its number. */
uint64_t line_send(trireme *c, line_kind kind, const char *line);
/* Takes turns until an event of this connection comes; *e is valid until the next one. */
void line_next(stack *s, trireme *c, trireme_event *e);
/* Takes turns until the request has ended; the events of others are dropped. The array is the caller's. */
json_t *line_events(stack *s, trireme *c, uint64_t id);

/* A line and the events that come of it, see json_differs. */
typedef struct line_case {
  const char *line, *json;
} line_case;
void line_expect(stack *s, trireme *c, line_kind kind, const line_case *list, size_t num);
#define expect_lines(s, c, kind, list) line_expect(s, c, kind, list, sizeof(list) / sizeof *(list))

#endif
