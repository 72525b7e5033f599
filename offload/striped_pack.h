/* SPDX-License-Identifier: Apache-2.0 */
/* A pack (pack.h) in one file, or spread over several folders, with a file in each (stripes.h). It is there when all of
 * its files are whole.
 *
 * Who makes it writes each file under another name (`NAME.part`), with the whole file allocated first, so that a full
 * disk shows at once. A part is on the disk before its entry in the table says so: a maker that was killed is followed
 * by one that continues after the last whole part. Two makers of one pack: the second waits for the lock of the first,
 * then finds the pack, or continues with what the first one left. A file gets its name when it is complete and on the
 * disk. Files that are whole stay as they are while the others are made.
 *
 * Files are locked in the order that is given: makers of packs that share a folder must name their files in one order.
 */
#ifndef TRI_OFFLOAD_STRIPED_PACK_H
#define TRI_OFFLOAD_STRIPED_PACK_H

#include <stdatomic.h>

#include "offload/stripes.h"

typedef struct tri_striped_pack {
  tri_weight_pack *files[TRI_STRIPES_MAX_FILES];
  tri_stripes *stripes;
} tri_striped_pack;

typedef struct tri_pack_paths {
  const char *list[TRI_STRIPES_MAX_FILES]; /* of files, all different; borrowed */
  int count;                               /* 1 .. TRI_STRIPES_MAX_FILES */
} tri_pack_paths;

/* Fails as tri_weight_pack_open of the first file with which that fails. */
tri_status tri_striped_pack_open(const tri_pack_paths *paths, const tri_weight_pack_layout *layout,
                                 tri_striped_pack **out, tri_error *err);
void tri_striped_pack_close(tri_striped_pack *p); /* NULL is fine */

typedef struct tri_weight_pack_maker {
  void *ctx;
  /* Fills memory [part_bytes[part]], page aligned and zeroed, with the part. */
  tri_status (*fill)(void *ctx, int part, void *memory, tri_error *err);
  /* Tells how far it has come, after each part; may be NULL. */
  void (*progress)(void *ctx, int parts_done, int num_parts, uint64_t bytes_done, uint64_t bytes);
  /* Tells that another maker, which is waited for, has written to its file; may be NULL. */
  void (*other_wrote)(void *ctx);
  const atomic_bool *stop; /* true ends it with TRI_ABORTED between two parts; may be NULL */
} tri_weight_pack_maker;

/* Makes the pack unless there is one, and opens it. Memory: one part. TRI_NO_CAPACITY where a file system has too
 * little room (with the file and both numbers), TRI_IO where one fails; what is whole by then stays for the next maker,
 * but after TRI_NO_CAPACITY only files that have their names do. The folders must be there. *made: parts that this
 * call has written, wholly or in part; may be NULL. */
tri_status tri_striped_pack_make(const tri_pack_paths *paths, const tri_weight_pack_layout *layout,
                                 const tri_weight_pack_maker *maker, tri_striped_pack **out, int *made, tri_error *err);

#endif
