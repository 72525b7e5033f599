/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes that are read once for several ranks: a stream's side of its split. Every rank walks over the same list of
 * extents with a reader, so that the number of a piece is known on all sides without a message: a rank's pieces are
 * counted as it begins them here (num_begun), and as they are met in the walk over the parts there (peer.number).
 *
 * A piece of this rank's: begun (held) -> published, when its bytes are there -> taken by all, which frees its buffer,
 * or with rings its place. Of another rank's: missing -> found -> copied -> taken. */
#include <string.h>

#include "offload/stream_impl.h"
#include "base/mem.h"

/* A rank whose disk stands still says so itself. */
static const int64_t MORE_SILENCE_NS = 2000000000;

static int own_rank(const tri_weight_stream *s) { return tri_split_rank(s->cfg.split); }

bool tri_stream_is_others(const tri_weight_stream *s, const tri_stream_extent *x) {
  return s->cfg.split && x->reader && x->reader != own_rank(s) + 1;
}

bool tri_stream_is_for_all(const tri_weight_stream *s, const tri_stream_extent *x) {
  return s->cfg.split && x->reader == own_rank(s) + 1;
}

/* ---- this rank's pieces ---- */

bool tri_stream_split_can_hold(const tri_weight_stream *s) { return s->num_begun - s->first_held < TRI_SPLIT_PIECES; }

uint64_t tri_stream_split_hold(tri_weight_stream *s, int slot) {
  *tri_stream_held(s, s->num_begun) = (struct held){.slot = slot};
  return s->num_begun++;
}

/* A device's own copy of a piece is a use of its buffer, too. */
static bool is_being_copied(const tri_weight_stream *s, int slot) {
  for (int i = 0; i < s->up.count; i++)
    if (s->up.list[(s->up.first + i) % TRI_PIECE_EVENTS].slot == slot) return true;
  return false;
}

void tri_stream_split_retire(tri_weight_stream *s) {
  for (; s->first_held < s->num_begun; s->first_held++) {
    const struct held *h = tri_stream_held(s, s->first_held);
    if (!h->is_published || !tri_split_is_taken(s->cfg.split, s->first_held)) return;
    if (s->cfg.rings) continue;
    if (is_being_copied(s, h->slot)) return;
    tri_reader_release(s->reader, h->slot);
  }
}

void tri_stream_split_end(tri_weight_stream *s) {
  if (s->cfg.split) s->ends[tri_stream_part_at(s, s->next.position)] = s->num_begun;
}

/* ---- other ranks' ---- */

void tri_stream_split_begin(tri_weight_stream *s) {
  if (!s->cfg.split) return;
  int part = tri_stream_part_at(s, s->next.position);
  for (int i = 0; i < s->cfg.parts[part].num_extents; i++)
    s->missing[part] += tri_stream_is_others(s, &s->cfg.parts[part].extents[i]);
}

/* Goes on to the rank's next piece, from this extent on. */
static void seek(const tri_weight_stream *s, struct peer *p, int rank) {
  for (;; p->extent++) {
    const tri_stream_part *part = &s->cfg.parts[tri_stream_part_at(s, p->position)];
    if (p->extent >= part->num_extents) {
      p->position++;
      p->extent = -1;
    } else if (part->extents[p->extent].reader == rank + 1) {
      return;
    }
  }
}

/* A place in the ring is there for what has begun. */
static bool has_begun(const tri_weight_stream *s, uint64_t position) {
  return position < s->next.position || (position == s->next.position && s->next.begun);
}

static bool has_copy(const tri_weight_stream *s) {
  if (s->cfg.rings) return tri_stream_can_copy_across(s);
  return !s->cfg.backend || tri_stream_can_copy_up(s);
}

/* Returns where a rank's piece lies; NULL: not where its pieces can. */
static const char *find_bytes(const tri_weight_stream *s, int rank, size_t at, size_t bytes) {
  const tri_stream_ring *ring = s->cfg.rings ? &s->cfg.rings[rank] : NULL;
  size_t room = ring ? ring->bytes : tri_split_buffer_bytes(s->cfg.split);
  const char *first = ring ? ring->memory : tri_split_buffers(s->cfg.split, rank);
  return bytes <= room && at <= room - bytes ? first + at : NULL;
}

static void put(tri_weight_stream *s, int rank, const tri_stream_extent *x, const char *data) {
  struct peer *p = &s->peers[rank];
  int part = tri_stream_part_at(s, p->position);
  char *to = s->cfg.ring + s->cfg.places[part].at + x->at;
  struct copy c = {.slot = -1, .giver = rank, .part = part, .number = p->number};
  if (s->cfg.rings) {
    tri_stream_copy_across(s, to, data, x->bytes, c); /* the host sees its end: the walk's streams know nothing of it */
  } else if (s->cfg.backend) {
    tri_stream_copy_up(s, to, data, x->bytes, c);
    s->missing[part]--;
  } else {
    memcpy(to, data, x->bytes);
    tri_split_take(s->cfg.split, rank, p->number);
    s->missing[part]--;
  }
  atomic_fetch_add_explicit(&s->bytes, x->bytes, memory_order_relaxed);
  atomic_fetch_add_explicit(&s->peer, x->bytes, memory_order_release); /* never seen to be more than bytes */
}

/* Notes whether the rank is alive. */
static bool is_silent(tri_weight_stream *s, int rank) {
  struct peer *p = &s->peers[rank];
  uint64_t beats = tri_split_beats(s->cfg.split, rank);
  int64_t now = tri_now_ns();
  if (beats != p->beats || !beats) { /* one that has not begun makes its pack, which takes what it takes */
    p->beats = beats;
    p->seen_ns = now;
  }
  return now - p->seen_ns > s->silence_ns;
}

static tri_status lose(tri_weight_stream *s, int rank, const char *why) {
  return tri_fail(&s->err, TRI_PEER_LOST, "split",
                  "rank %d of the %d that read streamed weights for each other on this host %s", rank,
                  tri_split_size(s->cfg.split), why);
}

/* A rank has not done what a position needs: that is a failure when the walk can get no further without it. */
static tri_status miss(tri_weight_stream *s, int rank, uint64_t position, tri_status why) {
  bool silent = is_silent(s, rank);
  if (position >= atomic_load_explicit(&s->wanted, memory_order_relaxed)) return TRI_OK;
  if (why == TRI_PEER_LOST) return lose(s, rank, "has left or failed");
  return silent ? lose(s, rank, "shows no sign of life any more") : TRI_OK;
}

/* In the order of its numbers, as `taken` is a count: a piece that comes early waits for those before it. */
static tri_status take_from(tri_weight_stream *s, int rank) {
  struct peer *p = &s->peers[rank];
  while (p->is_reader && has_begun(s, p->position) && has_copy(s)) {
    const tri_stream_extent *x = &s->cfg.parts[tri_stream_part_at(s, p->position)].extents[p->extent];
    size_t at;
    tri_status st = tri_split_find(s->cfg.split, rank, p->number, &at);
    if (st != TRI_OK) return miss(s, rank, p->position, st);
    const char *data = find_bytes(s, rank, at, x->bytes);
    if (!data) return lose(s, rank, "has put something else there");
    put(s, rank, x, data);
    p->number++;
    p->extent++;
    seek(s, p, rank);
  }
  return TRI_OK;
}

/* The last piece of what lay there before, and all before it. */
tri_status tri_stream_split_look(tri_weight_stream *s, uint64_t position, bool *room) {
  uint64_t back = tri_stream_back(s, position);
  *room = true;
  if (!s->cfg.rings || position < back) return TRI_OK;
  uint64_t end = s->ends[tri_stream_part_at(s, position - back)];
  *room = end <= s->first_held;
  for (int r = 0; !*room && r < tri_split_size(s->cfg.split); r++)
    if (r != own_rank(s) && !tri_split_has_taken(s->cfg.split, r, end - 1)) TRI_CHECK(miss(s, r, position, TRI_AGAIN));
  return TRI_OK;
}

tri_status tri_stream_split_take(tri_weight_stream *s) {
  tri_status st = TRI_OK;
  if (!s->cfg.split) return TRI_OK;
  tri_split_beat(s->cfg.split);
  for (int r = 0; st == TRI_OK && r < tri_split_size(s->cfg.split); r++)
    if (r != own_rank(s)) st = take_from(s, r);
  return st;
}

/* ---- from nothing and back ---- */

static tri_status check(const tri_weight_stream *s, tri_error *err) {
  const tri_weight_stream_config *c = &s->cfg;
  size_t bytes = tri_reader_memory_bytes(&c->reads);
  bool fits = c->reads.memory == tri_split_buffers(c->split, own_rank(s)) && bytes &&
              bytes <= tri_split_buffer_bytes(c->split) && c->reads.num_buffers <= TRI_SPLIT_PIECES &&
              (!c->backend || 2 * c->reads.num_buffers <= TRI_PIECE_EVENTS);
  for (int i = 0; i < c->num_parts; i++)
    for (int k = 0; k < c->parts[i].num_extents; k++) {
      const tri_stream_extent *x = &c->parts[i].extents[k];
      fits &= x->reader >= 0 && x->reader <= tri_split_size(c->split);
      fits &= !x->reader || (x->bytes && (x->home ? c->rings != NULL : x->bytes <= c->reads.piece_bytes));
    }
  if (fits) return TRI_OK;
  return tri_fail(err, TRI_INVALID_ARGUMENT, "split", "a stream's pieces or buffers are not those of its split");
}

static void find_peers(tri_weight_stream *s) {
  for (int i = 0; i < s->cfg.num_parts; i++)
    for (int k = 0; k < s->cfg.parts[i].num_extents; k++) {
      int reader = s->cfg.parts[i].extents[k].reader;
      if (reader) s->peers[reader - 1].is_reader = true;
    }
  for (int r = 0; r < tri_split_size(s->cfg.split); r++)
    if (s->peers[r].is_reader) seek(s, &s->peers[r], r);
}

tri_status tri_stream_split_create(tri_weight_stream *s, tri_error *err) {
  if (!s->cfg.split) return TRI_OK;
  TRI_CHECK(check(s, err));
  s->missing = tri_calloc((size_t)s->cfg.num_parts, sizeof *s->missing);
  s->ends = tri_calloc((size_t)s->cfg.num_parts, sizeof *s->ends);
  if (!s->missing || !s->ends)
    return tri_fail(err, TRI_NO_MEMORY, "io", "no memory for a stream of %d parts", s->cfg.num_parts);
  s->mover = tri_split_waker(s->cfg.split);
  s->silence_ns = (int64_t)s->cfg.reads.timeout_ms * 1000000 + MORE_SILENCE_NS;
  find_peers(s);
  return TRI_OK;
}

void tri_stream_split_destroy(tri_weight_stream *s) {
  if (s->cfg.split) tri_split_leave(s->cfg.split);
  tri_free(s->missing);
  tri_free(s->ends);
}
