/* SPDX-License-Identifier: Apache-2.0 */
/* The gateway, libtrireme and the coordinator in one process and one thread, turn by turn, on a clock that the test
 * moves.
 *
 * Real: the gateway and the coordinator from their options on, each with its own loop; the tokenizers; HTTP over
 * loopback; messages over ZeroMQ's sockets and its threads; the gateway's and the tokenizer's threads.
 * Not real: time (clock.h), which stands still but for stack_pass; the replica (replica.h); the log, which goes to a
 * buffer; main, and so signals to the coordinator.
 *
 * Nothing sleeps: stack_until takes turns until something holds. What other threads do takes a turn's poll of at most
 * a millisecond while nothing is there; MOST_TURNS of them are the end of a test. */
#ifndef TRI_TESTS_STACK_STACK_H
#define TRI_TESTS_STACK_STACK_H

#include <check.h>
#include <string.h>

#include "client/gateway/gateway.h"
#include "coordinator/server.h"
#include "base/mem.h"
#include "base/text.h"
#include "tests/stack/call.h"
#include "tests/stack/replica.h"

enum { STACK_MOST_TURNS = 20000, STACK_WORDS = 64 };

/* Options as a program has them, which must outlive what is made of them. */
typedef struct stack_options {
  tri_option table[STACK_WORDS];
  tri_options_spec spec;
  char *words, *argv[STACK_WORDS];
  tri_options *parsed;
} stack_options;

typedef struct stack {
  char endpoint[256], model[512]; /* model: the folder */
  struct server server;
  bool serves; /* the coordinator is there */
  stack_options server_options, gateway_options;
  gateway *g; /* NULL: none */
  replica *r; /* NULL: none */
  uint64_t epoch;
  call *calls;
} stack;

/* Opens a coordinator with a replica, and a gateway that has found it. The options are words with blanks between them;
 * model: the folder, NULL for that of the sums. gateway NULL: without one. */
stack *stack_open(const char *model, const char *coordinator, const char *gateway);
void stack_close(stack *s);

void stack_turn(stack *s);
void stack_pass(stack *s, int64_t ms); /* time goes by, in small steps with turns between them */

/* Takes turns until the condition holds. */
#define stack_until(s, condition)                                                                                      \
  do {                                                                                                                 \
    int turns_ = 0;                                                                                                    \
    while (!(condition) && turns_++ < STACK_MOST_TURNS) stack_turn(s);                                                 \
    ck_assert_msg(condition, "not after %d turns: %s", turns_, #condition);                                            \
  } while (0)

/* Parts of it that end and begin. */
void stack_open_server(stack *s, const char *options);
void stack_close_server(stack *s); /* as one that is killed: clients are told nothing */
void stack_open_replica(stack *s); /* of the next epoch; returns when it serves */
void stack_open_gateway(stack *s, const char *options);
void stack_close_gateway(stack *s);
/* Opens a gateway that is refused, and writes why. */
tri_status stack_refused(stack *s, const char *options, tri_error *err);

/* ---- requests ---- */

/* Begins one; ' in a body stands for ". fields: header lines, each with \r\n, or NULL. body NULL: a request without
 * one. */
call *ask(stack *s, const char *method, const char *path, const char *fields, const char *body);
call *ask_raw(stack *s, const char *bytes, size_t len);
void leave(stack *s, call *c); /* the client hangs up */

/* A request and what comes of it. */
typedef struct exchange {
  const char *method, *path, *body; /* method NULL: POST with a body, else GET */
  int status;
  const char *json;   /* of the answer, see json_differs; NULL: any */
  const char *field;  /* "NAME: EXPRESSION" of a header line; NULL: none is looked at */
  const char *fields; /* of the request */
  const char *text;   /* an expression that the body's text has; NULL: any */
} exchange;
void expect_one(stack *s, const char *file, int line, const exchange *x);
void expect_all(stack *s, const char *file, int line, const exchange *list, size_t num);
#define expect(s, ...) expect_one(s, __FILE__, __LINE__, &(exchange){__VA_ARGS__})
#define expect_list(s, list) expect_all(s, __FILE__, __LINE__, list, sizeof(list) / sizeof *(list))

/* Checks the answer of a request that has ended. */
void expect_json(const call *c, const char *want);
json_t *answer_json(const call *c); /* the caller's */

/* The events of a stream that has ended, as an array of what each one's `data` is; the caller's. Checks the framing,
 * and the [DONE] at its end. */
json_t *stream_events(const call *c);
/* Joins the texts at a path such as "text" or "delta.content" of a choice's events, into a text of the caller's. */
char *stream_text(json_t *events, int choice, const char *path);

/* ---- the log ---- */

bool log_has(const char *expression); /* a line "LEVEL component: text" matches */
void log_clear(void);
const char *log_text(void);

#endif
