/* SPDX-License-Identifier: Apache-2.0 */
/* Connections: who is at their ends, and messages on their way. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "tests/sim/sim.h"

/* Bytes of a peer: what it is, and numbers. */
typedef struct address {
  char kind; /* 'c' or 'g' */
  uint32_t number;
  uint64_t line;
} address;

static tri_peer peer_of(address a, int owner) {
  tri_peer p = {.len = 1 + sizeof a.number + sizeof a.line};
  p.bytes[0] = (uint8_t)a.kind;
  memcpy(p.bytes + 1, &a.number, sizeof a.number);
  memcpy(p.bytes + 1 + sizeof a.number, &a.line, sizeof a.line);
  p.owner.kind = TRI_OWNER_KEY;
  p.owner.bytes[0] = (uint8_t)a.kind;
  memcpy(p.owner.bytes + 1, &owner, sizeof owner);
  return p;
}

static address address_of(const tri_peer *p) {
  address a = {.kind = (char)p->bytes[0]};
  memcpy(&a.number, p->bytes + 1, sizeof a.number);
  memcpy(&a.line, p->bytes + 1 + sizeof a.number, sizeof a.line);
  return a;
}

tri_peer network_client(int client, int index) { return peer_of((address){'c', (uint32_t)index, 0}, client); }
tri_peer network_replica(uint32_t replica, uint64_t line) {
  return peer_of((address){'g', replica, line}, (int)replica);
}

int network_client_of(const tri_peer *p) {
  address a = address_of(p);
  return a.kind == 'c' ? (int)a.number : -1;
}

bool network_replica_of(const tri_peer *p, uint32_t *replica, uint64_t *line) {
  address a = address_of(p);
  *replica = a.number;
  *line = a.line;
  return a.kind == 'g';
}

/* Mostly a fraction of a millisecond, now and then much more. */
static int64_t delay(sim *s) {
  if (rng_chance(s, 2)) return rng_range(s, 0, 300) * MS;
  return rng_range(s, 20, 3000) * 1000;
}

void network_send(sim *s, way *w, event e, const tri_buf *bytes) {
  e.at = s->now + delay(s);
  if (e.at < w->held_ns) e.at = w->held_ns;
  if (e.at < w->last_ns) e.at = w->last_ns;
  w->last_ns = e.at;
  e.len = bytes->len;
  e.data = tri_malloc(bytes->len, 1);
  if (!e.data) abort();
  memcpy(e.data, bytes->data, bytes->len);
  events_add(s, e);
}

static void client_message(sim *s, const event *e) {
  client_connection *c = &s->connections[e->who];
  tri_client_msg m;
  tri_error err = {0};
  uint64_t id = 0;
  if (c->net.closed) return;
  tri_arena_reset(s->arena);
  if (tri_client_msg_unpack(e->data, e->len, s->arena, &m, &id, &err) != TRI_OK) {
    fail(s, "a client's message does not unpack: %s", err.message);
    return;
  }
  request *r = m.op == TRI_OP_SUBMIT ? request_of_seed(s, m.submit.sampling.seed) : NULL;
  if (r) s->submits++;
  if (r) s->life_submits++;
  if (r && !r->submitted_ns) r->submitted_ns = s->now;
  if (r) r->life = s->lives.count;
  tri_peer from = network_client(c->client, (int)e->who);
  tri_core_client(s->core, world_clock(s), &from, &m);
}

void network_client_says(sim *s, int connection, const tri_client_msg *m) {
  if (tri_client_msg_pack(m, &s->buf) != TRI_OK)
    fail(s, "a client's message does not pack");
  else
    network_send(s, &s->connections[connection].net.in,
                 (event){.run = client_message, .who = (uint32_t)connection, .inside = true}, &s->buf);
}

static void replica_message(sim *s, const event *e) {
  const fake_replica *g = &s->replicas[e->who];
  tri_replica_msg m;
  tri_error err = {0};
  tri_arena_reset(s->arena);
  if (tri_replica_msg_unpack(e->data, e->len, s->arena, &m, &err) != TRI_OK) {
    fail(s, "a group's message does not unpack: %s", err.message);
    return;
  }
  if (e->number == g->cut_line) return;
  tri_peer from = network_replica(e->who, e->number);
  tri_recorder_came_as(s->keeping.recorder, e->data, e->len);
  tri_core_worker(s->core, world_clock(s), &from, &m);
  tri_recorder_came_as(s->keeping.recorder, NULL, 0);
}

void network_says_as(sim *s, uint32_t replica, uint64_t line, way *w, const tri_replica_msg *m) {
  if (tri_replica_msg_pack(m, &s->buf) != TRI_OK)
    fail(s, "a group's message does not pack");
  else
    network_send(s, w, (event){.run = replica_message, .who = replica, .number = line, .inside = true}, &s->buf);
}

void network_replica_says(sim *s, uint32_t replica, const tri_replica_msg *m) {
  fake_replica *g = &s->replicas[replica];
  if (g->line) network_says_as(s, replica, g->line, &g->net.in, m);
}
