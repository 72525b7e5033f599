/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of a stream to its device: queues of them, each on a stream of the device's own, and what is done after each.
 * Copies of a queue end in their order, so that a queue is a ring whose oldest event alone is asked for. */
#include "offload/stream_impl.h"

static void put(tri_weight_stream *s, struct copies *q, int event, tri_stream stream, struct copy c) {
  int at = (q->first + q->count++) % TRI_PIECE_EVENTS;
  s->cfg.backend->ops.event_record(s->cfg.backend, event + at, stream);
  q->list[at] = c;
}

void tri_stream_copy_up(tri_weight_stream *s, char *to, const void *data, size_t bytes, struct copy c) {
  s->cfg.backend->ops.upload_rows(s->cfg.backend, to, bytes, data, bytes, bytes, 1);
  put(s, &s->up, TRI_EVENT_PIECE, TRI_STREAM_COPY, c);
}

void tri_stream_copy_across(tri_weight_stream *s, char *to, const void *data, size_t bytes, struct copy c) {
  s->cfg.backend->ops.peer_copy(s->cfg.backend, to, data, bytes);
  put(s, &s->across, TRI_EVENT_PEER, TRI_STREAM_PEER, c);
}

bool tri_stream_can_copy_up(const tri_weight_stream *s) {
  return s->up.count + s->cfg.reads.num_buffers < TRI_PIECE_EVENTS;
}

bool tri_stream_can_copy_across(const tri_weight_stream *s) { return s->across.count < TRI_PEER_EVENTS; }

/* A buffer that others read from, too, is given back when they have. `publishes` is a piece that the other devices copy
 * from this one's ring: its buffer is free once it is there. */
static void settle(tri_weight_stream *s, const struct copy *c) {
  if (c->publishes) tri_stream_publish(s, c->number, c->at);
  if (c->giver >= 0) tri_split_take(s->cfg.split, c->giver, c->number);
  if (c->giver >= 0 && s->cfg.rings) s->missing[c->part]--;
  if (c->slot >= 0 && (c->publishes || !s->pieces[c->slot].is_common)) tri_reader_release(s->reader, c->slot);
}

static tri_status retire(tri_weight_stream *s, struct copies *q, int event) {
  tri_backend *be = s->cfg.backend;
  while (q->count) {
    tri_status st = be->ops.event_query(be, event + q->first);
    if (st != TRI_OK) return st == TRI_AGAIN ? TRI_OK : st;
    settle(s, &q->list[q->first]);
    q->first = (q->first + 1) % TRI_PIECE_EVENTS;
    q->count--;
  }
  return TRI_OK;
}

tri_status tri_stream_retire_copies(tri_weight_stream *s) {
  TRI_CHECK(retire(s, &s->up, TRI_EVENT_PIECE));
  return retire(s, &s->across, TRI_EVENT_PEER);
}

/* Others may still want what has come to the ring. */
void tri_stream_end_copies(tri_weight_stream *s) {
  tri_backend *be = s->cfg.backend;
  int up = (s->up.first + s->up.count) % TRI_PIECE_EVENTS,
      across = (s->across.first + s->across.count) % TRI_PEER_EVENTS;
  be->ops.event_record(be, TRI_EVENT_PIECE + up, TRI_STREAM_COPY);
  be->ops.event_wait(be, TRI_EVENT_PIECE + up);
  if (!s->cfg.rings) return;
  be->ops.event_record(be, TRI_EVENT_PEER + across, TRI_STREAM_PEER);
  be->ops.event_wait(be, TRI_EVENT_PEER + across);
  tri_stream_retire_copies(s); /* what fails there has no caller to tell */
}
