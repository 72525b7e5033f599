/* SPDX-License-Identifier: Apache-2.0 */
/* Requests that are kept until their last answer, so that another connection can ask for the rest of it.
 *
 * What was asked is sent again under the same number: the request itself where nothing of its answer has been given
 * yet, else an attach from the beginning. What the program has had of the answer is then left out, and compared by a
 * hash with what it has had: a token comes once, and an answer is not continued by another one. A job that is not known
 * any more is asked for again where its seed is fixed; what has come then decides whether it is the same answer.
 * No clock and no connection: the caller has both. A connection that has lasted for some seconds shows that what was
 * asked over it does not end the coordinator. */
#ifndef TRI_CLIENT_KEPT_H
#define TRI_CLIENT_KEPT_H

#include "comm/wire/client.h"

typedef struct tri_kept tri_kept;

typedef enum tri_kept_verdict {
  KEPT_GIVE,            /* the message is for the program; it may have been changed */
  KEPT_GIVE_AND_CANCEL, /* likewise, and the job after it is of no use any more */
  KEPT_DROP,            /* it says nothing new */
  KEPT_LEAVING,         /* the coordinator ends, and the next one there continues its jobs */
} tri_kept_verdict;

#pragma GCC visibility push(hidden)
/* patience_ns: a request that was sent again over and over for so long, and has had no answer, is given up. */
tri_status tri_kept_create(int64_t patience_ns, tri_kept **out);
void tri_kept_destroy(tri_kept *k); /* NULL is fine */

/* Keeps a request that is to be sent, after those that are: m is what the bytes say. */
tri_status tri_kept_add(tri_kept *k, const tri_client_msg *m, const void *bytes, size_t len);
void tri_kept_forget(tri_kept *k, uint64_t id);
/* Returns the next one to be sent, in memory that lives until the next call; false: there is none. */
bool tri_kept_next(tri_kept *k, const void **bytes, size_t *len);
void tri_kept_sent(tri_kept *k); /* that one was */

/* Takes what a coordinator says. */
tri_kept_verdict tri_kept_take(tri_kept *k, tri_arena *arena, tri_server_msg *m);
/* The connection, which was there for so long, has ended: all are to be sent again. */
void tri_kept_lost(tri_kept *k, int64_t now_ns, int64_t lasted_ns);
/* No connection will come: all end with an error of these words. */
void tri_kept_end_all(tri_kept *k, const char *why);
/* Makes the error of a request that has ended so; false: there is none. */
bool tri_kept_take_ended(tri_kept *k, tri_server_msg *m);
bool tri_kept_has_ended(const tri_kept *k);
/* Returns why the coordinator ends, as it said last; empty: it did not. */
const char *tri_kept_reason(const tri_kept *k);
#pragma GCC visibility pop

#endif
