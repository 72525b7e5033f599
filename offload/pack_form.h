/* SPDX-License-Identifier: Apache-2.0 */
/* A pack's header and table as they lie in the file, for those who read one (pack.c) and make one (pack_make.c).
 *
 * Nothing in them is believed: a header must be, byte by byte, the one that the layout asks for, and so must an entry,
 * but for the part's checksum. An entry's seal tells an entry that was written to its end, of this very pack. */
#ifndef TRI_OFFLOAD_PACK_FORM_H
#define TRI_OFFLOAD_PACK_FORM_H

#include "offload/pack.h"
#include "offload/reader.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "numbers are written as they lie in memory");
_Static_assert(TRI_WEIGHT_PACK_ALIGN % TRI_READER_BLOCK == 0, "a part begins with a block");

#define TRI_WEIGHT_PACK_MAGIC "TRI-PACK"

typedef struct tri_weight_pack_header {
  char magic[8];
  uint32_t version, num_parts;
  tri_weight_pack_key key;
  uint64_t file_bytes;
  uint64_t sizes; /* XXH3 of all the parts' sizes */
  uint64_t zeros[TRI_READER_BLOCK / 8 - 7];
  uint64_t checksum; /* XXH3 of everything before */
} tri_weight_pack_header;
_Static_assert(sizeof(tri_weight_pack_header) == TRI_READER_BLOCK, "one block");

typedef struct tri_weight_pack_entry {
  uint64_t offset, bytes, checksum; /* the part: where it begins, without the padding, its XXH3 */
  uint64_t seal;
} tri_weight_pack_entry;

void tri_weight_pack_header_fill(tri_weight_pack_header *h, const tri_weight_pack_layout *layout);
tri_weight_pack_entry tri_weight_pack_entry_make(const tri_weight_pack_header *h, uint64_t offset, uint64_t bytes,
                                                 uint64_t checksum);
static inline uint64_t tri_weight_pack_entry_offset(int part) {
  return TRI_READER_BLOCK + (uint64_t)part * sizeof(tri_weight_pack_entry);
}
/* A part's bytes with the padding. */
static inline uint64_t tri_weight_pack_padded(uint64_t bytes) {
  return (bytes + TRI_READER_BLOCK - 1) / TRI_READER_BLOCK * TRI_READER_BLOCK;
}

/* TRI_OUT_OF_RANGE: no pack can be like this. The functions above and below take layouts that can be. */
tri_status tri_weight_pack_layout_check(const char *path, const tri_weight_pack_layout *layout, tri_error *err);
/* Takes a descriptor over, also where it fails, with the offsets of a layout and no checksums. */
tri_status tri_weight_pack_wrap(int fd, const char *path, const tri_weight_pack_layout *layout, tri_weight_pack **out,
                                tri_error *err);
/* Reads the header and the table. *sound: so many parts, from the first on, have an entry, and p their checksums.
 * TRI_NOT_FOUND: the file is not of this layout, with the reason. */
tri_status tri_weight_pack_scan(tri_weight_pack *p, const tri_weight_pack_layout *layout, int *sound, tri_error *err);

#endif
