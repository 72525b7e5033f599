/* SPDX-License-Identifier: Apache-2.0 */
/* Work that takes long for the loop, such as rendering and tokenizing a chat, or reading a long body: threads do it.
 * Clients take turns, by the names of their keys or else by their addresses, and a bounded number of requests waits. */
#ifndef TRI_CLIENT_GATEWAY_TASKS_H
#define TRI_CLIENT_GATEWAY_TASKS_H

#include <stdatomic.h>

#include "client/gateway/gateway.h"
#include "text/tokenizer/tokenizer.h"

typedef struct gw_tasks gw_tasks;
typedef struct gw_task gw_task;

/* A member of an exchange's state. The thread has the task, and all that run uses, until ready is called. */
struct gw_task {
  gw_task *next;
  gw_exchange *x; /* that waits for it; NULL: none any more */
  tri_buf body;   /* of the request */
  bool plain;     /* it needs no tokenizer, and is run at once where the body is short */
  char client[GW_KEY_NAME];
  uint64_t round;   /* when it has its turn */
  tri_status st;    /* of run */
  tri_error err;    /* of run */
  bool running;     /* or it waits for a thread */
  atomic_bool stop; /* the client has gone: run may give up */
  uint64_t max_model_len;
  int64_t took_ns;                  /* run */
  gw_tasks *tasks;                  /* once it has been started */
  size_t kept;                      /* bytes: gw_task_keep */
  gw_task *kept_next, *kept_before; /* of those that keep something */
  /* In a thread. */
  tri_status (*run)(gw_task *t, tri_tokenizer_scratch *scratch, tri_error *err);
  /* In the loop's thread, with run's success, where the client still waits. */
  void (*ready)(gw_task *t);
  void (*free)(gw_task *t); /* the state that it belongs to */
};

/* Without a tokenizer (NULL) all tasks must be plain. */
tri_status gw_tasks_open(const tri_tokenizer *tokenizer, unsigned threads, gw_tasks **out);
void gw_tasks_close(gw_tasks *s);   /* NULL is fine; frees what has not ended */
int gw_tasks_fd(const gw_tasks *s); /* readable when one has ended */
/* Calls for some that have ended; with more of them the descriptor stays readable. */
void gw_tasks_take(gw_tasks *s);

/* Makes the exchange of a connection, with room for one job, and hands the task over. On failure the connection has
 * been answered and the state freed. kind->free must call gw_task_leave. */
void gw_task_start(gateway *g, http_conn *c, const gw_kind *kind, void *state, gw_task *t);
/* Says in run how many bytes the request keeps until its answer has ended, before it has them all: TRI_NO_MEMORY where
 * that is more than there is for it in addition to the others. */
tri_status gw_task_keep(gw_task *t, size_t bytes, tri_error *err);
size_t gw_tasks_kept(gw_tasks *s); /* by all of them */
/* The exchange goes. Frees the state, now or when the thread is done with it. */
void gw_task_leave(gw_task *t);

#endif
