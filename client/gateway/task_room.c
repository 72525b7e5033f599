/* SPDX-License-Identifier: Apache-2.0 */
/* A list of the tasks that keep something, for the sum of one client: it is walked only where half of the room is
 * taken. */
#include "client/gateway/task_room.h"

#include <string.h>

static void leave(gw_task_room *r, gw_task *t) {
  if (!t->kept) return;
  if (t->kept_before)
    t->kept_before->kept_next = t->kept_next;
  else
    r->first = t->kept_next;
  if (t->kept_next) t->kept_next->kept_before = t->kept_before;
  r->bytes -= t->kept;
  t->kept = 0;
}

/* One client may have as much as is free for all, so that there is always room for one who has nothing. */
static bool has_room(const gw_task_room *r, const gw_task *t, size_t bytes) {
  size_t own = bytes;
  if (bytes > r->max_bytes - r->bytes) return false;
  if (r->bytes + bytes <= r->max_bytes / 2) return true; /* it is so even for a client that has it all */
  for (const gw_task *o = r->first; o; o = o->kept_next)
    if (!strcmp(o->client, t->client)) own += o->kept;
  return own <= r->max_bytes - r->bytes;
}

bool gw_task_room_set(gw_task_room *r, gw_task *t, size_t bytes) {
  if (bytes && bytes <= t->kept) {
    r->bytes -= t->kept - bytes;
    t->kept = bytes;
    return true;
  }
  leave(r, t);
  if (!bytes) return true;
  if (!has_room(r, t, bytes)) return false;
  t->kept = bytes;
  t->kept_before = NULL;
  t->kept_next = r->first;
  if (r->first) r->first->kept_before = t;
  r->first = t;
  r->bytes += bytes;
  return true;
}
