/* SPDX-License-Identifier: Apache-2.0 */
/* Tasks that wait, whose clients take turns. */
#ifndef TRI_CLIENT_GATEWAY_TASK_QUEUE_H
#define TRI_CLIENT_GATEWAY_TASK_QUEUE_H

#include "client/gateway/tasks.h"

typedef struct gw_task_queue {
  gw_task *first, *last;
  unsigned len, max_len;
  size_t bytes, max_bytes; /* of their bodies */
  uint64_t round;          /* of the last that was taken */
} gw_task_queue;

/* Puts a task where its client has its next turn: in each round every client has one. Returns false where the client
 * has as much in the queue as is free, or more. */
bool gw_task_queue_up(gw_task_queue *q, gw_task *t);
void gw_task_queue_put(gw_task_queue *q, gw_task *t); /* at the end, without limits */
/* Takes the first task; with short_only the first whose body is not long. NULL: there is none. */
gw_task *gw_task_queue_take(gw_task_queue *q, bool short_only);
bool gw_task_is_long(const gw_task *t);

#endif
