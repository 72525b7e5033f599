/* SPDX-License-Identifier: Apache-2.0 */
/* Devices of a host that copy streamed weights from each other's rings.
 *
 * Each rank copies its share of what is common over its own link and takes the rest from the others' rings by peer
 * access. The handshake is by answers in the split's shared memory, one for each stage of it (TRI_OFFLOAD_SHOWS_RING,
 * ...): every rank answers, also with no, and all continue alike. At the end a ring is freed when all others have let
 * go of it, or never. */
#include <string.h>

#include "base/log.h"
#include "base/wait.h"
#include "runtime/engine/offload_impl.h"

enum { CLOSING_MS = 3000 }; /* that the others have to end their copies */

/* A rank shows it to the others. */
struct card {
  uint64_t bytes;
  tri_peer_handle ring;
};
_Static_assert(sizeof(struct card) <= TRI_SPLIT_CARD_BYTES, "a ring's card has no room");

static tri_status lose(int rank, tri_error *err) {
  return tri_fail(err, TRI_PEER_LOST, "offload_weights",
                  "rank %d of those that stream together on this host has failed", rank);
}

/* For who watches the start a wait is progress. */
tri_status tri_offload_ask_all(const tri_offload *o, int stage, const atomic_bool *stop, bool *all, tri_error *err) {
  const tri_wait_policy policy = {.stop = stop};
  tri_wait wait = tri_wait_begin(&policy, TRI_NEVER);
  *all = true;
  for (int r = 0; r < tri_split_size(o->split); r++) {
    bool yes = false;
    tri_status st;
    while ((st = tri_split_answer_of(o->split, r, stage, &yes)) == TRI_AGAIN) {
      __atomic_fetch_add(&o->backend->loaded, 1, __ATOMIC_RELAXED);
      if (!tri_split_is_alive(o->split, r)) return lose(r, err);
      TRI_CHECK(tri_wait_pause(&wait));
    }
    if (st != TRI_OK) return lose(r, err);
    *all &= yes;
  }
  return TRI_OK;
}

static void close_all(tri_offload *o, tri_stream_ring *rings) {
  int own = tri_split_rank(o->split);
  for (int r = 0; rings && r < tri_split_size(o->split); r++)
    if (r != own && rings[r].memory) o->backend->ops.peer_close(o->backend, (void *)rings[r].memory);
  tri_free(rings);
}

/* After the zeroes that were put there. */
static bool show(const tri_offload *o, char *ring) {
  struct card *card = tri_split_card(o->split, tri_split_rank(o->split));
  card->bytes = o->tiers->ring_bytes;
  if (o->backend->ops.stream_sync(o->backend) != TRI_OK) return false;
  return o->backend->ops.peer_show(o->backend, ring, &card->ring) == TRI_OK;
}

static bool open_all(const tri_offload *o, tri_stream_ring *rings) {
  for (int r = 0; r < tri_split_size(o->split); r++) {
    const struct card *card = tri_split_card(o->split, r);
    void *memory = NULL;
    if (r == tri_split_rank(o->split)) continue;
    if (o->backend->ops.peer_open(o->backend, &card->ring, &memory) != TRI_OK) return false;
    rings[r] = (tri_stream_ring){.memory = memory, .bytes = card->bytes};
  }
  return true;
}

tri_status tri_offload_open_rings(tri_offload *o, char *ring, const atomic_bool *stop, tri_error *err) {
  bool all = false;
  tri_stream_ring *rings = tri_calloc((size_t)tri_split_size(o->split), sizeof *rings);
  if (!rings) return tri_fail(err, TRI_NO_MEMORY, "offload_weights", "no memory to stream weights");
  tri_split_answer(o->split, TRI_OFFLOAD_SHOWS_RING, show(o, ring));
  tri_status st = tri_offload_ask_all(o, TRI_OFFLOAD_SHOWS_RING, stop, &all, err);
  if (st == TRI_OK) tri_split_answer(o->split, TRI_OFFLOAD_HAS_RINGS, all && open_all(o, rings));
  if (st == TRI_OK) st = tri_offload_ask_all(o, TRI_OFFLOAD_HAS_RINGS, stop, &all, err);
  if (st == TRI_OK && all)
    o->rings = rings;
  else
    close_all(o, rings);
  return st;
}

/* A process that has ended lets go as well. */
static bool has_let_go(const tri_offload *o, int rank) {
  bool yes;
  return tri_split_answer_of(o->split, rank, TRI_OFFLOAD_LETS_GO, &yes) == TRI_OK ||
         !tri_split_is_alive(o->split, rank);
}

bool tri_offload_close_rings(tri_offload *o) {
  const tri_wait_policy policy = {0};
  tri_wait wait = tri_wait_begin(&policy, tri_deadline_after_ms(CLOSING_MS));
  tri_status st = TRI_OK;
  if (!o->rings) return true;
  close_all(o, o->rings);
  o->rings = NULL;
  tri_split_answer(o->split, TRI_OFFLOAD_LETS_GO, true);
  for (int r = 0; st == TRI_OK && r < tri_split_size(o->split); r++)
    while (st == TRI_OK && !has_let_go(o, r)) st = tri_wait_pause(&wait);
  if (st != TRI_OK)
    tri_log(TRI_LOG_WARN, "engine", "another rank of this host has this one's ring of weights open: it is never freed");
  return st == TRI_OK;
}
