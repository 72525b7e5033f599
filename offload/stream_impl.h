/* SPDX-License-Identifier: Apache-2.0 */
/* The state of a stream, and what its thread does about bytes that are read once for several ranks. */
#ifndef TRI_OFFLOAD_STREAM_IMPL_H
#define TRI_OFFLOAD_STREAM_IMPL_H

#include <pthread.h>
#include <sys/stat.h>

#include "offload/stream.h"
#include "base/wait.h"

/* A read under way. */
struct piece {
  int part;
  char *to; /* in the ring */
  size_t bytes;
  bool in_place;
  bool is_common;  /* for all ranks of the split, */
  uint64_t number; /* and its number there */
};

/* The next bytes to be read. */
struct cursor {
  uint64_t position;
  bool begun;
  int extent;
  size_t done; /* bytes of the extent */
};

/* A copy to a device under way, and what becomes of it. */
struct copy {
  int slot;       /* of the reader, free after it; -1: of none */
  bool publishes; /* it brings a piece of this rank's to where the others' devices find it */
  int giver;      /* of whom it takes a piece; -1: of none */
  int part;
  uint64_t number; /* of the piece */
  size_t at;       /* in the ring */
};

/* A queue of them: entry i has event `event` + i. */
struct copies {
  struct copy list[TRI_PIECE_EVENTS];
  int first, count;
};

/* The next of another rank's pieces, and how it is. */
struct peer {
  bool is_reader; /* it reads anything */
  uint64_t position;
  int extent; /* of the position's part */
  uint64_t number;
  uint64_t beats;
  int64_t seen_ns; /* when it last showed life */
};

/* A piece of this rank's that others need. */
struct held {
  int slot; /* of the reader; -1: none has it */
  bool is_published;
};

struct tri_weight_stream {
  tri_weight_stream_config cfg;
  tri_reader *reader;
  struct stat *seen;        /* [num_files] at the start */
  struct piece *pieces;     /* [num_buffers] of the reader */
  int *under_way;           /* [num_parts] reads of the part */
  struct copies up, across; /* to a device: from the host, and from other devices */
  struct cursor next;
  /* with a split */
  int *missing; /* [num_parts] pieces of other ranks', of a position that has begun */
  struct peer peers[TRI_SPLIT_MAX_RANKS];
  struct held held[TRI_SPLIT_PIECES]; /* piece n: entry n % TRI_SPLIT_PIECES */
  uint64_t first_held, num_begun;     /* of this rank's pieces: numbers */
  uint64_t *ends;                     /* [num_parts] num_begun after the last load of the part */
  int64_t silence_ns;                 /* after which a rank is taken for lost */

  uint64_t landed;                    /* the mover's own: positions that are whole */
  _Atomic uint64_t arrived, released; /* positions: those below are whole, or done with */
  _Atomic uint64_t wanted;            /* positions: the walk waits for the last of them */
  tri_waker own_mover, *mover, walk;
  pthread_t thread;
  bool has_thread;
  atomic_bool stop;
  atomic_int damaged; /* file; -1: none */
  atomic_int failed;  /* tri_status, set after err */
  tri_error err;
  /* of the walk */
  uint64_t acquired;
  int64_t created, pass_start;
  _Atomic uint64_t bytes, read, peer, stall_ns, passes, pass_ns;
};

_Static_assert((int)TRI_PIECE_EVENTS == (int)TRI_PEER_EVENTS, "both queues are as long");

static inline int tri_stream_part_at(const tri_weight_stream *s, uint64_t position) {
  return (int)(position % (uint64_t)s->cfg.num_parts);
}

/* Returns how far back the position lies whose release lets this one come. A device has so many events for positions
 * that are there. */
static inline uint64_t tri_stream_back(const tri_weight_stream *s, uint64_t position) {
  int back = s->cfg.places[tri_stream_part_at(s, position)].back;
  return (uint64_t)(s->cfg.backend && back > TRI_PART_EVENTS ? TRI_PART_EVENTS : back);
}

/* Returns the entry of a piece of this rank's that others need. */
static inline struct held *tri_stream_held(tri_weight_stream *s, uint64_t number) {
  return &s->held[number % TRI_SPLIT_PIECES];
}

/* Tells the other ranks that a piece of this one's is there, at so many bytes of its buffers or its ring. */
static inline void tri_stream_publish(tri_weight_stream *s, uint64_t number, size_t at) {
  tri_stream_held(s, number)->is_published = true;
  tri_split_publish(s->cfg.split, number, at);
}

/* stream_copies.c, of a device: has it copy bytes into the ring, after the copies so far, from the host's memory or
 * from another device's. */
void tri_stream_copy_up(tri_weight_stream *s, char *to, const void *data, size_t bytes, struct copy c);
void tri_stream_copy_across(tri_weight_stream *s, char *to, const void *data, size_t bytes, struct copy c);
/* Returns whether there is room for one more; from the host in addition to those that reads lead to. */
bool tri_stream_can_copy_up(const tri_weight_stream *s);
bool tri_stream_can_copy_across(const tri_weight_stream *s);
/* Does what is to be done after the copies that have ended. */
tri_status tri_stream_retire_copies(tri_weight_stream *s);
/* Waits for those under way, which read what is about to go. */
void tri_stream_end_copies(tri_weight_stream *s);
static inline bool tri_stream_copies(const tri_weight_stream *s) { return s->up.count || s->across.count; }

/* stream_split.c. All but create and destroy are the mover's; without a split they do nothing, or tell false. */
tri_status tri_stream_split_create(tri_weight_stream *s, tri_error *err);
void tri_stream_split_destroy(tri_weight_stream *s);
/* Returns whether another rank reads the extent. */
bool tri_stream_is_others(const tri_weight_stream *s, const tri_stream_extent *x);
/* Returns whether this rank reads it for all. */
bool tri_stream_is_for_all(const tri_weight_stream *s, const tri_stream_extent *x);
/* Sets *room where no other rank copies any more from where the position's bytes go. TRI_PEER_LOST: the walk waits for
 * one that has to, and shows no life. */
tri_status tri_stream_split_look(tri_weight_stream *s, uint64_t position, bool *room);
/* The position has room: pieces may come; and all of this rank's have begun. */
void tri_stream_split_begin(tri_weight_stream *s);
void tri_stream_split_end(tri_weight_stream *s);
/* Returns whether one more piece of this rank's may begin. */
bool tri_stream_split_can_hold(const tri_weight_stream *s);
/* Notes that a piece for all has begun, and returns its number. slot: of the reader, -1: none has it. */
uint64_t tri_stream_split_hold(tri_weight_stream *s, int slot);
/* Forgets the pieces that all ranks have taken, and gives their buffers back. */
void tri_stream_split_retire(tri_weight_stream *s);
/* Takes what others have published. TRI_PEER_LOST: the walk waits for what will never be published. */
tri_status tri_stream_split_take(tri_weight_stream *s);
/* Pieces that are still to come of a part; 0 without a split. */
static inline int tri_stream_missing(const tri_weight_stream *s, int part) { return s->missing ? s->missing[part] : 0; }

#endif
