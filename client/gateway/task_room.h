/* SPDX-License-Identifier: Apache-2.0 */
/* The memory that requests keep from when they were read until their answers have ended: a limit of all together. */
#ifndef TRI_CLIENT_GATEWAY_TASK_ROOM_H
#define TRI_CLIENT_GATEWAY_TASK_ROOM_H

#include "client/gateway/tasks.h"

typedef struct gw_task_room {
  gw_task *first; /* of those that keep something */
  size_t bytes, max_bytes;
} gw_task_room;

/* A task keeps so many bytes, in place of what it kept. Returns false where its client would have more than is free for
 * all: it keeps nothing then. */
bool gw_task_room_set(gw_task_room *r, gw_task *t, size_t bytes);

#endif
