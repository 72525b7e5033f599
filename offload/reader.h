/* SPDX-License-Identifier: Apache-2.0 */
/* Byte ranges of files, many at a time, into a ring of buffers: what fills weights from a disk.
 *
 * Reads go past the page cache where the file system allows it (O_DIRECT), and through it otherwise. A range may begin
 * and end anywhere: what is read is whole blocks around it. Reads that end short, interrupted or refused for want
 * of alignment are asked for again, and only then is it a failure.
 *
 * One thread uses a reader. Ranges of whole blocks can go straight to where they belong. Buffers lie side by side in
 * memory that the caller may give (pinned for a device). */
#ifndef TRI_OFFLOAD_READER_H
#define TRI_OFFLOAD_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "offload/aio.h"
#include "base/status.h"

enum { TRI_READER_BLOCK = 4096 }; /* bytes: direct reads begin and end at multiples of it */

typedef struct tri_reader_config {
  size_t piece_bytes; /* of the longest range; a multiple of TRI_READER_BLOCK */
  int num_buffers;    /* 1 .. TRI_AIO_MAX_DEPTH: ranges under way or in the caller's hands */
  tri_aio_kind kind;
  bool buffered;  /* through the page cache, also where that is not necessary */
  void *memory;   /* tri_reader_memory_bytes of them, page aligned, the caller's; NULL: the reader has its own */
  int timeout_ms; /* a disk that says nothing for so long has failed; 0: a minute */
  tri_aio *aio;   /* a queue to use instead, which becomes the reader's also where creating it fails; NULL: by kind */
} tri_reader_config;

typedef struct tri_reader tri_reader;

/* Pieces of 4 MiB, 32 of them: the host memory that a rank reads its weights through. */
tri_reader_config tri_reader_config_default(void);

/* Returns the bytes of all buffers of such a reader; 0 where the numbers are out of range. */
size_t tri_reader_memory_bytes(const tri_reader_config *config);

tri_status tri_reader_create(const tri_reader_config *config, tri_reader **out, tri_error *err);
/* Waits for what is under way, at most timeout_ms since the last sign of life. False: reads have not ended and may
 * still write to the buffers; these, the caller's, too, must stay for the life of the process. NULL is fine. */
bool tri_reader_destroy(tri_reader *r);

/* fd and path stay the caller's and must outlive the reader. *file: its number, from 0 on. */
tri_status tri_reader_add_file(tri_reader *r, int fd, const char *path, int *file, tri_error *err);

/* Begins to read 1 .. piece_bytes bytes. *slot, below num_buffers, names the range until tri_reader_release. TRI_AGAIN:
 * every buffer is taken. */
tri_status tri_reader_start(tri_reader *r, int file, uint64_t offset, size_t bytes, int *slot, tri_error *err);
/* The same of whole blocks, straight to memory of the caller's that begins at a multiple of TRI_READER_BLOCK. It is the
 * read's until tri_reader_next has brought the range. */
tri_status tri_reader_start_at(tri_reader *r, int file, uint64_t offset, size_t bytes, void *to, int *slot,
                               tri_error *err);
/* Waits for one of the ranges under way, whichever comes first. Its bytes are the caller's to read and change until the
 * release; they lie as far from a multiple of TRI_READER_BLOCK as in the file. TRI_AGAIN: none is under way. TRI_IO
 * with the file and the reason otherwise; nothing is to be expected of the reader after that. */
tri_status tri_reader_next(tri_reader *r, int *slot, void **data, tri_error *err);
void tri_reader_release(tri_reader *r, int slot);

const char *tri_reader_name(const tri_reader *r); /* "io_uring", "threads" */
bool tri_reader_is_direct(const tri_reader *r);   /* every file so far */
uint64_t tri_reader_bytes(const tri_reader *r);   /* asked for with tri_reader_start */

#endif
