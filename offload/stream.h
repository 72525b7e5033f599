/* SPDX-License-Identifier: Apache-2.0 */
/* Weights that do not stay in memory: the parts of a model come from files or from the host's memory, in the order in
 * which every step walks over them, into a ring that has room for a few (ZeRO-Inference: DeepSpeed-Inference, Aminabadi
 * et al. 2022, section VI).
 *
 * A thread of the stream's own reads ahead of the walk, as far as the ring has room, and over the end of a step: the
 * first parts of the next one come while this one samples. The walk says when it wants a part and when it is done with
 * it:
 *
 *   tri_weight_stream_acquire(s, part)   waits until the part is there
 *   ...                                  reads it, at ring + places[part].at
 *   tri_weight_stream_release(s, part)   it may be overwritten
 *
 * Parts are acquired and released in their order, 0 .. num_parts - 1, again and again. Nothing but bytes: what they
 * mean, and which parts there are, the caller knows.
 *
 * Streams of several ranks of a host that walk in step can read what they have in common once for all (split.h): each
 * has its own ring and its own parts, and a part is there when the bytes that this rank has read for itself and those
 * that others have read for it are. Devices that reach each other's rings copy what the others have read from there, so
 * that it goes over one device's link only. */
#ifndef TRI_OFFLOAD_STREAM_H
#define TRI_OFFLOAD_STREAM_H

#include <stdatomic.h>

#include "kernels/backend.h"
#include "offload/reader.h"
#include "offload/ring.h"
#include "offload/split.h"

/* Bytes of a file, or of a device in the host's memory, and where in the part they go. */
typedef struct tri_stream_extent {
  const char *home; /* the bytes: memory of host_alloc or host_pin; NULL: they come from a file */
  int file;
  uint64_t offset;
  size_t bytes, at;
  uint64_t checksum; /* XXH3 of the bytes, where the stream compares them */
  int reader;        /* of a split: r + 1: its rank r reads them for all; 0: each rank reads them for itself */
} tri_stream_extent;

typedef struct tri_stream_part {
  const tri_stream_extent *extents;
  int num_extents;
  const tri_stream_extent *checked; /* with checksums; NULL: the extents are */
  int num_checked;
} tri_stream_part;

typedef struct tri_stream_file {
  int fd;
  const char *path;
} tri_stream_file;

/* The ring of a rank's device, where this one's can copy from it. */
typedef struct tri_stream_ring {
  const char *memory;
  size_t bytes;
} tri_stream_ring;

/* Everything that is pointed to is borrowed, and outlives the stream. */
typedef struct tri_weight_stream_config {
  const tri_stream_file *files;
  int num_files;
  const tri_stream_part *parts;
  const size_t *part_bytes;     /* [num_parts] */
  const tri_ring_place *places; /* [num_parts] */
  int num_parts;
  bool has_checksums;   /* they are compared in the first pass, whichever rank has read what. Not of a device */
  tri_backend *backend; /* a device whose memory the ring is: its copy stream moves the parts, and acquire and release
                           are points of its compute stream; NULL: the ring is the host's */
  char *ring;           /* begins at a multiple of TRI_RING_ALIGN */
  tri_reader_config reads; /* timeout_ms 0: 10 s without a byte is a stall; aio as there; memory too, which must be
                              host_alloc's of a device. num_buffers: at most TRI_PIECE_EVENTS of a device, half of
                              them with a split */
  tri_split *split; /* NULL: no other stream has the same bytes. reads.memory is this rank's buffers there, and extents
                       with a reader have at most reads.piece_bytes. All ranks have the same of those, in the same
                       order, whatever else their parts have and wherever that lies */
  const tri_stream_ring *rings; /* of a device with a split: [its ranks], which have this one's ring as well; a place
                                   there is overwritten when all have copied from it. NULL: what is read for all goes
                                   through the split's buffers, and comes from files alone */
  int first_parts; /* that tri_weight_stream_fill waits for: with a split as many as every rank's ring has room for; 0:
                      as many as this one has */
  const atomic_bool *stop; /* true ends a wait with TRI_ABORTED; may be NULL */
  bool poison; /* for tests: what is released is filled with 0xff, which is no number of any type. Not of a device */
} tri_weight_stream_config;

typedef struct tri_weight_stream tri_weight_stream;

/* The first parts are on their way when it returns. */
tri_status tri_weight_stream_create(const tri_weight_stream_config *config, tri_weight_stream **out, tri_error *err);
/* False: reads have not ended, and the ring must stay for the life of the process; see tri_reader_destroy. NULL is
 * fine. */
bool tri_weight_stream_destroy(tri_weight_stream *s);

/* Waits, before the first acquire, until the ring is as full as it gets. *bytes_per_second: what that has shown. Fails
 * as an acquire does. */
tri_status tri_weight_stream_fill(tri_weight_stream *s, double *bytes_per_second);
/* Waits for the part; of a device, what is launched from here on comes after its arrival.
 * TRI_IO or TRI_TIMEOUT: bytes are not what their checksum says, a file cannot be read, has changed since
 * the stream was made, or its disk stands still; the stream is of no use afterwards, and tri_weight_stream_failure has
 * the words. TRI_PEER_LOST, the same: a rank of the split that has bytes of the part to read has failed, or shows no
 * life for a little longer than a disk may stand still. TRI_ABORTED by `stop`. */
tri_status tri_weight_stream_acquire(tri_weight_stream *s, int part);
void tri_weight_stream_release(tri_weight_stream *s, int part);
/* Returns the file of which bytes were not what their checksum says; -1: there is none. A file that is as it should be
 * is not meant where a rank of the split has read something else from its own. */
int tri_weight_stream_damaged_file(const tri_weight_stream *s);
const char *tri_weight_stream_failure(const tri_weight_stream *s); /* "" while there is none; by the walk's thread */

/* Since the start; any thread may ask. */
typedef struct tri_stream_figures {
  uint64_t bytes;    /* that have come */
  uint64_t read;     /* of them, that this stream has read from files */
  uint64_t peer;     /* and that other ranks have read, or brought to their devices; the others are homes' */
  uint64_t stall_ns; /* that the walk has waited; of a device, that its launches have */
  uint64_t passes;   /* whole ones */
  uint64_t pass_ns;  /* of the last whole one, from its first acquire to its last release */
} tri_stream_figures;
tri_stream_figures tri_weight_stream_figures(const tri_weight_stream *s);

#endif
