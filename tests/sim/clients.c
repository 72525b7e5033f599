/* SPDX-License-Identifier: Apache-2.0 */
/* Clients: they submit, read slowly, cancel, vanish, and come back with another connection. */
#include <string.h>

#include "tests/sim/sim.h"

static int open_connection(sim *s, int client) {
  if (s->num_connections == MAX_CONNECTIONS) return -1;
  s->connections[s->num_connections] = (client_connection){.client = client};
  return s->num_connections++;
}

void clients_open(sim *s) {
  s->num_clients = (int)rng_range(s, 2, 6);
  for (int i = 0; i < s->num_clients; i++) {
    open_connection(s, i);
    events_add(
        s, (event){.at = s->now + rng_range(s, 0, 1500) * MS, .run = clients_act, .who = (uint32_t)i, .lasts = true});
  }
}

/* The newest connection of a client, which is open. */
static int connection_of(const sim *s, int client) {
  int i = s->num_connections - 1;
  while (i >= 0 && s->connections[i].client != client) i--;
  return i;
}

static stream *open_stream(sim *s, int request, int connection) {
  if (s->num_streams == MAX_STREAMS) return NULL;
  stream *st = &s->streams[s->num_streams++];
  *st = (stream){.request = request, .connection = connection, .id = ++s->connections[connection].next_id};
  return st;
}

static void submit(sim *s, int connection) {
  if (s->num_requests == MAX_REQUESTS || s->calm) return;
  stream *st = open_stream(s, s->num_requests, connection);
  if (!st) return;
  request *r = &s->requests[s->num_requests++];
  request_draw(s, r);
  tri_client_msg m = {.op = TRI_OP_SUBMIT, .id = st->id, .submit = r->submit};
  network_client_says(s, connection, &m);
}

/* A stream of the client's that has been accepted and is the last one of its request; NULL: it has none. */
static stream *some_stream(sim *s, int client) {
  if (!s->num_streams) return NULL;
  int first = (int)rng_range(s, 0, s->num_streams - 1);
  for (int k = 0; k < s->num_streams; k++) {
    stream *st = &s->streams[(first + k) % s->num_streams];
    if (s->connections[st->connection].client == client && st->accepted && !st->former) return st;
  }
  return NULL;
}

static void attach(sim *s, stream *from, int connection) {
  stream *st = from ? open_stream(s, from->request, connection) : NULL;
  if (!st) return;
  const request *r = &s->requests[st->request];
  tri_client_msg m = {.op = TRI_OP_ATTACH, .id = st->id, .attach = {.request_id = r->submit.request_id}};
  st->attaches = true;
  st->ahead = from->ahead;
  from->former = true;
  if (r->submit.sampling.n == 1 && rng_chance(s, 60)) m.attach.offset = st->num[0] = from->num[0];
  if (m.attach.offset) st->num_scored = r->submit.num_token_ids; /* whoever has tokens has had those */
  s->attaches++;
  network_client_says(s, connection, &m);
}

static void cancel(sim *s, int client, int connection) {
  const stream *st = some_stream(s, client);
  if (!st) return;
  tri_client_msg m = {.op = TRI_OP_CANCEL, .id = ++s->connections[connection].next_id};
  m.cancel.has_request_id = true;
  m.cancel.request_id = s->requests[st->request].submit.request_id;
  s->requests[st->request].cancelled = true;
  network_client_says(s, connection, &m);
}

static void drop(request *r) {
  r->dropped |= r->submit.on_disconnect == TRI_DISCONNECT_CANCEL;
  r->cancelled |= r->dropped;
}

/* The connection goes with its streams, and another one comes. */
static void vanish(sim *s, int client, int connection) {
  if (open_connection(s, client) < 0) return;
  s->connections[connection].net.closed = true;
  s->vanished++;
  for (int i = 0; i < s->num_streams; i++) {
    stream *st = &s->streams[i];
    request *r = &s->requests[st->request];
    if (st->connection != connection) continue;
    st->gone = true;
    drop(r);
  }
}

/* ---- with the coordinator ---- */

static void give_up(sim *s, stream *st) {
  request *r = &s->requests[st->request];
  st->former = true;
  drop(r);
}

static void submit_again(sim *s, stream *from, int connection) {
  stream *st = open_stream(s, from->request, connection);
  if (!st) return;
  tri_client_msg m = {.op = TRI_OP_SUBMIT, .id = st->id, .submit = s->requests[st->request].submit};
  from->former = true;
  network_client_says(s, connection, &m);
}

void clients_lose_all(sim *s) {
  for (int i = 0; i < s->num_connections; i++) s->connections[i].net.closed = true;
  for (int i = 0; i < s->num_streams; i++) {
    stream *st = &s->streams[i];
    st->lost |= !st->gone && !st->former;
    st->gone = true;
  }
}

/* Some have had enough, others attach or submit again, also what has ended for them. */
static void come_back(sim *s, const event *e) {
  int client = (int)e->who, connection = connection_of(s, client), before = s->num_streams;
  if (!s->core || !s->connections[connection].net.closed) return;
  connection = open_connection(s, client);
  for (int i = 0; i < before; i++) {
    stream *st = &s->streams[i];
    if (!st->lost || st->former || s->connections[st->connection].client != client) continue;
    int64_t what = connection < 0 ? 100 : rng_range(s, 1, 100);
    if (what <= 50 && st->accepted)
      attach(s, st, connection);
    else if (what <= 85)
      submit_again(s, st, connection);
    else
      give_up(s, st);
  }
}

void clients_come_back(sim *s) {
  for (int i = 0; i < s->num_clients; i++)
    events_add(
        s,
        (event){.at = s->now + rng_range(s, 0, 100) * rng_range(s, 0, 100) * MS, .run = come_back, .who = (uint32_t)i});
}

void clients_act(sim *s, const event *e) {
  int client = (int)e->who, connection = connection_of(s, client);
  if (s->calm) return;
  int64_t what = rng_range(s, 1, 100);
  if (s->connections[connection].net.closed)
    what = 0; /* it waits for the coordinator */
  else if (what <= 68)
    submit(s, connection);
  else if (what <= 74)
    cancel(s, client, connection);
  else if (what <= 80)
    vanish(s, client, connection);
  else if (what <= 90)
    attach(s, some_stream(s, client), connection);
  else
    s->connections[connection].net.out.full_ns = s->now + rng_range(s, 10, 4000) * MS;
  events_add(s, (event){.at = s->now + rng_range(s, 20, 1500) * MS, .run = clients_act, .who = e->who, .lasts = true});
}

stream *clients_stream(sim *s, int connection, uint64_t id) {
  for (int i = 0; i < s->num_streams; i++)
    if (s->streams[i].connection == connection && s->streams[i].id == id) return &s->streams[i];
  return NULL;
}

void clients_receive(sim *s, const event *e) {
  static tri_server_msg m; /* it has room for a whole status */
  tri_error err = {0};
  if (s->connections[e->who].net.closed) return;
  tri_arena_reset(s->arena);
  if (tri_server_msg_unpack(e->data, e->len, s->arena, &m, &err) != TRI_OK) {
    fail(s, "a reply does not unpack: %s", err.message);
    return;
  }
  stream *st = clients_stream(s, (int)e->who, m.id);
  if (st) check_reply(s, st, &m); /* else it is the answer to a cancellation */
}
