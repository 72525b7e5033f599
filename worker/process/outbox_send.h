/* SPDX-License-Identifier: Apache-2.0 */
/* The way of an outbox to the coordinator. */
#ifndef TRI_WORKER_PROCESS_OUTBOX_SEND_H
#define TRI_WORKER_PROCESS_OUTBOX_SEND_H

#include "comm/wire/replica.h"
#include "worker/schedule/scheduler.h"

/* Sends what an outbox holds of a replica's start (epoch): an encoder's results in messages of at most
 * TRI_WIRE_MAX_RESULT bytes or one result, then all tokens in one. Returns false where it is to be called again, since
 * the socket is full or memory is out: what has gone until then does not go again. Over a connection that is lost
 * nothing goes. */
bool tri_outbox_send(tri_outbox *o, uint64_t epoch, tri_status (*send)(void *ctx, tri_replica_msg *m), void *ctx);

#endif
