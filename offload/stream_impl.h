/* The state of a stream, and what its thread does about bytes that are read once for several ranks. */
#ifndef TRI_OFFLOAD_STREAM_IMPL_H
#define TRI_OFFLOAD_STREAM_IMPL_H

#include <pthread.h>
#include <sys/stat.h>

#include "offload/stream.h"
#include "runtime/base/wait.h"

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

/* A copy to a device under way. */
struct copy {
  int slot; /* of the reader; -1: a piece of another rank's, */
  int rank;
  uint64_t number; /* and its number */
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
  int slot; /* of the reader */
  bool is_published;
};

struct tri_weight_stream {
  tri_weight_stream_config cfg;
  tri_reader *reader;
  struct stat *seen;                    /* [num_files] at the start */
  struct piece *pieces;                 /* [num_buffers] of the reader */
  int *under_way;                       /* [num_parts] reads of the part */
  struct copy copies[TRI_PIECE_EVENTS]; /* a queue of copies to a device: entry i has event TRI_EVENT_PIECE + i */
  int first_copy, num_copies;
  struct cursor next;
  /* with a split */
  int *missing; /* [num_parts] pieces of other ranks', of a position that has begun */
  struct peer peers[TRI_SPLIT_MAX_RANKS];
  struct held held[TRI_SPLIT_MAX_BUFFERS]; /* piece n: entry n % num_buffers */
  uint64_t first_held, num_begun;          /* of this rank's pieces: numbers */
  int64_t silence_ns;                      /* after which a rank is taken for lost */

  uint64_t landed;                    /* the mover's own: positions that are whole */
  _Atomic uint64_t arrived, released; /* positions: those below are whole, or done with */
  _Atomic uint64_t wanted;            /* positions: the walk waits for the last of them */
  tri_waker own_mover, *mover, walk;
  pthread_t thread;
  bool has_thread;
  atomic_bool stop;
  atomic_int damaged; /* file; -1: none */
  atomic_int failed;  /* tri_status, behind err */
  tri_error err;
  /* of the walk */
  uint64_t acquired;
  int64_t created, pass_start;
  _Atomic uint64_t bytes, read, stall_ns, passes, pass_ns;
};

static inline int tri_stream_part_at(const tri_weight_stream *s, uint64_t position) {
  return (int)(position % (uint64_t)s->cfg.num_parts);
}

/* Has a device copy bytes into the ring, behind the copies so far. */
void tri_stream_copy(tri_weight_stream *s, char *to, const void *data, size_t bytes, struct copy c);

/* stream_split.c. All but create and destroy are the mover's; without a split they do nothing, or tell false. */
tri_status tri_stream_split_create(tri_weight_stream *s, tri_error *err);
void tri_stream_split_destroy(tri_weight_stream *s);
/* Tells whether another rank reads the extent. */
bool tri_stream_is_others(const tri_weight_stream *s, const tri_stream_extent *x);
/* Tells whether this rank reads it for all. */
bool tri_stream_is_for_all(const tri_weight_stream *s, const tri_stream_extent *x);
/* The position has room: pieces may come. */
void tri_stream_split_begin(tri_weight_stream *s);
/* Notes that a read for all has begun, into the reader's slot. */
void tri_stream_split_hold(tri_weight_stream *s, struct piece *p, int slot);
/* A piece of this rank's is there. data: in its buffers. */
void tri_stream_split_publish(tri_weight_stream *s, const struct piece *p, const char *data);
/* Gives the buffers back of the pieces that all ranks have taken. */
void tri_stream_split_retire(tri_weight_stream *s);
/* Takes what others have published. TRI_PEER_LOST: the walk waits for what nobody will publish. */
tri_status tri_stream_split_take(tri_weight_stream *s);
/* Pieces that are still to come of a part; 0 without a split. */
static inline int tri_stream_missing(const tri_weight_stream *s, int part) { return s->missing ? s->missing[part] : 0; }

#endif
