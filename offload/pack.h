/* A pack: the streamed weights of one rank in a file of their own, each part as it lies in memory. It is made where the
 * checkpoint's layout does not allow to stream from it: weights that are cut, transposed, interleaved or quantised.
 *
 * The file: a header of one block, the table of parts, then the parts, each at a multiple of TRI_WEIGHT_PACK_ALIGN and
 * padded with zeros to whole blocks of TRI_READER_BLOCK, so that direct reads put it to its place. All numbers are
 * little-endian. The table has for each part its offset, its bytes, the XXH3 (64 bits) of its bytes, and a seal over
 * all of these (pack_form.h).
 *
 * Who makes a pack writes it under another name (`NAME.part`), with the whole file allocated first, so that a full disk
 * shows at once. A part is on the disk before its entry in the table says so: a maker that was killed is followed by
 * one that goes on behind the last whole part. Two makers of one pack: the second waits for the lock of the first, then
 * finds the pack, or goes on with what the first one left. The whole file gets its name when it is complete and on the
 * disk.
 *
 * A pack belongs to a key, which covers everything that its bytes depend on. One of another key, another version, or
 * with a header, a table or a length that is not sound, counts as absent and is made anew. */
#ifndef TRI_OFFLOAD_PACK_H
#define TRI_OFFLOAD_PACK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/status.h"

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

/* Makes the pack unless there is one, and opens it. Memory: one part. TRI_NO_CAPACITY where the file system has too
 * little room (with both numbers), TRI_IO where it fails; what is whole by then stays for the next maker, but after
 * TRI_NO_CAPACITY nothing does. The folder must be there. *made: parts that this call has written; may be NULL. */
tri_status tri_weight_pack_make(const char *path, const tri_weight_pack_layout *layout,
                                const tri_weight_pack_maker *maker, tri_weight_pack **out, int *made, tri_error *err);

/* Compares a part's bytes with its checksum: TRI_CORRUPT with the file and the part. */
tri_status tri_weight_pack_check(const tri_weight_pack *p, int part, const void *memory, size_t bytes, tri_error *err);

#endif
