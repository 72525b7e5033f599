/* SPDX-License-Identifier: Apache-2.0 */
/* The list is ordered by rounds, and within a round by arrival. A client's next task has the round after its last one
 * that waits, and no earlier one than the round being taken, so that a client that comes later has no turns to catch up
 * on. */
#include "client/gateway/task_queue.h"

#include <string.h>

enum { LONG_BODY = 256 * 1024 };

static void count(gw_task_queue *q, const gw_task *t, int sign) {
  q->len += (unsigned)sign;
  q->bytes += (size_t)sign * t->body.len;
}

/* Puts a task after `after`, or first. */
static void insert(gw_task_queue *q, gw_task *after, gw_task *t) {
  gw_task **at = after ? &after->next : &q->first;
  t->next = *at;
  *at = t;
  if (q->last == after) q->last = t;
  count(q, t, 1);
}

void gw_task_queue_put(gw_task_queue *q, gw_task *t) { insert(q, q->last, t); }

bool gw_task_is_long(const gw_task *t) { return t->body.len > LONG_BODY; }

gw_task *gw_task_queue_take(gw_task_queue *q, bool short_only) {
  gw_task *before = NULL, *t = q->first;
  for (; t && short_only && gw_task_is_long(t); t = t->next) before = t;
  if (!t) return NULL;
  if (before)
    before->next = t->next;
  else
    q->first = t->next;
  if (q->last == t) q->last = before;
  count(q, t, -1);
  if (t->round > q->round) q->round = t->round;
  return t;
}

bool gw_task_queue_up(gw_task_queue *q, gw_task *t) {
  uint64_t round = q->round;
  unsigned len = 0;
  size_t bytes = t->body.len;
  for (const gw_task *w = q->first; w; w = w->next) {
    if (strcmp(w->client, t->client) != 0) continue;
    if (w->round >= round) round = w->round + 1;
    bytes += w->body.len;
    len++;
  }
  if (len >= q->max_len - q->len || bytes > q->max_bytes - q->bytes) return false;
  t->round = round;
  gw_task *after = NULL;
  for (gw_task *w = q->first; w && w->round <= round; w = w->next) after = w;
  insert(q, after, t);
  return true;
}
