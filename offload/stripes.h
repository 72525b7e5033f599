/* SPDX-License-Identifier: Apache-2.0 */
/* How the parts of a pack lie in several files, one on each drive, so that a part's bytes come from all of them at once
 * (striping, as RAID 0 has it: Patterson, Gibson, Katz 1988).
 *
 * A part is cut into stripes of one size, at most TRI_STRIPE_BYTES, which go to the files in turn: as many for each
 * file, and each file's as large, but for what rounding to whole blocks takes from the last. The layout of a file has
 * its stripes as parts, and a key of its own, which depends on how many files there are and which one it is. A single
 * file has the parts whole, and the pack's own key. */
#ifndef TRI_OFFLOAD_STRIPES_H
#define TRI_OFFLOAD_STRIPES_H

#include "offload/pack.h"

enum { TRI_STRIPE_BYTES = TRI_WEIGHT_PACK_ALIGN, TRI_STRIPES_MAX_FILES = 16 };

typedef struct tri_stripe {
  int file, number; /* which part of which file it is */
  size_t at, bytes; /* of the pack's part */
} tri_stripe;

typedef struct tri_stripes {
  tri_weight_pack_layout files[TRI_STRIPES_MAX_FILES];
  int num_files, num_parts;
  tri_stripe *list; /* the parts' one after the other, each part's from its first byte on */
  int *first;       /* [num_parts + 1] in the list */
  size_t *bytes;    /* the files' part_bytes */
} tri_stripes;

/* TRI_OUT_OF_RANGE: no pack can be like this, in so many files; the message begins with `name`. */
tri_status tri_stripes_make(const char *name, const tri_weight_pack_layout *layout, int num_files, tri_stripes **out,
                            tri_error *err);
void tri_stripes_free(tri_stripes *s); /* NULL is fine */

#endif
