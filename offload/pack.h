/* SPDX-License-Identifier: Apache-2.0 */
/* A pack: the streamed weights of one rank in a file of their own, each part as it lies in memory. It is made where the
 * checkpoint's layout does not allow to stream from it: weights that are cut, transposed, interleaved or quantised.
 *
 * The file: a header of one block, the table of parts, then the parts, each at a multiple of TRI_WEIGHT_PACK_ALIGN and
 * padded with zeros to whole blocks of TRI_READER_BLOCK, so that direct reads put it to its place. All numbers are
 * little-endian. The table has for each part its offset, its bytes, the XXH3 (64 bits) of its bytes, and a seal over
 * all of these (pack_form.h).
 *
 * striped_pack.h makes packs, and spreads one over several folders: there each folder has such a file of its own, whose
 * parts are stripes.
 *
 * A pack belongs to a key, which covers everything that its bytes depend on. One of another key, another version, or
 * with a header, a table or a length that is not sound, counts as absent and is made anew. */
#ifndef TRI_OFFLOAD_PACK_H
#define TRI_OFFLOAD_PACK_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define TRI_WEIGHT_PACK_ALIGN ((uint64_t)2 << 20)
enum { TRI_WEIGHT_PACK_VERSION = 1, TRI_WEIGHT_PACK_MAX_PARTS = 1 << 20 };

typedef struct tri_weight_pack_key {
  uint64_t words[2];
} tri_weight_pack_key;

typedef struct tri_weight_pack_layout {
  tri_weight_pack_key key;
  const size_t *part_bytes; /* [num_parts], each > 0; borrowed */
  int num_parts;
} tri_weight_pack_layout;

/* An open pack that is whole. Owns its descriptor and arrays. */
typedef struct tri_weight_pack {
  int fd;
  char *path;
  int num_parts;
  uint64_t *offsets;   /* [num_parts] in the file */
  uint64_t *checksums; /* [num_parts] XXH3 of the part's bytes, without the padding */
  uint64_t file_bytes;
} tri_weight_pack;

/* TRI_NOT_FOUND: there is none of this layout, with the reason (absent; of another key; cut off; ...). Other failures
 * are those of the file system. Reads the header and the table alone. */
tri_status tri_weight_pack_open(const char *path, const tri_weight_pack_layout *layout, tri_weight_pack **out,
                                tri_error *err);
void tri_weight_pack_close(tri_weight_pack *p); /* NULL is fine */

/* Returns the bytes of such a file; 0 where they are too many to count. */
uint64_t tri_weight_pack_file_bytes(const tri_weight_pack_layout *layout);

#endif
